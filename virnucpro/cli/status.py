"""``virnucpro status``: shows how far the runs in an output directory are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from virnucpro.cli.shared import FOLDER, argument, command
from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.formatting import is_or_are, printable, rough_duration
from virnucpro.run.sample_list import Sample, samples_of
from virnucpro.run.status import RunStatus, statuses

SHOWN = 3  # failures that are named


@command(argument("output_dir", FOLDER, metavar="OUTPUT_DIR"), common="json")
def status(output_dir: Path, as_json: bool) -> None:
    """Show how far the runs in an output directory are.

    It says what is done, what is missing, what failed, and what is left to do. Of a command with
    several inputs, it shows a line per sample. Files are checked only by their sizes, and no file
    is locked or written. Times are for one device.

    Examples:
      virnucpro status results --json
    """
    root = output_dir.absolute()
    samples = {name: _sample(root, sample) for name, sample in samples_of(root).items()}
    runs = statuses(root)
    if not runs and not samples:
        raise UsageError(
            f"{root} holds no run of virnucpro predict, and no data set that was embedded: name "
            f"the --output-dir of one"
        )
    if as_json:
        document: dict[str, Json] = {"directory": str(output_dir), "checked": "size"}
        if samples:
            document["samples"] = [
                {"sample": name, "failed": failed, "runs": [_document(run) for run in own]}
                for name, (own, failed) in samples.items()
            ]
        if runs:
            document["runs"] = [_document(run) for run in runs]
        click.echo(json.dumps(document, indent=1))
        return
    finished = 0
    for name, (own, failed) in samples.items():
        words = ", ".join(str(run.owner or _word(run)) for run in own) or "not begun"
        finished += not failed and {run.state for run in own} == {"finished"}
        click.echo(printable(f"{name}: {f'failed: {failed}' if failed else words}"))
    for run in runs:
        click.echo("\n  ".join([f"{run.stem}: {run.owner or _word(run)}", *_lines(run)]))
    count = f"{finished:,} of {len(samples):,} samples {is_or_are(finished)} finished "
    click.echo(f"{count if samples else ''}(checked by size; the same command checks contents)")


def _sample(root: Path, sample: Sample) -> tuple[list[RunStatus], str | None]:
    """Return the runs of a sample, and why it failed, if it did."""
    try:
        runs = statuses(root / sample.name)
    except ResumeRefusedError as error:
        return [], str(error)
    begun = {run.state for run in runs} & {"running", "finished", "partial"}
    # A later command of its own may have finished it.
    return runs, sample.message if sample.state == "failed" and not begun else None


def _document(run: RunStatus) -> dict[str, Json]:
    figures = ("files_done", "files", "sequences_done", "sequences", "missing")
    seconds = run.seconds_left
    return {
        "stem": run.stem,
        "state": run.state,
        "input": run.source,
        "owner": asdict(run.owner) if run.owner else None,
        "stages": [
            {"stage": row.name, "title": row.title} | {name: getattr(row, name) for name in figures}
            for row in run.stages
        ],
        "failed": [
            {name: getattr(failure, name) for name in ("stage", "file", "error", "message")}
            | {"sequences": len(failure.ids)}
            for failure in run.failures
        ],
        "legacy_feature_files": run.features,
        "resume": {
            "stages": [stage.name for stage in run.todo],
            "seconds": None if seconds is None else round(seconds, 1),
            "text": _resume(run),
        },
    }


def _lines(run: RunStatus) -> Iterator[str]:
    """Yield the stages, what failed, and what the same command would do."""
    width = max((len(stage.title) for stage in run.stages), default=0)
    for stage in run.stages:
        text = f"{stage.files_done:,} of {stage.files or 0:,} files"
        if stage.files is None:
            text = "unknown: not split yet"
        elif stage.sequences is not None:
            text += f", {stage.sequences_done:,} of {stage.sequences:,} sequences"
        missing = f"  ({stage.missing[0]})" if stage.missing else ""
        yield f"{stage.title:{width}} {text}{missing}"
    for failure in run.failures[:SHOWN]:
        count = f"{len(failure.ids):,} sequences of {failure.file}"
        yield f"failed: {count}: {failure.error}: {failure.message}"
    if run.failures:
        yield "all that failed: failed_files.txt"
    yield _resume(run)


def _word(run: RunStatus) -> str:
    if run.state == "partial":
        count = sum(len(failure.ids) for failure in run.failures)
        return f"finished, but {count:,} sequences failed"
    return {"legacy": "run of version 1", "legacy finished": "finished run of version 1"}.get(
        run.state, run.state
    )


def _resume(run: RunStatus) -> str:
    """What the same command would do, in a sentence."""
    if run.state == "legacy finished":
        return "predict --resume would change nothing"
    if run.state == "legacy":
        return f"predict --resume would use those of its {run.features:,} feature files that fit"
    if not run.stages:
        return "the run has just begun"
    verb = "left to do" if run.state == "running" else f"{run.command} would do"
    if not run.todo:
        return f"{verb}: nothing"
    seconds = run.seconds_left  # of the embedding; the other stages are quick
    duration = "time unknown"
    if seconds is not None:
        about = f"about {rough_duration(seconds)} on one device"
        duration = about if seconds else "nothing to embed"
    return f"{verb}: {', '.join(stage.title for stage in run.todo)}; {duration}"
