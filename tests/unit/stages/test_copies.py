"""Frames with the same sequences as an earlier one: found, left out, and scored all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import virnucpro.stages.prediction as prediction
import virnucpro.stages.splitting as splitting
from virnucpro.contracts import TaskResult
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import Layout
from virnucpro.stages.prediction import with_copies
from virnucpro.stages.splitting import MOST_FILES, SplittingStage, frames_per_file
from virnucpro.store.disk import Disk
from virnucpro.tables import COPIES

NUCLEOTIDES = ["ACGT", "ACGT", "CCCC", "ACGT", "CCCC", "GGGG", "ACGT"]
PROTEINS = ["M", "M", "L", "K", "L", "P", "M"]  # the fourth frame differs only here


class Translated:
    """What the stage asks of the ledger."""

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def rows(self, path: Path) -> int:
        return self._frames


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path, "in", 500)
    for molecule, texts in (("nucleotide", NUCLEOTIDES), ("protein", PROTEINS)):
        pairs = [(f"f{n}", text) for n, text in enumerate(texts, 1)]
        Disk().save(layout.frames[molecule], fasta_bytes(pairs))
    return layout


def _split(layout: Layout, *, dedup: bool) -> TaskResult:
    stage = SplittingStage(layout, Disk(), 2, dedup=dedup)
    task = stage.task(Translated(len(PROTEINS)))
    reported: list[int] = []
    result = stage.run(task, lambda sequences, _: reported.append(sequences))
    assert sum(reported) == task.count == 2 * len(PROTEINS)
    return result


def _embedded(layout: Layout) -> list[str]:
    files = sorted(layout.folders["protein"].iterdir())
    assert len(files) == len(list(layout.folders["nucleotide"].iterdir()))
    return [name for file in files for name, _ in read_fasta(file)]


@pytest.mark.parametrize("at_a_time", [3, 1 << 22])
def test_a_frame_is_left_out_where_both_sequences_are_the_same(layout, monkeypatch, at_a_time):
    monkeypatch.setattr(splitting, "SORTED_AT_A_TIME", at_a_time)
    result = _split(layout, dedup=True)
    assert _embedded(layout) == ["f1", "f3", "f4", "f6"]
    table = [list(row) for row in COPIES.read(layout.copies_table, "frame", "first")]
    assert table == [["f2", "1"], ["f5", "3"], ["f7", "1"]]
    assert result.outputs[0].rows == len(table)


@pytest.mark.parametrize("at_a_time", [1, 2, 4096])
def test_copies_have_the_scores_of_the_first(layout, monkeypatch, at_a_time):
    monkeypatch.setattr(prediction, "FRAMES_AT_A_TIME", at_a_time)
    _split(layout, dedup=True)
    files = layout.frames["nucleotide"], layout.copies_table
    scores = ["f1\t0.9\n", "f4\t0.8\n", "f6\t0.6\n"]  # f3 could not be embedded
    assert list(with_copies(iter(scores), *files)) == [
        "f1\t0.9\n",
        "f2\t0.9\n",
        "f4\t0.8\n",
        "f6\t0.6\n",
        "f7\t0.9\n",
    ]
    for names in (["f4", "f1"], ["f1", "other"], ["f6", "f7"]):
        with pytest.raises(AssertionError):
            list(with_copies(iter([f"{name}\t0\n" for name in names]), *files))
    with layout.copies_table.open("a") as table:
        table.write(COPIES.line(frame="of nothing", first=1))
    with pytest.raises(AssertionError):
        list(with_copies(iter(scores), *files))


@pytest.mark.parametrize(
    ("frames", "proteins", "most", "size"),
    [
        (0, True, None, 500),
        (1000, True, None, 500),
        (320_001, True, None, 501),
        (1_000_000, True, None, 1563),
        (9_000_000, True, None, 2000),
        (10**8, True, None, 10_000),
        (1000, False, None, 2500),
        (10**8, False, None, 10_000),
        (10**8, True, 25, 25),
        (1000, True, 10_000, 500),
    ],
)
def test_the_size_follows_from_the_number_of_frames(frames, proteins, most, size):
    assert frames_per_file(frames, proteins=proteins, most=most) == size
    assert most or -(-frames // size) <= MOST_FILES
