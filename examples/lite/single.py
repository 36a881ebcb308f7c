"""Print what is called virus of single genomes of hosts, each as a sample of its own.

    python examples/lite/single.py LABELS predicted/records_run.json

The arguments are those of mixtures.py. Each genome with 300,000 scored bases or more is called as
its records are, in contigs of 2,000 to 50,000 bases (all lengths alike on a logarithmic scale), and
in these together with one other genome, the one before it in the list. A row has the share of its
bases that are called virus, and of those with the tier high; and the share of the contigs whose
call, or whose tier by more than one step, is another one beside the other genome.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mixtures import Known, cut, known_records, model_of, with_evidence

from virnucpro.classifier.contigs import ContigModel
from virnucpro.evaluation.calibrate import Contigs, called_as_sample
from virnucpro.results import open_run
from virnucpro.stages.calls import TIERS

FEWEST = 300_000  # bases of a genome
SHORTEST, LONGEST = 2_000, 50_000  # bases of a contig


def whole(_: np.random.Generator) -> float:
    """Return more bases than a record has."""
    return 1e9


def of_any_length(chance: np.random.Generator) -> float:
    """Return the bases of a contig."""
    return float(np.exp(chance.uniform(np.log(SHORTEST), np.log(LONGEST))))


def shares(sample: Contigs, model: ContigModel | None) -> tuple[float, float]:
    """Return the share of the bases that are called virus, and that with the tier high."""
    _, calls = called_as_sample(sample, model)
    is_virus = np.array(calls.call) == "virus"
    is_high = is_virus & (np.array(calls.tier) == "high")
    total = sample.lengths.sum()
    return sample.lengths[is_virus].sum() / total, sample.lengths[is_high].sum() / total


def changed(alone: Contigs, together: Contigs, model: ContigModel | None) -> float:
    """Return the share of contigs that are called otherwise ``together`` with other ones."""
    (_, own), (_, beside) = (called_as_sample(sample, model) for sample in (alone, together))
    pairs = zip(own.call, beside.call, own.tier, beside.tier, strict=False)
    is_changed = [
        call != other or abs(TIERS.index(tier or "low") - TIERS.index(step or "low")) > 1
        for call, other, tier, step in pairs
    ]
    return float(np.mean(is_changed))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path)
    parser.add_argument("run", type=Path, help="STEM_run.json file of predict")
    args = parser.parse_args()
    run = open_run(args.run.parent, args.run.name.removesuffix("_run.json"))
    length = int(run.record["settings"]["analysis"]["chunk_length"])
    model = model_of(args.run)
    sequences = Path(run.record["input"]["path"])
    cache = args.run.parent / f"{run.stem}_evidence.json"
    genomes: dict[tuple[str, str], list[Known]] = defaultdict(list)
    for record in known_records(args.labels, args.run):
        if not record.virus:
            genomes[record.group, record.genome].append(record)
    long = {
        place: records
        for place, records in genomes.items()
        if sum(len(record.chunks.start) for record in records) * length >= FEWEST
    }

    def sample(records: list[Known], drawn: Callable[[np.random.Generator], float]) -> Contigs:
        return with_evidence(*cut(records, length, model, drawn), sequences, cache)

    print("| group | genome | Mbp | records: virus | high | contigs: virus | high | changed |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    others = [[*long.values()][-1], *long.values()]  # of each genome, the one before it
    for ((group, genome), records), other in zip(long.items(), others, strict=False):
        contigs = sample(records, of_any_length)
        row = [*shares(sample(records, whole), model), *shares(contigs, model)]
        row.append(changed(contigs, sample(records + other, of_any_length), model))
        rows.append(row)
        million = contigs.lengths.sum() / 1e6
        texts = (f"{100 * share:.2f} %" for share in row)
        print(f"| {group} | {genome} | {million:.1f} |", " | ".join(texts), "|", flush=True)
    worst = (f"{100 * share:.2f} %" for share in np.max(rows, axis=0))
    print(f"| worst of {len(rows)} | | |", " | ".join(worst), "|")
    mean = (f"{100 * share:.2f} %" for share in np.mean(rows, axis=0))
    print("| mean | | |", " | ".join(mean), "|")


if __name__ == "__main__":
    main()
