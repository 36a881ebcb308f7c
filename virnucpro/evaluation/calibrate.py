"""Calibrate a classifier on the scores of records of known origin, which are part of the package.

One half of the genomes of each group gives the numbers that error rates rest on; the other half is
called with them, and measured.
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
from virnucpro.classifier.mixture import with_distributions
from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.evaluation.tables import CONTIG_LENGTHS
from virnucpro.events import Show, StepAdvanced, StepStarted
from virnucpro.formatting import aligned
from virnucpro.layout import Layout
from virnucpro.metrics.classification import (
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
# Below this AUROC of measured records there are no rates. Of a classifier with 0.68, 46 % of the
# records with a rate of at most 5 % were wrong: where others and viruses hardly differ, any share
# of virus explains a sample. Models between 0.68 and that of lite, 0.98, were not tried.
LEAST_AUROC = 0.85
SHARES = (0.03, 0.14, 0.5)  # of virus in the samples that are drawn
DRAWN, DRAWS = 300, 10  # records of a sample, and samples of each share
GENES_AT_A_TIME = 50  # records
SEED = 1


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


def fit_contigs(chunks: Chunks, virus: Bools, groups: npt.NDArray[np.str_]) -> ContigModel:
    """Return the model of contigs with 1 to 32 scored chunks.

    Args:
        chunks: those of all records.
        virus, groups: ``[records]``; a group has one label.

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
    temperature = fit_temperature(odds[places], label[places])
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
    model = fit_contig_model(known[chosen], virus[chosen])
    _, numbers = np.unique(group[first], return_inverse=True)
    return with_distributions(model, known, virus, numbers)._replace(temperature=temperature)


def calibrate_run(
    table: DataFrame, sequences: list[str], layout: Layout, show: Show
) -> Calibration:
    """Return the calibration of the models of a finished run over the known records.

    ``table`` and ``sequences`` are those of :func:`known_records`.
    """
    run = open_run(layout.root, layout.stem).record
    chunks, virus = read_chunks(layout.chunks_table), (table.label == "virus").to_numpy()
    groups, is_measured = table.group.to_numpy(str), (table.half == "measure").to_numpy()
    fitting = chunks.chosen(~is_measured[chunks.record])
    model = fit_contigs(fitting, virus, groups)
    lengths = np.array(list(map(len, sequences)))
    found, odds = summarise(lengths, chunks, model)
    scored = found.status == SCORED
    rows = np.zeros((len(lengths), 2))
    rows[scored] = odds
    contigs = Contigs(virus, groups, lengths, found, rows, no_evidence(len(lengths)))
    searched = is_searched(lengths, found.virus_score, DEFAULT_THRESHOLDS)
    places, evidence, finder = (
        np.flatnonzero(is_measured & searched),
        contigs.evidence,
        gene_finder(),
    )
    show(StepStarted("genes", len(places)))
    for own in np.array_split(places, 1 + len(places) // GENES_AT_A_TIME):
        predicted = dict(zip(own.tolist(), finder.find([sequences[i] for i in own]), strict=True))
        finder.find_virus_markers(
            [
                (genes, [None])
                for place, genes in predicted.items()
                if may_be_viral(float(found.virus_score[place]), genes.hits, DEFAULT_THRESHOLDS)
            ]
        )
        for place, genes in predicted.items():
            evidence.put(place, *count_functions(genes.hits))
        show(StepAdvanced(len(own)))
    models = run["models"]
    encoders = (models[name]["sha256"] for name in ("nucleotide", "protein") if name in models)
    return Calibration(
        producer=f"virnucpro {__version__}",
        records=hashed(RECORDS).sha256,
        weights=(models["classifier"]["sha256"], *encoders),
        precision=run["precision"],
        chunk_length=layout.chunk_length,
        contigs=model,
        figures=figures_of(contigs, is_measured, model),
    )


def figures_of(contigs: Contigs, is_measured: Bools, model: ContigModel) -> dict[str, Json]:
    """Return what was measured: ``records`` by label, length and group, and ``samples``.

    Raises:
        InputError: the scores tell viruses from others too little.
    """
    scored = contigs.found.status == SCORED
    sample = contigs.chosen(np.flatnonzero(is_measured & scored))
    _, calls = called_as_sample(sample, model)
    called, scores = np.array(calls.call) == "virus", sample.found.virus_score
    virus = sample.virus
    slices = [("all", np.ones(len(virus), bool), is_measured)]
    for low, high in zip(CONTIG_LENGTHS, (*CONTIG_LENGTHS[1:], 10**9), strict=True):
        name = f"{low:,} to {high:,} bases" if high < 10**9 else f"from {low:,} bases"
        its, every = ((n.lengths >= low) & (n.lengths < high) for n in (sample, contigs))
        slices.append((name, its, every & is_measured))
    for group in dict.fromkeys(contigs.groups[np.argsort(~contigs.virus, kind="stable")].tolist()):
        its, every = ((n.groups == group) for n in (sample, contigs))
        slices.append((group, its, every & is_measured))
    rows = []
    for name, own, every in slices:
        label = None if len(set(virus[own].tolist())) != 1 else bool(virus[own][0])
        beside = own if label is None else own | (virus != label)
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
    return {"records": rows, "samples": [_sampled(sample, share, model) for share in SHARES]}


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


def calibration_text(calibration: Calibration) -> list[str]:
    """Return the tables for the terminal."""

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %" if whole else "-"

    heading = "records", "measured", "without a score", "AUROC", "viruses called", "others called"
    rows: list[tuple[str, ...]] = [heading]
    for row in calibration.figures["records"]:
        cells = row["name"], f"{row['records']:,}", share(row["unscored"], row["records"])
        parts = (share(row[f"{key}_called"], row[key]) for key in ("viruses", "others"))
        rows.append((*cells, metric_text(row["auroc"]), *parts))
    samples: list[tuple[str, ...]] = [
        ("virus in a sample", "records", "called", "wrong, stated", "realised")
    ]
    for row in calibration.figures["samples"]:
        rates = (
            f"{100 * row[key]:.1f} %" if row[key] is not None else "-"
            for key in ("stated", "realised")
        )
        samples.append(
            (f"{row['virus']:.0%}", f"{row['records']:,}", f"{row['called']:.0f}", *rates)
        )
    return [*aligned(rows), "", *aligned(samples)]
