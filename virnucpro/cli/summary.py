"""What a finished run tells on the terminal, in sentences."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import virnucpro.cli.shared as shared
from virnucpro.formatting import calls_text, counted, part_of, percent, regions_text
from virnucpro.settings import DOUBTFUL, LONG_RECORDS

if TYPE_CHECKING:
    from virnucpro.layout import Layout, SamplesFolder
    from virnucpro.run.predict import Outcome
    from virnucpro.run.sample_list import Sample
    from virnucpro.stages.result_files import OutputFigures

UNSCORED_REASONS = {
    "no_open_frame": "no frame without a stop codon",
    "repetitive": "tandem repeats",
    "ambiguous": "too few known bases",
    "too_short": "too short",
    "failed": "could not be embedded",
}
FILES = {
    "_report.html": "all of this as a page, with figures: open it in a browser",
    "_virus.tsv": "the records classified as viral, the most certain first",
    "_virus.fna": "their sequences, and those of any viral regions",
    "_virus.fastq.gz": "the same with qualities",
    "_virus_1.fastq.gz": "their first mates, with qualities",
    "_virus_2.fastq.gz": "their second mates, in the same order",
    "_virus_1.fna": "their first mates",
    "_virus_2.fna": "their second mates, in the same order",
    "_virus_genes.gff3": "their genes, and those of any viral regions",
    "_virus_genes.faa": "the proteins of these genes",
    "_regions.tsv": "the viral regions, such as proviruses, with their places",
    "_regions.bed": "the same for genome browsers",
    "_regions.gff3": "the same for annotation programs",
    "_contigs.tsv": "every record, with its call and its score",
    "_chunks.tsv": "every chunk, with its scores",
    "_merged/prediction_results.txt": "",
    "_merged/prediction_results_highestscore.csv": "",
    "_run.json": "how the results were made",
    "_mqc.tsv": "the counts for MultiQC",
    "_failed_sequences.fa": "the records that have to be tried again",
}
"""What the files hold, by the ends of their names."""


def outcome_text(outcome: Outcome, layout: Layout) -> list[str]:
    """Return the result of a run in sentences; paths are relative to the current folder."""
    results, record = outcome.results, outcome.record
    noun = "pair" if {"mates", "interleaved"} & record["input"].keys() else "record"
    lines = [record["notice"]] if "notice" in record else []
    if outcome.computed == 0:
        lines.append("Nothing to compute: this run was already finished, its results are intact.")
    lines += call_lines(results, layout, noun)
    if total := sum(results.unscored.values()):
        lines.append(f"{counted(total, noun)} could not be judged, and may be viral:")
        lines += [f"  {n:,} unscored: {UNSCORED_REASONS[r]}" for r, n in results.unscored.items()]
    if chunks := sum(results.chunks.values()):
        lines.append(f"{part_of(results.chunks.get('scored', 0), chunks, 'chunk')} scored.")
    if outcome.failed_records:
        lines.append(
            f"{counted(outcome.failed_records, noun)} could not be scored in full: see "
            f"failed_files.txt; the same command tries them again."
        )
    ends = [end for end in FILES if (layout.root / f"{layout.stem}{end}").exists()]
    width = max(len(end) for end in ends if FILES[end])
    rows = (
        f"  {layout.stem}{end:{width}}  {FILES[end].replace('record', noun)}".rstrip()
        for end in ends
    )
    root = shared.shown_path(layout.root)
    return [*lines, f"Results in {root}; open the first file first:", *rows]


def call_lines(results: OutputFigures, layout: Layout, noun: str) -> list[str]:
    """Return what was found by a run; ``noun`` says what gets a call: ``record`` or ``pair``.

    Where the records are long, as those of one genome are, its viral regions come first.
    """
    calls, records = results.calls, results.records
    if results.scored == 0:
        return [f"{part_of(0, records, noun)} scored."]
    virus, nonvirus, undecided = (calls.get(c, 0) for c in ("virus", "nonvirus", "undecided"))
    lines = [f"{calls_text(virus, records, noun, results.tiers, results.hallmarked)}."]
    if (results.highest_rate or 0) > DOUBTFUL:
        rate = percent(results.highest_rate)
        lines.append(f"About {rate} of these are probably not viruses (column fdr).")
        if 2 * (left := virus - results.doubtful) >= virus:
            lines[-1] += (
                f" To keep this at {percent(DOUBTFUL)}, which leaves {left:,} of them: virnucpro "
                f"call {shlex.quote(str(shared.shown_path(layout.root)))} "
                f"{replace(results.thresholds, max_fdr=DOUBTFUL).options()}"
            )
    lines += [results.caution] if results.caution else []
    if results.unfamiliar:
        lines.append(
            f"Unlike all that lite was trained on: {results.unfamiliar:,} of these (column "
            f"unfamiliar). Calls of such {noun}s are wrong more often."
        )
    lines.append(f"Other {noun}s: {nonvirus:,} classified as nonviral, {undecided:,} undecided.")
    regions = [f"{regions_text(*results.region_counts)}."] if results.regions else []
    if results.bases < LONG_RECORDS * records:
        return lines + regions
    if virus:
        lines.append(
            "The records are long, as those of one genome are. Records of one genome are right or "
            "wrong together: trust hallmark genes rather than fdr."
        )
    return regions + lines


def samples_text(samples: Sequence[Sample], folder: SamplesFolder, *, overview: bool) -> list[str]:
    """Return what became of several samples, in sentences, and the files about all of them."""
    outcomes = [sample.outcome for sample in samples if sample.outcome]
    notices = (outcome.record.get("notice") for outcome in outcomes)
    lines = list(filter(None, dict.fromkeys(notices)))
    if outcomes and not any(outcome.computed for outcome in outcomes):
        lines.append("Nothing to compute: these runs were already finished.")
    finished = sum(sample.state == "finished" for sample in samples)
    lines.append(f"{part_of(finished, len(samples), 'sample')} finished.")
    for sample in samples:
        if sample.state == "partial":
            lines.append(f"  {sample.name}: some records could not be scored in full")
        elif sample.state != "finished":
            lines.append(f"  {sample.name} {sample.state}: {sample.message}")
    if outcomes:
        viral = sum(outcome.results.calls.get("virus", 0) for outcome in outcomes)
        tiers = sum((Counter(outcome.results.tiers) for outcome in outcomes), Counter[str]())
        records = sum(outcome.results.records for outcome in outcomes)
        hallmarked = sum(outcome.results.hallmarked for outcome in outcomes)
        lines.append(f"{calls_text(viral, records, 'record', tiers, hallmarked)}.")
        counts = [
            sum(column)
            for column in zip(*(each.results.region_counts for each in outcomes), strict=True)
        ]
        if counts[0]:
            lines.append(f"{regions_text(*counts)}.")
    lines.append(f"One row per sample: {shared.shown_path(folder.summary_table)}")
    if overview and folder.overview.exists():
        lines.append(f"All samples on one page: {shared.shown_path(folder.overview)}")
    return lines
