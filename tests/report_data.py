"""Results of runs that never ran, for the tests of what reads results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.tables import CHUNKS, CONTIGS, REGIONS, VIRUS

LENGTH = 500  # bases per chunk


@dataclass(frozen=True)
class Shown:
    """A record of a run.

    ``scores`` has the score of virus of each chunk, None for one that was not scored; ``regions``
    the first and last chunk of each, from 0.
    """

    id: str
    call: str
    scores: Sequence[float | None]
    fdr: float | None = None
    regions: Sequence[tuple[int, int]] = ()
    length: int = 0

    @property
    def bases(self) -> int:
        """The length of the record."""
        return self.length or LENGTH * len(self.scores)

    @property
    def score(self) -> float | None:
        """The score of the record, here simply that of its chunks."""
        known = [score for score in self.scores if score is not None]
        return 2 * sum(known) / len(known) - 1 if known else None


@dataclass
class Made:
    """The tables of a run while they are written."""

    contigs: list[str] = field(default_factory=lambda: [CONTIGS.header])
    virus: list[str] = field(default_factory=lambda: [VIRUS.header])
    regions: list[str] = field(default_factory=lambda: [REGIONS.header])
    chunks: list[str] = field(default_factory=lambda: [CHUNKS.header])

    def add(self, record: Shown) -> None:
        """Append the rows of a record."""
        scored = sum(score is not None for score in record.scores)
        self.contigs.append(
            CONTIGS.line(
                record=record.id,
                length=record.bases,
                chunks=len(record.scores),
                chunks_scored=scored,
                coverage=scored / len(record.scores),
                call=record.call,
                virus_score=record.score,
                tier="high" if scored > 1 else "low" if scored else None,
                confident_viral=0,
                confident_nonviral=0,
                undecided=scored,
                status="scored" if scored else "no_open_frame",
                fdr=record.fdr,
                regions=len(record.regions),
                viral_bases=sum(LENGTH * (b - a + 1) for a, b in record.regions)
                or (record.bases if record.call == "virus" else 0),
            )
        )
        if record.call == "virus":
            self.virus.append(
                VIRUS.line(
                    record=record.id,
                    length=record.bases,
                    score=record.score,
                    fdr=record.fdr,
                    tier="high" if scored > 1 else "low",
                    chunks_scored=scored,
                    coverage=scored / len(record.scores),
                    evidence="ok" if scored > 1 else "one chunk",
                )
            )
        for first, last in record.regions:
            start, end = LENGTH * first + 1, LENGTH * (last + 1)
            self.regions.append(
                REGIONS.line(
                    region=f"{record.id}|region_{start}_{end}",
                    record=record.id,
                    start=start,
                    end=end,
                    length=end - start + 1,
                    chunks=last - first + 1,
                    chunks_scored=last - first + 1,
                    score=0.9,
                    flank_score=-0.8,
                    at_edge=False,
                )
            )
        for number, score in enumerate(record.scores):
            self.chunks.append(
                CHUNKS.line(
                    record=record.id,
                    chunk=f"{record.id}_chunk_{number + 1}",
                    start=LENGTH * number + 1,
                    end=min(LENGTH * (number + 1), record.bases),
                    status="no_open_frame" if score is None else "scored",
                    frames=0 if score is None else 2,
                    max_score_0=None if score is None else 1 - score,
                    max_score_1=score,
                )
            )


def write_run(folder: Path, records: Sequence[Shown], stem: str = "s", **changes: object) -> None:
    """Write the files of a finished run that a report is made from."""
    made = Made()
    for record in records:
        made.add(record)
    folder.mkdir(parents=True, exist_ok=True)
    tables = ((CONTIGS, made.contigs), (VIRUS, made.virus), (REGIONS, made.regions))
    for table, lines in (*tables, (CHUNKS, made.chunks)):
        path = folder / table.place(stem)
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
    calls = [record.call for record in records]
    hosts = sum(bool(record.regions) and record.call != "virus" for record in records)
    document = {
        "virnucpro": "2.0.0",
        "versions": {"python": "3.11"},
        "finished": "2026-01-02T03:04:05+0000",
        "command": ["virnucpro", "predict", "a b.fa"],
        "input": {"path": "in/<b>s.fa", "sha256": "ab" * 32},
        "models": {"classifier": {"path": "c.safetensors", "sha256": "cd" * 32}},
        "settings": {"analysis": {"model_type": "500", "chunk_length": LENGTH}},
        "counts": {
            "records": len(records),
            "records_scored": len(records) - calls.count("unscored"),
            "records_unscored": {"no_open_frame": calls.count("unscored")},
            "calls": {call: calls.count(call) for call in sorted(set(calls))},
            "records_with_regions_not_called_virus": hosts,
            "chunks": {"scored": 1},
            "records_with_failures": 0,
        },
        "precision": "fp32",
        "devices": [{"name": "CPU"}],
        "workers": [],
        "seconds": {"chunking": 1.0, "output": 2.0},
        **changes,
    }
    (folder / f"{stem}_run.json").write_text(json.dumps(document))


def mixed(count: int = 40) -> list[Shown]:
    """Return viruses, a host with a provirus, and records of all other calls."""
    records = [
        Shown("host", "nonvirus", [0.05] * 20 + [0.95] * 10 + [0.1, None, 0.05], 0.6, [(20, 29)])
    ]
    for number in range(count):
        records.append(Shown(f"virus_{number}", "virus", [0.9, 0.8, None, 0.95], 0.001 * number))
        records.append(Shown(f"other_{number}", "nonvirus", [0.1] * (1 + number % 5), 0.5))
    records.append(Shown("unsure", "undecided", [0.5], 0.3, length=300))
    records.append(Shown("silent", "unscored", [None]))
    return records
