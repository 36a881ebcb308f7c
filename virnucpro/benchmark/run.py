"""A benchmark from what was asked for to the document that says what was found."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import torch

from virnucpro.benchmark.accuracy import classifier_for, judge
from virnucpro.benchmark.encoders import Plan, measure_model
from virnucpro.benchmark.host import host_seconds, measure_stages
from virnucpro.benchmark.machine import facts
from virnucpro.benchmark.models import Model
from virnucpro.benchmark.workload import MIXES, Workload, from_file, made_up
from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.contracts import Device, Json
from virnucpro.errors import DeviceError
from virnucpro.store.disk import DiskWithoutResume

Say = Callable[[str], None]
SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """What is to be measured.

    Attributes:
        command: as it was typed.
        mix: a key of ``MIXES``; with ``source`` only its chunk length counts.
        source: a file whose own frames are embedded; None makes some up.
        accuracy: a file on which precisions are compared; None does not.
        saved: where the document goes, after every model; None nowhere.
    """

    command: str
    models: Sequence[Model]
    plan: Plan
    mix: str
    source: Path | None
    sequences: int
    stages: bool
    accuracy: Path | None
    classifier: Path | None
    saved: Path | None


def carry_out(request: Request, device: Device, say: Say) -> Iterator[dict[str, Json]]:
    """Measure; yields the document as far as it is, and saves it, whenever a part is finished.

    Raises:
        ModelError: a model or the classifier is not usable.
        InputError: the sequences are not.
        DeviceError: a model does not fit into the memory of the GPU.
        OutputError: the document cannot be written.
    """
    call_mkl_functions_once()  # fair-esm and transformers make their rotary tables with torch
    mix = MIXES[request.mix]
    whole = from_file(request.source, mix.chunk) if request.source else None
    work = whole.thinned(request.sequences) if whole else made_up(request.mix, request.sequences)
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "command": request.command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": facts(device),
        "workload": _about(work),
        "models": [],
        "stages": [],
        "host_seconds_a_million": None,
        "accuracy": None,
    }
    if request.saved is not None and not request.saved.exists():
        _save(request.saved, document)  # whether it can be written is seen before the work
    for _ in _parts(request, work, document, say):
        _save(request.saved, document)
        yield document


def _parts(request: Request, work: Workload, document: dict[str, Json], say: Say) -> Iterator[None]:
    """Fill in one part after the other."""
    plan, length = request.plan, work.chunk_length
    frames = from_file(request.accuracy, length) if request.accuracy else None
    classifier = None
    if frames is not None:  # what is wrong is said before the work
        classifier = classifier_for(request.models, request.classifier, length, say)
    if request.stages:
        document["stages"] = measure_stages(work, request.source, plan.seconds, say)
        document["host_seconds_a_million"] = host_seconds(document["stages"])
        yield
    for model in request.models:
        measure = partial(measure_model, model, work.of(model.molecule), plan, say)
        document["models"].append(_fitting(measure, model.name))
        yield
        _release()
    if frames is not None:
        judged = partial(
            judge,
            request.models,
            frames,
            plan.precisions,
            classifier,
            plan.device,
            plan.budget,
            say,
        )
        document["accuracy"] = _fitting(judged, "one of the models")
        yield


def disagreeing(document: Mapping[str, Json]) -> list[str]:
    """Implementations that gave other embeddings, by model, name and precision."""
    return [
        f"{model['model']}: {row['implementation']} {row['precision']} (least cosine "
        f"{row['least_cosine']:.6f})"
        for model in document["models"]
        for row in model["results"]
        if row["check"] == "differs"
    ]


def _about(work: Workload) -> dict[str, Json]:
    return {
        "name": work.name,
        "chunk_length": work.chunk_length,
        "sequences": len(work.chunks),
        "residues": sum(map(len, work.proteins)),
        "bases": sum(map(len, work.nucleotides)),
    }


def _fitting(measure: Callable[[], dict[str, Json]], name: str) -> dict[str, Json]:
    try:
        return measure()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{name} does not fit into the memory of the GPU, with all that is held beside it: "
            f"measure one --precision with --no-peers, or a smaller --budget"
        ) from error


def _release() -> None:
    """Let go of one model before the next is opened."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _save(path: Path | None, document: Mapping[str, Json]) -> None:
    if path is not None:
        DiskWithoutResume().save(path, (json.dumps(document, indent=1) + "\n").encode())
