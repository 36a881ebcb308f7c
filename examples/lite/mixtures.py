"""Print rates, tiers and calls of known samples, or how groups of records differ.

    virnucpro predict records.fa -o predicted -m lite -e 500
    python examples/lite/mixtures.py figures LABELS predicted/records_run.json [...]
    python examples/lite/mixtures.py groups LABELS predicted/records_run.json [...]

LABELS is a table with the columns record, label and group. The records of a run are cut into
contigs with lengths as those of assemblies: 500 to 50,000 bases, logarithmically normal with a
median of 1,300. A shorter record, such as a read, stays as it is.

`groups` prints what two constants of virnucpro/classifier/mixture.py rest on.

`figures` draws samples of each share of virus; every group of a label is drawn alike, as long as
it lasts. They are called as `virnucpro predict` does it. A row is the mean over the draws: the
records that are called virus; the share of them that are wrong as stated, the highest `fdr` among
them, and as realised; for records of 2,000 bases and more, the shares of phages, viruses and
others that are called; the right calls among them that have the tier high; the share of others in
the tiers high and medium, of records of any length; and the viruses that are called nonvirus with
the tier high.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from outside import PHAGES

from virnucpro.classifier.calibration import find_calibrations
from virnucpro.classifier.contigs import ContigModel, contig_terms
from virnucpro.classifier.evidence import no_evidence
from virnucpro.classifier.mixture import MOST_OF_GROUP, UPPER
from virnucpro.evaluation.calibrate import COUNTS, Contigs, called_as_sample, draw
from virnucpro.evaluation.tables import read_labels
from virnucpro.io.records import Records
from virnucpro.results import open_run
from virnucpro.settings import DEFAULT_THRESHOLDS
from virnucpro.stages.calls import (
    SCORED,
    Chunks,
    log_odds,
    summarise,
)
from virnucpro.stages.genes import HALLMARKS, HOST_MARKERS, count_functions
from virnucpro.stages.output import gene_finder, is_searched
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.tables import CHUNKS

SHARES = (0.0, 0.01, 0.03, 0.14, 0.5, 1.0)
MEDIAN, SPREAD, LONGEST = 1300, 0.9, 50_000  # bases; the spread is that of natural logarithms
LONG = 2000  # bases
SEED = 1


class Known(NamedTuple):
    """A record of known content: where it is from, and its scored chunks, as one record."""

    name: str
    virus: bool
    group: str
    genome: str
    chunks: Chunks


Places = list[tuple[str, slice]]
"""Of contigs: the names of their records, and where in these they are."""


def model_of(path: Path) -> ContigModel | None:
    """Return the numbers that a run of a STEM_run.json takes, of its chunk length."""
    run = open_run(path.parent, path.name.removesuffix("_run.json")).record
    length, models = int(run["settings"]["analysis"]["chunk_length"]), run["models"]
    weights = [models[n]["sha256"] for n in ("classifier", "nucleotide", "protein") if n in models]
    name = Path(models["classifier"]["path"]).name
    found = find_calibrations(name, weights, run["precision"], lambda _: None)
    return found[length].contigs if length in found else None


def known_records(labels: Path, path: Path) -> list[Known]:
    """Return the labelled records of the run of a STEM_run.json."""
    table = read_labels(labels)
    known = {r.record: (r.label == "virus", r.group, r.genome) for r in table.itertuples()}
    stem = path.name.removesuffix("_run.json")
    names = ("record", "start", "end", "status", "max_score_0", "max_score_1")
    rows = CHUNKS.read(path.parent / CHUNKS.path.format(stem=stem), *names)
    records = []
    for name, own in groupby(rows, key=itemgetter(0)):
        scored = [
            (0, int(start) - 1, int(end), SCORED, float(others), float(virus))
            for _, start, end, status, others, virus in own
            if status == "scored" and name in known
        ]
        if scored:
            chunks = Chunks(*map(np.array, zip(*scored, strict=True)))
            records.append(Known(name, *known[name], chunks))
    return records


def groups(args: argparse.Namespace) -> None:
    """Print two constants of virnucpro/classifier/mixture.py as they are in these records."""
    for path in args.runs:
        model = model_of(path)
        medians, halves = [], []
        own: dict[tuple[str, bool, int], list[float]] = defaultdict(list)
        for _, label, group, _, chunks in known_records(args.labels, path):
            odds = log_odds(chunks) / model.temperature
            for count in COUNTS:
                starts = np.arange(0, len(odds) // count * count, count)
                if len(starts):
                    terms = contig_terms(
                        odds[: starts[-1] + count], starts, np.full(len(starts), float(count))
                    )
                    own[group, label, count] += model.log_odds(terms).tolist()
        for (_, label, count), values in own.items():
            low, middle, high = np.quantile(values, [1 - UPPER, 0.5, UPPER])
            weight = min(len(values), MOST_OF_GROUP)
            if label:
                halves.append((weight * (middle - low), weight * (high - middle)))
            elif count == 1:
                medians.append((middle, high - middle, weight))
        below, above = np.sum(halves, axis=0)
        middles, spreads, weights = np.array(medians).T
        mean, spread = (np.average(values, weights=weights) for values in (middles, spreads))
        apart = np.sqrt(np.average((middles - mean) ** 2, weights=weights))
        print(
            f"{path}: the spread of viruses below the median is {below / above:.2f} of that above "
            f"it; medians of groups of others have a spread of {apart / spread**2:.2f} squares"
        )


def of_assembly(chance: np.random.Generator) -> float:
    """Return the bases of a contig, as those of assemblies are distributed."""
    while not 500 <= (bases := float(chance.lognormal(np.log(MEDIAN), SPREAD))) <= LONGEST:
        pass
    return bases


def cut(
    records: list[Known],
    length: int,
    model: ContigModel | None,
    drawn: Callable[[np.random.Generator], float] = of_assembly,
) -> tuple[Contigs, Places]:
    """Cut records into contigs of chunks of ``length`` bases, one after the other.

    ``drawn`` returns the bases of one contig. Their genes are not looked for.
    """
    chance = np.random.default_rng(SEED)
    virus: list[bool] = []
    places: Places = []
    groups, lengths, parts = [], [], []
    for record in records:
        first = 0
        while first < len(record.chunks.start):
            part = record.chunks.chosen(slice(first, first + max(1, int(drawn(chance) / length))))
            parts.append(part._replace(record=np.full(len(part.start), len(virus))))
            virus.append(record.virus)
            places.append((record.name, slice(int(part.start[0]), int(part.stop[-1]))))
            groups.append(record.group)
            lengths.append(part.stop[-1] - part.start[0])
            first += len(part.start)
    chunks = Chunks(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    found, odds = summarise(np.array(lengths), chunks, model)
    contigs = Contigs(
        virus=np.array(virus),
        groups=np.array(groups),
        lengths=np.array(lengths),
        found=found,
        odds=odds,
        evidence=no_evidence(len(virus)),
    )
    return contigs, places


def with_evidence(contigs: Contigs, where: Places, sequences: Path, cache: Path) -> Contigs:
    """Return the contigs with the evidence of the genes that `predict` looks for.

    ``sequences`` is what the run has read; ``cache`` keeps what was found with these profiles.
    """
    profiles = " ".join(hashed(path).sha256 for path in (HALLMARKS, HOST_MARKERS))
    known = json.loads(cache.read_bytes()).get(profiles, {}) if cache.exists() else {}
    scores, lengths = contigs.found.virus_score, contigs.lengths
    evidence = no_evidence(len(lengths))
    evidence.searched[:] = is_searched(lengths, scores, DEFAULT_THRESHOLDS)
    places: dict[str, list[tuple[int, str, slice]]] = defaultdict(list)
    for i in np.flatnonzero(evidence.searched).tolist():
        name, own = where[i]
        places[name].append((i, f"{name}:{own.start}-{own.stop}", own))
    missing = {name for name, own in places.items() if any(each[1] not in known for each in own)}
    for record in Records(sequences) if missing else ():
        if record.id in missing:
            new = [(place, own) for _, place, own in places[record.id] if place not in known]
            predicted = gene_finder().find([record.sequence[own] for _, own in new])
            for (place, _), found in zip(new, predicted, strict=True):
                known[place] = count_functions(found.hits)
    if missing:
        Disk().save(cache, json.dumps({profiles: known}).encode())
    for i, place, _ in chain.from_iterable(places.values()):
        evidence.hallmarks[i], evidence.markers[i] = known[place]
    return contigs._replace(evidence=evidence)


def measure(sample: Contigs, model: ContigModel | None) -> list[float]:
    """Return the figures of a row, as counts, but for the stated rate, which is the last one."""
    rates, calls = called_as_sample(sample, model)
    called, tier = np.array(calls.call) == "virus", np.array(calls.tier)
    virus, is_long = sample.virus, sample.lengths >= LONG
    phages = virus & np.array([bool(PHAGES.search(group)) for group in sample.groups])
    counted = [called, called & ~virus]
    for label in (phages, virus, ~virus):
        counted += [called & label & is_long, label & is_long]
    counted.append(called & virus & is_long & (tier == "high"))
    for name in ("high", "medium"):
        counted += [called & (tier == name), called & ~virus & (tier == name)]
    is_lost = virus & (np.array(calls.call) == "nonvirus") & (tier == "high")
    counted += [is_lost, virus]
    return [*(float(which.sum()) for which in counted), np.max(rates.fdr[called], initial=0.0)]


def figures(args: argparse.Namespace) -> None:
    """Print the table."""
    print(
        "| run | where | records | virus | called | wrong, stated | realised | phages from 2 kb "
        "called | viruses | others | of the right ones tier high | wrong of tier high | of medium "
        "| viruses nonvirus, high |"
    )
    print("|" + "---|" * 14)
    for path in args.runs:
        run = open_run(path.parent, path.name.removesuffix("_run.json"))
        length = int(run.record["settings"]["analysis"]["chunk_length"])
        model = model_of(path)
        records = known_records(args.labels, path)
        cache = path.parent / f"{run.stem}_evidence.json"
        for where in ("outside", "held out"):
            own = [r for r in records if r.group.startswith("outside") == (where == "outside")]
            if not own:
                continue
            sequences = Path(run.record["input"]["path"])
            contigs = with_evidence(*cut(own, length, model), sequences, cache)
            for count in args.records or (500, 1500, 3000):
                for share in SHARES:
                    chance = np.random.default_rng((SEED, count, round(1000 * share)))
                    drawn = [draw(contigs, share, count, chance) for _ in range(args.draws)]
                    rows = [measure(contigs.chosen(d), model) for d in drawn if d is not None]
                    if rows:
                        cells = run.stem, where, f"{count:,}", f"{100 * share:.0f} %"
                        print("|", " | ".join([*cells, *cells_of(rows)]), "|", flush=True)


def cells_of(rows: list[list[float]]) -> list[str]:
    """Return the cells of the means over draws; a share is that of all draws together."""

    def share(part: float, whole: float) -> str:
        return f"{100 * part / whole:.1f} %" if whole else "-"

    *counts, stated = np.mean(np.array(rows), axis=0).tolist()
    called, wrong, phages, all_phages, virus, all_virus, others, all_others, *more = counts
    right_high, high, high_wrong, medium, medium_wrong, lost, viruses = more
    return [
        f"{called:.0f}",
        f"{100 * stated:.1f} %",
        share(wrong, called),
        share(phages, all_phages),
        share(virus, all_virus),
        share(others, all_others),
        share(right_high, virus),
        share(high_wrong, high),
        share(medium_wrong, medium),
        share(lost, viruses),
    ]


def main() -> None:
    """Print figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for action in (figures, groups):
        own = commands.add_parser(action.__name__)
        own.set_defaults(action=action)
        if action is figures:
            own.add_argument("--records", type=int, action="append", help="repeatable")
            own.add_argument("--draws", type=int, default=10)
        own.add_argument("labels", type=Path)
        own.add_argument("runs", type=Path, nargs="+", help="STEM_run.json files of predict")
    args = parser.parse_args()
    args.action(args)


if __name__ == "__main__":
    main()
