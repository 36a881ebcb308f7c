"""Measure how well a worker feeds a device that embeds nucleotides as fast as an H200, but sleeps.

    python -m benchmarks.feeding DNABERT_FOLDER [--frames 20000] [--slower 8] [--threads 1]

Reading, the tokenizer in the folder, batches, writing and scheduling are those of ``predict``, and
launching a batch keeps the loop busy as long as it did on the H200. ``--slower 8`` gives the device
and the launches eight times as long, and the rate is multiplied by eight: it is that of a host that
does all else eight times as fast as this one, with as many ``--threads`` for tokens.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from benchmarks.models import random_frames
from tests.contract.running import run_stage
from virnucpro.contracts import Device, Receipts, Session, Task
from virnucpro.encoders.batched import AHEAD, Batch, BatchedEncoder
from virnucpro.encoders.registry import locate
from virnucpro.events import WorkerReport
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout
from virnucpro.stages.embedding import EmbeddingSession, EmbeddingStage
from virnucpro.stages.splitting import frames_per_file
from virnucpro.store.disk import Disk

# DNABERT-S in bf16 on an H200: 11,400 sequences per second, of 112 tokens with padding.
TOKENS_PER_SECOND = 11_400 * 112
# Of the host, per batch: 435 batches of 20,161 frames then take the five seconds that were measured.
LAUNCH_SECONDS = 0.011
WIDTH = 768
FLOPS_PER_TOKEN = 1.7e8


class SleepingDevice:
    """A queue of batches, each of which takes its time; an instance is in place of CUDA's event."""

    free_at: ClassVar[float] = 0.0

    def record(self, stream: object) -> None:
        """Stand behind the batches that are queued by now."""
        self.until = self.free_at

    def synchronize(self) -> None:
        """Wait until they are computed."""
        time.sleep(max(0.0, self.until - time.perf_counter()))


@dataclass(frozen=True)
class FedStage(EmbeddingStage):
    """Nucleotide embeddings on a device that sleeps."""

    slower: float = 1.0

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return a task per split file that there is."""
        files = sorted(self.layout.split(self.molecule, 1).parent.glob("*.fa"))
        return [self._task(n) for n in range(1, len(files) + 1)]

    def open(self, device: Device) -> Session:
        """Open the encoder, and put the device in the place of its network."""
        session = super().open(replace(device, kind="cpu"))
        assert isinstance(session, EmbeddingSession)
        encoder = session._encoder
        assert isinstance(encoder, BatchedEncoder)

        def compute(batch: Batch) -> torch.Tensor:
            """Launch one batch, and return zeros before it is computed."""
            if batch.embedded is not None:
                return batch.embedded
            launched = time.perf_counter() + LAUNCH_SECONDS * self.slower
            while time.perf_counter() < launched:
                pass
            encoder.block_calls.compiled += 1
            seconds = batch.inputs[0].numel() / TOKENS_PER_SECOND * self.slower
            SleepingDevice.free_at = max(SleepingDevice.free_at, time.perf_counter()) + seconds
            return torch.zeros(len(batch.indices), WIDTH)

        changed = {"dim": WIDTH, "ahead": AHEAD, "_compute": compute}
        changed |= {"_compute_on_cores": encoder._compute_on_gpu}
        changed |= {"_flops": lambda tokens: FLOPS_PER_TOKEN * tokens}
        for name, value in changed.items():
            setattr(encoder, name, value)
        for name, value in {"Event": SleepingDevice, "current_stream": lambda device: None}.items():
            setattr(torch.cuda, name, value)
        return session


def main() -> int:
    """Print the rate, the share of the time without tokens, and the number of batches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of a DNABERT-S; its tokenizer counts")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--slower", type=float, default=8.0)
    parser.add_argument("--threads", type=int, default=1, help="of the tokenizer")
    options = parser.parse_args()
    frames = random_frames("500", options.frames)["nucleotide"]
    size = frames_per_file(options.frames, proteins=True)
    with tempfile.TemporaryDirectory() as name:
        layout = Layout(Path(name), "in", 500)
        for number, start in enumerate(range(0, len(frames), size), 1):
            records = ((f"f{start + n}", text) for n, text in enumerate(frames[start:][:size]))
            Disk().save(layout.split("nucleotide", number), fasta_bytes(records))
        place = ("nucleotide_embeddings", "", layout, Disk())
        source = locate(str(options.model), "nucleotide")
        more = ("fp32", 1024, 256)  # sequences
        stage = FedStage(*place, "nucleotide", source, *more, slower=options.slower)
        device = Device("cuda", 0, "sleeping", "none", threads=1)
        executor = Executor(ProcessPool([device], options.threads), host_threads=1)
        try:
            results, events = run_stage(stage, executor, layout.root)
        finally:
            executor.close()
    report = next(event for event in events if isinstance(event, WorkerReport))
    seconds = report.busy + report.idle
    waited = sum(result.figures.host_wait_seconds for result in results)
    print(
        f"{len(frames) / seconds * options.slower:,.0f} sequences/s, "
        f"{waited / seconds:.1%} of the time without tokens, "
        f"{report.measured.compiled_calls} batches, {len(results)} files"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
