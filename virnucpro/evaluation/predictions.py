"""Find predictions and read their rows in one form, whatever the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from virnucpro.columns import MISSING
from virnucpro.errors import InputError, UsageError
from virnucpro.io.chunks import record_of
from virnucpro.io.delimited import DelimitedTable, open_table
from virnucpro.io.frames import chunk_of
from virnucpro.layout import Layout
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, PREDICTIONS

Level = Literal["frame", "chunk", "contig"]
NAN = math.nan
SCORE_FORMULAS: dict[Level, str] = {
    "frame": "score2 / (score1 + score2)",
    "chunk": "(1 + max_score_1 - max_score_0) / 2",
    "contig": "(1 + virus_score) / 2",
}


class PredictionRow(NamedTuple):
    """One prediction.

    Attributes:
        chunk: its id; empty for a contig.
        record: the id of its record.
        score: 0 to 1; NaN where there is none.
        status: why it has a score, or none.
        length: in bases; 0 where the table does not say.
        fdr: the false discovery rate; NaN where there is none.
        called: whether ``predict`` called it virus.
    """

    chunk: str
    record: str
    score: float
    status: str = "scored"
    length: int = 0
    fdr: float = NAN
    called: bool = False


@dataclass(frozen=True)
class PredictionTable:
    """A kind of table with predictions.

    Attributes:
        level: what a row is.
        columns: the columns that are read, by which a table of this kind is recognised.
        read: makes a row from the cells of these columns, or raises ValueError.
        graded: whether it has scores. It is False for a consensus file with calls only.
    """

    level: Level
    columns: tuple[str, ...]
    read: Callable[..., PredictionRow]
    graded: bool = True


@dataclass(frozen=True)
class Predictions:
    """A file with predictions.

    Attributes:
        table: the file.
        kind: the kind of its table.
        stem: the name of the run or of the file.
        folder: the output directory of the run that made it; else the folder of the file.
        run: the ``STEM_run.json`` of the run that made it; None where it is not in its place.
    """

    table: DelimitedTable
    kind: PredictionTable
    stem: str
    folder: Path
    run: Path | None

    @property
    def level(self) -> Level:
        """What a row is."""
        return self.kind.level

    @property
    def graded(self) -> bool:
        """Whether it has scores."""
        return self.kind.graded

    def rows(self) -> Iterator[PredictionRow]:
        """Yield every row of the table.

        Raises:
            InputError: the table is damaged.
        """
        for number, cells in self.table.rows(*self.kind.columns):
            try:
                row = self.kind.read(*cells)
            except ValueError as error:
                raise self.table.error(number, str(error)) from None
            yield row


def find_predictions(path: Path, level: Level | None) -> Predictions:
    """Find the table to evaluate: in an output directory of ``predict``, or ``path`` itself.

    Raises:
        UsageError: there is none, there are several, or the table is of another level.
        InputError: the file is not a table of predictions.
    """
    if path.is_dir():
        layout, level = Layout(path, _only_run(path)), level or "chunk"
        path = _table_of(layout, level)
    elif path.parent.name.endswith("_merged"):
        layout = Layout(path.parent.parent, path.parent.name.removesuffix("_merged"))
    else:
        layout = Layout(path.parent, path.stem.removesuffix("_chunks").removesuffix("_contigs"))
    table = open_table(path)
    kind = next((kind for kind in _KINDS if set(kind.columns) <= set(table.columns)), None)
    if kind is None:
        raise InputError(
            f"{path} is not a table of predictions (columns {', '.join(table.columns[:6])}): "
            f"name the output directory of predict, or a table that it wrote"
        )
    if level is not None and level != kind.level:
        raise UsageError(
            f"{path} has one row per {kind.level}, not per {level}: leave out --level, or name "
            f"the output directory of predict"
        )
    run = layout.run_json if layout.run_json.exists() else None
    return Predictions(table, kind, layout.stem, layout.root, run)


def _only_run(folder: Path) -> str:
    stems = {path.name.removesuffix("_merged") for path in folder.glob("*_merged") if path.is_dir()}
    stems |= {path.name.removesuffix(CHUNKS.place("")) for path in folder.glob(CHUNKS.place("*"))}
    if not stems:
        raise UsageError(
            f"{folder} holds no predictions of a finished run: name the --output-dir of virnucpro "
            f"predict (virnucpro status {folder} says how far it is), or a table"
        )
    if len(stems) > 1:
        names = ", ".join(sorted(stems)[:5])
        more = f" and {len(stems) - 5:,} more" if len(stems) > 5 else ""
        raise UsageError(
            f"{folder} holds several runs ({names}{more}): name a table of one of them, such as "
            f"{folder / CHUNKS.place(min(stems))}"
        )
    return stems.pop()


def _table_of(layout: Layout, level: Level) -> Path:
    places = {
        "frame": (layout.predictions,),
        "chunk": (layout.chunks_table, layout.consensus),  # older versions wrote only the second
        "contig": (layout.contigs_table,),
    }[level]
    for path in places:
        if path.exists():
            return path
    raise UsageError(
        f"{places[0]} does not exist: the run has not finished (continue it with virnucpro predict "
        f"--resume), or choose another --level"
    )


def _frame(frame: str, _prediction: str, others_text: str, virus_text: str) -> PredictionRow:
    chunk, others, virus = chunk_of(frame), _score(others_text), _score(virus_text)
    if others + virus == 0:
        raise ValueError("both scores are 0")
    # Close to 1, a float32 score2 is coarse. score1 has the missing digits.
    return PredictionRow(chunk, _record(chunk), virus / (others + virus))


def _chunk(
    record: str, chunk: str, status: str, others: str, virus: str, start: str, end: str
) -> PredictionRow:
    score = NAN if virus == MISSING else _margin(others, virus)
    return PredictionRow(chunk, record, score, status, _bases(start, end))


def _contig(
    record: str, length: str, status: str, virus_score: str, call: str, fdr: str = MISSING
) -> PredictionRow:
    score = NAN if virus_score == MISSING else (1 + _score(virus_score, lowest=-1)) / 2
    rate = NAN if fdr == MISSING else _number(fdr)
    return PredictionRow("", record, score, status, _bases("1", length), rate, call == "virus")


def _consensus(chunk: str, others: str, virus: str) -> PredictionRow:
    return PredictionRow(chunk, _record(chunk), _margin(others, virus))


def _call(chunk: str, call: str) -> PredictionRow:
    if call.lower() not in ("true", "false"):
        raise ValueError(f"Is_Virus is {call!r}, expected True or False")
    return PredictionRow(chunk, _record(chunk), float(call.lower() == "true"))


_CONTIG = CONTIGS.select("record", "length", "status", "virus_score", "call")
_KINDS = (
    PredictionTable(
        "frame", PREDICTIONS.select("Sequence_ID", "Prediction", "score1", "score2"), _frame
    ),
    PredictionTable(
        "chunk",
        CHUNKS.select("record", "chunk", "status", "max_score_0", "max_score_1", "start", "end"),
        _chunk,
    ),
    PredictionTable("contig", (*_CONTIG, *CONTIGS.select("fdr")), _contig),
    PredictionTable("contig", _CONTIG, _contig),  # older runs do not have the column fdr
    PredictionTable(
        "chunk", CONSENSUS.select("Modified_ID", "max_score_0", "max_score_1"), _consensus
    ),
    # This is the consensus file of the first version of the program.
    PredictionTable("chunk", CONSENSUS.select("Modified_ID", "Is_Virus"), _call, graded=False),
)


def _record(chunk: str) -> str:
    """Return the record of a chunk. An id in another form is taken whole."""
    try:
        return record_of(chunk)[0]
    except ValueError:
        return chunk


def _margin(others: str, virus: str) -> float:
    return (1 + _score(virus) - _score(others)) / 2


def _score(text: str, lowest: float = 0) -> float:
    value = _number(text)
    if not lowest <= value <= 1:
        raise ValueError("a score is out of range")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = NAN
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return value


def _bases(start: str, end: str) -> int:
    if not (start.isdecimal() and end.isdecimal()):
        raise ValueError(f"{start!r} to {end!r} is not a range of bases")
    return int(end) - int(start) + 1
