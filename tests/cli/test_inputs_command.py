"""Bad and odd command lines through the real command line (rows 55 to 70)."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import (
    PLAIN,
    TOY,
    Case,
    check_accepted,
    check_nothing_written,
    check_refused,
    ordinary_user,
    predict,
    public_folder,
    result_bytes,
    table,
    written,
)
from tests.cli.inputs_command import NAMES, OPTIONS
from tests.forked import run_forked


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.fa"
    path.write_bytes(PLAIN)
    return path


@pytest.mark.parametrize(
    ("options", "says"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS]
)
def test_options(
    call: Callable, source: Path, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    done = call("predict", source, "-o", tmp_path / "out", "-m", "toy", *options)
    check_refused(done, 64, (), says)
    assert not (tmp_path / "out").exists()


def test_58_gpus_without_cuda(
    call: Callable, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # on a machine with GPUs: hide them
    done = call("predict", source, "-o", tmp_path / "out", "-m", "toy", "--gpus", "0")
    check_refused(done, 4, ("no usable NVIDIA GPU", "nvidia-smi"), "--device cpu")
    assert not (tmp_path / "out").exists()


# --- the output directory


@pytest.mark.parametrize("name", ["out", "out/.checkpoints"])
def test_60_output_is_a_file(call: Callable, source: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    done = call("predict", source, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, (str(path), "is a file"), "name a folder")
    assert path.read_text() == "mine"


def test_60_output_below_a_file(call: Callable, source: Path) -> None:
    done = call("predict", source, "-o", source / "out", *TOY)
    check_refused(
        done, 6, (f"cannot write {source}", "Not a directory"), "check the disk and the path"
    )


@pytest.mark.parametrize("name", ["out", "out/.checkpoints", "above"])
def test_61_read_only_output(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_accepted(predict(call, tmp_path, Case("to import everything")))
    with public_folder() as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        (folder / "sample.fa").write_bytes(PLAIN)
        out = folder / ("above/out" if name == "above" else "out")
        with ordinary_user():
            (folder / name).mkdir(parents=True)
            (folder / name).chmod(0o555)
            done = call("predict", folder / "sample.fa", "-o", out, *TOY)
        check_refused(done, 6, ("cannot write", str(folder / name)), "choose another")
        check_nothing_written(folder / "out")
        if name != "above":  # seen before the models are looked at
            assert "scores mean nothing" not in done.err


def test_61_log_file_that_cannot_be_written(call: Callable, source: Path, tmp_path: Path) -> None:
    done = call("predict", source, "-o", tmp_path / "out", *TOY, "-l", tmp_path)
    check_refused(
        done, 6, (f"cannot write {tmp_path}", "Is a directory"), "check the disk and the path"
    )
    assert not (tmp_path / "out").exists()


def test_62_and_63_output_that_is_not_empty(call: Callable, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("predict", source, "-o", out, *TOY)
    first = call(*arguments, "--resume")
    check_accepted(first)
    assert "nothing to resume" in first.err
    assert "starting from the beginning" in first.err
    results = result_bytes(out)
    for options in ((), ("--resume",)):
        again = call(*arguments, *options)
        check_accepted(again)
        assert "is finished" in again.err
        assert "Nothing to compute" in again.out
        other = call(*arguments, "-e", 300, *options)
        check_refused(other, 3, (str(out), "chunk length: was 500, is 300"), "--force")
    assert result_bytes(out) == results
    check_accepted(call(*arguments, "--force"))
    assert result_bytes(out) == results


@pytest.mark.parametrize(
    "name",
    ["sample_nucleotide.fa", "sample_protein/output_1.fa", "sample_contigs.tsv"],
)
def test_62_files_of_somebody_else_are_never_overwritten(
    call: Callable, source: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    for options in ((), ("--resume",)):
        refused = call("predict", source, "-o", out, *TOY, *options)
        check_refused(refused, 64, (str(out), name), "start over with --force")
        assert written(out) == [name]
        assert (out / name).read_text() == "mine"
    for _ in range(2):  # the second --force must not remove what the first one moved
        check_accepted(call("predict", source, "-o", out, *TOY, "--force"))
    kept = [path.read_text() for path in (out / ".checkpoints").rglob(Path(name).name)]
    assert "mine" in kept


def test_62_several_inputs_share_an_output_directory_with_other_files(
    call: Callable, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.fa"
    other.write_bytes(source.read_bytes())
    (tmp_path / "samples_contigs.tsv").write_text("mine")
    for path in (source, other, source):
        check_accepted(call("predict", path, "-o", tmp_path, *TOY))
    assert result_bytes(tmp_path, "other").keys() == result_bytes(tmp_path).keys()
    assert (tmp_path / "samples_contigs.tsv").read_text() == "mine"


@pytest.mark.parametrize(
    ("folder", "name", "stem"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES]
)
def test_64_names(
    call: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    name: str,
    stem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(PLAIN)
    arguments = ("predict", f"--input={name}", f"--output-dir={folder}", *TOY)
    check_accepted(call(*arguments))
    assert [row["record"] for row in table(tmp_path / folder / f"{stem}_contigs.tsv")] == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder, name])
    again = call(*arguments, "--resume")
    check_accepted(again)
    assert "already finished" in again.out


def test_64_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.fa").write_bytes(PLAIN)
    log = tmp_path / "log"
    done = run_forked("predict", f"{name}.fa", "-o", name, *TOY, "-l", log, "-v", cwd=tmp_path)
    check_accepted(done)
    assert table(tmp_path / name / f"{name}_contigs.tsv")[0]["record"] == "a"
    missing = run_forked("predict", f"{name}.fq", "-o", name, *TOY, cwd=tmp_path)
    check_refused(missing, 64, ("caf", "not found"), "check its path")


# --- surroundings


@pytest.mark.parametrize("encoding", ["", "ascii:strict", "latin-1:strict"])
def test_65_no_terminal_and_the_c_locale(shell: Callable, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "文.fa").write_bytes(PLAIN.replace(b">a", ">pfäd_文".encode()))
    environment = {k: v for k, v in os.environ.items() if k[:3] != "LC_" and k != "LANG"}
    environment |= {"LC_ALL": "C", "PYTHONIOENCODING": encoding, "FORCE_COLOR": ""}
    out = tmp_path / "größe"
    done = shell(
        "predict",
        "文.fa",
        "-o",
        out,
        *TOY,
        "-v",
        cwd=tmp_path,
        env=environment,
        errors="backslashreplace",
    )
    check_accepted(done)
    assert "\x1b" not in done.out + done.err
    assert "\r" not in done.out + done.err
    assert table(out / "文_contigs.tsv")[0]["record"] == "pfäd_文"


@pytest.mark.parametrize("workers", [(), ("--cpu-workers", "2")], ids=["alone", "workers"])
def test_66_few_file_handles(
    shell: Callable, source: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    few = 48

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))

    config = tmp_path / "many.yaml"
    config.write_text("prediction:\n  sequences_per_file: 1\n")  # ten files of each kind
    options = ("-m", "toy", "-c", config, *(workers or ("-d", "cpu")))
    done = shell("predict", source, "-o", tmp_path / "out", *options, preexec_fn=limit)
    check_accepted(done)


def test_67_clock_set_back_between_runs(call: Callable, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("predict", source, "-o", out, *TOY, "-k", "-v")
    check_accepted(call(*arguments))
    results = result_bytes(out)
    for path in [source, *out.rglob("*")]:
        os.utime(path, (4e9, 4e9))  # 2096: now looks like long before
    again = call(*arguments, "--resume")
    check_accepted(again)
    assert "already finished" in again.out
    (out / "sample_protein/output_1_ESM.pt.done").unlink()
    check_accepted(call(*arguments, "--resume"))
    assert result_bytes(out) == results


@pytest.mark.parametrize("both", [True, False])
def test_68_the_input_twice_or_not_at_all(
    call: Callable, source: Path, tmp_path: Path, both: bool
) -> None:
    inputs = (source, "--input", source) if both else ()
    done = call("predict", *inputs, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, ("give the input in one way",), "virnucpro predict FILE")
    assert not (tmp_path / "out").exists()


def test_a_configuration_that_is_refused_leaves_nothing(
    call: Callable, source: Path, tmp_path: Path
) -> None:
    """What is refused is in the tables of ``tests/unit/test_configuration``."""
    config = tmp_path / "my.yaml"
    config.write_text("prediction: {batch_sise: 1}")
    done = call("predict", source, "-o", tmp_path / "out", *TOY, "-c", config)
    check_refused(done, 64, (f"{config}: unknown key",), "did you mean prediction.batch_size?")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.yaml", "sample.fa"]
