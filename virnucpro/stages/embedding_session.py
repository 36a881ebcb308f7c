"""An encoder at work in a worker: split files to feature files with their receipts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock

import torch

from virnucpro.contracts import (
    Device,
    Encoder,
    FailedSequences,
    Json,
    ReportProgress,
    Session,
    SessionFigures,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.encoders.batched import BatchedEncoder, PreparedBatches
from virnucpro.encoders.family import LETTERS_PER_FRAME, EncoderSource
from virnucpro.encoders.registry import family_named
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Molecule
from virnucpro.store.disk import Disk
from virnucpro.store.features import Features, all_finite, encode_features
from virnucpro.store.receipts import write_receipt

CHECKED_FRAMES = 4  # a batch of one sequence would be compiled by itself
READER_THREAD = "file-ahead"


@dataclass(frozen=True)
class FileBatches:
    """A split file that was read, and its batches, where an encoder makes them ahead.

    ``failures`` are the records that are left out.
    """

    records: list[tuple[str, str]]
    failures: tuple[FailedSequences, ...]
    batches: PreparedBatches | None = None


class EmbeddingSession(Session):
    """An encoder on its device, called on split files."""

    def __init__(
        self,
        encoder: Encoder,
        source: EncoderSource,
        molecule: Molecule,
        disk: Disk,
        device: Device,
        facts: Mapping[str, Json],
    ) -> None:
        """Take an encoder that was loaded from ``source`` on ``device``."""
        self._encoder = encoder
        self._source = source
        self._molecule = molecule
        self._disk = disk
        self._device = device
        self._facts = facts
        self._reader = ThreadPoolExecutor(1, READER_THREAD)
        self._prepared: tuple[Task, Future[FileBatches]] | None = None
        self._computing = Lock()
        if device.kind == "cuda":
            torch.cuda.reset_peak_memory_stats()  # leave out what loading and measuring took

    def prepare(self, task: Task) -> None:
        """Read a file and begin to make its batches, in a thread."""
        self._discard_prepared()
        self._prepared = task, self._reader.submit(self._read, task)

    def _read(self, task: Task) -> FileBatches:
        """Read the records that a task or a trial computes, and those that it leaves out."""
        start, stop = task.trial or (0, None)
        excluded = {failed.row: failed for failed in task.excluded}
        records, failures = [], []
        for row, record in enumerate(read_fasta(task.inputs[0], start, stop), start):
            if failed := excluded.get(row):
                failures.append(FailedSequences(failed.error, failed.message, (record[0],)))
            else:
                records.append(record)
        batches = None
        if isinstance(self._encoder, BatchedEncoder):
            batches = self._encoder.prepare([text for _, text in records])
        return FileBatches(records, tuple(failures), batches)

    def _following(self) -> PreparedBatches | None:
        """Wait for the batches of the prepared file, if there is one and it can be read."""
        if self._prepared is None or self._prepared[1].exception():
            return None
        return self._prepared[1].result().batches

    def _discard_prepared(self) -> None:
        """End the thread that makes batches which nobody will compute."""
        if self._prepared is not None:
            future, self._prepared = self._prepared[1], None
            wait([future])
            if not future.exception() and (batches := future.result().batches):
                batches.rest.close()

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Embed a file; what is returned checks the embeddings, and writes them but for a trial.

        Raises:
            ArithmeticError: an embedding has NaN or infinite values.
            OutputError: a file cannot be written.
        """
        started, waited = time.perf_counter(), self._encoder.host_wait_seconds
        # A search may run in the thread that writes, while another task is prepared and computed.
        searching = task.trial is not None or bool(task.excluded)
        if searching:
            file = self._read(task)
        elif self._prepared is not None and self._prepared[0] == task:
            future, self._prepared = self._prepared[1], None
            file = future.result()
        else:
            self._discard_prepared()
            file = self._read(task)
        waited -= time.perf_counter() - started
        sequences = [sequence for _, sequence in file.records]
        with self._computing:
            if isinstance(self._encoder, BatchedEncoder):
                following = (lambda: None) if searching else self._following
                data = self._encoder.encode(sequences, report, file.batches, following)
            else:
                data = self._encoder.encode(sequences, report)
        host_wait = round(self._encoder.host_wait_seconds - waited, 3)

        def write() -> TaskResult:
            # Weights may be read from their file as they are used.
            self._source.refuse_changed()
            if not all_finite(data):
                raise ArithmeticError(f"embedding of {task.name} is not finite")
            if task.trial is not None:
                return TaskResult(task, ())
            features = Features([name for name, _ in file.records], data)
            content = encode_features(features, self._molecule)
            output = self._disk.save(task.outputs[0], content, len(features.ids))
            figures = TaskFigures(failures=file.failures, host_wait_seconds=host_wait)
            seconds = time.perf_counter() - started
            result = TaskResult(task, (output,), figures, seconds)
            write_receipt(self._disk, result)
            return result

        return write

    def check(self) -> None:
        """Embed frames of all letters; ArithmeticError where the embedding is not finite."""
        letters = LETTERS_PER_FRAME[self._molecule]
        alphabet = family_named(self._source.family).alphabet
        frame = (alphabet * letters)[:letters]
        with self._computing:
            data = self._encoder.encode([frame] * CHECKED_FRAMES, lambda sequences, tokens: None)
        if not all_finite(data):
            raise ArithmeticError("its embedding is not finite")

    def facts(self) -> Mapping[str, Json]:
        """Return what was known when it was opened."""
        return self._facts

    def shrink(self) -> bool:
        """Halve the batches; False where the last task already went one sequence at a time."""
        return self._encoder.shrink()

    def figures(self) -> SessionFigures:
        """Return the most bytes of tensors (torch holds more), and the calls of blocks."""
        peak = torch.cuda.max_memory_allocated() if self._device.kind == "cuda" else 0
        if not isinstance(self._encoder, BatchedEncoder):
            return SessionFigures(peak)
        calls = self._encoder.block_calls
        return SessionFigures(peak, calls.compiled, calls.uncompiled, calls.reason)
