"""Receipts and verdicts: what counts as done, and why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.contracts import FailedSequences, Task, TaskFigures, TaskResult
from virnucpro.errors import ResumeRefusedError
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.ledger import UNFINISHED, Ledger, fingerprint


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "s", 500)


@pytest.fixture
def task(layout: Layout) -> Task:
    source = layout.root / "in.fa"
    source.write_text(">a\nACGT\n")
    out = layout.root / "out.pt"
    return Task(
        "protein_embeddings", 1, (source,), (out,), layout.root / "out.pt.done", {"encoder": "e"}
    )


def _carry_out(
    task: Task, layout: Layout, *failures: FailedSequences, rows: bytes = b"rows"
) -> None:
    ledger = Ledger(layout, Disk())
    ledger.fingerprint(task)
    output = Disk().save(task.outputs[0], rows, 1)
    ledger.accept(TaskResult(task, (output,), TaskFigures(failures=failures)))


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("output truncated", lambda d: (d / "out.pt").write_bytes(b"row"), "other content"),
    ("a flipped bit", lambda d: (d / "out.pt").write_bytes(b"rowr"), "other content"),
    ("output gone", lambda d: (d / "out.pt").unlink(), "out.pt is missing"),
    ("receipt gone", lambda d: (d / "out.pt.done").unlink(), UNFINISHED),
    ("receipt empty", lambda d: (d / "out.pt.done").write_bytes(b""), "no proof"),
    (
        "half a receipt",
        lambda d: (d / "out.pt.done").write_bytes((d / "out.pt.done").read_bytes()[:60]),
        "no proof",
    ),
    ("a list", lambda d: (d / "out.pt.done").write_bytes(b"[]"), "no proof"),
    ("input edited", lambda d: (d / "in.fa").write_text(">a\nACGA\n"), "made from other inputs"),
    ("input gone", lambda d: (d / "in.fa").unlink(), "in.fa is missing"),
]


@pytest.mark.parametrize(
    ("damage", "reason"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES]
)
def test_damage_is_noticed_with_its_reason(task, layout, damage, reason):
    _carry_out(task, layout)
    damage(layout.root)
    assert reason in Ledger(layout, Disk()).reason(task)


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside"])
def test_a_receipt_never_points_outside(task, layout, name):
    _carry_out(task, layout)
    document = unsealed(task.receipt.read_bytes())
    document["outputs"][0]["path"] = name
    task.receipt.write_bytes(sealed(document))
    assert Ledger(layout, Disk()).reason(task).startswith("no proof")
    task.receipt.write_bytes(sealed(document | {"schema": 99, "producer": "virnucpro 9"}))
    with pytest.raises(ResumeRefusedError, match=r"another version of the program .virnucpro 9."):
        Ledger(layout, Disk()).reason(task)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"stage": "nucleotide_embeddings"}, False),
        ({"version": 2}, False),
        ({"params": {"encoder": "f"}}, False),
        ({"weight": 5}, True),
        ({"count": 7}, True),
        ({"receipt": Path("x")}, True),
        ({"inputs": (Path("y"),)}, True),
    ],
)
def test_the_fingerprint_has_what_decides_the_answer(task, change, same):
    changed = replace(task, **change)
    usual = fingerprint(task, ["d"], "identity")
    assert (fingerprint(changed, ["d"], "identity") == usual) is same
    assert usual not in (fingerprint(task, ["e"], "identity"), fingerprint(task, ["d"], "other"))


def test_what_failed_last_time_or_has_other_files_is_stale(task, layout):
    _carry_out(task, layout, FailedSequences("E", "m", ("a", "b")))
    assert Ledger(layout, Disk()).reason(task) == "2 sequences failed last time"
    assert (
        Ledger(layout, Disk()).reason(replace(task, outputs=task.inputs))
        == "other files belong to it"
    )
