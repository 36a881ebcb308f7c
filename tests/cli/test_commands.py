"""The command line: start-up, options in both places, exit codes, the whole path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import until
from virnucpro.cli.demo import example_fasta
from virnucpro.cli.predict import predict

ROOT = Path(__file__).parents[2]
TOY = ("--model-type", "toy", "--device", "cpu")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "in/example.fa"
    path.parent.mkdir()
    path.write_text(example_fasta())
    return path


def test_ctrl_c_while_modules_are_imported_ends_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "import signal\n"
        # What starts the tests in the background may have the signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    command = [sys.executable, "-m", "virnucpro", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "virnucpro: interrupted\n")


@pytest.mark.parametrize("words", [["predict", ""], ["predict", "x.fa", "-o", ""]])
def test_an_empty_variable_is_not_the_current_folder(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words).code == 64
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", [True, False])
def test_shared_options_work_in_both_places(
    call: Callable, example: Path, tmp_path: Path, first: bool
) -> None:
    config, log = tmp_path / "c.yaml", tmp_path / "log"
    config.write_text("prediction: {default_model_type: toy}\nprogress: {enabled: true}\n")
    shared = ["-q", "-l", str(log), "-c", str(config)]
    rest = [str(example), "-o", str(tmp_path / "out"), "--device", "cpu"]
    done = call(*shared, "predict", *rest) if first else call("predict", *rest, *shared)
    assert (done.code, done.out) == (0, "")
    assert "progress.enabled" in done.err
    assert "open frames" not in done.err
    assert "stage 9 output" in log.read_text()


def test_no_option_of_before_is_gone() -> None:
    names = {name for option in predict.params for name in option.opts}
    before = "-m --model-type -p --model-path -e --expected-length -o --output-dir -d --device "
    before += "-b --batch-size -w --num-workers -k --keep-intermediate --resume -f --force "
    before += "--no-progress --dnabert-batch-size --esm-batch-size --parallel -t --threads"
    assert set(before.split()) <= names


def test_options_without_effect_are_accepted_and_not_shown(
    call: Callable, example: Path, tmp_path: Path
) -> None:
    words = ("-i", example, "-o", tmp_path / "out", *TOY)
    assert call("predict", *words, "--parallel", "-b", 7).code == 0
    for command, options in {
        "predict": "--parallel --batch-size --no-features",
        "rcl embed": "--resume",
        "train embed": "--resume",
        "train classifier": "--resume",
    }.items():
        shown = call(*command.split(), "--help").out
        assert not [name for name in options.split() if f"{name} " in shown]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("predct x.fa", "Did you mean 'predict'?"),
        ("predict x.fa --modle-type lite", "'--model-type'"),
        ("predict x.fa -m lite -e 400", "400: model type lite reads 150, 300 or 500 bases"),
        ("train embed d -f --resume", ""),
        ("-v predict x.fa --quiet", ""),
    ],
)
def test_wrong_words(call: Callable, words: str, says: str) -> None:
    done = call(*words.split())
    assert done.code == 64
    assert says in done.err


def test_list_devices(call: Callable) -> None:
    assert "cpu" in call("utils", "list-devices").out
    assert json.loads(call("utils", "list-devices", "--json").out)["cpu_threads"] >= 1


def test_validate(call: Callable, example: Path) -> None:
    done = call("utils", "validate", example)
    assert done.code == 0
    assert "42 records" in done.out
    for words, warnings in (("-e 3000", 1), ("-m 500", 1), ("-m lite", 0)):
        assert call("utils", "validate", example, *words.split()).out.count("warning") == warnings
    example.write_text(">a\nACGT\n>b\n>c\n")  # empty records are no short reads
    assert "warning" not in call("utils", "validate", example).out
    example.write_text(">a\nACGT-\n")
    assert call("utils", "validate", example).code == 65


@pytest.mark.parametrize(
    ("closed", "end"), [("2>&1 | true", 0), ("2> /dev/full", 0), ("> /dev/full", 6)]
)
def test_a_reader_that_leaves_does_not_end_the_run(
    example: Path, tmp_path: Path, closed: str, end: int
) -> None:
    example.write_text(f">a\n{'ACG' * 200}\n")
    words = f"{sys.executable} -m virnucpro predict {example} -o {tmp_path / 'out'} {' '.join(TOY)}"
    code = tmp_path / "code"
    done = subprocess.run(["bash", "-c", f"({words}; echo $? > {code}) {closed}"], check=False)
    assert done.returncode == 0
    until(lambda: code.exists() and code.read_text() != "", 60)
    assert code.read_text() == f"{end}\n"
    assert (tmp_path / "out/example_run.json").exists()
    status = f"{sys.executable} -m virnucpro status {tmp_path / 'out'} {closed}"
    assert subprocess.run(["bash", "-c", status], check=False).returncode == end
