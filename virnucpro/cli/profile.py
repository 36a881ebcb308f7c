"""``virnucpro profile``: measures how fast an encoder is, and which batch budget suffices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

import virnucpro.cli.shared as shared
from virnucpro.contracts import Json
from virnucpro.encoders.family import LETTERS_PER_FRAME
from virnucpro.encoders.registry import family_named, family_names
from virnucpro.errors import DeviceError, UsageError
from virnucpro.formatting import memory_size, percent
from virnucpro.settings import Count
from virnucpro.store.disk import Disk
from virnucpro.store.work import refuse_other_json

if TYPE_CHECKING:
    from virnucpro.encoders.batched import BatchedEncoder

# The option of predict for the batch budget, named after the encoder of the original program.
BATCH_OPTIONS = {"nucleotide": "--dnabert-batch-size", "protein": "--esm-batch-size"}
BATCHES = 4  # per call, on each thread of a CPU; with one, nothing could be prepared ahead
DOUBLINGS = {False: 2, True: 5}  # on a GPU; budgets beyond the least one


COUNTS = shared.ListType(shared.NumberType(Count))


@shared.command(short_help="Measure an encoder over rising batch budgets.")
@shared.option("--model family", family_names(), "Kind of encoder to measure.", required=True)
@shared.option("-p --model-path NAME", str, "Name, folder or file of another model of this kind.")
@shared.device_options
@shared.precision_option
@shared.option("--lengths LIST", COUNTS, "Letters per sequence.  [default: 166 or 499]")
@shared.option(
    "--budgets LIST", COUNTS, "Tokens or sequences per batch.  [default: a rising series]"
)
@shared.option("--seconds", Annotated[float, Meta(ge=0)], "Seconds per budget.", default=2.0)
@shared.json_option
@shared.option("-o --output", shared.FILE, "Save the result as JSON in this file.")
@shared.short_options
def profile(family: str, as_json: bool, output: Path | None, **options: Any) -> None:
    """Measure how fast an encoder is on this machine, and recommend a batch budget.

    The budget is the number of tokens per batch for ESM-2, and of sequences per batch for
    DNABERT-S. predict measures a budget by itself; this command shows what that gains, and names
    the option that sets another.

    Examples:
      virnucpro profile --model esm2
      virnucpro profile --model dnabert-s --gpus 1 -o dnabert.json
      virnucpro profile --model esm2 -p esm2_t12_35M_UR50D --device cpu --budgets 512,1024,2048

    The weights are those that predict would use.
    """
    shared.say_at_start(f"measuring {family}")
    import torch

    from virnucpro.compute.budget import (
        best_budget,
        measure_budget,
        random_sequences,
    )

    refuse_other_json(output, ("model", "points", "recommended"), "--output")
    encoder, document = _opened(family, options)
    molecule = family_named(family).molecule
    lengths = options["lengths"] or (LETTERS_PER_FRAME[molecule],)
    document["lengths"] = list(lengths)
    if not as_json:
        click.echo(
            f"{document['model']} on {document['device']}, {document['precision']}, "
            f"{document['attention']}, sequences of {', '.join(map(str, lengths))} letters\n"
            f"{document['unit']:>10} {'sequences/s':>12} {'tokens/s':>12} {'waited':>7} "
            f"{'memory':>10}"
        )
    on_gpu = encoder.device.type == "cuda"
    mean = sum(lengths) / len(lengths) if encoder.bounds.unit == "tokens" else 1
    batches = BATCHES * (1 if on_gpu else torch.get_num_threads())
    least = encoder.bounds.least
    points = []
    for budget in options["budgets"] or [least << n for n in range(DOUBLINGS[on_gpu] + 1)]:
        encoder.set_budget(budget)
        count = batches * max(1, int(budget / mean))
        sequences = random_sequences(family_named(family).alphabet, lengths, count)
        try:
            point = measure_budget(encoder, budget, sequences, options["seconds"], on_gpu=on_gpu)
        except torch.OutOfMemoryError:
            break
        points.append(point)
        if not as_json:
            click.echo(
                f"{budget:>10,} {point['sequences_per_second']:>12,.1f} "
                f"{point['tokens_per_second']:>12,.0f} {percent(point['waited_share'], 1):>7} "
                f"{memory_size(point['peak_memory']):>10}"
            )
    if not points:
        raise DeviceError("not even the smallest budget fits into the memory: try --budgets 1")
    document["points"] = points
    document["recommended"] = best_budget(points)
    document["option"] = f"{BATCH_OPTIONS[molecule]} {document['recommended']}"
    text = json.dumps(document, indent=1)
    if output is not None:
        Disk().save(output, f"{text}\n".encode())
    click.echo(text if as_json else f"Recommended: virnucpro predict {document['option']} ...")


def _opened(family: str, options: dict[str, Any]) -> tuple[BatchedEncoder, dict[str, Json]]:
    """Return the encoder on the device, and what is known about both."""
    from virnucpro.encoders.batched import BatchedEncoder
    from virnucpro.encoders.registry import locate, open_encoder
    from virnucpro.executors.processes import settled_device
    from virnucpro.precision import choose_precision

    settings = shared.configuration(options)
    analysis, device = settings.analysis, settled_device(settings.machine)
    precision = choose_precision(analysis.precision, [device])
    molecule = family_named(family).molecule
    name = analysis.protein_model if molecule == "protein" else analysis.nucleotide_model
    source = locate(options["model_path"] or name, molecule)
    encoder = open_encoder(source, device.kind, precision, budget=1, truncation=analysis.truncation)
    if not isinstance(encoder, BatchedEncoder):
        raise UsageError(f"{source.name} has no batch budget to measure: name a real model")
    encoder.optimise()
    facts = {
        name: fact for name, fact in encoder.facts().items() if name not in ("budget", "found")
    }
    place = {"device": device.name, "memory": device.memory, "precision": precision}
    return encoder, {"model": options["model_path"] or family, **place, **facts}
