"""The result files of ``rcl predict``: what is written for each protein, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from virnucpro.contracts import Device
from virnucpro.events import StepProgress
from virnucpro.formatting import counted, percent
from virnucpro.io.gff3 import HEADER as GFF3_HEADER
from virnucpro.io.gff3 import gff3_escaped
from virnucpro.io.input_summary import InputSummary, RecordRenamer
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import read_records
from virnucpro.rcl.finders import RclResult
from virnucpro.rcl.models import WINDOW
from virnucpro.rcl.processes import Block, find_in_blocks
from virnucpro.rcl.request import RclFiles, RclRequest
from virnucpro.store.disk import Disk, OutputWriter
from virnucpro.store.gzipped import gzip_into
from virnucpro.tables import RCL_POSITIONS, RCL_REGIONS, RCL_RESIDUES

RESIDUES_AT_A_TIME = 1 << 20
"""Residues that are read before they are computed, at most, so that long proteins take no more
memory."""
FASTA_LINE = 80
_ONLY_AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWYacdefghiklmnpqrstvwy")


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


def write_results(
    request: RclRequest,
    source: Path,
    inputs: InputSummary,
    files: RclFiles,
    devices: Sequence[Device],
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
        blocks = _blocks(request, source, inputs, limit)
        finding = find_in_blocks(request.finder, devices, blocks)
        stack.enter_context(closing(finding))
        for block, results in finding:
            found = iter(results)
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


def _blocks(request: RclRequest, source: Path, inputs: InputSummary, limit: int) -> Iterator[Block]:
    """Yield ids and residues of the proteins, as many as are computed together."""
    rename = None
    if inputs.duplicates:
        rename = RecordRenamer(InputFiles(source), limit=limit, molecule="protein")
    block: Block = []
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


def notices_of(summary: RclSummary, request: RclRequest) -> list[str]:
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
    share = percent(summary.found / max(summary.proteins, 1), 1)
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
