"""The table of failures, which all runs of an output directory share, and the space of one."""

from __future__ import annotations

from pathlib import Path

from virnucpro.layout import Layout
from virnucpro.run.record import update_failure_table
from virnucpro.run.run import sweep
from virnucpro.store import disk
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import FileFailure

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
            sweep(Layout(tmp_path, "t", 500), Disk())
            super().rename(old, new)

    layout = Layout(tmp_path, "s", 500)
    update_failure_table(layout, Shared(), "s.fa", [FAILURE])
    assert "s.fa" in layout.failed_table.read_text()
