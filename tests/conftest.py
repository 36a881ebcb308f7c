"""Shared by all tests: where the reference data is, and a way to call the command line."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: threads wait and do not spin

from tests.forked import CONTEXT, LEFT_OUT, Call, ForkedCommand, ForkedStart

# A busy machine may take any time for an example: no deadline, and no complaint about slow data.
settings.register_profile(
    "any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any_machine")
ROOT = Path(__file__).parents[1]


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


@pytest.fixture(scope="session")
def reference() -> Path:
    """Outputs of the original program and the small models it ran with."""
    return _folder("VIRNUCPRO_REFERENCE")


@pytest.fixture(scope="session")
def genomes() -> Path:
    """Viral and non-viral genomes."""
    return _folder("VIRNUCPRO_GENOMES")


@pytest.fixture(autouse=True)
def threads() -> None:
    """Forget how many threads a command has set: that is of the whole process."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def forked_processes() -> Iterator[None]:
    """Have workers and trainings start without importing torch; see ``tests.forked``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("virnucpro.workers.processes.START", ForkedStart(CONTEXT))
        yield


@pytest.fixture(scope="session", autouse=True)
def left_out() -> Iterator[pytest.MonkeyPatch]:
    """Leave out figures, which hardly a test looks at, and to wait for the disk.

    Figures take four fifths of the time of a run with the toy encoders.
    """
    with pytest.MonkeyPatch.context() as patch:
        _leave_out(patch)
        yield patch


@pytest.fixture(scope="module")
def drawn(left_out: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the reports of this module drawn in full."""
    left_out.undo()
    yield
    _leave_out(left_out)


def _leave_out(patch: pytest.MonkeyPatch) -> None:
    for name, value in LEFT_OUT.items():
        patch.setattr(name, value)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]):
    """Run a command line in this process, as ``virnucpro ARGUMENTS`` would."""
    from virnucpro.cli import run

    def _call(*arguments: object) -> Call:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        text = capfd.readouterr()
        return Call(code, text.out, text.err)

    return _call


@pytest.fixture
def shell():
    """Run a command line in a process of its own."""

    def _shell(*arguments: object, **options: object) -> Call:
        command = [sys.executable, "-m", "virnucpro", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, **options
        )
        return Call(done.returncode, done.stdout, done.stderr)

    return _shell


@pytest.fixture
def start():
    """Start commands in processes that need not import torch; see ``tests.forked``."""
    started = []

    def _start(*words: object, **options: object) -> ForkedCommand:
        started.append(ForkedCommand(*words, **options))
        return started[-1]

    yield _start
    for process in started:
        process.close()


def pytest_collection_finish() -> None:
    """Have the garbage collector skip what was imported, which is never garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A file with the first records of the example of the package, of 3 to 6 kb each."""
    records = (ROOT / "virnucpro/data/example.fa").read_text().split(">")[1:7]
    path = tmp_path / "in/example.fa"
    path.parent.mkdir()
    path.write_text("".join(f">{record}" for record in records))
    return path
