"""From a file of contigs to features and calls, through the pool of workers, with random models.

    python -m benchmarks.gpu.pool FOLDER --precision bf16 --json FILE [--esm SIZE --dnabert SIZE ...]

Models of these sizes are written to FOLDER in the files that the released ones come in, and
``virnucpro predict`` is run on made-up contigs. What FOLDER has already is used again.
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
    """Run it, and save what ``STEM_run.json`` says of it."""
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
    """One worker process; intermediate files are kept, for the frames are counted in them."""
    always = ["-k", "--no-progress"]
    if device == "cuda":
        return ["--gpus", "0", "--compile", "always", *always]
    return ["--cpu-workers", "1", *always]


def figures(layout: Layout) -> dict[str, Any]:
    """Rates of both encoder stages and what else the run's own record says.

    ``of_stage`` is from the first to the last moment of a stage, with the model opened and
    compiled; ``of_worker`` from its first task on, at work and waiting.
    """
    run = json.loads(layout.run_json.read_bytes())
    lengths = [len(protein) for _, protein in read_fasta(layout.frames("protein"))]
    tokens = sum(min(length, TRUNCATION) + ENDS for length in lengths)
    rates = {}
    for row in run["workers"]:  # one a stage: there is one worker
        stage = row["stage"]
        whole, since = run["seconds"][stage], row["busy"] + row["idle"]
        rates[stage] = {
            "sequences_a_second_of_stage": len(lengths) / whole,
            "sequences_a_second_of_worker": len(lengths) / since,
            "tokens_a_second_of_worker": tokens / since if stage == "protein_embeddings" else None,
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
