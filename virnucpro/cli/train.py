"""``virnucpro train``: from labelled genomes to a classifier of one's own."""

from __future__ import annotations

import click

from virnucpro.cli.lazy import LazyGroup
from virnucpro.cli.options import shared_options

COMMANDS: dict[str, str] = {
    "download": "virnucpro.cli.train_download:download",
    "prepare": "virnucpro.cli.train_prepare:prepare",
    "embed": "virnucpro.cli.train_embed:embed",
    "classifier": "virnucpro.cli.train_classifier:classifier",
    "lite": "virnucpro.cli.train_lite:lite",
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    short_help="Train a classifier, or small encoders, on genomes of one's own.",
    epilog="The steps in order: prepare, embed, classifier; see docs/training.md.",
)
@shared_options
def train() -> None:
    """Train a classifier on labelled genomes."""
