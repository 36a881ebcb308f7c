"""What a run says of itself at its end: its record, and what failed.

``STEM_run.json`` has what ran where, how long it took, and the counts; ``failed_files.txt`` is for
people and scripts; ``STEM_failed_sequences.fa`` has the records to try again.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from virnucpro.contracts import Device, Json
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import chunk_of, record_of
from virnucpro.io.inputs import InputFiles, mate_headers
from virnucpro.layout import Layout, stem_of
from virnucpro.results import INCOMPLETE
from virnucpro.run.run import Run
from virnucpro.stages.genes import HALLMARKS, HOST_MARKERS, VIRUS_MARKERS
from virnucpro.stages.result_files import OutputFigures, result_counts
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed, refuse_changed_input
from virnucpro.store.ledger import FileFailure
from virnucpro.store.lock import locked
from virnucpro.tables import FAILURES, PAIRS, RECORDS
from virnucpro.version import __version__

if TYPE_CHECKING:
    from virnucpro.stages.embedding import EncoderSetup  # which imports torch


def write_run_record(
    run: Run,
    encoders: EncoderSetup,
    devices: Sequence[Device],
    command: Sequence[str],
    details: Mapping[str, Json],
) -> dict[str, Json]:
    """Write ``STEM_run.json``: what any record holds, and the ``details`` of this kind of run.

    Not where nothing was computed and the one that is there has the same counts and data set.
    """
    import numpy
    import torch

    sources = {
        molecule: {
            "family": source.family,
            "name": source.name,
            "path": str(source.path),
            "sha256": source.sha256,
            "dim": source.dim,
            "reads": source.reading,
        }
        for molecule, source in encoders.sources.items()
    }
    record: dict[str, Json] = {
        "virnucpro": __version__,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
        **details,
        "models": {**sources, **details.get("models", {})},
        "precision": encoders.precision,
        "devices": [asdict(device) for device in devices],
        "workers": run.worker_rows,
        "seconds": {name: round(s, 3) for name, s in run.seconds.items()},
        "seconds_waited_for_tokens": {name: round(s, 3) for name, s in run.host_wait.items()},
    }
    path, compared = run.layout.run_record, ("counts", "data_set", INCOMPLETE)
    with suppress(OSError, ValueError, AttributeError):  # there is none, or it was damaged
        earlier = parse_json(path.read_bytes())
        if not run.computed and all(earlier.get(name) == record.get(name) for name in compared):
            return record
    save_run_record(run.layout, run.disk, record)
    return record


def facts_of_results(results: OutputFigures) -> dict[str, Json]:
    """Return what the record of a run says of its tables."""
    profiles = (HALLMARKS, HOST_MARKERS, VIRUS_MARKERS)
    return {
        "profiles": {path.name: {"sha256": hashed(path).sha256} for path in profiles},
        "viral": results.thresholds.described(calibrated=results.calibrated),
        "counts": result_counts(results),
    }


def save_run_record(layout: Layout, disk: Disk, record: Mapping[str, Json]) -> None:
    """Write the record of a run, whose report is made anew then."""
    disk.remove(layout.report)
    disk.save(layout.run_record, (json.dumps(record, indent=1) + "\n").encode())


def write_failed_records(run: Run, source: InputFiles, failures: Sequence[FileFailure]) -> int:
    """Bring the FASTA file of failed records up to date; returns the number of records in it.

    Of a pair, both mates are in it, one after the other, with ids of their own.
    """
    layout, disk = run.layout, run.disk
    if not failures:
        disk.remove(layout.failed_fasta)
        return 0
    failed = {record_of(chunk_of(name))[0] for failure in failures for name in failure.ids}
    table = PAIRS if source.paired else RECORDS
    names = table.read(layout.records_table, "record")
    with disk.create(layout.failed_fasta) as out:
        for (name,), record in zip(names, source.records(), strict=False):
            if name not in failed:
                continue
            pairs = [(record.header.replace(record.id, name, 1), record.sequence)]
            if record.mate is not None:
                mates = record.sequence, record.mate.sequence
                pairs = list(zip(mate_headers(record, name), mates, strict=True))
            out.write(fasta_bytes(pairs), len(pairs))
        refuse_changed_input(run.inputs)
    return len(failed)


def update_failure_table(
    layout: Layout, disk: Disk, label: str, failures: Sequence[FileFailure]
) -> None:
    """Replace the rows of the input ``label`` in the table of failures.

    All runs of the output directory share it. A run is known by its STEM, because its input may
    have been moved since.
    """
    path, label = layout.failed_table, " ".join(label.split())  # of one line, without tabs
    with locked(layout.failed_lock, "the table of failures", wait=True):
        disk.sweep(layout.root, {path.name})  # only here: a run on another host may write it now
        rows = []
        if path.exists():
            # Only a line feed ends a row: an id may hold any other separator of lines.
            with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as table:
                lines = table.readlines()
            if lines[:1] == [FAILURES.header]:
                stem = stem_of(label)
                rows = [line for line in lines[1:] if stem_of(line.split("\t", 1)[0]) != stem]
            elif not failures:  # not a table of ours, and nothing to write
                return
        for failure in failures:
            names = ("file", "stage", "error", "message")
            cells = {name: " ".join(getattr(failure, name).split()) for name in names}
            rows.append(FAILURES.line(input=label, **cells, sequences=",".join(failure.ids)))
        if rows:
            # A file name may hold bytes that are not text.
            text = "".join([FAILURES.header, *rows])
            disk.save(path, text.encode("utf-8", "surrogateescape"), len(rows))
        else:
            disk.remove(path)
