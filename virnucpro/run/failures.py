"""What failed: ``failed_files.txt`` for people and scripts, and the records to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from virnucpro.io.frames import chunk_of, record_of
from virnucpro.io.pairs import InputFiles, mate_headers
from virnucpro.io.records import Record
from virnucpro.layout import Layout, stem_of
from virnucpro.stages.chunking import refuse_changed_input
from virnucpro.stages.splitting import copies_of
from virnucpro.store.disk import Disk, HashedFile
from virnucpro.store.ledger import FileFailure
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, move_aside
from virnucpro.tables import FAILURES, RECORDS


def write_failed_records(
    layout: Layout,
    disk: Disk,
    source: InputFiles,
    seen: Sequence[HashedFile],
    failures: Sequence[FileFailure],
) -> int:
    """Bring the FASTA file of failed records up to date; returns the number of records in it.

    Of a pair, both mates are in it, one after the other, with ids of their own.
    """
    if not failures:
        disk.remove(layout.failed_fasta)
        return 0
    failed = {record_of(chunk_of(name))[0] for failure in failures for name in failure.ids}
    names = RECORDS.read(layout.records_table, "record")
    with disk.create(layout.failed_fasta) as out:
        for (name,), record in zip(names, source.records(), strict=False):
            if name in failed:
                out.write(_as_fasta(record, name).encode(), len(record.lengths))
        refuse_changed_input(seen)
    return len(failed)


def _as_fasta(record: Record, name: str) -> str:
    """Return a record that results call ``name``, or both mates of a pair, as FASTA."""
    if record.mate is None:
        header = record.header.replace(record.id, name, 1)  # renamed, or unchanged
        return f">{header}\n{record.sequence}\n"
    first, second = mate_headers(record, name)
    return f">{first}\n{record.sequence}\n>{second}\n{record.mate.sequence}\n"


def with_failed_copies(layout: Layout, failures: Sequence[FileFailure]) -> list[FileFailure]:
    """Return ``failures`` with the frames that are the same as a failed one, each behind that.

    A run that embeds each frame has no table of copies, and nothing is added.
    """
    if not failures or not layout.copies_table.exists():
        return list(failures)
    failed = {name for failure in failures for name in failure.ids}
    copies = copies_of(failed, layout.frames("nucleotide"), layout.copies_table)
    return [
        replace(f, ids=tuple(each for name in f.ids for each in (name, *copies.get(name, ()))))
        for f in failures
    ]


def update_failure_table(
    layout: Layout, disk: Disk, label: str, failures: Sequence[FileFailure]
) -> None:
    """Replace the rows of the input ``label`` in the table of failures.

    The table is shared by all runs of the output directory: only the rows of the run of this input
    change, and the file is removed with its last row. A run is known by its STEM, because its input
    may have been moved since the rows were written. A file of that name that is not such a table
    is moved aside before a row is written.
    """
    path = layout.failed_table
    with locked(layout.failed_lock, "the table of failures", wait=True):
        disk.sweep(layout.root, {path.name})
        rows = []
        if path.exists():
            # Only a line feed ends a row: an id may hold any other separator of lines.
            with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as table:
                lines = table.readlines()
            if lines[:1] == [FAILURES.header]:
                stem = stem_of(_cell(label))
                rows = [line for line in lines[1:] if stem_of(line.split("\t", 1)[0]) != stem]
            elif not failures:  # not a table of ours, and nothing to write
                return
            else:
                previous = layout.checkpoints / "failed_files.previous"
                move_aside(ExistingWork(layout.root, previous, foreign_files=[path]), disk)
        for failure in failures:
            row = FAILURES.line(
                input=_cell(label),
                file=_cell(failure.file),
                stage=_cell(failure.stage),
                error=_cell(failure.error),
                message=_cell(failure.message),
                sequences=",".join(failure.ids),
            )
            rows.append(row)
        if rows:
            # A file name may hold bytes that are not text.
            text = "".join([FAILURES.header, *rows])
            disk.save(path, text.encode("utf-8", "surrogateescape"), len(rows))
        else:
            disk.remove(path)


def _cell(text: str) -> str:
    """Return ``text`` as a table cell: one line without tabs."""
    return " ".join(text.split())
