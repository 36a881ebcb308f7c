"""The chunks of records and pairs, and the order of the mates in a pair."""

from __future__ import annotations

from pathlib import Path

from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import Records
from virnucpro.layout import Layout
from virnucpro.stages.chunking import ChunkingStage
from virnucpro.store.disk import Disk
from virnucpro.tables import PAIRS


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
