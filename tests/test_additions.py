"""What docs/developing.md promises: each addition to the program is a change of one or two files.

Only a stage with a result file of its own needs a third, and it fails with the name of that file.

Every test changes a copy of the package as a developer would, and runs the copy. Pools of workers
are added in ``tests/contract/pools.py``, encoders in ``tests/cli/test_encoders.py``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import table
from tests.forked import Call, run_forked

ROOT = Path(__file__).parents[1]
COPY = {"module": "tests.changed_package"}

PRECISION = """
    Precision(name="bf16x", dtype="bfloat16", linear_layers="cast", capability=(8, 0),
              automatic_from=None),
"""

STAGE = '''
from dataclasses import dataclass

from virnucpro.contracts import TaskResult
from virnucpro.stages.base import HostStage
from virnucpro.tables import CONTIGS


@dataclass(frozen=True)
class ViralListStage(HostStage):
    """Writes the ids of the records classified as viral, one per line."""

    name, title = "viral_list", "Viral list"

    def task(self, ledger):
        inputs, outputs = (self.layout.contigs_table,), (self.layout.result("virus.txt"),)
        return self.whole(inputs, outputs, {})

    def run(self, task, report):
        rows = CONTIGS.read(task.inputs[0], "record", "call")
        ids = [record for record, call in rows if call == "virus"]
        text = "".join(f"{record}\\n" for record in ids)
        return TaskResult(task, (self.disk.save(task.outputs[0], text.encode(), len(ids)),))
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that a test may change."""
    copy = tmp_path / "copy" / "virnucpro"
    shutil.copytree(ROOT / "virnucpro", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def insert(package: Path) -> Callable[[str, str, str], None]:
    """Put text behind another text, which occurs once in a file of the copy."""

    def _insert(file: str, after: str, text: str) -> None:
        before = (package / file).read_text()
        assert before.count(after) == 1, f"{file} has another form than docs/developing.md says"
        (package / file).write_text(before.replace(after, after + text))

    return _insert


@pytest.fixture
def predict(package: Path, tmp_path: Path, example: Path) -> Callable[..., Call]:
    """Classify the example with the copy of the package; results are in ``tmp_path / "out"``."""
    fixed = ("-o", tmp_path / "out", "-m", "lite", "--device", "cpu", "--no-genes")
    command = (package.parent, "predict", example, *fixed)
    return lambda *options: run_forked(*command, *options, **COPY)


def test_a_precision_is_a_row_of_a_table(insert, predict, tmp_path):
    insert("precision.py", "_ROWS = (", PRECISION)
    assert predict("--precision", "bf16x").code == 0
    record = json.loads((tmp_path / "out" / "example_run.json").read_text())
    assert "bf16x" in json.dumps(record["workers"])
    assert "'auto', 'bf16x', 'fp32'" in predict("--precision", "bf17").err


def test_a_stage_is_a_class_a_line_of_the_list_and_the_name_of_its_file(
    package, insert, predict, tmp_path
):
    (package / "stages" / "viral_list.py").write_text(STAGE)
    insert(
        "stages/output.py",
        "return [ConsensusStage(layout, disk), own",
        ", ViralListStage(layout, disk)",
    )
    insert(
        "stages/output.py",
        "from virnucpro.tables import CONSENSUS, FRAMES, PAIRS, RECORDS\n",
        "from virnucpro.stages.viral_list import ViralListStage\n",
    )
    forgotten = predict()
    assert "add 'virus.txt' to RESULT_SUFFIXES in virnucpro/layout.py" in forgotten.err
    insert("layout.py", "RESULT_SUFFIXES = (", '"virus.txt", ')
    assert predict().code == 0
    folder = tmp_path / "out"
    rows = table(folder / "example_contigs.tsv")
    viral = [row["record"] for row in rows if row["call"] == "virus"]
    assert (folder / "example_virus.txt").read_text().splitlines() == viral != []
    (folder / "example_virus.txt").unlink()
    assert predict().code == 0
    before = {path: path.stat().st_mtime_ns for path in folder.glob("example_*") if path.is_file()}
    assert folder / "example_virus.txt" in before
    assert predict().code == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert run_forked(package.parent, "call", folder, "--min-score", "1", **COPY).code == 0
    assert (folder / "example_virus.txt").read_text() == ""


def test_a_column_is_a_declaration_and_its_value(insert, predict, tmp_path):
    insert(
        "tables.py", 'in the order of the input. No record is missing."""\n\n', "    gc: Share\n"
    )
    insert(
        "stages/result_files.py",
        "CONTIGS.lines(",
        "gc=[sum(map(r.sequence.count, 'GC')) / max(1, len(r.sequence)) for r in records], ",
    )
    assert predict().code == 0
    rows = table(tmp_path / "out" / "example_contigs.tsv")
    assert all(0.2 < float(row["gc"]) < 0.8 for row in rows)
    assert len({row["gc"] for row in rows}) > 1
