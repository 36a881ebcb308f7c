"""Fuzz the functions that read files, guided by coverage. Needs ``pip install atheris``.

    python -m tools.fuzz records -max_total_time=1800 CORPUS
    python -m tools.fuzz features -max_total_time=900 CORPUS
    python -m tools.fuzz receipts -max_total_time=900 CORPUS

Everything but content or an error of the program itself is a crash. Keep its input as a case in the
tests.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["virnucpro"]):
    from virnucpro.errors import InputError, ResumeRefusedError
    from virnucpro.io.records import read_records
    from virnucpro.store.features import DamagedFeaturesError, load_features
    from virnucpro.store.receipts import UnusableReceiptError, read_receipt

FOLDER = Path(tempfile.mkdtemp(prefix="virnucpro-fuzz-"))
FILE = FOLDER / "x"


def records(data: bytes) -> None:
    """FASTA and FASTQ, plain and compressed."""
    FILE.write_bytes(data)
    try:
        for record in read_records(FILE, limit=1 << 22):
            assert record.id
            assert "\n" not in record.sequence
    except InputError as error:
        if str(FILE) not in str(error):
            raise AssertionError("the message names no file") from error


def features(data: bytes) -> None:
    """Feature files."""
    FILE.write_bytes(data)
    try:
        found = load_features(FILE, "merged")
        assert len(found.ids) == len(found.data)
    except DamagedFeaturesError:
        pass


def receipts(data: bytes) -> None:
    """Receipts."""
    FILE.write_bytes(data)
    with suppress(UnusableReceiptError, ResumeRefusedError):
        read_receipt(FILE, FOLDER)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "records": records,
    "features": features,
    "receipts": receipts,
}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
