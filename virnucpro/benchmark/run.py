"""Carry out a benchmark and write its results into one document."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch

from virnucpro.benchmark.accuracy import classifier_for, compare_precisions
from virnucpro.benchmark.encoders import MeasurementPlan, measure_model
from virnucpro.benchmark.host import host_seconds, measure_stages
from virnucpro.benchmark.machine import machine_facts
from virnucpro.benchmark.measuring import Notify
from virnucpro.benchmark.models import BenchmarkModel
from virnucpro.benchmark.workload import MIXES, Workload, frames_of_file, random_frames
from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.contracts import Device, Json
from virnucpro.errors import DeviceError
from virnucpro.store.disk import Disk

SCHEMA = 1


@dataclass(frozen=True)
class BenchmarkRequest:
    """What the user asked for.

    Attributes:
        command: the command line.
        mix: a key of ``MIXES``. With ``source`` only its chunk length counts.
        source: a file whose frames are embedded; None for random frames.
        accuracy: a file on whose frames precisions are compared; None for no comparison.
        saved: the file for the document, which is saved again and again; None for no file.
    """

    command: str
    models: Sequence[BenchmarkModel]
    plan: MeasurementPlan
    mix: str
    source: Path | None
    sequences: int
    stages: bool
    accuracy: Path | None
    classifier: Path | None
    saved: Path | None


def run_benchmark(
    request: BenchmarkRequest, device: Device, notify: Notify
) -> Iterator[dict[str, Json]]:
    """Measure. Save and yield the document so far after every precision, round and part.

    Raises:
        ModelError: a model or the classifier cannot be used.
        InputError: the sequences cannot be used.
        DeviceError: a model does not fit into the memory of the GPU.
        OutputError: the document cannot be written.
    """
    call_mkl_functions_once()  # fair-esm and transformers make their rotary tables with torch
    mix = MIXES[request.mix]
    whole = frames_of_file(request.source, mix.chunk) if request.source else None
    work = (
        whole.thinned(request.sequences) if whole else random_frames(request.mix, request.sequences)
    )
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "command": request.command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine_facts(device),
        "workload": _about(work),
        "models": [],
        "stages": [],
        "host_seconds_per_million": None,
        "accuracy": None,
    }
    if request.saved is not None and not request.saved.exists():
        _save(request.saved, document)  # a file that cannot be written is found before the work
    for _ in _parts(request, work, document, notify):
        _save(request.saved, document)
        yield document


def _parts(
    request: BenchmarkRequest, work: Workload, document: dict[str, Json], notify: Notify
) -> Iterator[None]:
    """Fill in the document, and yield whenever there is more in it."""
    plan, length = request.plan, work.chunk_length
    frames = frames_of_file(request.accuracy, length) if request.accuracy else None
    classifier = None
    if frames is not None:  # an error is reported before the work
        classifier = classifier_for(request.models, request.classifier, length, notify)
    if request.stages:
        document["stages"] = measure_stages(work, request.source, plan.seconds, notify)
        document["host_seconds_per_million"] = host_seconds(document["stages"])
        yield
    for number, model in enumerate(request.models):
        with _memory_suffices(model.name):
            for measured in measure_model(model, work.of(model.molecule), plan, notify):
                document["models"][number:] = [measured]
                yield
        _release()
    if frames is not None:
        with _memory_suffices("one of the models"):
            document["accuracy"] = compare_precisions(
                request.models,
                frames,
                plan.precisions,
                classifier,
                plan.device,
                plan.budget,
                notify,
            )
        yield


def disagreeing(document: Mapping[str, Json]) -> list[str]:
    """Return the implementations that gave other embeddings, by model, name and precision."""
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


@contextmanager
def _memory_suffices(name: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{name} does not fit into the memory of the GPU, with all that is held beside it: "
            f"measure one --precision with --no-peers, or a smaller --budget"
        ) from error


def _release() -> None:
    """Free one model before the next is opened."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _save(path: Path | None, document: Mapping[str, Json]) -> None:
    if path is not None:
        Disk().save(path, (json.dumps(document, indent=1) + "\n").encode())
