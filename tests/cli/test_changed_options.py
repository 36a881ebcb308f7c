"""Every option of ``predict``, and every key of its configuration, changed before a run goes on.

Either nothing of the results changes, or the results are those of a run that had the new value from
its start, or the command refuses (exit 3) with a table of what changed and leaves all as it is.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tests.conftest import Call
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.cli import run
from virnucpro.cli.predict import predict
from virnucpro.configuration import KEYS
from virnucpro.events import Event, StageStarted
from virnucpro.settings import TOY_CLASSIFIER
from virnucpro.ui.run_screen import RunScreen

INTERRUPTED_AT = "protein_embeddings"  # one encoder is done, the other one is not
VOLATILE = (
    *("run.log", "in_run.json", "in_report.html", ".done", "run.json"),
    *("receipts.json", "receipts.copy.json"),
)


@dataclass(frozen=True)
class Change:
    """What is given when the run goes on, and what must come of it.

    Attributes:
        words: added to the command; ``HOME`` stands for the folder of the inputs.
        refused: the beginnings of the rows of the table that names what changed; none for a command
            that goes on.
        code: the exit code of a command that cannot be carried out, whatever is there.
        elsewhere: whether it is another run, which leaves the first one as it is.
    """

    words: str
    refused: tuple[str, ...] = ()
    code: int = 0
    elsewhere: bool = False


OPTIONS: dict[str, list[Change]] = {
    "sources": [Change("HOME/other/in.fa", refused=("input: was sha256 ",))],
    "--input": [
        Change("--input HOME/in.fa"),
        Change("--input HOME/moved/in.fa"),
        Change("--input HOME/other/in.fa", refused=("input: was sha256 ",)),
        Change("--input HOME/other/in2.fa", elsewhere=True),
    ],
    "--input2": [Change("--input2 HOME/other/in.fa", refused=("second input: was not set, ",))],
    "--interleaved": [Change("--interleaved", refused=("mates: was ",))],
    "--input-list": [Change("--input-list HOME/in.fa", code=65)],  # which is no list
    "--output-dir": [Change("-o OUT/../elsewhere", elsewhere=True)],
    "--model-type": [
        Change("-m custom -c HOME/toy.yaml -p " + str(TOY_CLASSIFIER)),
        Change("-m lite", refused=("classifier: was ", "nucleotide model: ", "protein model: ")),
    ],
    "--model-path": [
        Change(f"-p {TOY_CLASSIFIER}"),
        Change("-p HOME/other.safetensors", refused=("classifier: was sha256 ",)),
    ],
    "--expected-length": [Change("-e 200", refused=("chunk length: was 150, is 200",))],
    "--device": [Change("--device auto")],
    "--gpus": [Change("--gpus 0", code=64)],  # on the CPU
    "--cpu-workers": [Change("--cpu-workers 1")],
    # Nothing answers there; tests/contract/test_ray.py and tests/slow have a cluster.
    "--cluster": [Change("--cluster 127.0.0.1:9", code=64), Change("--cluster head", code=64)],
    "--compile": [Change("--compile never"), Change("--compile always", code=64)],
    "--precision": [
        Change("--precision fp32"),
        Change("--precision bf16", refused=("precision: was fp32, is bf16",)),
    ],
    "--esm-batch-size": [Change("--esm-batch-size 100")],
    "--dnabert-batch-size": [Change("--dnabert-batch-size 3")],
    "--num-workers": [Change("--num-workers 1")],
    "--threads": [Change("--threads 2")],
    "--batch-size": [Change("--batch-size 7")],
    "--duplicate-ids": [
        Change("--duplicate-ids rename", refused=("duplicate ids: was error, is rename",))
    ],
    "--dedup": [
        Change("--dedup"),
        Change("--no-dedup", refused=("identical sequences: was embedded once, is not set",)),
    ],
    "--min-score": [Change("--min-score 0.1"), Change("--min-score 0.1 --relaxed", code=64)],
    "--max-fdr": [Change("--max-fdr 0.1", code=64)],  # the toy classifier is not calibrated
    "--min-length": [Change("--min-length 100")],
    "--relaxed": [Change("--relaxed")],
    "--conservative": [Change("--conservative"), Change("--conservative --relaxed", code=64)],
    "--resume": [Change("")],
    "--force": [
        Change("--force"),
        Change("--force -e 200"),
        Change("--force --duplicate-ids rename"),
        Change("--force --no-dedup"),
        Change("--force --resume", code=64),
    ],
    "--keep-intermediate": [Change("--keep-intermediate")],
    "--no-features": [
        Change("--no-features"),
        Change("--no-features --keep-intermediate", code=64),
    ],
    "--no-progress": [Change("--no-progress")],
    "--parallel": [Change("--parallel")],
    "--verbose": [Change("--verbose")],
    "--quiet": [Change("--quiet")],
    "--log-file": [Change("--log-file OUT/../my.log")],
    "--config": [Change("-c HOME/toy.yaml")],  # its keys are below
}
# Those that no option replaces.
KEYS_CHANGED: dict[str, list[Change]] = {
    "prediction.sequences_per_file": [
        Change(
            "50", refused=("frames per file: was by their number, is by their number, at most 50",)
        )
    ],
    "features.dnabert.model_name": [Change("lite")],  # of other model types
    "features.esm.model_name": [Change("lite")],
    "features.esm.truncation_seq_length": [Change("10", refused=("truncation: was 1024, is 10",))],
    "prediction.models.300": [Change("other.pth")],
    "prediction.models.500": [Change("other.pth")],
    "calls.preset": [Change("conservative")],
    "parallelization.num_workers": [Change("1")],
    "device.fallback_to_cpu": [Change("false")],
    "files.auto_cleanup": [Change("false")],
    "logging.default_level": [Change("ERROR")],
    "logging.auto_log_file": [Change("false")],
}


def test_every_option_and_every_key_is_in_the_tables() -> None:
    names = {max(parameter.opts, key=len) for parameter in predict.params}
    assert names == OPTIONS.keys()
    settings = {parameter.name for parameter in predict.params}
    keys = {name for name, key in KEYS.items() if key.setting not in settings}
    assert keys == KEYS_CHANGED.keys()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs, and ``begun``: the output directory of an interrupted run. Not to be changed."""
    home = tmp_path_factory.mktemp("inputs")
    rng = random.Random(4)
    for folder in (".", "other"):
        records = [f">r{n}\n{''.join(rng.choices('ACGT', k=30 + 9 * n))}\n" for n in range(40)]
        (home / folder).mkdir(exist_ok=True)
        (home / folder / "in.fa").write_text("".join(records))
    (home / "moved").mkdir()
    shutil.copy(home / "in.fa", home / "moved/in.fa")
    shutil.copy(home / "other/in.fa", home / "other/in2.fa")
    (home / "toy.yaml").write_text("features: {dnabert: {model_name: toy}, esm: {model_name: toy}}")
    weights = load_file(TOY_CLASSIFIER)
    weights["output_layer.bias"] += 1.0
    entries = ("toy-nucleotide", "toy-protein")
    content = classifier_to_bytes(weights, encoders=entries, chunk_lengths=(), extra={})
    (home / "other.safetensors").write_bytes(content)

    def interrupted_show(screen: RunScreen, event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == INTERRUPTED_AT:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunScreen, "show", interrupted_show)
        assert run(_command(home, home / "begun", "")) == 130
    assert not (home / "begun/in_contigs.tsv").exists()
    return home


def _command(home: Path, out: Path, words: str) -> list[str]:
    """Return the command with ``words`` added, or in the place of its input or its folder."""
    added = words.replace("HOME", str(home)).replace("OUT", str(out)).split()
    source = (
        [] if words.startswith(("HOME", "--input ", "--input-list ")) else [str(home / "in.fa")]
    )
    base = ["-o", str(out), "-m", "toy", "-e", "150", "--device", "cpu", "--threads", "1"]
    return ["predict", *source, *base, *added]


def _files(out: Path) -> dict[str, bytes]:
    """The files in an output directory that two equal runs share, and what is comparable of them.

    The record of a run says how long it took and with which command, but also what it computed.
    """
    contents = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if not path.is_file() or "/previous/" in name or path.name == "run.log":
            continue
        contents[name] = b"" if path.name.endswith(VOLATILE) else path.read_bytes()
        if path.name == "in_run.json":
            record = json.loads(path.read_bytes())
            lasting = {name: record[name] for name in ("settings", "models", "precision", "counts")}
            contents[name] = json.dumps(lasting).encode()
    return contents


def _everything(out: Path) -> dict[Path, tuple[int, bytes]]:
    """All files, with their times; the lock says that somebody was there."""
    paths = [path for path in out.rglob("*") if path.is_file() and path.name != "run.log"]
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths if path.stem != "lock"
    }


def _check(
    call: Callable[..., Call], home: Path, tmp_path: Path, change: Change, words: str
) -> None:
    out, anew = tmp_path / "out", tmp_path / "anew"
    shutil.copytree(home / "begun", out)
    before = _everything(out)
    done = call(*_command(home, out, words))
    assert done.code == (3 if change.refused else change.code), done.err
    if change.refused or change.code or change.elsewhere:
        after = _everything(out)
        assert {path: after.get(path) for path in before} == before
        assert change.elsewhere or after.keys() == before.keys()
    if change.refused:
        rows = [line.strip() for line in done.err.splitlines() if line.startswith("  ")]
        assert len(rows) == len(change.refused), rows
        assert all(map(str.startswith, rows, change.refused)), rows
        return
    if change.code:
        return
    again = call(*_command(home, anew, words))
    assert again.code == 0, again.err
    if not change.elsewhere:
        assert _files(out) == _files(anew)


@pytest.mark.parametrize(
    ("option", "change"), [(name, row) for name, rows in OPTIONS.items() for row in rows]
)
def test_an_option(
    call: Callable[..., Call],
    home: Path,
    tmp_path: Path,
    option: str,
    change: Change,
) -> None:
    resume = "" if option == "--force" else " --resume"
    _check(call, home, tmp_path, change, change.words + resume)


@pytest.mark.parametrize(
    ("key", "change"), [(name, row) for name, rows in KEYS_CHANGED.items() for row in rows]
)
def test_a_key_of_the_configuration(
    call: Callable[..., Call], home: Path, tmp_path: Path, key: str, change: Change
) -> None:
    document: dict[str, object] = yaml.safe_load(change.words.replace("HOME", str(home)))
    for name in reversed(key.split(".")):
        document = {name: document}
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(document))
    _check(call, home, tmp_path, change, f"-c {tmp_path}/changed.yaml")
