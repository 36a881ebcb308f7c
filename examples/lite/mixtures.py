"""Compare stated and realised false discovery rates in mixtures with a known share of virus.

    virnucpro predict pieces_500.fa -o predicted_500 -m lite -e 500
    python examples/lite/mixtures.py labels.tsv predicted_500/pieces_500_run.json [...]

labels.tsv is a table with the columns record, label and group, as heldout.py writes it. The records
are predicted once. From their scores, --draws samples of --records records are drawn for each share
of virus (1, 10 and 50 %), and every group of a label is drawn alike. For each sample the rates are
estimated as `virnucpro predict` does, and the records below a stated rate are counted. A row of
the table that is printed holds the means over the samples: the records with at most that rate, the
viruses among all viruses that are found that way, and the share of others among those records. A
realised rate above the stated one means that the estimate promises too much.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.files import inspect_classifier
from virnucpro.evaluation.labels import read_labels
from virnucpro.results import open_run
from virnucpro.stages.calls import SCORED, Chunks, contig_fdr, summarise
from virnucpro.tables import CHUNKS

SHARES = (0.01, 0.1, 0.5)
STATED = (0.01, 0.05, 0.1, 0.2)
SEED = 1
Scores = list[tuple[bool, str, list[float]]]
"""Label, group and probabilities of each scored record."""


def read_scores(record: Path, labels: Path) -> tuple[Scores, ContigModel | None]:
    """Return the records with a score of the run of a ``STEM_run.json``, and its contig model."""
    run = open_run(record.parent, record.name.removesuffix("_run.json"))
    length = int(run.record["settings"]["analysis"]["chunk_length"])
    classifier = inspect_classifier(Path(run.record["models"]["classifier"]["path"]))
    model = classifier.contigs.get(length)
    table = read_labels(labels).set_index("record")
    known = {
        name: (label == "virus", group)
        for name, label, group in table[["label", "group"]].itertuples()
    }
    names = ("record", "start", "end", "status", "max_score_0", "max_score_1")
    rows = CHUNKS.read(run.folder / CHUNKS.path.format(stem=run.stem), *names)
    scores = []
    for name, own in groupby(rows, key=itemgetter(0)):
        scored = [
            (0, int(start) - 1, int(end), SCORED, float(others), float(virus))
            for _, start, end, status, others, virus in own
            if status == "scored"
        ]
        if (label := known.get(name)) and scored:
            chunks = Chunks(*map(np.array, zip(*scored, strict=True)))
            scores.append((*label, summarise(np.array([1]), chunks, model)[1].tolist()))
    return scores, model


def draw(scores: Scores, share: float, records: int, generator: np.random.Generator) -> Scores:
    """Return ``records`` records with ``share`` virus; the groups of a label are drawn alike."""
    groups: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for number, (virus, group, _) in enumerate(scores):
        groups[virus, group].append(number)
    drawn: list[int] = []
    viruses = round(records * share)
    for virus, count in ((True, viruses), (False, records - viruses)):
        own = [numbers for (label, _), numbers in groups.items() if label == virus]
        if sum(map(len, own)) < count:
            raise SystemExit(f"too few records for a share of {share:g}: use fewer --records")
        shuffled = [generator.permutation(numbers).tolist() for numbers in own]
        # One of each group after the other, as long as the groups last.
        turns = [(turn, number) for numbers in shuffled for turn, number in enumerate(numbers)]
        turns.sort(key=itemgetter(0))
        drawn += [number for _, number in turns[:count]]
    return [scores[number] for number in drawn]


def measure(sample: Scores, model: ContigModel | None = None) -> list[tuple[int, float, float]]:
    """Return records, share of the viruses found and realised rate, for each stated rate."""
    virus = np.array([label for label, _, _ in sample])
    probabilities = np.concatenate([found for _, _, found in sample])
    fdr = contig_fdr(probabilities, np.array([len(found) for _, _, found in sample]), model)
    rows = []
    for stated in STATED:
        called = fdr <= stated
        count, right = int(called.sum()), int((called & virus).sum())
        rows.append((count, right / max(1, virus.sum()), (count - right) / count if count else 0.0))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="STEM_run.json files of predict")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=20)
    args = parser.parse_args()
    print("| run | virus | stated, at most | records | viruses found | realised |")
    print("|---|---|---|---|---|---|")
    for record in args.runs:
        scores, model = read_scores(record, args.labels)
        name = record.name.removesuffix("_run.json")
        for share in SHARES:
            generator = np.random.default_rng(SEED)
            draws = [
                measure(draw(scores, share, args.records, generator), model)
                for _ in range(args.draws)
            ]
            means = np.mean(np.array(draws), axis=0)
            for stated, (count, found, realised) in zip(STATED, means.tolist(), strict=True):
                row = (name, f"{100 * share:.0f} %", stated, f"{count:.0f}", f"{found:.3f}")
                print(f"| {' | '.join(map(str, row))} | {realised:.3f} |")


if __name__ == "__main__":
    main()
