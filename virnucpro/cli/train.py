"""``virnucpro train``: makes data sets of genomes, embeds them, and trains on them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import click
from msgspec import Meta

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, FOLDER, command, numbers_of, option
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, UsageError
from virnucpro.settings import MOST, Bases, Count, MachineSettings, Share

Rate = Annotated[float, Meta(gt=0)]
Batch = Annotated[int, Meta(ge=2, le=MOST)]
LENGTHS = numbers_of(Bases)
DATASET = click.Argument(["dataset"], type=FOLDER, metavar="DATASET")
ALREADY = "Nothing to do: it was already trained with these data and settings."
EPILOG = """\b
The steps in their order:
  virnucpro train prepare genomes.tsv --output-dir DATASET
  virnucpro train embed DATASET
  virnucpro train classifier DATASET --output my.safetensors
"""
TRAINING_DEVICES = (
    option("--multi-gpu", bool, "Train on every visible GPU instead of one.", default=None),
    option("--gpu-ids LIST", str, "Train on these GPUs, such as 0,1, or their UUIDs."),
    option("--processes", Count, "Train on the CPU, in N processes."),
)


def training_machine(threads: int | None, options: Mapping[str, Any]) -> MachineSettings:
    """Return the settings for one GPU or the CPU, unless the options ask for more."""
    several = options["multi_gpu"] or options["gpu_ids"]
    return MachineSettings(
        device=options.get("device") or ("cuda" if options["multi_gpu"] else "auto"),
        gpus=options["gpu_ids"],
        cpu_workers=options["processes"],
        max_workers=None if several else 1,
        threads=threads,
    )


@command(
    click.Argument(["table"], type=FILE, metavar="TABLE"),
    option("-o --output-dir DATASET", FOLDER, "Folder of the data set.", required=True),
    option("--genomes", FOLDER, "Where the paths in TABLE start.  [default: the folder of TABLE]"),
    option("--content", ("frames", "records"), "Open frames, or whole records.", default="frames"),
    option("-e --expected-length LIST lengths", LENGTHS, "Bases per chunk.", default="500"),
    option("--validation", Share, "Fraction of the genomes for validation.", default=0.1),
    option("--test", Share, "Fraction of the genomes for the test.", default=0.1),
    option("--relatives", Share, "Largest share of 31-mers in held-out genomes.", default=0.05),
    common="seed force",
)
def prepare(table: Path, output_dir: Path, genomes: Path | None, **options: Any) -> None:
    """Make a labelled data set from a table of genomes.

    Each genome goes to train, validation or test as a whole, by its name, or together with all
    genomes of its taxon. Genomes that are nearly identical to held-out ones are left out. Records
    are cut into chunks as predict does, and the open reading frames of the chunks are written; from
    GenBank files only frames inside annotated proteins are kept. The same command gives the same
    data set to the byte, and does nothing if the data set exists.

    Examples:
      virnucpro train prepare genomes.tsv --output-dir data
      virnucpro train prepare genomes.tsv -o data -e 300,500 --genomes /data/refseq
      virnucpro train prepare genomes.tsv -o records --content records -e 500,300,150

    \b
    TABLE is tab-separated, with a header. The columns file, label (virus or others) and group are
    required. The others are optional:
      split    auto, train, validation, test, or a fraction such as test=0.2
      genome   pattern whose first group names the genome (default: every record is a genome)
      taxon    pattern whose first group names a genus, host or family that is never divided
      match    pattern of the headers that the row is for (the first matching row counts)
    """
    import pandas as pd

    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.data.prepare import prepare_dataset

    with shared.screen(shared.configuration()) as screen:
        description = prepare_dataset(
            table,
            Dataset(output_dir),
            screen.show,
            genomes=genomes or table.parent,
            command=shared.command_line(),
            **options,
        )
    counts = pd.DataFrame(description["counts"])
    formatters = dict.fromkeys(counts.columns[2:], "{:,}".format)
    place = shlex.quote(str(output_dir))
    shared.tell(
        counts.to_string(index=False, formatters=formatters),
        f"The data set is in {output_dir}; genomes.tsv says which record is in which part, and why",
        *([f"Next: virnucpro train embed {place}"] if options["content"] == "frames" else []),
    )


@command(
    DATASET,
    option(
        "-m --model-type",
        ("300", "500", "toy"),  # not lite, whose encoder reads whole chunks, and not frames
        "Model type of predict whose encoders are used.  [default: 500]",
    ),
    option("--nucleotide-model NAME", str, "Name or folder of another encoder."),
    option("--protein-model NAME", str, "Name, folder or file of another encoder."),
    common="device gpus cpu_workers compile precision protein_batch nucleotide_batch "
    "tokenizer_threads threads resume force no_progress",
)
def embed(dataset: Path, **options: Any) -> int:
    """Embed the frames of a data set.

    DATASET was made by train prepare, and is then used by train classifier. The work is done by
    workers as in predict. The same command again computes only what is missing and what failed.
    Frames that fail are left out of the training.

    Examples:
      virnucpro train embed DATASET
      virnucpro train embed DATASET --protein-model esm2_t6_8M_UR50D --device cpu
    """
    settings = shared.configuration(options)
    from virnucpro.training import embed as embedding
    from virnucpro.training.data.dataset import Dataset

    # An encoder that is named here takes the place of that of the model type.
    named = {name: options[name] for name in ("nucleotide_model", "protein_model") if options[name]}
    data = Dataset(dataset.absolute())
    with shared.screen(settings, log=data.layout("train").log) as screen:
        lines, failed = embedding.embed(
            data,
            replace(settings.analysis.resolved(), **named),
            settings.machine,
            screen.show,
            screen.interruption,
            force=options["force"],
            command=shared.command_line(),
        )
    if failed:
        lines.append("Failed frames are left out of the training: see failed_files.txt.")
    shared.tell(*lines, f"Next: virnucpro train classifier {dataset} --output my.safetensors")
    return EXIT_PARTIAL if failed else EXIT_OK


@command(
    DATASET,
    option("-o --output", FILE, "File of the classifier, as NAME.safetensors.", required=True),
    option("--hidden", Count, "Number of hidden units.", default=512),
    option("--epochs", Count, "Largest number of epochs.", default=200),
    option("--batch-size", Batch, "Frames of all processes.", default=32),
    option("--learning-rate", Rate, "Highest learning rate.", default=0.0002),
    option("--patience", Count, "Epochs without a lower validation loss.", default=5),
    option("--seed", shared.CountOrZero, "Seed of all random choices.", default=42),
    *TRAINING_DEVICES,
    option("--precision", ("fp32", "bf16"), "Arithmetic of matrix products.", default="fp32"),
    common="threads resume force no_progress",
)
def classifier(dataset: Path, output: Path, **options: Any) -> None:
    """Train a classifier on an embedded data set.

    DATASET was made by train prepare, and embedded by train embed. The validation part decides when
    the training stops, and calibrates the scores. The test part is only measured at the end. The
    same command gives the same file to the byte on the CPU.

    Examples:
      virnucpro train classifier DATASET --output my.safetensors
      virnucpro train classifier DATASET --output my.safetensors --batch-size 512 --gpu-ids 0,1
      virnucpro train classifier DATASET --output my.safetensors --processes 4
    """
    settings = shared.configuration(options)
    from virnucpro.devices import choose_devices
    from virnucpro.precision import choose_precision
    from virnucpro.training.classifier import OPTIONS, TrainingSettings, fit_classifier

    devices = choose_devices(training_machine(settings.machine.threads, options))
    training = TrainingSettings(**{name: options[name] for name in OPTIONS})
    choose_precision(training.precision, devices)
    if len(devices) > training.batch_size:
        raise UsageError("--batch-size is less than the number of processes: use fewer")
    with shared.screen(settings) as screen:
        lines = fit_classifier(
            dataset, output, training, devices, screen.show, force=options["force"]
        )
    shared.tell(*(lines or [ALREADY]))


train = shared.Group(
    "train",
    commands=[prepare, embed, classifier],
    help="Train a classifier on your genomes.",
    epilog=EPILOG,
)
