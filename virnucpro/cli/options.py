"""The options that several commands share, and what they mean for the settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virnucpro.configuration import Configuration, load_configuration
from virnucpro.errors import UsageError
from virnucpro.precision import PRECISION_CHOICES
from virnucpro.settings import COMPILE_CHOICES

if TYPE_CHECKING:
    from virnucpro.contracts import Device

F = TypeVar("F", bound=Callable[..., Any])
COUNT = click.IntRange(min=1)
PATH = click.Path(path_type=Path)

# The setting that each option fills; see Configuration.with_values.
SETTINGS = {
    "model_type": "analysis.model_type",
    "model_path": "analysis.classifier",
    "expected_length": "analysis.chunk_length",
    "precision": "analysis.precision",
    "duplicate_ids": "analysis.duplicate_ids",
    "device": "machine.device",
    "gpus": "machine.gpus",
    "cpu_workers": "machine.cpu_workers",
    "esm_batch_size": "machine.protein_batch",
    "dnabert_batch_size": "machine.nucleotide_batch",
    "num_workers": "machine.tokenizer_threads",
    "threads": "machine.threads",
    "compile": "machine.compile",
    "batch_size": "machine.classifier_rows",
}


class ModelTypes(click.Choice[str]):
    """The model types that help texts show; ``toy``, which is for tests, is accepted too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of the type."""
        return value if value == "toy" else super().convert(value, param, ctx)


def grouped(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, which help texts show in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_shared = grouped(
    click.option("-v", "--verbose", is_flag=True, help="Show more details."),
    click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors."),
    click.option("-l", "--log-file", type=PATH, metavar="FILE", help="Write a log to this file."),
    click.option(
        "-c", "--config", type=PATH, metavar="FILE", help="Read settings from this YAML file."
    ),
)


def shared_options(command: F) -> F:
    """Add the options that every command has, and that may also stand before its name.

    Their values are kept in the context of click, where the later one replaces the earlier.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        names = ("verbose", "quiet", "log_file", "config")
        given = {name: kwargs.pop(name) for name in names}
        shared = _shared_values()
        shared.update({name: value for name, value in given.items() if value})
        if shared.get("verbose") and shared.get("quiet"):
            raise UsageError("--quiet and --verbose contradict each other: leave one out")
        return command(*args, **kwargs)

    return _shared(wrapped)  # type: ignore[return-value]


threads_option = click.option(
    "-t",
    "--threads",
    type=COUNT,
    metavar="N",
    help="Number of host threads in total.  [default: all cores]",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all random choices.",
)
resume_option = click.option(
    "--resume",
    is_flag=True,
    help="Continue unfinished work of the same command, and try again what failed.",
)
force_option = click.option(
    "-f", "--force", is_flag=True, help="Start over; existing results are moved aside."
)
no_progress_option = click.option(
    "--no-progress",
    is_flag=True,
    help="Print a plain line every 10 seconds instead of drawing the progress.",
)
precision_option = click.option(
    "--precision",
    type=click.Choice(PRECISION_CHOICES),
    help="Arithmetic of the encoders; auto is bf16 if every GPU has it, and fp32 on the CPU.",
)
device_options = grouped(
    click.option(
        "-d",
        "--device",
        metavar="D",
        help="Device: auto, cpu, cuda, cuda:0,2, a number or the UUID of a GPU.  [default: auto]",
    ),
    click.option(
        "--gpus",
        metavar="LIST",
        help="GPUs to use, such as 0,1,2, or their UUIDs.  [default: all visible GPUs]",
    ),
)
encoder_options = grouped(
    device_options,
    click.option(
        "--cpu-workers", type=COUNT, metavar="N", help="Compute on the CPU in N processes."
    ),
    click.option(
        "--compile",
        type=click.Choice(COMPILE_CHOICES),
        help="Compile the models for a GPU; auto does so if there is enough to embed.",
    ),
    precision_option,
    click.option(
        "--esm-batch-size", type=COUNT, metavar="N", help="Number of tokens per ESM-2 batch."
    ),
    click.option(
        "--dnabert-batch-size",
        type=COUNT,
        metavar="N",
        help="Number of sequences per DNABERT-S batch.",
    ),
    click.option(
        "-w",
        "--num-workers",
        type=COUNT,
        metavar="N",
        help="Number of host threads per worker that make tokens.",
    ),
    threads_option,
)


def _shared_values() -> dict[str, Any]:
    values: dict[str, Any] = click.get_current_context().ensure_object(dict)
    return values


def quiet() -> bool:
    """Return whether ``--quiet`` was given."""
    return bool(_shared_values().get("quiet"))


def configuration(options: Mapping[str, Any] | None = None) -> Configuration:
    """Return all settings: defaults, configuration file, and the options of a command on top.

    Options that fill no setting are left to the command.

    Raises:
        ConfigError: the configuration file is missing or wrong (exit 64).
        UsageError: a value is out of its range (exit 64).
    """
    given, shared = options or {}, _shared_values()
    path: Path | None = shared.get("config")
    values = {
        setting: given[name] for name, setting in SETTINGS.items() if given.get(name) is not None
    }
    if given.get("keep_intermediate"):
        values["machine.keep_intermediate"] = True
    if given.get("no_progress"):
        values["display.progress"] = False
    if shared.get("log_file"):
        values["display.log_file"] = shared["log_file"]
    if shared.get("verbose") or shared.get("quiet"):
        values["display.level"] = "DEBUG" if shared.get("verbose") else "WARNING"
    return (load_configuration(path) if path else Configuration()).with_values(values)


def measured_device(options: Mapping[str, Any]) -> Device:
    """Return the first device that ``predict`` would take, and settle this process on it.

    CUDA must not have been used in this process before.

    Raises:
        UsageError: ``--device`` or ``--gpus`` is malformed, or names an unknown GPU.
        DeviceError: a GPU was asked for and there is none.
    """
    from virnucpro.devices import choose_devices, visible_gpus
    from virnucpro.executors.processes import settle_on_device

    given = {name: options.get(name) for name in ("device", "gpus", "threads")}
    machine = replace(configuration(given).machine, max_workers=1)
    device = choose_devices(machine, visible_gpus())[0]
    if device.kind == "cuda":
        settle_on_device(device, machine.tokenizer_threads)
    import torch

    torch.set_num_threads(device.threads)
    return device
