"""Write an evaluation: ``evaluation.json`` and ``evaluation.tsv`` for programs, and for people
``evaluation.md`` and the table on the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from virnucpro.contracts import Json
from virnucpro.evaluation.calibration import Calibration
from virnucpro.evaluation.evaluation import Evaluation, SliceResult
from virnucpro.evaluation.predictions import SCORE_FORMULAS, Level
from virnucpro.evaluation.slices import SliceKind
from virnucpro.metrics.bootstrap import RESAMPLES, Interval
from virnucpro.metrics.classification import BINS, metric_text
from virnucpro.tables import EVALUATION
from virnucpro.version import __version__

SCHEMA = 1  # of evaluation.json
SHOWN = 40  # lines printed on the terminal
_HEADINGS = ("slice", "genomes", "virus", "others", "AUROC", "95 %", "AUPRC", "accuracy", "95 %",
             "correct", "precision", "recall", "recall of all", "F1", "MCC", "ECE")  # fmt: skip
_TERMINAL = (
    "slice",
    "genomes",
    "virus",
    "others",
    "AUROC",
    "95 %",
    "AUPRC",
    "correct",
    "F1",
)
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>&~])")


# --- for programs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluatedFiles:
    """The files that were evaluated, their digests (SHA-256, hex) and what a row is."""

    predictions: str
    predictions_sha256: str
    labels: str
    labels_sha256: str
    level: Level

    def document(self, threshold: float | None) -> dict[str, Json]:
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
        "recall_all": result.recall_all,
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
        "recall_all": result.recall_all,
        "correct": result.correct,
        "note": "; ".join(result.notes) or None,
    }
    for name, interval in intervals.items():
        columns[f"{name}_low"], columns[f"{name}_high"] = interval or (None, None)
    return EVALUATION.line(**columns)


# --- for people ------------------------------------------------------------------------------


def as_text(evaluation: Evaluation) -> str:
    """Return the table for the terminal. Of many groups it has only those with the worst AUROC."""
    results = list(evaluation.slices)
    if len(results) > SHOWN:
        groups = sorted(evaluation.of_kind("group"), key=_worst_first)
        first = [result for result in results if result.kind != "group"]
        results = first + groups[: max(0, SHOWN - len(first))]
    table = [list(_HEADINGS), *(_cells(result) for result in results)]
    rows = [[row[_HEADINGS.index(name)] for name in _TERMINAL] for row in table]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_TERMINAL))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    hidden = len(evaluation.slices) - len(results)
    return "\n".join([*text, *([f"{hidden:,} more groups: evaluation.tsv"] if hidden else [])])


def _worst_first(result: SliceResult) -> float:
    return 2.0 if result.metrics.auroc is None else result.metrics.auroc


def _cells(result: SliceResult) -> list[str]:
    m = result.metrics
    return [
        result.title,
        f"{result.intervals.genomes:,}",
        f"{m.virus:,}",
        f"{m.others:,}",
        metric_text(m.auroc),
        _range(result.intervals.auroc),
        metric_text(m.auprc),
        metric_text(m.accuracy),
        _range(result.intervals.accuracy),
        metric_text(result.correct),
        *map(metric_text, (m.precision, m.recall, result.recall_all, m.f1, m.mcc, m.ece)),
    ]


def _range(interval: Interval) -> str:
    return "NA" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}"


def count_lines(evaluation: Evaluation) -> list[str]:
    """Return sentences on what was measured, and on what could not be measured and why."""
    counts = evaluation.sample.counts
    lines = [f"{counts.used:,} of {counts.rows:,} rows have a label and a score."]
    if counts.unlabelled:
        lines.append(f"{counts.unlabelled:,} rows have no label and were left out.")
    for (label, status), rows in sorted(counts.unscored.items()):
        lines.append(f"{rows:,} rows of {label} have no score: {status}.")
    for label, records in sorted(counts.absent.items()):
        lines.append(f"{records:,} labelled records of {label} have no row in the predictions.")
    if counts.missed:
        overall = evaluation.overall
        lines.append(
            f"Recall is {metric_text(overall.metrics.recall)} of the viruses with a score, and "
            f"{metric_text(overall.recall_all)} where the {counts.missed:,} without one are "
            f"counted as missed."
        )
    if counts.blank:
        lines.append(f"{counts.blank:,} rows of the table of labels have no label.")
    return lines


def calibration_line(calibration: Calibration, output: str) -> str:
    """Return a sentence on what calibrating changed and where the classifier is."""
    c = calibration
    return (
        f"Temperature {c.temperature:.4f} (before: {c.temperature_before:.4f}), from {c.frames:,} "
        f"frames: calibration error {metric_text(c.error_before)} -> {metric_text(c.error)}. "
        f"Calibrated classifier: {output}"
    )


def as_markdown(
    evaluation: Evaluation,
    files: EvaluatedFiles,
    calibration: Calibration | None,
    plots: Sequence[str],
) -> str:
    """Return ``evaluation.md``, the report."""
    parts = [
        "# Evaluation",
        f"Predictions: {_plain(files.predictions)}, one row per {files.level}.\n"
        f"Labels: {_plain(files.labels)}.\n"
        f"Score: `{SCORE_FORMULAS[files.level]}`; {_cut(evaluation.threshold)}.",
        "\n".join(f"- {line}" for line in (*count_lines(evaluation), *evaluation.notes)),
        "## All rows",
        _table(("truth", "called virus", "called others"), _confusion(evaluation.overall)),
        _table(("metric", "value", "95 %"), _overall(evaluation.overall)),
        *_slices(evaluation, "length", "By length"),
        *_slices(evaluation, "group", "By group"),
        *_discoveries(evaluation),
        *([] if calibration is None else _calibrated(calibration)),
        *(["## Plots"] if plots else []),
        *(f"![{name}]({name})" for name in plots),
        f"Intervals: the middle 95 % of {RESAMPLES} resamples of genomes (of records, where no "
        f"genome is given). `NA`: not defined. The documentation of virnucpro {__version__} says "
        f"what the metrics mean.",
    ]
    return "\n\n".join(parts) + "\n"


def _cut(threshold: float | None) -> str:
    return "virus where `call` is" if threshold is None else f"virus from {threshold:g} on"


def _confusion(result: SliceResult) -> list[list[str]]:
    m = result.metrics
    return [["virus", f"{m.tp:,}", f"{m.fn:,}"], ["others", f"{m.fp:,}", f"{m.tn:,}"]]


def _overall(result: SliceResult) -> list[list[str]]:
    m, intervals = result.metrics, result.intervals
    return [
        ["AUROC", metric_text(m.auroc), _range(intervals.auroc)],
        ["AUPRC (average precision)", metric_text(m.auprc), ""],
        ["accuracy", metric_text(m.accuracy), _range(intervals.accuracy)],
        ["precision", metric_text(m.precision), ""],
        ["recall", metric_text(m.recall), ""],
        ["recall, unscored viruses counted as missed", metric_text(result.recall_all), ""],
        ["F1", metric_text(m.f1), ""],
        ["MCC", metric_text(m.mcc), ""],
        ["Brier score", metric_text(m.brier), ""],
        [f"expected calibration error ({BINS} bins)", metric_text(m.ece), ""],
        *([f"note: {note}", "", ""] for note in result.notes),
    ]


def _slices(evaluation: Evaluation, kind: SliceKind, title: str) -> list[str]:
    results = evaluation.of_kind(kind)
    if not results:
        return []
    notes = [f"- {_plain(result.title)}: {note}" for result in results for note in result.notes]
    table = _table(_HEADINGS, [[_plain(cell) for cell in _cells(result)] for result in results])
    about = (
        "A group is measured against all rows of the other label. `correct` and `genomes` are of "
        "the group alone: the share of its rows that are called as they are labelled."
    )
    return [
        f"## {title}",
        *([about] if kind == "group" else []),
        table,
        *(["\n".join(notes)] if notes else []),
    ]


def _discoveries(evaluation: Evaluation) -> list[str]:
    if not evaluation.false_discoveries:
        return []
    rows = [
        [f"{d.stated:g}", f"{d.contigs:,}", f"{d.false:,}", metric_text(d.realised)]
        for d in evaluation.false_discoveries
    ]
    headings = ("stated, at most", "contigs", "not virus", "realised")
    return ["## False discovery rates", _table(headings, rows)]


def _calibrated(calibration: Calibration) -> list[str]:
    c = calibration
    rows = [
        ["temperature", metric_text(c.temperature_before), metric_text(c.temperature)],
        ["mean negative log likelihood, nats", metric_text(c.loss_before), metric_text(c.loss)],
        ["expected calibration error", metric_text(c.error_before), metric_text(c.error)],
    ]
    about = f"Fitted to {c.frames:,} frames, half of them virus. The values are of these frames."
    return ["## Calibration", about, _table(("", "before", "after"), rows)]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Return ``text`` with the letters escaped that mean something in Markdown or HTML."""
    return _MARKUP.sub(r"\\\1", text)
