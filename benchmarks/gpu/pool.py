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

from benchmarks.gpu.models import CHUNK, write_contigs, write_pair
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
    written = time.perf_counter() - started
    layout = RunLayout(folder / options.precision, source.stem, CHUNK)
    command = ["virnucpro", "predict", "--input", str(source), "--output-dir", str(layout.root)]
    command += [*pair.options, "--precision", options.precision, *_where(options.device)]
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command], check=False)
    seconds = time.perf_counter() - started
    if done.returncode == 0:
        found = figures(layout) | {"wall_seconds": seconds, "preparation_seconds": written}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    shutil.rmtree(layout.root, ignore_errors=True)  # features: gigabytes
    return done.returncode


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


def _where(device: str) -> list[str]:
    """Return the options for one worker process. Intermediate files are kept to count frames."""
    always = ["-k", "--no-progress"]
    if device == "cuda":
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
    for row in run["workers"]:  # one a stage: there is one worker
        stage = row["stage"]
        whole, since = run["seconds"][stage], row["busy"] + row["idle"]
        rates[stage] = {
            "sequences_per_second_of_stage": len(lengths) / whole,
            "sequences_per_second_of_worker": len(lengths) / since,
            "tokens_per_second_of_worker": tokens / since
            if stage == "protein_embeddings"
            else None,
            "share_idle": row["idle"] / since,
            "share_waited_for_tokens": run["seconds_waited_for_tokens"].get(stage, 0.0) / since,
        }
    keep = ("command", "precision", "versions", "counts", "seconds", "seconds_waited_for_tokens")
    return {
        **{key: run[key] for key in keep},
        "frames": len(lengths),
        "protein_tokens": tokens,
        "rates": rates,
        "workers": run["workers"],
    }


if __name__ == "__main__":
    sys.exit(main())
