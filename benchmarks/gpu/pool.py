"""Measure a whole run from contigs to calls through the worker pool, with random models.

    python -m benchmarks.gpu.pool FOLDER --precision bf16 --json FILE [--esm MODEL --dnabert MODEL]

Models of these sizes are written to FOLDER in the files that the released ones come in, and
``virnucpro predict`` is run on random contigs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.models import CHUNK, TRUNCATION, parse_model, write_contigs, write_pair
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout

ENDS = 2  # <cls> and <eos>


def main() -> int:
    """Run predict with one worker process, and save the rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--esm", default="esm2_t36_3B_UR50D", help="as for benchmarks.encoders")
    parser.add_argument("--dnabert", default="DNABERT-S")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    esm, dnabert = (parse_model(name)[1] for name in (options.esm, options.dnabert))
    models = write_pair(options.folder / "models", esm, dnabert, options.device)
    source = write_contigs(options.folder / "contigs.fa", options.frames)
    layout = Layout(options.folder / options.precision, source.stem, CHUNK)
    on_gpu = options.device == "cuda"
    where = ["--gpus", "0", "--compile", "always"] if on_gpu else ["--cpu-workers", "1"]
    command = [
        *(sys.executable, "-m", "virnucpro", "predict", source, "-o", layout.root),
        # Intermediate files are kept to count frames.
        *(*models, *where, "--precision", options.precision, "-k", "--no-dedup"),
        "--no-progress",
    ]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        document = figures(layout)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document["rates"], indent=1))
    shutil.rmtree(layout.root, ignore_errors=True)  # features: gigabytes
    return code


def figures(layout: Layout) -> dict[str, Any]:
    """Return the rates of both encoder stages, and the record of the run.

    The time of a worker begins with its first task and includes waiting.
    """
    run = json.loads(layout.run_json.read_bytes())
    lengths = [len(protein) for _, protein in read_fasta(layout.frames["protein"])]
    tokens = sum(min(length, TRUNCATION) + ENDS for length in lengths)
    rates = {}
    for row in run["workers"]:  # one for each stage
        stage, seconds = row["stage"], row["idle"] + row["busy"]
        rates[stage] = {"sequences_per_second_of_worker": len(lengths) / seconds}
        if stage == "protein_embeddings":
            rates[stage]["tokens_per_second_of_worker"] = tokens / seconds
    return {"run": run, "frames": len(lengths), "rates": rates}


if __name__ == "__main__":
    sys.exit(main())
