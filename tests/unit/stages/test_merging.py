"""Both embeddings of a frame are matched by id, whatever the order of the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from virnucpro.contracts import Molecule, Task
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout
from virnucpro.stages.prediction import MergingStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.store.ledger import Ledger

ENCODERS: dict[Molecule, object] = {"nucleotide": "a", "protein": "b"}
IDS = [f"r{n}_chunk_1F1" for n in range(6)]


def _file(layout: Layout, number: int, nucleotide: list[str], protein: list[str]) -> Task:
    """Features of which a row holds the place of its id, and the task that merges them."""
    disk = Disk()
    disk.save(layout.split("nucleotide", number), fasta_bytes((name, "ACGT") for name in IDS))
    for molecule, ids, width in (("nucleotide", nucleotide, 2), ("protein", protein, 3)):
        rows = torch.tensor([[float(number * 100 + IDS.index(name))] * width for name in ids])
        path = layout.features(molecule, number)  # type: ignore[arg-type]
        disk.save(path, encode_features(Features(ids, rows), molecule))  # type: ignore[arg-type]
    return MergingStage(layout, disk, ENCODERS).task(Ledger(layout), number)


def _merged(layout: Layout, task: Task, *failed: str) -> Features:
    stage = MergingStage(layout, Disk(), ENCODERS)
    stage.run(replace(task, params={"failed": list(failed)}), lambda n, t: None)
    return load_features(task.outputs[0], "merged")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "in", 500)


@pytest.mark.parametrize("order", [IDS, IDS[::-1], [*IDS[3:], *IDS[:3]]])
def test_rows_are_matched_by_id(layout: Layout, order: list[str]) -> None:
    merged = _merged(layout, _file(layout, 1, IDS, order))
    assert merged.ids == IDS
    assert torch.equal(merged.data, torch.arange(100.0, 106.0)[:, None].expand(6, 5))


def test_what_failed_in_one_molecule_is_left_out_of_both(layout: Layout) -> None:
    merged = _merged(layout, _file(layout, 1, IDS, IDS[1:]), IDS[0])
    assert merged.ids == IDS[1:]
    assert torch.equal(merged.data[:, 0], torch.arange(101.0, 106.0))


@pytest.mark.parametrize(
    ("protein", "failed"), [(IDS[1:], ()), (IDS[2:], IDS[:1]), (IDS[:5], IDS[:1])]
)
def test_a_row_that_is_missing_is_never_made_up(
    layout: Layout, protein: list[str], failed: tuple[str, ...]
) -> None:
    task = _file(layout, 1, IDS, protein)
    with pytest.raises(KeyError):
        _merged(layout, task, *failed)
    assert not task.outputs[0].exists()
