"""A simple method to compare lite with: logistic regression on words of five bases.

    python examples/lite/baseline.py DATASET PIECES

It is trained for each length on windows of the train part of DATASET, drawn as those of lite, and
measured on the pieces of examples/lite/heldout.py. Both strands of a sequence are counted. A piece
of 2,100 or 5,000 bases gets the mean score of its chunks of 500.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from virnucpro.encoders.lite_network import UNKNOWN, base_numbers
from virnucpro.io.frames import chunk_spans
from virnucpro.io.records import Records
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.genomes import GenomeSet, genome_set, measured_windows

WORD = 5
WINDOWS = 60_000
CHUNK_LENGTHS = {150: (150,), 300: (300,), 500: (500, 2100, 5000)}  # and the pieces they are for


def word_shares(bases: np.ndarray) -> np.ndarray:
    """Return the shares of words on both strands: uint8 ``[n, L]`` to ``[n, 4 ** WORD]``."""
    out = np.zeros((len(bases), 4**WORD), np.float32)
    known = np.where(bases == UNKNOWN, 0, bases)
    for strand in (known, 3 - known[:, ::-1]):
        width = strand.shape[1] - WORD + 1
        words = sum(
            strand[:, i : i + width].astype(np.int64) * 4 ** (WORD - 1 - i) for i in range(WORD)
        )
        for row in range(len(bases)):
            out[row] += np.bincount(words[row], minlength=4**WORD)
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def model_for(genomes: GenomeSet, length: int) -> Pipeline:
    """Fit a model on as many windows of either label."""
    records, offsets = measured_windows(genomes, length, WINDOWS, 0)
    features = word_shares(genomes.windows(records, offsets, length))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    return model.fit(features, genomes.virus[records])


def measure(model: Pipeline, path: Path, labels: dict[str, bool], length: int) -> tuple[float, int]:
    """Return AUROC and number of the pieces in ``path``."""
    scores, virus = [], []
    for record in Records(path):
        chunks = [record.sequence[a:b] for a, b in chunk_spans(len(record.sequence), length)]
        shares = np.concatenate([word_shares(base_numbers([chunk])) for chunk in chunks])
        scores.append(float(model.decision_function(shares).mean()))
        virus.append(labels[record.id])
    return roc_auc_score(virus, scores), len(virus)


def main() -> None:
    """Print a line for each length of the pieces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("pieces", type=Path)
    args = parser.parse_args()
    with (args.pieces / "labels.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        labels = {row["record"]: row["label"] == "virus" for row in rows}
    genomes = genome_set(Dataset(args.dataset).records("train"))
    for chunk_length, piece_lengths in CHUNK_LENGTHS.items():
        model = model_for(genomes, chunk_length)
        for length in piece_lengths:
            path = args.pieces / f"pieces_{length}.fa"
            auroc, number = measure(model, path, labels, chunk_length)
            print(f"{length} bp: AUROC {auroc:.3f}, {number} pieces", flush=True)


if __name__ == "__main__":
    main()
