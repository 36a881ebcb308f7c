"""A file that is replaced while a run works: nothing is made from the new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.test_changed_world import World, _results, made, save_classifier, world
from tests.unit.encoders.small import fair_model, save_fair
from virnucpro.encoders.registry import locate
from virnucpro.errors import ModelError, OutputError
from virnucpro.events import Event, StageStarted, WorkerReady
from virnucpro.run.predict import run_prediction

__all__ = ["made", "world"]  # fixtures


def _other_model(world: World) -> Path:
    path = world.home / "other.pt"
    save_fair(fair_model(token_dropout=False), path)
    return path


def _other_classifier(world: World) -> Path:
    width = (
        locate(str(world.home / "dnabert"), "nucleotide").dim
        + locate(str(world.home / "esm.pt"), "protein").dim
    )
    return save_classifier(world.home / "new.safetensors", width, 7)


def _run(world: World, change: Callable[[Event], None], **machine: object) -> None:
    request = replace(world.request, machine=replace(world.request.machine, **machine))
    run_prediction(request, change)


def _when(stage: str, action: Callable[[], object], kind: type = StageStarted) -> Callable:
    fired: list[bool] = []

    def show(event: Event) -> None:
        if isinstance(event, kind) and event.stage == stage and not fired:  # type: ignore[attr-defined]
            fired.append(True)
            action()

    return show


@pytest.mark.parametrize("kind", [StageStarted, WorkerReady], ids=["before", "while"])
@pytest.mark.parametrize("workers", [None, 1], ids=["here", "in a process"])
def test_a_replaced_model_ends_the_run_and_the_old_one_goes_on(
    world: World, made: World, kind: type, workers: int | None
) -> None:
    shutil.rmtree(world.out)
    model, kept = world.home / "esm.pt", world.home / "kept.pt"
    model.rename(kept)
    shutil.copy(kept, model)
    other = _other_model(world)
    machine = {} if workers is None else {"device": "auto", "cpu_workers": workers}
    with pytest.raises(ModelError, match=r"esm\.pt on \S+ is not the file"):
        _run(world, _when("protein_embeddings", lambda: other.replace(model), kind), **machine)
    assert not list(world.out.glob("in_protein/*ESM.pt*"))
    kept.replace(model)
    _run(world, lambda event: None)
    assert _results(world.out) == _results(made.out)


def test_a_replaced_classifier_makes_no_scores(world: World, made: World) -> None:
    shutil.rmtree(world.out)
    path, kept = world.home / "c.safetensors", world.home / "kept.safetensors"
    shutil.copy(path, kept)
    other = _other_classifier(world)
    with pytest.raises(ModelError, match="is not the file that the run began with"):
        _run(world, _when("prediction", lambda: other.replace(path)))
    assert not (world.out / "in_merged/prediction_results.txt").exists()
    kept.replace(path)
    _run(world, lambda event: None)
    assert _results(world.out) == _results(made.out)


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("translation", "in_chunked200.fa"),
        ("splitting", "in_protein.faa"),
        ("nucleotide_embeddings", "in_nucleotide/output_1.fa"),
        ("protein_embeddings", "in_protein/output_1.fa"),
        ("merging", "in_protein/output_1_ESM.pt"),
        ("prediction", "in_merged/output_1_merged.pt"),
        ("consensus", "in_merged/prediction_results.txt"),
    ],
)
def test_an_intermediate_file_that_changes_after_it_was_proved(
    world: World, made: World, stage: str, name: str
) -> None:
    shutil.rmtree(world.out)
    path = world.out / name

    def change() -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    with pytest.raises(OutputError, match=r"was changed while the run used it"):
        _run(world, _when(stage, change))
    _run(world, lambda event: None)
    assert _results(world.out) == _results(made.out)
