"""``virnucpro train embed``: computes the features of the frames of a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL

if TYPE_CHECKING:
    from virnucpro.training.data.dataset import Part
    from virnucpro.training.embed import EmbeddedPart

TYPES = ("300", "500", "toy")  # not lite, whose encoder reads whole chunks, and not frames
EPILOG = """\b
Examples:
  virnucpro train embed DATASET
  virnucpro train embed DATASET --gpus 0,1 --precision bf16
  virnucpro train embed DATASET --protein-model esm2_t6_8M_UR50D --device cpu
  virnucpro train embed DATASET --protein-model esm2_t33_650M_UR50D --parts train,validation

""" + shared.exit_codes(0, 2, 3, 4, 5, 6, 64, 65, 130)


def parts_named(text: str) -> tuple[Part, ...]:
    """Return ``validation,train`` as a tuple of parts, in their usual order, each once."""
    from virnucpro.training.data.dataset import PARTS

    names = shared.separated(text) or [text]
    for name in names:
        if name not in PARTS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in names)


@click.command(epilog=EPILOG, short_help="Embed the frames of a data set.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-m --model-type",
    TYPES,
    "Model type of predict whose encoders are used.  [default: 500]",
    metavar="[300|500]",
)
@shared.option("--nucleotide-model NAME", str, "Name or folder of another encoder.")
@shared.option("--protein-model NAME", str, "Name, folder or file of another encoder.")
@shared.option(
    "--parts LIST", parts_named, "Parts to embed, of train,validation,test.  [default: all]"
)
@shared.encoder_options
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def embed(dataset: Path, **options: Any) -> int:
    """Embed the frames of DATASET, which train prepare made, for train classifier.

    The work is done by workers as in predict. The same command again computes only what is
    missing and what failed. Frames that fail are left out of the training.
    """
    settings = shared.configuration(options)
    analysis = settings.analysis
    if analysis.model_type == "custom":  # its encoders are those of the configuration
        analysis = replace(analysis, model_type="500")
    analysis = analysis.resolved()
    # An encoder that is named here takes the place of that of the model type.
    for name in ("nucleotide_model", "protein_model"):
        if options[name]:
            analysis = replace(analysis, **{name: options[name]})

    shared.say_at_start(f"embedding {dataset}")
    from virnucpro.training import embed as embedding
    from virnucpro.training.data.dataset import PARTS, Dataset
    from virnucpro.ui.dashboard import RunScreen

    request = embedding.EmbedRequest(
        dataset,
        analysis,
        settings.machine,
        options["parts"],
        resume=options["resume"],
        force=options["force"],
        command=shared.command_line(),
    )
    layout = Dataset(dataset.absolute()).layout((options["parts"] or PARTS)[0])
    screen = RunScreen(settings.display, layout)
    with shared.shown_on(screen, settings.warnings) as interruption:
        results = embedding.embed(request, screen.show, interruption=interruption)
    if not settings.display.quiet:
        click.echo("\n".join(_summary(dataset, results)))
    return EXIT_PARTIAL if any(result.failed for result in results) else EXIT_OK


def _summary(dataset: Path, results: list[EmbeddedPart]) -> list[str]:
    lines = []
    if not any(result.computed for result in results):
        lines.append("Nothing to compute: all features are there and intact.")
    for result in results:
        failed = f", {result.failed:,} of them failed" if result.failed else ""
        lines.append(f"{result.part}: {result.frames:,} frames embedded{failed}")
    if any(result.failed for result in results):
        lines.append(
            "Failed frames are left out of the training: see failed_files.txt; the same command "
            "tries them again."
        )
    lines.append(f"Next: virnucpro train classifier {dataset} --output my.safetensors")
    return lines
