"""The chunks of records and pairs, and the order of the mates in a pair."""

from __future__ import annotations

from pathlib import Path

import pytest

import virnucpro.stages.chunking as chunking
from virnucpro.errors import InputError
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import Records
from virnucpro.layout import Layout
from virnucpro.stages.chunking import ChunkingStage
from virnucpro.store.disk import Disk
from virnucpro.tables import PAIRS, RECORDS


def test_the_chunks_of_a_pair_are_those_of_its_first_mate_then_of_its_second(
    tmp_path: Path,
) -> None:
    """The mates have the same length, so that nothing but their letters tells them apart."""
    for number, letters in enumerate(("ACGTA", "GGCCT"), 1):
        (tmp_path / f"s_{number}.fa").write_text(f">p/{number}\n{letters}\n")
    source = InputFiles(tmp_path / "s_1.fa", tmp_path / "s_2.fa")
    stage = ChunkingStage(
        Layout(tmp_path, "s", 3), Disk(), source, duplicate_ids="error", lengths=(3,)
    )
    (task,) = stage.plan({})
    stage.run(task, lambda sequences, tokens: None)
    chunks = [(record.id, record.sequence) for record in Records(stage.layout.chunked)]
    letters = ("ACG", "GTA", "GGC", "CCT")
    assert chunks == [(f"p_chunk_{number}", each) for number, each in enumerate(letters, 1)]
    assert list(PAIRS.read(stage.layout.records_table, *PAIRS.row._fields)) == [["p", "5", "5"]]


@pytest.mark.parametrize("at_a_time", [1, 2, 4096])
def test_an_id_that_occurs_twice_is_made_unique_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """The input is cut while it is checked; nothing is left of one that is refused."""
    monkeypatch.setattr(chunking, "CHUNKS_AT_A_TIME", at_a_time)
    (tmp_path / "s.fa").write_text(">a\nACGTA\n>b\n\n>a x\nGG\n>c\n\n")
    layout, source = Layout(tmp_path, "s", 3), InputFiles(tmp_path / "s.fa")
    refusing, renaming = (
        ChunkingStage(layout, Disk(), source, duplicate_ids=each, lengths=(3,))
        for each in ("error", "rename")
    )
    (task,) = refusing.plan({})
    with pytest.raises(InputError):
        refusing.run(task, lambda sequences, tokens: None)
    files = layout.chunked, layout.records_table
    assert not any(path.exists() for path in files)
    reported: list[int] = []
    result = renaming.run(task, lambda sequences, _: reported.append(sequences))
    assert [(file.path, file.rows) for file in result.outputs] == list(
        zip(files, (3, 4), strict=True)
    )
    chunks = [(record.id, record.sequence) for record in Records(layout.chunked)]
    assert chunks == [("a_chunk_1", "ACG"), ("a_chunk_2", "GTA"), ("a_2_chunk_1", "GG")]
    rows = list(RECORDS.read(layout.records_table, *RECORDS.row._fields))
    assert rows == [["a", "5"], ["b", "0"], ["a_2", "2"], ["c", "0"]]
    assert sum(reported) == 4
