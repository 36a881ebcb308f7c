"""The folders ``run_NNN`` of trainings: which one a start goes on with, or a new one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.errors import InputError, LockedError, ResumeRefusedError
from virnucpro.events import Notice
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint

_RUN = re.compile(r"run_(\d{3,})")
Show = Callable[[Notice], None]


class RclRunFiles:
    """The files of a training in its folder ``run_NNN``.

    Attributes:
        config: its settings.
        split: which protein was in which part.
        best: the network of the best epoch.
        final: the network of the last epoch.
        history: losses and metrics of every epoch.
        tensorboard: the folder of the TensorBoard scalars.
        savepoint: the state of an unfinished training.
        lock: the file that the training process locks.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.json"
        self.split = root / "split.tsv"
        self.best = root / "best_model.safetensors"
        self.final = root / "final_model.safetensors"
        self.history = root / "training_history.json"
        self.tensorboard = root / "tensorboard"
        self.savepoint = checkpoint_folder(root) / "training.pt"
        self.lock = lock_file(root, "training")

    def scalars(self, epoch: int) -> Path:
        """Return the file of the scalars of an epoch; TensorBoard reads them in this order."""
        return self.tensorboard / f"events.out.tfevents.{epoch:010d}"


@contextmanager
def run_folder(
    runs: Path, identity: dict[str, Json], show: Show, disk: Disk, *, resume: bool, force: bool
) -> Iterator[RclRunFiles]:
    """Lock the folder of a training: an unfinished one of the same identity, or a new one.

    ``runs`` is the folder of all trainings. With ``force``, the folder is a new one.

    Raises:
        ResumeRefusedError: ``resume``, and the latest unfinished training used other data or
            settings.
    """
    root = runs.absolute()
    with ExitStack() as stack:
        with locked(lock_file(root, "runs"), "the trainings", wait=True):
            folders = {
                int(match[1]): path
                for path in root.iterdir()
                if (match := _RUN.fullmatch(path.name))
            }
            files = None
            if not force:
                latest_first = [folders[number] for number in sorted(folders, reverse=True)]
                files, refusal = _unfinished_run(identity, latest_first, stack, show, disk)
                if files is None and resume:
                    if refusal is not None:
                        raise refusal
                    text = f"nothing to resume in {runs}: starting from the beginning"
                    show(Notice("info", text))
            if files is None:
                last = max(folders, default=0)
                # A start that was killed before it wrote its savepoint left nothing to keep.
                number = last if last and _is_empty(folders[last]) else last + 1
                files = RclRunFiles(root / f"run_{number:03d}")
                disk.make_folder(files.root)
                stack.enter_context(locked(files.lock, "this training"))
                save_savepoint(files.savepoint, Savepoint(identity), disk)
        yield files


def _is_empty(folder: Path) -> bool:
    """Return whether the folder of a training has neither a savepoint nor any result."""
    files = RclRunFiles(folder)
    if not folder.is_dir() or files.savepoint.exists():
        return False
    return all(path == checkpoint_folder(folder) for path in folder.iterdir())


def _unfinished_run(
    identity: dict[str, Json], folders: Sequence[Path], stack: ExitStack, show: Show, disk: Disk
) -> tuple[RclRunFiles | None, ResumeRefusedError | None]:
    """Return the first unfinished training of the same identity, whose lock ``stack`` holds.

    The other value is why the first one of other data or settings is not continued.
    """
    wanted = WorkIdentity("this training", identity)
    refusal: ResumeRefusedError | None = None
    for files in map(RclRunFiles, folders):
        if not files.savepoint.exists():
            continue
        lock = ExitStack()
        try:
            lock.enter_context(locked(files.lock, "this training"))
            point = load_savepoint(files.savepoint)
            assert point is not None
            label = f"the training {files.root.name}"
            earlier = WorkIdentity(label, point.identity)
            work = ExistingWork(files.root, files.root, [files.savepoint], identity=earlier)
            admission = check_work(wanted, work, disk, resume=True)
        except LockedError:
            continue  # it is being trained at this moment
        except InputError as error:
            show(Notice("warning", f"{error}; that training is left alone"))
        except ResumeRefusedError as error:
            refusal = refusal or error
        else:
            stack.push(lock)
            show(Notice("info", admission.notice or ""))
            return files, None
        lock.close()
    return None, refusal
