"""The script that measures regions puts the scores of two files together as of one record."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from virnucpro.io.chunks import chunk_spans
from virnucpro.stages.calls import Chunk
from virnucpro.training.data.dataset import LabelledRecord

SCRIPT = Path(__file__).parents[3] / "examples/lite/regions.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("lite_regions", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["lite_regions"] = module  # where typing looks for the names of its classes
    specification.loader.exec_module(module)
    return module


def cut(sequence: str, length: int) -> list[Chunk]:
    """Return chunks whose scores are their own bases."""
    return [
        Chunk("c", start, stop, "scored", 1, sequence[start:stop], sequence[start:stop])
        for start, stop in chunk_spans(len(sequence), length)
    ]


@pytest.mark.parametrize("length", [500, 300])
def test_each_chunk_holds_the_bases_of_the_whole_record(script: ModuleType, length: int) -> None:
    draw = random.Random(1)
    sequence = "".join(draw.choices("ACGT", k=130_123))
    host = LabelledRecord("host", "g", "t", "mixed bacteria", "others", sequence)
    piece = "".join(draw.choices("ACGT", k=10 * length))
    phage = LabelledRecord("phage", "g", "t", "phages", "virus", piece)
    made, windows = script.lysogens([host], [(phage, piece)] * 10, length, draw)
    hosts = {"host": cut(sequence[: len(sequence) // length * length], length)}
    inserts = {name: cut(bases, length) for name, bases in windows}
    for lysogen in made:
        stretch = sequence[lysogen.host_start : lysogen.host_start + lysogen.host_length]
        whole = stretch[: lysogen.position] + piece + stretch[lysogen.position :]
        assert script.joined(lysogen, hosts, inserts, length) == cut(whole, length)
    assert len(made) == 10
