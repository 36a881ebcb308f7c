"""How far the runs of an output directory are, told from their receipts.

A quick look that disturbs nobody: no lock is kept, nothing is written, no model is needed. Files
are checked by their sizes only, but for a small input; a later start checks contents. Which stages
a run has, its engine has written down. Imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from virnucpro.contracts import MOLECULES, Json
from virnucpro.errors import ResumeRefusedError, VirNucProError
from virnucpro.formatting import clock_time, counted
from virnucpro.layout import Layout, OutputFolder, receipt_beside
from virnucpro.run.request import check_not_empty, check_readable
from virnucpro.store import legacy
from virnucpro.store.hashed import hashed
from virnucpro.store.ledger import Ledger, Receipt, has_receipts
from virnucpro.store.lock import A_RUN, holder
from virnucpro.store.work import INPUT_NAMES, RunState, read_state

# An input of at most so many bytes is compared by its content, which takes a fraction of a second.
HASHED_BYTES = 100_000_000


def statuses(root: Path) -> list[dict[str, Json]]:
    """Return the status of every run in the output directory ``root``, by name.

    These are the documents that ``virnucpro status --json`` prints; None stands for unknown.
    """
    folder = OutputFolder(root)
    names = {*legacy.legacy_stems(folder), *(path.name for path in folder.runs.glob("*"))}
    return [status for name in sorted(names) if (status := _run_status(Layout(root, name)))]


def _run_status(layout: Layout) -> dict[str, Json] | None:
    """Return what is known about a run; None where there is none."""
    owner = holder(layout.lock)
    status: dict[str, Json] = {
        "stem": layout.stem,
        "state": "running",
        "input": None,
        "owner": owner and asdict(owner),
        "ended": None,
        "stages": [],
        "failed": [],
        "legacy_feature_files": 0,
        "resume": {
            "stages": [],
            "seconds": None,
            "refused": None,
            "text": "the run has just begun",
        },
    }
    if not (layout.run_state.exists() or has_receipts(layout)):
        if legacy.is_legacy_run(layout):
            files = status["legacy_feature_files"] = len(legacy.feature_files(layout))
            text = (
                f"predict --resume would use those of its {counted(files, 'feature file')} that "
                f"are right, and compute everything else; time unknown"
            )
            if finished := legacy.is_finished(layout):
                text = "predict --resume would change nothing"
            if owner is None:
                status["state"] = "legacy finished" if finished else "legacy"
                status["resume"]["text"] = text
            return status
        return status if owner is not None and owner.work == A_RUN else None
    earlier, ledger = read_state(layout), Ledger(layout)
    command, listed = (earlier.command, earlier.stages) if earlier else ("predict", ())
    for path in layout.merged_folder.glob("output_*_scores.tsv.done"):
        if not isinstance(_receipt(ledger, path), str):  # no features of this file are needed
            number = path.name.split("_")[1]
            ledger.forgo(layout.features(molecule, number) for molecule in MOLECULES)
    stages, todo, failed = _stages(layout, ledger, listed)
    needed = {row["name"] for row in listed if row["reads_intermediate"]}
    if ledger.removed and any(row["stage"] in needed for row in todo):
        ledger.removed = frozenset()  # these files are needed again
        stages, todo, failed = _stages(layout, ledger, listed)
    if owner is None:
        is_partial = failed and all(row["embeds"] for row in todo)
        state = "interrupted" if todo or not stages else "finished"
        status["state"] = "partial" if is_partial else state
        with suppress(OSError):  # the last line of the log says what ended the last start
            *_, last = layout.log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            status["ended"] = last.partition(" ended by ")[2] or None
    status |= {"input": earlier and earlier.source, "stages": stages, "failed": failed}
    known = [row["seconds_left"] for row in stages if row["embeds"]]
    seconds = sum(known) if known and None not in known else None
    if stages:
        text = _resume_text(todo, seconds, "" if owner else command)
        names, left = [row["stage"] for row in todo], None if seconds is None else round(seconds, 1)
        status["resume"] |= {"stages": names, "seconds": left, "text": text}
    if owner is None and earlier and (error := _refusal(layout, earlier, command)):
        text = f"{command} would be refused with exit code {error.exit_code}: {error}"
        status["resume"] |= {"refused": error.exit_code, "text": text}
    return status


def _refusal(layout: Layout, state: RunState, command: str) -> VirNucProError | None:
    """Return what the same command would say of the input of a run, if it would refuse it."""
    files = [Path(name) for name in (state.source, state.mates) if name]
    digests = [str(state.analysis[name]) for name in INPUT_NAMES if name in state.analysis]
    if not digests or not files[0].is_absolute():  # parts of a data set, or standard input
        return None
    try:
        for file in files:
            check_readable(file)
        for file, digest, size in zip(files, digests, state.sizes, strict=True):
            found = file.stat().st_size
            if found == size and (found > HASHED_BYTES or hashed(file).sha256 == digest):
                continue
            if command == "predict":
                check_not_empty(files[0])
            if has_receipts(layout) or layout.chunked_files():  # else it starts from the beginning
                return ResumeRefusedError(f"{file} has other content than when the run began")
    except VirNucProError as error:
        return error
    except OSError:  # gone at this moment: the next look will say so
        return None
    return None


def _stages(
    layout: Layout, ledger: Ledger, listed: Sequence[Json]
) -> tuple[list[dict[str, Json]], list[dict[str, Json]], list[dict[str, Json]]]:
    """Return how far each stage of a run is, those that are not done, and what failed in all."""
    stages, failed = list[dict[str, Json]](), list[dict[str, Json]]()
    split: Receipt | str = "not begun"  # of the last stage that handles everything at once
    for stage in listed:
        row: dict[str, Json] = {"stage": stage["name"], "title": stage["title"]}
        row |= {"embeds": stage["embeds"], "files_done": 0, "files": None}
        row |= {"sequences_done": None, "sequences": None, "seconds_left": None, "missing": []}
        stages.append(row)
        tasks = {layout.receipt(stage["name"]): 0}
        if pattern := stage["file_pattern"]:
            if isinstance(split, str):
                continue
            # The split files of proteins have the same names and rows as those of nucleotides.
            rows = {f.path.name: f.rows for f in split.outputs if f.path.suffix == ".fa"}
            output = layout.root / pattern
            tasks = {
                receipt_beside(output.with_name(output.name.replace("{number}", str(n)))): count
                for n, count in enumerate(rows.values(), 1)
            }
        else:
            split = _receipt(ledger, layout.receipt(stage["name"]))
        done, timed, seconds = 0, 0, 0.0
        for path, count in tasks.items():
            receipt, name = _receipt(ledger, path), path.name.removesuffix(".done")
            if isinstance(receipt, str):
                row["missing"].append(f"{name}: {receipt}")
                continue
            if failures := receipt.figures.failed:
                row["missing"].append(f"{name}: {counted(len(failures), 'sequence')} failed")
            for failure in receipt.failures:
                facts = {"stage": failure.stage, "file": failure.file, "error": failure.error}
                failed.append({**facts, "message": failure.message, "sequences": len(failure.ids)})
            present = sum(file.rows for file in receipt.outputs)
            done += min(count, present)
            timed += present if receipt.seconds > 0 else 0
            seconds += receipt.seconds
        row |= {"files_done": len(tasks) - len(row["missing"]), "files": len(tasks)}
        if stage["embeds"]:
            total = sum(tasks.values())
            row |= {"sequences_done": done, "sequences": total}
            # What the rest takes on one device, at the rate of those that are done.
            if timed or done == total:
                row["seconds_left"] = (total - done) * seconds / max(timed, 1)
    todo = [row for row in stages if row["missing"] or row["files"] is None]
    return stages, todo, failed


def _receipt(ledger: Ledger, name: Path) -> Receipt | str:
    """Return a receipt whose files have their sizes, or were removed; else what is wrong."""
    try:
        receipt = ledger.read(name)
        return ledger.problem(receipt) or receipt
    except ValueError as error:
        return str(error)


def _resume_text(todo: Sequence[Json], seconds: float | None, command: str) -> str:
    """Say what the same ``command`` would do, or what is left where a process is at work."""
    verb = f"{command} would do" if command else "left to do"
    if not todo:
        return f"{verb}: nothing"
    stages = []
    for row in todo:
        count = "sequences still to be counted"
        if row["sequences"] is not None:
            count = counted(row["sequences"] - row["sequences_done"], "sequence")
        stages.append(f"{row['title']} of {count}" if row["embeds"] else row["title"])
    duration = "time unknown"  # of the embedding; the other stages are quick
    if seconds is not None:
        about = f"about {clock_time(seconds)} on one device"
        duration = about if seconds else "nothing to embed"
    return f"{verb}: {', '.join(stages)}; {duration}"
