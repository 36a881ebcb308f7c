"""Stop the program, or fail the disk, at its k-th operation, resume, and compare every result.

    python -m tools.fault_sweep FOLDER            every k, every fault: minutes
    python -m tools.fault_sweep FOLDER --every 9  a sample

One process that has imported everything makes the children by fork, so that a case costs a fraction
of a second. The toy encoder runs in the child itself. Before the resume, it fails on a frame, so that
what a run writes about failures is written and removed, too. The program prints what failed, and
exits with 1 if a case did.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import torch

import tests.preloaded  # noqa: F401 - what runs import takes a second, which forked ones save
from tests.contract.poisoned import PoisonedWorkers
from virnucpro.configuration import Configuration
from virnucpro.contracts import Device
from virnucpro.errors import OutputError, VirNucProError
from virnucpro.io.frames import GENETIC_CODE
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.store.disk import Bytes, Disk
from virnucpro.workers.local_pool import LocalPool

STOPPED = 99
POISON = ("r3_chunk_1F1",)
RESULTS = (
    "in_merged/prediction_results.txt",
    "in_merged/prediction_results_highestscore.csv",
    "in_chunks.tsv",
    "in_contigs.tsv",
    "in_virus.fna",
    "in_virus_genes.gff3",
    "in_virus_genes.faa",
)
FAULTS: dict[str, int | None] = {"stop": None}
FAULTS |= {name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EDQUOT", "EROFS")}


class FaultyDisk(Disk):
    """A disk that counts operations. At the ``at``-th the process stops, or the operation fails.

    A write is torn: half of its data is on the disk then.
    """

    def __init__(self, at: int = 0, number: int | None = None) -> None:
        self.count, self.at, self.number = 0, at, number

    def _due(self) -> bool:
        self.count += 1
        return self.count == self.at

    def _strike(self) -> None:
        if self.number is None:
            os._exit(STOPPED)
        raise OSError(self.number, os.strerror(self.number))

    def write(self, stream: BinaryIO, data: Bytes) -> None:
        if self._due():
            super().write(stream, data[: len(data) // 2])
            self._strike()
        super().write(stream, data)


def _wrapped(name: str):  # type: ignore[no-untyped-def]
    def verb(self: FaultyDisk, *arguments: Path) -> object:
        if self._due():
            self._strike()
        return getattr(super(FaultyDisk, self), name)(*arguments)

    return verb


for _name in ("open_new", "sync", "sync_folder", "rename", "unlink", "mkdir", "rmdir"):
    setattr(FaultyDisk, _name, _wrapped(_name))


def make_input(path: Path, records: int) -> None:
    """Write records, some of which cannot be scored.

    They are enough for two files of 400 frames per 300 records.
    """
    rng = random.Random(3)
    sense = [codon for codon, letter in GENETIC_CODE.items() if letter != "*"]
    lines = [
        f">r{n}\n{''.join(rng.choices(sense, k=rng.randint(30, 90)))}\n" for n in range(records)
    ]
    lines += [">n\nNNNNNNNN\n", ">t\nA\n", f">long\n{''.join(rng.choices(sense, k=700))}\n"]
    path.write_text("".join(lines))


def run_once(source: Path, out: Path, disk: Disk, *, poisoned: bool, report: int = -1) -> int:
    """Run in a child process, which writes its operations to ``report``, and return its exit code.

    ``poisoned`` lets the encoder fail on a frame; ``report`` is a file descriptor.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        science = {"model_type": "toy", "chunk_length": 200, "sequences_per_file": 400}
        settings = Configuration().with_values({**science, "device": "cpu", "threads": 1})
        request = PredictionRequest(str(source), out, settings, not poisoned)
        workers = PoisonedWorkers(LocalPool([Device("cpu")]), POISON) if poisoned else None
        run_prediction(request, lambda event: None, disk, workers=workers)
        code = 0
    except VirNucProError as error:
        code = error.exit_code
    except BaseException:  # noqa: BLE001 - the edge of the child process
        traceback.print_exc()
    finally:
        if report >= 0 and isinstance(disk, FaultyDisk):
            os.write(report, str(disk.count).encode())
        os._exit(code)


def results(out: Path) -> dict[str, bytes]:
    """Return the content of every result file; genes are there only where something is viral."""
    return {name: (out / name).read_bytes() for name in RESULTS if (out / name).exists()}


def leftovers(out: Path) -> list[Path]:
    """Return temporary and intermediate files, which a finished run must not leave."""
    endings = (".tmp", ".pt", "failed_files.txt", "failed_sequences.fa")
    return [path for path in out.rglob("*") if path.name.endswith(endings)]


def survived(source: Path, out: Path, fault: str, k: int, expected: dict[str, bytes]) -> str:
    """Fail the ``k``-th operation, resume, and return what went wrong, or an empty text."""
    shutil.rmtree(out, ignore_errors=True)
    number = FAULTS[fault]
    code = run_once(source, out, FaultyDisk(k, number), poisoned=True)
    expected_code = STOPPED if number is None else OutputError.exit_code
    if code not in (expected_code, 0):  # 0: only the removal of a useless file failed
        return f"exit {code} instead of {expected_code}"
    code = run_once(source, out, Disk(), poisoned=False)
    if code != 0:
        return f"resume ended with exit {code}"
    if results(out) != expected:
        return "results differ"
    return f"left behind {leftovers(out)}" if leftovers(out) else ""


def twice(source: Path, out: Path, total: int, rounds: int, expected: dict[str, bytes]) -> int:
    """Stop five times in a row at random operations, and return how many rounds failed."""
    rng, failures = random.Random(1), 0
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        for _ in range(5):
            run_once(source, out, FaultyDisk(rng.randint(1, total)), poisoned=True)
        code = run_once(source, out, Disk(), poisoned=False)
        failures += code != 0 or results(out) != expected or bool(leftovers(out))
    return failures


def main() -> int:
    """Run the sweep; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20, help="of five random stops each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    source, out = options.folder / "in.fa", options.folder / "out"
    make_input(source, 300)
    shutil.rmtree(out, ignore_errors=True)
    reader, writer = os.pipe()
    assert run_once(source, out, FaultyDisk(), poisoned=True, report=writer) == 0
    total = int(os.read(reader, 99))
    assert run_once(source, out, Disk(), poisoned=False) == 0
    expected = results(out)
    tried = failed = 0
    for offset, fault in enumerate(FAULTS):  # of each another sample, which covers more
        for k in range(1 + offset % options.every, total + 1, options.every):
            tried += 1
            if problem := survived(source, out, fault, k, expected):
                failed += 1
                print(f"{fault} at operation {k} of {total}: {problem}", flush=True)
    again = twice(source, out, total, options.rounds, expected)
    print(f"five stops in a row: {options.rounds - again} of {options.rounds} survived")
    print(f"{tried - failed} of {tried} injected faults survived, at {total} operations")
    return 1 if failed or again else 0


if __name__ == "__main__":
    sys.exit(main())
