"""Every path in an output directory. No other module puts one together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import virnucpro.tables as tables
from virnucpro.contracts import MOLECULES, Molecule

FeatureKind = Literal[Molecule, "merged"]
FEATURE_SUFFIX: dict[str, str] = {"nucleotide": "DNABERT_S", "protein": "ESM"}
# The result files of a run: STEM_virus.fna and so on. A file that a new stage writes into the
# output directory is named here, so that --force removes it with the others.
RESULT_SUFFIXES = (
    "chunks.tsv",
    "contigs.tsv",
    "virus.tsv",
    "regions.tsv",
    "virus.fna",
    "virus.fastq.gz",
    "virus_1.fastq.gz",
    "virus_2.fastq.gz",
    "virus_1.fna",
    "virus_2.fna",
    "virus_genes.gff3",
    "virus_genes.faa",
    "regions.bed",
    "regions.gff3",
    "run.json",
    "report.html",
    "mqc.tsv",
    "failed_sequences.fa",
)
STDIN = "-"
CHECKPOINTS = ".checkpoints"  # the folder beside results with states and locks
COMPRESSION = (".gz", ".bz2", ".xz", ".zst")
_SEQUENCE = (".fa", ".fasta", ".fna", ".fq", ".fastq", ".fas", ".ffn", ".fsa")
_LONGEST_PICTURE_NAME = 120  # bytes of a file name that are taken from an id
# What stands in the folders of split files, of embeddings and of scores.
_INSIDE = re.compile(
    r"output_\d+(\.fa|_(DNABERT_S|ESM|merged)\.pt|_scores\.tsv)(\.done)?"
    r"|prediction_results(\.txt|_highestscore\.csv)"
)


def state_folders(path: Path) -> Sequence[Path]:
    """Return the folders above ``path`` up to the nearest checkpoint folder; none without one."""
    if CHECKPOINTS in path.parts:  # a quick test: most paths are in no such folder
        for depth, folder in enumerate(path.parents):
            if folder.name == CHECKPOINTS:
                return path.parents[: depth + 1]
    return ()


def receipt_beside(file: Path) -> Path:
    """Return the receipt of the task that writes one file of its own."""
    return file.with_name(f"{file.name}.done")


def lock_file(root: Path, name: str) -> Path:
    """Return the lock file of the work that writes the file ``name`` in ``root``.

    A run has a lock of its own (``Layout.lock``).
    """
    return root / CHECKPOINTS / f"{name}.lock"


def stem_of(source: str) -> str:
    """Name of a run: the input's file name without its compression and sequence suffixes.

    >>> stem_of("in/my.sample.v2.fa.gz"), stem_of("-")
    ('my.sample.v2', 'stdin')
    """
    if source == STDIN:
        return "stdin"
    name = Path(source).name
    for suffixes in (COMPRESSION, _SEQUENCE):
        for suffix in suffixes:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name = name[: -len(suffix)]
                break
    return name


def picture_name(id: str, suffix: str) -> str:
    """Return the file name of a picture: the id, without characters that files cannot have.

    Different ids have different names; the end of a long one is its checksum.

    >>> picture_name("a/b", "png")
    'a%2Fb.png'
    """
    name = re.sub(r"^\.", "%2E", quote(id, safe=" +,;=@()[]"))
    if len(name) > _LONGEST_PICTURE_NAME:
        name = name[:_LONGEST_PICTURE_NAME] + sha256(id.encode()).hexdigest()
    return f"{name}.{suffix}"


class OutputFolder:
    """The files that all runs of the output directory ``root`` share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.failed_table = root / tables.FAILURES.path
        self.checkpoints = root / CHECKPOINTS
        self.runs = self.checkpoints / "runs"  # a folder for each run, with its STEM as name
        self.failed_lock = lock_file(root, self.failed_table.name)
        self.legacy_state = self.checkpoints / "pipeline_state.json"  # of version 1


class SamplesFolder(OutputFolder):
    """The output directory of a command with several inputs; each has a folder of its own in it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.summary_table = root / tables.SAMPLES.path
        self.overview = root / "samples_overview.html"  # with links to the reports of all samples
        # Held by the command, and there since the first one with several inputs.
        self.lock = lock_file(root, self.summary_table.name)
        self.log = self.checkpoints / "samples" / "run.log"
        self.probe = self.log.with_name("cluster.probe")  # proves a shared folder

    def sample(self, name: str) -> Path:
        """Return the folder of a sample."""
        return self.root / name


class Layout(OutputFolder):
    """The files of one run; ``chunk_length`` is 0 where it does not matter, or there is none."""

    def __init__(self, root: Path, stem: str, chunk_length: int = 0) -> None:
        super().__init__(root)
        self.chunk_length = chunk_length
        self.chunked = root / f"{stem}_chunked{chunk_length}.fa"  # all chunks
        self.stem = stem  # the name of the run, which begins the names of its files
        # All open frames, and the folders of split files and features, by molecule.
        files = {"nucleotide": f"{stem}_nucleotide.fa", "protein": f"{stem}_protein.faa"}
        self.frames = {molecule: root / files[molecule] for molecule in MOLECULES}
        self.folders: Mapping[str, Path] = {
            molecule: root / f"{stem}_{molecule}" for molecule in MOLECULES
        }
        self.merged_folder = root / f"{stem}_merged"  # merged features and predictions
        self.predictions = root / tables.PREDICTIONS.path.format(stem=stem)
        self.consensus = root / tables.CONSENSUS.path.format(stem=stem)
        self._results = {suffix: root / f"{stem}_{suffix}" for suffix in RESULT_SUFFIXES}
        result = self._results
        self.chunks_table = result["chunks.tsv"]
        self.contigs_table = result["contigs.tsv"]
        self.virus_table = result["virus.tsv"]
        # The records classified as viral, and the viral regions of others; the input decides which.
        self.virus_fasta = result["virus.fna"]
        self.virus_fastq = result["virus.fastq.gz"]
        self.virus_mates_fastq = result["virus_1.fastq.gz"], result["virus_2.fastq.gz"]
        self.virus_mates_fasta = result["virus_1.fna"], result["virus_2.fna"]
        self.virus_reads = (self.virus_fastq, *self.virus_mates_fastq, *self.virus_mates_fasta)
        self.virus_genes = result["virus_genes.gff3"], result["virus_genes.faa"]
        self.regions_table = result["regions.tsv"]
        self.regions_bed = result["regions.bed"]
        self.regions_gff3 = result["regions.gff3"]
        self.run_record = result["run.json"]  # what ran, and what came out
        self.report = result["report.html"]
        self.multiqc = result["mqc.tsv"]
        self.plots = root / f"{stem}_plots"  # pictures of records that somebody asked for
        self.failed_fasta = result["failed_sequences.fa"]

        self.home = self.runs / stem  # no STEM can be a name in it
        self.state = self.home / "state"
        self.lock = self.home / "lock"
        self.spooled = self.home / "input"  # standard input, so that it can be read twice
        self.incoming = self.home / "input.new"  # until it is known to be the input of the run
        self.probe = self.home / "cluster.probe"  # proves a shared folder
        self.state_file = self.state / "run.json"  # what decides the results
        self.log = self.state / "run.log"
        self.records_table = root / tables.RECORDS.path.format(stem=stem)
        self.frames_table = root / tables.FRAMES.path.format(stem=stem)
        self.copies_table = root / tables.COPIES.path.format(stem=stem)
        self.progress = self.state / "progress.json"  # how far the run is, for ``status``
        self.finished = self.receipt("finished")  # proves what the results are made from

    @property
    def sample(self) -> str:
        """The name of the sample whose folder this is; the name of the run elsewhere."""
        root = self.root.absolute()
        return root.name if SamplesFolder(root.parent).lock.exists() else self.stem

    def split(self, molecule: Molecule, number: int) -> Path:
        """The ``number``-th (from 1) split file."""
        return self.folders[molecule] / f"output_{number}.fa"

    def features(self, kind: FeatureKind, number: int) -> Path:
        """The embeddings of the ``number``-th split file, or both side by side."""
        folder = self.folders.get(kind, self.merged_folder)
        return folder / f"output_{number}_{FEATURE_SUFFIX.get(kind, kind)}.pt"

    def scores(self, number: int) -> Path:
        """The scores of the ``number``-th split file."""
        return self.merged_folder / f"output_{number}_scores.tsv"

    def result(self, suffix: str) -> Path:
        """Return the path of ``STEM_suffix`` in the output directory.

        Raises:
            ValueError: ``RESULT_SUFFIXES`` does not name the file.
        """
        if suffix not in self._results:
            raise ValueError(f"add {suffix!r} to RESULT_SUFFIXES in virnucpro/layout.py")
        return self._results[suffix]

    def receipt(self, stage: str) -> Path:
        """The receipt of a stage that writes whole files."""
        return self.state / f"{stage}.done"

    def top_files(self) -> list[Path]:
        """The files of this run in the output directory itself, except chunks of other lengths."""
        return [*self.frames.values(), *self._results.values(), self.chunked]

    def owned(self) -> list[Path]:
        """All files of this run that exist, those of its state last: what a new run replaces."""
        folders = [*self.folders.values(), self.merged_folder]
        return existing_paths(*self.top_files(), *files_inside(folders), *self.files_in_state())

    def intermediate_files(self) -> list[Path]:
        """What a finished run does not need, as far as it is there; nothing behind links."""
        inside = files_inside([*self.folders.values(), self.merged_folder])
        files = [*self.frames.values(), self.chunked, self.copies_table, *inside]
        files += self.state.glob("*.done")
        kept = {self.predictions, self.consensus, self.finished}
        return [path for path in existing_paths(*files) if path not in kept and path.is_file()]

    def files_in_state(self) -> list[Path]:
        """All files in the state of the run, which is the program's own."""
        return [] if self.state.is_symlink() else sorted(self.state.glob("*"))


class ShardLayout(Layout):
    """The files of a part of a data set, whose split files exist before it is embedded."""

    def owned(self) -> list[Path]:
        """Features, merged features and state that exist; never the split files themselves."""
        inside = files_inside([*self.folders.values(), self.merged_folder])
        features = [path for path in inside if path.suffix != ".fa"]
        return existing_paths(*features, self.run_record, *self.files_in_state())


def files_inside(folders: Iterable[Path]) -> list[Path]:
    """Return what the program writes into folders of split files, as far as it is there.

    A folder that is a link stands for all that is behind it.
    """
    found: list[Path] = []
    for folder in folders:
        if folder.is_symlink():
            found.append(folder)
        else:
            found += (path for path in sorted(folder.glob("*")) if _INSIDE.fullmatch(path.name))
    return found


def existing_paths(*paths: Path) -> list[Path]:
    """Return the paths that exist, also as links that lead nowhere; each once."""
    return [path for path in dict.fromkeys(paths) if path.exists() or path.is_symlink()]
