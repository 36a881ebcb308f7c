"""What geNomad and CheckV say about the viruses of a finished run, in one table with the run's.

Both get the sequences as ``sequence_1`` and so on: what an id may be differs between programs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import Any, NamedTuple, get_type_hints

from msgspec import convert

from virnucpro.columns import MISSING, table_rows
from virnucpro.errors import InputError, UsageError
from virnucpro.io.fasta import read_fasta
from virnucpro.io.records import first_word
from virnucpro.layout import Layout
from virnucpro.report.writing import report_problem
from virnucpro.results import PredictionRun
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.tables import DESCRIBED

LAST_LINES = 3  # of what a failed program printed, for the message
Say = Callable[[str], None]
Rows = dict[str, dict[str, Any]]
"""The rows of the table by their ids; a column is None until its program has run."""


class Program(NamedTuple):
    """How another program is called, and what is taken from the table that it writes.

    The first of our ``columns`` (with the names of theirs) has a value for every sequence:
    ``absent`` where the program does not list it.
    """

    title: str
    name: str
    command: str  # as geNomad 1.13.0 and CheckV 1.1.1 take it; each word is filled in
    table: str  # below its folder
    id: str
    columns: Mapping[str, str]
    absent: str | None

    def words(self, fasta: Path, folder: Path, database: Path, threads: int) -> list[str]:
        """Return the command with its values."""
        values = {"fasta": fasta, "folder": folder, "database": database, "threads": threads}
        return [word.format(**values) for word in self.command.split()]


_GENOMAD = "genomad annotate --threads {threads} {fasta} {folder} {database}"
_GENOMAD_COLUMNS = {"taxonomy": "lineage", "taxonomy_agreement": "agreement"}
_GENOMAD_TABLE = "virus_annotate/virus_taxonomy.tsv", "seq_name", _GENOMAD_COLUMNS
_CHECKV = "checkv end_to_end -t {threads} -d {database} {fasta} {folder}"
_CHECKV_COLUMNS = ("checkv_quality", "completeness", "completeness_method", "contamination")
_CHECKV_TABLE = "quality_summary.tsv", "contig_id", {name: name for name in _CHECKV_COLUMNS}
PROGRAMS = (
    Program("geNomad", "genomad", _GENOMAD, *_GENOMAD_TABLE, "Unclassified"),  # its own word
    Program("CheckV", "checkv", _CHECKV, *_CHECKV_TABLE, None),
)


def describe(
    run: PredictionRun, databases: Mapping[str, Path | None], threads: int, say: Say, *, force: bool
) -> tuple[int, list[Program], list[tuple[Program, str]]]:
    """Run the programs whose columns are not there yet, and write the table and the report.

    Returns how many sequences the table has, which programs have columns in it, and why others not.

    ``databases`` are folders by the names of the programs. ``say`` gets each line that they print.
    ``force`` begins a new table.

    Raises:
        UsageError: the run has pairs, or a file of the user has the name of the table.
        InputError: the files of the run do not belong together.
    """
    layout = Layout(run.folder.absolute(), run.stem)
    disk = Disk(layout.root)
    # A program of a command that was killed may still write into the folder of that one.
    path, work = layout.described_table, layout.described_work / str(os.getpid())
    done, problems = list[Program](), list[tuple[Program, str]]()
    if run.paired:
        raise UsageError(f"the run {run.stem} has pairs of reads: assemble them, describe these")
    with locked(layout.lock):
        is_ours = path.is_file() and path.read_bytes().startswith(DESCRIBED.header.encode())
        rows, keeps = _rows(run), is_ours and not force
        for row in run.described() if keeps else ():
            known = rows.get(row.record)
            if known and (known["length"], known["score"]) == (row.length, row.score):
                known |= {name: getattr(row, name) for p in PROGRAMS for name in p.columns}
        for program in PROGRAMS:
            database = databases[program.name]
            if all(row[next(iter(program.columns))] is not None for row in rows.values()):
                done.append(program)
            elif lacks := _lacks(program, database):
                problems.append((program, lacks))
            elif database:
                disk.clear(layout.described_work)  # of a command that was killed
                try:
                    names, folder = _numbered(layout, work, rows, disk), work / program.name
                    words = work / "virus.fna", folder, database.absolute(), threads
                    _carry_out(program, program.words(*words), folder / program.table, say)
                    _add_columns(program, folder / program.table, names, rows)
                except (OSError, UsageError) as error:
                    problems.append((program, f"{program.title} failed: {error}"))
                    continue
                finally:
                    disk.clear(layout.described_work)
                done.append(program)
            if (rows or is_ours) and program in done:
                lines = [DESCRIBED.header, *(DESCRIBED.line(**row) for row in rows.values())]
                disk.save(path, "".join(lines).encode(), len(rows))
        if problem := report_problem(layout, disk, again=True):
            say(problem)
    return len(rows), done, problems


def _rows(run: PredictionRun) -> Rows:
    """Return a row for each sequence of ``STEM_virus.fna``: records, then regions of others."""
    nothing = dict.fromkeys(DESCRIBED.row._fields)
    rows: Rows = {row.record: nothing | row._asdict() for row in run.virus()}
    viral = set(rows)
    for region in run.regions():
        if region.record not in viral:
            values = {name: getattr(region, name) for name in ("length", "score", "chunks_scored")}
            values |= {"record": region.region, "coverage": region.chunks_scored / region.chunks}
            rows[region.region] = nothing | values
    return rows


def _lacks(program: Program, database: Path | None) -> str:
    """Return what a program lacks, if anything."""
    lacks = [] if shutil.which(program.name) else [f"the program {program.name} is not installed"]
    if database is None:
        lacks.append(f"--{program.name}-db is not given")
    elif not database.is_dir():
        lacks.append(f"--{program.name}-db {database} is no folder")
    return f"{program.title} is not run: {'; '.join(lacks)}" if lacks else ""


def _numbered(layout: Layout, work: Path, rows: Rows, disk: Disk) -> dict[str, str]:
    """Write the sequences with new ids into ``work``; return the ids of ``rows`` by these."""
    names, fasta = dict[str, str](), layout.virus_fasta
    pairs = read_fasta(fasta) if fasta.is_file() else ()
    with suppress(ValueError), disk.create(work / "virus.fna") as out:
        for number, (header, sequence) in enumerate(pairs, 1):
            names[f"sequence_{number}"] = first_word(header)
            out.write(f">sequence_{number}\n{sequence}\n".encode(), 1)
    if sorted(names.values()) != sorted(rows):
        raise InputError(f"{fasta} does not fit the tables: the command that made it restores it")
    return names


def _carry_out(program: Program, words: Sequence[str], table: Path, say: Say) -> None:
    """Run a command to its end, in a session of its own, which an interruption ends."""
    say(f"{program.title}: {shlex.join(words)}")
    last = deque[str](maxlen=LAST_LINES)
    with Popen(
        words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, errors="replace", start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in filter(str.strip, process.stdout):
                say(f"{program.name}: {line.rstrip()}")
                last.append(line.strip())
            code = process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if code or not table.is_file():  # CheckV says 0 where a program that it needs is missing
        raise UsageError(f"exit code {code}, after saying: {' / '.join(last)}")


def _add_columns(program: Program, path: Path, names: Mapping[str, str], rows: Rows) -> None:
    """Put the values of the table that a program wrote into the rows."""
    types = get_type_hints(DESCRIBED.row, include_extras=True)
    found: Rows = {name: {next(iter(program.columns)): program.absent} for name in rows}
    try:
        for _, (id, *cells) in table_rows(path, program.id, *program.columns.values()):
            for column, cell in zip(program.columns, cells, strict=True):
                found[names[id]][column] = (
                    None if cell == MISSING else convert(cell, types[column], strict=False)
                )
    except (LookupError, ValueError, InputError, UsageError) as error:
        raise UsageError(f"it wrote no table that can be used: {error}") from error
    for name, values in found.items():
        rows[name] |= values
