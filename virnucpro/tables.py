"""Every tab-separated table of the program, declared once: its columns, their order and meaning.

What writes a table, what reads it and ``docs/files.md`` use the declaration. To add a column, add
it to the declaration and give its value in the stage that computes it.
"""

from __future__ import annotations

from dataclasses import replace

from virnucpro.columns import Column, ResultTable


def _text(name: str, meaning: str, example: str, *, optional: bool = False) -> Column:
    return Column(name, str, meaning, example, optional=optional)


def _count(name: str, meaning: str, example: str) -> Column:
    return Column(name, int, meaning, example, "d")


def _optional_count(name: str, meaning: str, example: str) -> Column:
    return Column(name, int, meaning, example, "d", optional=True)


def _number(name: str, meaning: str, example: str) -> Column:
    """A column whose numbers are given as text."""
    return Column(name, float, meaning, example)


def _figure(name: str, meaning: str, example: str) -> Column:
    return Column(name, float, meaning, example, ".6f", optional=True)


def _tier(example: str) -> Column:
    return _text(
        "tier",
        "How sure the call is. `high`: the virus score is above 0.6 (for `nonvirus` below -0.6), "
        "at least 2 chunks and 25 % of the bases were scored, and a virus has an `fdr` of at most "
        "0.1 where there is one. Otherwise `low`.",
        example,
        optional=True,
    )


# The results of a run

CONTIGS = ResultTable(
    "{stem}_contigs.tsv",
    "One row per record of the input, in the order of the input. No record is missing.",
    (
        _text("record", "The id: the first word of the header.", "NC_001422.1"),
        _count("length", "Bases of the record.", "5386"),
        _count("chunks", "Chunks of the record.", "11"),
        _count("chunks_scored", "Chunks with at least one scored frame.", "7"),
        Column("coverage", float, "Share of the record's bases in scored chunks.", "0.6415", ".4f"),
        _text(
            "call",
            "`virus` (virus score above 0.3, unless the run was cut elsewhere), `nonvirus` (below "
            "-0.3), `undecided` (the other scored records) or `unscored` (nothing was scored, so "
            "nothing is said about the record).",
            "virus",
        ),
        _figure(
            "virus_score",
            "From -1 (surely not a virus) to 1 (surely a virus). With `lite` it is twice the "
            "probability of virus, less one, from the mean of the log odds of the scored chunks, "
            "their spread and their number. With other models it is the mean of "
            "`max_score_1 - max_score_0` over the scored chunks, weighted by the square root of "
            "its absolute value.",
            "0.912345",
        ),
        _tier("high"),
        _count(
            "confident_viral",
            "Chunks with `max_score_1` above 0.8 and `max_score_0` below 0.3.",
            "6",
        ),
        _count(
            "confident_nonviral",
            "Chunks with `max_score_0` above 0.8 and `max_score_1` below 0.3.",
            "0",
        ),
        _count("undecided", "The other scored chunks.", "1"),
        _text(
            "status",
            "`scored`, or the reason why no chunk was: `failed`, `no_open_frame`, `ambiguous` or "
            "`too_short`. Where chunks have several reasons, the first of this list.",
            "scored",
        ),
        _figure(
            "fdr",
            "Estimated false discovery rate: the share of errors if this record and all records "
            "that are more certain were called virus. Only for a calibrated classifier; see "
            "[evaluation.md](evaluation.md).",
            "0.012345",
        ),
        _count("regions", "Viral regions of the record; they are in `STEM_regions.tsv`.", "0"),
        _count("viral_bases", "Bases in regions, or all of a virus that has none.", "5386"),
    ),
)

VIRUS = ResultTable(
    "{stem}_virus.tsv",
    "One row per record that is called virus, the surest first: those of the tier `high`, then the "
    "others, each by their scores.",
    (
        _text("record", "The id: the first word of the header.", "NC_001422.1"),
        _count("length", "Bases of the record.", "5386"),
        Column("score", float, "The virus score, as in `STEM_contigs.tsv`.", "0.912345", ".6f"),
        _figure("fdr", "Estimated false discovery rate, as in `STEM_contigs.tsv`.", "0.012345"),
        _tier("high"),
        _count("chunks_scored", "Chunks that were scored.", "7"),
        Column("coverage", float, "Share of the record's bases in scored chunks.", "0.6415", ".4f"),
        _text(
            "evidence",
            "What the score rests on: `one chunk` (only one was scored), `little scored` (under 25 "
            "% of the bases were) or `ok`.",
            "ok",
        ),
    ),
)

REGIONS = ResultTable(
    "{stem}_regions.tsv",
    "One row per viral region, in the order of the input: a provirus, or the viral part of a "
    "chimera. A record that is viral from end to end has no region.",
    (
        _text("region", "The id of the region.", "NC_000913.3|region_1197919_1210402"),
        _text("record", "The id of the record.", "NC_000913.3"),
        _count("start", "First base in the record, counted from 1.", "1197919"),
        _count("end", "Last base in the record, counted from 1.", "1210402"),
        _count("length", "Bases of the region.", "12484"),
        _count("chunks", "Chunks in the region.", "25"),
        _count("chunks_scored", "Chunks of these that were scored.", "25"),
        Column(
            "score",
            float,
            "Above 0.3, at most 1: how surely the region is viral where the rest of the record is "
            "not. It is no calibrated probability; see [regions.md](regions.md).",
            "0.987654",
            ".6f",
        ),
        _figure(
            "flank_score",
            "The virus score of up to 20 scored chunks on either side. Below 0 it is a host.",
            "-0.954321",
        ),
        Column(
            "at_edge",
            bool,
            "`True` where the region reaches the first or the last base of the record: it may go "
            "on outside.",
            "False",
        ),
    ),
)

CHUNKS = ResultTable(
    "{stem}_chunks.tsv",
    "One row per chunk of the input, in the order of the input. No chunk is missing.",
    (
        _text("record", "The id of the record.", "NC_001422.1"),
        _text("chunk", "The id of the chunk.", "NC_001422.1_chunk_2"),
        _count("start", "First base in the record, counted from 1.", "490"),
        _count("end", "Last base in the record, counted from 1.", "989"),
        _text(
            "status",
            "`scored`, or the reason why not: `no_open_frame` (every frame has a stop codon), "
            "`too_short` (under 3 bases), `ambiguous` (no codon without an ambiguous letter; where "
            "the model reads whole chunks, both mean under 30 bases or known bases) or "
            "`failed` (see `failed_files.txt`).",
            "scored",
        ),
        _count(
            "frames",
            "Open frames: those without a stop codon, 0 to 6. 1 where the model reads whole "
            "chunks, as `lite` does.",
            "2",
        ),
        Column(
            "max_score_0",
            float,
            "Highest score of class others over the frames.",
            "0.034567",
            optional=True,
        ),
        Column(
            "max_score_1",
            float,
            "Highest score of class virus over the frames.",
            "0.965433",
            optional=True,
        ),
    ),
)

PREDICTIONS = ResultTable(
    "{stem}_merged/prediction_results.txt",
    "One row per scored frame, in the order of the input. The columns are those of version 1.",
    (
        _text(
            "Sequence_ID",
            "The id of the frame: that of its chunk, then `F1` to `F3` (forward strand) or `R1` to "
            "`R3` (reverse strand).",
            "NC_001422.1_chunk_2F1",
        ),
        _text(
            "Prediction",
            "`virus` where `score2` is greater than `score1`, otherwise `others`.",
            "virus",
        ),
        _number("score1", "Score of class others, 0 to 1.", "0.034567"),
        _number("score2", "Score of class virus, 0 to 1.", "0.965433"),
    ),
)

CONSENSUS = ResultTable(
    "{stem}_merged/prediction_results_highestscore.csv",
    "One row per scored chunk, in the order of the input. The columns are those of version 1, "
    "separated by tabs in spite of the file's name.",
    (
        _text("Modified_ID", "The id of the chunk.", "NC_001422.1_chunk_2"),
        Column("Is_Virus", bool, "`True` where `max_score_1` is at least `max_score_0`.", "True"),
        _number("max_score_0", "Highest `score1` of the chunk's frames.", "0.034567"),
        _number("max_score_1", "Highest `score2` of the chunk's frames.", "0.965433"),
    ),
)

FAILURES = ResultTable(
    "failed_files.txt",
    "One row per failure, of all runs in the output directory. The file exists only as long as "
    "something is missing.",
    (
        _text("input", "The input file.", "contigs.fa"),
        _text("file", "The feature file that lacks sequences.", "output_3_ESM.pt"),
        _text("stage", "The stage that failed.", "protein_embeddings"),
        _text("error", "The kind of error.", "WorkerLostError"),
        _text("message", "What happened, in one line.", "the worker was killed"),
        _text(
            "sequences",
            "The ids of the frames that are missing, separated by commas.",
            "c7_chunk_1F2,c7_chunk_2R1",
        ),
    ),
)

SAMPLES = ResultTable(
    "samples_summary.tsv",
    "One row per sample of commands with several inputs, in the order in which they were first "
    "given. A later command adds its samples; those of earlier ones stay.",
    (
        _text("sample", "The name of the sample, and of the folder with its results.", "gut_07"),
        _text("file", "The input file.", "reads/gut_07.fq.gz"),
        _text(
            "state",
            "`finished`; `partial`, if some sequences failed; `failed`, if there are no results; "
            "`unfinished`, if the command ended before.",
            "finished",
        ),
        _optional_count("records", "Records of the input.", "20000"),
        _optional_count("virus", "Records that are called `virus`.", "312"),
        _optional_count("nonvirus", "Records that are called `nonvirus`.", "18911"),
        _optional_count("undecided", "Records that are called `undecided`.", "402"),
        _optional_count("unscored", "Records that could not be scored.", "375"),
        Column(
            "seconds",
            float,
            "What the stages of the sample took when it was last computed. Of an embedding that "
            "several samples shared, each has its share of the sequences.",
            "41.7",
            ".1f",
            optional=True,
        ),
        _text("message", "Why a sample failed, in one line.", "", optional=True),
    ),
)

# What a run keeps for itself until it is finished

RECORDS = ResultTable(
    ".checkpoints/runs/{stem}/state/records.tsv",
    "One row per record of the input, in the order of the input. A run of pairs has a third "
    "column, `mate_length`: the bases of the second mate, where `length` has those of the first.",
    (
        _text("record", "The id, after a duplicate was renamed.", "NC_001422.1"),
        _count("length", "Bases of the record.", "5386"),
    ),
    has_header=False,
)
PAIRS = replace(
    RECORDS,
    columns=(*RECORDS.columns, _count("mate_length", "Bases of the second mate.", "150")),
)
"""The same table of a run of pairs."""

FRAMES = ResultTable(
    ".checkpoints/runs/{stem}/state/frames.tsv",
    "One row per chunk, in the order of the input.",
    (
        _text("chunk", "The id of the chunk.", "NC_001422.1_chunk_2"),
        _count(
            "frames", "Open frames of the chunk, 0 to 6; 1 where the model reads whole chunks.", "2"
        ),
        _text(
            "status",
            "`framed` where there is something to read, otherwise the reason: `no_open_frame`, "
            "`too_short` or `ambiguous`.",
            "framed",
        ),
    ),
    has_header=False,
)

COPIES = ResultTable(
    ".checkpoints/runs/{stem}/state/copies.tsv",
    "One row per frame that has the same sequences as an earlier one and is not embedded again, in "
    "the order of the input; removed with the intermediate files.",
    (
        _text("frame", "The id of the frame.", "read_7_chunk_1F2"),
        _count(
            "first",
            "The first frame with these sequences: its number in `STEM_nucleotide.fa`, from 1.",
            "3",
        ),
    ),
    has_header=False,
)

# Data sets of ``train prepare``

LABELLED_FRAMES = ResultTable(
    "{stem}_frames.tsv",
    "One row per frame of the part `{stem}` (`train`, `validation` or `test`) of a data set, in "
    "the order of its shards.",
    (
        _text("frame", "The id of the frame in the shards.", "NC_001422.1_500bp_chunk_2F1"),
        _text("chunk", "The id of its chunk.", "NC_001422.1_500bp_chunk_2"),
        _text("record", "The id of the record.", "NC_001422.1"),
        _text("genome", "The genome, which is in one part only.", "NC_001422.1"),
        _text("group", "The group under which results are reported.", "Microviridae"),
        _text("label", "`virus` or `others`.", "virus"),
        _count("length", "The requested chunk length in bases.", "500"),
    ),
)

GENOMES = ResultTable(
    "genomes.tsv",
    "One row per record of the source files of a data set, in their order.",
    (
        _text("record", "The id, unique in the data set.", "NC_001422.1"),
        _text("source", "The source file, as in the table of genomes.", "viral.1.fna.gz"),
        _text("label", "`virus` or `others`; empty where no row matches.", "virus"),
        _text("group", "The group; empty where no row matches.", "Microviridae"),
        _text("genome", "The genome of the record.", "NC_001422.1"),
        _text("taxon", "The taxon of the genome; the genome where none is given.", "NC_001422.1"),
        _text(
            "part",
            "`train`, `validation` or `test`; `dropped` or `unused` where it is in no part.",
            "train",
        ),
        _count("bases", "Bases of the record.", "5386"),
        _count("chunks", "Chunks of the record, of all lengths; 0 in a data set of records.", "11"),
        _count("frames", "Frames of the record in the data set; 0 in one of records.", "14"),
        _text("note", "The reason why the record is in no part, otherwise empty.", ""),
    ),
)

# The figures of ``evaluate``


EVALUATION = ResultTable(
    "evaluation.tsv",
    "One row for all rows that were evaluated, then one row per length and one per group. The "
    "figures are explained in [evaluation.md](evaluation.md).",
    (
        _text("slice", "`overall`, `length` or `group`.", "group"),
        _text("label", "The label of a group.", "virus", optional=True),
        _text("name", "The name of the length or group.", "Microviridae"),
        _count("genomes", "Genomes.", "12"),
        _count("rows", "Rows with a label and a score.", "240"),
        _count("virus", "Rows that are labelled virus.", "120"),
        _count("others", "Rows that are labelled others.", "120"),
        _count("tp", "True positives: viruses that are called virus.", "110"),
        _count("fp", "False positives: others that are called virus.", "6"),
        _count("tn", "True negatives: others that are called others.", "114"),
        _count("fn", "False negatives: viruses that are called others.", "10"),
        _figure("auroc", "Area under the ROC curve.", "0.980000"),
        _figure("auroc_low", "Lower end of its 95 % interval.", "0.970000"),
        _figure("auroc_high", "Upper end of its 95 % interval.", "0.990000"),
        _figure("auprc", "Average precision.", "0.975000"),
        _figure("accuracy", "Share of rows that are called as they are labelled.", "0.933333"),
        _figure("accuracy_low", "Lower end of its 95 % interval.", "0.910000"),
        _figure("accuracy_high", "Upper end of its 95 % interval.", "0.950000"),
        _figure("precision", "Share of virus among the rows called virus.", "0.948276"),
        _figure("recall", "Share of the viruses that are called virus.", "0.916667"),
        _figure("recall_all", "The same, unscored viruses counted as missed.", "0.873016"),
        _figure("f1", "Harmonic mean of precision and recall.", "0.932203"),
        _figure("mcc", "Matthews correlation coefficient.", "0.867148"),
        _figure("brier", "Mean squared error of the score.", "0.052000"),
        _figure("ece", "Expected calibration error; not for a group.", "0.031000"),
        _figure("correct", "Share of the rows of a group that are called as labelled.", "0.916667"),
        _figure("correct_low", "Lower end of its 95 % interval.", "0.880000"),
        _figure("correct_high", "Upper end of its 95 % interval.", "0.950000"),
        _text("note", "Remarks, separated by `; `.", "NA", optional=True),
    ),
)

# The results of ``rcl predict``

RCL_REGIONS = ResultTable(
    "{stem}_rcl.tsv",
    "One row per protein of the input, in the order of the input. No protein is missing.",
    (
        _text("accession", "The id: the first word of the header.", "P01011"),
        _count("length", "Residues of the protein.", "423"),
        Column(
            "start",
            int,
            "First residue of the RCL, counted from 1.",
            "369",
            "d",
            optional=True,
        ),
        Column("end", int, "Last residue of the RCL, counted from 1.", "394", "d", optional=True),
        _text("rcl", "The residues of the RCL.", "GTEASAATAVKITLLSALVETRTIVRFN", optional=True),
        Column(
            "confidence",
            float,
            "Mean probability of the residues of the RCL.",
            "0.9912",
            ".4f",
            optional=True,
        ),
        _text(
            "status",
            "`found`, or the reason why there is no RCL. Networks: `below_threshold` (no residue "
            "has a probability above the threshold) or `too_short` (only shorter runs of residues "
            "have). Model `hmm`: `no_serpin` (the protein does not match the profile) or "
            "`incomplete` (it matches, but not where the RCL is). `empty`: the record has no "
            "residues.",
            "found",
        ),
        _text(
            "model",
            "The model that made the row: the name of a shipped one, or a file name and the "
            "beginning of its SHA-256.",
            "onehot_unet",
        ),
    ),
)

RCL_POSITIONS = ResultTable(
    "{stem}_ENCODING_RCL_predictions_thrT.tsv",
    "One row per protein with an RCL, in the order of the input. The columns are those of "
    "RCL-identifier. `T` is the threshold, such as `0p50`.",
    (
        _text("Accession", "The id of the protein.", "P01011"),
        _count("RCL_start_position", "First residue of the RCL, counted from 1.", "369"),
        _count("RCL_end_position", "Last residue of the RCL, counted from 1.", "394"),
    ),
)

RCL_RESIDUES = ResultTable(
    "{stem}_rcl_residues.tsv.gz",
    "One row per residue of each protein, in the order of the input; compressed with gzip. Only "
    "with `--residues`.",
    (
        _text("accession", "The id of the protein.", "P01011"),
        _count("position", "The residue, counted from 1.", "369"),
        _text("residue", "Its letter in the input.", "G"),
        Column(
            "probability",
            float,
            "Probability that it belongs to the RCL, 0 to 1. Model `hmm`: that of its place in "
            "the alignment, for residues of the RCL only.",
            "0.998132",
            ".6f",
        ),
    ),
)

RUN_TABLES = (
    CONTIGS,
    VIRUS,
    REGIONS,
    CHUNKS,
    PREDICTIONS,
    CONSENSUS,
    FAILURES,
    RECORDS,
    FRAMES,
    COPIES,
)
RCL_TABLES = (RCL_REGIONS, RCL_POSITIONS, RCL_RESIDUES)
ALL_TABLES = (*RUN_TABLES, SAMPLES, GENOMES, LABELLED_FRAMES, EVALUATION, *RCL_TABLES)

# The tables whose rows Python programs read as typed rows, by the name of the class of a row.
# ``python -m tools.document_tables`` writes the classes to ``rows.py``.
ROW_CLASSES = {
    "ContigRow": CONTIGS,
    "VirusRow": VIRUS,
    "RegionRow": REGIONS,
    "ChunkRow": CHUNKS,
    "RclRow": RCL_REGIONS,
    "RclResidueRow": RCL_RESIDUES,
}
