"""Carry out one evaluation: find, join, measure and write.

The content of ``evaluation.json`` is also written in other forms: ``evaluation.tsv`` for programs,
and for people ``evaluation.md`` and the table on the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from virnucpro.contracts import Json
from virnucpro.evaluation.measure import SliceRow, evaluate, slice_title
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.tables import SCORE_FORMULAS, Level, find_predictions, join, read_labels
from virnucpro.events import Notice, Show
from virnucpro.formatting import counted, markdown_table, markdown_text
from virnucpro.layout import lock_file
from virnucpro.metrics import RESAMPLES, metric_text
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, check_same, refuse_existing
from virnucpro.tables import EVALUATION
from virnucpro.version import __version__

SCHEMA, REPORT = 1, "evaluation.json"
FILES = (REPORT, "evaluation.tsv", "evaluation.md", *PLOTS)


def run_evaluation(
    source: Path,
    labels: Path,
    *,
    output_dir: Path | None,
    level: Level | None,
    threshold: float | None,
    force: bool,
    show: Show,
) -> str:
    """Evaluate, write all files, and return the text for the terminal.

    ``source`` is an output directory of ``predict``, or one of its tables.
    """
    known = read_labels(labels)
    predictions = find_predictions(source, level)
    if threshold is None and predictions.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    name = f"{predictions.layout.stem}_{predictions.level}_evaluation"
    folder = output_dir or predictions.layout.root / name
    facts: dict[str, Json] = {
        "predictions": {"file": str(predictions.path), "sha256": hashed(predictions.path).sha256},
        "labels": {"file": str(labels), "sha256": hashed(labels).sha256},
        "level": predictions.level,
        "threshold": threshold,
    }
    with evaluation_folder(folder / REPORT, FILES, facts, _settings, show, force=force) as disk:
        show(
            Notice("info", f"{predictions.path} is measured with {labels}; results go to {folder}")
        )
        rows, missed, counts = join(predictions, known)
        show(Notice("info", f"measuring {counted(len(rows), 'row')}"))
        rows, measured = evaluate(rows, missed, threshold)
        document: dict[str, Json] = {
            "schema": SCHEMA,
            "virnucpro": __version__,
            **facts,
            "score": SCORE_FORMULAS[predictions.level],
            "counts": counts,
            **measured,
            "resamples": RESAMPLES,
        }
        plots = draw_plots(rows, measured, f"{predictions.level}s of {predictions.layout.stem}")
        contents = {
            REPORT: (json.dumps(document, indent=1) + "\n").encode(),
            "evaluation.tsv": as_tsv(measured["slices"]).encode(),
            "evaluation.md": as_markdown(document, plots).encode(),
            **plots,
        }
        for file in FILES:  # a plot of an earlier evaluation may not be there now
            if file in contents:
                disk.save(folder / file, contents[file])
            else:
                disk.remove(folder / file)
    return as_terminal(document, folder)


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    digests = {name: document[name]["sha256"] for name in ("predictions", "labels")}
    return digests | {name: document[name] for name in ("level", "threshold")}


@contextmanager
def evaluation_folder(
    report: Path,
    files: Sequence[str],
    document: Mapping[str, Json],
    settings_of: Callable[[Json], Mapping[str, Json]],
    show: Show,
    *,
    force: bool,
) -> Iterator[Disk]:
    """Lock the folder of a report, and check that an earlier one was made with the same settings.

    ``settings_of`` returns what decides the results, of the ``document`` that will be the report or
    of an earlier one. With ``force`` it does not matter.
    """
    folder = report.parent
    disk, label = Disk(), f"the evaluation in {folder.name}"
    with locked(lock_file(folder, report.name), "this evaluation"):
        disk.sweep(folder, files)
        earlier: Mapping[str, Json] | None = None
        with suppress(OSError, ValueError, LookupError, TypeError):
            earlier = dict(settings_of(parse_json(report.read_bytes())))
        if earlier is None and not force:
            refuse_existing([folder / name for name in files])
        elif earlier is not None and not force:
            wanted = WorkIdentity(label, settings_of(document))
            check_same(wanted, WorkIdentity(label, earlier), folder)
            show(Notice("info", f"{label} is made again"))
        yield disk


# --- how it is written

SHOWN = 40  # rows printed on the terminal
COUNTS = ("genomes", "virus", "others")
ENDS = ("_low", "_high")  # of the names of the columns of an interval
METRICS = [c.name for c in EVALUATION.columns if c.format and not c.name.endswith(ENDS)]


def as_tsv(slices: Iterable[SliceRow]) -> str:
    """Return ``evaluation.tsv``: a header, then one row overall, per length and per group."""
    lines = [EVALUATION.header]
    for row in slices:
        facts: dict[str, Any] = {n: None if fact == "" else fact for n, fact in row.items()}
        for name, interval in facts.pop("intervals").items():
            facts |= zip((name + end for end in ENDS), interval or (None, None), strict=True)
        lines.append(EVALUATION.line(**facts))
    return "".join(lines)


def as_terminal(document: Mapping[str, Json], folder: Path) -> str:
    """Return what the terminal shows, of many groups some; ``folder`` has the results."""
    import pandas

    rows = pandas.DataFrame(map(_cells, document["slices"]))
    columns = ["slice", *COUNTS, "auroc", "auprc", "correct", "f1"]
    table = rows.to_string(index=False, columns=columns, max_rows=SHOWN)
    place = f"The report is {folder / 'evaluation.md'}. Tables and plots are in the same folder."
    return "\n".join([*_sentences(document), table, place])


def _cells(row: SliceRow) -> dict[str, str]:
    """Return what people read of a slice, by the names of the columns in ``evaluation.tsv``."""
    cells = {"slice": slice_title(row)}
    cells |= {name: f"{row[name]:,}" for name in COUNTS}
    for name in METRICS:
        ends = row["intervals"].get(name)
        middle = f" ({ends[0]:.3f}-{ends[1]:.3f})" if ends else ""
        cells[name] = f"{metric_text(row[name])}{middle}"
    return cells


def _sentences(document: Mapping[str, Json]) -> Iterator[str]:
    """Yield sentences on what was measured, on what could not be measured, and why."""
    counts, metrics = document["counts"], document["slices"][0]
    yield (
        f"With a label and a score: {counts['used']:,} of {counted(counts['rows'], 'row')}; "
        f"without a label: {counts['unlabelled']:,}."
    )
    for row in counts["unscored"]:
        yield f"Without a score: {counted(row['rows'], 'row')} of {row['label']}, {row['status']}."
    for label, records in counts["labelled_records_without_a_row"].items():
        yield f"Not in the predictions: {counted(records, 'labelled record')} of {label}."
    if missed := sum(row["rows"] for row in counts["unscored"] if row["label"] == "virus"):
        yield (
            f"Recall is {metric_text(metrics['recall'])} of the viruses with a score, and "
            f"{metric_text(metrics['recall_all'])} where the {missed:,} without one are counted "
            f"as missed."
        )
    if trained := counts["rows_of_the_training_part"]:
        yield f"Note: {counted(trained, 'row')} are of the training part, and look too good."


def as_markdown(document: Mapping[str, Json], plots: Iterable[str]) -> str:
    """Return ``evaluation.md``, of the content of ``evaluation.json``."""
    slices, threshold = document["slices"], document["threshold"]
    rule, m = "classified as by `predict`", slices[0]
    if threshold is not None:
        rule = f"viral from {threshold:g} on"
    confusion = [("virus", m["tp"], m["fn"]), ("others", m["fp"], m["tn"])]
    parts = [
        "# Evaluation",
        f"Predictions: {markdown_text(document['predictions']['file'])}, "
        f"one row per {document['level']}.\n"
        f"Labels: {markdown_text(document['labels']['file'])}.\n"
        f"Score: `{document['score']}`; {rule}.",
        "\n".join(f"- {line}" for line in _sentences(document)),
        "## All rows",
        markdown_table(("truth", "classified as viral", "as others"), confusion),
        markdown_table(("metric", "value (95 %)"), _cells(m).items()),
    ]
    for kind, title in (
        ("length", "By length"),
        ("group", "By group, each against all rows of the other label"),
    ):
        if rows := [_cells(row) for row in slices if row["slice"] == kind]:
            parts += [f"## {title}", markdown_table(rows[0], (row.values() for row in rows))]
    if found := document["false_discovery_rates"]:
        rates = [(r["stated"], r["contigs"], r["false"], metric_text(r["realised"])) for r in found]
        headings = ("stated, at most", "contigs", "not virus", "realised")
        parts += ["## False discovery rates", markdown_table(headings, rates)]
    noted = [row for row in slices if row["note"]]
    notes = [f"- {markdown_text(slice_title(row))}: {row['note']}" for row in noted]
    parts += ["## Notes", "\n".join(notes)] if notes else []
    parts += [f"![{name}]({name})" for name in plots]
    resamples = f"{RESAMPLES} resamples of genomes (or records)"
    parts.append(f"In brackets: the middle 95 % of {resamples}. `NA`: not defined.")
    return "\n\n".join(parts) + "\n"
