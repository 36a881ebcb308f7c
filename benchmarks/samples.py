"""Many inputs in one command against a command for each: seconds, and the same results.

    python -m benchmarks.samples DIR --samples 50 --records 100 --model lite

One of the samples is empty and one is damaged. The commands run one after the other in processes of
their own; DIR must not exist.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

STOPS = ("TAA", "TAG", "TGA")
CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT" if a + b + c not in STOPS]
ENDS = ("contigs.tsv", "chunks.tsv", "virus.fna", "merged/prediction_results.txt")


def make_samples(folder: Path, samples: int, records: int) -> list[Path]:
    """Write FASTA files with records of 500 to 1,500 bases; two of them cannot be used."""
    folder.mkdir(parents=True)
    source = random.Random(1)
    paths = [folder / f"sample{number:03}.fa" for number in range(samples)]
    for path in paths[:-2]:
        lines = []
        for number in range(records):
            text = "".join(source.choices(CODONS, k=source.randint(167, 500)))
            lines.append(f">r{number}\n{text}\n")
        path.write_text("".join(lines))
    paths[-2].touch()
    paths[-1].write_text(">r0\nAC!GT\n")
    return paths


def predict(*arguments: str | Path) -> tuple[int, float]:
    """Run ``virnucpro predict``; returns its exit code and the seconds that it took."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "virnucpro", "predict", *map(str, arguments), "-q"]
    code = subprocess.run(command, stderr=subprocess.DEVNULL).returncode
    return code, time.perf_counter() - started


def differing(many: Path, single: Path) -> list[str]:
    """Return the result files that differ between one command and single ones."""
    names = [f"{folder.name}/{folder.name}_{end}" for folder in single.iterdir() for end in ENDS]
    pairs = [(many / name, single / name) for name in names if (single / name).exists()]
    return [str(a) for a, b in pairs if not a.exists() or a.read_bytes() != b.read_bytes()]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--model", default="lite")
    given = parser.parse_args()
    paths = make_samples(given.folder / "in", given.samples, given.records)
    many, single = given.folder / "many", given.folder / "single"
    options = ["-m", given.model, "--device", "cpu"]
    first = predict(*paths, "-o", many, *options)
    again = predict(*paths, "-o", many, *options)
    codes, total = [], 0.0
    for path in paths:
        code, seconds = predict(path, "-o", single / path.stem, *options)
        codes.append(code)
        total += seconds
    print("| commands | seconds | exit codes |\n|---|---|---|")
    print(f"| one for {given.samples} samples | {first[1]:.1f} | {first[0]} |")
    print(f"| the same again | {again[1]:.1f} | {again[0]} |")
    print(f"| {given.samples} single ones | {total:.1f} | {codes.count(0)} times 0 |")
    print("results are the same to the byte" if not differing(many, single) else "they DIFFER")


if __name__ == "__main__":
    main()
