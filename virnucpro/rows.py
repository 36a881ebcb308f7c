"""The rows of tables as classes, for Python programs.

Written by ``python -m tools.document_tables`` from the declarations in ``tables.py``: change those.
"""

from __future__ import annotations

from typing import NamedTuple


class ContigRow(NamedTuple):
    """A row of ``STEM_contigs.tsv``.

    Attributes:
        record: The id: the first word of the header.
        length: Bases of the record.
        chunks: Chunks of the record.
        chunks_scored: Chunks with at least one scored frame.
        coverage: Share of the record's bases in scored chunks.
        call: `virus` (virus score above 0.3, unless the run was cut elsewhere), `nonvirus` (below
            -0.3), `undecided` (the other scored records) or `unscored` (nothing was scored, so
            nothing is said about the record).
        virus_score: From -1 (surely not a virus) to 1 (surely a virus). With `lite` it is twice
            the probability of virus, less one, from the mean of the log odds of the scored chunks,
            their spread and their number. With other models it is the mean of `max_score_1 -
            max_score_0` over the scored chunks, weighted by the square root of its absolute value.
            None where there is none.
        tier: How sure the call is. `high`: the virus score is above 0.6 (for `nonvirus` below
            -0.6), at least 2 chunks and 25 % of the bases were scored, and a virus has an `fdr` of
            at most 0.1 where there is one. Otherwise `low`. None where there is none.
        confident_viral: Chunks with `max_score_1` above 0.8 and `max_score_0` below 0.3.
        confident_nonviral: Chunks with `max_score_0` above 0.8 and `max_score_1` below 0.3.
        undecided: The other scored chunks.
        status: `scored`, or the reason why no chunk was: `failed`, `no_open_frame`, `ambiguous` or
            `too_short`. Where chunks have several reasons, the first of this list.
        fdr: Estimated false discovery rate: the share of errors if this record and all records
            that are more certain were called virus. Only for a calibrated classifier; see
            evaluation.md. None where there is none.
        regions: Viral regions of the record; they are in `STEM_regions.tsv`.
        viral_bases: Bases in regions, or all of a virus that has none.
    """

    record: str
    length: int
    chunks: int
    chunks_scored: int
    coverage: float
    call: str
    virus_score: float | None
    tier: str | None
    confident_viral: int
    confident_nonviral: int
    undecided: int
    status: str
    fdr: float | None
    regions: int
    viral_bases: int


class VirusRow(NamedTuple):
    """A row of ``STEM_virus.tsv``.

    Attributes:
        record: The id: the first word of the header.
        length: Bases of the record.
        score: The virus score, as in `STEM_contigs.tsv`.
        fdr: Estimated false discovery rate, as in `STEM_contigs.tsv`. None where there is none.
        tier: How sure the call is. `high`: the virus score is above 0.6 (for `nonvirus` below
            -0.6), at least 2 chunks and 25 % of the bases were scored, and a virus has an `fdr` of
            at most 0.1 where there is one. Otherwise `low`. None where there is none.
        chunks_scored: Chunks that were scored.
        coverage: Share of the record's bases in scored chunks.
        evidence: What the score rests on: `one chunk` (only one was scored), `little scored`
            (under 25 % of the bases were) or `ok`.
    """

    record: str
    length: int
    score: float
    fdr: float | None
    tier: str | None
    chunks_scored: int
    coverage: float
    evidence: str


class RegionRow(NamedTuple):
    """A row of ``STEM_regions.tsv``.

    Attributes:
        region: The id of the region.
        record: The id of the record.
        start: First base in the record, counted from 1.
        end: Last base in the record, counted from 1.
        length: Bases of the region.
        chunks: Chunks in the region.
        chunks_scored: Chunks of these that were scored.
        score: Above 0.3, at most 1: how surely the region is viral where the rest of the record is
            not. It is no calibrated probability; see regions.md.
        flank_score: The virus score of up to 20 scored chunks on either side. Below 0 it is a
            host. None where there is none.
        at_edge: `True` where the region reaches the first or the last base of the record: it may
            go on outside.
    """

    region: str
    record: str
    start: int
    end: int
    length: int
    chunks: int
    chunks_scored: int
    score: float
    flank_score: float | None
    at_edge: bool


class ChunkRow(NamedTuple):
    """A row of ``STEM_chunks.tsv``.

    Attributes:
        record: The id of the record.
        chunk: The id of the chunk.
        start: First base in the record, counted from 1.
        end: Last base in the record, counted from 1.
        status: `scored`, or the reason why not: `no_open_frame` (every frame has a stop codon),
            `too_short` (under 3 bases), `ambiguous` (no codon without an ambiguous letter; where
            the model reads whole chunks, both mean under 30 bases or known bases) or `failed` (see
            `failed_files.txt`).
        frames: Open frames: those without a stop codon, 0 to 6. 1 where the model reads whole
            chunks, as `lite` does.
        max_score_0: Highest score of class others over the frames. None where there is none.
        max_score_1: Highest score of class virus over the frames. None where there is none.
    """

    record: str
    chunk: str
    start: int
    end: int
    status: str
    frames: int
    max_score_0: float | None
    max_score_1: float | None


class RclRow(NamedTuple):
    """A row of ``STEM_rcl.tsv``.

    Attributes:
        accession: The id: the first word of the header.
        length: Residues of the protein.
        start: First residue of the RCL, counted from 1. None where there is none.
        end: Last residue of the RCL, counted from 1. None where there is none.
        rcl: The residues of the RCL. None where there is none.
        confidence: Mean probability of the residues of the RCL. None where there is none.
        status: `found`, or the reason why there is no RCL. Networks: `below_threshold` (no residue
            has a probability above the threshold) or `too_short` (only shorter runs of residues
            have). Model `hmm`: `no_serpin` (the protein does not match the profile) or
            `incomplete` (it matches, but not where the RCL is). `empty`: the record has no
            residues.
        model: The model that made the row: the name of a shipped one, or a file name and the
            beginning of its SHA-256.
    """

    accession: str
    length: int
    start: int | None
    end: int | None
    rcl: str | None
    confidence: float | None
    status: str
    model: str


class RclResidueRow(NamedTuple):
    """A row of ``STEM_rcl_residues.tsv.gz``.

    Attributes:
        accession: The id of the protein.
        position: The residue, counted from 1.
        residue: Its letter in the input.
        probability: Probability that it belongs to the RCL, 0 to 1. Model `hmm`: that of its place
            in the alignment, for residues of the RCL only.
    """

    accession: str
    position: int
    residue: str
    probability: float
