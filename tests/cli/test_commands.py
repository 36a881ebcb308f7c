"""The command line: start-up, options in both places, exit codes, the whole path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.inputs import SEQUENCE, TOY, poisoned
from tests.faults.processes import until
from virnucpro import __version__
from virnucpro.cli.predict import predict
from virnucpro.layout import Layout
from virnucpro.store.lock import locked

ROOT = Path(__file__).parents[2]


def test_ctrl_c_while_modules_are_imported_ends_with_a_message(tmp_path):
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
def test_an_empty_variable_is_not_the_current_folder(call, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert call(*words).code == 64
    assert list(tmp_path.iterdir()) == []


def test_shared_options_work_in_both_places(call, example, tmp_path):
    config, log = tmp_path / "c.yaml", tmp_path / "log"
    config.write_text("prediction: {default_model_type: toy}\nprogress: {enabled: true}\n")
    shared = ("-q", "-l", log, "-c", config)
    rest = ("predict", example, "-o", tmp_path / "out", "--device", "cpu")
    for words in ((*shared, *rest), (*rest, *shared, "--force")):
        done = call(*words)
        assert (done.code, done.out) == (0, "")
        assert [line[:8] for line in done.err.splitlines()] == ["warning:"] * 2
        assert "stage 9 output" in log.read_text()
        log.unlink()


def test_no_option_of_before_is_gone():
    names = {name for option in predict.params for name in option.opts}
    before = "-m --model-type -p --model-path -e --expected-length -o --output-dir -d --device "
    before += "-b --batch-size -w --num-workers -k --keep-intermediate --resume -f --force "
    before += "--no-progress --dnabert-batch-size --esm-batch-size --parallel -t --threads"
    assert set(before.split()) <= names


def test_options_without_effect_are_not_shown(call):
    for command, options in {
        "predict": "--parallel --batch-size",
        "rcl embed": "--resume",
        "train embed": "--resume",
        "train classifier": "--resume",
    }.items():
        shown = call(*command.split(), "--help").out
        assert not [name for name in options.split() if f"{name} " in shown]


@pytest.mark.parametrize(
    "words",
    [
        *("predct x.fa", "predict x.fa --modle-type lite", "predict x.fa -m lite -e 400"),
        *("train embed d -f --resume", "-v predict x.fa --quiet"),
    ],
)
def test_wrong_words(call, words):
    assert call(*words.split()).code == 64


def test_a_record_that_failed_is_told_by_the_exit_code(call, source, tmp_path):
    command = ("predict", source, "-o", tmp_path / "out", *TOY)
    with poisoned(SEQUENCE.decode().__eq__):
        assert call(*command).code == 2
    assert call(*command).code == 0


def test_list_devices(call):
    assert "cpu" in call("utils", "list-devices").out
    assert json.loads(call("utils", "list-devices", "--json").out)["cpu_threads"] >= 1


def test_validate(call, example):
    with example.open("a") as file:
        file.writelines(f">read_{n}\n{'ACG' * 50}\n" for n in range(36))
    done = call("utils", "validate", example)
    assert done.code == 0
    assert "42 records" in done.out
    for words, warnings in (("-e 3000", 1), ("-m 500", 1), ("-m lite", 0)):
        assert call("utils", "validate", example, *words.split()).out.count("warning") == warnings
    example.write_text(">a\nACGT\n>b\n>c\n")  # empty records are no short reads
    assert "warning" not in call("utils", "validate", example).out
    example.write_text(">a\nACGT-\n")
    assert call("utils", "validate", example).code == 65


@pytest.mark.parametrize(("closed", "end"), [("2> /dev/full | true", 0), ("> /dev/full", 6)])
def test_a_reader_that_leaves_does_not_end_the_run(example, tmp_path, closed, end):
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


# What is imported in a second; a list of models is shown by rich.
HEAVY = ("torch", "transformers", "huggingface_hub", "numpy", "rich", "jinja2")
WATCHED = """
import json, sys, virnucpro
virnucpro.open_run, virnucpro.predict
assert not {"click", "numpy"} & set(sys.modules)
from virnucpro.cli import run
for words, code, heavy in json.loads(sys.argv[1]):
    assert run(words.split()) == code, words
    assert not set(heavy) & set(sys.modules), words
"""


def test_what_needs_no_torch_imports_none(call, source, tmp_path, monkeypatch):
    """Also where ``predict`` refuses what it is given: users wait for it."""
    assert call("predict", source, "-o", tmp_path / "out", *TOY).code == 0
    for name in ("TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    shown = [(words, 0, HEAVY) for words in ("--help", "--version", "predict --help", "status out")]
    refused = [
        (f"predict {words}", 64, ("torch", "jinja2"))
        for words in ("nofile.fa", "sample.fa -m custom -e 300 -p no.pth", "sample.fa -m 500")
    ]
    commands = json.dumps([*shown, ("models list", 0, HEAVY[:4]), *refused])
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, commands], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout


def test_without_ray_a_cluster_is_refused_and_nothing_else(call, source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    predict = ("predict", source, "-o", tmp_path / "out", "-m", "toy", "-q")
    done = call(*predict, "--cluster", "auto")
    assert (done.code, "virnucpro[cluster]" in done.err) == (64, True)
    assert call(*predict).code == 0


def test_a_second_command_leaves_what_the_first_one_proves_a_shared_folder_with(
    call, source, tmp_path
):
    layout = Layout(tmp_path / "out", "sample", 500)
    layout.probe.parent.mkdir(parents=True)
    layout.probe.write_text("a random word")
    with locked(layout.lock):
        assert call("predict", source, "-o", layout.root, "-m", "toy", "-q").code == 5
    assert layout.probe.read_text() == "a random word"
