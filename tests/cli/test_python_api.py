"""``virnucpro.predict`` and ``virnucpro.rcl_predict``, beside the commands of these names."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

import virnucpro
from tests.faults.survival import results
from virnucpro.errors import InputError, UsageError
from virnucpro.settings import SETTINGS

TOY = {"model": "toy", "device": "cpu"}
SERPIN = "MKTLLVLAVLLAAGTALA" + "ACDEFGHIKLMNPQRSTVWY" * 20


@pytest.fixture
def contigs(tmp_path: Path) -> Path:
    path = tmp_path / "contigs.fa"
    path.write_text(f">a\n{'GCTGAA' * 150}\n>b\nAC\n")
    return path


def test_a_run_writes_what_the_command_writes(call, contigs, tmp_path, caplog):
    caplog.set_level("INFO", "virnucpro")
    run = virnucpro.predict(contigs, tmp_path / "api", **TOY)
    assert call("predict", contigs, "-o", tmp_path / "cli", "-m", "toy", "-d", "cpu").code == 0
    assert results(tmp_path / "api") == results(tmp_path / "cli")
    assert run.stem == "contigs"
    assert [(row.record, row.status) for row in run.contigs()] == [
        ("a", "scored"),
        ("b", "too_short"),
    ]
    assert run.summary.unscored == {"too_short": 1}
    places = f"{str(contigs)!r}, {str(tmp_path / 'api')!r}"
    assert run.record["command"] == [f"virnucpro.predict({places}, model='toy', device='cpu')"]
    assert any("stage 1 chunking finished" in text for text in caplog.messages)
    assert (tmp_path / "api/.checkpoints/runs/contigs/state/run.log").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "big"}, UsageError),
        ({"threads": 0}, UsageError),
        ({"model": "custom"}, UsageError),
        ({"config": "none.yaml"}, UsageError),
        ({"chunk_lenght": 500}, TypeError),
    ],
)
def test_a_wrong_option_is_refused(contigs, options, error):
    with pytest.raises(error):
        virnucpro.predict(contigs, contigs.parent / "out", **options)
    assert not (contigs.parent / "out").exists()


def test_every_setting_is_a_keyword():
    """Its own default is accepted, and what is wrong then is that there is no input."""
    for declared in SETTINGS.values():
        with pytest.raises(UsageError, match="No such file"):
            virnucpro.predict("none.fa", **{declared.name: declared.default})


def test_a_worker_that_imports_the_script_says_what_is_missing_there(contigs, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(UsageError, match='below if __name__ == "__main__":'):
        virnucpro.predict(contigs, **TOY)


def test_an_argument_wins_over_the_configuration_file(contigs, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        "prediction: {default_model_type: toy, dedup: false}\nfiles: {auto_cleanup: false}\n"
    )
    run = virnucpro.predict(contigs, tmp_path / "out", device="cpu", config=config)
    assert "identical_frames" not in run.record["counts"]
    assert not run.record["settings"]["machine"]["remove_intermediate"]
    given = {"dedup": True, "remove_intermediate": True}
    other = virnucpro.predict(contigs, tmp_path / "other", **TOY, **given, config=config)
    assert "identical_frames" in other.record["counts"]
    assert other.record["settings"]["machine"]["remove_intermediate"]
    assert "dedup=True, remove_intermediate=True" in other.record["command"][0]
    assert list(run.contigs()) == list(other.contigs())


def test_rcl_predict_writes_what_the_command_writes(call, tmp_path):
    proteins = tmp_path / "proteins.fa"
    proteins.write_text(f">p1\n{SERPIN}\n>p2\n\n")
    run = virnucpro.rcl_predict(proteins, tmp_path / "api", residues=True, device="cpu")
    words = ("rcl", "predict", proteins, "-o", tmp_path / "cli", "--residues", "-d", "cpu")
    assert call(*words).code == 0
    assert results(tmp_path / "api") == results(tmp_path / "cli")
    assert [row.accession for row in run.proteins()] == ["p1", "p2"]
    assert run.record["proteins"] == 2
    assert len(run.residues().to_pandas()) == len(SERPIN)
    record = json.loads((tmp_path / "api/proteins_rcl_run.json").read_text())
    assert "residues=True" in record["command"][0]
    with pytest.raises(InputError, match="does not exist"):
        virnucpro.rcl_predict(proteins, tmp_path / "plain", device="cpu").residues()
    with pytest.raises(TypeError):
        virnucpro.rcl_predict(proteins, tmp_path / "no", min_score=0.9)
