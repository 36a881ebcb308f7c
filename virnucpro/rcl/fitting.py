"""From tables of proteins to the folder ``run_NNN`` of a finished training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, LockedError, ResumeRefusedError, UsageError
from virnucpro.events import Notice, StepProgress
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import byte_size
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.rcl.features import ProteinFeatures
from virnucpro.rcl.models import MASKED, PADDED, RclModel, write_rcl_model
from virnucpro.rcl.networks import NETWORKS
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.settings import KEYS, RclTrainingSettings
from virnucpro.rcl.splits import cluster_split, original_split, split_of_table, split_text
from virnucpro.rcl.training import METRICS, RclTrainingPlan
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.lock import locked
from virnucpro.training.curves import draw_curve
from virnucpro.training.data.dataset import PARTS, Part
from virnucpro.training.packages import require_packages
from virnucpro.training.progress import TrainingEvent
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.training.savepoint import Savepoint
from virnucpro.version import __version__

RUN = re.compile(r"run_(\d{3,})")
Show = Callable[[Notice | TrainingEvent], None]


def fit_rcl(
    settings: RclTrainingSettings,
    features: ProteinFeatures,
    tables: tuple[Path, Path | None],
    split: str,
    runs: Path,
    devices: Sequence[Device],
    show: Show,
    progress: StepProgress,
    interruption: Interruption,
    *,
    tensorboard: bool = True,
    resume: bool = False,
    force: bool = False,
) -> tuple[Path, Savepoint]:
    """Train a network, or finish the training that an earlier start of the same command began.

    Args:
        settings: of the training.
        features: what turns a protein into numbers.
        tables: of the proteins with an RCL, and of those without; None for none.
        split: ``random``, ``clusters``, or the file of a table with the columns id and part.
        runs: the folder of all trainings.
        devices: one device per process.
        show: is told of notices and epochs.
        progress: is told of the steps before the training.
        interruption: stops the training.
        tensorboard: whether TensorBoard scalars are written.
        resume: continue an earlier training.
        force: start a new training where an unfinished one could be continued.

    Returns:
        The folder of the training, and its state after the last epoch.

    Raises:
        VirNucProError: see ``virnucpro.errors``; every finished epoch is kept.
    """
    disk = Disk()
    clusters = ["Bio", "scipy"] if split == "clusters" else []
    require_packages(["sklearn", *clusters, *(["tensorboard"] if tensorboard else [])])
    proteins, warnings = read_proteins(*tables, settings.max_length)
    for warning in warnings:
        show(Notice("warning", warning))
    identity = _identity(settings, features, tables, split)
    with run_folder(runs, identity, show, disk, resume=resume, force=force) as (folder, point):
        disk.sweep(folder)
        disk.sweep(savepoint_file(folder).parent)
        config = folder / "config.json"
        if not config.exists():
            disk.save(config, _json(_config(settings, tables, devices, identity)))
        kept = folder / "split.tsv"
        if not kept.exists():
            disk.save(kept, _divided(proteins, split, settings, progress))
        parts = split_of_table(proteins, kept)
        plan = _plan(settings, features, proteins, parts, savepoint_file(folder), len(devices))
        show(Notice("info", f"the training is written to {folder}"))
        for line in _announcement(plan, parts, devices):
            show(Notice("info", line))
        if point.begun:
            show(Notice("info", f"going on in epoch {point.epoch + 1}"))
        scalars = folder / "tensorboard" if tensorboard else None
        point = run_training(plan, devices, show, interruption, disk, scalars)
        _write_results(folder, plan, point, disk)
        disk.remove(savepoint_file(folder))  # which proves what is unfinished
    return folder, point


def savepoint_file(folder: Path) -> Path:
    """Return the file with the state of an unfinished training in its folder."""
    return checkpoint_folder(folder) / "training.pt"


@contextmanager
def run_folder(
    runs: Path, identity: Mapping[str, Json], show: Show, disk: Disk, *, resume: bool, force: bool
) -> Iterator[tuple[Path, Savepoint]]:
    """Lock the folder of a training in ``runs``; yield it with the savepoint to go on from.

    It is an unfinished one of the same identity, the latest first, or, also with ``force``, a new
    one.

    Raises:
        ResumeRefusedError: ``resume``, and the latest unfinished training used other data or
            settings.
    """
    root = runs.absolute()
    with ExitStack() as stack:
        with locked(lock_file(root, "runs"), "the trainings", wait=True):
            matches = (RUN.fullmatch(path.name) for path in root.iterdir())
            folders = {int(match[1]): root / match[0] for match in matches if match}
            taken, refusal = None, None
            for number in sorted(folders, reverse=True) if not force else ():
                if taken is None and savepoint_file(folders[number]).exists():
                    try:
                        taken = _begun(folders[number], identity, stack, show, disk)
                    except LockedError:
                        continue  # it is being trained at this moment
                    except InputError as error:
                        show(Notice("warning", f"{error}; that training is left alone"))
                    except ResumeRefusedError as error:
                        refusal = refusal or error
            if taken is None and resume:
                if refusal is not None:
                    raise refusal
                show(Notice("info", f"nothing to resume in {runs}: starting from the beginning"))
            if taken is None:
                last = max(folders, default=0)
                # A start that was killed before it wrote its savepoint left nothing to keep.
                kept = last == 0 or any(folders[last].glob("[!.]*"))
                number = last + (kept or savepoint_file(folders[last]).exists())
                taken = _begun(root / f"run_{number:03d}", identity, stack, show, disk)
        yield taken


def _begun(
    folder: Path, identity: Mapping[str, Json], stack: ExitStack, show: Show, disk: Disk
) -> tuple[Path, Savepoint]:
    """Return a folder and its savepoint, which is made if there is none; ``stack`` has the lock."""
    file, place = savepoint_file(folder), lock_file(folder, "training")
    label = f"the training {folder.name}"
    files = TrainingFiles(label, folder, (), file, place, checkpoint_folder(folder) / "previous")
    with ExitStack() as lock:
        lock.enter_context(locked(place, "this training"))
        point = begin_training(files, identity, None, disk, show)
        assert point is not None
        stack.push(lock.pop_all())
    return folder, point


def _identity(
    settings: RclTrainingSettings,
    features: ProteinFeatures,
    tables: tuple[Path, Path | None],
    split: str,
) -> dict[str, Json]:
    """Return everything that decides the weights."""
    if split not in ("random", "clusters"):
        if not Path(split).is_file():
            raise UsageError(f"--split {split}: expected random, clusters or a table")
        split = sha256_of(Path(split))
    names = ("serpins", "others")
    digests = {name: sha256_of(path) for name, path in zip(names, tables, strict=True) if path}
    facts = {name.replace("_", " "): value for name, value in settings.facts().items()}
    return {**digests, "split": split, "features": features.name, **facts}


def _divided(
    proteins: Sequence[AnnotatedProtein],
    split: str,
    settings: RclTrainingSettings,
    progress: StepProgress,
) -> bytes:
    """Return the table with the part of each protein."""
    share, seed = settings.train_split, settings.seed
    if split == "clusters":
        return split_text(proteins, *cluster_split(proteins, share, seed, progress))
    if split == "random":
        return split_text(proteins, original_split(len(proteins), share, seed), None)
    return split_text(proteins, split_of_table(proteins, Path(split)), None)


def _plan(
    settings: RclTrainingSettings,
    features: ProteinFeatures,
    proteins: Sequence[AnnotatedProtein],
    parts: Sequence[Part],
    savepoint: Path,
    processes: int,
) -> RclTrainingPlan:
    """Return what the training processes need.

    Raises:
        InputError: train or validation has too few proteins, or a protein has no features.
    """
    chosen = {}
    for part in ("train", "validation"):
        chosen[part] = [p for p, own in zip(proteins, parts, strict=True) if own == part]
        count, least = sum(protein.has_rcl for protein in chosen[part]), 2 * processes
        if count < least:
            raise InputError(
                f"part {part} has {count} proteins with an RCL, and needs {least}: use larger "
                f"tables, or another --split"
            )
    train, validation = chosen.values()
    if missing := features.missing([protein.sequence for protein in (*train, *validation)]):
        first = f"the one of {len(missing[0])} residues that begins with {missing[0][:20]}"
        raise InputError(
            f"{len(missing):,} proteins have no features, among them {first}: repeat virnucpro rcl "
            f"embed with these tables"
        )
    return RclTrainingPlan(settings, train, validation, features, savepoint)


def _announcement(
    plan: RclTrainingPlan, parts: Sequence[Part], devices: Sequence[Device]
) -> Iterator[str]:
    """Yield what is said before the first epoch: devices, batch, network, and proteins."""
    settings, count = plan.settings, len(devices)
    if devices[0].kind == "cuda":
        yield f"training on {count} GPU{'s' if count > 1 else ''}:"
        for device in devices:
            yield f"  GPU {device.index}: {device.name}, {byte_size(device.memory)}"
    else:
        yield f"training on the CPU, {count} process{'es' if count > 1 else ''}"
    batch = f"batch size {settings.batch_size}"
    if count > 1:
        share = settings.batch_size / count
        batch = f"effective {batch}: {share:g} proteins for each of {count} processes"
    yield f"{batch}, in {settings.precision}"
    with torch.device("meta"):
        network = NETWORKS[settings.model](plan.features.width, **settings.network)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    yield f"{settings.model} on {settings.encoding}: {parameters:,} parameters"
    yield "proteins: " + ", ".join(f"{part} {parts.count(part):,}" for part in PARTS)


def _write_results(folder: Path, plan: RclTrainingPlan, point: Savepoint, disk: Disk) -> None:
    """Write models, history and curves, under the names of RCL-identifier."""
    settings, history = plan.settings, point.history
    for name, state, epoch in (
        ("best_model.safetensors", point.best, point.best_epoch),
        ("final_model.safetensors", point.last_network(), point.epoch),
    ):
        network = NETWORKS[settings.model](plan.features.width, **settings.network)
        network.load_state_dict(state)
        training = {
            "epoch": epoch,
            "val_f1": history[epoch - 1]["f1"],
            "proteins": len(plan.train),
            "identity": dict(point.identity),
            "made_by": f"virnucpro {__version__}",
        }
        model = RclModel(
            network.eval(),
            settings.model,
            settings.network,
            settings.encoding,
            MASKED if settings.masked else PADDED,
            settings.threshold,
            training,
        )
        write_rcl_model(folder / name, model, disk)
    document = {
        "train_losses": [row["loss"] for row in history],
        "val_losses": [row["validation_loss"] for row in history],
        "val_metrics": {name: [row[name] for row in history] for name in METRICS},
        "learning_rates": [row["rate"] for row in history],
    }
    disk.save(folder / "training_history.json", _json(document))
    losses = {"training": "loss", "validation": "validation_loss"}
    metrics = {name.replace("_", " "): name for name in METRICS}
    for file, names, title in (
        ("loss_curve.png", losses, "loss"),
        ("metrics_curve.png", metrics, "metrics of residues"),
    ):
        disk.save(folder / file, draw_curve(history, point.best_epoch, names, title))


def _config(
    settings: RclTrainingSettings,
    tables: tuple[Path, Path | None],
    devices: Sequence[Device],
    identity: Mapping[str, Json],
) -> dict[str, Json]:
    """Return the settings with the keys of RCL-identifier, and what else decides the weights."""
    serpins, others = (str(path) if path else None for path in tables)
    values = {**vars(settings), "serpins": serpins, "others": others}
    document: dict[str, Json] = {"encoding": settings.encoding, "model": settings.model}
    for name, key in KEYS.items():
        section, _, rest = name.partition(".")
        if section in ("data", "training", "evaluation"):
            document.setdefault(section, {})[rest] = values[key.setting]
    return {
        **document,
        "models": {kind: dict(facts) for kind, facts in settings.networks.items()},
        "hardware": {
            "devices": [device.name for device in devices],
            "mixed_precision": settings.precision != "fp32",
        },
        "virnucpro": {"version": __version__, "identity": dict(identity)},
    }


def _json(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
