"""List what is measured on a GPU: commands in the order of their importance, with time limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

WORKERS = 8  # processes that share the tests: most of their time is compiling
QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "-W", "default")


@dataclass(frozen=True)
class Scale:
    """The device and the amount of work.

    Attributes:
        esm, dnabert: sizes of the models, as in ``EncoderFamily.released``.
        low, lower: precisions of 16 and 8 bits, or what a CPU has in their place in a rehearsal.
        sequences: per call of ESM-2. ``many`` is for DNABERT-S, ``few`` for slow implementations.
        frames: the least number in a whole run.
        seconds: the time of calls to each implementation.
    """

    device: str
    esm: str
    dnabert: str
    low: str
    lower: str
    sequences: int
    many: int
    few: int
    frames: int
    seconds: float

    @property
    def models(self) -> dict[str, str]:
        """The names for ``virnucpro benchmark`` by family."""
        esm = self.esm if self.esm.startswith("esm2_") else f"esm2:{self.esm}"
        small = self.dnabert != "DNABERT-S"
        return {"esm2": esm, "dnabert-s": f"dnabert-s:{self.dnabert}" if small else "dnabert-s"}


# A call of ESM-2 3B is some two seconds, of DNABERT-S one and a half; the pool's stages a minute.
REAL = Scale("cuda", "esm2_t36_3B_UR50D", "DNABERT-S", "bf16", "fp8", 1024, 16384, 512, 20_000, 3.0)
QUICK = Scale(
    "cuda", "esm2_t36_3B_UR50D", "DNABERT-S", "bf16", "fp8", 512, 4096, 128, 8_000, 0.5
)  # fmt: skip
SMALL = Scale("cpu", "3x64x2", "3x48x2", "fp32", "bf16", 8, 16, 6, 60, 0.0)


@dataclass(frozen=True)
class Part:
    """A command with a time limit. It leaves ``NAME.json``; the part ``tests`` leaves only a log."""

    name: str
    seconds: float
    command: tuple[str, ...]


def parts(scale: Scale, out: Path, scratch: Path) -> list[Part]:
    """Return all parts.

    The sum of their limits is more than the time of a run, the sum of what they need is less. fp32
    at 3B is slow, so the parts that need it have few sequences.
    """
    esm, dnabert = scale.models["esm2"], scale.models["dnabert-s"]
    both, alone = f"{scale.low},{scale.lower}", "--no-peers"

    def benchmark(name: str, seconds: float, sequences: int, precision: str, *more: str) -> Part:
        command = ["virnucpro", "benchmark", *more, "--device", scale.device]
        command += ["--precision", precision, "--sequences", str(sequences)]
        command += ["--seconds", str(scale.seconds), "--json", str(out / f"{name}.json")]
        return Part(name, seconds, (sys.executable, "-m", *command))

    def pool(precision: str, seconds: float) -> Part:
        name = f"pool-{precision}"
        command = ["benchmarks.gpu.pool", str(scratch), "--device", scale.device]
        command += ["--esm", scale.esm, "--dnabert", scale.dnabert, "--precision", precision]
        command += ["--frames", str(scale.frames), "--json", str(out / f"{name}.json")]
        return Part(name, seconds, (sys.executable, "-m", *command))

    few, low = scale.few, scale.low
    others = "fp16,fp32" if scale.device == "cuda" else "bf16"
    stages = ("virnucpro", "benchmark", "--stages", "--device", scale.device, "--seconds",
              str(scale.seconds), "--json", str(out / "stages.json"))  # fmt: skip
    return [
        tests(scale, out, scratch),
        benchmark("esm2", 150, scale.sequences, both, esm, alone),
        benchmark("dnabert-s", 110, scale.many, both, dnabert, alone),
        pool(scale.low, 240),
        pool(scale.lower, 180),
        benchmark("peers", 260, few, both, esm, dnabert),
        benchmark("eager", 90, scale.sequences, low, esm, dnabert, alone, "--no-compile"),
        benchmark("mix-300", 120, scale.sequences, both, esm, dnabert, alone, "--mix", "300"),
        benchmark("mix-reads", 120, scale.sequences, both, esm, dnabert, alone, "--mix", "reads"),
        benchmark("precisions", 120, few, others, esm, dnabert, alone),
        Part("stages", 60, (sys.executable, "-m", *stages)),
    ]


def tests(scale: Scale, out: Path, scratch: Path) -> Part:
    """Return the tests of a GPU. A rehearsal has time only for the embeddings."""
    paths = ["tests/gpu"]
    if scale.device == "cpu":
        paths = ["tests/gpu/test_gpu_device.py", "tests/gpu/test_gpu_embeddings.py", "-k", "fp32"]
    together = scale.device == "cuda" and version("pytest-xdist") is not None
    paths += ["-n", str(WORKERS)] if together else []
    temporary = f"--basetemp={scratch / 'tests'}"
    report = f"--junitxml={out / 'tests.xml'}"
    options = (f"--on={scale.device}", temporary, report, *QUIET)
    command = (sys.executable, "-m", "pytest", *paths, *options)
    return Part("tests", 240 if together else 480, command)


def version(package: str) -> str | None:
    """Return the version of an installed package, or None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
