"""Fit how lite tells kinds of viruses and what is unlike its training data, or print figures.

    python examples/lite/kinds.py fit DATASET ENCODER OUT
    python examples/lite/kinds.py figures PIECES

DATASET is what lite was trained on, ENCODER is its encoder. The layer and the centres of embeddings
are fitted on pieces of the training part. The likeness that a record needs is such that 98 % of the
validation pieces that are not from outside have it; it is measured in the second network, which has
not read them in its training. PIECES was made by heldout.py; the figures are of the lite that is
installed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from outside import Row, table
from safetensors.torch import save_file
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from windows import genome_set, measured_windows

from virnucpro.encoders.lite import LiteEncoder, read_lite
from virnucpro.io.records import Records
from virnucpro.metrics import Bools
from virnucpro.stages import kinds
from virnucpro.store.hashed import hashed
from virnucpro.training.data.dataset import Dataset, Part

PHAGES = re.compile("(?<!viro)phage|Microviridae|archaeal viruses")
EITHER = re.compile("mock virome|viruses of many kinds")  # groups of both kinds
PIECES = 16_000  # of the training part per length, of which half are viruses
CENTRES = 1000
SECOND = 256  # numbers of an embedding, the last ones: those of the second network
FAMILIAR = 0.98  # share of the validation pieces that are not from outside
# Bases of validation pieces, and how many of them.
MEASURED = {150: 4000, 300: 4000, 500: 4000, 2000: 2000, 4000: 2000}


def embedded(encoder: LiteEncoder, windows: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Return the mean embedding of each row of bases, as a run computes it."""
    texts = ["".join("ACGTN"[base] for base in window) for window in windows]
    own = [kinds.windows([text]) for text in texts]
    rows = encoder.encode([each for parts in own for each in parts], lambda *_: None)
    return torch.stack([part.mean(dim=0) for part in torch.split(rows, [*map(len, own)])])


def pieces_of(
    dataset: Path, part: Part, length: int, count: int, encoder: LiteEncoder
) -> tuple[torch.Tensor, npt.NDArray[np.str_], Bools]:
    """Return embeddings of pieces of a part, their groups, and whether they are viruses."""
    genomes = genome_set(Dataset(dataset).records(part))
    records, offsets = measured_windows(genomes, length, count, 0)
    names = np.array(genomes.group_names)[genomes.groups[records]]
    chosen = np.array([part == "train" or not name.startswith("outside") for name in names])
    windows = genomes.windows(records[chosen], offsets[chosen], length)
    return embedded(encoder, windows), names[chosen], genomes.virus[records[chosen]]


def fit(dataset: Path, encoder: LiteEncoder) -> dict[str, torch.Tensor]:
    """Return the tensors of :class:`kinds.VirusKinds`."""
    found = [pieces_of(dataset, "train", length, PIECES, encoder) for length in (500, 300, 150)]
    rows, names, virus = (np.concatenate(each) for each in zip(*found, strict=True))
    known = virus & [not EITHER.search(name) for name in names]
    phages = [bool(PHAGES.search(name)) for name in names[known]]
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=2000)
    model.fit(rows[known], phages)
    units = rows[:, -SECOND:] / np.linalg.norm(rows[:, -SECOND:], axis=1, keepdims=True)
    centres = MiniBatchKMeans(CENTRES, batch_size=4096, n_init=1, random_state=0).fit(units)
    typical = torch.from_numpy(centres.cluster_centers_.astype(np.float32))
    typical = (typical / typical.norm(dim=1, keepdim=True)).half()
    least = []
    for length, count in MEASURED.items():
        held_out, _, _ = pieces_of(dataset, "validation", length, count, encoder)
        least.append(kinds.likeness_to(typical.float(), held_out).quantile(1 - FAMILIAR))
    return {
        "weights": torch.from_numpy(model.coef_[0].astype(np.float32)),
        "bias": torch.tensor(model.intercept_[0], dtype=torch.float32),
        "typical": typical,
        "lengths": torch.tensor([float(length) for length in MEASURED]),
        "least": torch.stack(least),
    }


def print_figures(pieces: Path) -> None:
    """Print the share of each answer, by length, place and kind of virus."""
    labels = {row["record"]: row for row in table(pieces / "labels.tsv")}
    asked = kinds.VirusKinds()
    unfamiliar: dict[tuple[int, bool], list[bool]] = {}
    print("| piece | where | virus of | pieces | right | wrong | unsure |")
    print("|---|---|---|---|---|---|---|")
    for length in (150, 300, 500, 2100, 5000):
        answers: dict[tuple[bool, bool], list[str]] = {}
        records = list(Records(pieces / f"pieces_{length}.fa"))
        found = asked.of([kinds.windows([record.sequence]) for record in records])
        for record, (kind, strange) in zip(records, found, strict=True):
            row: Row = labels[record.id]
            outside = row["group"].startswith("outside")
            unfamiliar.setdefault((length, outside), []).append(strange == "yes")
            if row["label"] == "virus" and not EITHER.search(row["group"]):
                key = outside, bool(PHAGES.search(row["group"]))
                answers.setdefault(key, []).append(kind)
        for (outside, phage), own in sorted(answers.items()):
            right, wrong = (kinds.PHAGE, kinds.EUKARYOTIC)[:: 1 if phage else -1]
            shares = [own.count(kind) / len(own) for kind in (right, wrong, kinds.UNSURE)]
            where = ("held out", "outside")[outside], ("eukaryotes", "prokaryotes")[phage]
            cells = [
                f"{length:,} bp",
                *where,
                f"{len(own):,}",
                *(f"{100 * x:.1f} %" for x in shares),
            ]
            print("|", " | ".join(cells), "|")
    print("\n| piece | where | pieces | unfamiliar |\n|---|---|---|---|")
    for (length, outside), strange_ones in unfamiliar.items():
        cells = [f"{length:,} bp", ("held out", "outside")[outside], f"{len(strange_ones):,}"]
        print("|", " | ".join([*cells, f"{100 * np.mean(strange_ones):.1f} %"]), "|")


def main() -> None:
    """Fit and write, or measure."""
    match sys.argv[1:]:
        case ["fit", dataset, path, out]:
            encoder = LiteEncoder(read_lite(Path(path)), torch.device("cpu"), "fp32")
            tensors = fit(Path(dataset), encoder)
            save_file(tensors, out, {"encoder_sha256": hashed(Path(path)).sha256})
        case ["figures", pieces]:
            print_figures(Path(pieces))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
