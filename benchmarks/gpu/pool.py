"""Measure a whole run from contigs to calls through the worker pool, with random models.

    python -m benchmarks.gpu.pool FOLDER FILE DEVICE PRECISION ESM DNABERT FRAMES

Models of the sizes ESM and DNABERT, named as for ``benchmarks.encoders``, are written to FOLDER in
the files that the released ones come in. ``virnucpro predict`` is run on random contigs with at
least FRAMES frames, and the rates are saved in FILE.
"""

from __future__ import annotations

import json
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
    folder, file, device, precision, *names, frames = sys.argv[1:]
    esm, dnabert = (parse_model(name)[1] for name in names)
    models = write_pair(Path(folder, "models"), esm, dnabert, device)
    source = write_contigs(Path(folder, "contigs.fa"), int(frames))
    layout = Layout(Path(folder, precision), source.stem, CHUNK)
    on_gpu = device == "cuda"
    where = ["--gpus", "0", "--compile", "always"] if on_gpu else ["--cpu-workers", "1"]
    command = [
        *(sys.executable, "-m", "virnucpro", "predict", str(source), "-o", str(layout.root)),
        # Intermediate files are kept to count frames.
        *(*models, *where, "--precision", precision, "-k", "--no-dedup"),
        "--no-progress",
    ]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        document = figures(layout)
        Path(file).write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document["rates"], indent=1))
    return code


def figures(layout: Layout) -> dict[str, Any]:
    """Return the rates of both encoder stages, and the record of the run.

    The time of a worker begins with its first task and includes waiting.
    """
    run = json.loads(layout.run_record.read_bytes())
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
