"""The lite encoder: small, trained by ``examples/lite/train.py``, fast on any CPU.

It reads whole chunks, on both strands, whether they have an open frame or not. An encoder is one
safetensors file with the key ``virnucpro_lite`` in its metadata::

    {"schema": 2, "shape": {"dim": 256, ...}, "extra": {...}}

``shape`` is :class:`LiteShape`. The tensors are those of :class:`LiteNetwork`, in 16 bits where
they are large. The encoder that the package ships is called ``lite``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from virnucpro.compute.arithmetic import torch_dtype
from virnucpro.compute.threads import CoreThreads, keep_freed_memory, one_thread
from virnucpro.contracts import Json, Molecule, ReportProgress
from virnucpro.encoders.family import BASES, EncoderFamily, EncoderSource, OpenOptions, Reading
from virnucpro.encoders.lite_network import LiteNetwork, LiteShape, base_numbers
from virnucpro.encoders.weights import as_type, load_weights, read_metadata, read_safetensors
from virnucpro.errors import ModelError
from virnucpro.precision import PRECISIONS
from virnucpro.settings import SHORTEST_WHOLE

BATCH_BASES = 8_000  # their activations fill 10 MB
SCHEMA = 2  # 1: another network, before November 2026
_KEY = "virnucpro_lite"


class LiteEncoder:
    """A network on its device, called on chunks of any lengths."""

    host_wait_seconds = 0.0

    def __init__(self, network: LiteNetwork, device: torch.device, precision: str) -> None:
        self.dim = network.shape.dim
        self._device = device
        self._dtype = torch_dtype(precision)
        if (device.type, self._dtype) == ("cpu", torch.float32):
            with one_thread():  # sums of tables would depend on the number of threads
                network = network.fused()
        self._network = network.to(device)
        self._batch_bases = BATCH_BASES
        self._threads = CoreThreads()
        if device.type == "cpu":
            keep_freed_memory()
        torch.backends.cudnn.allow_tf32 = False  # fp32 as on the CPU: its default is True

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """float32 ``[n, dim]`` on the CPU. A token is a base; batches are of one length."""
        out = torch.empty(len(sequences), self.dim)
        batches = []
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for length, group in groupby(order, key=lambda i: len(sequences[i])):
            rows = list(group)
            size = max(1, self._batch_bases // max(length, 1))
            batches += [rows[start : start + size] for start in range(0, len(rows), size)]
        with closing(
            self._threads.map(lambda batch: self._forward([sequences[i] for i in batch]), batches)
        ) as computed:
            for batch, embedded in computed:
                out[batch] = embedded
                report(len(batch), sum(len(sequences[i]) for i in batch))
        return out

    def facts(self) -> Mapping[str, Json]:
        """Return the batch budget, which is the same on every device."""
        return {"budget": self._batch_bases, "unit": "bases", "found": "default"}

    def shrink(self) -> bool:
        """Halve the batches; False where they already are of one chunk."""
        smaller = self._batch_bases > SHORTEST_WHOLE
        self._batch_bases = max(SHORTEST_WHOLE, self._batch_bases // 2)
        return smaller

    def _forward(self, texts: list[str]) -> torch.Tensor:
        # The pipeline sends no shorter chunk, but a measurement of the encoder may.
        texts = [text.ljust(SHORTEST_WHOLE, "N") for text in texts]
        kind, half = self._device.type, self._dtype != torch.float32
        with torch.inference_mode(), torch.autocast(kind, self._dtype, enabled=half):
            bases = torch.from_numpy(base_numbers(texts)).to(self._device).long()
            rows: torch.Tensor = self._network(bases)
        return rows.float().cpu()


def lite_to_bytes(network: LiteNetwork, extra: Mapping[str, Json]) -> bytes:
    """Return an encoder as a file, the same for the same arguments; ``extra`` is kept in it."""
    tensors = {
        name: (value.half() if value.ndim > 1 else value.float()).contiguous()
        for name, value in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    metadata = {"schema": SCHEMA, "shape": asdict(network.shape), "extra": dict(extra)}
    return save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)})


def read_lite(path: Path) -> LiteNetwork:
    """Read an encoder. Raises ModelError: it cannot be read, is damaged or from a newer program."""
    with torch.device("meta"):  # nothing is allocated that the file does not hold
        network = LiteNetwork(_shape(path))
    load_weights(network, read_safetensors(path), path)
    return network


def _shape(path: Path) -> LiteShape:
    """Return what a lite file says of its network."""
    metadata = as_type(read_metadata(path, _KEY), dict[str, Any], path)
    if metadata.get("schema") != SCHEMA:
        raise ModelError(f"{path} is of another schema than {SCHEMA}: train it again, or update")
    return as_type(metadata.get("shape"), LiteShape, path)


# --- the family ------------------------------------------------------------------------------

PACKAGED = Path(__file__).parents[1] / "data/lite_encoder.safetensors"  # of model type ``lite``


class LiteFamily(EncoderFamily):
    """The lite encoders."""

    name = "lite"
    title = "lite"
    molecule: Molecule = "nucleotide"
    reading: Reading = "whole chunks"
    alphabet = BASES
    packaged = PACKAGED
    # Too small to gain from 8 bits.
    precisions = tuple(name for name, row in PRECISIONS.items() if row.linear_layers == "cast")

    def recognises(self, path: Path) -> bool:
        """Return whether the metadata of a file say so."""
        return path.suffix == ".safetensors" and read_metadata(path, _KEY) is not None

    def width(self, path: Path | None) -> int:
        """Return the width that the metadata say."""
        assert path is not None
        return _shape(path).dim

    def open(self, source: EncoderSource, options: OpenOptions) -> LiteEncoder:
        """Load the weights onto the device. Raises ModelError where the file is damaged."""
        network = read_lite(source.weights)
        return LiteEncoder(network, torch.device(options.device), options.precision)


LITE = LiteFamily()
