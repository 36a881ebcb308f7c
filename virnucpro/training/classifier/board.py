"""TensorBoard scalars, where they are asked for."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from virnucpro.training.classifier.progress import EpochEnded


class Board:
    """Writes one point an epoch into ``folder``; nothing where that is None.

    ``first`` is the epoch that comes next: what an earlier start wrote from there on is dropped.
    """

    def __init__(self, folder: Path | None, first: int) -> None:
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(log_dir=str(folder), purge_step=first)

    def add(self, event: EpochEnded) -> None:
        """The figures of an epoch."""
        if self._writer is None:
            return
        for name, value in (
            ("loss/train", event.loss),
            ("loss/validation", event.validation_loss),
            ("auroc/validation", event.auroc),
            ("learning_rate", event.rate),
        ):
            self._writer.add_scalar(name, value, event.epoch)
        self._writer.flush()

    def __enter__(self) -> Board:
        """The board itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
