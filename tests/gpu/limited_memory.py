"""An embedding stage with little memory, for a worker to run out of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from virnucpro.contracts import Device, Session, Task
from virnucpro.io.fasta import fasta_bytes
from virnucpro.stages.embedding import EmbeddingStage


@dataclass(frozen=True)
class Tight(EmbeddingStage):
    """Its worker may take ``spare`` bytes more than the model has, on a GPU."""

    spare: int = 0

    def open(self, device: Device) -> Session:
        """As it is, but that the rest of the memory is out of reach."""
        session = super().open(device)
        if device.kind == "cuda":
            total = torch.cuda.get_device_properties(0).total_memory
            share = (torch.cuda.memory_reserved() + self.spare) / total
            torch.cuda.set_per_process_memory_fraction(share)
        return session

    def whole(self, proteins: list[str]) -> Task:
        """The task of a file with these proteins, which is written here."""
        path: Path = self.layout.split("protein", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fasta_bytes((f"p{n}", text) for n, text in enumerate(proteins)))
        output = self.layout.features("protein", 1)
        receipt = output.with_name(output.name + ".done")
        return Task(self.name, self.version, (path,), (output,), receipt, count=len(proteins))
