"""Every path in an output directory. No other module puts one together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, FAILURES, FRAMES, PREDICTIONS, RECORDS

Molecule = Literal["nucleotide", "protein"]
MOLECULES: tuple[Molecule, Molecule] = ("nucleotide", "protein")
FEATURE_SUFFIX: dict[Molecule, str] = {"nucleotide": "DNABERT_S", "protein": "ESM"}
# The result files of a run beside its tables: STEM_virus.fna and so on. A file that a new stage
# writes into the output directory is named here, so that it never replaces a file of the user, and
# --force moves it aside with the others.
RESULT_SUFFIXES = ("virus.fna", "run.json", "failed_sequences.fa")
STDIN = "-"
_COMPRESSION = (".gz", ".bz2", ".xz")
_SEQUENCE = (".fa", ".fasta", ".fna", ".fq", ".fastq")


def checkpoint_folder(root: Path) -> Path:
    """Return the folder beside results in ``root`` that keeps states, locks and earlier results."""
    return root / ".checkpoints"


def lock_file(root: Path, name: str) -> Path:
    """Return the lock file of the work ``name`` in ``root``; nothing else makes such a path.

    ``name`` is the STEM of a run, else the file name of the result.
    """
    return checkpoint_folder(root) / f"{name}.lock"


def stem_of(source: str) -> str:
    """Name of a run: the input's file name without its compression and sequence suffixes.

    >>> stem_of("in/my.sample.v2.fa.gz"), stem_of("-")
    ('my.sample.v2', 'stdin')
    """
    if source == STDIN:
        return "stdin"
    name = Path(source).name
    for suffixes in (_COMPRESSION, _SEQUENCE):
        for suffix in suffixes:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name = name[: -len(suffix)]
                break
    return name


@dataclass(frozen=True)
class OutputFolder:
    """The files that all runs of the output directory ``root`` share."""

    root: Path

    @property
    def failed_table(self) -> Path:
        """What failed, for all runs of the output directory."""
        return self.root / FAILURES.place("")

    @property
    def checkpoints(self) -> Path:
        """State of all runs in the output directory."""
        return checkpoint_folder(self.root)

    @property
    def failed_lock(self) -> Path:
        """Held while ``failed_table`` is changed. No stem is empty, so no run has this lock."""
        return lock_file(self.root, "")

    @property
    def legacy_state(self) -> Path:
        """State file of a run of version 1."""
        return self.checkpoints / "pipeline_state.json"


@dataclass(frozen=True)
class Layout(OutputFolder):
    """The files of one run, as far as they do not depend on its chunk length.

    ``stem`` is the name of the run, which begins the names of its files.
    """

    stem: str

    # Stages 1-3

    def frames(self, molecule: Molecule) -> Path:
        """All open frames, as nucleotides or as proteins."""
        suffix = ".fa" if molecule == "nucleotide" else ".faa"
        return self.root / f"{self.stem}_{molecule}{suffix}"

    def folder(self, molecule: Molecule) -> Path:
        """Split files and features of one molecule."""
        return self.root / f"{self.stem}_{molecule}"

    def split(self, molecule: Molecule, number: int) -> Path:
        """The ``number``-th (from 1) split file."""
        return self.folder(molecule) / f"output_{number}.fa"

    # Stages 4-6

    def features(self, molecule: Molecule, number: int | str) -> Path:
        """Embeddings of a split file; ``number`` may be a placeholder."""
        return self.folder(molecule) / f"output_{number}_{FEATURE_SUFFIX[molecule]}.pt"

    def part(self, molecule: Molecule, number: int, start: int, stop: int) -> Path:
        """Embeddings of the records ``start:stop`` of a split file, until they are joined."""
        whole = self.features(molecule, number)
        return whole.with_suffix(".parts") / f"{start:08d}-{stop:08d}.pt"

    def part_folders(self) -> list[Path]:
        """Folders of parts that exist."""
        return [path for m in MOLECULES for path in sorted(self.folder(m).glob("*.parts"))]

    @property
    def merged_folder(self) -> Path:
        """Merged features and predictions."""
        return self.root / f"{self.stem}_merged"

    def merged(self, number: int | str) -> Path:
        """Both embeddings of a split file side by side; ``number`` may be a placeholder."""
        return self.merged_folder / f"output_{number}_merged.pt"

    # Results

    @property
    def predictions(self) -> Path:
        """The scores of each frame, one row per frame."""
        return self.root / PREDICTIONS.place(self.stem)

    @property
    def consensus(self) -> Path:
        """The scores of each chunk, one row per scored chunk; separated by tabs, not by commas."""
        return self.root / CONSENSUS.place(self.stem)

    def result(self, suffix: str) -> Path:
        """Return the path of ``STEM_suffix`` in the output directory.

        Raises:
            ValueError: ``RESULT_SUFFIXES`` does not name the file, so nothing would protect it.
        """
        if suffix not in RESULT_SUFFIXES:
            raise ValueError(f"add {suffix!r} to RESULT_SUFFIXES in virnucpro/layout.py")
        return self.root / f"{self.stem}_{suffix}"

    @property
    def chunks_table(self) -> Path:
        """What became of each chunk, one row per chunk."""
        return self.root / CHUNKS.place(self.stem)

    @property
    def contigs_table(self) -> Path:
        """The call of each record, one row per record."""
        return self.root / CONTIGS.place(self.stem)

    @property
    def virus_fasta(self) -> Path:
        """The records called virus."""
        return self.result("virus.fna")

    @property
    def run_json(self) -> Path:
        """What ran, with which settings and models, and what came out."""
        return self.result("run.json")

    @property
    def failed_fasta(self) -> Path:
        """Input records of which something failed."""
        return self.result("failed_sequences.fa")

    # State

    @property
    def state(self) -> Path:
        """State of this run."""
        return self.checkpoints / self.stem

    @property
    def previous(self) -> Path:
        """State and files that ``--force`` moved aside."""
        return self.checkpoints / f"{self.stem}.previous"

    @property
    def lock(self) -> Path:
        """Held by the running process. Beside the state folder, which ``--force`` moves."""
        return lock_file(self.root, self.stem)

    @property
    def run_state(self) -> Path:
        """Everything that changes results; a later start compares it with what it was given."""
        return self.state / "run.json"

    @property
    def stage_list(self) -> Path:
        """The stages of the run, with what ``status`` needs to know of each."""
        return self.state / "stages.json"

    @property
    def log(self) -> Path:
        """The run's own log."""
        return self.state / "run.log"

    @property
    def records_table(self) -> Path:
        """Id and length of each input record."""
        return self.root / RECORDS.place(self.stem)

    @property
    def frames_table(self) -> Path:
        """Open frames and status of each chunk."""
        return self.root / FRAMES.place(self.stem)

    @property
    def spooled(self) -> Path:
        """Standard input, kept so that it can be read twice. Outside the state, which moves."""
        return self.checkpoints / f"{self.stem}.input"

    def receipt(self, stage: str) -> Path:
        """Receipt of a stage with one task."""
        return self.state / f"{stage}.done"

    def archived(self, receipt: Path) -> Path:
        """Where the receipt of a file goes when the file is removed at the end of a run."""
        return self.state / "removed" / receipt.relative_to(self.root)

    @property
    def removed_list(self) -> Path:
        """Names of the files that a finished run removed."""
        return self.state / "removed.json"

    @property
    def legacy_survey(self) -> Path:
        """What a run of version 1 left, noted before any of it is overwritten."""
        return self.state / "legacy.json"

    def feature_files(self) -> list[Path]:
        """Every feature and part file that exists, merged ones too."""
        folders = [*(self.folder(molecule) for molecule in MOLECULES), self.merged_folder]
        return [path for folder in folders for path in folder.rglob("*.pt")]

    def top_names(self) -> frozenset[str]:
        """Names of the files that this run writes into the output directory itself."""
        frames = (self.frames(molecule) for molecule in MOLECULES)
        results = map(self.result, RESULT_SUFFIXES)
        tables = (self.chunks_table, self.contigs_table)
        return frozenset(path.name for path in (*frames, *tables, *results))

    def chunked_files(self) -> list[Path]:
        """Return the existing files of chunks, for any chunk length."""
        return sorted(self.root.glob(f"{_literal(self.stem)}_chunked*.fa"))

    def owned(self) -> list[Path]:
        """Everything of this run that exists, its state last: what a new run would overwrite."""
        files = [
            *self.chunked_files(),
            *(self.frames(molecule) for molecule in MOLECULES),
            *(self.folder(molecule) for molecule in MOLECULES),
            self.merged_folder,
            self.chunks_table,
            self.contigs_table,
            *map(self.result, RESULT_SUFFIXES),
            self.state,
        ]
        return [path for path in files if path.exists() or path.is_symlink()]


@dataclass(frozen=True)
class RunLayout(Layout):
    """The files of a prediction; ``chunk_length`` is in bases."""

    chunk_length: int

    @property
    def chunked(self) -> Path:
        """All chunks."""
        return self.root / f"{self.stem}_chunked{self.chunk_length}.fa"

    def top_names(self) -> frozenset[str]:
        """Names of the files that this run writes into the output directory itself."""
        return super().top_names() | {self.chunked.name}


@dataclass(frozen=True)
class ShardLayout(Layout):
    """The files of a part of a data set, whose split files exist before it is embedded."""

    def owned(self) -> list[Path]:
        """Features, merged features and state that exist; never the split files themselves."""
        features = [
            path
            for molecule, suffix in FEATURE_SUFFIX.items()
            for path in sorted(self.folder(molecule).glob(f"output_*_{suffix}.*"))
        ]
        files = [*features, self.merged_folder, self.run_json, self.state]
        return [path for path in files if path.exists() or path.is_symlink()]


def _literal(text: str) -> str:
    """``text`` with the wildcards of a glob pattern taken literally."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
