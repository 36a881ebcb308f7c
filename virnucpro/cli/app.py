"""The ``virnucpro`` command and its sub-commands, imported only when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from virnucpro.cli.shared import GLOBAL_OPTIONS
from virnucpro.version import __version__

# The commands in the order of the help text, and the modules that they are in.
MODULES = {
    **{"predict": "predict", "demo": "demo", "call": "results", "status": "status"},
    **{"report": "results", "plot": "results", "models": "models"},
    **{"train": "app", "evaluate": "results", "rcl": "app", "profile": "profile", "utils": "utils"},
}
EPILOG = """\b
Examples:
  virnucpro demo
  virnucpro predict contigs.fa -m lite
  virnucpro models list
"""
TRAIN_EPILOG = """\b
The steps in their order:
  virnucpro train prepare genomes.tsv --output-dir DATASET
  virnucpro train embed DATASET
  virnucpro train classifier DATASET --output my.safetensors
"""


class LazyGroup(click.Group):
    """A group whose sub-commands are imported when they are called.

    So ``--version`` and a mistyped command are answered at once.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        """``modules`` maps each name to a module of this folder, in the order of the help text."""
        super().__init__(*args, params=[*GLOBAL_OPTIONS], **kwargs)
        self.modules = modules
        self.commands.update((name, click.Command(name)) for name in modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        if cmd_name not in self.modules:
            return None
        module = import_module(f"virnucpro.cli.{self.modules[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


train = LazyGroup(
    "train",
    modules=dict.fromkeys(("prepare", "embed", "classifier"), "train"),
    help="Train a classifier on your genomes.",
    epilog=TRAIN_EPILOG,
)
RCL_COMMANDS = ("predict", "embed", "train", "evaluate", "validate", "plot", "profile")
rcl = LazyGroup(
    "rcl",
    modules=dict.fromkeys(RCL_COMMANDS, "rcl"),
    help="Find the reactive center loop in serpins.",
)
app = LazyGroup(
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
