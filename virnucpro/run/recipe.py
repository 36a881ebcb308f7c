"""``predict`` as a recipe: how an input becomes scores and results, stage by stage.

1. **chunking**: its records are cut into chunks;
2. **translation**: the open frames of each chunk are found, and
3. **splitting**: written into split files, which are the units of work, of retry and of resume.
4. **nucleotide embeddings** and 5. **protein embeddings**: workers embed the split files, of all
   runs that share them; each model is loaded once.
6. **merging**: a split file gets its scores as soon as both embeddings are there, in a thread of
   this process beside the workers, and its features are removed.
7. **prediction**: the scores of all split files become one table,
8. **consensus**: which has the highest ones of each chunk, from which
9. **output**: the calls of all records, and their files, follow.

Every stage is carried out once: what its receipt proves is not done again. Of a split file, the
question is asked backwards: where its scores are proved, its features are not asked for.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from virnucpro.contracts import Task, TaskResult, WorkerStage
from virnucpro.errors import OutputError
from virnucpro.events import Event, Show, StageFinished, WorkerReady
from virnucpro.formatting import byte_size, counted
from virnucpro.run.run import Run, timed
from virnucpro.stages.base import HostStage
from virnucpro.stages.embedding import EmbeddingStage, budget_key
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.disk import AGAIN
from virnucpro.store.work import write_state
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.worker import set_torch_threads

HOST_THREAD = "host"
BYTES_PER_NUMBER = 4  # features are float32
BYTES_PER_ID = 32  # on average, with the share of the id in the rest of a feature file


@dataclass(frozen=True)
class Recipe:
    """The stages of a run that embeds, in their order.

    Attributes:
        before: those that write the split files.
        embedding: one for each encoder.
        merging: what makes features, or scores, of both embeddings of a split file.
        joining: what joins the scores of all split files; none where there are no scores.
        results: those that need nothing but the scores and the tables of records and frames.
    """

    before: Sequence[HostStage]
    embedding: Sequence[EmbeddingStage]
    merging: MergingStage
    joining: Sequence[HostStage] = ()
    results: Sequence[HostStage] = ()

    @property
    def stages(self) -> list[HostStage | WorkerStage]:
        """All stages."""
        return [*self.before, *self.embedding, self.merging, *self.joining, *self.results]

    @property
    def bytes_per_frame(self) -> int:
        """What the features of a frame take on the disk: twice where the merged ones stay, too.

        Where features go as soon as they are scored, those of the last encoder do not count.
        """
        dims = [stage.source.dim for stage in self.embedding]
        sizes = [dim * BYTES_PER_NUMBER + BYTES_PER_ID for dim in dims]
        return 2 * sum(sizes) if self.merging.keep else sum(sizes[:-1])


@dataclass(eq=False, kw_only=True)
class EmbeddingRun(Run):
    """A run whose split files are embedded and merged.

    Attributes:
        recipe: its stages.
    """

    recipe: Recipe

    @property
    def bytes_of_features(self) -> int:
        """What the features take on the disk, where all of them have to be made."""
        if self.is_tidied:
            return 0
        files = split_files(self.ledger, self.layout, "nucleotide")
        return self.recipe.bytes_per_frame * sum(file.rows for file in files)


def begin(run: EmbeddingRun) -> None:
    """Carry out what comes before the embedding, unless only the results of the run are left."""
    run.begin()
    for stage in run.recipe.before if not run.is_tidied else ():
        run.once(stage)


def embed(runs: Sequence[EmbeddingRun], workers: Workers, show: Show) -> None:
    """Embed and merge the split files of runs with the same models, which share the workers."""
    runs = [run for run in runs if not run.is_tidied]
    if not runs:
        return
    plans, missing = zip(*map(unscored_files, runs, range(len(runs))), strict=True)
    with closing(MergingThread()) as merging:
        for run, of_run in zip(runs, missing, strict=True):
            for number, count in of_run.items():
                if not count:
                    merging.submit(run, number)
        for position, stage in enumerate(runs[0].recipe.embedding):
            todo = [task for plan in plans for task in plan[position]]
            sequences = sum(run.progress[stage.name].sequences or 0 for run in runs)
            opened = replace(stage, sequences=sequences, kept=smallest_budgets(runs))
            for task in on_workers(runs, opened, todo, workers, show):
                missing[task.run_index][task.number] -= 1
                if not missing[task.run_index][task.number]:
                    merging.submit(runs[task.run_index], task.number)
                merging.accept()
        merging.accept(wait=True)
    for run in runs:
        merged = run.recipe.merging
        run.show(run.started(merged, merging.merged[run]))
        run.show(StageFinished(merged.name, run.number(merged), run.seconds[merged.name]))


def conclude(run: EmbeddingRun) -> None:
    """Carry out the stages behind the merging: the results."""
    with run.disk.together():
        joining = run.recipe.joining if not run.is_tidied else ()
        for stage in (*joining, *run.recipe.results):
            run.once(stage)


# --- the embedding


def unscored_files(run: EmbeddingRun, index: int) -> tuple[list[list[Task]], dict[int, int]]:
    """Return for each encoder the tasks of the split files that it has to embed.

    Beside it, how many embeddings each file without scores lacks, by its number. A file whose
    scores are proved needs no features, unless they are to be kept. ``index`` is that of the run
    among those that share the workers.
    """
    recipe, ledger = run.recipe, run.ledger
    tasks = [stage.tasks(ledger) for stage in recipe.embedding]
    for stage, own in zip(recipe.embedding, tasks, strict=True):
        run.expect(stage, own)
    run.progress[recipe.merging.name].files = len(tasks[0])
    found: list[list[Task]] = [[] for _ in tasks]
    missing: dict[int, int] = {}
    frames = 0
    for number, of_file in enumerate(zip(*tasks, strict=True), 1):
        # Planned before features are looked at, so without failures: a file that had some is not
        # proved, and they are tried again.
        merged = recipe.merging.task(ledger, number)
        is_merged, lacking = ledger.is_proved(merged), 0
        needs_features = recipe.merging.keep or not is_merged
        frames += of_file[0].count * needs_features
        for todo, task in zip(found, of_file, strict=True):
            if not needs_features:
                ledger.recall(task)
            elif reason := ledger.reason(task):
                todo.append(replace(task, run_index=index, reason=reason))
                lacking += 1
                continue
            run.note(task)
        if is_merged and not lacking:
            run.note(merged)
        else:
            missing[number] = lacking
    if any(found):
        require_space(run, frames)
    return found, missing


def on_workers(
    runs: Sequence[Run], stage: WorkerStage, tasks: Sequence[Task], workers: Workers, show: Show
) -> Iterator[Task]:
    """Have workers carry out tasks of a stage; each says to which of the ``runs`` it belongs.

    Yields them as they are finished.
    """
    started, weights = time.perf_counter(), Counter[int]()
    for task in tasks:
        weights[task.run_index] += task.weight
    show(runs[0].started(stage, tasks))
    for result in workers.carry_out(stage, tasks, partial(keep_budget, runs, show)):
        run = runs[result.task.run_index]
        run.accept(result, durable=stage.durable)
        run.save_progress()
        yield result.task
    elapsed = time.perf_counter() - started
    for index, weight in weights.items():
        runs[index].seconds[stage.name] += elapsed * weight / weights.total()
    for run in runs:
        run.worker_rows += workers.rows
    show(StageFinished(stage.name, runs[0].number(stage), elapsed))


def smallest_budgets(runs: Sequence[Run]) -> dict[str, int]:
    """Return the smallest batch budget that the runs know under each name: it fits all of them."""
    budgets: dict[str, int] = {}
    for run in runs:
        for name, budget in run.state.budgets.items():
            budgets[name] = min(budget, budgets.get(name, budget))
    return budgets


def keep_budget(runs: Sequence[Run], show: Show, event: Event) -> None:
    """Show an event. A batch budget that a worker has measured is kept in the state of each run.

    The smallest one that a device of a kind has found counts: it fits on each of them.
    """
    if isinstance(event, WorkerReady) and event.facts.get("found") == "measured":
        key, budget = budget_key(event.stage, event.device), int(event.facts["budget"])
        for run in runs:
            if budget < run.state.budgets.get(key, budget + 1):
                run.state = replace(run.state, budgets={**run.state.budgets, key: budget})
                write_state(run.layout, run.disk, run.state)
    show(event)


class MergingThread:
    """Merges split files in a thread of this process, beside the workers, and accepts the results.

    Features of a file without failures are removed, unless the run keeps them.

    Attributes:
        merged: what was accepted, by run.
    """

    def __init__(self) -> None:
        self.merged: defaultdict[EmbeddingRun, list[Task]] = defaultdict(list)
        self._thread = ThreadPoolExecutor(1, HOST_THREAD, set_torch_threads, (1,))
        self._begun: deque[tuple[EmbeddingRun, Future[TaskResult]]] = deque()

    def close(self) -> None:
        """Wait for the file that is being merged, and forget all others."""
        self._thread.shutdown(cancel_futures=True)

    def submit(self, run: EmbeddingRun, number: int) -> None:
        """Have a split file merged, which has all its features, unless it is proved to be."""
        stage = run.recipe.merging
        task = stage.task(run.ledger, number)
        if run.ledger.is_proved(task):
            run.note(task)
        else:
            future = self._thread.submit(timed, stage, task, lambda *_: None)
            self._begun.append((run, future))

    def accept(self, *, wait: bool = False) -> None:
        """Accept what is merged; ``wait`` for all."""
        while self._begun and (wait or self._begun[0][1].done()):
            run, future = self._begun.popleft()
            result = future.result()
            run.accept(result, durable=run.recipe.merging.durable)
            run.seconds[result.task.stage] += result.seconds
            self.merged[run].append(result.task)
            run.save_progress()
            if not run.recipe.merging.keep and not result.task.params["failed"]:
                for path in result.task.reads:
                    run.disk.remove(path)


def require_space(run: EmbeddingRun, frames: int) -> None:
    """Raise OutputError where the disk lacks the bytes that the features of so many frames need."""
    layout = run.layout
    folders = *layout.folders.values(), layout.merged_folder
    present = sum(path.stat().st_size for folder in folders for path in folder.rglob("*.pt"))
    free, size = shutil.disk_usage(layout.root).free, run.recipe.bytes_per_frame
    needed = frames * size - present
    if size and needed > free:
        raise OutputError(
            f"{layout.root} has {byte_size(free)} free, but the features of "
            f"{counted(frames, 'frame')} need {byte_size(needed)} more: free some space or move "
            f"the folder, then {AGAIN}"
        )
