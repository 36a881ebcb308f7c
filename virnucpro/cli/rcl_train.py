"""``virnucpro rcl embed`` and ``train``: features of proteins, and networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import (
    esm_model_option,
    max_length_option,
    others_option,
    serpins_option,
)
from virnucpro.cli.training_options import training_device_options, training_devices
from virnucpro.errors import EXIT_OK, UsageError
from virnucpro.formatting import counted

if TYPE_CHECKING:
    from virnucpro.configuration import Configuration
    from virnucpro.rcl.features import ProteinFeatures
    from virnucpro.rcl.settings import RclTrainingSettings
    from virnucpro.settings import DisplaySettings

ENCODINGS = ("onehot", "blosum", "esm2", "esm2_650m")
ESM_MODEL = "esm2_t33_650M_UR50D"  # that of the encoding esm2_650m
EMBED_EPILOG = """\b
Examples:
  virnucpro rcl embed --serpins serpins.csv --others others.csv -o features
  virnucpro rcl train --encoding esm2_650m --precomputed features --serpins serpins.csv
      --others others.csv

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EMBED_EPILOG, short_help="Compute features of proteins by an ESM-2 model.")
@shared.option(
    "--encoding",
    ("esm2", "esm2_650m"),
    "With esm2, name the model with --esm-model.",
    default="esm2_650m",
)
@esm_model_option
@serpins_option
@others_option
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the features.", default=Path("rcl_features")
)
@max_length_option
@shared.option(
    "--checkpoint-every",
    shared.COUNT,
    "Proteins per file; a finished file is not computed again.",
    default=64,
)
@shared.setting_option("--esm-batch-size", "protein_batch")
@shared.device_options
@shared.setting_option("--cpu-workers", "cpu_workers")
@shared.precision_option
@shared.threads_option
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def embed(**options: Any) -> int:
    """Compute the features of each residue of the proteins of tables, each protein once.

    The work is done by workers as in predict: the same command again computes only what is missing.
    """
    settings = shared.configuration(options)
    if options["encoding"] == "esm2" and not options["esm_model"]:
        raise UsageError("--encoding esm2 needs the model: --esm-model")
    computed = embedded(
        settings.display,
        options["serpins"],
        options["others"],
        options["max_length"],
        model=options["esm_model"] or ESM_MODEL,
        folder=options["output_dir"],
        machine=settings.machine,
        precision=settings.analysis.precision,
        per_file=options["checkpoint_every"],
        force=options["force"],
    )
    if not settings.display.quiet:
        if not computed:
            click.echo("Nothing to compute: all features are there and intact.")
        click.echo(f"Features: {options['output_dir']}")
        click.echo(
            f"Next: virnucpro rcl train --encoding {options['encoding']} --precomputed "
            f"{options['output_dir']} --serpins {options['serpins']}"
        )
    return EXIT_OK


def embedded(
    display: DisplaySettings,
    serpins: Path,
    others: Path | None,
    max_length: int,
    *,
    folder: Path,
    **options: Any,
) -> int:
    """Compute features on a screen of their own; return the files that this start computed."""
    from virnucpro.rcl.embedding import embed_residues, feature_layout
    from virnucpro.rcl.proteins import read_proteins
    from virnucpro.ui.dashboard import RunScreen

    proteins, warnings = read_proteins(serpins, others, max_length)
    screen = RunScreen(display, feature_layout(folder))
    with shared.shown_on(screen, warnings) as interruption:
        return embed_residues(
            proteins, folder=folder, emit=screen.show, interruption=interruption, **options
        )


TRAIN_EPILOG = """\b
Examples:
  virnucpro rcl train --encoding blosum --model unet --serpins serpins.csv --others others.csv
  virnucpro rcl train --encoding onehot --model cnn --config config.yaml --epochs 20
  virnucpro rcl train --encoding blosum --model unet --config config.yaml --gpu-ids 0,1
      --mixed-precision

The configuration file is the config.yaml of RCL-identifier. Options win over it.

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=TRAIN_EPILOG, short_help="Train a network on serpins and other proteins.")
@shared.option("--encoding", ENCODINGS, "What a residue becomes.", default="onehot")
@shared.option("--model", ("cnn", "unet", "lstm"), "Kind of network.", default="unet")
@shared.option("--precomputed", shared.FILE, "Folder of rcl embed, for ESM-2 encodings.")
@esm_model_option
@shared.option("--serpins", shared.FILE, "Table of proteins with an RCL (CSV).")
@others_option
@shared.option(
    "--output-dir",
    shared.FOLDER,
    "Folder of all trainings; each has a folder run_NNN in it.  [default: runs]",
)
@shared.option(
    "--recipe",
    ("modern", "original"),
    "Mask the padding and split by clusters, or train as RCL-identifier does.",
    default="modern",
)
@shared.option(
    "--split HOW",
    str,
    "Division into parts: random, clusters, or a table with the columns id and part."
    "  [default: clusters; original: random]",
)
@shared.option("--epochs", shared.COUNT, "Largest number of epochs.")
@shared.option(
    "--batch-size N",
    click.IntRange(2, 1 << 20),
    "Proteins per step, over all processes.  [default: 32]",
)
@shared.option(
    "--lr X learning_rate",
    click.FloatRange(0, 1000, min_open=True),
    "Highest learning rate.  [default: 0.001]",
)
@shared.option("--patience", shared.COUNT, "Stop after N epochs without a better validation F1.")
@shared.option("--seed", shared.COUNT_OR_ZERO, "Seed of all random choices.")
@shared.option(
    "--mixed-precision/--full-precision",
    bool,
    "Compute in bf16 where there is bf16, else in fp16 with a gradient scaler, or in fp32.",
    default=None,
)
@shared.option("--device D", str, "Where to train: cpu, cuda or auto.  [default: auto]")
@training_device_options
@shared.option(
    "--tensorboard/--no-tensorboard",
    bool,
    "Write TensorBoard scalars.  [default: on]",
    default=None,
)
@shared.resume_option
@shared.option(
    "-f --force",
    bool,
    "Start a new training, also where an unfinished one of the same settings is there.",
    callback=shared.resume_or_force,
)
@shared.no_progress_option
@shared.global_options
def train(**options: Any) -> int:
    """Train a network that finds the reactive center loop (RCL) of serpins.

    The same command continues an unfinished training of the same data and settings. It gives the
    same files to the byte on the CPU.
    """
    names = ("threads", "no_progress")
    settings = shared.configuration({name: options[name] for name in names}, read_file=False)

    import msgspec

    from virnucpro.precision import emulation_warnings, supports
    from virnucpro.rcl.fitting import fit_rcl
    from virnucpro.rcl.models import ENCODING_OF_WIDTH
    from virnucpro.rcl.settings import training_settings
    from virnucpro.ui.step_screen import TrainingScreen

    tables = {name: options[name] and str(options[name]) for name in ("serpins", "others")}
    runs, fit = options["output_dir"], ("epochs", "batch_size", "learning_rate", "patience")
    given = {
        **{name: options[name] for name in ("encoding", "model", "split", "esm_model")},
        "data": {
            "random_seed": options["seed"],
            "train_serpin": tables["serpins"],
            "train_non_serpin": tables["others"],
        },
        "training": {name: options[name] for name in fit},
        "hardware": {"mixed_precision": options["mixed_precision"]},
        "logging": {"use_tensorboard": options["tensorboard"]},
        "output": {"runs_dir": runs and str(runs)},
    }
    path = shared.configuration_file()
    training, warnings = training_settings(options["recipe"], path, given)
    chosen = {name: options[name] for name in ("device", "multi_gpu", "gpu_ids", "processes")}
    hardware = training.hardware
    if not any(chosen.values()):  # one of these options replaces all keys on devices
        chosen["multi_gpu"] = hardware.use_multi_gpu
        if hardware.use_multi_gpu:
            chosen["gpu_ids"] = ",".join(map(str, hardware.gpu_ids))
        if hardware.use_multi_gpu or hardware.device != "cuda":  # which is taken if it is there
            chosen["device"] = hardware.device
    devices = training_devices(chosen, settings.machine.threads, chosen["device"])
    if hardware.mixed_precision:
        every_has_bf16 = all(supports(device, "bf16") for device in devices)
        training = msgspec.structs.replace(training, precision="bf16" if every_has_bf16 else "fp16")
    warnings += emulation_warnings(training.precision, devices)
    features = _features(training, options["precomputed"], chosen, settings)
    if features.width not in ENCODING_OF_WIDTH:
        raise UsageError(f"no encoding has {features.width} numbers per residue")
    training = msgspec.structs.replace(training, encoding=ENCODING_OF_WIDTH[features.width])
    screen = TrainingScreen(settings.display)
    with shared.shown_on(screen, warnings) as interruption:
        folder, point = fit_rcl(
            training,
            features,
            devices,
            screen.show,
            screen,
            interruption,
            resume=options["resume"],
            force=options["force"],
        )
    if not settings.display.quiet:
        metrics = point.history[point.best_epoch - 1]
        click.echo(
            f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}: "
            f"F1 {metrics['f1']:.4f}, MCC {metrics['mcc']:.4f}, AUROC {metrics['auc']:.4f} of the "
            f"residues of the validation part."
        )
        click.echo(f"Model: {folder / 'best_model.safetensors'}")
        click.echo(f"Next: virnucpro rcl predict proteins.fa --model {folder} -o results")
    return EXIT_OK


def _features(
    training: RclTrainingSettings,
    stored: Path | None,
    chosen: Mapping[str, Any],
    settings: Configuration,
) -> ProteinFeatures:
    """Return the features that ``--precomputed`` names; without, compute them beside the runs."""
    from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
    from virnucpro.rcl.features import open_features

    if training.encoding in RESIDUE_ENCODINGS:
        if stored:
            raise UsageError(f"--precomputed is for ESM-2 encodings, not for {training.encoding}")
        return RESIDUE_ENCODINGS[training.encoding]
    if stored:
        return open_features(stored)
    model = training.esm_model or ESM_MODEL
    folder = Path(training.output.runs_dir) / f"features_{Path(model).name}"
    device = "cpu" if chosen["processes"] else chosen["device"] or "auto"
    machine = replace(settings.machine, device=device, gpus=chosen["gpu_ids"] or None)
    tables = (*training.tables, training.data.max_length)
    embedded(settings.display, *tables, model=model, folder=folder, machine=machine)
    return open_features(folder)
