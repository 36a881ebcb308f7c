"""Several inputs in one command: a run for each, which share the workers.

A sample that cannot be used stops no other.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from virnucpro.errors import DeviceError, ModelError, ResumeRefusedError, VirNucProError
from virnucpro.events import Event, Notice, Show
from virnucpro.layout import SamplesFolder
from virnucpro.run.predict import run_predictions
from virnucpro.run.request import PredictionRequest, check_input
from virnucpro.run.sample_list import Sample, overview_problem, refuse_other_file, write_table
from virnucpro.run.workers import opened_workers
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.work import refuse_existing
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import Interruption

# They concern all samples. Others, but those of a full disk, concern one input or folder.
OF_ALL = (ModelError, DeviceError)


def predict_samples(
    request: PredictionRequest,
    samples: Sequence[Sample],
    root: Path,
    show: Show,
    interruption: Interruption | None = None,
) -> str:
    """Carry out the runs of all samples, or finish what an earlier call left.

    The ``request`` is that of each sample, but for its files and its output directory. What became
    of a sample is noted in it. Their table is written also when the command is interrupted. Returns
    why there is no overview, if there is none.
    """
    folder = SamplesFolder(root)
    disk = Disk()
    if not (request.force or folder.lock.exists()):
        refuse_existing([folder.summary_table, folder.overview])
    with locked(folder.lock, "these samples"):
        write_table(folder, disk, samples)
        machine = request.settings.machine
        with opened_workers(machine, folder.probe, show, interruption, disk) as workers:
            try:
                _carry_out(request, samples, folder, workers, show)
            finally:
                write_table(folder, disk, samples)
        errors = [sample.error for sample in samples]
        if errors[0] and all(isinstance(error, ResumeRefusedError) for error in errors):
            raise errors[0]
        return overview_problem(folder, disk)


def _carry_out(
    request: PredictionRequest,
    samples: Sequence[Sample],
    folder: SamplesFolder,
    workers: Workers,
    show: Show,
) -> None:
    """Carry out the requests of all samples that can be used."""
    usable: list[Sample] = []
    requests: list[PredictionRequest] = []
    for sample in samples:
        root = folder.sample(sample.name)
        own = replace(request, source=sample.file, mates=sample.mates, output_dir=root)
        with _failing(sample, show):
            check_input(own)
            refuse_other_file(own.layout)
            usable.append(sample)
            requests.append(own)
    if not usable:
        return
    outcomes = run_predictions(
        requests, workers, show, lambda index: _failing(usable[index], show), Disk()
    )
    for index, outcome in outcomes.items():
        usable[index].outcome = outcome
        usable[index].state = "partial" if outcome.failed_records else "finished"


@contextmanager
def _failing(sample: Sample, show: Show) -> Iterator[Show]:
    """Note in a sample, and say, what in the block is wrong with this sample alone.

    Yields what shows its events: a warning names the sample.
    """

    def named(event: Event) -> None:
        if isinstance(event, Notice) and event.level == "warning":
            event = replace(event, message=f"sample {sample.name}: {event.message}")
        show(event)

    try:
        yield named
    except VirNucProError as error:
        is_full = getattr(error.__cause__, "errno", 0) in (errno.ENOSPC, errno.EDQUOT)
        if is_full or isinstance(error, OF_ALL):
            raise
        sample.state, sample.error = "failed", error
        sample.message = " ".join(str(error).split())
        show(Notice("warning", f"sample {sample.name} failed: {error}"))
