"""Every tab-separated table of the program: the columns of its rows, and where it is.

``docs/files.md`` says what the columns mean. To add one, add it to the class and give its value in
the stage that computes it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta

from virnucpro.columns import ResultTable

Figure = Annotated[float, ".6f"]
Share = Annotated[float, ".4f", Meta(ge=0, le=1)]


class ContigRow(NamedTuple):
    """One row per record of the input, in the order of the input. No record is missing."""

    record: str
    length: int
    chunks: int
    chunks_scored: int
    coverage: Share
    call: str
    virus_score: Figure | None
    tier: str | None
    confident_viral: int
    confident_nonviral: int
    undecided: int
    status: str
    fdr: Figure | None
    regions: int
    viral_bases: int
    error_rate: Figure | None


class VirusRow(NamedTuple):
    """One row per record that is classified as viral, the most certain first."""

    record: str
    length: int
    score: Figure
    fdr: Figure | None
    tier: str | None
    chunks_scored: int
    coverage: Share
    evidence: str
    topology: str
    virus_kind: str
    coding_density: Share | None
    unfamiliar: str | None
    hallmarks: int | None
    hallmark_genes: str | None
    genes: int | None
    host_markers: int | None
    host_marker_genes: str | None
    error_rate: Figure | None
    virus_markers: int | None


class RegionRow(NamedTuple):
    """One row per viral region, in the order of the input: a provirus, or a part of a chimera."""

    region: str
    record: str
    start: int
    end: int
    length: int
    chunks: int
    chunks_scored: int
    score: Figure
    flank_score: Figure | None
    at_edge: bool
    virus_kind: str
    tier: str
    fdr: Figure | None
    hallmarks: int | None
    hallmark_genes: str | None
    genes: int | None
    coding_density: Share | None
    host_markers: int | None
    host_marker_genes: str | None
    virus_markers: int | None


class ChunkRow(NamedTuple):
    """One row per chunk of the input, in the order of the input. No chunk is missing."""

    record: str
    chunk: str
    start: int
    end: int
    status: str
    frames: int
    max_score_0: float | None
    max_score_1: float | None


class FrameScoreRow(NamedTuple):
    """One row per scored frame, in the order of the input. The columns are those of version 1."""

    Sequence_ID: str
    Prediction: str
    score1: float
    score2: float


class ConsensusRow(NamedTuple):
    """One row per scored chunk, in the order of the input. The columns are those of version 1."""

    Modified_ID: str
    Is_Virus: bool
    max_score_0: float
    max_score_1: float


class FailureRow(NamedTuple):
    """One row per failure, of all runs in the output directory."""

    input: str
    file: str
    stage: str
    error: str
    message: str
    sequences: str


class SampleRow(NamedTuple):
    """One row per sample of commands with several inputs, in the order they were first given."""

    sample: str
    file: str
    state: str
    records: int | None
    virus: int | None
    nonvirus: int | None
    undecided: int | None
    unscored: int | None
    seconds: Annotated[float, ".1f"] | None
    message: str | None
    regions: int | None
    region_bases: int | None


class RecordRow(NamedTuple):
    """One row per record of the input, in the order of the input."""

    record: str
    length: int


class PairRow(NamedTuple):
    """One row per pair of the input: the bases of its first and of its second mate."""

    record: str
    length: int
    mate_length: int


class FrameRow(NamedTuple):
    """One row per chunk, in the order of the input."""

    chunk: str
    frames: int
    status: str


class CopyRow(NamedTuple):
    """One row per frame that is not embedded, and the number of the same earlier one, from 1."""

    frame: str
    first: int


class LabelledFrameRow(NamedTuple):
    """One row per frame of a part of a data set, in the order of its shards."""

    frame: str
    chunk: str
    record: str
    genome: str
    group: str
    label: str
    length: int


class GenomeRow(NamedTuple):
    """One row per record of the source files of a data set, in their order."""

    record: str
    source: str
    label: str
    group: str
    genome: str
    taxon: str
    part: str
    bases: int
    frames: int
    note: str


class EvaluationRow(NamedTuple):
    """One row for all rows that were evaluated, then one per length and one per group."""

    slice: str
    label: str | None
    name: str
    genomes: int
    rows: int
    virus: int
    others: int
    tp: int
    fp: int
    tn: int
    fn: int
    auroc: Figure | None
    auroc_low: Figure | None
    auroc_high: Figure | None
    auprc: Figure | None
    accuracy: Figure | None
    precision: Figure | None
    recall: Figure | None
    recall_all: Figure | None
    f1: Figure | None
    mcc: Figure | None
    brier: Figure | None
    ece: Figure | None
    correct: Figure | None
    correct_low: Figure | None
    correct_high: Figure | None
    note: str | None


class RclRow(NamedTuple):
    """One row per protein of the input, in the order of the input. No protein is missing."""

    accession: str
    length: int
    start: int | None
    end: int | None
    rcl: str | None
    confidence: Share | None
    status: str
    model: str


class RclPositionRow(NamedTuple):
    """One row per protein with an RCL. The columns are those of RCL-identifier."""

    Accession: str
    RCL_start_position: int
    RCL_end_position: int


class RclResidueRow(NamedTuple):
    """One row per residue of each protein, in the order of the input; with ``--residues``."""

    accession: str
    position: int
    residue: str
    probability: Figure


CONTIGS = ResultTable("{stem}_contigs.tsv", ContigRow)
VIRUS = ResultTable("{stem}_virus.tsv", VirusRow)
REGIONS = ResultTable("{stem}_regions.tsv", RegionRow)
CHUNKS = ResultTable("{stem}_chunks.tsv", ChunkRow)
PREDICTIONS = ResultTable("{stem}_merged/prediction_results.txt", FrameScoreRow)
CONSENSUS = ResultTable("{stem}_merged/prediction_results_highestscore.csv", ConsensusRow)
FAILURES = ResultTable("failed_files.txt", FailureRow)
SAMPLES = ResultTable("samples_summary.tsv", SampleRow)
RECORDS = ResultTable(".checkpoints/runs/{stem}/state/records.tsv", RecordRow, has_header=False)
PAIRS = ResultTable(".checkpoints/runs/{stem}/state/records.tsv", PairRow, has_header=False)
FRAMES = ResultTable(".checkpoints/runs/{stem}/state/frames.tsv", FrameRow, has_header=False)
COPIES = ResultTable(".checkpoints/runs/{stem}/state/copies.tsv", CopyRow, has_header=False)
LABELLED_FRAMES = ResultTable("{stem}_frames.tsv", LabelledFrameRow)
GENOMES = ResultTable("genomes.tsv", GenomeRow)
EVALUATION = ResultTable("evaluation.tsv", EvaluationRow)
RCL_REGIONS = ResultTable("{stem}_rcl.tsv", RclRow)
RCL_POSITIONS = ResultTable("{stem}_ENCODING_RCL_predictions_thrT.tsv", RclPositionRow)
RCL_RESIDUES = ResultTable("{stem}_rcl_residues.tsv.gz", RclResidueRow)
