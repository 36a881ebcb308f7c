"""The command line: modules of commands, loaded when they are called."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import click

from virnucpro.cli.app import app
from virnucpro.errors import RunInterruptedError, UsageError, VirNucProError

SIGINT = 2


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code. Errors are one message on stderr."""
    try:
        code = app.main(args=list(arguments), prog_name="virnucpro", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _complain(RunInterruptedError(SIGINT))
    except VirNucProError as error:
        return _complain(error)
    except Exception:  # noqa: BLE001 - the outermost edge: a bug, shown whole to be reported
        traceback.print_exc()
        click.echo(
            "virnucpro: internal error: please report the text above; the same command continues",
            err=True,
        )
        return VirNucProError.exit_code


def _complain(error: VirNucProError) -> int:
    click.echo(f"virnucpro: {error}", err=True)
    return error.exit_code
