"""``virnucpro status``: shows how far the runs in an output directory are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from virnucpro.cli.shared import FOLDER, command, tell
from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.formatting import clock_time, counted, part_of
from virnucpro.run.sample_list import Sample, samples_of
from virnucpro.run.status import statuses
from virnucpro.store.lock import LockOwner

SHOWN = 3  # failures that are named


@command(click.Argument(["output_dir"], type=FOLDER, metavar="OUTPUT_DIR"), common="json")
def status(output_dir: Path, as_json: bool) -> None:
    """Show how far the runs in an output directory are.

    It says what is done and what failed, as far as the run has written it down. Of a command with
    several inputs, it shows a line per sample. Times are for one device.

    Examples:
      virnucpro status results --json
    """
    root = output_dir.absolute()
    samples = [_sample(root, sample) for sample in samples_of(root).values()]
    runs = statuses(root)
    if not runs and not samples:
        raise UsageError(f"{root} holds no run of virnucpro predict or train embed")
    if as_json:
        document = {"directory": str(output_dir), "samples": samples}
        return tell(json.dumps({**document, "runs": runs}, indent=1), always=True)
    finished, lines = 0, []
    for sample in samples:
        words = ", ".join(map(_word, sample["runs"])) or "not begun"
        if sample["failed"]:
            words = f"failed: {sample['failed']}"
        if {run["state"] for run in sample["runs"]} == {"finished"}:
            finished += 1
        lines.append(f"{sample['sample']}: {words}")
    for run in runs:
        lines.append("\n  ".join([f"{run['stem']}: {_word(run)}", *_lines(run)]))
    if samples:
        lines.append(f"{part_of(finished, len(samples), 'sample')} finished")
    return tell(*lines, always=True)


def _sample(root: Path, sample: Sample) -> dict[str, Json]:
    """Return the runs of a sample, and why it failed, if it did."""
    try:
        runs, refusal = statuses(root / sample.name), None
    except ResumeRefusedError as error:
        runs, refusal = [], str(error)
    begun = {run["state"] for run in runs} & {"running", "finished", "partial"}
    if sample.state == "failed" and not begun:  # a later command of its own may have finished it
        refusal = refusal or sample.message
    return {"sample": sample.name, "failed": refusal, "runs": runs}


def _lines(run: Json) -> Iterator[str]:
    """Yield the stages, what failed, and how long the embedding will take."""
    width, waits = max((len(stage["title"]) for stage in run["stages"]), default=0), False
    for stage in run["stages"]:
        text = f"{stage['files_done']:,} of {counted(stage['files'] or 0, 'file')}"
        if waits and not (stage["files_done"] or stage["sequences_done"]):
            text = "not begun"
        elif stage["sequences"] is not None:
            text += f", {stage['sequences_done']:,} of {counted(stage['sequences'], 'sequence')}"
        yield f"{stage['title']:{width}} {text}"
        waits = waits or stage["files_done"] != stage["files"]
    titles = {stage["stage"]: stage["title"] for stage in run["stages"]}
    for failure in run["failed"][:SHOWN]:
        count = f"{counted(failure['sequences'], 'sequence')} of {titles[failure['stage']]}"
        yield f"failed: {count}: {failure['error']}: {failure['message']}"
    if run["failed"]:
        yield "all that failed: failed_files.txt"
    if run["ended"]:
        yield f"what ended the last start: {run['ended'].strip(': ').split(': ', 1)[-1]}"
    if not run["stages"]:
        yield "the run has just begun"
    elif run["state"] in ("running", "interrupted"):
        seconds = run["seconds_left"]
        left = "unknown" if seconds is None else f"about {clock_time(seconds)} on one device"
        yield f"time left for embeddings: {left}"


def _word(run: Json) -> str:
    state = str(run["state"])
    if run["owner"]:
        return str(LockOwner(**run["owner"]))
    if state == "partial":
        count = sum(failure["sequences"] for failure in run["failed"])
        return f"finished, but {counted(count, 'sequence')} failed"
    embedding = [stage for stage in run["stages"] if stage["sequences"]]
    if state == "interrupted" and embedding:
        done = sum(stage["sequences_done"] for stage in embedding)
        share = 100 * done // sum(stage["sequences"] for stage in embedding)
        return f"interrupted, {share} % of the embedding is kept"
    return state
