"""``virnucpro rcl plot`` from the command line."""

from __future__ import annotations

import gzip
import json

import pytest

SEQUENCE = "MERML" * 20 + "GTEASAATAVKITLLSALVETRTIVRFN" + "PFLMI" * 5


@pytest.fixture
def results(tmp_path):
    """What ``rcl predict --residues`` writes for three proteins, one without an RCL."""
    folder = tmp_path / "results"
    folder.mkdir()
    rows = ["accession\tlength\tstart\tend\trcl\tconfidence\tstatus\tmodel\n"]
    residues = ["accession\tposition\tresidue\tprobability\n"]
    for name, start in (("a/b", 101), ("..", 50), ("none", None)):
        region = f"{start}\t{start + 27}\tX\t0.9" if start else "NA\tNA\tNA\tNA"
        rows.append(f"{name}\t{len(SEQUENCE)}\t{region}\tfound\thmm\n")
        for place, letter in enumerate(SEQUENCE, 1):
            inside = start is not None and start <= place < start + 28
            residues.append(f"{name}\t{place}\t{letter}\t{0.9 if inside else 0.01:.6f}\n")
    (folder / "p_rcl.tsv").write_text("".join(rows))
    (folder / "p_rcl_residues.tsv.gz").write_bytes(gzip.compress("".join(residues).encode()))
    record = {"settings": {"threshold": 0.5}, "proteins": 3, "statuses": {}, "notices": []}
    (folder / "p_rcl_run.json").write_text(json.dumps(record))
    return folder


def test_a_picture_per_protein(call, results):
    result = call("rcl", "plot", results, "--most", 1)
    assert result.code == 0, result.err
    assert "only the first 1 are drawn" in result.err
    (picture,) = (results / "p_plots").iterdir()
    assert picture.name == "a%2Fb.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert call("rcl", "plot", results, "a/b").code == 0  # the same picture again
    picture.write_bytes(b"mine")
    assert call("rcl", "plot", results, "a/b").code == 64
    assert picture.read_bytes() == b"mine"
    out = results / "figures"
    assert call("rcl", "plot", results, "none", "-o", out, "--format", "svg").code == 0
    assert [path.name for path in out.iterdir()] == ["none.svg"]


def test_results_without_residues_and_damaged_ones(call, results, tmp_path):
    assert call("rcl", "plot", tmp_path / "nothing").code == 64
    assert call("rcl", "plot", results, "nobody").code == 64
    table = results / "p_rcl_residues.tsv.gz"
    content = table.read_bytes()
    for damaged in (content[:300], b"x" + content, content[:200] + b"\0" * 50 + content[250:]):
        table.write_bytes(damaged)
        assert call("rcl", "plot", results, "..", "--force").code == 65
