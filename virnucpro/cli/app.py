"""The ``virnucpro`` command and its sub-commands, imported only when they are needed."""

from __future__ import annotations

import click

from virnucpro import __version__
from virnucpro.cli.lazy import LazyGroup
from virnucpro.cli.options import shared_options

COMMANDS = {
    "predict": "virnucpro.cli.predict:predict",
    "status": "virnucpro.cli.status:status",
    "models": "virnucpro.cli.models:models",
    "train": "virnucpro.cli.train:train",
    "evaluate": "virnucpro.cli.evaluate:evaluate",
    "profile": "virnucpro.cli.profile:profile",
    "benchmark": "virnucpro.cli.benchmark:benchmark",
    "utils": "virnucpro.cli.utils:utils",
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples: virnucpro predict reads.fq.gz   |   virnucpro models list",
)
@click.version_option(__version__, "-V", "--version", prog_name="virnucpro")
@shared_options
def app() -> None:
    """Find viral sequences in FASTA and FASTQ files."""
