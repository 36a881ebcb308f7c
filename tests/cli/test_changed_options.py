"""Every option of ``predict``, and every key of its configuration, changed before a run goes on.

Either nothing of the results changes, or the results are those of a run that had the new value from
its start, or the command refuses (exit 3) with a table of what changed and leaves all as it is.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from safetensors.torch import load_file

from tests.cli.inputs import interrupted_at
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.cli import run
from virnucpro.cli.predict import predict
from virnucpro.settings import SETTINGS, TOY_CLASSIFIER

LOGS = ("run.log", "written")
VOLATILE = ("run.json", "in_report.html", ".done", "progress.json")


class Change(NamedTuple):
    """What is given when the run goes on, and what must come of it.

    Attributes:
        name: the option of ``predict``, or the key of the configuration, that it is about.
        words: added to the command, or the value of the key; ``HOME`` stands for the folder of the
            inputs, ``OUT`` for the output directory.
        refused: the beginnings of the rows of the table that names what changed; none for a command
            that goes on.
        code: the exit code of a command that cannot be carried out, whatever is there.
        elsewhere: whether it is another run, which leaves the first one as it is.
    """

    name: str
    words: str
    refused: tuple[str, ...] = ()
    code: int = 0
    elsewhere: bool = False


CHANGES = (
    Change("sources", "HOME/other/in.fa", ("input: was sha256 ",)),
    Change("--input", "-i HOME/in.fa"),
    Change("--input", "--input HOME/moved/in.fa"),
    Change("--input", "--input HOME/other/in2.fa", elsewhere=True),
    Change("--input2", "--input2 HOME/other/in.fa", ("second input: was not set, ",)),
    Change("--interleaved", "--interleaved", ("interleaved: was ",)),
    Change("--input-list", "--input-list HOME/in.fa", code=65),  # which is no list
    Change("--output-dir", "-o OUT/../elsewhere", elsewhere=True),
    Change("--model-type", f"-m custom -c HOME/toy.yaml -p {TOY_CLASSIFIER}"),
    Change(
        "--model-type", "-m lite", ("classifier: was ", "nucleotide model: ", "protein model: ")
    ),
    Change("--model-path", f"-p {TOY_CLASSIFIER}"),
    Change("--model-path", "-p HOME/other.safetensors", ("classifier: was sha256 ",)),
    Change("--expected-length", "-e 200", ("chunk length: was 150, is 200",)),
    Change("--device", "--device auto"),
    Change("--gpus", "--gpus 0", code=64),  # on the CPU
    Change("--cpu-workers", "--cpu-workers 1"),
    # Nothing answers there; tests/contract/test_ray.py and tests/slow have a cluster.
    Change("--cluster", "--cluster 127.0.0.1:9", code=64),
    Change("--cluster", "--cluster head", code=64),
    Change("--compile", "--compile never"),
    Change("--compile", "--compile always", code=64),
    Change("--precision", "--precision fp32"),
    Change("--precision", "--precision bf16", ("precision: was fp32, is bf16",)),
    Change("--esm-batch-size", "--esm-batch-size 100"),
    Change("--dnabert-batch-size", "--dnabert-batch-size 3"),
    Change("--num-workers", "--num-workers 1"),
    Change("--threads", "--threads 2"),
    Change("--batch-size", "--batch-size 7"),
    Change("--duplicate-ids", "--duplicate-ids rename", ("duplicate ids: was error, is rename",)),
    Change("--dedup", "--dedup"),
    Change("--dedup", "--no-dedup", ("dedup: was on, is off",)),
    Change("--min-score", "--min-score 0.1"),
    Change("--max-fdr", "--max-fdr 0.1", code=64),  # the toy classifier is not calibrated
    Change("--min-length", "--min-length 100"),
    Change("--genes", "--no-genes"),
    Change("--resume", "--resume"),
    Change("--force", "--force"),
    Change("--force", "--force -e 200"),
    Change("--force", "--force --duplicate-ids rename"),
    Change("--force", "--force --no-dedup"),
    Change("--force", "--force --resume", code=64),
    Change("--keep-intermediate", "--keep-intermediate"),
    Change("--no-progress", "--no-progress"),
    Change("--parallel", "--parallel"),
    Change("--verbose", "--verbose"),
    Change("--quiet", "--quiet"),
    Change("--log-file", "--log-file OUT/../my.log"),
    Change("--config", "-c HOME/toy.yaml"),
    # The keys that no option replaces.
    Change(
        "prediction.sequences_per_file",
        "50",
        ("sequences per file: was not set, is 50",),
    ),
    Change("features.dnabert.model_name", "lite"),  # of other model types
    Change("features.esm.model_name", "lite"),
    Change("features.esm.truncation_seq_length", "10", ("truncation: was 1024, is 10",)),
    Change("prediction.models.300", "other.pth"),
    Change("prediction.models.500", "other.pth"),
    Change("parallelization.num_workers", "1"),
    Change("device.fallback_to_cpu", "false"),
    Change("files.auto_cleanup", "false"),
    Change("logging.default_level", "ERROR"),
    Change("logging.auto_log_file", "false"),
)


def test_every_option_and_every_key_is_in_the_table():
    options = {max(parameter.opts, key=len) for parameter in predict.params}
    filled = {parameter.name for parameter in predict.params}
    keys = {declared.key for name, declared in SETTINGS.items() if name not in filled}
    assert {change.name for change in CHANGES} == options | keys


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

    with interrupted_at("protein_embeddings"):  # one encoder is done, the other one is not
        assert run(_command(home, home / "begun", "")) == 130
    assert not (home / "begun/in_contigs.tsv").exists()
    return home


def _command(home: Path, out: Path, words: str) -> list[str]:
    """Return the command with ``words`` added, or in the place of its input or its folder."""
    added = words.replace("HOME", str(home)).replace("OUT", str(out)).split()
    named = words.startswith(("HOME", "-i ", "--input ", "--input-list "))
    source = [] if named else [str(home / "in.fa")]
    base = ["-o", str(out), "-m", "toy", "-e", "150", "--device", "cpu", "--threads", "1"]
    return ["predict", *source, *base, *added]


def _files(out: Path) -> dict[str, bytes]:
    """The files in an output directory that two equal runs share, and what is comparable of them.

    The record of a run says how long it took and with which command, but also what it computed.
    """
    contents = {}
    for path in (path for path in out.rglob("*") if path.is_file() and path.name not in LOGS):
        contents[str(path.relative_to(out))] = (
            b"" if path.name.endswith(VOLATILE) else path.read_bytes()
        )
        if path.name == "in_run.json":
            record = json.loads(path.read_bytes())
            lasting = {name: record[name] for name in ("settings", "models", "precision", "counts")}
            contents[path.name] = json.dumps(lasting).encode()
    return contents


def _everything(out: Path) -> dict[Path, tuple[int, bytes]]:
    """All files, with their times; the lock says that somebody was there."""
    paths = [path for path in out.rglob("*") if path.is_file() and path.name not in (*LOGS, "lock")]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.name} {change.words}")
def test_a_change(call, home, tmp_path, change):
    out, anew, words = tmp_path / "out", tmp_path / "anew", change.words
    if "." in change.name:
        document: dict[str, object] = yaml.safe_load(words)
        for name in reversed(change.name.split(".")):
            document = {name: document}
        (tmp_path / "changed.yaml").write_text(yaml.safe_dump(document))
        words = f"-c {tmp_path}/changed.yaml"
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
    elif not change.code:
        assert call(*_command(home, anew, words)).code == 0
        assert change.elsewhere or _files(out) == _files(anew)


def test_what_is_not_said_stays_as_the_run_began(home, tmp_path):
    assert run(_command(home, tmp_path, "--no-dedup")) == 0
    record = (tmp_path / "in_run.json").read_bytes()
    assert run(_command(home, tmp_path, "")) == 0
    assert (tmp_path / "in_run.json").read_bytes() == record
