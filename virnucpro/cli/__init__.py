"""The ``virnucpro`` command. Its sub-commands are in the modules of this folder."""

from __future__ import annotations

import io
import traceback
from collections.abc import Sequence

import click

from virnucpro.cli.shared import Group
from virnucpro.errors import RunInterruptedError, UsageError, VirNucProError
from virnucpro.formatting import printable
from virnucpro.version import __version__

SIGINT = 2
# The commands in the order of the help text, and the modules that they are in.
MODULES = {
    **{"predict": "predict", "demo": "demo", "call": "results", "status": "status"},
    **{"report": "results", "plot": "results", "models": "models", "train": "train"},
    **{"evaluate": "results", "rcl": "rcl", "profile": "profile", "utils": "utils"},
}
EPILOG = """\b
Examples:
  virnucpro demo
  virnucpro predict contigs.fa -m lite
  virnucpro models list
"""

# Modules that come with an extra; all others come with the program.
EXTRAS = {"Bio": "train", "tensorboard": "train", "ray": "cluster"}


app = Group(
    "virnucpro",
    modules=MODULES,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    help="Find viral sequences in FASTA and FASTQ files.",
    epilog=EPILOG,
)
app = click.version_option(
    __version__, "-V", "--version", prog_name="virnucpro", help="Show the version."
)(app)


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code. Errors are one message on stderr."""
    problem: VirNucProError | RunInterruptedError
    try:
        code = app.main(args=list(arguments), prog_name="virnucpro", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(printable(shown.getvalue()), nl=False, err=True)
        return UsageError.exit_code
    except (VirNucProError, RunInterruptedError) as error:
        problem = error
    except (click.Abort, KeyboardInterrupt):
        problem = RunInterruptedError(SIGINT)
    except ModuleNotFoundError as error:
        problem = UsageError(_missing(str(error.name)))
    except Exception:  # noqa: BLE001 - the outermost edge: a bug, shown whole to be reported
        click.echo(printable(traceback.format_exc()), err=True)
        problem = VirNucProError(
            "internal error: please report the text above; the same command continues"
        )
    click.echo(printable(f"virnucpro: {problem}"), err=True)
    return problem.exit_code


def _missing(module: str) -> str:
    if extra := EXTRAS.get(module.partition(".")[0]):
        return f"the package {module} is missing: pip install 'virnucpro[{extra}]'"
    return f"the package {module} is missing: this installation is incomplete; install it again"
