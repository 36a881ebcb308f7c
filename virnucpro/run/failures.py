"""What failed: ``failed_files.txt`` for people and scripts, and the records to try again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virnucpro.io.chunks import record_of
from virnucpro.io.frames import chunk_of
from virnucpro.io.records import read_records
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.tables import FAILURES, RECORDS


@dataclass(frozen=True)
class Failure:
    """Sequences of one feature file that could not be embedded, and why."""

    file: str
    stage: str
    error: str
    message: str
    ids: tuple[str, ...]


def failures(ledger: Ledger) -> list[Failure]:
    """Everything that the feature files of this run lack."""
    return [
        Failure(
            receipt.outputs[0].path.name, receipt.stage, f["error"], f["message"], tuple(f["ids"])
        )
        for _, receipt in ledger.receipts("dnabert", "esm")
        for f in receipt.facts.get("failed", ())
    ]


def record_failures(layout: Layout, disk: Disk, source: Path, label: str, ledger: Ledger) -> int:
    """Bring the table and the FASTA of failed records up to date; returns the records in it.

    The table is shared by all runs of the output directory: only the rows of this input change,
    and the file goes with its last row.
    """
    found = failures(ledger)
    record_table(layout, disk, label, found)
    if not found:
        disk.remove(layout.failed_fasta)
        return 0
    wanted = {record_of(chunk_of(name))[0] for failure in found for name in failure.ids}
    with disk.create(layout.failed_fasta) as out:
        for header, sequence in _records(layout, source, wanted):
            out.write(f">{header}\n{sequence}\n".encode(), 1)
    return len(wanted)


def record_table(layout: Layout, disk: Disk, label: str, found: list[Failure]) -> None:
    """Bring the rows of the input ``label`` in the shared table up to date."""
    with locked(layout.failed_lock, "the table of failures", wait=True):
        _update_table(layout.failed_table, disk, label, found)


def _records(layout: Layout, source: Path, wanted: set[str]) -> Iterator[tuple[str, str]]:
    names = RECORDS.read(layout.records_table, "record")
    for (name,), record in zip(names, read_records(source), strict=True):
        if name in wanted:
            yield record.header.replace(record.id, name, 1), record.sequence


def _update_table(path: Path, disk: Disk, label: str, found: list[Failure]) -> None:
    kept = []
    if path.exists():
        lines = path.read_text("utf-8", "surrogateescape").splitlines(keepends=True)[1:]
        kept = [line for line in lines if line.split("\t", 1)[0] != _cell(label)]
    rows = [_row(label, failure) for failure in found]
    if kept or rows:
        text = "".join([FAILURES.header, *kept, *rows])
        # A file name may hold bytes that are no text.
        disk.save(path, text.encode("utf-8", "surrogateescape"), len(kept) + len(rows))
    else:
        disk.remove(path)


def _row(label: str, failure: Failure) -> str:
    return FAILURES.line(
        input=_cell(label),
        file=_cell(failure.file),
        stage=_cell(failure.stage),
        error=_cell(failure.error),
        message=_cell(failure.message),
        sequences=",".join(failure.ids),
    )


def _cell(text: str) -> str:
    """One line, no tabs: a table cell."""
    return " ".join(text.split())
