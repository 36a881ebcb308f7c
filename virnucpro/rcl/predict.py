"""Carry out ``rcl predict``: blocks of proteins through the workers, and results from all blocks.

It is a run of three stages, as ``predict`` has them: the proteins are written in blocks; a worker
makes of each block the rows of ``STEM_rcl.tsv`` and, if they are wanted, of the table of residues;
all results are made of these rows, so that they are the same whatever the devices.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from virnucpro.columns import GFF3_HEADER, gff3_escaped
from virnucpro.contracts import (
    Device,
    Json,
    ReportProgress,
    Session,
    Task,
    TaskResult,
)
from virnucpro.devices import choose_devices
from virnucpro.events import Notice, Show
from virnucpro.io.fasta import read_fasta
from virnucpro.io.inputs import InputFiles, summarise_input, with_unique_ids
from virnucpro.io.records import Records
from virnucpro.layout import COMPRESSION, STDIN
from virnucpro.precision import choose_precision
from virnucpro.rcl.blocks import (
    BlockLayout,
    BlockStage,
    ProteinBlock,
    ReadingStage,
    carry_out_tasks,
)
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.proteins import RclResult
from virnucpro.run.request import check_readable, check_writable, refuse_own_files
from virnucpro.run.run import FinishedFigures, Run
from virnucpro.run.workers import local_workers
from virnucpro.settings import MachineSettings
from virnucpro.stages.base import HostStage
from virnucpro.stages.chunking import duplicate_ids_error
from virnucpro.store.disk import GZIP_LEVEL, Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed_input
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState, check_run
from virnucpro.tables import RCL_POSITIONS, RCL_REGIONS, RCL_RESIDUES
from virnucpro.version import __version__
from virnucpro.workers.signals import Interruption

RESIDUES_AT_A_TIME = 1 << 20
"""Residues from which a block is full, so that long proteins take no more memory."""
FASTA_LINE = 80
EMPTY = RclResult("empty", None, np.zeros(0, np.float32))
Record = Mapping[str, Json]
"""The content of ``STEM_rcl_run.json``."""


@dataclass(frozen=True)
class RclRequest:
    """What the user asked for. ``finder`` is not yet settled on a device."""

    source: str
    output_dir: Path | None
    finder: RclFinder
    machine: MachineSettings
    sequences: bool = False
    loops: bool = False
    residues: bool = False
    duplicate_ids: str = "error"
    proteins_at_a_time: int = 2000
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of the input without the suffix of a compression and the one before it."""
        if self.source == STDIN:
            return "stdin"
        path = Path(self.source)
        return Path(path.stem).stem if path.suffix.lower() in COMPRESSION else path.stem

    @property
    def root(self) -> Path:
        """The output directory."""
        return self.output_dir or Path(f"{self.stem}_rcl")

    @property
    def layout(self) -> BlockLayout:
        """The files; RCL-identifier has the same names for three of the results."""
        named = f"{self.stem}_{self.finder.model.encoding}"
        threshold = f"thr{self.finder.threshold:.2f}".replace(".", "p")
        names = {
            "positions": f"{named}_RCL_predictions_{threshold}.tsv",
            "sequences": f"{named}_with_RCL_{threshold}.fasta",
            "loops": f"{named}_RCL_only_{threshold}.fasta",
            "regions": RCL_REGIONS.path.format(stem=self.stem),
            "gff": f"{self.stem}_rcl.gff3",
            "residues": RCL_RESIDUES.path.format(stem=self.stem),
        }
        wanted = {kind: name for kind, name in names.items() if getattr(self, kind, True)}
        return BlockLayout(self.root, f"{self.stem}_rcl", wanted, kept=False)


@dataclass(frozen=True)
class FindingStage(BlockStage):
    """Finds the RCLs of proteins, a block of proteins per task.

    What is stored of a block are proteins by status, and its part of each result file.
    """

    finder: RclFinder

    name, title = "finding_RCLs", "Finding RCLs"
    suffix = "msgpack"

    def open(self, device: Device) -> Session:
        """Put the model on a device."""
        self.finder.settle(device)
        return Session(self.run)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Find the RCLs of the proteins of a block."""
        proteins = list(read_fasta(task.inputs[0]))
        found = iter(self.finder.find([sequence for _, sequence in proteins if sequence]))
        statuses = Counter[str]()
        texts: dict[str, list[str]] = {kind: [] for kind in self.layout.results}
        for accession, sequence in proteins:
            result = next(found) if sequence else EMPTY
            statuses[result.status] += 1
            for kind, text in self._rows(accession, sequence, result):
                if kind in texts:
                    texts[kind].append(text)
        files = {kind: "".join(rows).encode() for kind, rows in texts.items()}
        if "residues" in files:
            files["residues"] = gzip.compress(files["residues"], GZIP_LEVEL, mtime=0)
        content = msgspec.msgpack.encode({"statuses": statuses, "files": files})
        output = self.disk.save(task.outputs[0], content, len(proteins))
        report(len(proteins), 0)
        return TaskResult(task, (output,))

    def _rows(self, accession: str, sequence: str, result: RclResult) -> Iterator[tuple[str, str]]:
        """Yield what the result files say of a protein."""
        label, length = self.finder.label, len(sequence)
        start, end, confidence = result.region or (None, None, None)
        if "residues" in self.layout.results:
            rows = RCL_RESIDUES.lines(
                accession=[accession] * length,
                position=range(1, length + 1),
                residue=sequence,
                probability=result.probabilities.tolist(),
            )
            yield "residues", rows
        loop = None if start is None else sequence[start - 1 : end]
        yield (
            "regions",
            RCL_REGIONS.line(
                accession=accession,
                length=length,
                start=start,
                end=end,
                rcl=loop,
                confidence=confidence,
                status=result.status,
                model=label,
            ),
        )
        if loop is None:
            return
        yield "positions", f"{accession}\t{start}\t{end}\n"
        name = gff3_escaped(accession)
        # SO:0000839
        place = f"{name}\tvirnucpro\tpolypeptide_region\t{start}\t{end}\t{confidence:.4f}"
        note = f"Name=RCL;Note=reactive center loop;model={gff3_escaped(label)}"
        yield "gff", f"##sequence-region {name} 1 {length}\n{place}\t.\t.\t{note}\n"
        lines = [sequence[i : i + FASTA_LINE] for i in range(0, len(sequence), FASTA_LINE)]
        yield "sequences", "\n".join([f">{accession}", *lines, ""])
        lines = [loop[i : i + FASTA_LINE] for i in range(0, len(loop), FASTA_LINE)]
        yield "loops", "\n".join([f">{accession} RCL {start} - {end}", *lines, ""])


@dataclass(frozen=True)
class RclResultsStage(HostStage):
    """Joins the results of all blocks, in the order of the input.

    ``facts``, names of ``devices``, and the time since it ``began`` stand in the record.
    """

    name, title = "results", "Results"

    layout: BlockLayout
    facts: Mapping[str, Json]
    devices: Sequence[str]
    began: float = field(default_factory=time.monotonic)

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all blocks."""
        blocks = range(1, len(ledger.outputs(ReadingStage.name)) + 1)
        made = (self.layout.output(number, FindingStage.suffix) for number in blocks)
        outputs = (*self.layout.results.values(), self.layout.run_record)
        return self.whole(tuple(made), outputs, {})

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write all results."""
        statuses = Counter[str]()
        headers = {
            "regions": RCL_REGIONS.header.encode(),
            "positions": RCL_POSITIONS.header.encode(),
            "gff": GFF3_HEADER.encode(),
            "residues": gzip.compress(RCL_RESIDUES.header.encode(), GZIP_LEVEL, mtime=0),
        }
        with ExitStack() as stack:
            files = {
                kind: stack.enter_context(self.disk.create(path))
                for kind, path in self.layout.results.items()
            }
            for kind, file in files.items():
                file.write(headers.get(kind, b""))
            for path in task.inputs:
                block = msgspec.msgpack.decode(path.read_bytes())
                statuses.update(block["statuses"])
                for kind, file in files.items():
                    file.write(block["files"][kind])
        outputs = [file.output for file in files.values()]
        record = {
            "schema": 1,
            "producer": f"virnucpro {__version__}",
            **self.facts,
            "devices": self.devices[: len(task.inputs)],
            "proteins": statuses.total(),
            "statuses": dict(statuses),
            "files": {output.path.name: output.sha256 for output in outputs},
            "seconds": round(time.monotonic() - self.began, 3),
        }
        content = (json.dumps(record, indent=1) + "\n").encode()
        outputs.append(self.disk.save(self.layout.run_record, content))
        return TaskResult(task, tuple(outputs))


def run_rcl_prediction(
    request: RclRequest, show: Show, interruption: Interruption | None = None
) -> Record:
    """Carry out a request, or what is missing of it; return the record."""
    layout, finder = request.layout, request.finder
    disk = Disk()
    if request.source != STDIN:
        check_readable(Path(request.source))
    check_writable(layout, force=request.force)
    refuse_own_files(layout, [Path(request.source), *finder.files])
    devices = choose_devices(request.machine)
    with locked(layout.lock, "these proteins"), ExitStack() as stack:
        source = Path(request.source)
        if request.source == STDIN:
            source = layout.incoming
            stack.callback(disk.remove, source)
            with disk.create(source) as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
        seen = hashed_input(source)
        settings: dict[str, Json] = {
            "input": seen.sha256,
            "model": finder.sha256,
            "threshold": finder.threshold,
            "min_consecutive": finder.min_consecutive,
            "min_rcl_length": finder.min_rcl_length,
            "duplicate ids": request.duplicate_ids,
            "files": sorted(path.name for path in layout.results.values()),
        }
        if finder.esm2 is not None:
            settings["precision"] = finder.precision = choose_precision("auto", devices)
        label = STDIN if request.source == STDIN else str(source.absolute())
        state = RunState(label, settings)
        state = check_run(layout, disk, state, show, force=request.force)
        size = {"proteins per block": request.proteins_at_a_time}
        params = {**settings, "label": finder.label}
        facts = {
            "settings": settings,
            "command": list(request.command),
            "input": request.source,
            "model": {"name": finder.label, "sha256": finder.sha256},
        }
        reading = ReadingStage(layout, disk, (source,), size, partial(_blocks, request, source))
        finding = FindingStage(layout, disk, params, finder)
        results = RclResultsStage(layout, disk, facts, [device.name for device in devices])
        kept = (*layout.results.values(), layout.run_record)
        run = Run(layout, disk, [reading, finding, results], state, show, [seen], kept)
        run.begin()
        if not run.is_tidied:
            run.once(reading)
            with closing(local_workers(devices, request.machine, interruption)) as workers:
                carry_out_tasks(run, finding, finding.tasks(run.ledger), workers)
            run.once(results)
        if not run.computed:
            show(Notice("info", "nothing to compute: all files are intact"))
        run.tidy(FinishedFigures())
        run.save_progress(is_finished=True)
    record: Record = parse_json(layout.run_record.read_bytes())
    return record


def _blocks(request: RclRequest, source: Path) -> Iterator[ProteinBlock]:
    """Yield ids and residues of the proteins, as many as are computed together."""
    limit, files = shutil.disk_usage(request.root).free, InputFiles(source)
    inputs = summarise_input(files, limit=limit, molecule="protein")
    if inputs.duplicates and request.duplicate_ids == "error":
        raise duplicate_ids_error(InputFiles(Path(request.source)), inputs, "protein")
    block: list[tuple[str, str]] = []
    residues = 0
    records = Records(source, limit=limit, molecule="protein")
    for record in with_unique_ids(records, inputs):
        block.append((record.id, record.sequence))
        residues += len(record.sequence)
        if len(block) >= request.proteins_at_a_time or residues >= RESIDUES_AT_A_TIME:
            yield block
            block, residues = [], 0
    if block:
        yield block
