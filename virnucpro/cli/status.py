"""``virnucpro status``: shows how far the runs in an output directory are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.formatting import is_or_are, printable, rough_duration
from virnucpro.run.sample_list import samples_of
from virnucpro.run.status import RunStatus, StageStatus, statuses

SHOWN = 3  # files named per stage
CHECKED = "checked by size; the same command checks contents"


@click.command(
    epilog="\b\nExamples:\n  virnucpro status results\n  virnucpro status results --json",
    short_help="Show how far the runs in an output directory are.",
)
@click.argument("output_dir", type=shared.FOLDER, metavar="OUTPUT_DIR")
@shared.json_option
@shared.short_options
def status(output_dir: Path, as_json: bool) -> None:
    """Show what is done in OUTPUT_DIR, what is missing, what failed, and what is left to do.

    Of a command with several inputs, it shows a line per sample.

    Files are checked only by their sizes, and no file is locked or written. Times are for one
    device.
    """
    root = output_dir.absolute()
    if samples := samples_of(root):
        runs_of: dict[str, list[RunStatus]] = {}
        failed = {name: row.message for name, row in samples.items() if row.state == "failed"}
        for name in samples:
            try:
                runs_of[name] = _runs_of(root / name)
            except ResumeRefusedError as error:
                runs_of[name], failed[name] = [], str(error)
            if {run.state for run in runs_of[name]} & {"running", "finished", "partial"}:
                failed.pop(name, None)  # a later command of its own
        _show_samples(output_dir, runs_of, failed, _runs_of(root), as_json)
        return
    runs = statuses(root)
    if as_json:
        _print_json(output_dir, {"runs": [_document(run) for run in runs]})
        return
    for run in runs:
        click.echo("\n".join(_lines(run)))
    click.echo(f"({CHECKED})")


def _print_json(output_dir: Path, found: Mapping[str, object]) -> None:
    document = {"directory": str(output_dir), "checked": "size", **found}
    click.echo(json.dumps(document, indent=1))


def _runs_of(folder: Path) -> list[RunStatus]:
    """Return the runs in the folder of a sample; none where it was not begun.

    Raises:
        ResumeRefusedError: a newer version of the program wrote one of them.
    """
    try:
        return statuses(folder)
    except UsageError:
        return []


def _show_samples(
    output_dir: Path,
    samples: Mapping[str, Sequence[RunStatus]],
    failed: Mapping[str, str],
    single: Sequence[RunStatus],
    as_json: bool,
) -> None:
    """Show a line per sample, and the runs of ``single`` inputs that are in the same folder."""
    if as_json:
        rows = [
            {
                "sample": name,
                "failed": failed.get(name),
                "runs": [_document(run) for run in runs],
            }
            for name, runs in samples.items()
        ]
        beside = {"runs": [_document(run) for run in single]} if single else {}
        _print_json(output_dir, {"samples": rows, **beside})
        return
    finished = 0
    for name, runs in samples.items():
        states = [run.state for run in runs]
        words = ", ".join(str(run.owner or _word(run)) for run in runs) or "not begun"
        if name in failed:
            words = f"failed: {failed[name]}"
        else:
            finished += bool(states) and all(state == "finished" for state in states)
        click.echo(printable(f"{name}: {words}"))
    for run in single:
        click.echo("\n".join(["not one of the samples:", *_lines(run)]))
    verb = is_or_are(finished)
    click.echo(f"{finished:,} of {len(samples):,} samples {verb} finished ({CHECKED})")


def _document(run: RunStatus) -> dict[str, object]:
    seconds = run.seconds_left
    return {
        "stem": run.stem,
        "state": run.state,
        "input": run.source,
        "owner": asdict(run.owner) if run.owner else None,
        "stages": [
            {
                "stage": stage.stage.name,
                "title": stage.stage.title,
                "files_done": stage.files_done,
                "files": stage.files,
                "sequences_done": stage.sequences_done,
                "sequences": stage.sequences,
                "missing": list(stage.missing),
            }
            for stage in run.stages
        ],
        "failed": [
            {
                "stage": failure.stage,
                "file": failure.file,
                "error": failure.error,
                "message": failure.message,
                "sequences": len(failure.ids),
            }
            for failure in run.failures
        ],
        "legacy_feature_files": run.features,
        "resume": {
            "stages": [stage.stage.name for stage in run.todo],
            "seconds": None if seconds is None else round(seconds, 1),
            "text": _resume(run),
        },
    }


def _lines(run: RunStatus) -> list[str]:
    head = f"{run.stem}: {run.owner or _word(run)}"
    width = max((len(status.stage.title) for status in run.stages), default=0)
    lines = [head, *(f"  {_stage(stage, width)}" for stage in run.stages)]
    for failure in run.failures[:SHOWN]:
        lines.append(
            f"  failed: {len(failure.ids):,} sequences of {failure.file}: {failure.error}: "
            f"{failure.message}"
        )
    if run.failures:
        lines.append("  all that failed: failed_files.txt")
    return [*lines, f"  {_resume(run)}"]


def _word(run: RunStatus) -> str:
    if run.state == "partial":
        count = sum(len(failure.ids) for failure in run.failures)
        return f"finished, but {count:,} sequences failed"
    if run.state.startswith("legacy"):
        return f"{'finished ' if run.state.endswith('finished') else ''}run of version 1"
    return run.state


def _stage(stage: StageStatus, width: int) -> str:
    if stage.files is None:
        return f"{stage.stage.title:{width}} unknown: not split yet"
    text = f"{stage.stage.title:{width}} {stage.files_done:,} of {stage.files:,} files"
    if stage.sequences is not None:
        text += f", {stage.sequences_done:,} of {stage.sequences:,} sequences"
    if stage.missing:
        more = len(stage.missing) - SHOWN
        text += f"  ({'; '.join(stage.missing[:SHOWN])}{f'; {more:,} more' if more > 0 else ''})"
    return text


def _resume(run: RunStatus) -> str:
    """What the same command would do, in a sentence."""
    if run.state == "legacy finished":
        return "predict --resume would change nothing"
    if run.state == "legacy":
        return (
            f"predict --resume would use those of its {run.features:,} feature files that are "
            f"right, and compute everything else; time unknown"
        )
    if not run.stages:
        return "the run has just begun"
    verb = "left to do" if run.state == "running" else f"{run.command} would do"
    if not run.todo:
        return f"{verb}: nothing"
    stages = [_todo(status) for status in run.todo]
    seconds = run.seconds_left  # of the embedding; the other stages are quick
    if seconds is None:
        duration = "time unknown"
    elif seconds == 0:
        duration = "nothing to embed"
    else:
        duration = f"about {rough_duration(seconds)} on one device"
    return f"{verb}: {', '.join(stages)}; {duration}"


def _todo(status: StageStatus) -> str:
    """Return the title of a stage with the sequences that it still has to do."""
    if not status.stage.embeds:
        return status.stage.title
    if status.remaining is None:
        return f"{status.stage.title} of sequences still to be counted"
    return f"{status.stage.title} of {status.remaining:,} sequences"
