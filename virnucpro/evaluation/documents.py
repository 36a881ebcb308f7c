"""An evaluation for programs: ``evaluation.json`` and ``evaluation.tsv``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.evaluation.calibration import Calibration
from virnucpro.evaluation.evaluation import Evaluation, Line
from virnucpro.evaluation.intervals import RESAMPLES, Interval
from virnucpro.evaluation.predictions import MEANING, Level

SCHEMA = 1
_FIGURES = ("auroc", "auprc", "accuracy", "precision", "recall", "f1", "brier", "ece")


@dataclass(frozen=True)
class Inputs:
    """What was evaluated: file names, their digests (SHA-256, hex) and what a row is."""

    predictions: str
    predictions_sha256: str
    labels: str
    labels_sha256: str
    level: Level

    def document(self, threshold: float) -> dict[str, Json]:
        """What decides the figures."""
        return {
            "predictions": {"file": self.predictions, "sha256": self.predictions_sha256},
            "labels": {"file": self.labels, "sha256": self.labels_sha256},
            "level": self.level,
            "threshold": threshold,
        }


def as_json(found: Evaluation, inputs: Inputs, calibration: Calibration | None) -> str:
    """``evaluation.json``; a figure that is not defined is null."""
    counts = found.sample.counts
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "virnucpro": __version__,
        **inputs.document(found.threshold),
        "score": MEANING[inputs.level],
        "counts": {
            "rows": counts.rows,
            "used": counts.used,
            "unlabelled": counts.unlabelled,
            "unscored": [
                {"label": label, "status": status, "rows": rows}
                for (label, status), rows in sorted(counts.unscored.items())
            ],
            "labelled_records_without_a_row": dict(sorted(counts.absent.items())),
            "rows_of_the_training_part": counts.trained,
            "label_rows_without_a_label": counts.blank,
        },
        "overall": _line(found.lines[0]),
        "lengths": [_line(line) for line in found.of_kind("length")],
        "groups": [_line(line) for line in found.of_kind("group")],
        "reliability": [asdict(b) for b in found.reliability],
        "false_discovery_rates": [asdict(d) for d in found.discoveries],
        "calibration": None if calibration is None else asdict(calibration),
        "resamples": RESAMPLES,
        "notes": list(found.notes),
    }
    return json.dumps(document, indent=1) + "\n"


def _line(line: Line) -> dict[str, Json]:
    return {
        "name": line.name,
        **({"label": line.label} if line.label else {}),
        "genomes": line.spread.genomes,
        **asdict(line.measures),
        "correct": line.correct,
        "intervals": {
            name: None if interval is None else list(interval)
            for name, interval in _intervals(line).items()
        },
        "notes": list(line.notes),
    }


def _intervals(line: Line) -> dict[str, Interval]:
    return {name: getattr(line.spread, name) for name in ("auroc", "accuracy", "correct")}


# The table for programs


def as_tsv(found: Evaluation) -> str:
    """``evaluation.tsv``: one row overall, a length, a group; ``NA`` where nothing is defined."""
    return "".join("\t".join(map(_field, row.values())) + "\n" for row in _with_header(found.lines))


def _with_header(lines: Sequence[Line]) -> Iterable[Mapping[str, object]]:
    rows = [_row(line) for line in lines]
    yield {name: name for name in rows[0]}
    yield from rows


def _row(line: Line) -> dict[str, object]:
    measures = asdict(line.measures)
    counts = {name: measures[name] for name in ("rows", "virus", "others", "tp", "fp", "tn", "fn")}
    figures: dict[str, object] = {}
    for name, value in {**{f: measures[f] for f in _FIGURES}, "correct": line.correct}.items():
        figures[name] = value
        if name in (intervals := _intervals(line)):
            low, high = intervals[name] or (None, None)
            figures |= {f"{name}_low": low, f"{name}_high": high}
    what = {"slice": line.kind, "label": line.label or "NA", "name": line.name}
    return {
        **what,
        "genomes": line.spread.genomes,
        **counts,
        **figures,
        "note": "; ".join(line.notes) or "NA",
    }


def _field(value: object) -> str:
    if value is None:
        return "NA"
    return f"{value:.6f}" if isinstance(value, float) else str(value)
