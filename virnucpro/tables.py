"""Every tab-separated table of the program, declared once: its columns, their order and meaning.

What writes a table, what reads it and ``docs/files.md`` use the declaration; Python programs get
its rows as objects of the class. To add a column, add it to the class and give its value in the
stage that computes it.
"""

from __future__ import annotations

from typing import NamedTuple

from virnucpro.columns import ResultTable, column, figure

TIER = (
    "How sure the call is. `high`: the virus score is above 0.6 (for `nonvirus` below -0.6), "
    "at least 2 chunks and 25 % of the bases were scored, and a virus has an `fdr` of at most "
    "0.1 where there is one. Otherwise `low`."
)


# The results of a run


class ContigRow(NamedTuple):
    """One row per record of the input, in the order of the input. No record is missing."""

    record: str = column("The id: the first word of the header.", "NC_001422.1")
    length: int = column("Bases of the record.", "5386")
    chunks: int = column("Chunks of the record.", "11")
    chunks_scored: int = column("Chunks with at least one scored frame.", "7")
    coverage: float = column("Share of the record's bases in scored chunks.", "0.6415", ".4f")
    call: str = column(
        "`virus` (virus score above 0.3, unless the run was cut elsewhere), `nonvirus` (below "
        "-0.3), `undecided` (the other scored records) or `unscored` (nothing was scored, so "
        "nothing is said about the record).",
        "virus",
    )
    virus_score: float | None = figure(
        "From -1 (surely not a virus) to 1 (surely a virus). With `lite` it is twice the "
        "probability of virus, less one, from the mean of the log odds of the scored chunks, "
        "their spread and their number. With other models it is the mean of `max_score_1 - "
        "max_score_0` over the scored chunks, weighted by the square root of its absolute value.",
        "0.912345",
    )
    tier: str | None = column(TIER, "high")
    confident_viral: int = column(
        "Chunks with `max_score_1` above 0.8 and `max_score_0` below 0.3.", "6"
    )
    confident_nonviral: int = column(
        "Chunks with `max_score_0` above 0.8 and `max_score_1` below 0.3.", "0"
    )
    undecided: int = column("The other scored chunks.", "1")
    status: str = column(
        "`scored`, or the reason why no chunk was: `failed`, `no_open_frame`, `ambiguous` or "
        "`too_short`. Where chunks have several reasons, the first of this list.",
        "scored",
    )
    fdr: float | None = figure(
        "Estimated false discovery rate: the share of errors if this record and all records that "
        "are more certain were called virus. Only for a calibrated classifier; see "
        "[evaluation.md](evaluation.md).",
        "0.012345",
    )
    regions: int = column("Viral regions of the record; they are in `STEM_regions.tsv`.", "0")
    viral_bases: int = column("Bases in regions, or all of a virus that has none.", "5386")


CONTIGS = ResultTable("{stem}_contigs.tsv", ContigRow)


class VirusRow(NamedTuple):
    """One row per record that is called virus, the surest first: those of the tier `high`, then
    the others, each by their scores.
    """

    record: str = column("The id: the first word of the header.", "NC_001422.1")
    length: int = column("Bases of the record.", "5386")
    score: float = figure("The virus score, as in `STEM_contigs.tsv`.", "0.912345")
    fdr: float | None = figure(
        "Estimated false discovery rate, as in `STEM_contigs.tsv`.", "0.012345"
    )
    tier: str | None = column(TIER, "high")
    chunks_scored: int = column("Chunks that were scored.", "7")
    coverage: float = column("Share of the record's bases in scored chunks.", "0.6415", ".4f")
    evidence: str = column(
        "What the score rests on: `one chunk` (only one was scored), `little scored` (under 25 % "
        "of the bases were) or `ok`.",
        "ok",
    )


VIRUS = ResultTable("{stem}_virus.tsv", VirusRow)


class RegionRow(NamedTuple):
    """One row per viral region, in the order of the input: a provirus, or the viral part of a
    chimera. A record that is viral from end to end has no region.
    """

    region: str = column("The id of the region.", "NC_000913.3|region_1197919_1210402")
    record: str = column("The id of the record.", "NC_000913.3")
    start: int = column("First base in the record, counted from 1.", "1197919")
    end: int = column("Last base in the record, counted from 1.", "1210402")
    length: int = column("Bases of the region.", "12484")
    chunks: int = column("Chunks in the region.", "25")
    chunks_scored: int = column("Chunks of these that were scored.", "25")
    score: float = figure(
        "Above 0.3, at most 1: how surely the region is viral where the rest of the record is "
        "not. It is no calibrated probability; see [regions.md](regions.md).",
        "0.987654",
    )
    flank_score: float | None = figure(
        "The virus score of up to 20 scored chunks on either side. Below 0 it is a host.",
        "-0.954321",
    )
    at_edge: bool = column(
        "`True` where the region reaches the first or the last base of the record: it may go on "
        "outside.",
        "False",
    )


REGIONS = ResultTable("{stem}_regions.tsv", RegionRow)


class ChunkRow(NamedTuple):
    """One row per chunk of the input, in the order of the input. No chunk is missing."""

    record: str = column("The id of the record.", "NC_001422.1")
    chunk: str = column("The id of the chunk.", "NC_001422.1_chunk_2")
    start: int = column("First base in the record, counted from 1.", "490")
    end: int = column("Last base in the record, counted from 1.", "989")
    status: str = column(
        "`scored`, or the reason why not: `no_open_frame` (every frame has a stop codon), "
        "`too_short` (under 3 bases), `ambiguous` (no codon without an ambiguous letter; where "
        "the model reads whole chunks, both mean under 30 bases or known bases) or `failed` (see "
        "`failed_files.txt`).",
        "scored",
    )
    frames: int = column(
        "Open frames: those without a stop codon, 0 to 6. 1 where the model reads whole chunks, "
        "as `lite` does.",
        "2",
    )
    max_score_0: float | None = column("Highest score of class others over the frames.", "0.034567")
    max_score_1: float | None = column("Highest score of class virus over the frames.", "0.965433")


CHUNKS = ResultTable("{stem}_chunks.tsv", ChunkRow)


class FrameScoreRow(NamedTuple):
    """One row per scored frame, in the order of the input. The columns are those of version 1."""

    Sequence_ID: str = column(
        "The id of the frame: that of its chunk, then `F1` to `F3` (forward strand) or `R1` to "
        "`R3` (reverse strand).",
        "NC_001422.1_chunk_2F1",
    )
    Prediction: str = column(
        "`virus` where `score2` is greater than `score1`, otherwise `others`.", "virus"
    )
    score1: float = column("Score of class others, 0 to 1.", "0.034567")
    score2: float = column("Score of class virus, 0 to 1.", "0.965433")


PREDICTIONS = ResultTable("{stem}_merged/prediction_results.txt", FrameScoreRow)


class ConsensusRow(NamedTuple):
    """One row per scored chunk, in the order of the input. The columns are those of version 1,
    separated by tabs in spite of the file's name.
    """

    Modified_ID: str = column("The id of the chunk.", "NC_001422.1_chunk_2")
    Is_Virus: bool = column("`True` where `max_score_1` is at least `max_score_0`.", "True")
    max_score_0: float = column("Highest `score1` of the chunk's frames.", "0.034567")
    max_score_1: float = column("Highest `score2` of the chunk's frames.", "0.965433")


CONSENSUS = ResultTable("{stem}_merged/prediction_results_highestscore.csv", ConsensusRow)


class FailureRow(NamedTuple):
    """One row per failure, of all runs in the output directory. The file exists only as long as
    something is missing.
    """

    input: str = column("The input file.", "contigs.fa")
    file: str = column("The feature file that lacks sequences.", "output_3_ESM.pt")
    stage: str = column("The stage that failed.", "protein_embeddings")
    error: str = column("The kind of error.", "WorkerLostError")
    message: str = column("What happened, in one line.", "the worker was killed")
    sequences: str = column(
        "The ids of the frames that are missing, separated by commas.", "c7_chunk_1F2,c7_chunk_2R1"
    )


FAILURES = ResultTable("failed_files.txt", FailureRow)


class SampleRow(NamedTuple):
    """One row per sample of commands with several inputs, in the order in which they were first
    given. A later command adds its samples; those of earlier ones stay.
    """

    sample: str = column("The name of the sample, and of the folder with its results.", "gut_07")
    file: str = column("The input file.", "reads/gut_07.fq.gz")
    state: str = column(
        "`finished`; `partial`, if some sequences failed; `failed`, if there are no results; "
        "`unfinished`, if the command ended before.",
        "finished",
    )
    records: int | None = column("Records of the input.", "20000")
    virus: int | None = column("Records that are called `virus`.", "312")
    nonvirus: int | None = column("Records that are called `nonvirus`.", "18911")
    undecided: int | None = column("Records that are called `undecided`.", "402")
    unscored: int | None = column("Records that could not be scored.", "375")
    seconds: float | None = column(
        "What the stages of the sample took when it was last computed. Of an embedding that "
        "several samples shared, each has its share of the sequences.",
        "41.7",
        ".1f",
    )
    message: str | None = column("Why a sample failed, in one line.", "")


SAMPLES = ResultTable("samples_summary.tsv", SampleRow)


# What a run keeps for itself until it is finished


class RecordRow(NamedTuple):
    """One row per record of the input, in the order of the input. A run of pairs has a third
    column, `mate_length`: the bases of the second mate, where `length` has those of the first.
    """

    record: str = column("The id, after a duplicate was renamed.", "NC_001422.1")
    length: int = column("Bases of the record.", "5386")


RECORDS = ResultTable(".checkpoints/runs/{stem}/state/records.tsv", RecordRow, has_header=False)


class PairRow(NamedTuple):
    """One row per record of the input, in the order of the input. A run of pairs has a third
    column, `mate_length`: the bases of the second mate, where `length` has those of the first.
    """

    record: str = column("The id, after a duplicate was renamed.", "NC_001422.1")
    length: int = column("Bases of the record.", "5386")
    mate_length: int = column("Bases of the second mate.", "150")


PAIRS = ResultTable(".checkpoints/runs/{stem}/state/records.tsv", PairRow, has_header=False)


class FrameRow(NamedTuple):
    """One row per chunk, in the order of the input."""

    chunk: str = column("The id of the chunk.", "NC_001422.1_chunk_2")
    frames: int = column(
        "Open frames of the chunk, 0 to 6; 1 where the model reads whole chunks.", "2"
    )
    status: str = column(
        "`framed` where there is something to read, otherwise the reason: `no_open_frame`, "
        "`too_short` or `ambiguous`.",
        "framed",
    )


FRAMES = ResultTable(".checkpoints/runs/{stem}/state/frames.tsv", FrameRow, has_header=False)


class CopyRow(NamedTuple):
    """One row per frame that has the same sequences as an earlier one and is not embedded again,
    in the order of the input; removed with the intermediate files.
    """

    frame: str = column("The id of the frame.", "read_7_chunk_1F2")
    first: int = column(
        "The first frame with these sequences: its number in `STEM_nucleotide.fa`, from 1.", "3"
    )


COPIES = ResultTable(".checkpoints/runs/{stem}/state/copies.tsv", CopyRow, has_header=False)


# Data sets of ``train prepare``


class LabelledFrameRow(NamedTuple):
    """One row per frame of the part `{stem}` (`train`, `validation` or `test`) of a data set, in
    the order of its shards.
    """

    frame: str = column("The id of the frame in the shards.", "NC_001422.1_500bp_chunk_2F1")
    chunk: str = column("The id of its chunk.", "NC_001422.1_500bp_chunk_2")
    record: str = column("The id of the record.", "NC_001422.1")
    genome: str = column("The genome, which is in one part only.", "NC_001422.1")
    group: str = column("The group under which results are reported.", "Microviridae")
    label: str = column("`virus` or `others`.", "virus")
    length: int = column("The requested chunk length in bases.", "500")


LABELLED_FRAMES = ResultTable("{stem}_frames.tsv", LabelledFrameRow)


class GenomeRow(NamedTuple):
    """One row per record of the source files of a data set, in their order."""

    record: str = column("The id, unique in the data set.", "NC_001422.1")
    source: str = column("The source file, as in the table of genomes.", "viral.1.fna.gz")
    label: str = column("`virus` or `others`; empty where no row matches.", "virus")
    group: str = column("The group; empty where no row matches.", "Microviridae")
    genome: str = column("The genome of the record.", "NC_001422.1")
    taxon: str = column("The taxon of the genome; the genome where none is given.", "NC_001422.1")
    part: str = column(
        "`train`, `validation` or `test`; `dropped` or `unused` where it is in no part.", "train"
    )
    bases: int = column("Bases of the record.", "5386")
    chunks: int = column("Chunks of the record, of all lengths; 0 in a data set of records.", "11")
    frames: int = column("Frames of the record in the data set; 0 in one of records.", "14")
    note: str = column("The reason why the record is in no part, otherwise empty.", "")


GENOMES = ResultTable("genomes.tsv", GenomeRow)


# The figures of ``evaluate``


class EvaluationRow(NamedTuple):
    """One row for all rows that were evaluated, then one row per length and one per group. The
    figures are explained in [evaluation.md](evaluation.md).
    """

    slice: str = column("`overall`, `length` or `group`.", "group")
    label: str | None = column("The label of a group.", "virus")
    name: str = column("The name of the length or group.", "Microviridae")
    genomes: int = column("Genomes.", "12")
    rows: int = column("Rows with a label and a score.", "240")
    virus: int = column("Rows that are labelled virus.", "120")
    others: int = column("Rows that are labelled others.", "120")
    tp: int = column("True positives: viruses that are called virus.", "110")
    fp: int = column("False positives: others that are called virus.", "6")
    tn: int = column("True negatives: others that are called others.", "114")
    fn: int = column("False negatives: viruses that are called others.", "10")
    auroc: float | None = figure("Area under the ROC curve.", "0.980000")
    auroc_low: float | None = figure("Lower end of its 95 % interval.", "0.970000")
    auroc_high: float | None = figure("Upper end of its 95 % interval.", "0.990000")
    auprc: float | None = figure("Average precision.", "0.975000")
    accuracy: float | None = figure(
        "Share of rows that are called as they are labelled.", "0.933333"
    )
    accuracy_low: float | None = figure("Lower end of its 95 % interval.", "0.910000")
    accuracy_high: float | None = figure("Upper end of its 95 % interval.", "0.950000")
    precision: float | None = figure("Share of virus among the rows called virus.", "0.948276")
    recall: float | None = figure("Share of the viruses that are called virus.", "0.916667")
    recall_all: float | None = figure("The same, unscored viruses counted as missed.", "0.873016")
    f1: float | None = figure("Harmonic mean of precision and recall.", "0.932203")
    mcc: float | None = figure("Matthews correlation coefficient.", "0.867148")
    brier: float | None = figure("Mean squared error of the score.", "0.052000")
    ece: float | None = figure("Expected calibration error; not for a group.", "0.031000")
    correct: float | None = figure(
        "Share of the rows of a group that are called as labelled.", "0.916667"
    )
    correct_low: float | None = figure("Lower end of its 95 % interval.", "0.880000")
    correct_high: float | None = figure("Upper end of its 95 % interval.", "0.950000")
    note: str | None = column("Remarks, separated by `; `.", "NA")


EVALUATION = ResultTable("evaluation.tsv", EvaluationRow)


# The results of ``rcl predict``


class RclRow(NamedTuple):
    """One row per protein of the input, in the order of the input. No protein is missing."""

    accession: str = column("The id: the first word of the header.", "P01011")
    length: int = column("Residues of the protein.", "423")
    start: int | None = column("First residue of the RCL, counted from 1.", "369")
    end: int | None = column("Last residue of the RCL, counted from 1.", "394")
    rcl: str | None = column("The residues of the RCL.", "GTEASAATAVKITLLSALVETRTIVRFN")
    confidence: float | None = column(
        "Mean probability of the residues of the RCL.", "0.9912", ".4f"
    )
    status: str = column(
        "`found`, or the reason why there is no RCL. Networks: `below_threshold` (no residue has "
        "a probability above the threshold) or `too_short` (only shorter runs of residues have). "
        "Model `hmm`: `no_serpin` (the protein does not match the profile) or `incomplete` (it "
        "matches, but not where the RCL is). `empty`: the record has no residues.",
        "found",
    )
    model: str = column(
        "The model that made the row: the name of a shipped one, or a file name and the beginning "
        "of its SHA-256.",
        "onehot_unet",
    )


RCL_REGIONS = ResultTable("{stem}_rcl.tsv", RclRow)


class RclPositionRow(NamedTuple):
    """One row per protein with an RCL, in the order of the input. The columns are those of RCL-
    identifier. `T` is the threshold, such as `0p50`.
    """

    Accession: str = column("The id of the protein.", "P01011")
    RCL_start_position: int = column("First residue of the RCL, counted from 1.", "369")
    RCL_end_position: int = column("Last residue of the RCL, counted from 1.", "394")


RCL_POSITIONS = ResultTable("{stem}_ENCODING_RCL_predictions_thrT.tsv", RclPositionRow)


class RclResidueRow(NamedTuple):
    """One row per residue of each protein, in the order of the input; compressed with gzip. Only
    with `--residues`.
    """

    accession: str = column("The id of the protein.", "P01011")
    position: int = column("The residue, counted from 1.", "369")
    residue: str = column("Its letter in the input.", "G")
    probability: float = figure(
        "Probability that it belongs to the RCL, 0 to 1. Model `hmm`: that of its place in the "
        "alignment, for residues of the RCL only.",
        "0.998132",
    )


RCL_RESIDUES = ResultTable("{stem}_rcl_residues.tsv.gz", RclResidueRow)


RUN_TABLES = (
    *(CONTIGS, VIRUS, REGIONS, CHUNKS, PREDICTIONS, CONSENSUS, FAILURES),
    *(RECORDS, FRAMES, COPIES),
)
RCL_TABLES = (RCL_REGIONS, RCL_POSITIONS, RCL_RESIDUES)
ALL_TABLES = (*RUN_TABLES, SAMPLES, GENOMES, LABELLED_FRAMES, EVALUATION, *RCL_TABLES)
