"""Several processes that find RCLs: order, memory, and what happens where one of them fails.

Nothing here imports torch, so that a process starts in a moment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, InputError, ModelError, VirNucProError
from virnucpro.rcl.processes import BLOCKS_AHEAD, Block, find_in_blocks

CPU = Device("cpu")


@dataclass
class Obedient:
    """A model that does what the protein says, and leaves a file named after its process."""

    folder: Path
    label = encoding = sha256 = "obedient"
    threshold = 0.5

    def settle(self, device: Device) -> None:
        assert device == CPU
        (self.folder / str(os.getpid())).touch()

    def find(self, sequences: list[str]) -> list[str]:
        if "DIE" in sequences:
            os.kill(os.getpid(), signal.SIGKILL)
        if "REFUSE" in sequences:
            raise ModelError("the model is damaged")
        if "FAIL" in sequences:
            raise ValueError("a defect")
        return [f"found in {text}" for text in sequences]


def blocks_of(*texts: str) -> list[Block]:
    return [[(f"{text}1", text), (f"{text}2", ""), (f"{text}3", text)] for text in texts]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_the_order_of_the_input(tmp_path: Path, count: int) -> None:
    """And blocks are not read long before they are written."""
    blocks, taken = blocks_of(*"ABCDEFGHIJKLMNOP"), 0

    def reader() -> Iterator[Block]:
        nonlocal taken
        for block in blocks:
            taken += 1
            yield block

    finding = find_in_blocks(Obedient(tmp_path), [CPU] * count, reader())
    for written, (block, results) in enumerate(finding):
        assert block == blocks[written]
        assert results == [f"found in {text}" for _, text in block if text]
        assert taken - written <= count * BLOCKS_AHEAD
    assert taken == written + 1 == len(blocks)
    processes = {int(path.name) for path in tmp_path.iterdir()}
    assert (os.getpid() in processes) == (count == 1)
    assert len(processes) <= count
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("DIE", DeviceError, "on CPU ended by signal 9: out of memory.*; nothing was written; run"),
        ("REFUSE", ModelError, "the model is damaged"),
        ("FAIL", VirNucProError, "the process on CPU failed(.|\n)*ValueError: a defect"),
        ("READ", InputError, "the input is damaged"),
    ],
)
def test_one_that_fails_ends_all(
    tmp_path: Path, text: str, error: type[VirNucProError], message: str
) -> None:
    def reader() -> Iterator[Block]:
        for block in blocks_of("A", "B", text, "C", "D", "E", "F"):
            if block[0][1] == "READ":
                raise InputError("the input is damaged")
            yield block

    with pytest.raises(error, match=message):
        list(find_in_blocks(Obedient(tmp_path), [CPU] * 2, reader()))
    assert not multiprocessing.active_children()
