"""``virnucpro predict``: decides for every record of a file whether it is viral."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, FOLDER, INPUT, command, option
from virnucpro.cli.summary import outcome_text, samples_text
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, UsageError
from virnucpro.formatting import counted
from virnucpro.layout import STDIN, SamplesFolder
from virnucpro.settings import Count

if TYPE_CHECKING:
    from virnucpro.run.request import PredictionRequest
    from virnucpro.run.sample_list import Sample


@command(
    click.Argument(["sources"], type=INPUT, nargs=-1, metavar="[INPUT]..."),
    option("-i --input FILE named_source", INPUT, "FASTA or FASTQ file; - is standard input."),
    option("--input2 FILE mates", INPUT, "Second mates of paired reads; each pair gets one call."),
    option("--interleaved", bool, "INPUT has both mates of paired reads, one after the other."),
    option("--input-list", FILE, "Tab-separated table of inputs: name, file, and input2 of pairs."),
    option("-o --output-dir", FOLDER, "Folder of the results.  [default: STEM_predictions]"),
    option("-k --keep-intermediate", bool, "Keep chunks, frames and features after the run."),
    option("--resume", bool, "Take over a run of version 1; every other run continues anyway."),
    option("--parallel", bool, "Without effect: every visible GPU is used anyway.", hidden=True),
    option("-b --batch-size N", Count, "Without effect since version 1.", hidden=True),
    common=f"{shared.PREDICT} force no_progress",
)
def predict(sources: tuple[str, ...], named_source: str | None, **options: Any) -> int:
    """Decide for every record of INPUT whether it is viral.

    Records are cut into chunks. The open reading frames of the chunks are embedded with DNABERT-S
    and ESM-2, and a classifier scores each frame. A second run of the same command computes only
    what is missing. With several inputs, each has its results in a folder of its name.

    Examples:
      virnucpro predict --input contigs.fa --output-dir results
      virnucpro predict reads.fq.gz -o results --gpus 0,1,2
      virnucpro predict R1.fq.gz --input2 R2.fq.gz -o results -m lite
      virnucpro predict contigs.fa -o results --min-score 0.6 --min-length 3000
      virnucpro predict reads/*.fq.gz -o results
      zcat *.fa.gz | virnucpro predict - -o results --device cpu
    """
    if [bool(sources), named_source is not None, bool(options["input_list"])].count(True) != 1:
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
        settings,
        resume=options["resume"],
        force=options["force"],
        command=shared.command_line(),
        mates=options["mates"],
        interleaved=options["interleaved"],
    )
    if len(sources) == 1:
        return carry_out(request)
    if request.mates is not None:
        raise UsageError(
            "--input2 belongs to a single input: give the pairs of several samples in a table, "
            "with --input-list and its column input2"
        )
    if request.output_dir is None:
        raise UsageError("several inputs need a folder for their results: give --output-dir DIR")
    listed, folder = options["input_list"], SamplesFolder(request.output_dir.absolute())
    samples = read_sample_list(listed) if listed else named_files(sources)
    if len(samples) < len(sources):
        shared.say("warning: an input is named twice, and taken once")
    return _carry_out_several(request, folder, samples)


def carry_out(request: PredictionRequest) -> int:
    """Carry out a request with its screen, print what came out, and return the exit code.

    Raises:
        VirNucProError: see ``run_prediction``.
    """
    from virnucpro.run.request import check_request

    with shared.screen(request.settings, log=request.layout.log) as screen:
        check_request(request)
        source = "standard input" if request.source == STDIN else request.source
        mates = f" and {request.mates}" if request.mates is not None else ""
        analysis, length = request.settings.analysis, request.layout.chunk_length
        chunks = "" if analysis.lengths_to_choose else f", chunks of {length} bases"
        screen.say(  # for the seconds in which nothing else is shown
            f"{source}{mates}: model type {analysis.model_type}{chunks}, results in "
            f"{shared.shown_path(request.layout.root)}"
        )
        from virnucpro.run.predict import run_prediction  # it imports torch, which takes seconds

        outcome = run_prediction(request, screen.show, interruption=screen.interruption)
    shared.tell(*outcome_text(outcome, request.layout))
    return EXIT_PARTIAL if outcome.failed_records else EXIT_OK


def _carry_out_several(
    request: PredictionRequest, folder: SamplesFolder, samples: Sequence[Sample]
) -> int:
    from virnucpro.run.request import check_models
    from virnucpro.run.sample_list import mates_among

    with shared.screen(request.settings, log=folder.log) as screen:
        analysis = request.settings.analysis
        check_models(analysis.resolved())
        screen.say(
            f"{counted(len(samples), 'sample')}: model type {analysis.model_type}, results "
            f"in folders of {shared.shown_path(folder.root)}"
        )
        if mates := mates_among(samples):
            screen.warn(
                f"{mates[0]} and {mates[1]} look like the two mates of paired reads, but each gets "
                f"calls of its own; for one call per pair, use --input2 or the column input2 of "
                f"--input-list"
            )
        from virnucpro.run.samples import predict_samples

        show, interruption = screen.show, screen.interruption
        if problem := predict_samples(request, samples, folder.root, show, interruption):
            screen.warn(problem)
    shared.tell(*samples_text(samples, folder, overview=not problem))
    complete = all(sample.state == "finished" for sample in samples)
    return EXIT_OK if complete else EXIT_PARTIAL
