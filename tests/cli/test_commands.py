"""The command line: help, start-up, options in both places, exit codes, the whole path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_help import COMMANDS
from tests.faults.processes import until
from tests.forked import ForkedCommand, run_forked
from virnucpro import __version__
from virnucpro.cli.demo import write_example
from virnucpro.configuration import default_yaml

ROOT = Path(__file__).parents[2]
TOY = ("--model-type", "toy", "--device", "cpu")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "in/example.fa"
    write_example(path)
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


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["predict", "--help"]])
def test_starting_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from virnucpro.cli import run; run(sys.argv[1:]); "
        "sys.exit(len({'torch', 'numpy', 'transformers', 'huggingface_hub', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version(call: Callable) -> None:
    assert __version__ in call("--version").out


def test_predict_from_file_to_results(call: Callable, example: Path, tmp_path: Path) -> None:
    done = call("predict", "--input", example, "--output-dir", tmp_path / "out", *TOY)
    assert done.code == 0
    assert "these scores mean nothing" in done.err
    assert "of 45 records are called virus" in done.out
    assert "no frame without a stop codon" in done.out
    assert "shorter than a codon" in done.out
    document = json.loads((tmp_path / "out/example_run.json").read_text())
    assert "mean nothing" in document["notice"]
    assert document["counts"]["records"] == 45
    assert not list((tmp_path / "out").rglob("*.pt"))
    rows = (tmp_path / "out/example_contigs.tsv").read_text().splitlines()
    assert len(rows) == 46
    log = (tmp_path / "out/.checkpoints/runs/example/state/run.log").read_text()
    assert "stage 5 protein_embeddings" in log
    assert "mean nothing" in log


def test_the_positional_form_and_the_default_directory(
    call: Callable, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("predict", example, *TOY).code == 0
    assert (tmp_path / "example_predictions/example_contigs.tsv").exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["predict", ""], "[INPUT]..."),
        (["predict", "--input", ""], "--input"),
        (["predict", "x.fa", "--input2", ""], "--input2"),
        (["predict", "x.fa", "-o", ""], "--output-dir"),
        (["status", ""], "DIR"),
        (["evaluate", "x", "--labels", ""], "--labels"),
    ],
)
def test_an_empty_variable_is_not_the_current_folder(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.code == 64
    assert name in done.err
    assert "it is empty: is a variable of your script not set?" in done.err
    assert list(tmp_path.iterdir()) == []


def test_standard_input(shell: Callable, example: Path, tmp_path: Path) -> None:
    with example.open() as stream:
        done = shell("predict", "-", "-o", tmp_path / "out", *TOY, stdin=stream)
    assert done.code == 0, done.err
    assert (tmp_path / "out/stdin_contigs.tsv").exists()
    assert not list((tmp_path / "out").rglob("*.input"))
    resumed = ("predict", "-", "-o", tmp_path / "out", *TOY, "--resume")
    again = run_forked(*resumed, input=example.read_text())
    assert again.code == 0, again.err
    assert "already finished" in again.out


@pytest.mark.parametrize("first", [True, False])
def test_shared_options_work_in_both_places(
    call: Callable, example: Path, tmp_path: Path, first: bool
) -> None:
    config, log = tmp_path / "c.yaml", tmp_path / "log"
    config.write_text("prediction: {default_model_type: toy}\nprogress: {enabled: true}\n")
    shared = ["-q", "-l", str(log), "-c", str(config)]
    rest = [str(example), "-o", str(tmp_path / "out"), "--device", "cpu"]
    done = call(*shared, "predict", *rest) if first else call("predict", *rest, *shared)
    assert done.code == 0
    assert done.out == ""
    assert "progress.enabled" in done.err
    assert "open frames" not in done.err
    assert "stage 9 output" in log.read_text()


def test_no_option_of_before_is_gone() -> None:
    names = {o for p in COMMANDS["virnucpro predict"].params for o in p.opts}
    before = "-m --model-type -p --model-path -e --expected-length -o --output-dir -d --device "
    before += "-b --batch-size -w --num-workers -k --keep-intermediate --resume -f --force "
    before += "--no-progress --dnabert-batch-size --esm-batch-size --parallel -t --threads"
    assert set(before.split()) <= names


def test_results_do_not_depend_on_batch_sizes(
    call: Callable, example: Path, tmp_path: Path
) -> None:
    sizes = ("-b", 7, "--esm-batch-size", 3000, "--dnabert-batch-size", 5, "-w", 1, "-t", 1)
    assert call("predict", example, "-o", tmp_path / "a", *TOY).code == 0
    assert call("predict", example, "-o", tmp_path / "b", *TOY, *sizes, "--parallel").code == 0
    name = "example_merged/prediction_results.txt"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_resume_with_other_science_is_refused_by_name(
    call: Callable, example: Path, tmp_path: Path
) -> None:
    assert call("predict", example, "-o", tmp_path / "out", *TOY).code == 0
    refused = call("predict", example, "-o", tmp_path / "out", *TOY, "-e", 300, "--resume")
    assert refused.code == 3
    assert "chunk length: was 500, is 300" in refused.err
    assert call("predict", example, "-o", tmp_path / "out", *TOY, "-e", 300, "--force").code == 0
    assert (tmp_path / "out/.checkpoints/runs/example/previous/example_contigs.tsv").exists()


def test_a_second_process_is_kept_out(call: Callable, example: Path, tmp_path: Path) -> None:
    from virnucpro.store.lock import locked

    with locked(tmp_path / "out/.checkpoints/runs/example/lock"):
        refused = call("predict", example, "-o", tmp_path / "out", *TOY)
    assert refused.code == 5
    assert f"is working on this input in {tmp_path / 'out'};" in refused.err
    assert [p.name for p in (tmp_path / "out").iterdir()] == [".checkpoints"]


def test_sigterm_ends_in_good_order_and_resume_goes_on(
    start: Callable[..., ForkedCommand], tmp_path: Path
) -> None:
    big = tmp_path / "example.fa"
    big.write_text("".join(f">r{n}\n{'GCT' * 160}\n" for n in range(4_000)))
    command = ("virnucpro", "predict", big, "-o", tmp_path / "out", *TOY)
    process = start(*command)
    parts = tmp_path / "out/example_nucleotide"
    until(lambda: list(parts.glob("*.pt*")) or process.poll() is not None, 200)
    process.terminate()
    assert process.wait() == 143, process.err
    assert "run the same command again" in process.err
    resumed = start(*command, "--resume")
    assert resumed.wait() == 0, resumed.err


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("predct", "x.fa"), "No such command 'predct'. Did you mean 'predict'?"),
        (("trian",), "Did you mean 'train'?"),
        (("models", "ftech", "500"), "Did you mean 'fetch'?"),
        (("utils", "listdevices"), "Did you mean 'list-devices'?"),
        (("train", "clasifier"), "Did you mean 'classifier'?"),
        (("predict", "x.fa", "--modle-type", "lite"), "'--model-type'"),
        (("evaluate", "x", "--label", "y"), "'--labels'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_mistyped_gets_a_suggestion(
    call: Callable, words: tuple[str, ...], suggestion: str
) -> None:
    done = call(*words)
    assert done.code == 64
    assert suggestion in done.err


@pytest.mark.parametrize("flags", [("--resume", "--force"), ("-f", "--resume")], ids=str)
@pytest.mark.parametrize(
    "command",
    [("predict", "x.fa"), ("train", "embed", "d"), ("train", "classifier", "d", "-o", "x")],
    ids=lambda command: " ".join(command[:2]),
)
def test_resume_and_force_contradict_each_other(
    call: Callable, command: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    done = call(*command, *flags)
    assert done.code == 64
    assert "give only one of them" in done.err


def test_generate_config(call: Callable, tmp_path: Path) -> None:
    assert call("utils", "generate-config").out == default_yaml()
    path = tmp_path / "c.yaml"
    assert call("utils", "generate-config", "-o", path).code == 0
    assert path.read_text() == default_yaml()
    path.write_text("mine")
    assert call("utils", "generate-config", "-o", path).code == 64
    assert call("utils", "generate-config", "-o", path, "--force").code == 0


def test_list_devices(call: Callable) -> None:
    assert "cpu" in call("utils", "list-devices").out
    assert json.loads(call("utils", "list-devices", "--json").out)["cpu_threads"] >= 1


def test_validate(call: Callable, example: Path) -> None:
    done = call("utils", "validate", example)
    assert done.code == 0
    assert "45 records" in done.out
    assert call("utils", "validate", example, "-e", 3000).out.count("warning") == 1
    example.write_text(">a\nACGT\n>b\n>c\n")  # empty records are no short reads
    assert "warning" not in call("utils", "validate", example).out
    example.write_text(">a\nACGT-\n")
    assert call("utils", "validate", example).code == 65


@pytest.mark.parametrize("closed", ["2>&1 | true", "2>/dev/null | true"])
def test_a_reader_that_leaves_does_not_end_the_run(
    example: Path, tmp_path: Path, closed: str
) -> None:
    command = (
        f"{sys.executable} -m virnucpro predict {example} -o {tmp_path / 'out'} {' '.join(TOY)}"
    )
    done = subprocess.run(
        ["bash", "-c", f"({command}; echo $? > {tmp_path / 'code'}) {closed}"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    for _ in range(200):
        if (tmp_path / "code").exists() and (tmp_path / "code").read_text():
            break
        time.sleep(0.1)
    assert (tmp_path / "code").read_text() == "0\n"
    assert (tmp_path / "out/example_run.json").exists()
