"""Measure a whole run from contigs to calls through the worker pool, with random models.

    python -m benchmarks.gpu.pool FOLDER --precision bf16 --json FILE [--esm SIZE --dnabert SIZE ...]

Models of these sizes are written to FOLDER in the files that the released ones come in, and
``virnucpro predict`` is run on random contigs. Files that FOLDER has already are used again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.models import CHUNK, write_contigs, write_pair
from virnucpro.benchmark.clocks import ClockSampler, Interval
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout, RunLayout

TRUNCATION = 1024  # residues of a protein, as predict has it
ENDS = 2  # <cls> and <eos>


def main() -> int:
    """Run it, and save the rates from its ``STEM_run.json``."""
    options = _options()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    pair = write_pair(folder / "models", options.esm, options.dnabert, options.device)
    source = folder / "contigs.fa"
    if not source.exists():
        write_contigs(source, options.frames)
    preparation_seconds = time.perf_counter() - started
    layout = RunLayout(folder / options.precision, source.stem, CHUNK)
    command = ["virnucpro", "predict", "--input", str(source)]
    command += ["--output-dir", str(layout.root), *pair.options, *_run_options(options)]
    device = torch.device(options.device)
    with ClockSampler(device) as sampler:
        started = time.perf_counter()
        code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
        ended = time.perf_counter()
    if code == 0:
        document = figures(layout) | {
            "wall_seconds": ended - started,
            "preparation_seconds": preparation_seconds,
            "clocks": sampler.during([Interval(started, ended)]),
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document["rates"], indent=1))
    shutil.rmtree(layout.root, ignore_errors=True)  # features: gigabytes
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--esm", default="esm2_t36_3B_UR50D")
    parser.add_argument("--dnabert", default="DNABERT-S")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def _run_options(options: argparse.Namespace) -> list[str]:
    """Return the options for worker processes. Intermediate files are kept to count frames."""
    always = ["--precision", options.precision, "-k", "--no-dedup", "--no-progress"]
    if options.device == "cuda":
        return ["--gpus", "0", "--compile", "always", *always]
    return ["--cpu-workers", "1", *always]


def figures(layout: Layout) -> dict[str, Any]:
    """Return the rates of both encoder stages and other facts from the record of the run.

    The time of a stage goes from its first to its last moment, with opening and compiling the model.
    The time of a worker begins with its first task and includes waiting.
    """
    run = json.loads(layout.run_json.read_bytes())
    lengths = [len(protein) for _, protein in read_fasta(layout.frames("protein"))]
    tokens = sum(min(length, TRUNCATION) + ENDS for length in lengths)
    rates = {}
    for row in run["workers"]:  # one for each stage
        stage, worker_seconds = row["stage"], row["idle"] + row["busy"]
        protein = stage == "protein_embeddings"
        rates[stage] = {
            "sequences_per_second_of_stage": len(lengths) / run["seconds"][stage],
            "sequences_per_second_of_worker": len(lengths) / worker_seconds,
            "tokens_per_second_of_worker": tokens / worker_seconds if protein else None,
            "share_idle": row["idle"] / worker_seconds,
            "share_waited_for_tokens": run["seconds_waited_for_tokens"].get(stage, 0.0)
            / worker_seconds,
        }
    keys = ("command", "precision", "versions", "counts", "seconds", "seconds_waited_for_tokens")
    return {
        **{key: run[key] for key in keys},
        "frames": len(lengths),
        "protein_tokens": tokens,
        "rates": rates,
        "workers": run["workers"],
    }


if __name__ == "__main__":
    sys.exit(main())
