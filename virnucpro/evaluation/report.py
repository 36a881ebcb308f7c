"""Write an evaluation: ``evaluation.json`` and ``evaluation.tsv`` for programs, and for people
``evaluation.md`` and the table on the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.evaluation.calibration import Calibration
from virnucpro.evaluation.measure import Evaluation, SliceKind, SliceResult
from virnucpro.evaluation.predictions import SCORE_FORMULAS
from virnucpro.metrics.bootstrap import RESAMPLES, Interval
from virnucpro.metrics.classification import BINS, metric_text
from virnucpro.tables import EVALUATION
from virnucpro.version import __version__

SCHEMA = 1  # of evaluation.json
SHOWN = 40  # lines printed on the terminal
_HEADINGS = ("slice", "genomes", "virus", "others", "AUROC", "95 %", "AUPRC", "accuracy", "95 %",
             "correct", "precision", "recall", "recall of all", "F1", "MCC", "ECE")  # fmt: skip
_TERMINAL = ("slice", "genomes", "virus", "others", "AUROC", "95 %", "AUPRC", "correct", "F1")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>&~])")


# --- for programs ----------------------------------------------------------------------------


def as_json(
    evaluation: Evaluation, facts: Mapping[str, Json], calibration: Calibration | None
) -> str:
    """Return ``evaluation.json``. A metric that is not defined is null.

    ``facts`` are the files, the level and the threshold.
    """
    counts = evaluation.sample.counts
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "virnucpro": __version__,
        **facts,
        "score": SCORE_FORMULAS[facts["level"]],
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
        "false_discovery_rates": evaluation.false_discoveries,
        "calibration": None if calibration is None else asdict(calibration),
        "resamples": RESAMPLES,
        "notes": evaluation.notes,
    }
    return json.dumps(document, indent=1) + "\n"


def _figures(result: SliceResult) -> dict[str, Json]:
    metrics = result.metrics.as_dict()
    return {**metrics, "recall_all": result.recall_all, "correct": result.correct}


def _slice(result: SliceResult) -> dict[str, Json]:
    return {
        "name": result.part.name,
        **({"label": result.part.label} if result.part.label else {}),
        "genomes": result.genomes,
        **_figures(result),
        "intervals": result.intervals,
        "notes": result.notes,
    }


def as_tsv(evaluation: Evaluation) -> str:
    """Return ``evaluation.tsv``: a header, then one row overall, per length and per group."""
    lines = [EVALUATION.header]
    for result in evaluation.slices:
        columns: dict[str, object] = {
            "slice": result.part.kind,
            "label": result.part.label or None,
            "name": result.part.name,
            "genomes": result.genomes,
            **_figures(result),
            "note": "; ".join(result.notes) or None,
        }
        for name, interval in result.intervals.items():
            columns[f"{name}_low"], columns[f"{name}_high"] = interval or (None, None)
        lines.append(EVALUATION.line(**columns))
    return "".join(lines)


# --- for people ------------------------------------------------------------------------------


def as_terminal(
    evaluation: Evaluation, calibration: Calibration | None, output: str, folder: Path
) -> str:
    """Return what the terminal shows. Of many groups it has only those with the worst AUROC.

    ``output`` is the calibrated classifier, ``folder`` has the results.
    """
    results = list(evaluation.slices)
    if len(results) > SHOWN:
        defined = [r for r in evaluation.of_kind("group") if r.metrics.auroc is not None]
        groups = sorted(defined, key=lambda result: result.metrics.auroc or 0.0)
        first = [result for result in results if result.part.kind != "group"]
        results = first + groups[: max(0, SHOWN - len(first))]
    table = [list(_HEADINGS), *(_cells(result) for result in results)]
    rows = [[row[_HEADINGS.index(name)] for name in _TERMINAL] for row in table]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_TERMINAL))]
    lines = [*count_lines(evaluation), *(f"Note: {note}" for note in evaluation.notes)]
    for first_cell, *cells in rows:
        texts = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([first_cell.ljust(widths[0]), *texts]))
    if hidden := len(evaluation.slices) - len(results):
        lines.append(f"{hidden:,} more groups: evaluation.tsv")
    if c := calibration:
        lines.append(
            f"Temperature {c.temperature:.4f} (before: {c.temperature_before:.4f}), from "
            f"{c.frames:,} frames: calibration error {metric_text(c.error_before)} -> "
            f"{metric_text(c.error)}. Calibrated classifier: {output}"
        )
    report = folder / "evaluation.md"
    return "\n".join([*lines, f"The report is {report}. Tables and plots are in the same folder."])


def _cells(result: SliceResult) -> list[str]:
    m = result.metrics
    return [
        result.title,
        f"{result.genomes:,}",
        f"{m.virus:,}",
        f"{m.others:,}",
        metric_text(m.auroc),
        _range(result.intervals["auroc"]),
        metric_text(m.auprc),
        metric_text(m.accuracy),
        _range(result.intervals["accuracy"]),
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


def as_markdown(
    evaluation: Evaluation,
    facts: Mapping[str, Json],
    calibration: Calibration | None,
    plots: Sequence[str],
) -> str:
    """Return ``evaluation.md``, the report."""
    level, threshold = facts["level"], evaluation.threshold
    cut = "virus where `call` is" if threshold is None else f"virus from {threshold:g} on"
    m = evaluation.overall.metrics
    confusion = [["virus", f"{m.tp:,}", f"{m.fn:,}"], ["others", f"{m.fp:,}", f"{m.tn:,}"]]
    parts = [
        "# Evaluation",
        f"Predictions: {_plain(facts['predictions']['file'])}, one row per {level}.\n"
        f"Labels: {_plain(facts['labels']['file'])}.\n"
        f"Score: `{SCORE_FORMULAS[level]}`; {cut}.",
        "\n".join(f"- {line}" for line in (*count_lines(evaluation), *evaluation.notes)),
        "## All rows",
        _table(("truth", "called virus", "called others"), confusion),
        _table(("metric", "value", "95 %"), _overall(evaluation.overall)),
        *_slices(evaluation, "length", "By length"),
        *_slices(evaluation, "group", "By group"),
        *_discoveries(evaluation),
        *_calibrated(calibration),
        *(["## Plots"] if plots else []),
        *(f"![{name}]({name})" for name in plots),
        f"Intervals: the middle 95 % of {RESAMPLES} resamples of genomes (of records, where no "
        f"genome is given). `NA`: not defined. The documentation of virnucpro {__version__} says "
        f"what the metrics mean.",
    ]
    return "\n\n".join(parts) + "\n"


def _overall(result: SliceResult) -> list[list[str]]:
    m, intervals = result.metrics, result.intervals
    return [
        ["AUROC", metric_text(m.auroc), _range(intervals["auroc"])],
        ["AUPRC (average precision)", metric_text(m.auprc), ""],
        ["accuracy", metric_text(m.accuracy), _range(intervals["accuracy"])],
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
    about = (
        "A group is measured against all rows of the other label. `correct` and `genomes` are of "
        "the group alone: the share of its rows that are called as they are labelled."
    )
    return [
        f"## {title}",
        *([about] if kind == "group" else []),
        _table(_HEADINGS, [[_plain(cell) for cell in _cells(result)] for result in results]),
        *(["\n".join(notes)] if notes else []),
    ]


def _discoveries(evaluation: Evaluation) -> list[str]:
    if not evaluation.false_discoveries:
        return []
    rows = [
        [f"{d['stated']:g}", f"{d['contigs']:,}", f"{d['false']:,}", metric_text(d["realised"])]
        for d in evaluation.false_discoveries
    ]
    headings = ("stated, at most", "contigs", "not virus", "realised")
    return ["## False discovery rates", _table(headings, rows)]


def _calibrated(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return []
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
