"""Compare the network of lite with one of another design, trained in the same way.

    python examples/lite/networks.py DATASET PIECES --network deepmicroclass
    python examples/lite/networks.py DATASET PIECES --network lite

Both networks get the same windows of the train part of DATASET in the same order, and the same
optimiser, for --steps batches. Networks are measured on the pieces of one chunk that
examples/lite/heldout.py makes. What makes the training of the shipped model longer and better for
any network (the mask, weights of groups and of GC, running mean of the weights) is left out.

``deepmicroclass`` has the sizes of the published network DeepMicroClass (Hou et al. 2024, NAR
Genomics and Bioinformatics 6(2); https://github.com/chengsly/DeepMicroClass): one-hot bases and
one-hot codons of the three frames go through three convolutions each, on both strands with the same
weights. The means over all places are joined for the last layers. It has two classes here.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn

from virnucpro.encoders.lite_network import UNKNOWN, base_numbers
from virnucpro.io.records import Records
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.genomes import WindowSampler, genome_set, mutated
from virnucpro.training.lite.trainer import LiteModel, LiteTrainingSettings

BATCH_BASES = 64_000
CODONS = 64
LENGTHS = (500, 300, 150)
LEARNING_RATE = 2e-3
MUTATION_RATE = 0.05
WARM_UP = 400


class BasesAndCodons(nn.Module):
    """Convolutions over bases and over codons of both strands, averaged over all places."""

    def __init__(self) -> None:
        super().__init__()
        self.bases = _convolutions(UNKNOWN + 1, 6)
        self.codons = _convolutions(CODONS + 1, 2)
        self.last = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(1024, 256), nn.PReLU(), nn.Dropout(0.2), nn.Linear(256, 2)
        )

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        """Return the logits of others and virus: int64 ``[B, L]`` to float32 ``[B, 2]``."""
        return torch.as_tensor(self.last(self._means(bases))).float()

    def _means(self, bases: torch.Tensor) -> torch.Tensor:
        complement = torch.where(bases < UNKNOWN, 3 - bases, bases).flip(1)
        strands = torch.cat([bases, complement])
        first, second, third = strands[:, :-2], strands[:, 1:-1], strands[:, 2:]
        known = (first < UNKNOWN) & (second < UNKNOWN) & (third < UNKNOWN)
        codons = torch.where(known, (first * 4 + second) * 4 + third, CODONS)
        frames = torch.cat([codons[:, frame::3] for frame in range(3)], dim=1)
        ends = [
            path(F.one_hot(numbers, letters).transpose(1, 2).unsqueeze(2).float())
            for numbers, path, letters in (
                (strands, self.bases, UNKNOWN + 1),
                (frames, self.codons, CODONS + 1),
            )
        ]
        means = [end.float().mean(dim=(2, 3)).split(len(bases)) for end in ends]
        return torch.cat([mean for strand in zip(*means, strict=True) for mean in strand], dim=1)


def _convolutions(letters: int, kernel: int) -> nn.Sequential:
    """Return three convolutions with 64, 128 and 256 channels."""
    layers: list[nn.Module] = []
    for before, after, width in ((letters, 64, kernel), (64, 128, 3), (128, 256, 3)):
        layers += [nn.Conv2d(before, after, (1, width)), nn.PReLU()]
        if after < 256:
            layers.append(nn.AvgPool2d((1, 3)))
        layers.append(nn.BatchNorm2d(after))
    network = nn.Sequential(*layers)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def network_called(name: str) -> nn.Module:
    """Return a network with weights that are always the same."""
    torch.manual_seed(0)
    return BasesAndCodons() if name == "deepmicroclass" else LiteModel(LiteTrainingSettings())


def train(network: nn.Module, dataset: Dataset, steps: int) -> None:
    """Train on batches of windows, with a rise and a cosine of the rate."""
    genomes = genome_set(dataset.records("train"))
    samplers = {length: WindowSampler(genomes, length) for length in LENGTHS}
    random = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    started = time.monotonic()
    losses = []
    for step in range(steps):
        rate = min(1.0, (step + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (rate + 1e-3)
        length = LENGTHS[int(random.integers(len(LENGTHS)))]
        records, offsets = samplers[length].draw(BATCH_BASES // length // 2 * 2, length, random)
        windows = mutated(genomes.windows(records, offsets, length), MUTATION_RATE, random)
        labels = torch.from_numpy(genomes.virus[records].astype(np.int64))
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(torch.from_numpy(windows).long())
        loss = F.cross_entropy(logits, labels, label_smoothing=0.02)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if step % 100 == 99:
            seconds = time.monotonic() - started
            print(
                f"{step + 1} steps, loss {np.mean(losses[-100:]):.4f}, {seconds:.0f} s", flush=True
            )


def measure(network: nn.Module, path: Path, labels: dict[str, bool]) -> str:
    """Return the AUROC and the number of the pieces in ``path``, as words."""
    scores, virus = [], []
    records = Records(path)
    while batch := list(islice(records, 64)):
        numbers = torch.from_numpy(base_numbers([record.sequence for record in batch])).long()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            logits = network(numbers).float()
        scores += (logits[:, 1] - logits[:, 0]).tolist()
        virus += [labels[record.id] for record in batch]
    return f"AUROC {roc_auc_score(virus, scores):.3f}, {len(virus)} pieces"


def main() -> None:
    """Train a network and print a line for each length of the pieces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("pieces", type=Path)
    parser.add_argument("--network", choices=("lite", "deepmicroclass"), required=True)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with (args.pieces / "labels.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        labels = {row["record"]: row["label"] == "virus" for row in rows}
    network = network_called(args.network)
    count = sum(parameter.numel() for parameter in network.parameters())
    print(f"{args.network}: {count:,} numbers", flush=True)
    train(network, Dataset(args.dataset), args.steps)
    network.eval()
    for length in LENGTHS:
        found = measure(network, args.pieces / f"pieces_{length}.fa", labels)
        print(f"{args.network}, {length} bp: {found}", flush=True)


if __name__ == "__main__":
    main()
