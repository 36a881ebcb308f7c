"""The ``virnucpro`` command and its sub-commands, imported only when they are needed."""

from __future__ import annotations

from importlib import import_module

import click

from virnucpro import __version__
from virnucpro.cli.options import shared_options

COMMANDS = {
    "predict": "virnucpro.cli.predict:predict",
    "status": "virnucpro.cli.status:status",
    "models": "virnucpro.cli.models:models",
    "profile": "virnucpro.cli.profile:profile",
    "utils": "virnucpro.cli.utils:utils",
}


class LazyGroup(click.Group):
    """Sub-commands by name and place; ``--version`` and a typing error import none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples: virnucpro predict reads.fq.gz   |   virnucpro models list",
)
@click.version_option(__version__, "-V", "--version", prog_name="virnucpro")
@shared_options
def app() -> None:
    """Find viral sequences in FASTA and FASTQ files."""
