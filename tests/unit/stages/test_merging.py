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


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "in", 500)


@pytest.mark.parametrize(
    ("protein", "failed", "merged"),
    [
        (IDS, [], IDS),
        (IDS[::-1], [], IDS),
        ([*IDS[3:], *IDS[:3]], [], IDS),
        (IDS[1:], IDS[:1], IDS[1:]),  # what failed in one molecule is left out of both
        (IDS[1:], [], None),
        (IDS[2:], IDS[:1], None),
        (IDS[:5], IDS[:1], None),
    ],
)
def test_rows_are_matched_by_id_and_none_is_made_up(
    layout: Layout, protein: list[str], failed: list[str], merged: list[str] | None
) -> None:
    task = replace(_file(layout, 1, IDS, protein), params={"failed": failed})
    stage = MergingStage(layout, Disk(), ENCODERS)
    if merged is None:
        with pytest.raises(KeyError):
            stage.run(task, lambda n, t: None)
        assert not task.outputs[0].exists()
        return
    stage.run(task, lambda n, t: None)
    found = load_features(task.outputs[0], "merged")
    assert found.ids == merged
    places = torch.tensor([100.0 + IDS.index(name) for name in merged])
    assert torch.equal(found.data, places[:, None].expand(-1, 5))
