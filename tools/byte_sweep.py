"""Flip a bit of every byte that a finished run keeps, run again, and compare every result.

    python -m tools.byte_sweep FOLDER              every byte of every file of the state: minutes
    python -m tools.byte_sweep FOLDER --sample 50  so many bytes of each file

All runs are made in this process, with the toy encoders. The program prints a line per file, and
one for each byte after which the same command ended with an error or left other results; it exits
with 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from tools.fault_sweep import RESULTS, results
from virnucpro.errors import VirNucProError
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import AnalysisSettings, MachineSettings

STATE = Path(".checkpoints/runs/in/state")
SEED = 5


def finished_run(folder: Path) -> PredictionRequest:
    """Make a small finished run in ``folder``, with two split files, and return its request."""
    rng = random.Random(SEED)
    codons = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
    source = folder / "in.fa"
    lines = [f">r{n}\n{''.join(rng.choices(codons, k=20))}\n" for n in range(4)]
    source.write_text("".join(lines))
    analysis = AnalysisSettings(model_type="toy", chunk_length=200, sequences_per_file=10)
    machine = MachineSettings(device="cpu", threads=1)
    request = PredictionRequest(str(source), folder / "out", analysis, machine)
    run_prediction(request, lambda event: None)
    return request


def damaged_bytes(size: int, sample: int | None) -> list[int]:
    """Return the places in a file of ``size`` bytes that are damaged, in order."""
    if sample is None or sample >= size:
        return list(range(size))
    return sorted(random.Random(SEED + size).sample(range(size), sample))


def survivors(folder: Path, sample: int | None) -> Iterator[tuple[Path, int, list[str]]]:
    """Yield each file of the state, the number of bytes that were damaged, and the problems.

    ``sample`` limits the bytes per file; None takes all of them.
    """
    request = finished_run(folder)
    out = folder / "out"
    kept = folder / "kept"
    shutil.copytree(out, kept)
    expected = results(out)
    state = out / STATE
    files = (path for path in state.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: (path.stat().st_size, path)):
        content = path.read_bytes()
        problems = []
        places = damaged_bytes(len(content), sample)
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            if problem := _problem(request, out, expected):
                problems.append(f"byte {place} of {path.name}: {problem}")
                shutil.rmtree(out)
                shutil.copytree(kept, out)
        shutil.rmtree(out)
        shutil.copytree(kept, out)
        yield path.relative_to(state), len(places), problems


def _problem(request: PredictionRequest, out: Path, expected: dict[str, bytes]) -> str:
    """Run again, and return what went wrong, or an empty text."""
    try:
        run_prediction(request, lambda event: None)
    except VirNucProError as error:
        return f"exit {error.exit_code}: {error}"
    except Exception as error:  # noqa: BLE001 - a crash is a result here
        return f"{type(error).__name__}: {error}"
    found = results(out)
    return ", ".join(f"{name} differs" for name in RESULTS if found.get(name) != expected.get(name))


def main() -> int:
    """Run the sweep; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample", type=int, help="bytes per file; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    tried = failed = 0
    for path, count, problems in survivors(options.folder, options.sample):
        tried += count
        failed += len(problems)
        print(f"{path}: {count - len(problems)} of {count} flips survived", flush=True)
        for problem in problems[:20]:
            print(f"  {problem}")
    print(f"{tried - failed} of {tried} flipped bits survived")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
