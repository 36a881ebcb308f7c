"""Write an evaluation: ``evaluation.json`` and ``evaluation.tsv`` for programs, and for people
``evaluation.md`` and the table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.evaluation.measure import Evaluation, SliceRow, slice_title
from virnucpro.evaluation.tables import SCORE_FORMULAS
from virnucpro.formatting import counted, markdown_table, markdown_text
from virnucpro.metrics.classification import RESAMPLES, metric_text
from virnucpro.tables import EVALUATION
from virnucpro.version import __version__

SCHEMA = 1  # of evaluation.json
SHOWN = 40  # lines printed on the terminal
_TITLES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "correct": "correct",
    "precision": "precision",
    "recall": "recall",
    "recall_all": "recall of all",
    "f1": "F1",
    "mcc": "MCC",
    "brier": "Brier score",
    "ece": "ECE",
}
_TERMINAL = ("slice", "genomes", "virus", "others", "AUROC", "AUPRC", "correct", "F1")


def as_json(
    evaluation: Evaluation, facts: Mapping[str, Json], calibration: Mapping[str, float] | None
) -> str:
    """Return ``evaluation.json``. A metric that is not defined is null.

    ``facts`` are the files, the level and the threshold.
    """
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "virnucpro": __version__,
        **facts,
        "score": SCORE_FORMULAS[facts["level"]],
        "counts": evaluation.sample.counts,
        "slices": [_with_intervals(row) for row in evaluation.slices],
        "reliability": evaluation.reliability,
        "false_discovery_rates": evaluation.false_discoveries,
        "calibration": calibration,
        "resamples": RESAMPLES,
    }
    return json.dumps(document, indent=1) + "\n"


def _with_intervals(row: SliceRow) -> dict[str, Json]:
    """Return a slice as ``evaluation.json`` has it: the ends of each interval side by side."""
    low, high = ({n: row[f"{n}_{end}"] for n in ("auroc", "correct")} for end in ("low", "high"))
    facts = {n: fact for n, fact in row.items() if not n.endswith(("_low", "_high"))}
    intervals = {n: None if low[n] is None else (low[n], high[n]) for n in low}
    return {**facts, "intervals": intervals}


def as_tsv(evaluation: Evaluation) -> str:
    """Return ``evaluation.tsv``: a header, then one row overall, per length and per group."""
    rows = [{n: None if fact == "" else fact for n, fact in r.items()} for r in evaluation.slices]
    return "".join([EVALUATION.header, *(EVALUATION.line(**row) for row in rows)])


def as_terminal(
    evaluation: Evaluation, calibration: Mapping[str, float] | None, folder: Path
) -> str:
    """Return what the terminal shows, with the first groups of many; ``folder`` has the results."""
    import pandas

    rows = [_cells(row) for row in evaluation.slices]
    lines = [*_sentences(evaluation, calibration)]
    lines.append(pandas.DataFrame(rows[:SHOWN]).to_string(index=False, columns=_TERMINAL))
    if len(rows) > SHOWN:
        lines.append(f"{counted(len(rows) - SHOWN, 'more group')}: evaluation.tsv")
    report = folder / "evaluation.md"
    return "\n".join([*lines, f"The report is {report}. Tables and plots are in the same folder."])


def _cells(row: SliceRow) -> dict[str, str]:
    """Return what people read of a slice, by the headings of the columns."""
    cells = {"slice": slice_title(row)}
    cells |= {name: f"{row[name]:,}" for name in ("genomes", "virus", "others")}
    for name, title in _TITLES.items():
        low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
        middle = "" if low is None else f" ({low:.3f}-{high:.3f})"
        cells[title] = f"{metric_text(row[name])}{middle}"
    return cells


def _sentences(evaluation: Evaluation, calibration: Mapping[str, float] | None) -> Iterator[str]:
    """Yield sentences on what was measured, on what could not be measured, and why."""
    counts, metrics = evaluation.sample.counts, evaluation.slices[0]
    yield (
        f"With a label and a score: {counts['used']:,} of {counted(counts['rows'], 'row')}; "
        f"without a label: {counts['unlabelled']:,}."
    )
    for row in counts["unscored"]:
        yield f"Without a score: {counted(row['rows'], 'row')} of {row['label']}, {row['status']}."
    for label, records in counts["labelled_records_without_a_row"].items():
        yield f"Not in the predictions: {counted(records, 'labelled record')} of {label}."
    if missed := len(evaluation.sample.missed):
        yield (
            f"Recall is {metric_text(metrics['recall'])} of the viruses with a score, and "
            f"{metric_text(metrics['recall_all'])} where the {missed:,} without one are counted "
            f"as missed."
        )
    if trained := counts["rows_of_the_training_part"]:
        yield f"Note: {counted(trained, 'row')} are of the training part, and look too good."
    if c := calibration:
        yield (
            f"Temperature {c['temperature']:.4f} (before: {c['temperature_before']:.4f}) from "
            f"{c['frames']:,} frames, half of them virus. Their log loss is {c['loss']:.4f} nats "
            f"(before: {c['loss_before']:.4f}), their expected calibration error "
            f"{c['error']:.4f} (before: {c['error_before']:.4f})."
        )


def as_markdown(
    evaluation: Evaluation,
    facts: Mapping[str, Json],
    calibration: Mapping[str, float] | None,
    plots: Iterable[str],
) -> str:
    """Return ``evaluation.md``. ``facts`` are the files, the level and the threshold."""
    level, threshold, m = facts["level"], facts["threshold"], evaluation.slices[0]
    rule = "classified as by `predict`" if threshold is None else f"viral from {threshold:g} on"
    confusion = [("virus", m["tp"], m["fn"]), ("others", m["fp"], m["tn"])]
    parts = [
        "# Evaluation",
        f"Predictions: {markdown_text(facts['predictions']['file'])}, one row per {level}.\n"
        f"Labels: {markdown_text(facts['labels']['file'])}.\n"
        f"Score: `{SCORE_FORMULAS[level]}`; {rule}.",
        "\n".join(f"- {line}" for line in _sentences(evaluation, calibration)),
        "## All rows",
        markdown_table(("truth", "classified as viral", "as others"), confusion),
        markdown_table(("metric", "value (95 %)"), _cells(m).items()),
    ]
    for title, results in (
        ("By length", evaluation.of_kind("length")),
        ("By group, each against all rows of the other label", evaluation.of_kind("group")),
    ):
        if results:
            rows = [_cells(result) for result in results]
            parts += [f"## {title}", markdown_table(rows[0], (row.values() for row in rows))]
    if found := evaluation.false_discoveries:
        rates = [(r["stated"], r["contigs"], r["false"], metric_text(r["realised"])) for r in found]
        headings = ("stated, at most", "contigs", "not virus", "realised")
        parts += ["## False discovery rates", markdown_table(headings, rates)]
    noted = [row for row in evaluation.slices if row["note"]]
    notes = [f"- {markdown_text(slice_title(row))}: {row['note']}" for row in noted]
    parts += ["## Notes", "\n".join(notes)] if notes else []
    parts += [f"![{name}]({name})" for name in plots]
    resamples = f"{RESAMPLES} resamples of genomes (or records)"
    parts.append(f"In brackets: the middle 95 % of {resamples}. `NA`: not defined.")
    return "\n\n".join(parts) + "\n"
