"""The ``virnucpro`` command and its sub-commands, imported only when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.version import __version__

COMMANDS = {
    "predict": "virnucpro.cli.predict:predict",
    "demo": "virnucpro.cli.demo:demo",
    "call": "virnucpro.cli.call:call",
    "status": "virnucpro.cli.status:status",
    "report": "virnucpro.cli.report:report",
    "plot": "virnucpro.cli.plot:plot",
    "models": "virnucpro.cli.models:models",
    "train": "virnucpro.cli.app:train",
    "evaluate": "virnucpro.cli.evaluate:evaluate",
    "rcl": "virnucpro.cli.app:rcl",
    "profile": "virnucpro.cli.profile:profile",
    "utils": "virnucpro.cli.tools:utils",
}
TRAIN_COMMANDS = {
    "download": "virnucpro.cli.train_download:download",
    "prepare": "virnucpro.cli.train_prepare:prepare",
    "embed": "virnucpro.cli.train_embed:embed",
    "classifier": "virnucpro.cli.train_classifier:classifier",
    "lite": "virnucpro.cli.train_lite:lite",
}
RCL_COMMANDS = {
    "predict": "virnucpro.cli.rcl_predict:predict",
    "embed": "virnucpro.cli.rcl_embed:embed",
    "train": "virnucpro.cli.rcl_train:train",
    "evaluate": "virnucpro.cli.rcl_evaluate:evaluate",
    "plot": "virnucpro.cli.rcl_plot:plot",
    "profile": "virnucpro.cli.rcl_profile:profile",
    "validate": "virnucpro.cli.rcl_validate:validate",
}
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


class LazyGroup(shared.SuggestingGroup):
    """A group whose sub-commands are imported when they are called.

    So ``--version`` and a mistyped command are answered at once.
    """

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **kwargs: Any) -> None:
        """``commands_at`` maps each name to ``module:object``, in the order of the help text."""
        super().__init__(*args, **kwargs)
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        if cmd_name not in self.commands_at:
            return None
        module, name = self.commands_at[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
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


@click.group(
    cls=LazyGroup,
    commands_at=TRAIN_COMMANDS,
    short_help="Train a classifier, or small encoders, on your own genomes.",
    epilog=TRAIN_EPILOG,
)
@shared.global_options
def train() -> None:
    """Train a classifier, or small encoders, on your own labelled genomes."""


@click.group(
    cls=LazyGroup,
    commands_at=RCL_COMMANDS,
    short_help="Find the reactive center loop in serpins.",
    epilog=RCL_EPILOG,
)
@shared.global_options
def rcl() -> None:
    """Find the reactive center loop (RCL) of serpins in protein sequences."""
