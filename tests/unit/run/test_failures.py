"""The table of failures, which all runs of an output directory share, and the space of one."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from virnucpro.layout import Layout
from virnucpro.run.engine import missing_bytes
from virnucpro.run.record import update_failure_table
from virnucpro.run.run import Run, sweep
from virnucpro.store import disk
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import FileFailure
from virnucpro.store.work import RunState

FAILURE = FileFailure("NumericalError", "not finite", ("r1_chunk_1F1",), "merging", "output_1.fa")


def test_the_table_has_the_rows_of_all_runs_until_they_succeed(tmp_path):
    layout = Layout(tmp_path, "s", 500)
    update_failure_table(layout, Disk(), "s.fa", [FAILURE])
    update_failure_table(layout, Disk(), "t.fa", [FAILURE])
    update_failure_table(layout, Disk(), "moved/s.fa.gz", [])  # a run is known by its STEM
    assert "t.fa" in layout.failed_table.read_text()
    update_failure_table(layout, Disk(), "t.fa", [])
    assert not layout.failed_table.exists()


def test_a_run_that_begins_on_another_host_leaves_the_table_alone_that_is_written(
    tmp_path, monkeypatch
):
    class Shared(Disk):
        def rename(self, old: Path, new: Path) -> None:
            monkeypatch.setattr(disk, "HOST_NAME", "elsewhere")
            sweep(Run(Layout(tmp_path, "t", 500), Disk(), [], RunState("t.fa", {})))
            super().rename(old, new)

    layout = Layout(tmp_path, "s", 500)
    update_failure_table(layout, Shared(), "s.fa", [FAILURE])
    assert "s.fa" in layout.failed_table.read_text()


def test_features_that_are_there_take_no_more_space(tmp_path):
    layout = Layout(tmp_path, "s", 500)
    run = Mock(layout=layout, frames=[3, 4], bytes_per_frame=10, ledger=Mock(forgone=set()))
    layout.features("protein", 1).parent.mkdir()
    for present, missing in ((30, 40), (90, 0)):
        layout.features("protein", 1).write_bytes(bytes(present))
        assert missing_bytes(run) == missing
