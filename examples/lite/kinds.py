"""Fit how lite tells phages from viruses of eukaryotes, and print how often that is right.

    python examples/lite/kinds.py DATASET PIECES OUT.safetensors

DATASET is what lite was trained on, PIECES was made from it by heldout.py. The layer is fitted on
pieces of the training part; the figures are of test pieces that are viruses.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import torch
from outside import Row, table
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression

from virnucpro.encoders.lite import LITE, LiteEncoder, read_lite
from virnucpro.io.records import Records
from virnucpro.stages import kinds
from virnucpro.store.disk import sha256_of
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.genomes import genome_set, measured_windows

PHAGES = re.compile("(?<!viro)phage|Microviridae|archaeal viruses")
EITHER = re.compile("mock virome|viruses of many kinds")  # groups of both kinds
WINDOWS = 8000  # per length, of which half are viruses
LENGTHS = (500, 300, 150)


def training_rows(dataset: Path, encoder: LiteEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings of pieces of training viruses, and whether they are phages."""
    genomes = genome_set(Dataset(dataset).records("train"))
    rows, phages = [], []
    for length in LENGTHS:
        records, offsets = measured_windows(genomes, length, 2 * WINDOWS, 0)
        names = np.array(genomes.group_names)[genomes.groups[records]]
        chosen = genomes.virus[records] & [not EITHER.search(name) for name in names]
        windows = genomes.windows(records[chosen], offsets[chosen], length)
        texts = ["".join("ACGTN"[base] for base in window) for window in windows]
        rows.append(encoder.encode(texts, lambda *_: None).numpy())
        phages += [bool(PHAGES.search(name)) for name in names[chosen]]
    return np.concatenate(rows), np.array(phages)


def print_figures(pieces: Path) -> None:
    """Print the share of each answer, by length, place and kind of virus."""
    labels = {row["record"]: row for row in table(pieces / "labels.tsv")}
    asked = kinds.VirusKinds()
    print("| piece | where | virus of | pieces | right | wrong | unsure |")
    print("|---|---|---|---|---|---|---|")
    for length in (150, 300, 500, 2100, 5000):
        answers: dict[tuple[bool, bool], list[str]] = {}
        for record in Records(pieces / f"pieces_{length}.fa"):
            row: Row = labels[record.id]
            if row["label"] == "virus" and not EITHER.search(row["group"]):
                key = row["group"].startswith("outside"), bool(PHAGES.search(row["group"]))
                answers.setdefault(key, []).append(asked.of([kinds.windows([record.sequence])])[0])
        for (outside, phage), found in sorted(answers.items()):
            right, wrong = (kinds.PHAGE, kinds.EUKARYOTIC)[:: 1 if phage else -1]
            shares = [found.count(kind) / len(found) for kind in (right, wrong, kinds.UNSURE)]
            where = ("held out", "outside")[outside], ("eukaryotes", "prokaryotes")[phage]
            cells = [
                f"{length:,} bp",
                *where,
                f"{len(found):,}",
                *(f"{100 * x:.1f} %" for x in shares),
            ]
            print("|", " | ".join(cells), "|")


def main() -> None:
    """Fit, write and measure."""
    dataset, pieces, out = map(Path, sys.argv[1:])
    path = LITE.packaged()
    encoder = LiteEncoder(read_lite(path).fused(), torch.device("cpu"), "fp32")
    rows, phages = training_rows(dataset, encoder)
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=2000).fit(rows, phages)
    tensors = {
        "weights": torch.from_numpy(model.coef_[0].astype(np.float32)),
        "bias": torch.tensor(model.intercept_[0], dtype=torch.float32),
    }
    save_file(tensors, out, {"encoder_sha256": sha256_of(path)})
    kinds.HEAD = out
    print_figures(pieces)


if __name__ == "__main__":
    main()
