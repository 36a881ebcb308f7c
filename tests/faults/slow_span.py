"""A program that embeds one span slowly, on one core: to be interrupted and killed.

python -m tests.faults.slow_span FOLDER SECONDS_PER_BATCH

Every batch is a line in FOLDER/computed; finished batches are saved at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from tests.unit.encoders.small import make_dnabert
from virnucpro.contracts import Device, Session, Task
from virnucpro.encoders.dnabert_s import DnabertEncoder
from virnucpro.encoders.registry import locate
from virnucpro.errors import VirNucProError
from virnucpro.executors.executor import Executor
from virnucpro.executors.local import LocalPool
from virnucpro.executors.signals import interruptible
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import RunLayout
from virnucpro.run.spans import Spans
from virnucpro.stages import embedding_session
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger

SEQUENCES, BATCH = 120, 4


class SlowStage(EmbeddingStage):
    """Its batches take a while and are noted."""

    seconds = 0.0

    def open(self, device: Device) -> Session:
        session = super().open(device)
        forward = DnabertEncoder.forward

        def slow(encoder: DnabertEncoder, *inputs: torch.Tensor) -> torch.Tensor:
            rows = forward(encoder, *inputs)
            time.sleep(self.seconds)
            with (self.layout.root / "computed").open("a") as log:
                log.write("batch\n")
            return rows

        DnabertEncoder.forward = slow  # type: ignore[method-assign]
        return session


def main() -> int:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    embedding_session.SAVE_SECONDS = 0.0
    SlowStage.seconds = seconds
    layout, disk = RunLayout(folder, "in", 500), Disk()
    model = folder / "model"
    path, output = layout.split("nucleotide", 1), layout.features("nucleotide", 1)
    if not path.exists():
        make_dnabert(model)
        generator = torch.Generator().manual_seed(3)
        letters = torch.randint(4, (SEQUENCES, 90), generator=generator)
        texts = [
            "".join("ACGT"[letter] for letter in row[: 60 + n % 30])
            for n, row in enumerate(letters.tolist())
        ]
        disk.save(path, fasta_bytes((f"r{n}", text) for n, text in enumerate(texts)))
    source = locate(str(model), "nucleotide")
    stage = SlowStage(layout, disk, "nucleotide", source, "fp32", 1024, BATCH)
    receipt = output.with_name(output.name + ".done")
    task = Task(stage.name, 1, (path,), (output,), receipt, count=SEQUENCES)
    torch.set_num_threads(1)
    with interruptible():
        executor = Executor(LocalPool(Device("cpu")), 1)
        try:
            with Spans(stage, [task], Ledger(layout, disk, {}), disk) as spans:
                for outcome in executor.run(stage, spans.todo, lambda event: None):
                    spans.add(outcome)
                spans.rest()
        except VirNucProError as error:
            return error.exit_code
        finally:
            executor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
