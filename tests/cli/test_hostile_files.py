"""Model files made to break the reader: a message within seconds, exit 64."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_inputs_models import (
    CLASSIFIER,
    NUCLEOTIDE,
    PROTEIN,
    models,
    pristine,
    run,
)

__all__ = ["models", "pristine", "run"]  # fixtures
DEEP = "[" * 200_000
SECONDS = 60  # a bound for what runs for minutes, not a measurement


def _edit(path: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _deep_config(folder: Path) -> None:
    (folder / "dnabert/config.json").write_text(DEEP)


def _deep_tokenizer(folder: Path) -> None:
    (folder / "dnabert/tokenizer.json").write_text('{"a":' * 200_000)


def _repeated_key(folder: Path) -> None:
    path = folder / "dnabert/config.json"
    path.write_text('{"num_hidden_layers": 1, ' + path.read_text().lstrip()[1:])


def _mixed_weight_map(folder: Path) -> None:
    (folder / NUCLEOTIDE).unlink()
    (folder / f"{NUCLEOTIDE}.index.json").write_text('{"weight_map": {"a": 1, "b": "x", "c": []}}')


def _layers(folder: Path) -> None:
    _edit(folder / "dnabert/config.json", lambda d: d.update(num_hidden_layers=10_000_000))


def _first_word(number: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        def edit(document: dict[str, Any]) -> None:
            words = document["model"]["vocab"]
            words[next(iter(words))] = number

        _edit(folder / "dnabert/tokenizer.json", edit)

    return change


def _marks(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"(" * 100_000_000)
            archive.writestr("archive/version", "3\n")

    return change


def _plain_marks(folder: Path) -> None:
    (folder / CLASSIFIER).write_bytes(b"(" * 100_000_000)


@pytest.mark.parametrize(
    "change",
    [
        *(_deep_config, _deep_tokenizer, _repeated_key, _mixed_weight_map, _layers),
        *(_first_word(-1), _first_word(10**6), _first_word("7"), _first_word(2**70)),
        *(_marks(PROTEIN), _marks(CLASSIFIER), _plain_marks),
    ],
)
def test_hostile_models(run: Callable, models: Path, change: Callable[[Path], None]) -> None:
    change(models)
    started = time.process_time()
    done = run()
    assert "Traceback" not in done.err
    assert done.code == 64, done.err
    assert str(models) in done.err
    assert time.process_time() - started < SECONDS
    assert not (models.parent / "out/sample_contigs.tsv").exists()
