"""``virnucpro profile``: measures how fast an encoder is, and which batch budget suffices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.contracts import Device, Json
from virnucpro.encoders.family import LETTERS_PER_FRAME
from virnucpro.encoders.registry import family_named, family_names
from virnucpro.errors import DeviceError, UsageError
from virnucpro.formatting import memory_size, percent
from virnucpro.store.work import refuse_other_json

if TYPE_CHECKING:
    from virnucpro.compute.budget_curve import BudgetPoint
    from virnucpro.encoders.batched import BatchedEncoder

EPILOG = """\b
Examples:
  virnucpro profile --model esm2
  virnucpro profile --model dnabert-s --gpus 1 -o dnabert.json
  virnucpro profile --model esm2 -p esm2_t12_35M_UR50D --device cpu --budgets 512,1024,2048

The weights are those that predict would use.
"""
# The option of predict for the batch budget, named after the encoder of the original program.
BATCH_OPTIONS = {"nucleotide": "--dnabert-batch-size", "protein": "--esm-batch-size"}
BATCHES = 4  # per call, on each thread of a CPU; with one, nothing could be prepared ahead
DOUBLINGS = {"cpu": 2, "cuda": 5}  # budgets beyond the least one; a CPU gains nothing early


def counts(text: str) -> tuple[int, ...]:
    """Return ``168,200`` as ``(168, 200)``."""
    parts = shared.separated(text)
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts or [text]):
        raise click.BadParameter(f"{text!r}: expected whole numbers of 1 or more, as in 512,1024")
    return tuple(map(int, parts))


@click.command(epilog=EPILOG, short_help="Measure an encoder over rising batch budgets.")
@click.option(
    "--model",
    "family",
    type=click.Choice(family_names()),
    required=True,
    help="Kind of encoder to measure.",
)
@click.option(
    "-p", "--model-path", metavar="NAME", help="Name, folder or file of another model of this kind."
)
@shared.device_options
@shared.precision_option
@click.option(
    "--lengths", type=counts, metavar="LIST", help="Letters per sequence.  [default: 166 or 499]"
)
@click.option(
    "--budgets",
    type=counts,
    metavar="LIST",
    help="Tokens or sequences per batch.  [default: a rising series]",
)
@click.option("--seconds", type=shared.SECONDS, default=2.0, help="Seconds per budget.")
@shared.json_option
@click.option("-o", "--output", type=shared.FILE, help="Save the result as JSON in this file.")
@shared.short_options
def profile(family: str, as_json: bool, output: Path | None, **options: Any) -> None:
    """Measure how fast an encoder is on this machine, and recommend a batch budget.

    The budget is the number of tokens per batch for ESM-2, and of sequences per batch for
    DNABERT-S. predict measures a budget by itself; this command shows what that gains, and names
    the option that sets another.
    """
    shared.say_at_start(f"measuring {family}")
    from virnucpro.compute.budget_curve import best_budget, doubled_budgets
    from virnucpro.precision import choose_precision, emulation_warnings
    from virnucpro.store.disk import Disk

    refuse_other_json(output, ("model", "points", "recommended"), "--output")
    device = shared.measured_device(options)
    precision = choose_precision(shared.configuration(options).analysis.precision, [device])
    for warning in emulation_warnings(precision, [device]):
        shared.say(f"warning: {warning}")
    encoder = _encoder(family, device, precision, options)
    encoder.optimise()
    molecule = family_named(family).molecule
    lengths = options["lengths"] or (LETTERS_PER_FRAME[molecule],)
    document: dict[str, Json] = {
        "model": options["model_path"] or family,
        "device": device.name,
        "memory": device.memory,
        **encoder.facts(),
        "precision": precision,
        "lengths": list(lengths),
    }
    for meaningless in ("budget", "found"):  # of an encoder that takes whatever it is told
        del document[meaningless]
    if not as_json:
        click.echo(
            f"{document['model']} on {document['device']}, {precision}, {document['attention']}, "
            f"sequences of {', '.join(map(str, lengths))} letters\n{document['unit']:>10} "
            f"{'sequences/s':>12} {'tokens/s':>12} {'waited':>7} {'memory':>10}"
        )
    least = encoder.bounds.least
    budgets: Iterable[int] = options["budgets"] or doubled_budgets(
        least, least << DOUBLINGS[encoder.device.type]
    )
    points = []
    for point in _points(encoder, family, lengths, budgets, options["seconds"]):
        points.append(point)
        if not as_json:
            click.echo(
                f"{point.budget:>10,} {point.sequences_per_second:>12,.1f} "
                f"{point.tokens_per_second:>12,.0f} {percent(point.waited_share, 1):>7} "
                f"{memory_size(point.peak_memory):>10}"
            )
        budget = best_budget(points)
        document["points"] = [asdict(point) for point in points]
        document["recommended"] = budget
        document["option"] = f"{BATCH_OPTIONS[molecule]} {budget}"
        if output is not None:  # after each point, because measuring takes minutes
            Disk().save(output, (json.dumps(document, indent=1) + "\n").encode())
    if not points:
        raise DeviceError("not even the smallest budget fits into the memory: try --budgets 1")
    if as_json:
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(f"Recommended: virnucpro predict {document['option']} ...")


def _points(
    encoder: BatchedEncoder,
    family: str,
    lengths: Sequence[int],
    budgets: Iterable[int],
    seconds: float,
) -> Iterator[BudgetPoint]:
    """Measure one budget after the other. The first that does not fit into the memory ends it."""
    import torch

    from virnucpro.compute.budget_curve import measure_budget, random_sequences

    on_gpu = encoder.device.type == "cuda"
    mean = sum(lengths) / len(lengths) if encoder.bounds.unit == "tokens" else 1
    batches = BATCHES * (1 if on_gpu else torch.get_num_threads())
    for budget in budgets:
        encoder.set_budget(budget)
        count = batches * max(1, int(budget / mean))
        sequences = random_sequences(family_named(family).alphabet, lengths, count)
        try:
            yield measure_budget(encoder, budget, sequences, seconds, on_gpu=on_gpu)
        except torch.OutOfMemoryError:
            return


def _encoder(
    family: str, device: Device, precision: str, options: dict[str, Any]
) -> BatchedEncoder:
    """Return the encoder on the device."""
    from virnucpro.encoders.batched import BatchedEncoder
    from virnucpro.encoders.registry import locate, open_encoder

    analysis = shared.configuration().analysis
    molecule = family_named(family).molecule
    name = analysis.protein_model if molecule == "protein" else analysis.nucleotide_model
    source = locate(options["model_path"] or name, molecule)
    encoder = open_encoder(source, device.kind, precision, budget=1, truncation=analysis.truncation)
    if not isinstance(encoder, BatchedEncoder):
        raise UsageError(f"{source.name} has no batch budget to measure: name a real model")
    return encoder
