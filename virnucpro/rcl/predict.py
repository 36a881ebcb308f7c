"""Carry out ``rcl predict``: read proteins, find their RCLs, and write the results."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from virnucpro.contracts import Device, Json
from virnucpro.errors import UsageError
from virnucpro.formatting import counted
from virnucpro.io.gff3 import HEADER as GFF3_HEADER
from virnucpro.io.gff3 import gff3_escaped
from virnucpro.io.input_summary import InputSummary, RecordRenamer, summarise_input
from virnucpro.io.records import read_records
from virnucpro.layout import STDIN, checkpoint_folder, existing_paths, lock_file
from virnucpro.rcl.finders import RclFinder, RclResult
from virnucpro.rcl.models import WINDOW
from virnucpro.run.request import check_readable
from virnucpro.stages.chunking import (
    changed_input_error,
    duplicate_ids_error,
    input_digest,
    input_stamp,
)
from virnucpro.store.disk import Disk, OutputWriter, host_name, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.guard import (
    ExistingWork,
    WorkIdentity,
    admit_work,
    read_identity,
    refuse_links,
    save_identity,
)
from virnucpro.store.gzipped import gzip_into
from virnucpro.store.lock import locked
from virnucpro.tables import RCL_POSITIONS, RCL_REGIONS, RCL_RESIDUES
from virnucpro.training.progress import StepProgress
from virnucpro.version import __version__

STEPS = ("reading", "finding RCLs")
"""What is reported to the screen, one after the other."""
PROTEINS_AT_A_TIME = 2000
"""Proteins that are read before they are sorted by length and computed, at most."""
RESIDUES_AT_A_TIME = 1 << 20
"""The same of residues, so that long proteins take no more memory."""
FASTA_LINE = 80
_LONGEST_NAME = 255  # bytes, on most file systems
_COMPRESSION = (".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class RclRequest:
    """What the user asked for.

    Attributes:
        source: the input, or ``-``.
        output_dir: None for the default name.
        finder: the model with its settings.
        device: what computes.
        settings: what else decides the results, by a name for people.
        sequences: whether the proteins with an RCL are written as FASTA.
        loops: whether the RCLs are written as FASTA.
        residues: whether the probability of each residue is written.
        duplicate_ids: ``error`` or ``rename``.
        proteins_at_a_time: proteins that are read before they are computed.
        force: move aside what is there.
        command: for the record.
    """

    source: str
    output_dir: Path | None
    finder: RclFinder
    device: Device
    settings: Mapping[str, Json]
    sequences: bool = False
    loops: bool = False
    residues: bool = False
    duplicate_ids: str = "error"
    proteins_at_a_time: int = PROTEINS_AT_A_TIME
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of the input without the suffix of a compression and the one before it.

        The original cuts off one suffix, whatever it is.
        """
        if self.source == STDIN:
            return "stdin"
        name = Path(self.source).name
        for suffix in _COMPRESSION:
            if name.lower().endswith(suffix):
                name = name[: -len(suffix)]
                break
        return Path(name).stem

    @property
    def root(self) -> Path:
        """The output directory."""
        return self.output_dir or Path(f"{self.stem}_rcl")


@dataclass(frozen=True)
class RclFiles:
    """The files of a prediction; None for those that were not asked for.

    Attributes:
        regions: a row per protein.
        positions: a row per protein with an RCL, as the original writes it.
        gff: the RCLs as features.
        sequences: proteins with an RCL.
        loops: their RCLs.
        residues: a row per residue.
        record: what ran and what came out; proves that the other files are ours.
    """

    regions: Path
    positions: Path
    gff: Path
    sequences: Path | None
    loops: Path | None
    residues: Path | None
    record: Path

    @property
    def results(self) -> list[Path]:
        """The files without the record."""
        files = (self.positions, self.sequences, self.loops, self.regions, self.gff, self.residues)
        return [path for path in files if path is not None]


@dataclass
class RclSummary:
    """What came out of a prediction.

    Attributes:
        proteins: in the input.
        statuses: proteins by status.
        rcl_residues: residues of all RCLs.
        confidence: sum of the confidences of all RCLs.
        in_windows: proteins that were computed in several windows.
        small_letters: proteins with small letters.
        unknown_letters: proteins with letters that are not of the 20 amino acids.
        notices: sentences for the user.
        files: the results.
    """

    proteins: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    rcl_residues: int = 0
    confidence: float = 0.0
    in_windows: int = 0
    small_letters: int = 0
    unknown_letters: int = 0
    notices: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def add(self, sequence: str, result: RclResult) -> None:
        """Count a protein."""
        self.proteins += 1
        self.statuses[result.status] += 1
        self.in_windows += len(sequence) > WINDOW
        self.small_letters += sequence != sequence.upper()
        self.unknown_letters += not _ONLY_AMINO_ACIDS.issuperset(sequence)
        if result.region is not None:
            self.rcl_residues += result.region.length
            self.confidence += result.region.confidence

    @property
    def found(self) -> int:
        """Proteins with an RCL."""
        return self.statuses["found"]


_ONLY_AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWYacdefghiklmnpqrstvwy")


def files_of(request: RclRequest) -> RclFiles:
    """Return the files that a request writes; names of three of them are those of the original."""
    root, stem = request.root, request.stem
    named = f"{stem}_{request.finder.encoding}"
    threshold = f"thr{request.finder.threshold:.2f}".replace(".", "p")
    return RclFiles(
        root / RCL_REGIONS.place(stem),
        root / f"{named}_RCL_predictions_{threshold}.tsv",
        root / f"{stem}_rcl.gff3",
        root / f"{named}_with_RCL_{threshold}.fasta" if request.sequences else None,
        root / f"{named}_RCL_only_{threshold}.fasta" if request.loops else None,
        root / RCL_RESIDUES.place(stem) if request.residues else None,
        root / f"{stem}_rcl_run.json",
    )


def run_rcl_prediction(
    request: RclRequest,
    progress: StepProgress,
    notify: Callable[[str], None],
    disk: Disk | None = None,
) -> RclSummary:
    """Carry out a request, or say that it was carried out before.

    ``notify`` is called with sentences for the user.

    Raises:
        VirNucProError: something is missing, damaged or in the way; no file is left half written.
    """
    disk = disk or Disk()
    files = files_of(request)
    _check_names(request, files)
    state = checkpoint_folder(request.root) / "rcl" / request.stem
    refuse_links(state)
    with locked(lock_file(request.root, f"{request.stem}_rcl"), "these proteins"):
        for folder in (request.root, state):
            disk.sweep(folder, {path.name for path in (*files.results, files.record)} | {"input"})
        source = Path(request.source)
        if request.source == STDIN:
            source = state / "input"
            with disk.create(source) as out:
                while block := sys.stdin.buffer.read(1 << 20):
                    out.write(block)
        try:
            summary = _predicted(request, source, files, state, progress, notify, disk)
        finally:
            if request.source == STDIN:
                disk.remove(source)
                disk.remove_folder(state)
    return summary


def _check_names(request: RclRequest, files: RclFiles) -> None:
    """Raise UsageError where the input cannot be read, or results cannot be named after it."""
    root, outputs = request.root, (*files.results, files.record)
    if request.source == STDIN:
        if sys.stdin is None:  # closed by whoever started this process
            raise UsageError("input -: standard input is closed; name a file, or pipe one in")
    else:
        check_readable(Path(request.source))
        if Path(request.source).resolve() in [path.resolve() for path in outputs]:
            raise UsageError(
                f"input {request.source} is a file that this command would write: choose another "
                f"--output-dir"
            )
    if root.exists() and not root.is_dir():
        raise UsageError(f"--output-dir {root} is a file: name a folder")
    temporary = [f".{path.name}.{host_name()}.{1 << 22}.tmp" for path in outputs]
    if request.stem in ("", ".", "..") or any(
        len(os.fsencode(name)) > _LONGEST_NAME for name in temporary
    ):
        raise UsageError(
            f"input {request.source!r} has a name after which no results can be named: rename the "
            f"file"
        )


def _predicted(
    request: RclRequest,
    source: Path,
    files: RclFiles,
    state: Path,
    progress: StepProgress,
    notify: Callable[[str], None],
    disk: Disk,
) -> RclSummary:
    """Ask the guard, compute, and write all files, the record last."""
    began = time.monotonic()
    digest, seen = input_digest(source)
    identity = WorkIdentity(
        f"the RCL prediction of {request.source}",
        {
            "input": digest,
            "model": request.finder.sha256,
            **request.settings,
            "duplicate ids": request.duplicate_ids,
            "files": sorted(path.name for path in files.results),
        },
    )
    begun_file = state / "begun.json"
    existing, earlier = _existing_prediction(files, state, begun_file)
    admission = admit_work(identity, existing, disk, force=request.force)
    if admission.decision == "finished" and earlier is not None:
        notify("nothing to compute: this prediction was finished before, its files are intact")
        return earlier
    if admission.notice and request.force:
        notify(admission.notice)
    limit = shutil.disk_usage(request.root).free
    progress.begin(STEPS[0], 1)
    inputs = summarise_input(source, limit=limit, molecule="protein")
    if inputs.duplicates and request.duplicate_ids == "error":
        raise duplicate_ids_error(Path(request.source), inputs)
    save_identity(begun_file, identity, disk)
    progress.begin(STEPS[1], inputs.bases)
    summary = _write_results(request, source, inputs, files, limit, progress, disk)
    if input_stamp(source) != seen:
        raise changed_input_error(source)
    summary.files = files.results
    summary.notices = _notices(summary, request)
    record = {
        "schema": 1,
        "producer": f"virnucpro {__version__}",
        "label": identity.label,
        "settings": identity.settings,
        "command": list(request.command),
        "input": request.source,
        "model": {"name": request.finder.label, "sha256": request.finder.sha256},
        "device": request.device.name,
        "proteins": summary.proteins,
        "statuses": dict(summary.statuses),
        "rcl_residues": summary.rcl_residues,
        "confidence": summary.confidence,
        "notices": summary.notices,
        "files": {path.name: sha256_of(path) for path in files.results},
        "seconds": round(time.monotonic() - began, 3),
    }
    disk.save(files.record, sealed(record))
    disk.remove(begun_file)
    disk.remove_folder(state)
    disk.remove_folder(state.parent)
    return summary


def _existing_prediction(
    files: RclFiles, state: Path, begun_file: Path
) -> tuple[ExistingWork, RclSummary | None]:
    """Return what is there of an earlier prediction of this name, and what came out of it.

    A file is proved to be ours by its SHA-256 in the record, or, after an interruption, by its name
    in the identity of the work that was begun.
    """
    root = files.record.parent
    planned = existing_paths(*files.results, files.record)
    begun = read_identity(begun_file)
    own = {files.record.with_name(str(name)) for name in (begun.settings["files"] if begun else ())}
    identity: WorkIdentity | None = None
    summary: RclSummary | None = None
    finished = False
    try:
        document = unsealed(files.record.read_bytes())
        digests = {root / str(name): str(value) for name, value in document["files"].items()}
        identity = WorkIdentity(str(document["label"]), dict(document["settings"]))
        summary = RclSummary(
            int(document["proteins"]),
            Counter(document["statuses"]),
            int(document["rcl_residues"]),
            float(document["confidence"]),
            notices=[str(notice) for notice in document["notices"]],
            files=list(digests),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        summary = None
    else:
        intact = {
            path
            for path, digest in digests.items()
            if path.is_file() and not path.is_symlink() and sha256_of(path) == digest
        }
        finished = len(intact) == len(digests)
        own |= intact | {files.record}
        planned = existing_paths(*planned, *digests)
    if begun:
        own.add(files.record)
    work = ExistingWork(
        root,
        state / "previous",
        own_files=[path for path in planned if path in own and not path.is_symlink()],
        foreign_files=[path for path in planned if path not in own or path.is_symlink()],
        identity=identity,
        finished=finished,
    )
    return work, summary


def _write_results(
    request: RclRequest,
    source: Path,
    inputs: InputSummary,
    files: RclFiles,
    limit: int,
    progress: StepProgress,
    disk: Disk,
) -> RclSummary:
    """Compute the proteins block by block, and write what comes out of each."""
    summary = RclSummary()
    label = request.finder.label
    empty = RclResult("empty", None, np.zeros(0, np.float32))
    with ExitStack() as stack:

        def opened(path: Path | None, header: str = "") -> OutputWriter | None:
            if path is None:
                return None
            out = stack.enter_context(disk.create(path))
            out.write(header.encode())
            return out

        regions, positions = opened(files.regions), opened(files.positions)
        gff = opened(files.gff, GFF3_HEADER)
        sequences, loops = opened(files.sequences), opened(files.loops)
        residues = opened(files.residues)
        assert regions is not None
        assert positions is not None
        assert gff is not None
        regions.write(RCL_REGIONS.header.encode())
        positions.write(RCL_POSITIONS.header.encode())
        packed = None
        if residues is not None:
            packed = stack.enter_context(gzip_into(residues))
            packed.write(RCL_RESIDUES.header.encode())
        for block in _blocks(request, source, inputs, limit):
            found = iter(request.finder.find([sequence for _, sequence in block if sequence]))
            for accession, sequence in block:
                result = next(found) if sequence else empty
                summary.add(sequence, result)
                progress.advance(len(sequence))
                region = result.region
                loop = sequence[region.start - 1 : region.end] if region else None
                row = RCL_REGIONS.line(
                    accession=accession,
                    length=len(sequence),
                    start=region and region.start,
                    end=region and region.end,
                    rcl=loop,
                    confidence=region and region.confidence,
                    status=result.status,
                    model=label,
                )
                regions.write(row.encode(), rows=1)
                if packed is not None:
                    packed.write(_residue_rows(accession, sequence, result))
                if region is None or loop is None:
                    continue
                line = RCL_POSITIONS.line(
                    Accession=accession,
                    RCL_start_position=region.start,
                    RCL_end_position=region.end,
                )
                positions.write(line.encode(), rows=1)
                gff.write(_gff_rows(accession, sequence, result, label), rows=1)
                if sequences is not None:
                    sequences.write(_fasta_entry(accession, sequence), rows=1)
                if loops is not None:
                    header = f"{accession} RCL {region.start} - {region.end}"
                    loops.write(_fasta_entry(header, loop), rows=1)
    return summary


def _blocks(
    request: RclRequest, source: Path, inputs: InputSummary, limit: int
) -> Iterator[list[tuple[str, str]]]:
    """Yield ids and residues of the proteins, as many as are computed together."""
    rename = RecordRenamer(source, limit=limit, molecule="protein") if inputs.duplicates else None
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


def _residue_rows(accession: str, sequence: str, result: RclResult) -> bytes:
    row = RCL_RESIDUES.row_format(*RCL_RESIDUES.names)
    rows = zip(sequence, result.probabilities.tolist(), strict=True)
    return "".join(
        [
            row(accession, position, letter, value)
            for position, (letter, value) in enumerate(rows, 1)
        ]
    ).encode()


def _gff_rows(accession: str, sequence: str, result: RclResult, label: str) -> bytes:
    region = result.region
    assert region is not None
    name = gff3_escaped(accession)
    fields = (
        name,
        "virnucpro",
        "polypeptide_region",  # SO:0000839
        str(region.start),
        str(region.end),
        f"{region.confidence:.4f}",
        ".",
        ".",
        f"Name=RCL;Note=reactive center loop;model={gff3_escaped(label)}",
    )
    line = "\t".join(fields)
    return f"##sequence-region {name} 1 {len(sequence)}\n{line}\n".encode()


def _fasta_entry(header: str, sequence: str) -> bytes:
    lines = [sequence[i : i + FASTA_LINE] for i in range(0, len(sequence), FASTA_LINE)]
    return "\n".join([f">{header}", *lines, ""]).encode()


def _notices(summary: RclSummary, request: RclRequest) -> list[str]:
    """Return sentences about an accepted input."""
    notices = []
    if summary.in_windows and request.finder.encoding != "hmm":
        notices.append(
            f"{counted(summary.in_windows, 'protein')} with more than {WINDOW:,} residues: "
            f"computed in overlapping windows"
        )
    if summary.small_letters:
        notices.append(f"{counted(summary.small_letters, 'protein')} with small letters")
    if summary.unknown_letters:
        notices.append(
            f"{counted(summary.unknown_letters, 'protein')} with letters that are not one of the "
            f"20 amino acids: read as unknown residues"
        )
    return notices


def describe_summary(summary: RclSummary, request: RclRequest) -> Sequence[str]:
    """Return the result in sentences."""
    share = f"{100 * summary.found / max(summary.proteins, 1):.1f} %"
    lines = [
        f"{request.finder.label} found an RCL in {summary.found:,} of "
        f"{counted(summary.proteins, 'protein')} ({share})."
    ]
    if summary.found:
        lines.append(
            f"Mean length {summary.rcl_residues / summary.found:.1f} residues, mean confidence "
            f"{summary.confidence / summary.found:.3f}."
        )
    lines += [f"Note: {notice}." for notice in summary.notices]
    lines.append(f"Results in {request.root}:")
    return [*lines, *(f"  {path.name}" for path in summary.files)]
