"""A simple method to compare lite with: logistic regression on words of five bases.

    python examples/lite/baseline.py DATASET PIECES

It is trained for each chunk length on the train part of DATASET, balanced, on the same open frames
as lite. It is measured on the pieces of examples/lite/heldout.py that have an open frame. A piece
of 2,000 bases gets the mean score of its chunks of 500. Both strands of a sequence are counted.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from virnucpro.io.chunks import chunk_spans
from virnucpro.io.frames import open_frames
from virnucpro.io.records import read_records
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.frames import FrameSet, load_frames

WORD = 5
MOST_FRAMES = 60_000  # of either label


def word_shares(codes: np.ndarray) -> np.ndarray:
    """Return the shares of words of bases ``[n, L]``: float32 ``[n, 4 ** WORD]``.

    Words on both strands are counted.
    """
    out = np.zeros((len(codes), 4**WORD), np.float32)
    for strand in (codes, 3 - codes[:, ::-1]):
        width = strand.shape[1] - WORD + 1
        words = sum(
            strand[:, i : i + width].astype(np.int64) * 4 ** (WORD - 1 - i) for i in range(WORD)
        )
        for row in range(len(codes)):
            out[row] += np.bincount(words[row], minlength=4**WORD)
    return out / out.sum(axis=1, keepdims=True)


def bases_of(codons: np.ndarray) -> np.ndarray:
    """Return codons ``[n, l]`` as bases ``[n, 3 l]``."""
    return np.stack([codons >> 4, (codons >> 2) & 3, codons & 3], axis=2).reshape(len(codons), -1)


def model_for(frames: FrameSet) -> object:
    """Fit a model on the same number of frames of either label."""
    random = np.random.default_rng(0)
    whole = np.flatnonzero(frames.whole())
    rows = [random.permutation(whole[frames.virus[whole] == label]) for label in (False, True)]
    size = min(MOST_FRAMES, *map(len, rows))
    chosen = np.concatenate([label_rows[:size] for label_rows in rows])
    features = word_shares(bases_of(frames.codons[chosen, : frames.length // 3 - 1]))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    return model.fit(features, frames.virus[chosen])


def measure(model: object, path: Path, labels: dict[str, bool], length: int) -> tuple[float, ...]:
    """Return AUROC, accuracy and number of the pieces in ``path`` that have an open frame."""
    scores, virus = [], []
    table = np.full(256, 0, np.uint8)
    table[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2
    for record in read_records(path):
        chunks = [record.sequence[a:b] for a, b in chunk_spans(len(record.sequence), length)]
        framed = [c for c, f in zip(chunks, open_frames(chunks), strict=True) if f.frames]
        if not framed:
            continue
        codes = [table[np.frombuffer(chunk.encode(), np.uint8)][None] for chunk in framed]
        chunk_scores = [model.decision_function(word_shares(code))[0] for code in codes]
        scores.append(float(np.mean(chunk_scores)))
        virus.append(labels[record.id])
    calls = np.array(scores) > 0
    return roc_auc_score(virus, scores), accuracy_score(virus, calls), len(virus)


def main() -> None:
    """Print a line for each length of the pieces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("pieces", type=Path)
    args = parser.parse_args()
    with (args.pieces / "labels.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        labels = {row["record"]: row["label"] == "virus" for row in rows}
    for frames in load_frames(Dataset(args.dataset), "train")[0]:
        model = model_for(frames)
        for length in {500: (500, 2000)}.get(frames.length, (frames.length,)):
            path = args.pieces / f"pieces_{length}.fa"
            auroc, accuracy, number = measure(model, path, labels, frames.length)
            print(f"{length} bp: AUROC {auroc:.3f}, accuracy {accuracy:.3f}, {number} pieces")


if __name__ == "__main__":
    main()
