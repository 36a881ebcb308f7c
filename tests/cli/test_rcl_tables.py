"""``virnucpro rcl validate`` and ``virnucpro rcl plot`` from the command line."""

import gzip
import json

import pytest

HEADER = "id,rcl_start,rcl_end,rcl_seq,Sequence\n"
LOOP = "GTEASAATAVKITLLSALVETRTIVRFN"
SEQUENCE = "MERML" * 20 + LOOP + "PFLMI" * 5


def row(name, start=101, end=128, loop=LOOP, seq=SEQUENCE):
    return f"{name},{start},{end},{loop},{seq}\n"


OUTSIDE, NUMBER = "outside the sequence", "is not a whole number"
BAD_ROWS = {
    row("", 101, 128): "without an id",
    row("a", seq=""): "is empty",
    "a,1\n": "is empty",
    **{row("a", text): NUMBER for text in ("no start", "", "nan", "101.5", "inf")},
    **{row("a", start): OUTSIDE for start in (0, -3, 129, 1e300)},
    row("a", 101, 9999): OUTSIDE,
    row("a", loop="GTEAS"): "rcl_seq is not",
    row("a", seq="-" + SEQUENCE[1:]): "other characters than letters",
}


def test_wrong_rows_are_named(call, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(HEADER + row("good", seq=SEQUENCE[:-1] + "K") + "".join(BAD_ROWS))
    result = call("rcl", "validate", table)
    assert result.code == 65
    assert f"{len(BAD_ROWS)} errors" in result.out
    for number, problem in enumerate(BAD_ROWS.values(), 3):
        (line,) = (t for t in result.out.splitlines() if f"error: {table}, line {number}: " in t)
        assert problem in line


def test_what_occurs_twice_is_a_warning(call, tmp_path):
    one, two = tmp_path / "train.csv", tmp_path / "test.csv"
    one.write_text(HEADER + row("a") + row("a", 102, loop="") + row("b", seq=SEQUENCE + "X*"))
    two.write_text("id,Sequence\na,MKLV\nc," + SEQUENCE + "\n")
    result = call("rcl", "validate", one, two)
    assert result.code == 0, result.out
    assert result.out.splitlines()[:4] == [
        f"warning: {one}, line 3: a: the id occurs in {one}, line 2: a",
        f"warning: {one}, line 3: a: the sequence occurs in {one}, line 2: a",
        f"warning: {two}, line 2: a: the id occurs in {one}, line 2: a",
        f"warning: {two}, line 3: c: the sequence occurs in {one}, line 2: a",
    ]
    assert "0 errors" in result.out


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
    record = {"settings": {"threshold": 0.5}, "proteins": 3, "statuses": {}}
    (folder / "p_rcl_run.json").write_text(json.dumps(record))
    return folder


def test_a_picture_per_protein(call, results):
    result = call("rcl", "plot", results, "--most", 1)
    assert result.code == 0, result.err
    assert "only the first 1 are drawn" in result.err
    (picture,) = (results / "p_plots").iterdir()
    assert picture.name == "a%2Fb.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
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
