"""``-v -q -l -c``: options that work before and after a sub-command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from virnucpro.errors import UsageError
from virnucpro.settings import Display

F = TypeVar("F", bound=Callable[..., Any])
_NAMES = ("verbose", "quiet", "log_file", "config")


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


def config_path() -> Path | None:
    """The configuration file given on the command line."""
    path: Path | None = click.get_current_context().ensure_object(dict).get("config")
    return path


def quiet() -> bool:
    """Whether only warnings and errors are wanted."""
    return bool(click.get_current_context().ensure_object(dict).get("quiet"))


def displayed(display: Display, *, progress: bool) -> Display:
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
