"""What ``rcl predict`` was asked for, and the files that it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Device, Json
from virnucpro.errors import UsageError
from virnucpro.layout import STDIN
from virnucpro.rcl.finders import RclFinder
from virnucpro.run.request import check_readable
from virnucpro.store.disk import host_name
from virnucpro.tables import RCL_REGIONS, RCL_RESIDUES

PROTEINS_AT_A_TIME = 2000
"""Proteins that are read before they are sorted by length and computed, at most."""
_LONGEST_NAME = 255  # bytes, on most file systems
_COMPRESSION = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class RclRequest:
    """What the user asked for.

    Attributes:
        source: the input, or ``-``.
        output_dir: None for the default name.
        finder: the model with its settings, not yet settled on a device.
        devices: what computes, at most one process for each.
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
    devices: Sequence[Device]
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


def check_names(request: RclRequest, files: RclFiles) -> None:
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
