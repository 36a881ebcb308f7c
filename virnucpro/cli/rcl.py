"""``virnucpro rcl``: finds the reactive center loops of serpins, and trains and measures models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
from msgspec import Meta

import virnucpro.cli.shared as shared
from virnucpro.cli.train import training_device_options, training_devices
from virnucpro.errors import EXIT_OK, InputError, UsageError
from virnucpro.formatting import aligned, counted, printable
from virnucpro.settings import Count, Share

if TYPE_CHECKING:
    from virnucpro.configuration import Configuration
    from virnucpro.rcl.features import ProteinFeatures
    from virnucpro.rcl.settings import RclTrainingSettings
    from virnucpro.settings import DisplaySettings

ESM_MODEL = "esm2_t33_650M_UR50D"  # that of the encoding esm2_650m
esm_model_option = shared.option(
    "--esm-model NAME",
    str,
    "ESM-2 model of an encoding that needs one: a released name, a folder or a file.  "
    "[default: the released one of that size]",
)
serpins_option = shared.option(
    "--serpins", shared.FILE, "Table of proteins with an RCL (CSV).", required=True
)
others_option = shared.option("--others", shared.FILE, "Table of proteins without an RCL (CSV).")
threshold_option = shared.option(
    "--threshold",
    Share,
    "Probability above which a residue counts, 0 to 1.  [default: what the model says]",
)
shortest_option = shared.option(
    "--min-rcl-length", Count, "Residues of the shortest RCL.", default=7
)


@shared.command(short_help="Find the RCL in each protein of a file.")
@click.argument("proteins", metavar="PROTEINS")
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the results.  [default: STEM_rcl]")
@shared.option(
    "-m --model MODEL",
    str,
    "Name of a shipped model (hmm, blosum_unet), or a model file, or the folder of a training "
    "(run_001).",
    default="hmm",
)
@esm_model_option
@threshold_option
@shared.option(
    "--min-consecutive",
    Count,
    "Residues in a row that must be above the threshold; shorter runs are passed over.",
    default=12,
)
@shortest_option
@shared.option(
    "--seq-fasta -seq_fasta sequences", bool, "Write the proteins with an RCL as FASTA, too."
)
@shared.option("--rcl-fasta -RCL_fasta loops", bool, "Write the RCLs as FASTA, too.")
@shared.option("--residues", bool, "Write the probability of each residue, too (needed by plot).")
@shared.option(
    "-b --batch-size", Count, "Proteins per batch.  [default: as many as suit the device]"
)
@shared.option(
    "--chunk-size proteins_at_a_time",
    Count,
    "Proteins that are read before they are computed; more take more memory.",
    default=2000,
)
@shared.setting_option("duplicate_ids")
@shared.device_options
@shared.setting_option("cpu_workers")
@shared.threads_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def predict(proteins: str, model: str, **options: Any) -> None:
    """Find the reactive center loop (RCL) in each protein of PROTEINS.

    PROTEINS is FASTA or FASTQ, compressed or not; - is standard input. Every protein has a row
    in STEM_rcl.tsv, with its RCL or the reason why none was found.

    All visible GPUs compute, or the GPUs of --gpus, a block of --chunk-size proteins at a time. The
    results do not depend on how many there are.

    Examples:
      virnucpro rcl predict proteins.fa --output-dir results
      virnucpro rcl predict proteome.faa.gz -o results --model blosum_unet --rcl-fasta
      virnucpro rcl predict proteins.fa -o results --model runs/run_003 --threshold 0.7
      zcat *.faa.gz | virnucpro rcl predict - -o results --residues
    """
    settings = shared.configuration(options)
    from virnucpro.layout import Layout
    from virnucpro.rcl.finders import open_finder
    from virnucpro.rcl.predict import RclRequest, describe_record, run_rcl_prediction
    from virnucpro.ui.dashboard import RunScreen

    rule = ("threshold", "min_consecutive", "min_rcl_length", "batch_size", "esm_model")
    written = ("sequences", "loops", "residues", "proteins_at_a_time", "force")
    request = RclRequest(
        proteins,
        options["output_dir"],
        open_finder(model, **{name: options[name] for name in rule}),
        settings.machine,
        duplicate_ids=settings.analysis.duplicate_ids,
        command=shared.command_line(),
        **{name: options[name] for name in written},
    )
    screen = RunScreen(
        replace(settings.display, auto_log=False), Layout(request.root, request.stem)
    )
    with shared.shown_on(screen, settings.warnings) as interruption:
        record = run_rcl_prediction(request, screen.show, interruption)
    shared.tell(settings, *describe_record(record, request.root))


@shared.command(short_help="Draw the probability along proteins, and their RCL.")
@click.argument("results", type=shared.FOLDER, metavar="RESULTS")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the pictures.  [default: STEM_plots]")
@shared.option("--format suffix", ("png", "svg", "pdf"), "Format.", default="png")
@shared.option("--most", Count, "Draw at most so many proteins.", default=100)
@shared.force_option
@shared.short_options
def plot(
    results: Path,
    ids: tuple[str, ...],
    output_dir: Path | None,
    suffix: str,
    most: int,
    force: bool,
) -> None:
    """Draw a picture of each protein of RESULTS: an output directory of rcl predict --residues.

    Drawn are the proteins with an RCL, or those with the IDs given. The upper panel has the
    probability along the whole protein, the lower one the residues of the RCL.

    Examples:
      virnucpro rcl predict proteins.fa -o results --residues
      virnucpro rcl plot results
      virnucpro rcl plot results P01011 P05545 --format svg -o figures
    """
    from virnucpro.layout import picture_name
    from virnucpro.rcl.plots import draw_protein, read_predictions
    from virnucpro.results import open_rcl_run

    run = open_rcl_run(results)
    folder = output_dir or run.folder / f"{run.stem}_plots"
    threshold = float(run.record["settings"]["threshold"])
    pictures = 0
    for protein, residues in read_predictions(run, frozenset(ids), most):
        path = folder / picture_name(protein.accession, suffix)
        content = draw_protein(protein, residues, threshold, suffix)
        shared.save_output(path, content, force=force, option="--output-dir")
        pictures += 1
    shared.say(f"{counted(pictures, 'picture')} in {folder}")
    if pictures == most and not ids:
        shared.say(f"only the first {most:,} are drawn: use --most N, or name proteins")


@shared.command(short_help="Compute features of proteins by an ESM-2 model.")
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
@shared.option(
    "--max-length", Count, "Residues above which training leaves a protein out.", default=1024
)
@shared.option(
    "--checkpoint-every",
    Count,
    "Proteins per file; a finished file is not computed again.",
    default=64,
)
@shared.setting_option("protein_batch")
@shared.device_options
@shared.setting_option("cpu_workers")
@shared.threads_option
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def embed(
    encoding: str, esm_model: str | None, serpins: Path, output_dir: Path, **options: Any
) -> None:
    """Compute the features of each residue of the proteins of tables, each protein once.

    The work is done by workers as in predict: the same command again computes only what is missing.

    Examples:
      virnucpro rcl embed --serpins serpins.csv --others others.csv -o features
      virnucpro rcl train --encoding esm2_650m --precomputed features --serpins serpins.csv
          --others others.csv
    """
    settings = shared.configuration(options)
    if encoding == "esm2" and not esm_model:
        raise UsageError("--encoding esm2 needs the model: --esm-model")
    computed = _embedded(
        settings.display,
        serpins,
        options["others"],
        options["max_length"],
        model=esm_model or ESM_MODEL,
        folder=output_dir,
        machine=settings.machine,
        per_file=options["checkpoint_every"],
        force=options["force"],
    )
    shared.tell(
        settings,
        *([] if computed else ["Nothing to compute: all features are there and intact."]),
        f"Features: {output_dir}",
        f"Next: virnucpro rcl train --encoding {encoding} --precomputed {output_dir} --serpins "
        f"{serpins}",
    )


def _embedded(
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


@shared.command(short_help="Train a network on serpins and other proteins.")
@shared.option(
    "--encoding",
    ("onehot", "blosum", "esm2", "esm2_650m"),
    "What a residue becomes.",
    default="onehot",
)
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
    "--split HOW",
    str,
    "Division into parts: random, clusters, or a table with the columns id and part."
    "  [default: clusters]",
)
@shared.option("--epochs", Count, "Largest number of epochs.")
@shared.option(
    "--batch-size",
    Annotated[int, Meta(ge=2, le=1 << 20)],
    "Proteins per step, over all processes.  [default: 32]",
)
@shared.option(
    "--lr learning_rate",
    Annotated[float, Meta(gt=0, le=1000)],
    "Highest learning rate.  [default: 0.001]",
)
@shared.option("--patience", Count, "Stop after N epochs without a better validation F1.")
@shared.option("--seed", shared.CountOrZero, "Seed of all random choices.")
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
@shared.option(
    "-f --force",
    bool,
    "Start a new training, also where an unfinished one of the same settings is there.",
)
@shared.no_progress_option
@shared.global_options
def train(precomputed: Path | None, **options: Any) -> None:
    """Train a network that finds the reactive center loop (RCL) of serpins.

    The same command continues an unfinished training of the same data and settings. It gives the
    same files to the byte on the CPU.

    Examples:
      virnucpro rcl train --encoding blosum --model unet --serpins serpins.csv --others others.csv
      virnucpro rcl train --encoding onehot --model cnn --config config.yaml --epochs 20
      virnucpro rcl train --encoding blosum --model unet --config config.yaml --gpu-ids 0,1
          --mixed-precision

    The configuration file is the config.yaml of RCL-identifier. Options win over it.
    """
    names = ("threads", "no_progress")
    settings = shared.configuration({name: options[name] for name in names}, read_file=False)

    from virnucpro.precision import supports
    from virnucpro.rcl.fitting import fit_rcl
    from virnucpro.rcl.models import ENCODING_OF_WIDTH
    from virnucpro.rcl.settings import training_settings
    from virnucpro.ui.step_screen import TrainingScreen

    said = {name: str(v) if isinstance(v, Path) else v for name, v in options.items()}
    given = {
        **{name: said[name] for name in ("encoding", "model", "split", "esm_model")},
        "data": {
            "random_seed": said["seed"],
            "train_serpin": said["serpins"],
            "train_non_serpin": said["others"],
        },
        "training": {n: said[n] for n in ("epochs", "batch_size", "learning_rate", "patience")},
        "hardware": {"mixed_precision": said["mixed_precision"]},
        "logging": {"use_tensorboard": said["tensorboard"]},
        "output": {"runs_dir": said["output_dir"]},
    }
    training, warnings = training_settings(shared.configuration_file(), given)
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
    features = _features(training, precomputed, chosen, settings)
    if features.width not in ENCODING_OF_WIDTH:
        raise UsageError(f"no encoding has {features.width} numbers per residue")
    training = msgspec.structs.replace(training, encoding=ENCODING_OF_WIDTH[features.width])
    screen = TrainingScreen(settings.display)
    with shared.shown_on(screen, warnings) as interruption:
        folder, point = fit_rcl(
            training, features, devices, screen.show, screen, interruption, force=options["force"]
        )
    metrics = point.history[point.best_epoch - 1]
    shared.tell(
        settings,
        f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}: "
        f"F1 {metrics['f1']:.4f}, MCC {metrics['mcc']:.4f}, AUROC {metrics['auc']:.4f} of the "
        f"residues of the validation part.",
        f"Model: {folder / 'best_model.safetensors'}",
        f"Next: virnucpro rcl predict proteins.fa --model {folder} -o results",
    )


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
    _embedded(settings.display, *tables, model=model, folder=folder, machine=machine)
    return open_features(folder)


@shared.command(short_help="Measure models on proteins whose RCL is known.")
@shared.option(
    "-m --model MODEL models",
    str,
    "Name of a shipped model, or a model file or folder; give it several times to compare.",
    multiple=True,
    required=True,
)
@esm_model_option
@serpins_option
@others_option
@shared.option("--split", shared.FILE, "Table of parts, such as split.tsv of a training.")
@shared.option(
    "--dataset", ("test", "val", "train"), "Part that is measured, with --split.", default="test"
)
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the results.", default=Path("rcl_evaluation")
)
@threshold_option
@shared.option(
    "--min-consecutive",
    Count,
    "Residues in a row that must be above the threshold; predict takes 12.",
    default=1,
)
@shortest_option
@shared.option("--aa", bool, "Print the metrics of residues, too.")
@shared.device_options
@shared.threads_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def evaluate(models: tuple[str, ...], output_dir: Path, **options: Any) -> None:
    """Measure models on proteins whose RCL is known, and on proteins that have none.

    By sequence: whether an RCL is found where there is one, and where. By residue: whether each
    residue is called rightly. All with intervals from resampled proteins.

    One device computes: the first of --gpus, or what --device names. The other GPUs are not used.

    Examples:
      virnucpro rcl evaluate --serpins serpins_test.csv --others others_test.csv -m blosum_unet
      virnucpro rcl evaluate --serpins serpins.csv --others others.csv --model runs/run_001
          --split runs/run_001/split.tsv --dataset test --model hmm --aa

    The results are tables in the output directory.
    """
    names = ("device", "gpus", "threads", "no_progress")
    settings = shared.configuration({name: options[name] for name in names})
    from virnucpro.executors.processes import settled_device

    device = settled_device(settings.machine)
    from virnucpro.rcl.evaluation import (
        RESIDUE_METRICS,
        SEQUENCE_METRICS,
        proteins_to_measure,
        run_rcl_evaluation,
        text_table,
    )
    from virnucpro.rcl.finders import open_finder
    from virnucpro.training.data.dataset import Part
    from virnucpro.training.packages import require_packages
    from virnucpro.ui.step_screen import TrainingScreen

    require_packages(["pandas"], "rcl evaluate")
    rule = {name: options[name] for name in ("threshold", "min_consecutive", "min_rcl_length")}
    esm_model = options["esm_model"]
    finders = [open_finder(name, esm_model=esm_model, **rule) for name in dict.fromkeys(models)]
    for finder in finders:
        finder.settle(device)
    parts: dict[str, Part] = {"test": "test", "val": "validation", "train": "train"}
    tables = (options["serpins"], options["others"], options["split"], parts[options["dataset"]])
    proteins, facts, warnings = proteins_to_measure(*tables)
    facts |= {name.replace("_", " "): value for name, value in rule.items()}
    screen = TrainingScreen(settings.display)
    advice = "nothing was written; run the same command again"
    with shared.shown_on(screen, [*settings.warnings, *warnings], advice=advice):
        metrics = run_rcl_evaluation(
            finders, proteins, facts, output_dir, screen.show, screen, force=options["force"]
        )
    shown = (*SEQUENCE_METRICS, *(RESIDUE_METRICS if options["aa"] else ()))
    table = aligned(text_table(metrics, shown))
    shared.tell(settings, *table, f"The tables are in {output_dir}.")


@shared.command(short_help="Check tables of annotated proteins.")
@click.argument("tables", type=shared.FILE, nargs=-1, required=True, metavar="TABLE...")
@shared.short_options
def validate(tables: tuple[Path, ...]) -> int:
    """Check every row of each TABLE: coordinates, letters, and duplicates, also between tables.

    A TABLE is CSV with the columns id and Sequence, and optionally rcl_start, rcl_end and rcl_seq.
    The report goes to standard output. No file is written. The exit code is 65 if a row is wrong.

    Examples:
      virnucpro rcl validate serpins.csv
      virnucpro rcl validate serpins_train.csv serpins_test.csv > report.txt
    """
    from virnucpro.rcl.proteins import check_tables

    lines, wrong = check_tables(tables)
    click.echo(printable("\n".join(lines)))
    return InputError.exit_code if wrong else EXIT_OK


@shared.command(short_help="Make a profile (HMM) from annotated serpins.")
@click.argument("table", type=shared.FILE, metavar="TABLE")
@shared.option("--output", shared.FILE, "File of the profile, with the suffix .hmm.", required=True)
@shared.force_option
@shared.short_options
def profile(table: Path, output: Path, force: bool) -> None:
    """Make a profile from the serpins of TABLE, for rcl predict --model.

    TABLE is CSV with the columns id, Sequence, rcl_start and rcl_end. The serpins of 300 to 700
    residues are aligned; the columns that most annotated RCLs begin and end in are those of the
    RCL. The shipped model hmm was made in this way.

    Examples:
      virnucpro rcl profile serpins.csv --output my_serpins.hmm
      virnucpro rcl predict proteins.fa --model my_serpins.hmm
    """
    from virnucpro.rcl.profile import PROFILE_SUFFIX, build_profile
    from virnucpro.rcl.proteins import read_proteins
    from virnucpro.store.disk import sha256_of

    if output.suffix != PROFILE_SUFFIX:
        raise UsageError(f"--output {output}: give it the suffix {PROFILE_SUFFIX}")
    proteins, warnings = read_proteins(table, None)
    for warning in warnings:
        shared.say(warning)
    rows = [(protein.sequence, protein.start, protein.end) for protein in proteins]
    shared.say(f"aligning {counted(len(rows), 'serpin')}, which takes a minute for 1,000")
    made = build_profile(rows, {"serpins": len(rows), "table_sha256": sha256_of(table)})
    shared.save_output(output, made.to_bytes(), force=force, option="--output")
    first, last = made.columns
    shared.say(f"{output}: {made.hmm.M} columns, the RCL in columns {first} to {last}")
