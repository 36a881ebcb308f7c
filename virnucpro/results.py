"""The results of a finished run, for Python programs: what came out, and its tables as typed rows.

Imports neither torch nor numpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from msgspec import Struct, convert

import virnucpro.tables as tables
from virnucpro.columns import MISSING, ResultTable
from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.store.documents import parse_json

if TYPE_CHECKING:
    import pandas

Row = TypeVar("Row", bound=NamedTuple)
INCOMPLETE = "incomplete"  # a key that the record of a run has while its tables are replaced


@dataclass(frozen=True)
class Rows(Iterable[Row], Generic[Row]):
    """The rows of one table; each iteration reads the file, as far as rows are asked for."""

    path: Path
    table: ResultTable
    _empty: bool = False  # nothing is read

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in their order.

        Raises:
            InputError: the file is not what the program wrote.
        """
        row: Any = self.table.row
        for columns in self.columns():
            try:
                yield from convert(list(zip(*columns, strict=True)), list[row], strict=False)
            except ValueError as error:
                raise self._changed(error) from error

    def columns(self) -> Iterator[list[Sequence[str | None]]]:
        """Yield the columns of some thousand rows at a time, as text, None for a missing value.

        Raises:
            InputError: the file is not what the program wrote.
        """
        if self._empty:
            return
        optional = [column.optional for column in self.table.columns]
        try:
            for columns in self.table.read_columns(self.path, *self.table.row._fields):
                yield [
                    [None if cell == MISSING else cell for cell in column] if may_miss else column
                    for column, may_miss in zip(columns, optional, strict=True)
                ]
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise self._changed(error) from error

    def _changed(self, error: Exception) -> InputError:
        return InputError(
            f"{self.path} was changed or cut off ({error}); the same command restores it"
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a data frame of pandas. A missing value is ``NaN`` or ``<NA>``.

        Raises:
            InputError: the file is not what the program wrote.
        """
        import pandas

        types = {str: "string", int: "Int64", float: "float64", bool: "boolean"}
        frame: pandas.DataFrame = pandas.DataFrame(list(self), columns=self.table.row._fields)
        return frame.astype({column.name: types[column.type] for column in self.table.columns})


_COUNTS = {"scored": "records_scored", "unscored": "records_unscored"}


class RunSummary(Struct, frozen=True, rename=_COUNTS | {"failures": "records_with_failures"}):
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
        regions: viral regions of all records.
        region_bases: bases in these.
    """

    records: int
    scored: int
    calls: dict[str, int]
    unscored: dict[str, int]
    chunks: dict[str, int]
    failures: int
    notice: str
    seconds: float
    regions: int
    region_bases: int


@dataclass(frozen=True)
class RunResults:
    """A finished run.

    Attributes:
        folder: its output directory.
        stem: its name, with which the names of its files begin.
        record: what ran: versions, models, settings, devices, counts.
    """

    folder: Path
    stem: str
    record: Mapping[str, Json]
    # The end of the name of the file with the record, keys that no other file of such a name has,
    # and the command that writes it.
    suffix: ClassVar[str]
    keys: ClassVar[frozenset[str]]
    command: ClassVar[str]

    def _rows(self, table: ResultTable, *, empty: bool = False) -> Rows[Any]:
        self._check_complete()
        path = self.folder / table.path.format(stem=self.stem)
        if not (empty or path.is_file()):
            raise InputError(
                f"{path} does not exist: repeat the command that writes it; where it needs an "
                f"option that was not given, with this option and --force"
            )
        return Rows(path, table, empty)

    def _check_complete(self) -> None:
        """Raise InputError if a command was stopped while it replaced the tables."""
        if INCOMPLETE in self.record:
            raise InputError(
                f"{self.folder}: the tables of the run {self.stem} do not belong together, because "
                f"the command that was writing them again has not finished: repeat it (virnucpro "
                f"call, or predict)"
            )


AnyRun = TypeVar("AnyRun", bound=RunResults)


class PredictionRun(RunResults):
    """A finished run of ``predict``; its ``record`` is the content of ``STEM_run.json``."""

    suffix = "_run.json"
    keys = frozenset({"counts", "input"})
    command = "predict"

    @cached_property
    def summary(self) -> RunSummary:
        """What came out.

        Raises:
            InputError: ``STEM_run.json`` was changed.
        """
        self._check_complete()
        try:
            notice, times = self.record.get("notice", ""), self.record.get("seconds", {})
            facts = {"notice": notice, "seconds": float(sum(times.values()))}
            return convert({**self.record["counts"], **facts}, RunSummary)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            path = self.folder / f"{self.stem}{self.suffix}"
            raise InputError(f"{path} was changed: the same command writes it again") from error

    @property
    def paired(self) -> bool:
        """Whether the records are pairs of reads."""
        return bool({"mates", "interleaved"} & self.record["input"].keys())

    def contigs(self) -> Rows[tables.ContigRow]:
        """Return the records of the input with their calls; none of them is missing."""
        return self._rows(tables.CONTIGS)

    def virus(self) -> Rows[tables.VirusRow]:
        """Return the records that are classified as viral, the most certain first."""
        return self._rows(tables.VIRUS)

    def regions(self) -> Rows[tables.RegionRow]:
        """Return the viral regions of all records; pairs have none, and no file."""
        return self._rows(tables.REGIONS, empty=self.paired)

    def chunks(self) -> Rows[tables.ChunkRow]:
        """Return the chunks of all records with their scores."""
        return self._rows(tables.CHUNKS)


class RclRun(RunResults):
    """A finished run of ``rcl predict``; its ``record`` is the content of ``STEM_rcl_run.json``."""

    suffix = "_rcl_run.json"
    keys = frozenset({"statuses"})
    command = "rcl predict"

    def proteins(self) -> Rows[tables.RclRow]:
        """Return the proteins of the input with their RCLs; none of them is missing."""
        return self._rows(tables.RCL_REGIONS)

    def residues(self) -> Rows[tables.RclResidueRow]:
        """Return the residues of all proteins with their probabilities.

        Raises:
            InputError: the run was made without ``residues=True``.
        """
        return self._rows(tables.RCL_RESIDUES)


def open_run(folder: str | PathLike[str], stem: str | None = None) -> PredictionRun:
    """Return a finished run of ``predict`` in an output directory.

    Args:
        folder: the output directory.
        stem: the name of the run; only needed where the directory holds several.

    Raises:
        UsageError: there is no such run, or there are several and none was named.
    """
    return _chosen(_runs(PredictionRun, folder), stem)


def open_runs(folder: str | PathLike[str]) -> list[PredictionRun]:
    """Return all finished runs of ``predict`` in an output directory, by name.

    Raises:
        UsageError: there is none.
    """
    return _runs(PredictionRun, folder)


def open_rcl_run(folder: str | PathLike[str], stem: str | None = None) -> RclRun:
    """Return a finished run of ``rcl predict`` in an output directory.

    Args:
        folder: the output directory.
        stem: the name of the run; only needed where the directory holds several.

    Raises:
        UsageError: there is no such run, or there are several and none was named.
    """
    return _chosen(_runs(RclRun, folder), stem)


def _runs(kind: type[AnyRun], place: str | PathLike[str]) -> list[AnyRun]:
    """Return the runs in an output directory by name."""
    folder = Path(place)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: name the output directory of a run")
    found = []
    for path in sorted(folder.glob(f"*{kind.suffix}")):
        try:
            document = parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and kind.keys <= document.keys():
            found.append(kind(folder, path.name.removesuffix(kind.suffix), document))
    if not found:
        raise UsageError(
            f"{folder} holds no finished run of {kind.command}; of several inputs, name the folder "
            f"of one. What is there is shown by: virnucpro status {folder}"
        )
    return found


def _chosen(runs: list[AnyRun], stem: str | None) -> AnyRun:
    """Return the run that is meant."""
    names, folder = ", ".join(run.stem for run in runs), runs[0].folder
    if stem is None and len(runs) > 1:
        raise UsageError(
            f"{folder} holds several runs: name one of them as stem (option --stem): {names}"
        )
    for run in runs:
        if stem in (None, run.stem):
            return run
    raise UsageError(f"{folder} holds no finished run {stem!r}; there: {names}")
