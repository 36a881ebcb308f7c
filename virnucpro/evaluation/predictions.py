"""Find predictions and read their rows in one form, whatever the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from virnucpro.columns import MISSING
from virnucpro.errors import InputError, UsageError
from virnucpro.io.delimited import open_table
from virnucpro.layout import Layout
from virnucpro.tables import CHUNKS

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Level = Literal["frame", "chunk", "contig"]
SCORE_FORMULAS: dict[Level, str] = {
    "frame": "score2 / (score1 + score2)",
    "chunk": "(1 + max_score_1 - max_score_0) / 2",
    "contig": "(1 + virus_score) / 2",
}
Columns = dict[str, Any]


@dataclass(frozen=True)
class PredictionTable:
    """A kind of table with predictions.

    Attributes:
        level: what a row is.
        columns: the columns that are read, by which a table of this kind is recognised.
        read: makes the columns of :meth:`Predictions.rows` from them, or raises ValueError.
        graded: whether it has scores. It is False for a consensus file with calls only.
    """

    level: Level
    columns: tuple[str, ...]
    read: Callable[[DataFrame], Columns]
    graded: bool = True


@dataclass(frozen=True)
class Predictions:
    """A file with predictions.

    Attributes:
        path: the file.
        kind: the kind of its table.
        stem: the name of the run or of the file.
        folder: the output directory of the run that made it; else the folder of the file.
        run: the ``STEM_run.json`` of the run that made it; None where it is not in its place.
    """

    path: Path
    kind: PredictionTable
    stem: str
    folder: Path
    run: Path | None

    def rows(self) -> DataFrame:
        """Return every row of the table, with these columns.

        - ``chunk``: its id; empty for a contig.
        - ``record``: the id of its record.
        - ``score``: 0 to 1; NaN where there is none.
        - ``status``: why it has a score, or none.
        - ``length``: in bases; 0 where the table does not say.
        - ``fdr``: the false discovery rate; NaN where there is none.
        - ``called``: whether ``predict`` called it virus.

        Raises:
            InputError: the table is damaged.
        """
        import pandas

        try:
            columns = self.kind.read(read_table(self.path, self.kind.columns))
        except ValueError as error:
            raise InputError(f"{self.path} is damaged: {error}; make it again") from error
        others = {"chunk": "", "status": "scored", "length": 0, "fdr": np.nan, "called": False}
        return pandas.DataFrame(others | columns)


def read_table(path: Path, columns: tuple[str, ...]) -> DataFrame:
    """Read columns of a tab-separated table as text.

    Raises:
        ValueError: a line has another number of fields, or the file is not UTF-8 text.
    """
    import pandas

    table = pandas.read_csv(
        path,
        sep="\t",
        dtype=object,
        keep_default_na=False,
        quoting=3,  # csv.QUOTE_NONE
        encoding="utf-8-sig",
    )
    # Where the lines have more fields than the header, the first ones become the index.
    if not isinstance(table.index, pandas.RangeIndex):
        raise ValueError("its lines have more fields than its header")
    if table.isna().to_numpy().any():
        raise ValueError("a line has too few fields")
    return table.rename(columns=str.strip)[list(columns)]


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
    columns = open_table(path).columns
    kind = next((kind for kind in _KINDS if set(kind.columns) <= set(columns)), None)
    if kind is None:
        raise InputError(
            f"{path} is not a table of predictions (columns {', '.join(columns[:6])}): "
            f"name the output directory of predict, or a table that it wrote"
        )
    if level is not None and level != kind.level:
        raise UsageError(
            f"{path} has one row per {kind.level}, not per {level}: leave out --level, or name "
            f"the output directory of predict"
        )
    run = layout.run_json if layout.run_json.exists() else None
    return Predictions(path, kind, layout.stem, layout.root, run)


def _only_run(folder: Path) -> str:
    stems = {path.name.removesuffix("_merged") for path in folder.glob("*_merged") if path.is_dir()}
    stems |= {path.name.removesuffix(CHUNKS.place("")) for path in folder.glob(CHUNKS.place("*"))}
    if len(stems) == 1:
        return stems.pop()
    if stems:
        raise UsageError(
            f"{folder} holds several runs ({', '.join(sorted(stems)[:5])}): name a table of one of "
            f"them, such as {folder / CHUNKS.place(min(stems))}"
        )
    raise UsageError(
        f"{folder} holds no predictions of a finished run: name the --output-dir of virnucpro "
        f"predict (virnucpro status {folder} says how far it is), or a table"
    )


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


def _frame(table: DataFrame) -> Columns:
    others, virus = _scores(table.score1), _scores(table.score2)
    if not (others + virus).all():
        raise ValueError("both scores of a row are 0")
    chunk = table.Sequence_ID.str[:-2]  # without the label of the frame
    # Close to 1, a float32 score2 is coarse. score1 has the missing digits.
    return {"chunk": chunk, "record": _record(chunk), "score": virus / (others + virus)}


def _chunk(table: DataFrame) -> Columns:
    score = _margin(table.max_score_0, table.max_score_1)
    length = _numbers(table.end) - _numbers(table.start) + 1
    names = {"chunk": table.chunk, "record": table.record, "status": table.status}
    return {**names, "score": score, "length": length.astype(np.int64)}


def _contig(table: DataFrame) -> Columns:
    columns = {
        "record": table.record,
        "score": (1 + _scores(table.virus_score, lowest=-1)) / 2,
        "status": table.status,
        "length": _numbers(table.length).astype(np.int64),
        "called": table.call == "virus",
    }
    return columns | ({"fdr": _scores(table.fdr)} if "fdr" in table else {})


def _consensus(table: DataFrame) -> Columns:
    score = _margin(table.max_score_0, table.max_score_1)
    return {"chunk": table.Modified_ID, "record": _record(table.Modified_ID), "score": score}


def _call(table: DataFrame) -> Columns:
    calls = table.Is_Virus.str.lower()
    if not calls.isin(["true", "false"]).all():
        raise ValueError("Is_Virus is neither True nor False")
    score = (calls == "true").astype(float)
    return {"chunk": table.Modified_ID, "record": _record(table.Modified_ID), "score": score}


_CONTIG = ("record", "length", "status", "virus_score", "call")
_CHUNK = ("record", "chunk", "status", "max_score_0", "max_score_1", "start", "end")
_KINDS = (
    PredictionTable("frame", ("Sequence_ID", "score1", "score2"), _frame),
    PredictionTable("chunk", _CHUNK, _chunk),
    PredictionTable("contig", (*_CONTIG, "fdr"), _contig),
    PredictionTable("contig", _CONTIG, _contig),  # older runs do not have the column fdr
    PredictionTable("chunk", ("Modified_ID", "max_score_0", "max_score_1"), _consensus),
    # This is the consensus file of the first version of the program.
    PredictionTable("chunk", ("Modified_ID", "Is_Virus"), _call, graded=False),
)


def _record(chunk: Series) -> Series:
    """Return the record of a chunk. An id in another form is taken whole."""
    return chunk.str.replace(r"_chunk_[0-9]+$", "", regex=True)


def _margin(others: Series, virus: Series) -> Any:
    return (1 + _scores(virus) - _scores(others)) / 2


def _scores(texts: Series, lowest: float = 0) -> Any:
    """Return scores as float64, NaN for a missing one."""
    missing = (texts == MISSING).to_numpy()
    values = _numbers(texts.where(~missing, "0"))
    if not ((values >= lowest) & (values <= 1)).all():
        raise ValueError("a score is out of range")
    return np.where(missing, np.nan, values)


def _numbers(texts: Series) -> Any:
    values = texts.to_numpy(object).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values
