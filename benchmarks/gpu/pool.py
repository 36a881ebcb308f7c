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
    command = [*_program(options), "predict", "--input", str(source)]
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
    parser.add_argument("--workers", type=int, default=1, help="on the same device")
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def _program(options: argparse.Namespace) -> list[str]:
    """Return the module to run. Several workers on one GPU see it several times."""
    if options.device == "cuda" and options.workers > 1:
        return ["benchmarks.gpu.shared_gpu", str(options.workers)]
    return ["virnucpro"]


def _run_options(options: argparse.Namespace) -> list[str]:
    """Return the options for worker processes. Intermediate files are kept to count frames."""
    always = ["--precision", options.precision, "-k", "--no-dedup", "--no-progress"]
    if options.device == "cuda":
        numbers = ",".join(map(str, range(options.workers)))
        return ["--gpus", numbers, "--compile", "always", *always]
    return ["--cpu-workers", str(options.workers), *always]


def figures(layout: Layout) -> dict[str, Any]:
    """Return the rates of both encoder stages and other facts from the record of the run.

    The time of a stage goes from its first to its last moment, with opening and compiling the model.
    The time of a worker begins with its first task and includes waiting. With several workers, the
    rates are those of all of them together.
    """
    run = json.loads(layout.run_json.read_bytes())
    lengths = [len(protein) for _, protein in read_fasta(layout.frames("protein"))]
    tokens = sum(min(length, TRUNCATION) + ENDS for length in lengths)
    workers: dict[str, list[dict[str, Any]]] = {}
    for row in run["workers"]:
        workers.setdefault(row["stage"], []).append(row)
    rates = {}
    for stage, rows in workers.items():
        stage_seconds = run["seconds"][stage]
        idle = sum(row["idle"] for row in rows)
        # The workers compute side by side: their mean time is that of the stage without opening.
        worker_seconds = (idle + sum(row["busy"] for row in rows)) / len(rows)
        waited = run["seconds_waited_for_tokens"].get(stage, 0.0)
        rates[stage] = {
            "workers": len(rows),
            "sequences_per_second_of_stage": len(lengths) / stage_seconds,
            "sequences_per_second_of_worker": len(lengths) / worker_seconds,
            "tokens_per_second_of_worker": tokens / worker_seconds
            if stage == "protein_embeddings"
            else None,
            "share_idle": idle / len(rows) / worker_seconds,
            "share_waited_for_tokens": waited / len(rows) / worker_seconds,
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
