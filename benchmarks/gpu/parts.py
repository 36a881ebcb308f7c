"""List what each of the two commands measures on a GPU, in order, with time limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import package_version

TEST_PROCESSES = 8  # most of the time of the tests is compiling


@dataclass(frozen=True)
class Scale:
    """The device and the amount of work.

    Attributes:
        esm, dnabert: sizes of the models: a released name, or LAYERSxWIDTHxHEADS.
        half, eighth: precisions of 16 and 8 bits, or what a CPU has in their place in a rehearsal.
        esm_sequences, dnabert_sequences: per call of the encoder.
        peer_sequences: per call where a slow implementation is measured too.
        frames: the least number in a whole run.
        seconds: the time of calls to each implementation.
        budgets: batch budgets of ESM-2 in tokens.
    """

    device: str
    esm: str
    dnabert: str
    half: str
    eighth: str
    esm_sequences: int
    dnabert_sequences: int
    peer_sequences: int
    frames: int
    seconds: float
    budgets: str


# A call of ESM-2 3B is some two seconds, of DNABERT-S one and a half; the pool's stages a minute.
REAL = Scale(
    "cuda", "esm2_t36_3B_UR50D", "DNABERT-S", "bf16", "fp8", 1024, 16384, 256, 20_000, 3.0,
    "8192,16384,32768,65536",
)  # fmt: skip
SMALL = Scale("cpu", "3x64x2", "3x48x2", "fp32", "bf16", 8, 16, 6, 60, 0.0, "512,1024")


@dataclass(frozen=True)
class Part:
    """A command with a time limit in seconds. It writes ``NAME.json`` again and again."""

    name: str
    seconds: float
    command: tuple[str, ...]


def parts(command: str, scale: Scale, work: Path, scratch: Path) -> list[Part]:
    """Return the parts of ``facts`` or ``decisions``.

    The sum of their limits is more than the time of a command, the sum of what they need is less.

    Args:
        work: the folder for results.
        scratch: the folder for models and the files of runs.
    """
    half, eighth, both = scale.half, scale.eighth, f"{scale.half},{scale.eighth}"
    real = scale.device == "cuda"
    esm, dnabert = (
        (scale.esm, scale.dnabert) if real else (f"esm2:{scale.esm}", f"dnabert-s:{scale.dnabert}")
    )

    def module(name: str, seconds: float, module: str, *words: object) -> Part:
        options = ["--device", scale.device, "--json", str(work / f"{name}.json")]
        return Part(name, seconds, (sys.executable, "-m", module, *map(str, words), *options))

    def encoders(name: str, seconds: float, count: int, precisions: str, *words: str) -> Part:
        amount = ("--sequences", count, "--seconds", scale.seconds)
        return module(
            name, seconds, "benchmarks.encoders", *words, "--precision", precisions, *amount
        )

    def breakdown(name: str, seconds: float, model: str, precision: str, budget: int) -> Part:
        words = (model, "--precision", precision, *(() if real else ("--budget", budget)))
        return module(name, seconds, "benchmarks.gpu.breakdown", *words)

    def pool(name: str, seconds: float, precision: str, *words: object) -> Part:
        sizes = (scratch, "--esm", scale.esm, "--dnabert", scale.dnabert, "--frames", scale.frames)
        return module(
            name, seconds, "benchmarks.gpu.pool", *sizes, "--precision", precision, *words
        )

    many, more, few = scale.esm_sequences, scale.dnabert_sequences, scale.peer_sequences
    if command == "facts":
        return [
            module("machine", 40, "benchmarks.gpu.machine"),
            encoders("esm2", 110, many, half, esm, "--no-peers"),
            breakdown("breakdown-esm2", 80, esm, half, 1024),
            encoders("dnabert-s", 60, more, half, dnabert, "--no-peers"),
            encoders("esm2-fp8", 90, many, both, esm, "--no-peers"),
            encoders("dnabert-s-fp8", 60, more, both, dnabert, "--no-peers"),
            breakdown("breakdown-esm2-fp8", 60, esm, eighth, 1024),
            breakdown("breakdown-dnabert-s", 40, dnabert, half, 6),
            breakdown("breakdown-dnabert-s-fp8", 40, dnabert, eighth, 6),
            _tests(scale, work, scratch),
        ]
    return [
        pool(f"pool-{half}", 150, half),
        pool(f"pool-{eighth}", 110, eighth),
        encoders("peers", 110, few, half, esm, dnabert),
        module("variants", 130, "benchmarks.gpu.variants"),
        pool("budgets", 60, half, "--budgets", scale.budgets, "--seconds", scale.seconds),
        encoders("mix-300", 90, many, both, esm, dnabert, "--no-peers", "--mix", "300"),
    ]


def _tests(scale: Scale, work: Path, scratch: Path) -> Part:
    """Return the tests of a GPU; a rehearsal runs the body of each, except those of whole runs."""
    options = [f"--on={scale.device}", f"--basetemp={scratch / 'tests'}", "-q"]
    options += [f"--junitxml={work / 'tests.xml'}", f"--outcomes={work / 'tests.json'}"]
    options += ["-p", "no:cacheprovider", "-p", "no:benchmark", "-W", "default"]
    if scale.device == "cpu":
        options += ["--deselect", "tests/gpu/test_gpu_commands.py"]
    elif package_version("pytest-xdist") is not None:
        options += ["-n", str(TEST_PROCESSES), "--dist", "worksteal"]
    few_threads = ("env", "OMP_NUM_THREADS=2")  # each of the processes has as many
    return Part("tests", 300, (*few_threads, sys.executable, "-m", "pytest", "tests/gpu", *options))
