"""Measure the seconds and the memory of an evaluation and of false discovery rates.

    python -m benchmarks.evaluation [--rows 1000000] [--genomes 2000] [--groups 50]

Scores are random, so the metrics mean nothing. ``--genomes`` equal to ``--rows`` is the hardest case
for the intervals.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from virnucpro.evaluation.labels import join, read_labels
from virnucpro.evaluation.measure import evaluate
from virnucpro.evaluation.plots import draw_plots
from virnucpro.evaluation.predictions import find_predictions
from virnucpro.stages.fdr import contig_fdr
from virnucpro.tables import CHUNKS


def write_tables(folder: Path, rows: int, genomes: int, groups: int) -> tuple[Path, Path]:
    """A table of ``rows`` scored chunks, and one of labels, a record a genome."""
    rng = np.random.default_rng(0)
    chunks, labels = folder / "x_chunks.tsv", folder / "labels.tsv"
    record = np.arange(rows) * genomes // rows
    virus = record % 2 == 1
    level = rng.normal(0, 0.5, genomes)[record] + rng.normal(np.where(virus, 1.0, -1.0), 1.5)
    scores = (1 / (1 + np.exp(-level))).astype(np.float32)
    others, lengths = (1 - scores).astype(str), rng.choice([150, 300, 500], rows)
    with chunks.open("w") as out:
        out.write(CHUNKS.header)
        parts = zip(record, lengths, others, scores.astype(str), strict=True)
        for i, (name, length, o, v) in enumerate(parts):
            out.write(f"r{name}\tr{name}_chunk_{i}\t1\t{length}\tscored\t1\t{o}\t{v}\n")
    with labels.open("w") as out:
        out.write("record\tlabel\tgroup\n")
        for number in range(genomes):
            label = ("others", "virus")[number % 2]
            out.write(f"r{number}\t{label}\tgroup {number % groups}\n")
    return chunks, labels


def main() -> None:
    """Print a line per step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--genomes", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chunks, labels = write_tables(Path(folder), options.rows, options.genomes, options.groups)
        start = time.perf_counter()
        sample = join(find_predictions(chunks, None), read_labels(labels))
        read = time.perf_counter()
        found = evaluate(sample, 0.5, graded=True)
        measured = time.perf_counter()
        draw_plots(found, "generated chunks")
        drawn = time.perf_counter()
    contig_fdr(sample.scores, np.ones(len(sample.scores), np.int64))
    rated = time.perf_counter()
    print(f"{options.rows:,} rows, {options.genomes:,} genomes, {len(found.slices)} slices")
    print(f"read and join   {read - start:6.1f} s")
    print(f"measure         {measured - read:6.1f} s")
    print(f"draw            {drawn - measured:6.1f} s")
    print(f"false discovery {rated - drawn:6.1f} s for as many contigs")
    print(f"peak memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB")


if __name__ == "__main__":
    main()
