"""Runs that are disturbed, and started again: their results are those of an undisturbed run."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.faults.struck import STRIKES
from tests.forked import Call, run_forked
from tests.legacy_run import make_legacy
from tests.training_data import make_dataset
from tests.unit.encoders.small import fair_model, save_fair
from tests.unit.rcl.made_proteins import proteins, write_tables
from virnucpro.io.frames import GENETIC_CODE

CPU = ("--device", "cpu", "-t", 1)
# The times of a run are in them.
WITH_TIMES = ("_run.json", ".html", ".log", ".done", "samples_summary.tsv")


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


# --- runs


@dataclass(frozen=True)
class Command:
    """A command that writes into ``out``, with the current folder that ``make`` has filled."""

    make: Callable[[Path], object]
    words: Sequence[object]


def _configuration(frames_per_file: int) -> str:
    return f"prediction: {{expected_length: 200, sequences_per_file: {frames_per_file}}}\n"


def _make_reads(home: Path, **records: int) -> None:
    for name, count in records.items():
        make_input(home / f"{name}.fa", count)
    (home / "c.yaml").write_text(_configuration(400))


def _make_version_1(home: Path) -> None:
    make_legacy(home)[1].root.rename(home / "out")
    (home / "c.yaml").write_text(_configuration(25))


def _make_proteins(home: Path) -> None:
    write_tables(home, 12)
    records = [f">{protein.accession}\n{protein.sequence}\n" for protein in proteins(12)]
    (home / "in.fa").write_text("".join(records))
    settings = {
        "models": {"cnn": {"channels": [4], "kernel_sizes": [3]}},
        "training": {"epochs": 2, "batch_size": 8},
    }
    (home / "c.yaml").write_text(yaml.safe_dump(settings))
    save_fair(fair_model(layers=1, width=320, heads=4), home / "tiny.pt")


PREDICT = ("-o", "out", "-m", "toy", "-c", "c.yaml", *CPU)
TABLES = ("--serpins", "serpins.csv", "--others", "others.csv", "--output-dir", "out", *CPU)
TRAINING = ("--model", "cnn", "--config", "c.yaml", "--split", "random")
COMMANDS = {
    "toy": Command(lambda home: _make_reads(home, a=300), ("predict", "a.fa", *PREDICT)),
    "two samples": Command(
        lambda home: _make_reads(home, a=90, b=30), ("predict", "a.fa", "b.fa", *PREDICT)
    ),
    "version 1": Command(_make_version_1, ("predict", "in.fa", *PREDICT, "--resume")),
    "train embed": Command(
        lambda home: make_dataset(home / "out", genomes=(2, 1, 1), codons=600, shard=15),
        ("train", "embed", "out", "-m", "toy", *CPU),
    ),
    "rcl embed": Command(
        _make_proteins,
        ("rcl", "embed", "--esm-model", "tiny.pt", "--checkpoint-every", 7, *TABLES),
    ),
    "rcl train": Command(_make_proteins, ("rcl", "train", *TRAINING, *TABLES)),
    "rcl predict": Command(
        _make_proteins,
        ("rcl", "predict", "in.fa", "--chunk-size", 7, "--residues", "-o", "out", *CPU),
    ),
}


# --- disturbances between two starts


def _state_files(out: Path) -> list[Path]:
    return sorted(path for path in out.glob(".checkpoints/**/*") if path.is_file())


def _receipts(out: Path) -> list[Path]:
    return sorted(out.rglob("*.done"))


def _proved_files(out: Path) -> list[Path]:
    return [path.with_suffix("") for path in _receipts(out) if path.with_suffix("").is_file()]


def _flip(files: Sequence[Path], number: int) -> None:
    """Flip the bit of this number in all files together."""
    for path in files:
        content = bytearray(path.read_bytes())
        if number < 8 * len(content):
            content[number // 8] ^= 1 << number % 8
            path.write_bytes(content)
            return
        number -= 8 * len(content)


def _remove(files: Sequence[Path], number: int) -> None:
    files[number].unlink()


def _cut(files: Sequence[Path], number: int) -> None:
    """Leave the first half of a file."""
    data = files[number].read_bytes()
    files[number].write_bytes(data[: len(data) // 2])


Files = Callable[[Path], list[Path]]
Change = Callable[[Sequence[Path], int], None]
CHANGES: dict[str, tuple[Files, Change]] = {
    "flipped bit": (_state_files, _flip),
    "removed receipt": (_receipts, _remove),
    "cut file": (_proved_files, _cut),
}
DISTURBANCES = [*(name for name in STRIKES if name != "none"), "random stops", *CHANGES]


# --- what comes of them


class Survival:
    """A command that nothing disturbs, carried out once, and disturbed ones compared with it."""

    def __init__(self, command: Command, folder: Path) -> None:
        self._command = command
        self._made, self._finished, self._home = (folder / n for n in ("made", "finished", "home"))
        self._made.mkdir(parents=True)
        command.make(self._made)
        self._begin_from(self._made)
        done = self._start("none/failing")
        assert done.code in (0, 2), done.err
        self._operations = int(done.out.splitlines()[-1])
        if done.code:
            done = self._start()
        assert done.code == 0, done.err
        self._expected = results(self._home / "out")
        shutil.copytree(self._home, self._finished)

    def numbers(self, disturbance: str) -> range:
        """Return those of all operations, or of a bit of each byte, or of all files."""
        if disturbance in CHANGES:
            files = CHANGES[disturbance][0](self._finished / "out")
            bits = 8 * sum(path.stat().st_size for path in files)
            return range(0, bits, 9) if disturbance == "flipped bit" else range(len(files))
        return range(1, self._operations + 1)

    def survives(self, disturbance: str, number: int) -> str:
        """Disturb the command, start it again, and return what went wrong, or an empty text.

        ``number`` is one of ``numbers``: of the operation that is struck, or of the change.
        """
        if disturbance in CHANGES:
            self._begin_from(self._finished)
            files_of, change = CHANGES[disturbance]
            change(files_of(self._home / "out"), number)
            return self._problem_of_the_next_start()
        self._begin_from(self._made)
        if disturbance == "random stops":
            rng = random.Random(number)
            for _ in range(5):
                at = rng.randint(1, self._operations)
                if not self._start("stop/failing", at).code:  # nothing was left for the stop
                    return self._difference()
            return self._problem_of_the_next_start()
        done = self._start(f"{disturbance}/failing", number)
        if done.code not in (STRIKES[disturbance][1], 0, 2):  # 0 and 2: it went on without
            return f"exit {done.code}: {done.err}"
        return self._problem_of_the_next_start() if done.code else self._difference()

    def _begin_from(self, source: Path) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.copytree(source, self._home)

    def _start(self, strike: str = "none", at: int = 0) -> Call:
        words = strike, at, *self._command.words
        return run_forked(*words, module="tests.faults.struck", cwd=self._home)

    def _problem_of_the_next_start(self) -> str:
        done = self._start()
        if done.code:
            return f"the next start: exit {done.code}: {done.err}"
        return self._difference()

    def _difference(self) -> str:
        found, expected = results(self._home / "out"), self._expected
        names = found.keys() | expected.keys()
        wrong = sorted(name for name in names if found.get(name) != expected.get(name))
        return f"not as expected: {', '.join(wrong)}" if wrong else ""


def results(out: Path) -> dict[str, bytes]:
    """Return the content of every file that stays, and has to be the same."""
    files = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    return {
        name: b"" if any(word in name for word in WITH_TIMES) else path.read_bytes()
        for name, path in files.items()
        if ".checkpoints" not in name and "tfevents" not in name
    }
