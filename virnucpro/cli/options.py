"""``-v -q -l -c``: options that work before and after a sub-command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from virnucpro.errors import UsageError
from virnucpro.precision import PRECISION_CHOICES
from virnucpro.settings import DisplaySettings

F = TypeVar("F", bound=Callable[..., Any])
COUNT = click.IntRange(min=1)
_NAMES = ("verbose", "quiet", "log_file", "config")


class ModelTypes(click.Choice[str]):
    """The model types that are shown; ``toy``, for tests of the machinery, is taken as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The type, as it is named."""
        return value if value == "toy" else super().convert(value, param, ctx)


def shared_options(command: F) -> F:
    """Add the four options; their values are kept in the context, the later one wins."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _NAMES}
        shared = click.get_current_context().ensure_object(dict)
        shared.update({name: value for name, value in given.items() if value})
        if shared.get("verbose") and shared.get("quiet"):
            raise UsageError("--quiet and --verbose contradict each other: leave one out")
        return command(*args, **kwargs)

    decorated: Any = wrapped
    for option in (
        click.option("-c", "--config", type=click.Path(path_type=Path), help="YAML configuration."),
        click.option("-l", "--log-file", type=click.Path(path_type=Path), help="Log to this file."),
        click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors."),
        click.option("-v", "--verbose", is_flag=True, help="More detail."),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def encoder_options(command: F) -> F:
    """Add the options that say where and how the encoders compute."""
    decorated: Any = command
    for option in (
        click.option(
            "-t",
            "--threads",
            type=COUNT,
            metavar="N",
            help="Host threads in all.  [default: all cores]",
        ),
        click.option(
            "-w",
            "--num-workers",
            type=COUNT,
            metavar="N",
            help="Host threads a worker uses for tokens.",
        ),
        click.option(
            "--dnabert-batch-size", type=COUNT, metavar="N", help="Sequences a DNABERT-S batch."
        ),
        click.option("--esm-batch-size", type=COUNT, metavar="N", help="Tokens an ESM-2 batch."),
        click.option(
            "--precision",
            type=click.Choice(PRECISION_CHOICES),
            help="Arithmetic of the encoders; auto is bf16 on GPUs that have it, fp32 on the CPU.",
        ),
        click.option(
            "--compile",
            type=click.Choice(["auto", "always", "never"]),
            help="Compile the models for a GPU; auto: where there is enough to embed.",
        ),
        click.option(
            "--cpu-workers", type=COUNT, metavar="N", help="Compute on the CPU in N processes."
        ),
        click.option(
            "--gpus", metavar="LIST", help="GPUs to use: 0,1,2 or UUIDs.  [default: all visible]"
        ),
        click.option(
            "-d",
            "--device",
            metavar="D",
            help="auto, cpu, cuda, cuda:0,2, a number or a GPU's UUID.  [default: auto]",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def machine_given(options: dict[str, Any]) -> dict[str, Any]:
    """Values of :func:`encoder_options` by the setting of ``MachineSettings`` that each fills."""
    return {
        "device": options["device"],
        "gpus": options["gpus"],
        "cpu_workers": options["cpu_workers"],
        "esm_tokens": options["esm_batch_size"],
        "dnabert_sequences": options["dnabert_batch_size"],
        "tokenizer_threads": options["num_workers"],
        "threads": options["threads"],
        "compile": options["compile"],
    }


def config_path() -> Path | None:
    """The configuration file given on the command line."""
    path: Path | None = click.get_current_context().ensure_object(dict).get("config")
    return path


def quiet() -> bool:
    """Whether only warnings and errors are wanted."""
    return bool(click.get_current_context().ensure_object(dict).get("quiet"))


def displayed(display: DisplaySettings, *, progress: bool) -> DisplaySettings:
    """``display`` of the configuration with the options on top."""
    shared = click.get_current_context().ensure_object(dict)
    level = (
        "DEBUG" if shared.get("verbose") else "WARNING" if shared.get("quiet") else display.level
    )
    return replace(
        display,
        level=level,
        progress=display.progress and progress,
        log_file=shared.get("log_file") or display.log_file,
    )
