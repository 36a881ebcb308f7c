"""Results of runs that never ran, for the tests of what reads results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.declared import line_of
from virnucpro.columns import ResultTable
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


def rows_of(shown: Shown) -> Iterator[tuple[ResultTable, dict[str, object]]]:
    """Yield the rows of a record, each with its table; every other cell is an example."""
    length = shown.length or LENGTH * len(shown.scores)
    known = [score for score in shown.scores if score is not None]
    score = 2 * sum(known) / len(known) - 1 if known else None
    coverage = len(known) / len(shown.scores)
    common = {"record": shown.id, "length": length, "chunks_scored": len(known), "fdr": shown.fdr}
    common |= {"coverage": coverage, "tier": "high" if len(known) > 1 else "low" if known else None}
    viral = sum(LENGTH * (b - a + 1) for a, b in shown.regions)
    yield (
        CONTIGS,
        common
        | {"chunks": len(shown.scores), "call": shown.call, "virus_score": score}
        | {"status": "scored" if known else "no_open_frame", "regions": len(shown.regions)}
        | {"viral_bases": viral or (length if shown.call == "virus" else 0)},
    )
    if shown.call == "virus":
        found = {"hallmarks": 2, "hallmark_genes": "portal protein;terminase large subunit"}
        if shown.fdr is None or shown.fdr > 0.01:
            found = {"hallmarks": 0, "hallmark_genes": None}
        found |= {"host_markers": 1, "host_marker_genes": "ribosomal protein L2"}
        found |= {"virus_markers": 4}
        found |= {"virus_kind": "phage", "evidence": "ok" if len(known) > 1 else "one chunk"}
        yield VIRUS, common | {"score": score, **found}
    for first, last in shown.regions:
        start, end, chunks = LENGTH * first + 1, LENGTH * (last + 1), last - first + 1
        scored = sum(score is not None for score in shown.scores[first : last + 1])
        region = {"region": f"{shown.id}|region_{start}_{end}", "record": shown.id, "start": start}
        region |= {"end": end, "length": end - start + 1, "chunks": chunks, "chunks_scored": scored}
        region |= {"virus_kind": "unsure", "tier": "medium", "hallmarks": 0, "hallmark_genes": None}
        region |= {"host_markers": 0, "host_marker_genes": None, "virus_markers": 1}
        yield REGIONS, region | {"score": 0.9, "flank_score": -0.8, "at_edge": False}
    for number, of_chunk in enumerate(shown.scores):
        chunk = {"record": shown.id, "chunk": f"{shown.id}_chunk_{number + 1}"}
        chunk |= {"start": LENGTH * number + 1, "end": min(LENGTH * (number + 1), length)}
        others = None if of_chunk is None else 1 - of_chunk
        yield CHUNKS, chunk | {"max_score_0": others, "max_score_1": of_chunk}


def write_run(folder: Path, records: Sequence[Shown], stem: str = "s", **changes: object) -> None:
    """Write the files of a finished run that a report is made from."""
    lines = {table: [table.header] for table in (CONTIGS, VIRUS, REGIONS, CHUNKS)}
    for record in records:
        for table, cells in rows_of(record):
            lines[table].append(line_of(table, **cells))
    folder.mkdir(parents=True, exist_ok=True)
    for table, texts in lines.items():
        path = folder / table.path.format(stem=stem)
        path.write_text("".join(texts), encoding="utf-8", newline="\n")
    calls = [record.call for record in records]
    document = {
        "virnucpro": "2.0.0",
        "versions": {"python": "3.11"},
        "finished": "2026-01-02T03:04:05+0000",
        "command": ["virnucpro", "predict", "a b.fa"],
        "input": {"path": "in/<b>s.fa", "sha256": "ab" * 32},
        "models": {
            "classifier": {"path": "c.safetensors", "sha256": "cd" * 32, "calibrated": True}
        },
        "settings": {
            "analysis": {"model_type": "500", "chunk_length": LENGTH},
            "thresholds": {},
        },
        "counts": {
            "records": len(records),
            "records_scored": len(records) - calls.count("unscored"),
            "records_unscored": {"no_open_frame": calls.count("unscored")},
            "calls": {call: calls.count(call) for call in sorted(set(calls))},
            "records_with_regions_not_called_virus": sum(
                bool(record.regions) and record.call != "virus" for record in records
            ),
            "regions": sum(len(record.regions) for record in records),
            "region_bases": sum(
                LENGTH * (last - first + 1) for each in records for first, last in each.regions
            ),
            "regions_by_tier": {"medium": sum(len(record.regions) for record in records)},
            "viruses_by_tier": {"high": calls.count("virus")},
            "viruses_fdr": 0.07,
            "viruses_with_hallmarks": 3,
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
    host = [0.05] * 20 + [0.95] * 10 + [0.1, None, 0.05]
    records = [Shown("host", "nonvirus", host, 0.6, [(20, 29)])]
    for number in range(count):
        records.append(Shown(f"virus_{number}", "virus", [0.9, 0.8, None, 0.95], 0.001 * number))
        records.append(Shown(f"other_{number}", "nonvirus", [0.1] * (1 + number % 5), 0.5))
    records.append(Shown("unsure", "undecided", [0.5], 0.3, length=300))
    return [*records, Shown("silent", "unscored", [None])]
