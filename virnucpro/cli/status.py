"""``virnucpro status``: how far the runs of an output directory are."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from virnucpro.cli.options import shared_options
from virnucpro.formatting import rough_duration
from virnucpro.run.status import ENCODERS, Progress, RunStatus, statuses

SHOWN = 3  # files named a stage
CHECKED = "checked by size; --resume checks contents"


@click.command(
    epilog="Examples: virnucpro status results   |   virnucpro status results --json",
    short_help="Show how far the runs of an output directory are.",
)
@click.argument("output_dir", type=click.Path(path_type=Path), metavar="OUTPUT_DIR")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@shared_options
def status(output_dir: Path, as_json: bool) -> None:
    """Show what is done in OUTPUT_DIR, what is missing, what failed, and what --resume would do.

    A quick look: files are checked by their sizes, nothing is locked or written. Seconds are those
    of one device.
    """
    runs = statuses(output_dir.absolute())
    if as_json:
        document = {
            "directory": str(output_dir),
            "checked": "size",
            "runs": [_document(run) for run in runs],
        }
        click.echo(json.dumps(document, indent=1))
        return
    for run in runs:
        click.echo("\n".join(_lines(run)))
    click.echo(f"({CHECKED})")


def _document(run: RunStatus) -> dict[str, object]:
    seconds = run.seconds_left
    return {
        "stem": run.stem,
        "state": run.state,
        "input": run.source,
        "owner": asdict(run.owner) if run.owner else None,
        "stages": [
            {
                "stage": stage.stage,
                "files_done": stage.files_done,
                "files": stage.files,
                "sequences_done": stage.sequences_done,
                "sequences": stage.sequences,
                "missing": list(stage.missing),
            }
            for stage in run.stages
        ],
        "failed": [asdict(failure) for failure in run.failed],
        "legacy_feature_files": run.features,
        "resume": {
            "stages": [stage.stage for stage in run.todo],
            "seconds": None if seconds is None else round(seconds, 1),
            "text": _resume(run),
        },
    }


def _lines(run: RunStatus) -> list[str]:
    head = f"{run.stem}: {run.owner or _word(run)}"
    lines = [head, *(f"  {_stage(stage)}" for stage in run.stages)]
    for failure in run.failed[:SHOWN]:
        lines.append(
            f"  failed: {failure.sequences:,} sequences of {failure.file}: {failure.error}: "
            f"{failure.message}"
        )
    if run.failed:
        lines.append("  all that failed: failed_files.txt")
    return [*lines, f"  {_resume(run)}"]


def _word(run: RunStatus) -> str:
    if run.state == "partial":
        count = sum(failure.sequences for failure in run.failed)
        return f"finished, but {count:,} sequences failed"
    if run.state.startswith("legacy"):
        return f"{'finished ' if run.state.endswith('finished') else ''}run of an earlier version"
    return run.state


def _stage(stage: Progress) -> str:
    if stage.files is None:
        return f"{stage.stage:12} unknown: not split yet"
    text = f"{stage.stage:12} {stage.files_done:,} of {stage.files:,} files"
    if stage.sequences is not None:
        text += f", {stage.sequences_done:,} of {stage.sequences:,} sequences"
    if stage.missing:
        more = len(stage.missing) - SHOWN
        text += f"  ({'; '.join(stage.missing[:SHOWN])}{f'; {more:,} more' if more > 0 else ''})"
    return text


def _resume(run: RunStatus) -> str:
    """What ``--resume`` would do, in a sentence."""
    if run.state == "legacy finished":
        return "predict --resume would leave it as it is"
    if run.state == "legacy":
        return (
            f"predict --resume would take over its {run.features:,} feature files where they prove "
            f"right, and do the rest again; time unknown"
        )
    if not run.stages:
        return "it has only begun"
    verb = "left to do" if run.state == "running" else f"{run.command} would do"
    if not run.todo:
        return f"{verb}: nothing"
    left = [
        "sequences still to be counted" if stage.left is None else f"{stage.left:,} sequences"
        for stage in run.todo
        if stage.stage in ENCODERS
    ]
    words = [
        f"{stage.stage} ({left.pop(0)})" if stage.stage in ENCODERS else stage.stage
        for stage in run.todo
    ]
    return f"{verb}: {', '.join(words)}; {_time(run.seconds_left)}"


def _time(seconds: float | None) -> str:
    """A rough duration of the embedding on one device; the other stages are quick."""
    if seconds is None:
        return "time unknown"
    if seconds == 0:
        return "nothing to embed"
    return f"about {rough_duration(seconds)} on one device"
