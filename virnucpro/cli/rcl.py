"""``virnucpro rcl``: finds the reactive center loops of serpins, and trains and measures models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, FOLDER, command, option
from virnucpro.cli.train import TRAINING_DEVICES, training_machine
from virnucpro.errors import EXIT_OK, InputError, UsageError
from virnucpro.formatting import counted, percent
from virnucpro.settings import Count, Share

if TYPE_CHECKING:
    from virnucpro.configuration import Configuration
    from virnucpro.rcl.features import ProteinFeatures
    from virnucpro.rcl.settings import RclTrainingSettings

ESM_MODEL = "esm2_t33_650M_UR50D"  # that of the encoding esm2_650m
ENCODINGS = ("onehot", "blosum", "esm2", "esm2_650m")
ESM_OPTION = option(
    "--esm-model NAME", str, "Name, folder or file of the ESM-2 model of an encoding."
)
SERPINS = option("--serpins", FILE, "Table of proteins with an RCL (CSV).", required=True)
OTHERS = option("--others", FILE, "Table of proteins without an RCL (CSV).")
THRESHOLD = option("--threshold", Share, "Probability that counts.  [default: that of the model]")
CONSECUTIVE = "Residues in a row that must be above the threshold."
SHORTEST = option("--min-rcl-length", Count, "Residues of the shortest RCL.", default=7)


@command(
    click.Argument(["proteins"], metavar="PROTEINS"),
    option("-o --output-dir", FOLDER, "Folder of the results.  [default: STEM_rcl]"),
    option("-m --model MODEL", str, "Shipped model, model file or training.", default="hmm"),
    ESM_OPTION,
    THRESHOLD,
    option("--min-consecutive", Count, CONSECUTIVE, default=12),
    SHORTEST,
    option("--seq-fasta -seq_fasta sequences", bool, "Write the proteins with an RCL as FASTA."),
    option("--rcl-fasta -RCL_fasta loops", bool, "Write the RCLs as FASTA."),
    option("--residues", bool, "Write the probability of each residue, which plot needs."),
    option("-b --batch-size", Count, "Proteins per batch.  [default: as many as suit the device]"),
    option("--chunk-size proteins_at_a_time", Count, "Proteins per task.", default=2000),
    common="duplicate_ids device gpus cpu_workers threads force no_progress",
)
def predict(proteins: str, model: str, **options: Any) -> None:
    """Find the RCL in each protein of a file.

    PROTEINS is FASTA or FASTQ, compressed or not; - is standard input. Every protein has a row
    in STEM_rcl.tsv, with its reactive center loop (RCL) or the reason why none was found. All
    visible GPUs compute, or those named with --gpus. The results do not depend on their number.

    Examples:
      virnucpro rcl predict proteins.fa --output-dir results
      virnucpro rcl predict proteins.fa -o results --model runs/run_003 --threshold 0.7
      zcat *.faa.gz | virnucpro rcl predict - -o results --residues
    """
    settings = shared.configuration(options)
    from virnucpro.layout import Layout
    from virnucpro.rcl.finders import open_finder
    from virnucpro.rcl.predict import RclRequest, run_rcl_prediction

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
    settings = replace(settings, display=replace(settings.display, auto_log=False))
    with shared.screen(settings, log=Layout(request.root, request.stem).log) as screen:
        record = run_rcl_prediction(request, screen.show, screen.interruption)
    count, found = record["proteins"], record["statuses"].get("found", 0)
    share, whole = percent(found / max(count, 1), 1), counted(count, "protein")
    shared.tell(
        f"{record['model']['name']} found an RCL in {found:,} of {whole} ({share}).",
        f"Results in {request.root}:",
        *(f"  {name}" for name in record["files"]),
    )


@command(
    click.Argument(["results"], type=FOLDER, metavar="RESULTS"),
    click.Argument(["ids"], nargs=-1, metavar="[ID]..."),
    option("-o --output-dir", FOLDER, "Folder of the pictures.  [default: STEM_plots]"),
    option("--format suffix", ("png", "svg", "pdf"), "Format.", default="png"),
    option("--most", Count, "Draw at most so many proteins.", default=100),
    common="replace",
)
def plot(results: Path, ids: tuple[str, ...], most: int, **options: Any) -> None:
    """Draw the probability along proteins, and their RCL.

    RESULTS is an output directory of rcl predict --residues. Drawn are the proteins with an RCL, or
    those with the IDs given. The upper panel of a picture has the whole protein, the lower one the
    residues of the RCL.

    Examples:
      virnucpro rcl predict proteins.fa -o results --residues
      virnucpro rcl plot results
      virnucpro rcl plot results P01011 P05545 --format svg -o figures
    """
    from virnucpro.layout import picture_name
    from virnucpro.rcl.plots import draw_protein, read_predictions
    from virnucpro.results import open_rcl_run

    run = open_rcl_run(results)
    folder = options["output_dir"] or run.folder / f"{run.stem}_plots"
    threshold = float(run.record["settings"]["threshold"])
    pictures = 0
    for protein, residues in read_predictions(run, frozenset(ids), most):
        path = folder / picture_name(protein.accession, options["suffix"])
        content = draw_protein(protein, residues, threshold, options["suffix"])
        shared.save_output(path, content, force=options["force"] or not options["output_dir"])
        pictures += 1
    shared.say(f"{counted(pictures, 'picture')} in {folder}")
    if pictures == most and not ids:
        shared.say(f"only the first {most:,} are drawn: use --most N, or name proteins")


@command(
    option("--encoding", ENCODINGS[2:], "Encoding; esm2 needs --esm-model.", default="esm2_650m"),
    ESM_OPTION,
    SERPINS,
    OTHERS,
    option("-o --output-dir", FOLDER, "Folder of the features.", default=Path("rcl_features")),
    option("--max-length", Count, "Residues of the longest protein used.", default=1024),
    option("--checkpoint-every", Count, "Proteins per file.", default=64),
    common="protein_batch device gpus cpu_workers threads resume force no_progress",
)
def embed(
    encoding: str, esm_model: str | None, serpins: Path, output_dir: Path, **options: Any
) -> None:
    """Compute features of proteins by an ESM-2 model.

    These are the features of each residue of the proteins of tables, each protein once. The work is
    done by workers as in predict: the same command again computes only what is missing.

    Examples:
      virnucpro rcl embed --serpins serpins.csv --others others.csv -o features
      virnucpro rcl train --encoding esm2_650m --precomputed features --serpins serpins.csv
          --others others.csv
    """
    settings = shared.configuration(options)
    if encoding == "esm2" and not esm_model:
        raise UsageError("--encoding esm2 needs the model: --esm-model")
    computed = _embedded(
        settings,
        serpins,
        options["others"],
        options["max_length"],
        model=esm_model or ESM_MODEL,
        folder=output_dir,
        per_file=options["checkpoint_every"],
        force=options["force"],
    )
    shared.tell(
        *([] if computed else ["Nothing to compute: all features are there and intact."]),
        f"Features: {output_dir}",
        f"Next: virnucpro rcl train --encoding {encoding} --precomputed {output_dir} ...",
    )


def _embedded(
    settings: Configuration,
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

    proteins, warnings = read_proteins(serpins, others, max_length)
    with shared.screen(settings, warnings, feature_layout(folder).log) as screen:
        options |= {"show": screen.show, "interruption": screen.interruption}
        return embed_residues(proteins, folder=folder, machine=settings.machine, **options)


@command(
    option("--encoding", ENCODINGS, "What a residue becomes.", default="onehot"),
    option("--model", ("cnn", "unet", "lstm"), "Kind of network.", default="unet"),
    option("--precomputed", FILE, "Folder of rcl embed, for ESM-2 encodings."),
    ESM_OPTION,
    option("--serpins", FILE, "Table of proteins with an RCL (CSV)."),
    OTHERS,
    option("--output-dir", FOLDER, "Folder of the runs.  [default: runs]"),
    option("--split HOW", str, "Split by clusters, random, or a table.  [default: clusters]"),
    option("--epochs N", int, "Largest number of epochs."),
    option("--batch-size N", int, "Proteins per step.  [default: 32]"),
    option("--lr X", float, "Highest learning rate.  [default: 0.001]"),
    option("--patience N", int, "Stop after N epochs without a better F1."),
    option("--seed N", int, "Seed of all random choices.  [default: 42]"),
    option(
        "--mixed-precision/--full-precision",
        bool,
        "Compute matrix products in bf16.",
        default=None,
    ),
    option("--device D", str, "Where to train: cpu, cuda or auto.  [default: auto]"),
    *TRAINING_DEVICES,
    option(
        "--tensorboard/--no-tensorboard",
        bool,
        "Write TensorBoard scalars.  [default: on]",
        default=None,
    ),
    common="threads force no_progress",
)
def train(precomputed: Path | None, **options: Any) -> None:
    """Train a network on serpins and other proteins.

    It finds the reactive center loop (RCL). The same command continues an unfinished training of
    the same data and settings, and --force starts a new one. Both give the same files to the byte
    on the CPU.

    Examples:
      virnucpro rcl train --encoding blosum --model unet --serpins serpins.csv --others others.csv
      virnucpro rcl train --encoding blosum --model unet --config config.yaml --gpu-ids 0,1
          --mixed-precision

    The configuration file is the config.yaml of RCL-identifier. Options win over it.
    """
    settings = shared.configuration(options, read_file=False)
    from virnucpro.devices import choose_devices
    from virnucpro.rcl.models import ENCODING_OF_WIDTH
    from virnucpro.rcl.settings import training_settings
    from virnucpro.rcl.training import fit_rcl

    chosen = {name: options.pop(name) for name in ("device", "multi_gpu", "gpu_ids", "processes")}
    file: Path | None = click.get_current_context().obj.get("config")
    training, warnings = training_settings(file, options)
    if not any(chosen.values()):  # one of these options replaces all keys on devices
        chosen["multi_gpu"] = training.use_multi_gpu
        if training.use_multi_gpu:
            chosen["gpu_ids"] = ",".join(map(str, training.gpu_ids))
        if training.use_multi_gpu or training.device != "cuda":  # which is taken if it is there
            chosen["device"] = training.device
    settings = replace(settings, machine=training_machine(settings.machine.threads, chosen))
    devices = choose_devices(settings.machine)
    if training.mixed_precision:
        training = msgspec.structs.replace(training, precision="bf16")
    features = _features(training, precomputed, settings)
    if features.width not in ENCODING_OF_WIDTH:
        raise UsageError(f"no encoding has {features.width} numbers per residue")
    training = msgspec.structs.replace(training, encoding=ENCODING_OF_WIDTH[features.width])
    with shared.screen(settings, warnings) as screen:
        folder, point = fit_rcl(training, features, devices, screen.show, force=options["force"])
    metrics = point.history[point.best_epoch - 1]
    shared.tell(
        f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}: "
        f"F1 {metrics['f1']:.4f}, MCC {metrics['mcc']:.4f}, AUROC {metrics['auc']:.4f}.",
        f"Model: {folder / 'best_model.safetensors'}",
        f"Next: virnucpro rcl predict proteins.fa --model {folder} -o results",
    )


def _features(
    training: RclTrainingSettings, stored: Path | None, settings: Configuration
) -> ProteinFeatures:
    """Return the features that ``--precomputed`` names; without, compute them beside the runs."""
    from virnucpro.rcl.features import RESIDUE_ENCODINGS, open_features

    if training.encoding in RESIDUE_ENCODINGS:
        if stored:
            raise UsageError(f"--precomputed is for ESM-2 encodings, not for {training.encoding}")
        return RESIDUE_ENCODINGS[training.encoding]
    if stored:
        return open_features(stored)
    model = training.esm_model or ESM_MODEL
    folder = Path(training.output_dir) / f"features_{Path(model).name}"
    settings = replace(settings, machine=replace(settings.machine, max_workers=None))
    serpins, others = training.tables
    _embedded(settings, serpins, others, training.max_length, model=model, folder=folder)
    return open_features(folder)


@command(
    option("-m --model MODEL models", str, "A model; repeatable.", multiple=True, required=True),
    ESM_OPTION,
    SERPINS,
    OTHERS,
    option("--split", FILE, "Table of parts, such as split.tsv of a training."),
    option("--dataset", ("test", "val", "train"), "Measured part, with --split.", default="test"),
    option("-o --output-dir", FOLDER, "Folder of the results.", default=Path("rcl_evaluation")),
    THRESHOLD,
    option("--min-consecutive", Count, f"{CONSECUTIVE} predict takes 12.", default=1),
    SHORTEST,
    option("--aa", bool, "Print the metrics of residues, too."),
    common="device gpus threads force no_progress",
)
def evaluate(models: tuple[str, ...], output_dir: Path, **options: Any) -> None:
    """Measure models on proteins whose RCL is known.

    By sequence: whether an RCL is found where there is one, and where. By residue: whether each
    residue is called rightly. All with intervals from resampled proteins. One device computes.
    The results are tables in the output directory.

    Examples:
      virnucpro rcl evaluate --serpins serpins_test.csv --others others_test.csv -m blosum_unet
      virnucpro rcl evaluate --serpins serpins.csv --others others.csv --model runs/run_001
          --split runs/run_001/split.tsv --dataset test --model hmm --aa
    """
    settings = shared.configuration(options)
    from virnucpro.workers.processes import settled_device

    device = settled_device(settings.machine)
    from virnucpro.precision import choose_precision
    from virnucpro.rcl.evaluation import (
        RESIDUE_METRICS,
        SEQUENCE_METRICS,
        proteins_to_measure,
        run_rcl_evaluation,
    )
    from virnucpro.rcl.finders import open_finder
    from virnucpro.training.data.dataset import Part

    rule = {name: options[name] for name in ("threshold", "min_consecutive", "min_rcl_length")}
    esm_model = options["esm_model"]
    finders = [open_finder(name, esm_model=esm_model, **rule) for name in dict.fromkeys(models)]
    for finder in finders:
        finder.precision = choose_precision("auto", [device])
        finder.settle(device)
    parts: dict[str, Part] = {"test": "test", "val": "validation", "train": "train"}
    proteins, facts, warnings = proteins_to_measure(
        options["serpins"], options["others"], options["split"], parts[options["dataset"]]
    )
    facts |= {name.replace("_", " "): value for name, value in rule.items()}
    with shared.screen(settings, warnings) as screen:
        metrics = run_rcl_evaluation(
            finders, proteins, facts, output_dir, screen.show, force=options["force"]
        )
    shown = (*SEQUENCE_METRICS, *(RESIDUE_METRICS if options["aa"] else ()))
    table = metrics["value"].unstack("model").loc[list(shown)].rename_axis(index=None, columns=None)
    table.index = table.index.str.replace("_", " ")
    shared.tell(
        table.to_string(na_rep="NA", float_format="{:.4f}".format),
        f"The tables, with intervals, are in {output_dir}.",
    )


@command(click.Argument(["tables"], type=FILE, nargs=-1, required=True, metavar="TABLE..."))
def validate(tables: tuple[Path, ...]) -> int:
    """Check tables of annotated proteins.

    Checked are coordinates, letters, and duplicates, also between tables. A TABLE is CSV with the
    columns id and Sequence, and optionally rcl_start, rcl_end and rcl_seq. The report goes to
    standard output. No file is written. The exit code is 65 if a row is wrong.

    Examples:
      virnucpro rcl validate serpins_train.csv serpins_test.csv > report.txt
    """
    from virnucpro.rcl.proteins import check_tables

    errors, repeated = check_tables(tables)
    totals = (counted(len(errors), "error"), counted(len(repeated), "warning"))
    shared.tell(*errors, *repeated, *totals, always=True)
    return InputError.exit_code if errors else EXIT_OK


@command(
    click.Argument(["table"], type=FILE, metavar="TABLE"),
    option("--output", FILE, "File of the profile, with the suffix .hmm.", required=True),
    common="replace",
)
def profile(table: Path, output: Path, *, force: bool) -> None:
    """Make a profile (HMM) from annotated serpins.

    TABLE is CSV with the columns id, Sequence, rcl_start and rcl_end. The serpins of 300 to 700
    residues are aligned; the columns in which most annotated RCLs begin and end are the ends
    of its RCL. The shipped model hmm was made in this way.

    Examples:
      virnucpro rcl profile serpins.csv --output my_serpins.hmm
      virnucpro rcl predict proteins.fa --model my_serpins.hmm
    """
    from virnucpro.rcl.profile import PROFILE_SUFFIX, build_profile
    from virnucpro.rcl.proteins import read_proteins
    from virnucpro.store.hashed import hashed

    if output.suffix != PROFILE_SUFFIX:
        raise UsageError(f"--output {output}: give it the suffix {PROFILE_SUFFIX}")
    proteins, warnings = read_proteins(table, None)
    for warning in warnings:
        shared.say(warning)
    rows = [(protein.sequence, protein.start, protein.end) for protein in proteins]
    shared.say(f"aligning {counted(len(rows), 'serpin')}, which takes a minute for 1,000")
    made = build_profile(rows, {"serpins": len(rows), "table_sha256": hashed(table).sha256})
    shared.save_output(output, made.to_bytes(), force=force)
    first, last = made.columns
    shared.say(f"{output}: {made.hmm.M} columns, the RCL in columns {first} to {last}")


rcl = shared.Group(
    "rcl",
    commands=[predict, embed, train, evaluate, validate, plot, profile],
    help="Find the reactive center loop in serpins.",
)
