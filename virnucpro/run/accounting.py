"""What came out of a run, in numbers: for the summary on the terminal and ``STEM_run.json``."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from virnucpro import __version__
from virnucpro.contracts import Device, Json
from virnucpro.layout import Layout
from virnucpro.run.engine import Job, RunOutcome
from virnucpro.settings import MODEL_TYPE_NOTICES
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger


@dataclass(frozen=True)
class Summary:
    """Counts of a finished run.

    ``calls`` and ``unscored`` count records, ``chunks`` chunks by status, ``failed_records`` the
    records of which a frame could not be embedded, ``adopted`` the feature files that an earlier
    version of the program computed.
    """

    records: int
    frames: int
    calls: Mapping[str, int]
    unscored: Mapping[str, int]
    chunks: Mapping[str, int]
    failed_records: int
    adopted: int
    seconds: Mapping[str, float]
    host_wait: Mapping[str, float]
    computed: int
    files: tuple[Path, ...]
    notice: str = ""

    @property
    def scored(self) -> int:
        """Records with at least one scored chunk."""
        return self.records - sum(self.unscored.values())


def summarise(job: Job, ledger: Ledger, outcome: RunOutcome, failed_records: int) -> Summary:
    """Gather the counts, and assert that every record of the input is scored or explained."""
    layout = job.layout
    counts: dict[str, int] = dict(ledger.facts(layout.receipt("output"))["counts"])
    status = _group(counts, "status")
    summary = Summary(
        notice=MODEL_TYPE_NOTICES.get(job.analysis.model_type, ""),
        records=int(ledger.facts(layout.receipt("chunking"))["records"]),
        frames=int(ledger.facts(layout.receipt("translation"))["frames"]),
        calls=_group(counts, "call"),
        unscored={name: n for name, n in status.items() if name != "scored"},
        chunks=_group(counts, "chunk"),
        failed_records=failed_records,
        adopted=sum(r.origin == "legacy" for _, r in ledger.receipts("dnabert", "esm")),
        seconds=outcome.seconds,
        host_wait=outcome.host_wait,
        computed=outcome.computed.total(),
        files=tuple(
            path
            for path in (
                layout.contigs_table,
                layout.chunks_table,
                layout.virus_fasta,
                layout.predictions,
                layout.consensus,
                layout.run_json,
                *((layout.failed_table, layout.failed_fasta) if failed_records else ()),
            )
        ),
    )
    explained = sum(summary.unscored.values()) + status.get("scored", 0)
    if explained != summary.records:
        raise AssertionError(f"{summary.records} records went in, {explained} are accounted for")
    return summary


def _group(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    start = f"{prefix}:"
    return {name[len(start) :]: n for name, n in counts.items() if name.startswith(start)}


def counts(summary: Summary) -> dict[str, Json]:
    """The counts as they stand in ``STEM_run.json``."""
    return {
        "records": summary.records,
        "records_scored": summary.scored,
        "records_unscored": dict(summary.unscored),
        "calls": dict(summary.calls),
        "chunks": dict(summary.chunks),
        "frames": summary.frames,
        "records_with_failures": summary.failed_records,
        "feature_files_of_an_earlier_version": summary.adopted,
    }


def recorded_counts(layout: Layout) -> Json:
    """The counts of the ``STEM_run.json`` that is there; None where there is none to read."""
    try:
        return json.loads(layout.run_json.read_bytes())["counts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_run_json(
    job: Job,
    summary: Summary,
    disk: Disk,
    *,
    source: str,
    source_sha256: str,
    command: Sequence[str],
    devices: Sequence[Device],
    workers: Sequence[Mapping[str, Json]],
) -> None:
    """Write ``STEM_run.json``: enough to say what made each score, and to make it again.

    ``workers`` is the table of :class:`virnucpro.run.worker_reports.Workers`.
    """
    notice = {"notice": summary.notice} if summary.notice else {}
    document: dict[str, Json] = {
        **notice,
        **circumstances(command),
        "input": {"path": source, "sha256": source_sha256},
        "models": {
            "nucleotide": encoder_facts(job.nucleotide),
            "protein": encoder_facts(job.protein),
            "classifier": {"path": str(job.classifier.path), "sha256": job.classifier.sha256},
        },
        "precision": job.precision,
        "devices": [device_facts(device) for device in devices],
        "workers": list(workers),
        "settings": {"analysis": asdict(job.analysis), "machine": asdict(job.machine)},
        "counts": counts(summary),
        "seconds": {name: round(s, 3) for name, s in summary.seconds.items()},
        "seconds_waited_for_tokens": {name: round(s, 3) for name, s in summary.host_wait.items()},
    }
    disk.save(job.layout.run_json, (json.dumps(document, indent=1) + "\n").encode())


def circumstances(command: Sequence[str]) -> dict[str, Json]:
    """Versions, time and command line, for the record of any run."""
    import numpy
    import torch

    return {
        "virnucpro": __version__,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
    }


def encoder_facts(source: object) -> dict[str, Json]:
    """Family, name, path, digest and width of an encoder."""
    keep = ("family", "name", "path", "sha256", "dim")
    return {
        key: str(value) if key == "path" else value
        for key in keep
        for value in [getattr(source, key)]
    }


def device_facts(device: Device) -> dict[str, Json]:
    """What a record says of a device."""
    fields = asdict(device)
    return {k: fields[k] for k in ("kind", "index", "name", "uuid", "memory", "threads")}
