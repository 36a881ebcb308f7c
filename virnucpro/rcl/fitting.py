"""From tables of proteins to the folder ``run_NNN`` of a finished training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from msgspec import to_builtins

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, LockedError, ResumeRefusedError, UsageError
from virnucpro.events import Emit, Notice, StepProgress
from virnucpro.layout import CHECKPOINTS, lock_file
from virnucpro.rcl.features import ProteinFeatures, StoredFeatures
from virnucpro.rcl.models import RclModel, write_rcl_model
from virnucpro.rcl.networks import NETWORKS
from virnucpro.rcl.plots import draw_curve, keep_scalars
from virnucpro.rcl.proteins import read_proteins
from virnucpro.rcl.settings import RclTrainingSettings, nested
from virnucpro.rcl.splits import divided, split_of_table, split_text
from virnucpro.rcl.training import METRICS, RclLoop
from virnucpro.store.disk import Disk, telling
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import PARTS
from virnucpro.training.loop import Savepoint, load_savepoint, save_savepoint
from virnucpro.training.run import run_training
from virnucpro.version import __version__

RUN = re.compile(r"run_(\d{3,})")


def fit_rcl(
    settings: RclTrainingSettings,
    features: ProteinFeatures,
    devices: Sequence[Device],
    show: Emit,
    progress: StepProgress,
    *,
    force: bool = False,
) -> tuple[Path, Savepoint]:
    """Train a network, or finish the training that an earlier start of the same command began.

    There is a process per device. ``show`` is told of notices and epochs, ``progress`` of the steps
    before the training. Returned are the folder and the state after the last epoch.
    """
    disk = Disk(Path(settings.output_dir).absolute())
    if settings.batch_size < 2 * len(devices):
        raise UsageError("--batch-size must be two proteins or more for each process or GPU")
    proteins, warnings = read_proteins(*settings.tables, settings.max_length)
    for warning in warnings:
        show(Notice("warning", warning))
    identity = _identity(settings, features)
    with telling(disk, show), ExitStack() as stack:
        folder, point = run_folder(settings, identity, stack, show, disk, force=force)
        savepoint, kept = savepoint_file(folder), folder / "split.tsv"
        disk.sweep(folder)
        disk.sweep(savepoint.parent)
        if not (folder / "config.json").exists():
            about = {"version": __version__, "identity": identity}
            document = {**nested(settings), "virnucpro": about}
            document["hardware"]["devices"] = [device.name for device in devices]
            del document["output"]  # where the folder is, which may move
            disk.save(folder / "config.json", _json(document))
        if not kept.exists():
            disk.save(kept, split_text(proteins, *divided(proteins, settings, progress)))
        parts = split_of_table(proteins, kept)
        used = {}
        for part in ("train", "validation"):
            used[part] = [p for p, own in zip(proteins, parts, strict=True) if own == part]
            with_rcl, least = sum(protein.has_rcl for protein in used[part]), 2 * len(devices)
            if with_rcl < least:
                raise InputError(f"part {part} has {with_rcl} proteins with an RCL, not {least}")
            if isinstance(features, StoredFeatures):
                features.check([protein.sequence for protein in used[part]])
        place = ", ".join(device.name for device in devices)
        show(Notice("info", f"training on {place} in {settings.precision}, written to {folder}"))
        sizes = ", ".join(f"{part} {parts.count(part):,}" for part in PARTS)
        show(Notice("info", f"proteins: {sizes}"))
        report = show
        if settings.tensorboard:
            report = keep_scalars(folder / "tensorboard", point.history, show)
        loop = partial(RclLoop, savepoint, settings, used["train"], used["validation"], features)
        point = run_training(loop, savepoint, devices, report)
        _write_results(folder, settings, features.width, len(used["train"]), point, disk)
        disk.remove(savepoint)  # which proves what is unfinished
    return folder, point


def savepoint_file(folder: Path) -> Path:
    """Return the file of a training from which it goes on; there is none after its end."""
    return folder / CHECKPOINTS / "training.pt"


def run_folder(
    settings: RclTrainingSettings,
    identity: Mapping[str, Json],
    stack: ExitStack,
    show: Emit,
    disk: Disk,
    *,
    force: bool,
) -> tuple[Path, Savepoint]:
    """Lock the folder of a training on ``stack``; return it with the savepoint to go on from.

    It is the latest unfinished one of the same identity, or, also with ``force``, a new one.
    """
    root = Path(settings.output_dir).absolute()
    with locked(lock_file(root, "runs"), "the trainings", wait=True):
        matches = filter(None, (RUN.fullmatch(path.name) for path in root.iterdir()))
        folders = {int(match[1]): root / match[0] for match in matches}
        begun = {n for n, folder in folders.items() if savepoint_file(folder).exists()}
        for number in sorted(begun, reverse=True) if not force else ():
            folder = folders[number]
            with ExitStack() as own:
                try:
                    own.enter_context(locked(lock_file(folder, "training"), "this training"))
                    point = load_savepoint(savepoint_file(folder))
                except LockedError:
                    continue  # it is being trained at this moment
                except (InputError, ResumeRefusedError) as error:
                    show(Notice("warning", f"{error}; that training is left alone"))
                    continue
                if point.identity == identity:
                    stack.push(own.pop_all())
                    return folder, point
        # A start that was killed before it wrote its savepoint left nothing to keep.
        kept = begun | {n for n, folder in folders.items() if any(folder.glob("[!.]*"))}
        folder = root / f"run_{max(kept, default=0) + 1:03d}"
        stack.enter_context(locked(lock_file(folder, "training"), "this training"))
        point = Savepoint(dict(identity))
        save_savepoint(savepoint_file(folder), point, disk)
    return folder, point


def _identity(settings: RclTrainingSettings, features: ProteinFeatures) -> dict[str, Json]:
    """Return everything that decides the weights."""
    split = settings.split
    if split not in ("random", "clusters"):
        if not Path(split).is_file():
            raise UsageError(f"--split {split}: expected random, clusters or a table")
        split = hashed(Path(split)).sha256
    names = ("precision", "threshold", "seed", "max_length", "train_split")
    return {
        "tables": [hashed(path).sha256 for path in settings.tables if path],
        "split": split,
        "features": features.name,
        "encoding": settings.encoding,
        "model": settings.model,
        "network": to_builtins(settings.network),
        **{name: getattr(settings, name) for name in names},
        **nested(settings)["training"],
    }


def _write_results(
    folder: Path,
    settings: RclTrainingSettings,
    width: int,
    proteins: int,
    point: Savepoint,
    disk: Disk,
) -> None:
    """Write models, history and curves, under the names of RCL-identifier.

    ``width`` is that of the features, and ``proteins`` the number of those that were trained on.
    """
    history = point.history
    for name, state, epoch in (
        ("best_model.safetensors", point.best, point.best_epoch),
        ("final_model.safetensors", point.last_network(), point.epoch),
    ):
        network = NETWORKS[settings.model](width, settings.network)
        network.load_state_dict(state)
        training = {
            "epoch": epoch,
            "val_f1": history[epoch - 1]["f1"],
            "proteins": proteins,
            "identity": dict(point.identity),
            "made_by": f"virnucpro {__version__}",
        }
        model = RclModel(network.eval(), settings.encoding, settings.threshold)
        write_rcl_model(folder / name, model, disk, training)
    document = {
        "train_losses": [row["loss"] for row in history],
        "val_losses": [row["validation_loss"] for row in history],
        "val_metrics": {name: [row[name] for row in history] for name in METRICS},
        "learning_rates": [row["rate"] for row in history],
    }
    disk.save(folder / "training_history.json", _json(document))
    losses = {"training": "loss", "validation": "validation_loss"}
    metrics = {name.replace("_", " "): name for name in METRICS}
    curves = {"loss": (losses, "loss"), "metrics": (metrics, "metrics of residues")}
    for name, (names, title) in curves.items():
        picture = draw_curve(history, point.best_epoch, names, title)
        disk.save(folder / f"{name}_curve.png", picture)


def _json(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
