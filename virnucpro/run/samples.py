"""Several inputs in one command: a run for each, and one set of workers for all of them.

The runs go through their stages in groups. The stages of the host are done one run after the
other; an embedding stage is one piece of work for the whole group, so that its model is loaded once
for the group. A sample that cannot be used stops no other.
"""

from __future__ import annotations

import errno
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from virnucpro.errors import DeviceError, ModelError, ResumeRefusedError, VirNucProError
from virnucpro.events import Event, Notice, Show
from virnucpro.layout import SamplesFolder
from virnucpro.run.predict import finish, opened_run
from virnucpro.run.prepare import find_models
from virnucpro.run.recipe import EmbeddingRun, begin, conclude, embed
from virnucpro.run.request import PredictionRequest, check_input
from virnucpro.run.sample_list import Sample, overview_problem, refuse_other_file, write_table
from virnucpro.run.workers import opened_workers
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.work import refuse_existing
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import Interruption

# Of the free space that the features of a group may take. The features of a group exist at the
# same time; those of one sample do so in any case.
GROUP_SHARE = 0.25
# Of a group: each has an open lock file and threads of its own, and many systems allow a process
# only 256 or 1,024 open files.
MOST_SAMPLES = 100
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
    """Take all samples through their stages, in groups."""
    usable: list[tuple[Sample, PredictionRequest]] = []
    for sample in samples:
        place = folder.sample(sample.name)
        own = replace(request, source=sample.file, mates=sample.mates, output_dir=place)
        with _failing(sample, show):
            check_input(own)
            refuse_other_file(own.layout)
            usable.append((sample, own))
    if not usable:
        return
    requests = [own for _, own in usable]
    models = find_models(requests, workers, show)
    waiting = deque(usable)
    while waiting:
        with ExitStack() as locks:
            group: list[tuple[Sample, PredictionRequest, EmbeddingRun]] = []
            room = GROUP_SHARE * shutil.disk_usage(folder.root).free
            while waiting and len(group) < MOST_SAMPLES and room >= 0:
                sample, own = waiting.popleft()
                number = len(usable) - len(waiting)
                show(Notice("info", f"sample {number} of {len(usable)}: {sample.name}"))
                named = partial(_show_named, sample, show)
                with _failing(sample, show), ExitStack() as lock:
                    disk = Disk()
                    run = lock.enter_context(opened_run(own, models, disk, named))
                    run.threads = workers.host_threads
                    begin(run)
                    group.append((sample, own, run))
                    room -= run.bytes_of_features
                    locks.push(lock.pop_all())
            embed([run for _, _, run in group], workers, show)
            for sample, own, run in group:
                with _failing(sample, show):
                    conclude(run)
                    sample.outcome = finish(own, models, run, workers.pool.devices)
                    sample.state = "partial" if sample.outcome.failed_records else "finished"


@contextmanager
def _failing(sample: Sample, show: Show) -> Iterator[None]:
    """Note in a sample, and say, what in the block is wrong with this sample alone."""
    try:
        yield
    except VirNucProError as error:
        is_full = getattr(error.__cause__, "errno", 0) in (errno.ENOSPC, errno.EDQUOT)
        if is_full or isinstance(error, OF_ALL):
            raise
        sample.state, sample.error = "failed", error
        sample.message = " ".join(str(error).split())
        show(Notice("warning", f"sample {sample.name} failed: {error}"))


def _show_named(sample: Sample, show: Show, event: Event) -> None:
    """Pass an event on; a warning names the sample."""
    if isinstance(event, Notice) and event.level == "warning":
        event = replace(event, message=f"sample {sample.name}: {event.message}")
    show(event)
