"""Make tables of what was measured.

Names come from the user and are never read as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from virnucpro.contracts import Json
from virnucpro.formatting import UNKNOWN, memory_size, percent, printable, seconds_text


def encoder_table(document: Mapping[str, Json]) -> Table:
    """Return a table with a row per implementation and precision of every model."""
    headings = ("model", "implementation", "precision", "sequences/s", "tokens/s", "of matmul",
                "x original", "x transformers", "x bf16", "memory", "load", "compile", "waited",
                "cosine", "check")  # fmt: skip
    rows = [
        (
            model["model"],
            row["implementation"],
            row["precision"],
            _number(row.get("sequences_per_second"), ",.1f"),
            _number(row.get("tokens_per_second"), ",.0f"),
            percent(row.get("share_of_matmul")),
            _number(row["ratio_to_original"], ".2f"),
            _number(row["ratio_to_transformers"], ".2f"),
            _number(row["ratio_to_bf16"], ".2f"),
            memory_size(row["peak_memory"]),
            seconds_text(row["load_seconds"]),
            seconds_text(row["compile_seconds"]),
            percent(row.get("host_wait"), 1),
            _number(row["least_cosine"], ".6f"),
            row["check"],
        )
        for model in document["models"]
        for row in model["results"]
    ]
    return _table(_title(document), headings, rows, left=3)


def stage_table(document: Mapping[str, Json]) -> Table:
    """Return a table with a row per step of the host, and their sum."""
    rows = [
        (
            row["stage"],
            f"{row['frames_per_second']:,.0f}",
            seconds_text(row["seconds_per_million"], 2),
            "beside" if row["beside_the_device"] else "waits",
        )
        for row in document["stages"]
    ]
    total = seconds_text(document["host_seconds_per_million"], 2)
    rows.append(("all that devices wait for", "", total, ""))
    title = f"Host, {document['machine']['threads']} threads"
    return _table(title, ("stage", "frames/s", "per million", "one device"), rows, left=1)


def accuracy_table(accuracy: Mapping[str, Json]) -> Table:
    """Return a table with a row per precision and encoder, compared with fp32."""
    rows = []
    for one in accuracy["precisions"]:
        labels = one["labels"] or {}
        for family, distance in one["embeddings"].items():
            rows.append(
                (
                    one["precision"],
                    family,
                    f"{distance['least_cosine']:.6f}",
                    f"{distance['mean_cosine']:.6f}",
                    f"{distance['largest_difference']:.2g}",
                    percent(labels.get("frames"), 3),
                    percent(labels.get("chunks"), 3),
                    {True: "yes", False: "no", None: "not claimed"}[one["recommended"]],
                )
            )
    headings = ("precision", "encoder", "least cosine", "mean cosine", "largest difference",
                "same call, frames", "chunks", "recommended")  # fmt: skip
    title = (
        f"{accuracy['input']}: {accuracy['frames']:,} frames of {accuracy['chunks']:,} chunks, "
        f"beside fp32"
    )
    return _table(title, headings, rows, left=2)


def why_not_claimed(accuracy: Mapping[str, Json], enough: float, chunks: int) -> str:
    """Return a sentence on what a recommendation means, or why there is none."""
    if accuracy["classifier"] is None:
        return (
            "No precision is recommended: labels were not compared. That needs real weights of "
            "both encoders (--weights real) and their classifier."
        )
    return (
        f"Recommended is a precision with at least {percent(enough, 1)} of the calls of fp32, for "
        f"frames and for chunks, over {chunks:,} chunks or more. Classifier: "
        f"{accuracy['classifier']}."
    )


def _title(document: Mapping[str, Json]) -> str:
    machine, work = document["machine"], document["workload"]
    device = machine["device"] if machine["device_memory"] else machine["cpu"]
    emulated = ", ".join(machine["emulated"])
    return (
        f"{device}, {machine['threads']} threads, torch {machine['torch']}; {work['name']}: "
        f"{work['sequences']:,} frames of chunks of {work['chunk_length']} bases"
        f"{emulated and '; emulated, so only measured if named: '}{emulated}"
    )


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int
) -> Table:
    """Return a table whose first ``left`` columns are text and whose others are numbers."""
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else f"{value:{form}}"
