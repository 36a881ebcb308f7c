"""``virnucpro predict``: decides for every record of a file whether it is viral."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.summary import outcome_text, samples_text
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, UsageError
from virnucpro.formatting import counted
from virnucpro.layout import STDIN, SamplesFolder

if TYPE_CHECKING:
    from virnucpro.configuration import Configuration
    from virnucpro.run.request import PredictionRequest
    from virnucpro.run.sample_list import Sample


SECTIONS = {
    "Input": ("--input", "--input2", "--interleaved", "--input-list", "--duplicate-ids", "--dedup"),
    "Models": ("--model-type", "--model-path", "--expected-length"),
    "Hardware": (
        *("--device", "--gpus", "--cpu-workers", "--precision", "--compile", "--esm-batch-size"),
        *("--dnabert-batch-size", "--batch-size", "--num-workers", "--threads", "--parallel"),
        "--cluster",
    ),
    "Calls": ("--min-score", "--max-fdr", "--min-length"),
    "Run": ("--resume", "--force", "--config", "--help"),
    "Output": (
        *("--output-dir", "--keep-intermediate", "--no-features", "--no-progress"),
        *("--verbose", "--quiet", "--log-file"),
    ),
}


@shared.command(
    sections=SECTIONS,
    short_help="Decide for every record of a file whether it is viral.",
)
@click.argument("sources", nargs=-1, metavar="[INPUT]...", type=shared.INPUT)
@shared.option(
    "--input FILE named_source",
    shared.INPUT,
    "FASTA or FASTQ file, plain or compressed; - is standard input.",
)
@shared.option(
    "--input2 FILE mates",
    shared.INPUT,
    "The second mates of paired reads, where INPUT has the first mates. Each pair gets one call.",
)
@shared.option(
    "--interleaved",
    bool,
    "INPUT has both mates of paired reads, one after the other. Each pair gets one call.",
)
@shared.option(
    "--input-list",
    shared.FILE,
    "Table of several inputs, with the columns name, file and, for paired reads, input2, "
    "separated by tabs. Each has its results in a folder of its name.",
)
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the results.  [default: STEM_predictions]"
)
@shared.predict_options
@shared.resume_option
@shared.force_option
@shared.option("-k --keep-intermediate", bool, "Keep chunks, frames and features after the run.")
@shared.no_progress_option
@shared.option("--parallel", bool, "Accepted without effect: every visible GPU is used anyway.")
@shared.global_options
def predict(sources: tuple[str, ...], named_source: str | None, **options: Any) -> int:
    """Decide for every record of INPUT whether it is viral.

    Records are cut into chunks. The open reading frames of the chunks are embedded with DNABERT-S
    and ESM-2, and a classifier scores each frame. A second run of the same command
    computes only what is missing.

    With several inputs, each has its results in a folder of its name below the output directory.
    The models are loaded once for all of them.

    Examples:
      virnucpro predict --input contigs.fa --output-dir results
      virnucpro predict reads.fq.gz -o results --gpus 0,1,2
      virnucpro predict reads.fq.gz -o results --cluster auto
      virnucpro predict contigs.fa -o results --model-type lite
      virnucpro predict R1.fq.gz --input2 R2.fq.gz -o results -m lite -e 150
      virnucpro predict pairs.fq.gz --interleaved -o results -m lite -e 150
      virnucpro predict contigs.fa -o results --min-score 0.6 --min-length 3000
      virnucpro predict --input contigs.fa --output-dir results --resume
      virnucpro predict contigs.fa -m custom -p my.safetensors -e 300
      virnucpro predict reads/*.fq.gz -o results
      virnucpro predict --input-list samples.tsv -o results
      zcat *.fa.gz | virnucpro predict - -o results --device cpu
    """
    if bool(sources) + (named_source is not None) + bool(options["input_list"]) != 1:
        raise UsageError(
            "give the input in one way: virnucpro predict FILE (or several files), virnucpro "
            "predict --input FILE, or virnucpro predict --input-list TABLE"
        )
    if named_source is not None:
        sources = (named_source,)
    settings = shared.configuration(options)
    from virnucpro.run.request import PredictionRequest
    from virnucpro.run.sample_list import named_files, read_sample_list

    request = PredictionRequest(
        sources[0] if sources else "",
        options["output_dir"],
        settings.analysis,
        settings.machine,
        resume=options["resume"],
        force=options["force"],
        command=shared.command_line(),
        cuts=settings.cuts,
        mates=options["mates"],
        interleaved=options["interleaved"],
    )
    if len(sources) == 1:
        return carry_out(request, settings)
    if request.mates is not None:
        raise UsageError(
            "--input2 belongs to a single input: give the pairs of several samples in a table, "
            "with --input-list and its column input2"
        )
    if request.output_dir is None:
        raise UsageError("several inputs need a folder for their results: give --output-dir DIR")
    listed, folder = options["input_list"], SamplesFolder(request.output_dir.absolute())
    samples = read_sample_list(listed) if listed else named_files(sources)
    return _carry_out_several(request, settings, folder, samples)


def carry_out(request: PredictionRequest, settings: Configuration) -> int:
    """Carry out a request with its screen, print what came out, and return the exit code.

    Raises:
        VirNucProError: see ``run_prediction``.
    """
    from virnucpro.run.request import check_request
    from virnucpro.ui.dashboard import RunScreen

    screen = RunScreen(settings.display, request.layout)
    with shared.shown_on(screen, settings.warnings) as interruption:
        check_request(request)
        source = "standard input" if request.source == STDIN else request.source
        mates = f" and {request.mates}" if request.mates is not None else ""
        screen.say(  # for the seconds in which nothing else is shown
            f"{source}{mates}: model type {request.analysis.model_type}, chunks of "
            f"{request.layout.chunk_length} bases, results in "
            f"{shared.shown_path(request.layout.root)}"
        )
        from virnucpro.run.predict import run_prediction  # it imports torch, which takes seconds

        outcome = run_prediction(request, screen.show, interruption=interruption)
    shared.tell(settings, outcome_text(outcome, request.layout))
    return EXIT_PARTIAL if outcome.failed_records else EXIT_OK


def _carry_out_several(
    request: PredictionRequest,
    settings: Configuration,
    folder: SamplesFolder,
    samples: Sequence[Sample],
) -> int:
    from virnucpro.run.request import check_models
    from virnucpro.run.sample_list import mates_among, overview_problem
    from virnucpro.ui.dashboard import RunScreen

    screen = RunScreen(settings.display, folder)
    with shared.shown_on(screen, settings.warnings) as interruption:
        check_models(request.analysis.resolved())
        screen.say(
            f"{counted(len(samples), 'sample')}: model type {request.analysis.model_type}, results "
            f"in folders of {shared.shown_path(folder.root)}"
        )
        if mates := mates_among(samples):
            screen.warn(
                f"{mates[0]} and {mates[1]} look like the two mates of paired reads, but each gets "
                f"calls of its own; for one call per pair, use --input2 or the column input2 of "
                f"--input-list"
            )
        from virnucpro.run.samples import predict_samples

        predict_samples(request, samples, folder.root, screen.show, interruption=interruption)
        if problem := overview_problem(folder):
            screen.warn(problem)
    shared.tell(settings, samples_text(samples, folder, overview=not problem))
    complete = all(sample.state == "finished" for sample in samples)
    return EXIT_OK if complete else EXIT_PARTIAL
