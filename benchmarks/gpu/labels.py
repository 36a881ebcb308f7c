"""Compare the calls of each precision with those of fp32, with models that are read from files.

    python -m benchmarks.gpu.labels FOLDER --precisions bf16,fp8 --json FILE

The models are those of the reference data, where ``VIRNUCPRO_REFERENCE`` names its folder or
``shared/reference`` is in the checkout or beside it. Otherwise they are small random ones, and the
calls say little. The sequences are random contigs, because the sample of the reference data has too few.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.gpu.models import write_contigs, write_pair
from benchmarks.gpu.parts import ROOT
from virnucpro.cli import run

CHUNKS = {"cuda": 4000, "cpu": 20}
SMALL_MODELS = {"cuda": ("6x320x20", "4x256x4"), "cpu": ("3x64x2", "3x48x2")}
REFERENCE_MODELS = ("esm2_t3_tiny_UR50D.pt", "dnabert-s-tiny", "mlp_160_24.pth")


def reference_folder() -> Path | None:
    """Return the folder of the reference models, or None where it is not on this machine."""
    named = os.environ.get("VIRNUCPRO_REFERENCE")
    places = [Path(named)] if named else []
    places += [ROOT / "shared" / "reference", ROOT.parent / "shared" / "reference"]
    return next((p / "models" for p in places if (p / "models").is_dir()), None)


def main() -> int:
    """Run ``virnucpro benchmark --accuracy``, which saves FILE."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precisions", default="bf16,fp8")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    reference = reference_folder()
    if reference is not None:
        esm, dnabert, classifier = (reference / name for name in REFERENCE_MODELS)
    else:
        print("The reference models are not on this machine: random ones are compared.")
        sizes = SMALL_MODELS[options.device]
        pair = write_pair(options.folder / "small-models", *sizes, options.device)
        esm, dnabert, classifier = pair.esm, pair.dnabert, pair.classifier
    contigs = write_contigs(options.folder / "labels.fa", CHUNKS[options.device])
    words = [
        "benchmark", f"esm2:{esm}", f"dnabert-s:{dnabert}", "--weights", "real",
        "--accuracy", str(contigs), "--classifier", str(classifier),
        "--precision", options.precisions, "--no-peers", "--seconds", "0", "--sequences", "8",
        "--device", options.device, "--json", str(options.json),
    ]  # fmt: skip
    return run(words)


if __name__ == "__main__":
    sys.exit(main())
