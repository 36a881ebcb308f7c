"""``virnucpro train``: fetches genomes, makes data sets, embeds them, and trains on them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

import virnucpro.cli.shared as shared
from virnucpro.contracts import Device
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, OutputError, UsageError
from virnucpro.formatting import counted
from virnucpro.settings import MOST, Bases, Count, MachineSettings, Share

if TYPE_CHECKING:
    from virnucpro.training.classifier.card import TrainingReport
    from virnucpro.training.data.refseq import Format

training_device_options = shared.grouped(
    shared.option("--multi-gpu", bool, "Train on every visible GPU instead of one.", default=None),
    shared.option("--gpu-ids LIST", str, "Train on these GPUs, such as 0,1, or their UUIDs."),
    shared.option("--processes", Count, "Train on the CPU, in N processes."),
    shared.threads_option,
)


def training_devices(
    options: Mapping[str, Any], threads: int | None, device: str | None = None
) -> tuple[Device, ...]:
    """Return one GPU or the CPU, unless the options ask for more; ``device`` is None for any.

    Raises:
        UsageError: the options contradict each other.
    """
    from virnucpro.devices import choose_devices, visible_gpus

    multi_gpu, gpu_ids, processes = (
        options[name] for name in ("multi_gpu", "gpu_ids", "processes")
    )
    if processes and (multi_gpu or gpu_ids):
        raise UsageError("--processes trains on the CPU: leave out --multi-gpu and --gpu-ids")
    machine = MachineSettings(
        device=device or ("cuda" if multi_gpu and not gpu_ids else "auto"),
        gpus=gpu_ids,
        cpu_workers=processes,
        max_workers=None if multi_gpu or gpu_ids else 1,
        threads=threads,
    )
    return choose_devices(machine, visible_gpus())


@shared.command(short_help="Fetch genomes of the current RefSeq release.")
@shared.option(
    "--release-groups LIST",
    str,
    "Groups of the release, separated by commas.",
    default="viral,archaea,bacteria,fungi",
)
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the files.", default=Path("refseq"))
@shared.option(
    "--mirror URL",
    str,
    "Copy of the release to fetch from.",
    default="https://ftp.ncbi.nlm.nih.gov/refseq/release",
)
@shared.option(
    "--max-files",
    shared.CountOrZero,
    "Largest number of files per group; 0 takes all (hundreds of GB of bacteria).",
    default=4,
)
@shared.option(
    "--format form",
    ("genbank", "fasta"),
    "Format of the files; train prepare uses the proteins that genbank names.",
    default="genbank",
)
@shared.option("--dry-run", bool, "List what would be fetched, and fetch nothing.")
@shared.global_options
def download(
    release_groups: str, output_dir: Path, mirror: str, max_files: int, form: Format, dry_run: bool
) -> int:
    """Fetch genomes of the current RefSeq release, and write a table for train prepare.

    Each file is compared with its checksum in the list of the release. The same command continues
    a download that was interrupted with the first file that is not complete.

    Examples:
      virnucpro train download --release-groups viral,archaea --max-files 1 --dry-run
      virnucpro train download --release-groups viral,bacteria,fungi -o refseq
      virnucpro train prepare refseq/refseq.tsv --output-dir data

    Groups: archaea, bacteria, fungi, invertebrate, mitochondrion, other, plant, plasmid, plastid,
    protozoa, vertebrate_mammalian, vertebrate_other, viral.
    """
    from virnucpro.training.data.refseq import files_of_group, read_release
    from virnucpro.training.packages import require_packages

    require_packages(["pooch"], "train download")
    mirror = mirror.rstrip("/")
    if not mirror.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise UsageError(f"--mirror {mirror} is not https: write https://...")
    number, listing = read_release(mirror)
    shared.say(f"RefSeq release {number}")
    files: dict[str, str] = {}
    for group in shared.separated(release_groups):
        of_group = files_of_group(listing, group, form)
        chosen = list(of_group)[: max_files or None]
        hint = "" if len(chosen) == len(of_group) else " (--max-files 0 takes all)"
        shared.say(f"{group}: {len(chosen):,} of {len(of_group):,} files{hint}")
        files |= {path: of_group[path] for path in chosen}
    if dry_run:
        click.echo("\n".join(f"{mirror}/{path}" for path in files))
        return EXIT_OK
    return _fetch(files, output_dir, mirror, form)


def _fetch(files: dict[str, str], folder: Path, mirror: str, form: Format) -> int:
    import pooch
    import requests

    from virnucpro.layout import lock_file
    from virnucpro.store.disk import Disk
    from virnucpro.store.lock import locked
    from virnucpro.training.data.refseq import TIMEOUT, table_of
    from virnucpro.ui.step_screen import StepScreen

    loaded, failures = shared.configuration(), []
    screen = StepScreen(loaded.display)
    advice = "run the same command again to continue: complete files are kept"
    table, text = folder / "refseq.tsv", table_of(files, form).encode()
    pooch.get_logger().setLevel("ERROR")
    registry = {path: f"md5:{digest}" for path, digest in files.items()}
    # A file has its name when it is complete: one that differs is not ours, or of another release.
    release = pooch.create(
        folder, f"{mirror}/", registry=registry, retry_if_failed=1, allow_updates=False
    )
    with (
        locked(lock_file(folder, table.name), "this download"),
        shared.shown_on(screen, loaded.warnings, advice=advice),
    ):
        screen.begin("downloading", len(files))
        for path in files:
            try:
                release.fetch(path, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
            except (requests.RequestException, ValueError) as error:  # ValueError: other content
                failures.append(f"{path}: {error}")
            except OSError as error:
                raise OutputError(f"cannot write {folder / path}: {error.strerror}") from error
            screen.advance(1)
        if failures:
            click.echo(
                f"virnucpro: {len(failures):,} of {len(files):,} files could not be fetched; run "
                f"the same command again, or try another --mirror; no table is written:\n  "
                + "\n  ".join(failures),
                err=True,
            )
            return EXIT_PARTIAL
        if table.exists() and table.read_bytes() != text:
            screen.warn(
                f"{table} is not what this command would write and was left as it is; remove it "
                f"to get a new one"
            )
        else:
            Disk().save(table, text)
    shared.say(f"{len(files):,} files are here; next: virnucpro train prepare {table} -o DATASET")
    return EXIT_OK


@shared.command(short_help="Make a labelled data set from a table of genomes.")
@click.argument("table", type=shared.FILE, metavar="TABLE")
@shared.option("-o --output-dir DATASET", shared.FOLDER, "Folder of the data set.", required=True)
@shared.option(
    "--genomes",
    shared.FOLDER,
    "Folder that relative paths in TABLE start from.  [default: the folder of TABLE]",
)
@shared.option(
    "--content",
    ("frames", "records"),
    "Cut records into chunks and write their open frames, or write whole records.",
    default="frames",
)
@shared.option(
    "-e --expected-length N lengths",
    shared.ListType(shared.NumberType(Bases)),
    "Bases per chunk that models are trained for; write several as 300,500, or repeat the option.",
    multiple=True,
    default=("500",),
)
@shared.option(
    "--validation", Share, "Fraction of the genomes, or taxa, in the validation part.", default=0.1
)
@shared.option("--test", Share, "Fraction of the genomes, or taxa, in the test part.", default=0.1)
@shared.option(
    "--relatives",
    Share,
    "Leave out genomes that share a larger fraction of their 31-mers with held-out ones.",
    default=0.05,
)
@shared.option(
    "--balance/--no-balance",
    bool,
    "With --content frames: take equally many of either label for training and validation.",
    default=True,
)
@shared.seed_option
@shared.force_option
@shared.global_options
def prepare(table: Path, output_dir: Path, genomes: Path | None, **options: Any) -> None:
    """Make a labelled data set from the genomes that TABLE lists.

    Each genome goes to train, validation or test as a whole, by its name, or together with all
    genomes of its taxon. Genomes that are nearly identical to held-out ones are left out. Records
    are cut into chunks as predict does, and the open reading frames of the chunks are written; from
    GenBank files only frames inside annotated proteins are kept. With --content records, whole
    records are written instead. The same command gives the same data set to the byte, and does
    nothing if the data set exists.

    Examples:
      virnucpro train prepare genomes.tsv --output-dir data
      virnucpro train prepare genomes.tsv -o data -e 300,500 --genomes /data/refseq
      virnucpro train prepare genomes.tsv -o data --test 0 --validation 0.05 --seed 7
      virnucpro train prepare genomes.tsv -o records --content records -e 500,300,150

    \b
    TABLE is tab-separated, with a header:
      file           label   group     split     genome       taxon       match
      phages.fa.gz   virus   phages    test=0.2  ^(\\S+)_frag  host=(\\w+)
      viral.1.gbff   virus   RefSeq
      bacteria.fna   others  bacteria                         ^\\S+ (\\w+)  genome
    The columns file, label (virus or others) and group are required. The others are optional:
      split    auto, train, validation, test, or a fraction such as test=0.2
      genome   pattern whose first group names the genome (default: every record is a genome)
      taxon    pattern whose first group names a genus, host or family that is never divided
      match    pattern of the headers that the row is for (the first matching row counts)
    """
    shared.say_at_start(f"preparing {output_dir} from {table}")
    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.data.prepare import DatasetSettings, prepare_dataset
    from virnucpro.ui.step_screen import StepScreen

    force, content = options.pop("force"), options["content"]
    lengths = tuple(dict.fromkeys(chain(*options.pop("lengths"))))
    if genomes is not None and not genomes.is_dir():
        raise UsageError(f"--genomes {genomes} is not a folder: name where the paths start from")
    settings = DatasetSettings(table, genomes or table.parent, lengths, **options)
    loaded, dataset = shared.configuration(), Dataset(output_dir)
    screen = StepScreen(loaded.display)
    advice = "run the same command again to start over"
    with shared.shown_on(screen, loaded.warnings, advice=advice):
        description, notice = prepare_dataset(
            settings, dataset, screen, command=shared.command_line(), force=force
        )
    place = shlex.quote(str(output_dir))
    following = f"embed {place}" if content == "frames" else f"lite {place} --output-dir my_lite"
    shared.tell(
        loaded,
        _counts_table(description["counts"]),
        *([notice] if notice else []),
        f"The data set is in {output_dir}; genomes.tsv says which record is in which part, and why",
        f"Next: virnucpro train {following}",
    )


def _counts_table(counts: list[dict[str, Any]]) -> str:
    import pandas as pd

    table = pd.DataFrame(counts)
    formatters = dict.fromkeys(table.columns[2:], "{:,}".format)
    return str(table.to_string(index=False, formatters=formatters))


@shared.command(short_help="Embed the frames of a data set.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-m --model-type",
    ("300", "500", "toy"),  # not lite, whose encoder reads whole chunks, and not frames
    "Model type of predict whose encoders are used.  [default: 500]",
    metavar="[300|500]",
)
@shared.option("--nucleotide-model NAME", str, "Name or folder of another encoder.")
@shared.option("--protein-model NAME", str, "Name, folder or file of another encoder.")
@shared.encoder_options
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def embed(dataset: Path, **options: Any) -> int:
    """Embed the frames of DATASET, which train prepare made, for train classifier.

    The work is done by workers as in predict. The same command again computes only what is
    missing and what failed. Frames that fail are left out of the training.

    Examples:
      virnucpro train embed DATASET
      virnucpro train embed DATASET --gpus 0,1 --precision bf16
      virnucpro train embed DATASET --protein-model esm2_t6_8M_UR50D --device cpu
    """
    settings = shared.configuration(options)
    analysis = settings.analysis
    if analysis.model_type == "custom":  # its encoders are those of the configuration
        analysis = replace(analysis, model_type="500")
    # An encoder that is named here takes the place of that of the model type.
    named = {name: options[name] for name in ("nucleotide_model", "protein_model") if options[name]}

    shared.say_at_start(f"embedding {dataset}")
    from virnucpro.training import embed as embedding
    from virnucpro.training.data.dataset import Dataset
    from virnucpro.ui.dashboard import RunScreen

    data = Dataset(dataset.absolute())
    screen = RunScreen(settings.display, data.layout("train"))
    with shared.shown_on(screen, settings.warnings) as interruption:
        results = embedding.embed(
            data,
            replace(analysis.resolved(), **named),
            settings.machine,
            screen.show,
            interruption,
            resume=options["resume"],
            force=options["force"],
            command=shared.command_line(),
        )
    lines = []
    if not any(result.computed for result in results):
        lines.append("Nothing to compute: all features are there and intact.")
    for result in results:
        failed = f", {result.failed:,} of them failed" if result.failed else ""
        lines.append(f"{result.part}: {result.frames:,} frames embedded{failed}")
    incomplete = any(result.failed for result in results)
    if incomplete:
        lines.append(
            "Failed frames are left out of the training: see failed_files.txt; the same command "
            "tries them again."
        )
    shared.tell(
        settings, *lines, f"Next: virnucpro train classifier {dataset} --output my.safetensors"
    )
    return EXIT_PARTIAL if incomplete else EXIT_OK


@shared.command(short_help="Train a classifier on an embedded data set.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-o --output",
    shared.FILE,
    "File of the classifier, with the suffix .safetensors; its model card has the suffix .md.",
    required=True,
)
@shared.option(
    "--recipe",
    ("original", "modern"),
    "Train as version 1 did, or with AdamW on standardised inputs in larger batches.",
    default="original",
)
@shared.option("--hidden", Count, "Number of hidden units.  [default: 512]")
@shared.option("--epochs", Count, "Largest number of epochs.  [default: 200; modern: 40]")
@shared.option(
    "--batch-size",
    Annotated[int, Meta(ge=2, le=MOST)],
    "Frames per step, over all processes.  [default: 32; modern: 512]",
)
@shared.option(
    "--learning-rate",
    Annotated[float, Meta(gt=0)],
    "Highest learning rate.  [default: 0.0002; modern: 0.001]",
)
@shared.option(
    "--patience", Count, "Stop after N epochs without a lower validation loss.  [default: 5]"
)
@shared.option("--seed", shared.CountOrZero, "Seed of all random choices.  [default: 42]")
@training_device_options
@shared.option(
    "--precision", ("fp32", "bf16"), "Arithmetic of the matrix products.  [default: fp32]"
)
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def classifier(dataset: Path, output: Path, **options: Any) -> None:
    """Train a classifier on DATASET, which train prepare made and train embed embedded.

    The validation part decides when the training stops, and calibrates the scores. The test part
    is only measured at the end. The same command gives the same file to the byte on the CPU.

    Examples:
      virnucpro train classifier DATASET --output my.safetensors
      virnucpro train classifier DATASET --output my.safetensors --recipe modern --gpu-ids 0,1
      virnucpro train classifier DATASET --output my.safetensors --processes 4
      virnucpro train classifier DATASET --output my.safetensors --resume

    Then: virnucpro predict contigs.fa -m custom -p my.safetensors -e 500
    """
    settings = shared.configuration({name: options[name] for name in ("threads", "no_progress")})

    shared.say_at_start(f"training {output} on {dataset}")
    from virnucpro.precision import choose_precision
    from virnucpro.training.classifier.fitting import fit_classifier
    from virnucpro.training.classifier.trainer import RECIPES
    from virnucpro.ui.step_screen import TrainingScreen

    devices = training_devices(options, settings.machine.threads)
    names = ("hidden", "epochs", "batch_size", "learning_rate", "patience", "seed", "precision")
    given = {name: options[name] for name in names if options[name] is not None}
    training = replace(RECIPES[options["recipe"]], **given)
    choose_precision(training.precision, devices)
    if len(devices) > training.batch_size:
        raise UsageError(
            f"--batch-size {training.batch_size} is less than a frame for each of {len(devices)} "
            f"processes: use fewer"
        )
    choices = {name: options[name] for name in ("resume", "force")}
    screen = TrainingScreen(settings.display)
    with shared.shown_on(screen, settings.warnings) as interruption:
        report = fit_classifier(
            dataset, output, training, devices, screen.show, interruption, **choices
        )
    shared.tell(settings, *_classifier_lines(report, output))


def _classifier_lines(report: TrainingReport | None, output: Path) -> Iterator[str]:
    from virnucpro.metrics.classification import metric_text

    if report is None:
        yield f"Nothing to do: {output} was already trained with these data and settings."
        return
    point = report.point
    yield f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}."
    for part, metrics in report.metrics.items():
        yield (
            f"{part}: {metrics['frames']:,} frames, AUROC {metric_text(metrics['auroc'])}, "
            f"accuracy {metric_text(metrics['accuracy'])}, F1 {metric_text(metrics['f1'])}"
        )
    yield f"Scores are calibrated with a temperature of {report.temperature:.4g}."
    yield f"Classifier: {output}; model card: {output.with_suffix('.md')}"
    yield "Next: " + "\n".join(report.use(output))


@shared.command(short_help="Train a small encoder and its classifier, on the CPU.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the encoder and the classifier.", required=True
)
@shared.option("--steps", Count, "Number of batches.  [default: that of model type lite]")
@shared.option(
    "--start-from ENCODER",
    shared.FILE,
    "Begin with the weights of the lite encoder of an earlier training.",
)
@shared.option(
    "--learning-rate",
    Annotated[float, Meta(gt=0)],
    "Highest learning rate.  [default: that of model type lite]",
)
@shared.option(
    "--mask REGIONS",
    shared.FILE,
    "Do not train on the regions that this table lists in records labelled others, such as "
    "proviruses. It has the columns record, start and end, as STEM_regions.tsv of predict. With a "
    "column group, regions that have a name there are drawn as a group of that name.",
)
@shared.option(
    "--more-of GROUP",
    str,
    "Draw pieces of this group of genomes three times as often. Can be repeated.",
    multiple=True,
)
@shared.seed_option
@shared.threads_option
@shared.force_option
@shared.global_options
def lite(dataset: Path, output_dir: Path, **options: Any) -> None:
    """Train a small encoder and a classifier, as those of model type lite, on DATASET.

    DATASET holds whole records (train prepare --content records). Encoder and classifier are
    trained together on pieces drawn from them, of all chunk lengths of DATASET. The validation part
    calibrates the scores. No GPU is needed. The same command continues an interrupted training.

    Examples:
      virnucpro train prepare genomes.tsv -o data --content records -e 500,300,150
      virnucpro train lite data --output-dir my_lite
      virnucpro train lite data --output-dir trial --steps 500 --threads 4
      virnucpro train lite more --output-dir better --start-from my_lite/lite_encoder.safetensors
      virnucpro predict data/train_records.fa -o found -m lite
      virnucpro train lite data --output-dir cleaner --mask found/train_records_regions.tsv

    Then: virnucpro predict contigs.fa -m custom -p my_lite/lite_classifier.safetensors -e 500
    -c my_lite.yaml, where my_lite.yaml names the encoder:

    \b
      features:
        dnabert: {model_name: my_lite/lite_encoder.safetensors}
    """
    shared.say_at_start(f"training a lite encoder on {dataset}")
    import torch

    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.lite.fitting import fit_lite, training_files
    from virnucpro.training.lite.trainer import LiteTrainingSettings
    from virnucpro.training.run import how_to_predict
    from virnucpro.ui.step_screen import TrainingScreen

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    loaded, force = shared.configuration(), options["force"]
    given = {
        name: options[name]
        for name in ("seed", "steps", "learning_rate", "more_of")
        if options[name] is not None
    }
    advice = f"run the same command again{' without --force' if force else ''} to continue"
    screen = TrainingScreen(loaded.display)
    with shared.shown_on(screen, loaded.warnings, advice=advice) as interruption:
        report = fit_lite(
            Dataset(dataset),
            output_dir,
            LiteTrainingSettings(**given),
            screen.show,
            screen,
            interruption,
            start=options["start_from"],
            mask=options["mask"],
            force=force,
        )
        if report is not None and report["temperature"] is None:
            screen.warn("no validation records of both labels: the scores are not calibrated")
    if report is None:
        shared.tell(
            loaded,
            f"Nothing to do: {output_dir} was already trained with these data and settings.",
        )
        return
    encoder_file, _, classifier_file = training_files(output_dir).results
    use = how_to_predict(
        classifier_file, Dataset(dataset).lengths()[0], {"dnabert": str(encoder_file)}
    )
    lines = [
        f"{part}, {bases} bp: AUROC {'not defined' if row['auroc'] is None else row['auroc']} of "
        f"{row['chunks']:,} chunks, {row['virus']:,} of them virus"
        for part, lengths in report["chunk_auroc"].items()
        for bases, row in lengths.items()
    ]
    shared.tell(
        loaded,
        *lines,
        f"Encoder, classifier and lite.json are in {output_dir}",
        "Next: " + "\n".join(use),
    )
