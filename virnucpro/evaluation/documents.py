"""Write an evaluation for programs: ``evaluation.json`` and ``evaluation.tsv``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.evaluation.calibration import Calibration
from virnucpro.evaluation.evaluation import Evaluation, SliceResult
from virnucpro.evaluation.predictions import SCORE_FORMULAS, Level
from virnucpro.metrics.bootstrap import RESAMPLES
from virnucpro.tables import EVALUATION

SCHEMA = 1


@dataclass(frozen=True)
class EvaluatedFiles:
    """The files that were evaluated, their digests (SHA-256, hex) and what a row is."""

    predictions: str
    predictions_sha256: str
    labels: str
    labels_sha256: str
    level: Level

    def document(self, threshold: float) -> dict[str, Json]:
        """Return what decides the result."""
        return {
            "predictions": {"file": self.predictions, "sha256": self.predictions_sha256},
            "labels": {"file": self.labels, "sha256": self.labels_sha256},
            "level": self.level,
            "threshold": threshold,
        }


def as_json(evaluation: Evaluation, files: EvaluatedFiles, calibration: Calibration | None) -> str:
    """Return ``evaluation.json``. A metric that is not defined is null."""
    counts = evaluation.sample.counts
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "virnucpro": __version__,
        **files.document(evaluation.threshold),
        "score": SCORE_FORMULAS[files.level],
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
        "overall": _slice(evaluation.overall),
        "lengths": [_slice(result) for result in evaluation.of_kind("length")],
        "groups": [_slice(result) for result in evaluation.of_kind("group")],
        "reliability": [asdict(b) for b in evaluation.reliability],
        "false_discovery_rates": [asdict(d) for d in evaluation.false_discoveries],
        "calibration": None if calibration is None else asdict(calibration),
        "resamples": RESAMPLES,
        "notes": evaluation.notes,
    }
    return json.dumps(document, indent=1) + "\n"


def _slice(result: SliceResult) -> dict[str, Json]:
    intervals = asdict(result.intervals)
    return {
        "name": result.name,
        **({"label": result.label} if result.label else {}),
        "genomes": intervals.pop("genomes"),
        **result.metrics.as_dict(),
        "correct": result.correct,
        "intervals": intervals,
        "notes": result.notes,
    }


def as_tsv(evaluation: Evaluation) -> str:
    """Return ``evaluation.tsv``: a header, then one row overall, per length and per group."""
    return EVALUATION.header + "".join(_row(result) for result in evaluation.slices)


def _row(result: SliceResult) -> str:
    intervals = asdict(result.intervals)
    columns: dict[str, object] = {
        "slice": result.kind,
        "label": result.label or None,
        "name": result.name,
        "genomes": intervals.pop("genomes"),
        **result.metrics.as_dict(),
        "correct": result.correct,
        "note": "; ".join(result.notes) or None,
    }
    for name, interval in intervals.items():
        columns[f"{name}_low"], columns[f"{name}_high"] = interval or (None, None)
    return EVALUATION.line(**columns)
