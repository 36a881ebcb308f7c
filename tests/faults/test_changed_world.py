"""docs/checkpoints.md says what happens after each change between run and resume; this reads it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from tests.cli.inputs import carried_out, open_bases, toy_request
from tests.unit.encoders.small import fair_model, make_dnabert, save_fair
from tests.unit.test_classifier import MLPClassifier
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.contracts import Task
from virnucpro.encoders.registry import locate
from virnucpro.errors import ModelError, ResumeRefusedError, UsageError, VirNucProError
from virnucpro.events import Event, StageStarted, WorkerReady
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest

PAGE = (Path(__file__).parents[2] / "docs/checkpoints.md").read_text()


@dataclass(frozen=True)
class World:
    """A finished run with everything kept, and what it was made from."""

    home: Path
    request: PredictionRequest

    @property
    def out(self) -> Path:
        return self.home / "out"

    def file(self, name: str) -> Path:
        """A file by its name in the documentation."""
        if name == "the input":
            return self.home / "in.fa"
        return self.out / name.replace("STEM", "in").replace("{L}", "200")


def _table(title: str) -> list[list[str]]:
    after = PAGE[PAGE.index(f"| {title} |") :]
    rows = [line for line in after.split("\n\n")[0].splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


FILES = _table("file")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("world")
    nucleotide, protein = make_dnabert(home / "dnabert"), save_fair(fair_model(), home / "esm.pt")
    width = locate(str(nucleotide), "nucleotide").dim + locate(str(protein), "protein").dim
    state = MLPClassifier(width, 4).eval().state_dict()
    torch.manual_seed(1)
    for layer in ("hidden_layer", "output_layer"):  # scores on both sides of the cut
        for name in (f"{layer}.weight", f"{layer}.bias"):
            state[name] = torch.randn_like(state[name])
    classifier = home / "c.safetensors"
    classifier.write_bytes(classifier_to_bytes(state, encoders=[], chunk_lengths=[], extra={}))
    # The last ones have the same bases as the first ones.
    records = (f">r{n}\n{open_bases(60 + n % 25, n % 25)}\n" for n in range(30))
    (home / "in.fa").write_text("".join(records))
    models = {"nucleotide_model": nucleotide, "protein_model": protein, "classifier": classifier}
    request = toy_request(
        home / "in.fa",
        home / "out",
        **{name: str(path) for name, path in models.items()},
        **{"model_type": "custom", "chunk_length": 200, "sequences_per_file": 25},
        remove_intermediate=False,
    )
    run_prediction(request, lambda event: None)
    return World(home, request)


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    home = tmp_path / "home"
    shutil.copytree(made.home, home)
    moved = replace(made.request, source=str(home / "in.fa"), output_dir=home / "out")
    request = _asked(
        World(home, moved),
        classifier=str(home / "c.safetensors"),
        nucleotide_model=str(home / "dnabert"),
        protein_model=str(home / "esm.pt"),
    )
    return World(home, request)


def _verdict(request: PredictionRequest) -> str:
    """What the documentation calls it."""
    try:
        pieces = carried_out(request).pieces
    except ResumeRefusedError:
        return "refused"
    except UsageError as error:
        return "not found" if "No such file" in str(error) else str(error)
    return ", ".join(pieces) or "goes on"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


CHANGES: dict[str, Callable[[Path], object]] = {
    "touched": lambda p: os.utime(p, (1, 1)),
    "deleted": lambda p: p.unlink(),
    "cut short": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "one bit flipped": _flip,
}
CASES = [
    (row[0], change, verdict)
    for row in FILES[2:]
    for change, verdict in zip(FILES[0][1:], row[1:], strict=True)
]


def _results(out: Path) -> dict[str, bytes]:
    names = ["in_chunks.tsv", "in_contigs.tsv", "in_virus.fna"]
    names += ["in_merged/prediction_results.txt", "in_merged/prediction_results_highestscore.csv"]
    return {name: (out / name).read_bytes() for name in names}


@pytest.mark.parametrize(("file", "change", "verdict"), CASES)
def test_changed_files(world, made, file, change, verdict):
    CHANGES[change](world.file(file))
    assert _verdict(world.request) == verdict
    if verdict not in ("refused", "not found"):
        assert _results(world.out) == _results(made.out)
        assert _verdict(world.request) == "goes on"


def _rename_models(world: World) -> PredictionRequest:
    (world.home / "dnabert").rename(world.home / "d2")
    (world.home / "esm.pt").rename(world.home / "e2.pt")
    (world.home / "c.safetensors").rename(world.home / "c2.safetensors")
    return _asked(
        world,
        nucleotide_model=str(world.home / "d2"),
        protein_model=str(world.home / "e2.pt"),
        classifier=str(world.home / "c2.safetensors"),
    )


def _asked(world: World, **changes: object) -> PredictionRequest:
    """The request with other settings."""
    return replace(world.request, settings=world.request.settings.with_values(changes))


def _other_protein_model(world: World) -> PredictionRequest:
    save_fair(fair_model(token_dropout=False), world.home / "other.pt")
    return _asked(world, protein_model=str(world.home / "other.pt"))


def _other_nucleotide_model(world: World) -> PredictionRequest:
    path = world.home / "dnabert/config.json"
    path.write_text(path.read_text().replace("1e-12", "1e-11"))
    return world.request


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (_other_nucleotide_model, "refused"),
        (_other_protein_model, "refused"),
        (_rename_models, "goes on"),
    ],
)
def test_other_models(world, made, change, verdict):
    """Every other setting is in ``tests/cli/test_changed_options.py``."""
    assert _verdict(change(world)) == verdict
    assert _results(world.out) == _results(made.out)


def _swap(a: Path, b: Path) -> None:
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)


def test_features_that_are_swapped_with_their_receipts_are_made_again(world, made):
    for suffix in ("", ".done"):
        _swap(*(world.file(f"STEM_protein/output_{n}_ESM.pt{suffix}") for n in (1, 2)))
    assert carried_out(world.request).pieces == {"protein_embeddings": 2}
    assert _results(world.out) == _results(made.out)


def test_stray_temporary_files_are_removed(world):
    strays = [
        world.out / ".in_contigs.tsv.elsewhere.999999999.tmp",
        world.out / "in_protein/.output_1_ESM.pt.elsewhere.999999999.tmp",
        world.out / ".checkpoints/runs/in/state/.run.json.elsewhere.999999999.tmp",
        # Of a search that a signal ended.
        Task("", 1, (), (), world.out / "in_protein/output_2_ESM.pt.done").search_file,
    ]
    for stray in strays:
        stray.touch()
    carried_out(world.request)
    assert not any(stray.exists() for stray in strays)


def test_a_finished_run_whose_features_are_gone_says_why_it_starts_again(world, made):
    assert not carried_out(_asked(world, remove_intermediate=True)).pieces
    assert not list(world.out.rglob("*.pt"))
    world.file("STEM_merged/prediction_results.txt").write_text("edited")
    shown = carried_out(world.request)
    assert {"nucleotide_embeddings", "protein_embeddings", "prediction"} <= set(shown.pieces)
    assert "needed again" in "".join(shown.notices)
    assert _results(world.out) == _results(made.out)


# Files that are replaced while a run works: nothing is made from the new ones


def _run_with(world: World, change: Callable[[Event], None], **machine: object) -> None:
    run_prediction(_asked(world, **machine), change)


def _when(stage: str, action: Callable[[], object], kind: type = StageStarted) -> Callable:
    fired: list[bool] = []

    def show(event: Event) -> None:
        if isinstance(event, kind) and event.stage == stage and not fired:
            fired.append(True)
            action()

    return show


@pytest.mark.parametrize(
    ("kind", "machine"),
    [(StageStarted, {}), (WorkerReady, {"device": "auto", "cpu_workers": 1})],
    ids=["before it is opened here", "while a process computes with it"],
)
def test_a_replaced_model_ends_the_run_and_the_old_one_goes_on(world, made, kind, machine):
    shutil.rmtree(world.out)
    model, kept = world.home / "esm.pt", world.home / "kept.pt"
    model.rename(kept)
    shutil.copy(kept, model)
    other = Path(str(_other_protein_model(world).settings.analysis.protein_model))
    with pytest.raises(ModelError, match=r"esm\.pt on \S+ is not the file"):
        _run_with(world, _when("protein_embeddings", lambda: other.replace(model), kind), **machine)
    assert not list(world.out.glob("in_protein/*ESM.pt*"))
    kept.replace(model)
    _run_with(world, lambda event: None)
    assert _results(world.out) == _results(made.out)


@pytest.mark.parametrize(
    ("stage", "name", "code"),
    [
        ("chunking", "in.fa", 65),
        ("translation", "out/in_chunked200.fa", 6),
        ("splitting", "out/in_protein.faa", 6),
        ("nucleotide_embeddings", "out/in_nucleotide/output_1.fa", 6),
        ("protein_embeddings", "out/in_protein/output_1.fa", 6),
        ("protein_embeddings", "out/in_nucleotide/output_1_DNABERT_S.pt", 6),
        ("protein_embeddings", "c.safetensors", 64),
        ("prediction", "out/in_merged/output_1_scores.tsv", 6),
        ("consensus", "out/in_merged/prediction_results.txt", 6),
        ("output", "in.fa", 65),
    ],
)
def test_a_file_that_changes_after_it_was_hashed_or_proved(world, made, stage, name, code):
    path = world.home / name

    def change():
        content = bytearray(path.read_bytes())
        score = content.rfind(b"\t") + 1  # it gets another first digit, and a base another letter
        base = content.find(b"C", len(content) // 2)
        content[score if name.endswith((".txt", ".tsv")) else base] ^= 1
        path.write_bytes(content)

    _check_ended_and_gone_on_with(world, made, stage, path, change, code)


def test_an_input_that_is_removed_after_it_was_hashed(world, made):
    source = world.file("the input")
    _check_ended_and_gone_on_with(world, made, "chunking", source, source.unlink, 64)


def _check_ended_and_gone_on_with(
    world: World, made: World, stage: str, path: Path, change: Callable[[], None], code: int
) -> None:
    """A change of ``path`` at the begin of a stage ends the run; with the file of before it goes on."""
    shutil.rmtree(world.out)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(VirNucProError) as caught:
        _run_with(world, _when(stage, change))
    assert (caught.value.exit_code, str(path) in str(caught.value)) == (code, True)
    assert not world.file("STEM_contigs.tsv").exists()
    if before is not None:
        path.write_bytes(before)
    _run_with(world, lambda event: None)
    assert _results(world.out) == _results(made.out)
