"""The ``virnucpro`` command and its sub-commands, imported only when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.version import __version__

COMMANDS = (
    *("predict", "demo", "call", "status", "report", "plot", "models", "train", "evaluate", "rcl"),
    *("profile", "utils"),
)
OF_RESULTS = ("call", "report", "plot", "evaluate")  # in one module
TRAIN_COMMANDS = ("download", "prepare", "embed", "classifier", "lite")
RCL_COMMANDS = ("predict", "embed", "train", "evaluate", "plot", "profile", "validate")
EPILOG = """\b
Examples:
  virnucpro demo
  virnucpro predict reads.fq.gz
  virnucpro models list
"""
TRAIN_EPILOG = """\b
The steps in their order:
  virnucpro train prepare genomes.tsv --output-dir DATASET
  virnucpro train embed DATASET
  virnucpro train classifier DATASET --output my.safetensors
"""
RCL_EPILOG = """\b
Examples:
  virnucpro rcl predict proteins.fa --output-dir results
  virnucpro rcl train --encoding blosum --model unet --serpins serpins.csv --others others.csv
"""


class LazyGroup(click.Group):
    """A group whose sub-commands are imported when they are called.

    So ``--version`` and a mistyped command are answered at once.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        """``modules`` maps each name to a module of this folder, in the order of the help text."""
        super().__init__(*args, **kwargs)
        self.modules = modules
        self.commands.update((name, click.Command(name)) for name in modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        command = self.commands.get(cmd_name)
        if command is not None and command.callback is None:
            module = import_module(f"virnucpro.cli.{self.modules[cmd_name]}")
            self.commands[cmd_name] = command = getattr(module, cmd_name)
        return command


@click.group(
    cls=LazyGroup,
    modules={name: "results" if name in OF_RESULTS else name for name in COMMANDS},
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog=EPILOG,
)
@click.version_option(
    __version__, "-V", "--version", prog_name="virnucpro", help="Show the version."
)
@shared.global_options
def app() -> None:
    """Find viral sequences in FASTA and FASTQ files."""


@app.group(
    cls=LazyGroup,
    modules=dict.fromkeys(TRAIN_COMMANDS, "train"),
    short_help="Train a classifier, or small encoders, on your own genomes.",
    epilog=TRAIN_EPILOG,
)
@shared.global_options
def train() -> None:
    """Train a classifier, or small encoders, on your own labelled genomes."""


@app.group(
    cls=LazyGroup,
    modules=dict.fromkeys(RCL_COMMANDS, "rcl"),
    short_help="Find the reactive center loop in serpins.",
    epilog=RCL_EPILOG,
)
@shared.global_options
def rcl() -> None:
    """Find the reactive center loop (RCL) of serpins in protein sequences."""
