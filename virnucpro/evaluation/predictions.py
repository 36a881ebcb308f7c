"""Find predictions and read their rows in one form, whatever the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.tables import DelimitedTable, open_table
from virnucpro.io.chunks import record_of
from virnucpro.io.frames import chunk_of
from virnucpro.layout import Layout
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, MISSING, PREDICTIONS

Level = Literal["frame", "chunk", "contig"]
LEVELS: tuple[Level, ...] = ("frame", "chunk", "contig")
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
    """

    chunk: str
    record: str
    score: float
    status: str
    length: int
    fdr: float


@dataclass(frozen=True)
class PredictionTable:
    """A kind of table with predictions.

    Attributes:
        level: what a row is.
        columns: the columns by which a table of this kind is recognised.
        read: reads the rows.
        graded: whether it has scores. It is False for a consensus file with calls only.
    """

    level: Level
    columns: tuple[str, ...]
    read: Callable[[DelimitedTable], Iterator[PredictionRow]]
    graded: bool = True


@dataclass(frozen=True)
class Predictions:
    """A file with predictions.

    Attributes:
        table: the file.
        kind: the kind of its table.
        stem: the name of the run or of the file.
        run: the ``STEM_run.json`` of the run that made it; None where it is not in its place.
    """

    table: DelimitedTable
    kind: PredictionTable
    stem: str
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
        return self.kind.read(self.table)


def find_predictions(path: Path, level: Level | None) -> Predictions:
    """Find the table to evaluate: in an output directory of ``predict``, or ``path`` itself.

    Raises:
        UsageError: there is none, there are several, or the table is of another level.
        InputError: the file is not a table of predictions.
    """
    if path.is_dir():
        layout = Layout(path, _only_run(path))
        return _opened(_table_of(layout, level or "chunk"), level or "chunk", layout)
    merged = path.parent.name
    if merged.endswith("_merged"):
        layout = Layout(path.parent.parent, merged.removesuffix("_merged"))
    else:
        layout = Layout(path.parent, path.stem.removesuffix("_chunks").removesuffix("_contigs"))
    return _opened(path, level, layout)


def _opened(path: Path, level: Level | None, layout: Layout) -> Predictions:
    table = open_table(path)
    kind = _kind(table)
    if level is not None and level != kind.level:
        raise UsageError(
            f"{path} has one row per {kind.level}, not per {level}: leave out --level, or name "
            f"the output directory of predict"
        )
    run = layout.run_json if layout.run_json.exists() else None
    return Predictions(table, kind, layout.stem, run)


def _only_run(folder: Path) -> str:
    stems = {path.name.removesuffix("_merged") for path in folder.glob("*_merged") if path.is_dir()}
    stems |= {path.name.removesuffix(CHUNKS.place("")) for path in folder.glob(CHUNKS.place("*"))}
    if not stems:
        raise UsageError(
            f"{folder} holds no predictions: name the --output-dir of virnucpro predict, or a table"
        )
    if len(stems) > 1:
        names = ", ".join(sorted(stems)[:5])
        raise UsageError(f"{folder} holds several runs ({names}): name a table of one of them")
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


def _frames(table: DelimitedTable) -> Iterator[PredictionRow]:
    for number, (frame, others, virus) in table.rows("Sequence_ID", "score1", "score2"):
        chunk = chunk_of(frame)
        pair = _score(table, number, others), _score(table, number, virus)
        if sum(pair) == 0:
            raise table.error(number, "both scores are 0")
        # Close to 1, a float32 score2 is coarse. score1 has the missing digits.
        yield PredictionRow(chunk, _record(chunk), pair[1] / sum(pair), "scored", 0, NAN)


def _chunks(table: DelimitedTable) -> Iterator[PredictionRow]:
    names = ("record", "chunk", "status", "max_score_0", "max_score_1", "start", "end")
    for number, row in table.rows(*names):
        record, chunk, status, others, virus, start, end = row
        score = NAN if virus == MISSING else _margin(table, number, others, virus)
        yield PredictionRow(chunk, record, score, status, _whole(table, number, start, end), NAN)


def _contigs(table: DelimitedTable) -> Iterator[PredictionRow]:
    names = ["record", "length", "status", "virus_score"]
    names += ["fdr"] if "fdr" in table.columns else []  # older runs do not have this column
    for number, (record, length, status, score, *more) in table.rows(*names):
        size = _whole(table, number, "1", length)
        value = NAN if score == MISSING else (1 + _number(table, number, score)) / 2
        fdr = _number(table, number, more[0]) if more and more[0] != MISSING else NAN
        yield PredictionRow("", record, _checked(table, number, value), status, size, fdr)


def _consensus(table: DelimitedTable) -> Iterator[PredictionRow]:
    for number, (chunk, others, virus) in table.rows("Modified_ID", "max_score_0", "max_score_1"):
        score = _margin(table, number, others, virus)
        yield PredictionRow(chunk, _record(chunk), score, "scored", 0, NAN)


def _calls(table: DelimitedTable) -> Iterator[PredictionRow]:
    calls = {"true": 1.0, "false": 0.0}
    for number, (chunk, call) in table.rows("Modified_ID", "Is_Virus"):
        if call.lower() not in calls:
            raise table.error(number, f"Is_Virus is {call!r}, expected True or False")
        yield PredictionRow(chunk, _record(chunk), calls[call.lower()], "scored", 0, NAN)


_KINDS = (
    PredictionTable(
        "frame", PREDICTIONS.select("Sequence_ID", "Prediction", "score1", "score2"), _frames
    ),
    PredictionTable(
        "chunk", CHUNKS.select("record", "chunk", "status", "max_score_0", "max_score_1"), _chunks
    ),
    PredictionTable(
        "contig", CONTIGS.select("record", "length", "status", "virus_score"), _contigs
    ),
    PredictionTable(
        "chunk", CONSENSUS.select("Modified_ID", "max_score_0", "max_score_1"), _consensus
    ),
    # This is the consensus file of the first version of the program.
    PredictionTable("chunk", CONSENSUS.select("Modified_ID", "Is_Virus"), _calls, graded=False),
)


def _kind(table: DelimitedTable) -> PredictionTable:
    for kind in _KINDS:
        if set(kind.columns) <= set(table.columns):
            return kind
    raise InputError(
        f"{table.path} is not a table of predictions (columns {', '.join(table.columns[:6])}): see "
        f"docs/files.md for those of predict"
    )


def _record(chunk: str) -> str:
    """Return the record of a chunk. An id in another form is taken whole."""
    try:
        return record_of(chunk)[0]
    except ValueError:
        return chunk


def _margin(table: DelimitedTable, number: int, others: str, virus: str) -> float:
    return (1 + _score(table, number, virus) - _score(table, number, others)) / 2


def _score(table: DelimitedTable, number: int, text: str) -> float:
    return _checked(table, number, _number(table, number, text))


def _checked(table: DelimitedTable, number: int, value: float) -> float:
    if value < 0 or value > 1:  # not true of NaN: no score
        raise table.error(number, "a score is out of range")
    return value


def _number(table: DelimitedTable, number: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = NAN
    if not math.isfinite(value):
        raise table.error(number, f"{text!r} is not a number")
    return value


def _whole(table: DelimitedTable, number: int, start: str, end: str) -> int:
    if not (start.isdecimal() and end.isdecimal()):
        raise table.error(number, f"{start!r} to {end!r} is not a range of bases")
    return int(end) - int(start) + 1
