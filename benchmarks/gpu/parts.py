"""List what is measured on a GPU by each of the two commands, in order, with time limits."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from virnucpro.benchmark.machine import package_version

ROOT = Path(__file__).parents[2]
TEST_PROCESSES = 8  # most of the time of the tests is compiling
QUIET = ("-p", "no:cacheprovider", "-p", "no:benchmark", "-W", "default")


@dataclass(frozen=True)
class Scale:
    """The device and the amount of work.

    Attributes:
        esm, dnabert: sizes of the models, as in ``EncoderFamily.released``.
        half, eighth: precisions of 16 and 8 bits, or what a CPU has in their place in a rehearsal.
        esm_sequences: per call of ESM-2.
        dnabert_sequences: per call of DNABERT-S.
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
    budgets: tuple[int, ...]

    @property
    def models(self) -> dict[str, str]:
        """The names for ``virnucpro benchmark`` by family."""
        esm = self.esm if self.esm.startswith("esm2_") else f"esm2:{self.esm}"
        released = self.dnabert == "DNABERT-S"
        return {"esm2": esm, "dnabert-s": "dnabert-s" if released else f"dnabert-s:{self.dnabert}"}


BUDGETS = (8192, 16384, 32768, 65536)
# A call of ESM-2 3B is some two seconds, of DNABERT-S one and a half; the pool's stages a minute.
REAL = Scale(
    "cuda", "esm2_t36_3B_UR50D", "DNABERT-S", "bf16", "fp8", 1024, 16384, 256, 20_000, 3.0, BUDGETS
)  # fmt: skip
QUICK = Scale(
    "cuda", "esm2_t36_3B_UR50D", "DNABERT-S", "bf16", "fp8", 512, 4096, 128, 8_000, 0.5, BUDGETS
)  # fmt: skip
SMALL = Scale("cpu", "3x64x2", "3x48x2", "fp32", "bf16", 8, 16, 6, 60, 0.0, (512, 1024))


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
    return PARTS[command](_PartMaker(scale, work, scratch))


@dataclass(frozen=True)
class _PartMaker:
    scale: Scale
    work: Path
    scratch: Path

    def module(self, name: str, seconds: float, module: str, *words: object) -> Part:
        """Return a part that a module carries out, with the options that all of them have."""
        options = ["--device", self.scale.device, "--json", str(self.work / f"{name}.json")]
        return Part(name, seconds, (sys.executable, "-m", module, *map(str, words), *options))

    def benchmark(
        self, name: str, seconds: float, sequences: int, precisions: str, *words: str
    ) -> Part:
        """Return a part that ``virnucpro benchmark`` carries out."""
        return self.module(
            name, seconds, "virnucpro", "benchmark", *words, "--precision", precisions,
            "--sequences", sequences, "--seconds", self.scale.seconds,
        )  # fmt: skip

    def breakdown(self, name: str, seconds: float, family: str, precision: str) -> Part:
        small = ("--budget", "1024") if self.scale.device == "cpu" else ()
        return self.module(
            name, seconds, "benchmarks.gpu.breakdown", self.scale.models[family], "--precision",
            precision, *(small if family == "esm2" else small and ("--budget", "6")),
        )  # fmt: skip

    def pool(self, name: str, seconds: float, precision: str, *words: object) -> Part:
        return self.module(
            name, seconds, "benchmarks.gpu.pool", self.scratch, "--esm", self.scale.esm,
            "--dnabert", self.scale.dnabert, "--precision", precision, "--frames",
            self.scale.frames, *words,
        )  # fmt: skip

    def tests(self) -> Part:
        """Return the tests of a GPU. A rehearsal has time only for some of the embeddings."""
        paths = ["tests/gpu"]
        if self.scale.device == "cpu":
            files = ("test_gpu_device.py", "test_gpu_embeddings.py")
            paths = [*(f"tests/gpu/{name}" for name in files), "-k", "finds or (those and fp32)"]
        together = self.scale.device == "cuda" and package_version("pytest-xdist") is not None
        options = [f"--on={self.scale.device}", f"--basetemp={self.scratch / 'tests'}"]
        options += [f"--junitxml={self.work / 'tests.xml'}"]
        options += [f"--outcomes={self.work / 'tests.jsonl'}", *QUIET]
        processes = ["-n", str(TEST_PROCESSES)] if together else []
        command = (sys.executable, "-m", "pytest", *paths, *processes, *options)
        return Part("tests", 220 if together else 300, command)


def _facts(make: _PartMaker) -> list[Part]:
    """Return what shows whether everything is right, and how fast the models are."""
    scale = make.scale
    esm, dnabert = scale.models["esm2"], scale.models["dnabert-s"]
    half, both = scale.half, f"{scale.half},{scale.eighth}"
    precisions = "bf16,fp32" if scale.device == "cuda" else "fp32"
    return [
        make.module("machine", 40, "benchmarks.gpu.machine", "--precisions", precisions),
        make.tests(),
        make.benchmark("esm2", 120, scale.esm_sequences, half, esm, "--no-peers"),
        make.breakdown("breakdown-esm2", 80, "esm2", half),
        make.benchmark("dnabert-s", 60, scale.dnabert_sequences, half, dnabert, "--no-peers"),
        make.breakdown("breakdown-dnabert-s", 40, "dnabert-s", half),
        make.benchmark("esm2-fp8", 90, scale.esm_sequences, both, esm, "--no-peers"),
        make.breakdown("breakdown-esm2-fp8", 60, "esm2", scale.eighth),
        make.benchmark("dnabert-s-fp8", 60, scale.dnabert_sequences, both, dnabert, "--no-peers"),
        make.breakdown("breakdown-dnabert-s-fp8", 40, "dnabert-s", scale.eighth),
    ]


def _decisions(make: _PartMaker) -> list[Part]:
    """Return what is needed to choose between ways to do something, and whole runs."""
    scale = make.scale
    esm, dnabert = scale.models["esm2"], scale.models["dnabert-s"]
    half, both = scale.half, f"{scale.half},{scale.eighth}"
    alone, few = "--no-peers", scale.peer_sequences
    others = "fp16,fp32" if scale.device == "cuda" else "bf16"
    rounds = 7 if scale.device == "cuda" else 1
    curve = ("virnucpro", "profile", "--model", "esm2", "--random", scale.esm, "--precision", half,
             "--budgets", ",".join(map(str, scale.budgets)), "--seconds", str(scale.seconds),
             "--device", scale.device, "-o", str(make.work / "budgets.json"))  # fmt: skip
    return [
        make.pool(f"pool-{half}", 170, half),
        make.module("variants", 140, "benchmarks.gpu.variants", "--rounds", rounds),
        Part("budgets", 80, (sys.executable, "-m", *curve)),
        make.benchmark("peers", 90, few, half, esm, dnabert),
        make.module("labels", 60, "benchmarks.gpu.labels", make.scratch, "--precisions", both),
        make.pool(f"pool-{scale.eighth}", 120, scale.eighth),
        make.benchmark("mix-300", 90, scale.esm_sequences, both, esm, dnabert, alone, "--mix", "300"),
        make.pool("pool-shared", 120, half, "--workers", 2),
        make.benchmark("eager", 90, scale.esm_sequences, half, esm, dnabert, alone, "--no-compile"),
        make.benchmark("mix-reads", 90, scale.esm_sequences, both, esm, dnabert, alone, "--mix", "reads"),
        make.benchmark("precisions", 120, few, others, esm, dnabert, alone),
        make.module("stages", 60, "virnucpro", "benchmark", "--stages", "--seconds", scale.seconds),
    ]  # fmt: skip


PARTS = {"facts": _facts, "decisions": _decisions}


def environment(wheels: Path | None) -> dict[str, str]:
    """Return the environment of the parts, in which packages are imported from ``wheels``."""
    places = [str(ROOT)]
    if wheels is not None:
        places += [str(path.absolute()) for path in sorted(wheels.glob("*.whl"))]
    earlier = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*places, *([earlier] if earlier else [])])}
