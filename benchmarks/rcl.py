"""Measure the RCL predictor beside the way in which RCL-identifier computes, in turns.

    python -m benchmarks.rcl serpins.csv [--proteins 64] [--rounds 3] [--encoding onehot]

RCL-identifier pads every protein to 1,024 residues, in batches of 8 or 32. The same network, with
random weights, is applied to the same proteins and trained on them in that way, and as this program
does it. The proteins are those of the table that are nearest to the median length. Each round
measures every way once, in one process and on one thread; processor seconds count, which other
programs disturb less. The table has the median of the rounds, in proteins per second, and how many
times as fast as the padded batch of that size it is, with the range over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.encoders import measured_precisions
from virnucpro.contracts import Device
from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
from virnucpro.rcl.models import RclModel
from virnucpro.rcl.networks import NETWORKS
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.rule import RegionRule, find_region
from virnucpro.rcl.settings import training_settings
from virnucpro.rcl.training import RclTrainingPlan
from virnucpro.store.disk import Disk
from virnucpro.training.group import TrainingGroup
from virnucpro.training.savepoint import Savepoint, save_savepoint

MAX_LENGTH = 1024
SIZES = (8, 32)
Work = Callable[[], None]


def prediction_work(
    encoding: str, padded: bool, size: int | None, proteins: Sequence[AnnotatedProtein]
) -> Work:
    """Return a function that finds the RCLs of all proteins once."""
    torch.manual_seed(0)
    width = RESIDUE_ENCODINGS[encoding].width
    network = NETWORKS["unet"](width).eval()
    model = RclModel(network, encoding, padded=padded)
    sequences = [protein.sequence for protein in proteins]

    def work() -> None:
        for probabilities in model.probabilities(sequences, batch_size=size):
            find_region(probabilities, RegionRule())

    return work


def training_work(
    encoding: str, padded: bool, size: int, precision: str, proteins: Sequence[AnnotatedProtein]
) -> Work:
    """Return a function that trains for an epoch, without validation."""
    fit = {"batch_size": size, "fragments": 0.0}
    options = {"encoding": encoding, "precision": precision, "training": fit}
    settings, _ = training_settings(None, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "training.pt"
        save_savepoint(path, Savepoint({}), Disk())
        plan = RclTrainingPlan(settings, proteins, proteins[:1], RESIDUE_ENCODINGS[encoding], path)
        group = TrainingGroup(0, 1, torch.device("cpu"))
        loop = plan.loop(group)
    loop.model.train()

    def work() -> None:
        for number, (x, labels, residues) in enumerate(loop.epoch_plan(0, 0).batches):
            more = MAX_LENGTH - x.shape[1] if padded else 0
            x, labels = F.pad(x, (0, 0, 0, more)), F.pad(labels, (0, more), value=-1)
            loop.step(number, (x, labels, residues))

    return work


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="proteins with an RCL (CSV)")
    parser.add_argument("--proteins", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encoding", choices=sorted(RESIDUE_ENCODINGS), default="onehot")
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole, _ = read_proteins(options.table, None, MAX_LENGTH)
    table = sorted(whole, key=lambda protein: len(protein.sequence))
    first = max((len(table) - options.proteins) // 2, 0)
    proteins = table[first : first + options.proteins]
    lengths = [len(protein.sequence) for protein in (proteins[0], proteins[-1])]
    print(f"{len(proteins)} proteins of {lengths[0]} to {lengths[1]} residues; ", end="")
    print(f"U-Net on {options.encoding}, one thread, torch {torch.__version__}")
    precisions = measured_precisions(Device("cpu"))
    works: dict[tuple[str, int, str], Work] = {}
    for size in SIZES:
        for padded, way in ((True, "padded to 1,024"), (False, "this program")):
            key = "predict", size, way
            works[key] = prediction_work(options.encoding, padded, size, proteins)
    key = "predict", SIZES[-1], "this program, batches of its choice"
    works[key] = prediction_work(options.encoding, False, None, proteins)
    for size in SIZES:
        key = "train", size, "padded to 1,024"
        works[key] = training_work(options.encoding, True, size, "fp32", proteins)
        for precision in precisions:
            key = "train", size, f"this program, {precision}"
            works[key] = training_work(options.encoding, False, size, precision, proteins)
    seconds: dict[tuple[str, int, str], list[float]] = {key: [] for key in works}
    for work in works.values():
        work()
    for _ in range(options.rounds):
        for key, work in works.items():
            started = time.process_time()
            work()
            seconds[key].append(time.process_time() - started)
    print(f"{'':8} {'batch':>5}  {'':36} {'proteins/s':>10}  times as fast")
    for (task, size, way), measured in seconds.items():
        rate = len(proteins) / statistics.median(measured)
        slow = seconds[task, size, "padded to 1,024"]
        ratios = sorted(one / other for one, other in zip(slow, measured, strict=True))
        ratio = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        print(f"{task:8} {size:>5}  {way:36} {rate:>10.1f}  {ratio}")


if __name__ == "__main__":
    main()
