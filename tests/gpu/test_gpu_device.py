"""The GPU that predict would take is the one that torch sees."""

from __future__ import annotations

import json

import torch

from virnucpro.devices import visible_gpus


def test_what_the_program_finds_is_what_torch_sees(device, shell):
    done = shell("utils", "list-devices", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["gpus"]
    assert [gpu.uuid for gpu in visible_gpus()] == [row["uuid"] for row in found]
    if device == "cpu":
        return
    assert len(found) == torch.cuda.device_count()
    for index, row in enumerate(found):
        seen = torch.cuda.get_device_properties(index)
        assert row["index"] == index
        assert row["name"] == seen.name
        assert abs(row["memory"] - seen.total_memory) < 0.05 * seen.total_memory
        assert str(seen.uuid) in row["uuid"]
