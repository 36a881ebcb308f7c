"""``virnucpro call``: the tables of finished runs, written again with other thresholds."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.inputs import custom_toy, open_bases
from tests.declared import with_changes
from virnucpro.cli import run
from virnucpro.layout import Layout
from virnucpro.results import INCOMPLETE
from virnucpro.settings import TOY_CLASSIFIER
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked

TABLES = ("contigs.tsv", "virus.tsv", "virus.fna", "chunks.tsv", "regions.tsv", "regions.gff3")
GENES = ("virus_genes.gff3", "virus_genes.faa")  # only where something is viral


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs, and ``out`` with two finished runs."""
    home = tmp_path_factory.mktemp("called")
    (home / "calibrated.safetensors").write_bytes(with_changes(TOY_CLASSIFIER, temperature=1.0))
    for name in ("a", "b"):
        records = (f">{name}{n} text\n{open_bases(60 + n, n)}\n" for n in range(40))
        (home / f"{name}.fa").write_text("".join(records))
        assert run(_predict(home, home / "out", name)) == 0
    return home


def _predict(home: Path, out: Path, name: str, *more: str) -> list[str]:
    models = custom_toy(home, home / "calibrated.safetensors", 150)
    return ["predict", *map(str, (home / f"{name}.fa", "-o", out, *models, "-q", *more))]


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change; the runs in it name the inputs of the first folder."""
    return Path(shutil.copytree(finished, tmp_path / "home"))


def _tables(out: Path, name: str) -> dict[str, bytes]:
    tables = {suffix: (out / f"{name}_{suffix}").read_bytes() for suffix in TABLES}
    genes = (out / f"{name}_{suffix}" for suffix in GENES)
    return tables | {path.name: path.read_bytes() for path in genes if path.exists()}


def test_the_tables_are_those_of_a_run_with_these_thresholds(call, finished, home, tmp_path):
    thresholds = ["--min-score", "-0.5", "--min-length", "240"]
    anew, out = tmp_path / "anew", home / "out"
    assert run(_predict(finished, anew, "a", *thresholds)) == 0
    default = _tables(out, "a")
    done = call("call", out, *thresholds)
    assert _tables(out, "a") == _tables(anew, "a") != default
    record, of_new = (json.loads((each / "a_run.json").read_bytes()) for each in (out, anew))
    for name in ("settings", "counts", "viral"):
        assert record[name] == of_new[name]
    for text in (done.out, (out / "a_report.html").read_text()):
        assert record["viral"] in text
    status = json.loads(call("status", out, "--json").out)
    assert [row["state"] for row in status["runs"]] == ["finished", "finished"]
    stamp = (out / "a_contigs.tsv").stat().st_mtime_ns
    assert call(*_predict(finished, out, "a", "--resume", *thresholds)).code == 0
    (out / "a_run.json").write_text(json.dumps(record | {INCOMPLETE: True}))  # killed at its end
    assert call("report", out, "-o", tmp_path / "page.html").code == 65
    assert call("call", out, *thresholds).code == 0
    assert call("report", out, "-o", tmp_path / "page.html").code == 0
    assert (out / "a_contigs.tsv").stat().st_mtime_ns == stamp
    assert call("call", out).code == 0
    assert _tables(out, "a") == default


def test_several_directories_and_one_stem(call, home, tmp_path):
    other = Path(shutil.copytree(home / "out", tmp_path / "other"))
    before = _tables(home / "out", "b")
    assert call("call", home / "out", other, "--stem", "a", "--min-score", "-1").code == 0
    assert _tables(home / "out", "a") == _tables(other, "a")
    assert _tables(home / "out", "b") == before == _tables(other, "b")
    assert call("call", home / "out", "--stem", "c").code == 64


def test_a_moved_input_is_named(call, home):
    state = home / "out/.checkpoints/runs/a/state/run.json"
    source = Path(json.loads(state.read_text())["source"])
    moved = shutil.copyfile(source, home / "moved.fa")
    source.rename(source.with_suffix(".away"))
    try:
        assert call("call", home / "out", "--stem", "a", "--min-score", "0").code == 65
        both = call("call", home / "out", "--min-score", "0")
        assert (both.code, "left out: the input of the run a" in both.err) == (2, True)
        named = call("call", home / "out", "--stem", "a", "--min-score", "0", "--input", moved)
        assert named.code == 0, named.err
        source.write_text(">a0\nACGT\n")
        assert call("call", home / "out", "--stem", "a").code == 65
    finally:
        source.with_suffix(".away").rename(source)


def test_a_run_in_use_is_left_out_and_named(call, home):
    before = _tables(home / "out", "a")
    with locked(Layout(home / "out", "a").lock):
        done = call("call", home / "out", "--min-score", "-1")
        assert (done.code, "left out: " in done.err) == (2, True)
        assert call("call", home / "out", "--stem", "a", "--min-score", "-1").code == 5
    assert _tables(home / "out", "a") == before


def test_an_unfinished_run_is_refused_where_it_is_named_or_alone(call, home):
    (home / "c.fa").write_text("no sequences")
    assert call(*_predict(home, home / "out", "c")).code == 65
    assert call(*_predict(home, home / "other", "c")).code == 65
    before = _tables(home / "out", "a")
    for asked in ((home / "out", "--stem", "a", "--stem", "c"), (home / "out", home / "other")):
        assert call("call", *asked, "--min-score", "-1").code == 64
        assert _tables(home / "out", "a") == before


@pytest.mark.parametrize("file", ["results.txt", "results_highestscore.csv"])
def test_scores_that_were_changed_are_refused(call, home, file):
    """Also where another run is called, or none that is named."""
    for name, stems in (("a", ("--stem", "a", "--stem", "b")), ("b", ())):
        scores = home / f"out/{name}_merged/prediction_{file}"
        scores.write_text(scores.read_text().replace("\t0.", "\t1.", 1))
        assert call("call", home / "out", *stems, "--min-score", "0").code == 64


def test_what_a_killed_call_leaves_is_refused_until_it_is_repeated(call, home, monkeypatch):
    """It is killed before every fifth rename: all of its changes are renames."""
    rename, out, left, refused = Disk.rename, home / "out", 0, 0
    thresholds = ("--stem", "a", "--min-score", "-1")
    assert call("call", out, *thresholds).code == 0
    wanted = _tables(out, "a")

    def killed(disk: Disk, old: Path, new: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise SystemExit(9)
        rename(old, new)

    for renames in range(0, 40, 5):
        assert call("call", out, "--stem", "a").code == 0
        default, left, code = _tables(out, "a"), renames, 9
        with monkeypatch.context() as patch, suppress(SystemExit):
            patch.setattr(Disk, "rename", killed)
            code = call("call", out, *thresholds).code
        tables = _tables(out, "a")
        counts = json.loads((out / "a_run.json").read_bytes())["counts"]["calls"]
        virus = tables["virus.tsv"].count(b"\n") - 1
        belong_together = tables in (wanted, default) and virus == counts.get("virus", 0)
        record = ("--record", "a39", "-o", home / "a39.png", "--force")
        reported = call("report", out, "-o", home / "overview.html", "--force").code
        assert reported == call("plot", out, "--stem", "a", *record).code
        assert reported == 65 or (reported == 0 and belong_together), renames
        refused += reported == 65
        assert call("call", out, *thresholds).code == 0
        assert _tables(out, "a") == wanted
        assert call("report", out, "-o", home / "overview.html", "--force").code == 0
        if code == 0:
            break
    assert code == 0
    assert refused > 1
