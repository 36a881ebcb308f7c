"""The results of a finished run, for Python programs: what came out, and its tables as typed rows.

Imports neither torch nor numpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import virnucpro.rows as rows
from virnucpro.columns import Column
from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.store.documents import parse_json
from virnucpro.tables import ROW_CLASSES

if TYPE_CHECKING:
    import pandas
    import polars

Row = TypeVar("Row", bound=NamedTuple)
_RUN, _RCL_RUN = "_run.json", "_rcl_run.json"
_RUN_KEYS = ("counts", "settings", "input")  # which no other file of this name has together
INCOMPLETE = "incomplete"  # a key that the record of a run has while its tables are replaced


class Rows(Iterator[Row], Generic[Row]):
    """The rows of one table, one after the other; the file is read as far as they are asked for.

    :meth:`to_pandas` and :meth:`to_polars` return the whole table, wherever the iteration stands.
    """

    def __init__(self, path: Path, row_class: type[Row]) -> None:
        """``row_class`` is a class of ``virnucpro.rows``.

        Raises:
            InputError: the file does not exist.
        """
        self.path = path
        self.table = ROW_CLASSES[row_class.__name__]
        if not path.is_file():
            raise InputError(
                f"{path} does not exist: this run did not write it; the same command writes it if "
                f"it was lost"
            )
        self._row_class = row_class
        self._rows = self._typed_rows()

    def __next__(self) -> Row:
        """Return the next row.

        Raises:
            InputError: the file is not what the program wrote; the message names the line.
        """
        return next(self._rows)

    def _typed_rows(self) -> Iterator[Row]:
        parsers = [column.parse for column in self.table.columns]
        line = 1  # the header
        try:
            for cells in self.table.read(self.path, *self.table.names):
                line += 1
                values = [parse(cell) for parse, cell in zip(parsers, cells, strict=True)]
                yield self._row_class._make(values)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise self._damage(f"line {line} or the next: {error}") from error

    def _damage(self, reason: str) -> InputError:
        return InputError(
            f"{self.path} was changed or cut off ({reason}); the same command restores it"
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a data frame of pandas. A missing value is ``NaN`` or ``<NA>``.

        Raises:
            UsageError: pandas is not installed.
            InputError: the file is not what the program wrote.
        """
        package = _package("pandas")
        frame: pandas.DataFrame = package.DataFrame(
            {
                column.name: package.Series(values, dtype=_PANDAS_TYPES[column.type])
                for column, values in self._columns()
            }
        )
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return the table as a data frame of polars. A missing value is null.

        Raises:
            UsageError: polars is not installed.
            InputError: the file is not what the program wrote.
        """
        package = _package("polars")
        types = {str: package.String, int: package.Int64, float: package.Float64}
        types[bool] = package.Boolean
        frame: polars.DataFrame = package.DataFrame(
            [
                package.Series(column.name, values, dtype=types[column.type])
                for column, values in self._columns()
            ]
        )
        return frame

    def _columns(self) -> Iterator[tuple[Column, list[Any]]]:
        """Read the whole table, and return its columns with their values."""
        cells = list(Rows(self.path, self._row_class))
        for place, column in enumerate(self.table.columns):
            yield column, [row[place] for row in cells]


# They hold missing values, except float64, where a missing value is NaN.
_PANDAS_TYPES = {str: "string", int: "Int64", float: "float64", bool: "boolean"}


def _package(name: str) -> Any:
    """Import a package that only some programs need.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"this needs the package {name}: pip install {name}") from None


@dataclass(frozen=True)
class RunSummary:
    """What came out of a prediction.

    Attributes:
        records: records of the input.
        scored: those of which at least one chunk was scored.
        calls: records per call, such as ``virus``.
        unscored: records without a score, per reason.
        chunks: chunks per status.
        failures: records of which something could not be computed; the same call tries it again.
        notice: what a reader of the results must know, if anything.
        seconds: what the stages took when the run was last computed.
    """

    records: int
    scored: int
    calls: Mapping[str, int]
    unscored: Mapping[str, int]
    chunks: Mapping[str, int]
    failures: int
    notice: str
    seconds: float


@dataclass(frozen=True)
class PredictionRun:
    """A finished run of ``predict``.

    Attributes:
        folder: its output directory.
        stem: its name, with which the names of its files begin.
        record: what ran: versions, models, settings, devices, counts. The content of
            ``STEM_run.json``.
    """

    folder: Path
    stem: str
    record: Mapping[str, Json]

    @cached_property
    def summary(self) -> RunSummary:
        """What came out."""
        _refuse_incomplete(self)
        with _read(self.folder / f"{self.stem}{_RUN}"):
            counts = self.record["counts"]
            return RunSummary(
                records=int(counts["records"]),
                scored=int(counts["records_scored"]),
                calls=dict(counts["calls"]),
                unscored=dict(counts["records_unscored"]),
                chunks=dict(counts["chunks"]),
                failures=int(counts["records_with_failures"]),
                notice=str(self.record.get("notice", "")),
                seconds=float(sum(dict(self.record.get("seconds", {})).values())),
            )

    def contigs(self) -> Rows[rows.ContigRow]:
        """Return the records of the input with their calls; none of them is missing."""
        return _rows(self, rows.ContigRow)

    def virus(self) -> Rows[rows.VirusRow]:
        """Return the records that are called virus, the surest first."""
        return _rows(self, rows.VirusRow)

    def regions(self) -> Rows[rows.RegionRow]:
        """Return the viral regions of all records."""
        return _rows(self, rows.RegionRow)

    def chunks(self) -> Rows[rows.ChunkRow]:
        """Return the chunks of all records with their scores."""
        return _rows(self, rows.ChunkRow)


@dataclass(frozen=True)
class RclRunSummary:
    """What came out of a search for RCLs.

    Attributes:
        proteins: proteins of the input.
        found: those with an RCL.
        statuses: proteins per status.
        notices: sentences about the input.
    """

    proteins: int
    found: int
    statuses: Mapping[str, int]
    notices: tuple[str, ...]


@dataclass(frozen=True)
class RclRun:
    """A finished run of ``rcl predict``.

    Attributes:
        folder: its output directory.
        stem: its name, with which the names of its files begin.
        record: what ran: version, model, settings, counts. The content of ``STEM_rcl_run.json``.
    """

    folder: Path
    stem: str
    record: Mapping[str, Json]

    @cached_property
    def summary(self) -> RclRunSummary:
        """What came out."""
        with _read(self.folder / f"{self.stem}{_RCL_RUN}"):
            statuses = dict(self.record["statuses"])
            return RclRunSummary(
                proteins=int(self.record["proteins"]),
                found=int(statuses.get("found", 0)),
                statuses=statuses,
                notices=tuple(map(str, self.record["notices"])),
            )

    def proteins(self) -> Rows[rows.RclRow]:
        """Return the proteins of the input with their RCLs; none of them is missing."""
        return _rows(self, rows.RclRow)

    def residues(self) -> Rows[rows.RclResidueRow]:
        """Return the residues of all proteins with their probabilities.

        Raises:
            InputError: the run was made without ``residues=True``.
        """
        return _rows(self, rows.RclResidueRow)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Say that a record was changed where it does not hold what the program writes."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path} was changed: the same command writes it again") from error


def _refuse_incomplete(run: PredictionRun | RclRun) -> None:
    """Raise InputError where a command was stopped while it replaced the tables of a run."""
    if INCOMPLETE in run.record:
        raise InputError(
            f"{run.folder}: the tables of the run {run.stem} do not belong together, because the "
            f"command that was writing them again has not finished: repeat it (virnucpro call, or "
            f"predict)"
        )


def _rows(run: PredictionRun | RclRun, row_class: type[Row]) -> Rows[Row]:
    _refuse_incomplete(run)
    table = ROW_CLASSES[row_class.__name__]
    return Rows(run.folder / table.place(run.stem), row_class)


def open_run(folder: str | PathLike[str], stem: str | None = None) -> PredictionRun:
    """Return a finished run of ``predict`` in an output directory.

    Args:
        folder: the output directory.
        stem: the name of the run; only needed where the directory holds several.

    Raises:
        UsageError: there is no such run, or there are several and none was named.
    """
    found = _records(Path(folder), _RUN, _RUN_KEYS)
    chosen = _chosen(Path(folder), found, stem, "predict")
    return PredictionRun(Path(folder), chosen, found[chosen])


def open_runs(folder: str | PathLike[str]) -> list[PredictionRun]:
    """Return all finished runs of ``predict`` in an output directory, by name.

    Raises:
        UsageError: there is none.
    """
    found = _records(Path(folder), _RUN, _RUN_KEYS)
    if not found:
        _chosen(Path(folder), found, None, "predict")
    return [PredictionRun(Path(folder), name, record) for name, record in found.items()]


def open_rcl_run(folder: str | PathLike[str], stem: str | None = None) -> RclRun:
    """Return a finished run of ``rcl predict`` in an output directory.

    Args:
        folder: the output directory.
        stem: the name of the run; only needed where the directory holds several.

    Raises:
        UsageError: there is no such run, or there are several and none was named.
    """
    found = _records(Path(folder), _RCL_RUN, ("proteins", "statuses", "notices"))
    chosen = _chosen(Path(folder), found, stem, "rcl predict")
    return RclRun(Path(folder), chosen, found[chosen])


def _records(folder: Path, suffix: str, keys: tuple[str, ...]) -> dict[str, Mapping[str, Json]]:
    """Return the records of runs by their names; a record of another kind lacks some of ``keys``.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: name the output directory of a run")
    found: dict[str, Mapping[str, Json]] = {}
    for path in sorted(folder.glob(f"*{suffix}")):
        try:
            document = parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and all(key in document for key in keys):
            found[path.name.removesuffix(suffix)] = document
    return found


def _chosen(folder: Path, found: Mapping[str, object], stem: str | None, command: str) -> str:
    """Return the name of the run that is meant.

    Raises:
        UsageError: there is no such run, or there are several and none was named.
    """
    names = ", ".join(found) or "none"
    if stem is not None and stem not in found:
        raise UsageError(f"{folder} holds no finished run {stem!r} of {command}; there: {names}")
    if stem is not None:
        return stem
    if not found:
        raise UsageError(
            f"{folder} holds no finished run of {command}; what is there is shown by: virnucpro "
            f"status {folder}"
        )
    if len(found) > 1:
        raise UsageError(
            f"{folder} holds several runs: name one of them as stem (option --stem): {names}"
        )
    return next(iter(found))
