"""In which order a run writes, so that a power cut loses nothing that a receipt proves."""

from __future__ import annotations

from tests.cli.inputs import toy_request
from tests.faults.survival import make_input
from tests.unit.store.noting import Noting
from virnucpro.run.predict import run_prediction


def test_nothing_goes_before_what_was_made_of_it_is_proved(tmp_path):
    source = tmp_path / "in.fa"
    make_input(source, 900)
    disk = Noting(tmp_path / "out")
    request = toy_request(source, tmp_path / "out", chunk_length=200, sequences_per_file=1200)
    run_prediction(request, lambda event: None, disk)
    order = disk.notes
    names = [n for verb, n in order if verb == "rename" and n.endswith("_scores.tsv")]
    assert len(names) >= 2
    table = "prediction_results.txt"
    assert order.index(("sync", table)) < order.index(("rename", table))
    assert {("sync", "prediction.done"), ("sync", "output.done")} <= {*order}
    safe = order.index(("rename", "finished.done"))
    assert order.index(("rename", table)) < order.index(("sync", "finished.done")) < safe
    safe += order[safe:].index(("sync folder", "state"))
    for name in names:  # others may be written at the same time, in other threads
        receipt = order.index(("rename", f"{name}.done"))
        assert order.index(("rename", name)) < receipt
        for kind in ("DNABERT_S", "ESM"):
            assert receipt < order.index(("unlink", name.replace("scores.tsv", f"{kind}.pt")))
        assert safe < order.index(("unlink", name))
