"""An evaluation for people: the table on the terminal and ``evaluation.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from virnucpro import __version__
from virnucpro.evaluation.calibration import Calibration
from virnucpro.evaluation.documents import Inputs
from virnucpro.evaluation.evaluation import Evaluation, Line
from virnucpro.evaluation.intervals import RESAMPLES, Interval
from virnucpro.evaluation.metrics import BINS
from virnucpro.evaluation.predictions import MEANING
from virnucpro.evaluation.slices import Kind

SHOWN = 40  # lines printed on the terminal
_HEADS: tuple[str, ...] = (
    "slice",
    "genomes",
    "virus",
    "others",
    "AUROC",
    "95 %",
    "AUPRC",
    "accuracy",
    "95 %",
)
_HEADS += ("correct", "precision", "recall", "F1", "ECE")
_NARROW = ("slice", "genomes", "virus", "others", "AUROC", "95 %", "AUPRC", "correct", "F1")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>&~])")


def figure(value: float | None) -> str:
    """Four digits, or ``NA``."""
    return "NA" if value is None else f"{value:.4f}"


def as_text(found: Evaluation) -> str:
    """The table for the terminal; with many groups only those with the worst AUROC."""
    lines = list(found.lines)
    if len(lines) > SHOWN:
        groups = sorted(found.of_kind("group"), key=_worst_first)
        first = [line for line in lines if line.kind != "group"]
        lines = first + groups[: max(0, SHOWN - len(first))]
    table = [list(_HEADS), *(_cells(line) for line in lines)]
    rows = [[row[_HEADS.index(name)] for name in _NARROW] for row in table]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_NARROW))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    hidden = len(found.lines) - len(lines)
    return "\n".join([*text, *([f"{hidden:,} more groups: evaluation.tsv"] if hidden else [])])


def _worst_first(line: Line) -> float:
    return 2.0 if line.measures.auroc is None else line.measures.auroc


def _cells(line: Line) -> list[str]:
    m = line.measures
    return [
        _name(line),
        f"{line.spread.genomes:,}",
        f"{m.virus:,}",
        f"{m.others:,}",
        figure(m.auroc),
        _range(line.spread.auroc),
        figure(m.auprc),
        figure(m.accuracy),
        _range(line.spread.accuracy),
        figure(line.correct),
        *(figure(value) for value in (m.precision, m.recall, m.f1, m.ece)),
    ]


def _name(line: Line) -> str:
    if line.kind == "length":
        return f"{line.name} bases"
    return f"{line.label} {line.name}".strip()


def _range(interval: Interval) -> str:
    return "NA" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}"


def count_lines(found: Evaluation) -> list[str]:
    """Sentences: what was measured, and what could not be and why."""
    counts = found.sample.counts
    lines = [f"{counts.used:,} of {counts.rows:,} rows have a label and a score."]
    if counts.unlabelled:
        lines.append(f"{counts.unlabelled:,} rows have no label and were left out.")
    for (label, status), rows in sorted(counts.unscored.items()):
        lines.append(f"{rows:,} rows of {label} have no score: {status}.")
    for label, records in sorted(counts.absent.items()):
        lines.append(f"{records:,} labelled records of {label} have no row in the predictions.")
    if counts.blank:
        lines.append(f"{counts.blank:,} rows of the table of labels have no label.")
    return lines


def calibration_line(calibration: Calibration, output: str) -> str:
    """What calibrating changed, and where the classifier is."""
    c = calibration
    return (
        f"Temperature {c.temperature:.4f} (before: {c.temperature_before:.4f}), from {c.frames:,} "
        f"frames: calibration error {figure(c.error_before)} -> {figure(c.error)}. "
        f"Calibrated classifier: {output}"
    )


def as_markdown(
    found: Evaluation, inputs: Inputs, calibration: Calibration | None, plots: Sequence[str]
) -> str:
    """``evaluation.md``: the report."""
    parts = [
        "# Evaluation",
        f"Predictions: {_plain(inputs.predictions)}, one row a {inputs.level}.\n"
        f"Labels: {_plain(inputs.labels)}.\n"
        f"Score: `{MEANING[inputs.level]}`; virus from {found.threshold:g} on.",
        "\n".join(f"- {line}" for line in (*count_lines(found), *found.notes)),
        "## All rows",
        _table(("truth", "called virus", "called others"), _confusion(found.lines[0])),
        _table(("figure", "value", "95 %"), _figures(found.lines[0])),
        *_slices(found, "length", "By length"),
        *_slices(found, "group", "By group"),
        *_discoveries(found),
        *([] if calibration is None else _calibrated(calibration)),
        *(["## Plots"] if plots else []),
        *(f"![{name}]({name})" for name in plots),
        f"Intervals: the middle 95 % of {RESAMPLES} resamples of genomes (of records, where no "
        f"genome is given). `NA`: not defined. docs/evaluation.md of virnucpro {__version__} says "
        f"what the figures mean.",
    ]
    return "\n\n".join(parts) + "\n"


def _confusion(line: Line) -> list[list[str]]:
    m = line.measures
    return [["virus", f"{m.tp:,}", f"{m.fn:,}"], ["others", f"{m.fp:,}", f"{m.tn:,}"]]


def _figures(line: Line) -> list[list[str]]:
    m, spread = line.measures, line.spread
    return [
        ["AUROC", figure(m.auroc), _range(spread.auroc)],
        ["AUPRC (average precision)", figure(m.auprc), ""],
        ["accuracy", figure(m.accuracy), _range(spread.accuracy)],
        ["precision", figure(m.precision), ""],
        ["recall", figure(m.recall), ""],
        ["F1", figure(m.f1), ""],
        ["Brier score", figure(m.brier), ""],
        [f"expected calibration error ({BINS} bins)", figure(m.ece), ""],
        *([f"note: {note}", "", ""] for note in line.notes),
    ]


def _slices(found: Evaluation, kind: Kind, title: str) -> list[str]:
    lines = found.of_kind(kind)
    if not lines:
        return []
    notes = [f"- {_plain(_name(line))}: {note}" for line in lines for note in line.notes]
    table = _table(_HEADS, [[_plain(cell) for cell in _cells(line)] for line in lines])
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


def _discoveries(found: Evaluation) -> list[str]:
    if not found.discoveries:
        return []
    rows = [
        [f"{d.stated:g}", f"{d.contigs:,}", f"{d.false:,}", figure(d.realised)]
        for d in found.discoveries
    ]
    heads = ("stated, at most", "contigs", "no virus", "realised")
    return ["## False discovery rates", _table(heads, rows)]


def _calibrated(calibration: Calibration) -> list[str]:
    c = calibration
    rows = [
        ["temperature", figure(c.temperature_before), figure(c.temperature)],
        ["mean negative log likelihood, nats", figure(c.loss_before), figure(c.loss)],
        ["expected calibration error", figure(c.error_before), figure(c.error)],
    ]
    about = f"Fitted to {c.frames:,} frames, half of them virus; the figures are of these frames."
    return ["## Calibration", about, _table(("", "before", "after"), rows)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """``text`` as it is, whatever Markdown or HTML would make of it."""
    return _MARKUP.sub(r"\\\1", text)
