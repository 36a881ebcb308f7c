"""Calibrate a classifier on the scores of records of known origin, which are part of the package.

One half of the genomes of each group gives the numbers that error rates rest on, and the other half
is called with them, and measured. Then both halves give the numbers that are written.
"""

from __future__ import annotations

import lzma
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.calibration import Calibration
from virnucpro.classifier.contigs import ContigModel, contig_terms, fit_contig_model
from virnucpro.classifier.evidence import GeneEvidence, no_evidence
from virnucpro.classifier.files import inspect_classifier
from virnucpro.classifier.mixture import with_distributions
from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.evaluation.tables import CONTIG_LENGTHS
from virnucpro.events import Show, StepAdvanced, StepStarted
from virnucpro.formatting import aligned, markdown_table, markdown_text
from virnucpro.layout import Layout
from virnucpro.metrics import (
    HIGHEST,
    LOWEST,
    Bools,
    Floats,
    Ints,
    auroc,
    fit_temperature,
    metric_text,
)
from virnucpro.results import open_run
from virnucpro.settings import DEFAULT_THRESHOLDS
from virnucpro.stages.calls import (
    SCORED,
    STATUSES,
    Calls,
    Chunks,
    Rates,
    Summaries,
    call_of,
    contig_rates,
    log_odds,
    summarise,
)
from virnucpro.stages.genes import count_functions
from virnucpro.stages.output import gene_finder, is_searched, may_be_viral
from virnucpro.store.hashed import hashed
from virnucpro.tables import CHUNKS
from virnucpro.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

RECORDS = Path(__file__).parents[1] / "data" / "calibration.fa.xz"
TABLE = RECORDS.with_name("calibration.tsv")
COUNTS = (1, 2, 4, 8, 16, 32)  # scored chunks of the contigs that are cut side by side
FEWEST = 100  # scored chunks of either label
# Below this AUROC of measured records there are no rates: where others and viruses hardly differ,
# any share of virus explains a sample. Of a classifier with 0.68, 46 % of the records with a rate
# of at most 5 % were wrong; of one with 0.83, 40 % of the calls in samples of other genomes with
# 14 % virus, where 26 % were stated (47 and 13 % without genes). From there to 0.97 is not tried.
LEAST_AUROC = 0.85
SHARES = (0.03, 0.14, 0.5)  # of virus in the samples that are drawn
DRAWN, DRAWS = 300, 10  # records of a sample, and samples of each share
GENES_AT_A_TIME = 50  # records
SEED = 1
RELATIVES = (
    "Models that were trained on these genomes or on relatives look too good here. The released "
    "ones may have been; lite has read some of the viruses."
)
Rows = list[tuple[str, ...]]


class Contigs(NamedTuple):
    """Records of known origin: arrays ``[records]``, and what ``summarise`` says of them."""

    virus: Bools
    groups: npt.NDArray[np.str_]
    lengths: Ints
    found: Summaries
    odds: Floats  # a number, or a row, for each record; all have a scored chunk
    evidence: GeneEvidence

    def chosen(self, which: Ints) -> Contigs:
        """Return some of the records."""
        return Contigs(
            virus=self.virus[which],
            groups=self.groups[which],
            lengths=self.lengths[which],
            found=Summaries._make(column[which] for column in self.found),
            odds=self.odds[which],
            evidence=self.evidence.chosen(which),
        )


def known_records(fraction: float) -> tuple[DataFrame, list[str]]:
    """Return the table of the records of the package, and their sequences.

    With a ``fraction`` below 1, they are the first ones of either half of each group.
    """
    import pandas

    table = pandas.read_csv(TABLE, sep="\t", keep_default_na=False)
    lines = lzma.decompress(RECORDS.read_bytes()).decode("ascii").splitlines()
    table["sequence"] = lines[1::2]
    groups = table.groupby(["label", "group", "half"]).record
    table = table[groups.cumcount() < np.ceil(fraction * groups.transform("size"))]
    return table.drop(columns="sequence"), table.sequence.tolist()


def read_chunks(path: Path) -> Chunks:
    """Return the chunks of all records in a table of ``predict``."""
    names = ("record", "start", "end", "status", "max_score_0", "max_score_1")
    number = {status: place for place, status in enumerate(STATUSES)}
    rows: list[tuple[int, int, int, int]] = []
    pairs: list[tuple[float, float]] = []
    for place, (_, own) in enumerate(groupby(CHUNKS.read(path, *names), key=itemgetter(0))):
        for _, start, end, status, others, virus in own:
            rows.append((place, int(start) - 1, int(end), number[status]))
            is_scored = status == STATUSES[SCORED]
            pairs.append((float(others), float(virus)) if is_scored else (np.nan, np.nan))
    return Chunks(*np.array(rows).T, *np.array(pairs).T)


def by_turns(groups: npt.NDArray[np.str_], chance: np.random.Generator) -> Ints:
    """Return all places, so that every group has its turn before one has the next."""
    turns: dict[str, int] = defaultdict(int)
    ranked = []
    for place in chance.permutation(len(groups)).tolist():
        turns[groups[place]] += 1
        ranked.append((turns[groups[place]], place))
    return np.array([place for _, place in sorted(ranked, key=itemgetter(0))], int)


def draw(contigs: Contigs, share: float, count: int, chance: np.random.Generator) -> Ints | None:
    """Return ``count`` contigs with ``share`` virus, the groups of a label alike; None: too few."""
    chosen = []
    viruses = round(count * share)
    for label, wanted in ((True, viruses), (False, count - viruses)):
        places = np.flatnonzero(contigs.virus == label)
        if len(places) < wanted:
            return None
        chosen.append(places[by_turns(contigs.groups[places], chance)[:wanted]])
    return np.concatenate(chosen)


def called_as_sample(sample: Contigs, model: ContigModel | None) -> tuple[Rates, Calls]:
    """Return the rates and the calls of a sample, as `virnucpro predict` gives them."""
    lengths, found, evidence = sample.lengths, sample.found, sample.evidence
    rates = contig_rates(sample.odds, found.chunks_scored, lengths, evidence, model)
    return rates, call_of(lengths, found, rates, evidence)


def fit_contigs(
    chunks: Chunks, virus: Bools, groups: npt.NDArray[np.str_], own: ContigModel | None = None
) -> ContigModel:
    """Return the model of contigs with 1 to 32 scored chunks.

    Args:
        chunks: those of all records.
        virus, groups: ``[records]``; a group has one label.
        own: that of the classifier, where it says how chunks are put together: then this is
            kept, as is its temperature, and only the distributions are fitted.

    Raises:
        InputError: too few chunks are scored, or the scores do not tell the labels apart.
    """
    scored = chunks.chosen(chunks.status == SCORED)
    odds, chance = log_odds(scored), np.random.default_rng(SEED)
    label, group = virus[scored.record], groups[scored.record]

    def balanced(labels: Bools, names: npt.NDArray[np.str_]) -> Ints:
        sides = [np.flatnonzero(labels == side) for side in (False, True)]
        fewer = min(map(len, sides))
        return np.concatenate([side[by_turns(names[side], chance)[:fewer]] for side in sides])

    if min(label.sum(), (~label).sum()) < FEWEST:
        raise InputError(f"calibration needs {FEWEST} scored chunks of either label")
    places = balanced(label, group)
    temperature = fit_temperature(odds[places], label[places]) if own is None else 1.0
    if not LOWEST * 1.01 < temperature < HIGHEST * 0.99 or auroc(label, odds) < 0.5:  # type: ignore[operator]
        raise InputError("these scores are close to guessing: they cannot be calibrated")
    _, begins, sizes = np.unique(scored.record, return_index=True, return_counts=True)
    terms: list[Floats] = []
    first: list[int] = []  # the first chunk of each contig
    chosen: list[int] = []  # as many contigs of either label
    for count in COUNTS:
        starts = [
            start
            for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
            for start in range(begin, begin + size - count + 1, count)
        ]
        if starts:
            values = odds[np.array(starts)[:, None] + np.arange(count)].ravel() / temperature
            first_chunks = np.arange(len(starts)) * count
            terms.append(contig_terms(values, first_chunks, np.full(len(starts), float(count))))
            chosen += (len(first) + balanced(label[starts], group[starts])).tolist()
            first += starts
    known, virus = np.concatenate(terms), label[first]
    if own is None:
        own = fit_contig_model(known[chosen], virus[chosen])
    _, numbers = np.unique(group[first], return_inverse=True)
    return with_distributions(own, known, virus, numbers)._replace(temperature=temperature)


def calibrate_run(
    table: DataFrame, sequences: list[str], layout: Layout, show: Show
) -> Calibration:
    """Return the calibration of the models of a finished run over the known records.

    ``table`` and ``sequences`` are those of :func:`known_records`.
    """
    run = open_run(layout.root, layout.stem).record
    models = run["models"]
    own = inspect_classifier(Path(models["classifier"]["path"])).contigs.get(layout.chunk_length)
    chunks, virus = read_chunks(layout.chunks_table), (table.label == "virus").to_numpy()
    groups, half = table.group.to_numpy(str), table.half.to_numpy(str)
    half_model, model = (
        fit_contigs(chunks.chosen(np.isin(half, halves)[chunks.record]), virus, groups, own)
        for halves in (["fit"], ["fit", "measure"])
    )
    lengths = np.array(list(map(len, sequences)))
    found, odds = summarise(lengths, chunks, half_model)
    scored = found.status == SCORED
    rows = np.zeros((len(lengths), 2))
    rows[scored] = odds
    contigs = Contigs(virus, groups, lengths, found, rows, no_evidence(len(lengths)))
    searched = is_searched(lengths, found.virus_score, DEFAULT_THRESHOLDS)
    places = np.flatnonzero((half != "fit") & searched)
    evidence, finder = contigs.evidence, gene_finder()
    show(StepStarted("genes", len(places)))
    for some in np.array_split(places, 1 + len(places) // GENES_AT_A_TIME):
        predicted = dict(zip(some.tolist(), finder.find([sequences[i] for i in some]), strict=True))
        finder.find_virus_markers(
            [
                (genes, [None])
                for place, genes in predicted.items()
                if may_be_viral(float(found.virus_score[place]), genes.hits, DEFAULT_THRESHOLDS)
            ]
        )
        for place, genes in predicted.items():
            evidence.put(place, *count_functions(genes.hits))
        show(StepAdvanced(len(some)))
    encoders = (models[name]["sha256"] for name in ("nucleotide", "protein") if name in models)
    return Calibration(
        producer=f"virnucpro {__version__}",
        records=hashed(RECORDS).sha256,
        weights=(models["classifier"]["sha256"], *encoders),
        precision=run["precision"],
        chunk_length=layout.chunk_length,
        contigs=model,
        figures=figures_of(contigs, half, half_model),
    )


def figures_of(contigs: Contigs, half: npt.NDArray[np.str_], model: ContigModel) -> dict[str, Json]:
    """Return what was measured: ``records`` by length and group, and ``samples``.

    ``half`` says ``measure`` of some records. Those that are ``only measured`` count in the rows of
    their groups alone.

    Raises:
        InputError: the scores tell viruses from others too little.
    """
    is_measured, is_scored = half == "measure", contigs.found.status == SCORED
    slices = [("all", is_measured)]
    for low, high in zip(CONTIG_LENGTHS, (*CONTIG_LENGTHS[1:], 10**9), strict=True):
        name = f"{low:,} to {high:,} bases" if high < 10**9 else f"from {low:,} bases"
        slices.append((name, is_measured & (contigs.lengths >= low) & (contigs.lengths < high)))
    for group in dict.fromkeys(contigs.groups[np.argsort(~contigs.virus, kind="stable")].tolist()):
        slices.append((group, (half != "fit") & (contigs.groups == group)))
    places = np.flatnonzero((half != "fit") & is_scored)
    sample = contigs.chosen(places)
    _, calls = called_as_sample(sample, model)
    called, scores = np.array(calls.call) == "virus", sample.found.virus_score
    virus = sample.virus
    rows = []
    for name, every in slices:
        own = every[places]
        label = None if len(set(virus[own].tolist())) != 1 else bool(virus[own][0])
        beside = own if label is None else own | (is_measured[places] & (virus != label))
        area = auroc(virus[beside], scores[beside]) if own.any() else None
        row: dict[str, Json] = {"name": name, "records": int(every.sum())}
        row["unscored"] = int(every.sum() - own.sum())
        row["auroc"] = None if area is None else round(area, 4)
        for key, side in (("viruses", virus), ("others", ~virus)):
            row[f"{key}"] = int((own & side).sum())
            row[f"{key}_called"] = int((own & side & called).sum())
        rows.append(row)
    area = rows[0]["auroc"]
    if area is None or area < LEAST_AUROC:
        raise InputError(
            f"the AUROC of records that were not fitted is {metric_text(area)}, less than "
            f"{LEAST_AUROC}: rates of these scores would be wrong, and none are written"
        )
    drawn = contigs.chosen(np.flatnonzero(is_measured & is_scored))
    return {"records": rows, "samples": [_sampled(drawn, share, model) for share in SHARES]}


def _sampled(contigs: Contigs, share: float, model: ContigModel) -> dict[str, Json]:
    """Return the means over samples with a share of virus: calls, and rates of wrong ones."""
    chance = np.random.default_rng((SEED, round(100 * share)))
    called = wrong = 0
    stated = []
    count = min(DRAWN, int((~contigs.virus).sum() / (1 - share)), int(contigs.virus.sum() / share))
    for _ in range(DRAWS):
        places = draw(contigs, share, count, chance)
        assert places is not None
        sample = contigs.chosen(places)
        rates, calls = called_as_sample(sample, model)
        is_called = np.array(calls.call) == "virus"
        called, wrong = called + is_called.sum(), wrong + (is_called & ~sample.virus).sum()
        stated.append(float(np.max(rates.fdr[is_called], initial=0.0)))
    return {
        "virus": share,
        "records": count,
        "called": round(float(called) / DRAWS, 1),
        "stated": round(float(np.mean(stated)), 4),
        "realised": round(float(wrong / called), 4) if called else None,
    }


def tables_of(calibration: Calibration) -> tuple[Rows, Rows]:
    """Return what was measured by length and group, and in samples, each with its headings."""

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %" if whole else "-"

    heading = "records", "measured", "without a score", "AUROC", "viruses called", "others called"
    rows: Rows = [heading]
    for row in calibration.figures["records"]:
        cells = row["name"], f"{row['records']:,}", share(row["unscored"], row["records"])
        parts = (share(row[f"{key}_called"], row[key]) for key in ("viruses", "others"))
        rows.append((*cells, metric_text(row["auroc"]), *parts))
    samples: Rows = [("virus in a sample", "records", "called", "wrong, stated", "realised")]
    for row in calibration.figures["samples"]:
        rates = (
            f"{100 * row[key]:.1f} %" if row[key] is not None else "-"
            for key in ("stated", "realised")
        )
        samples.append(
            (f"{row['virus']:.0%}", f"{row['records']:,}", f"{row['called']:.0f}", *rates)
        )
    return rows, samples


def calibration_text(calibration: Calibration) -> list[str]:
    """Return the tables for the terminal."""
    rows, samples = tables_of(calibration)
    return [*aligned(rows), "", *aligned(samples), "", RELATIVES]


def calibration_page(calibration: Calibration, classifier: str) -> str:
    """Return the same in Markdown; ``classifier`` is the name of its file."""
    rows, samples = tables_of(calibration)
    about = (
        f"{markdown_text(classifier)}, chunks of {calibration.chunk_length} bases, "
        f"{calibration.precision}, by {calibration.producer}."
    )
    parts = [
        "# Calibration",
        f"{about} Every row is of genomes that its numbers do not rest on.",
        RELATIVES,
        "## Records",
        markdown_table(rows[0], rows[1:]),
        "## Samples",
        markdown_table(samples[0], samples[1:]),
    ]
    return "\n\n".join(parts) + "\n"
