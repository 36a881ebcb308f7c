"""``virnucpro rcl train``: trains a network of the RCL predictor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import esm_model_option, others_option
from virnucpro.contracts import Device
from virnucpro.errors import EXIT_OK, UsageError
from virnucpro.formatting import counted
from virnucpro.settings import MachineSettings

if TYPE_CHECKING:
    from virnucpro.rcl.configuration import RclConfiguration
    from virnucpro.rcl.settings import RclTrainingSettings

ENCODINGS = ("onehot", "blosum", "esm2", "esm2_650m")
EPILOG = """\b
Examples:
  virnucpro rcl train --encoding blosum --model unet --serpins serpins.csv --others others.csv
  virnucpro rcl train --encoding onehot --model cnn --config config.yaml --epochs 20
  virnucpro rcl train --encoding blosum --model unet --config config.yaml --gpu-ids 0,1
      --mixed-precision

The configuration file is the config.yaml of RCL-identifier. Options win over it.

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Train a network on serpins and other proteins.")
@click.option(
    "--encoding", type=click.Choice(ENCODINGS), default="onehot", help="What a residue becomes."
)
@click.option(
    "--model", type=click.Choice(["cnn", "unet", "lstm"]), default="unet", help="Kind of network."
)
@click.option(
    "--precomputed",
    type=shared.FILE,
    help="Folder of rcl embed, or an .npz file of RCL-identifier, for ESM-2 encodings.",
)
@esm_model_option
@click.option("--serpins", type=shared.FILE, help="Table of proteins with an RCL (CSV).")
@others_option
@click.option(
    "--output-dir",
    type=shared.FOLDER,
    help="Folder of all trainings; each has a folder run_NNN in it.  [default: runs]",
)
@click.option(
    "--recipe",
    type=click.Choice(["modern", "original"]),
    default="modern",
    help="Mask the padding and split by clusters, or train as RCL-identifier does.",
)
@click.option(
    "--split",
    metavar="HOW",
    help="Division into parts: random, clusters, or a table with the columns id and part."
    "  [default: clusters; original: random]",
)
@click.option("--epochs", type=shared.COUNT, help="Largest number of epochs.")
@click.option(
    "--batch-size",
    type=click.IntRange(2, 1 << 20),
    metavar="N",
    help="Proteins per step, over all processes.  [default: 32]",
)
@click.option(
    "--lr",
    "learning_rate",
    type=click.FloatRange(0, 1000, min_open=True),
    metavar="X",
    help="Highest learning rate.  [default: 0.001]",
)
@click.option(
    "--patience", type=shared.COUNT, help="Stop after N epochs without a better validation F1."
)
@click.option("--seed", type=shared.COUNT_OR_ZERO, help="Seed of all random choices.")
@click.option(
    "--mixed-precision/--full-precision",
    default=None,
    help="Compute in bf16 where there is bf16, else in fp16 with a gradient scaler, or in fp32.",
)
@click.option("--device", metavar="D", help="Where to train: cpu, cuda or auto.  [default: auto]")
@click.option("--multi-gpu", is_flag=True, default=None, help="Train on every visible GPU.")
@click.option("--gpu-ids", metavar="LIST", help="Train on these GPUs, such as 0,1, or their UUIDs.")
@click.option("--processes", type=shared.COUNT, help="Train on the CPU, in N processes.")
@shared.threads_option
@click.option(
    "--tensorboard/--no-tensorboard", default=None, help="Write TensorBoard scalars.  [default: on]"
)
@shared.resume_option
@click.option(
    "-f",
    "--force",
    is_flag=True,
    callback=shared.resume_or_force,
    help="Start a new training, also where an unfinished one of the same settings is there.",
)
@shared.no_progress_option
@shared.global_options
def train(**options: Any) -> int:
    """Train a network that finds the reactive center loop (RCL) of serpins.

    The same command continues an unfinished training of the same data and settings. It gives the
    same files to the byte on the CPU.
    """
    names = ("threads", "no_progress")
    path = shared.configuration_file()
    settings = shared.configuration({name: options[name] for name in names}, read_file=False)

    from virnucpro.precision import emulation_warnings
    from virnucpro.rcl.configuration import RclConfiguration, read_rcl_configuration
    from virnucpro.rcl.features import ProteinFeatures, TableFeatures
    from virnucpro.rcl.fitting import RclTrainingRequest, fit_rcl
    from virnucpro.rcl.models import encoding_of_width
    from virnucpro.rcl.settings import check_settings
    from virnucpro.ui.training_screen import TrainingScreen

    file = read_rcl_configuration(path) if path else RclConfiguration()
    devices = _devices(options, file, settings.machine.threads)
    training = _training_settings(options, file, devices)
    check_settings(training, len(devices))
    serpins = options["serpins"] or file.serpins
    if serpins is None:
        raise UsageError("name the table of proteins with an RCL: --serpins, or data.train_serpin")
    tensorboard = options["tensorboard"]
    if tensorboard is None:
        tensorboard = file.tensorboard is not False
    runs = options["output_dir"] or file.runs or Path("runs")
    others = options["others"] or file.others
    features: ProteinFeatures = TableFeatures(training.encoding)
    if training.encoding not in ("onehot", "blosum"):
        from virnucpro.cli.rcl_embed import features_for_training

        tables = (serpins, others, training.max_length)
        features = features_for_training(options, file, tables, runs, settings)
        training = replace(training, encoding=encoding_of_width(features.width))
    elif options["precomputed"]:
        raise UsageError(f"--precomputed is for ESM-2 encodings, not for {training.encoding}")
    request = RclTrainingRequest(
        serpins=serpins,
        others=others,
        runs=runs,
        settings=training,
        features=features,
        devices=devices,
        split=options["split"] or ("random" if training.recipe == "original" else "clusters"),
        tensorboard=tensorboard,
        resume=options["resume"],
        force=options["force"],
    )
    screen = TrainingScreen(settings.display)
    warnings = [file.warning] if file.warning else []
    warnings += emulation_warnings(training.precision, devices)
    with shared.shown_on(screen, warnings) as interruption:
        result = fit_rcl(request, screen, interruption)
    if not settings.display.quiet:
        metrics = result.metrics
        click.echo(
            f"Trained for {counted(result.epochs, 'epoch')}; kept epoch {result.best_epoch}: "
            f"F1 {metrics['f1']:.4f}, MCC {metrics['mcc']:.4f}, AUROC {metrics['auc']:.4f} of the "
            f"residues of the validation part."
        )
        click.echo(f"Model: {result.folder / 'best_model.safetensors'}")
        click.echo(f"Next: virnucpro rcl predict proteins.fa --model {result.folder} -o results")
    return EXIT_OK


def _devices(
    options: dict[str, Any], file: RclConfiguration, threads: int | None
) -> tuple[Device, ...]:
    """Return one GPU or the CPU, unless options or the configuration file ask for more.

    An option about devices replaces all that the file says about them.

    Raises:
        UsageError: the options contradict each other.
    """
    from virnucpro.devices import choose_devices, visible_gpus

    names = ("device", "multi_gpu", "gpu_ids", "processes")
    if any(options[name] for name in names):
        device, multi_gpu, gpu_ids, processes = (options[name] for name in names)
    else:
        gpu_ids = file.gpu_ids if file.multi_gpu else None
        device, multi_gpu, processes = file.device, file.multi_gpu, None
    if processes and (multi_gpu or gpu_ids):
        raise UsageError("--processes trains on the CPU: leave out --multi-gpu and --gpu-ids")
    several = multi_gpu or gpu_ids
    machine = MachineSettings(
        device=device or ("cuda" if multi_gpu and not gpu_ids else "auto"),
        gpus=gpu_ids,
        cpu_workers=processes,
        max_workers=None if several else 1,
        threads=threads,
    )
    return choose_devices(machine, visible_gpus())


def _training_settings(
    options: dict[str, Any], file: RclConfiguration, devices: tuple[Device, ...]
) -> RclTrainingSettings:
    """Return the settings of the recipe, with those of the file, then the options, on top."""
    from virnucpro.precision import supports
    from virnucpro.rcl.settings import RCL_RECIPES

    training = file.applied_to(RCL_RECIPES[options["recipe"]])
    names = ("epochs", "batch_size", "learning_rate", "patience", "seed")
    given = {name: options[name] for name in names if options[name] is not None}
    mixed = options["mixed_precision"]
    if mixed if mixed is not None else file.mixed_precision:
        every_has_bf16 = all(supports(device, "bf16") for device in devices)
        given["precision"] = "bf16" if every_has_bf16 else "fp16"
    return replace(training, encoding=options["encoding"], model=options["model"], **given)
