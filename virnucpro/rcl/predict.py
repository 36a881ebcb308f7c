"""Carry out ``rcl predict``: blocks of proteins through the workers, and results from all blocks.

A worker writes two files per block: rows of ``STEM_rcl.tsv`` and, if they are wanted, of the table
of residues. All results are made of these rows and of the proteins when the last block is finished,
so that they are the same whatever the devices, and so that there are none before.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.contracts import Device, Json, ReportProgress, Session, Task, TaskResult
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.events import Emit, Notice
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import counted, percent
from virnucpro.io.fasta import read_fasta
from virnucpro.io.gff3 import HEADER as GFF3_HEADER
from virnucpro.io.gff3 import gff3_escaped
from virnucpro.io.input_summary import RecordRenamer, summarise_input
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import read_records
from virnucpro.layout import STDIN, checkpoint_folder, existing_paths, lock_file
from virnucpro.rcl.blocks import (
    BlockLayout,
    BlockStage,
    ProteinBlock,
    compute_blocks,
    save_blocks,
)
from virnucpro.rcl.encodings import AMINO_ACIDS
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.models import WINDOW
from virnucpro.rcl.rule import RclResult
from virnucpro.run.request import check_readable, check_writable
from virnucpro.settings import MachineSettings
from virnucpro.stages.chunking import (
    duplicate_ids_error,
    hashed_input,
    refuse_changed_input,
)
from virnucpro.store.disk import Disk, is_own_file, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.gzipped import LEVEL
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState, read_state, write_state
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work
from virnucpro.tables import RCL_POSITIONS, RCL_REGIONS, RCL_RESIDUES
from virnucpro.version import __version__

PROTEINS_AT_A_TIME = 2000
"""Proteins of a block, at most."""
RESIDUES_AT_A_TIME = 1 << 20
"""Residues from which a block is full, so that long proteins take no more memory."""
FASTA_LINE = 80
COMPRESSION = (".gz", ".bz2", ".xz")
EMPTY = RclResult("empty", None, np.zeros(0, np.float32))
Record = Mapping[str, Json]
"""The content of ``STEM_rcl_run.json``."""


@dataclass(frozen=True)
class RclRequest:
    """What the user asked for.

    Attributes:
        source: the input, or ``-``.
        output_dir: None for the default name.
        finder: the model with its settings, not yet settled on a device.
        machine: devices and threads.
        sequences: whether the proteins with an RCL are written as FASTA.
        loops: whether the RCLs are written as FASTA.
        residues: whether the probability of each residue is written.
        duplicate_ids: ``error`` or ``rename``.
        proteins_at_a_time: proteins of a block.
        force: move aside what is there.
        command: for the record.
    """

    source: str
    output_dir: Path | None
    finder: RclFinder
    machine: MachineSettings
    sequences: bool = False
    loops: bool = False
    residues: bool = False
    duplicate_ids: str = "error"
    proteins_at_a_time: int = PROTEINS_AT_A_TIME
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of the input without the suffix of a compression and the one before it."""
        if self.source == STDIN:
            return "stdin"
        name = Path(self.source).name
        packed = next((s for s in COMPRESSION if name.lower().endswith(s)), "")
        return Path(name[: len(name) - len(packed)]).stem

    @property
    def root(self) -> Path:
        """The output directory."""
        return self.output_dir or Path(f"{self.stem}_rcl")

    @property
    def record(self) -> Path:
        """The file that says what ran and what came out; it proves that the others are ours."""
        return self.root / f"{self.stem}_rcl_run.json"

    @property
    def results(self) -> dict[str, Path]:
        """The other files that are written; RCL-identifier has the same names for three of them."""
        named = f"{self.stem}_{self.finder.encoding}"
        threshold = f"thr{self.finder.rule.threshold:.2f}".replace(".", "p")
        names = {"positions": f"{named}_RCL_predictions_{threshold}.tsv"}
        if self.sequences:
            names["sequences"] = f"{named}_with_RCL_{threshold}.fasta"
        if self.loops:
            names["loops"] = f"{named}_RCL_only_{threshold}.fasta"
        names |= {"regions": RCL_REGIONS.place(self.stem), "gff": f"{self.stem}_rcl.gff3"}
        if self.residues:
            names["residues"] = RCL_RESIDUES.place(self.stem)
        return {kind: self.root / name for kind, name in names.items()}


@dataclass(frozen=True)
class FindingStage(BlockStage):
    """Finds the RCLs of proteins, a block of proteins per task."""

    finder: RclFinder
    residues: bool

    name = "finding_RCLs"
    title = "Finding RCLs"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the files that are made of a block."""
        return ("tsv", "residues.gz") if self.residues else ("tsv",)

    @property
    def params(self) -> dict[str, Json]:
        """What decides the results."""
        return {"model": self.finder.sha256, "label": self.finder.label, **vars(self.finder.rule)}

    def open(self, device: Device) -> Session:
        """Put the model on a device."""
        self.finder.settle(device)
        return Session(self.run)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Find the RCLs of the proteins of a block, and write their rows."""
        proteins = list(read_fasta(task.inputs[0]))
        found = iter(self.finder.find([sequence for _, sequence in proteins if sequence]))
        rows: list[str] = []
        residues: list[str] = []
        residue_row = RCL_RESIDUES.row_format(*RCL_RESIDUES.names)
        for accession, sequence in proteins:
            result = next(found) if sequence else EMPTY
            region = result.region
            cells = RCL_REGIONS.line(
                accession=accession,
                length=len(sequence),
                start=region and region.start,
                end=region and region.end,
                rcl=region and sequence[region.start - 1 : region.end],
                confidence=region and region.confidence,
                status=result.status,
                model=self.finder.label,
            )
            rows.append(cells)
            if self.residues:
                values = zip(sequence, result.probabilities.tolist(), strict=True)
                residues += [residue_row(accession, n, *value) for n, value in enumerate(values, 1)]
        contents = ("".join(rows).encode(), _packed("".join(residues)))
        outputs = zip(task.outputs, contents, strict=False)
        saved = tuple(self.disk.save(path, content, len(proteins)) for path, content in outputs)
        report(len(proteins), sum(len(sequence) for _, sequence in proteins))
        return TaskResult(task, saved)


def _packed(text: str) -> bytes:
    """Return a text as a member of a gzip file, without the time."""
    return gzip.compress(text.encode(), LEVEL, mtime=0)


def run_rcl_prediction(
    request: RclRequest,
    emit: Emit,
    interruption: Interruption | None = None,
    disk: Disk | None = None,
) -> Record:
    """Carry out a request, or say that it was carried out before; return the record.

    Raises:
        VirNucProError: something is missing, damaged or in the way; no result is half written, and
            finished blocks are kept.
    """
    disk = disk or Disk()
    if request.source != STDIN:
        check_readable(Path(request.source))
    check_writable(BlockLayout(request.root, request.stem))
    state = checkpoint_folder(request.root.absolute()) / "rcl" / request.stem
    names = {path.name for path in (*request.results.values(), request.record)}
    with ExitStack() as stack:
        lock = lock_file(request.root, f"{request.stem}_rcl")
        stack.enter_context(locked(lock, "these proteins"))
        for folder in (state.parent, state):  # afterwards, if nothing is left to go on with
            stack.callback(disk.remove_folder, folder)
        disk.sweep(request.root, names)
        disk.sweep(state)
        source = Path(request.source)
        if request.source == STDIN:
            source = state / "input"
            stack.callback(disk.remove, source)
            with disk.create(source) as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
        return _predicted(request, source, state, emit, interruption, disk)


def _predicted(
    request: RclRequest,
    source: Path,
    state: Path,
    emit: Emit,
    interruption: Interruption | None,
    disk: Disk,
) -> Record:
    """Compare with what is there, compute what is missing, and write all files, the record last."""
    began, finder = time.monotonic(), request.finder
    devices = choose_devices(request.machine, visible_gpus())
    layout = BlockLayout(state / "work", "rcl")
    seen = hashed_input(source)
    settings: dict[str, Json] = {
        "input": seen.sha256,
        "model": finder.sha256,
        **vars(finder.rule),
        "duplicate ids": request.duplicate_ids,
        "files": sorted(path.name for path in request.results.values()),
    }
    identity = WorkIdentity(f"the RCL prediction of {request.source}", settings)
    record = _read_record(request.record)
    existing = _existing(request, record, state, layout)
    admission = check_work(identity, existing, disk, force=request.force)
    if admission.notice:
        emit(Notice("info", admission.notice))
    if admission.decision == "finished" and record is not None:
        emit(Notice("info", "nothing to compute: all files are intact"))
        return record
    blocks = save_blocks(layout, disk, _blocks(request, source))
    stage = FindingStage(layout, disk, blocks, finder, request.residues)
    run_state = RunState(request.source, settings)
    write_state(layout, disk, run_state)
    compute_blocks(stage, run_state, devices, request.machine, "rcl predict", emit, interruption)
    refuse_changed_input([seen])
    record = {
        "schema": 1,
        "producer": f"virnucpro {__version__}",
        "label": identity.label,
        "settings": settings,
        "command": list(request.command),
        "input": request.source,
        "model": {"name": finder.label, "sha256": finder.sha256},
        "devices": [device.name for device in devices[: len(blocks)]],
        **_write_results(request, stage),
        "files": {path.name: sha256_of(path) for path in request.results.values()},
        "seconds": round(time.monotonic() - began, 3),
    }
    disk.save(request.record, sealed(record))
    disk.remove_tree(layout.root)
    return record


def _read_record(path: Path) -> Record | None:
    """Return the record of a finished prediction, if it is there as it was written."""
    try:
        record = unsealed(path.read_bytes())
        # with_name is a ValueError for a name in another folder
        files = {path.with_name(name): digest for name, digest in record["files"].items()}
        return {**record, "paths": files} if {"settings", "statuses"} <= record.keys() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _existing(
    request: RclRequest, record: Record | None, state: Path, layout: BlockLayout
) -> ExistingWork:
    """Return what is there of an earlier prediction of this name.

    A file is proved to be ours by its SHA-256 in the record, or, after an interruption, by its name
    in the state of the prediction that was begun.
    """
    root, begun = request.root, read_state(layout)
    planned = [*request.results.values(), request.record, layout.root]
    own, identity, finished = {layout.root}, None, False
    if begun is not None:
        own |= {root / str(name) for name in begun.analysis["files"]} | {request.record}
        identity = begun.identity
    if record is not None:
        intact = {
            path
            for path, digest in record["paths"].items()
            if is_own_file(path) and sha256_of(path) == digest
        }
        identity = WorkIdentity(f"the RCL prediction of {record['input']}", record["settings"])
        finished = len(intact) == len(record["paths"])
        own |= intact | {request.record}
        planned += record["paths"]
    present = existing_paths(*planned)
    ours = [path for path in present if path in own and not path.is_symlink()]
    others = [path for path in present if path not in ours]
    previous = state / "previous"
    return ExistingWork(root, previous, ours, others, identity=identity, finished=finished)


def _blocks(request: RclRequest, source: Path) -> Iterator[ProteinBlock]:
    """Yield ids and residues of the proteins, as many as are computed together.

    Raises:
        InputError: the input is not usable, or ids occur twice that are not to be renamed.
    """
    limit, files = shutil.disk_usage(request.root).free, InputFiles(source)
    inputs = summarise_input(files, limit=limit, molecule="protein")
    rename = None
    if inputs.duplicates:
        if request.duplicate_ids == "error":
            raise duplicate_ids_error(InputFiles(Path(request.source)), inputs, "protein")
        rename = RecordRenamer(files, limit=limit, molecule="protein")
    block: list[tuple[str, str]] = []
    residues = 0
    for record in read_records(source, limit=limit, molecule="protein"):
        block.append(((rename(record) if rename else record).id, record.sequence))
        residues += len(record.sequence)
        if len(block) >= request.proteins_at_a_time or residues >= RESIDUES_AT_A_TIME:
            yield block
            block, residues = [], 0
    if block:
        yield block


def _write_results(request: RclRequest, stage: FindingStage) -> dict[str, Json]:
    """Write all results from the rows of the blocks; return what the record says of them."""
    counts: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    confidence, disk = 0.0, stage.disk
    label = gff3_escaped(request.finder.label)
    headers: dict[str, str] = {
        "regions": RCL_REGIONS.header,
        "positions": RCL_POSITIONS.header,
        "gff": GFF3_HEADER,
    }
    with ExitStack() as stack:
        files = {
            kind: stack.enter_context(disk.create(path)) for kind, path in request.results.items()
        }

        def write(kind: str, text: str) -> None:
            if kind in files:
                files[kind].write(text.encode(), rows=1)

        for kind, header in headers.items():
            write(kind, header)
        if "residues" in files:
            files["residues"].write(_packed(RCL_RESIDUES.header))
            for path in stage.outputs("residues.gz"):
                files["residues"].write(path.read_bytes())
        for number, path in enumerate(stage.outputs("tsv"), 1):
            rows = path.read_bytes().decode().split("\n")[:-1]  # ids may hold other line ends
            proteins = read_fasta(stage.layout.block(number))
            for row, (accession, sequence) in zip(rows, proteins, strict=True):
                write("regions", f"{row}\n")
                _, length, start, end, loop, share, status, _ = row.split("\t")
                statuses[status] += 1
                counts["long"] += len(sequence) > WINDOW
                counts["small"] += sequence != sequence.upper()
                counts["unknown"] += not set(AMINO_ACIDS).issuperset(sequence.upper())
                if status != "found":
                    continue
                confidence += float(share)
                counts["residues"] += len(loop)
                write("positions", f"{accession}\t{start}\t{end}\n")
                name = gff3_escaped(accession)
                # SO:0000839
                columns = (name, "virnucpro", "polypeptide_region", start, end, share, ".", ".")
                note = f"Name=RCL;Note=reactive center loop;model={label}"
                write("gff", f"##sequence-region {name} 1 {length}\n")
                write("gff", "\t".join((*columns, note)) + "\n")
                write("sequences", _fasta_entry(accession, sequence))
                write("loops", _fasta_entry(f"{accession} RCL {start} - {end}", loop))
    return {
        "proteins": statuses.total(),
        "statuses": dict(statuses),
        "rcl_residues": counts["residues"],
        "confidence": round(confidence, 4),
        "notices": _notices(counts, request),
    }


def _fasta_entry(header: str, sequence: str) -> str:
    lines = [sequence[i : i + FASTA_LINE] for i in range(0, len(sequence), FASTA_LINE)]
    return "\n".join([f">{header}", *lines, ""])


def _notices(counts: Mapping[str, int], request: RclRequest) -> list[str]:
    """Return sentences about an accepted input."""
    windows = f"with more than {WINDOW:,} residues: computed in overlapping windows"
    unknown = "with letters that are not one of the 20 amino acids: read as unknown residues"
    texts = {"long": windows, "small": "with small letters", "unknown": unknown}
    if request.finder.encoding == "hmm":
        del texts["long"]
    return [f"{counted(counts[k], 'protein')} {text}" for k, text in texts.items() if counts[k]]


def describe_record(record: Record, root: Path) -> list[str]:
    """Return the result in sentences."""
    proteins, found = record["proteins"], record["statuses"].get("found", 0)
    lines = [
        f"{record['model']['name']} found an RCL in {found:,} of {counted(proteins, 'protein')} "
        f"({percent(found / max(proteins, 1), 1)})."
    ]
    if found:
        lines.append(
            f"Mean length {record['rcl_residues'] / found:.1f} residues, mean confidence "
            f"{record['confidence'] / found:.3f}."
        )
    lines += [f"Note: {notice}." for notice in record["notices"]]
    return [*lines, f"Results in {root}:", *(f"  {name}" for name in record["files"])]
