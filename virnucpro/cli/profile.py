"""``virnucpro profile``: measures how fast an encoder is, and which batch budget suffices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, command, numbers_of, option
from virnucpro.encoders.family import LETTERS_PER_FRAME
from virnucpro.encoders.registry import family_named, family_names
from virnucpro.errors import DeviceError, UsageError
from virnucpro.formatting import memory_size, percent
from virnucpro.settings import SETTINGS, Count

BATCHES = 4  # per call, on each thread of a CPU; with one, nothing could be prepared ahead
DOUBLINGS = {"cpu": 2, "cuda": 5}  # budgets beyond the least one
COUNTS = numbers_of(Count)
FAMILIES = tuple(name for name in family_names() if name != "lite")  # it has no batch budget
ROW = "{:>10} {:>12} {:>12} {:>7} {:>10}"


@command(
    option("--model family", FAMILIES, "Kind of encoder to measure.", required=True),
    option("-p --model-path NAME", str, "Name, folder or file of another model of this kind."),
    option("--lengths LIST", COUNTS, "Letters per sequence.  [default: 166 or 499]"),
    option("--budgets LIST", COUNTS, "Tokens or sequences per batch.  [default: a rising series]"),
    option("--seconds", Annotated[float, Meta(ge=0)], "Seconds per budget.", default=2.0),
    option("-o --output", FILE, "Save the result as JSON in this file."),
    common="device gpus precision json replace",
)
def profile(family: str, as_json: bool, output: Path | None, **options: Any) -> None:
    """Measure an encoder over rising batch budgets.

    The budget is the number of tokens per batch for ESM-2, and of sequences per batch for
    DNABERT-S. predict measures a budget by itself; this command shows what that gains, and names
    the option that sets another.

    Examples:
      virnucpro profile --model dnabert-s --gpus 1 -o dnabert.json
      virnucpro profile --model esm2 -p esm2_t12_35M_UR50D --device cpu --budgets 512,1024,2048
    """
    import torch

    from virnucpro.compute.budget import best_budget, measure_budget, random_sequences
    from virnucpro.encoders.batched import BatchedEncoder
    from virnucpro.encoders.registry import locate, open_encoder
    from virnucpro.precision import choose_precision
    from virnucpro.workers.processes import settled_device

    settings = shared.configuration(options)
    analysis, device = settings.analysis, settled_device(settings.machine)
    precision = choose_precision(analysis.precision, [device])
    precision = family_named(family).instead.get(precision, precision)
    molecule, on_gpu = family_named(family).molecule, device.kind == "cuda"
    name = analysis.protein_model if molecule == "protein" else analysis.nucleotide_model
    if family_named(family).packaged or not family_named(family).has_weights:
        name = family  # its own model, and not the one that predict takes
    source = locate(options["model_path"] or name, molecule)
    encoder = open_encoder(source, device.kind, precision, budget=1, truncation=analysis.truncation)
    if not isinstance(encoder, BatchedEncoder):
        raise UsageError(f"{source.name} has no batch budget to measure: name a real model")
    encoder.optimise()
    facts = encoder.facts()
    document = {
        "model": options["model_path"] or family,
        "device": device.name,
        "memory": device.memory,
        "precision": precision,
        **{name: fact for name, fact in facts.items() if name not in ("budget", "found")},
    }
    lengths = options["lengths"] or (LETTERS_PER_FRAME[molecule],)
    document["lengths"] = list(lengths)
    if not as_json:
        shared.tell(
            f"{document['model']} on {device.name}, {precision}, {document['attention']}, "
            f"sequences of {', '.join(map(str, lengths))} letters",
            ROW.format(document["unit"], "sequences/s", "tokens/s", "waited", "memory"),
            always=True,
        )
    mean = sum(lengths) / len(lengths) if encoder.bounds.unit == "tokens" else 1
    batches = BATCHES * (1 if on_gpu else torch.get_num_threads())
    least = encoder.bounds.least
    points = []
    for budget in options["budgets"] or [least << n for n in range(DOUBLINGS[device.kind] + 1)]:
        encoder.set_budget(budget)
        count = batches * max(1, int(budget / mean))
        sequences = random_sequences(family_named(family).alphabet, lengths, count)
        try:
            point = measure_budget(encoder, budget, sequences, options["seconds"], on_gpu=on_gpu)
        except torch.OutOfMemoryError:
            break
        points.append(point)
        if not as_json:
            speeds = (f"{point['sequences_per_second']:,.1f}", f"{point['tokens_per_second']:,.0f}")
            rest = (percent(point["waited_share"], 1), memory_size(point["peak_memory"]))
            shared.tell(ROW.format(f"{budget:,}", *speeds, *rest), always=True)
    if not points:
        raise DeviceError("not even the smallest budget fits into the memory: try --budgets 1")
    document["points"] = points
    document["recommended"] = best_budget(points)
    document["option"] = f"{SETTINGS[f'{molecule}_batch'].options} {document['recommended']}"
    text = json.dumps(document, indent=1)
    if output is not None:
        shared.save_output(output, f"{text}\n".encode(), force=options["force"])
    advice = f"Recommended: virnucpro predict {document['option']} ..."
    shared.tell(text if as_json else advice, always=True)
