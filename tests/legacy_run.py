"""Make the directory that an earlier version would have left."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from tests.cli.inputs import Shown, carried_out, toy_request
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout
from virnucpro.run.request import check_request
from virnucpro.store.disk import Disk
from virnucpro.store.features import load_features
from virnucpro.store.legacy import feature_files

STAGES = (
    *("CHUNKING", "TRANSLATION", "NUCLEOTIDE_SPLITTING", "PROTEIN_SPLITTING"),
    *("NUCLEOTIDE_FEATURES", "PROTEIN_FEATURES", "FEATURE_MERGING", "PREDICTION", "CONSENSUS"),
)
SCIENCE = {"chunk_length": 200, "sequences_per_file": 25}


def make_input(path: Path) -> None:
    """Records with open frames enough for three files of 25."""
    rng = random.Random(5)
    sense = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACG" if a != "T"]
    path.write_text("".join(f">r{n}\n{''.join(rng.choices(sense, k=50))}\n" for n in range(20)))


def predict(source: Path, out: Path, disk: Disk | None = None, **options: object) -> Shown:
    """Run the toy model in this process, intermediate files kept."""
    asked = toy_request(source, out, **SCIENCE, remove_intermediate=False)
    request = replace(asked, **options)
    check_request(request)
    return carried_out(request, disk)


def write_old(path: Path, ids: list[str], data: torch.Tensor) -> None:
    """A feature file in the layout of before."""
    if path.name.endswith("_ESM.pt"):
        torch.save({"proteins": ids, "data": [row.clone() for row in data]}, path)
    else:
        rows = [
            {"label": name, "mean_representation": row.tolist()}
            for name, row in zip(ids, data, strict=True)
        ]
        torch.save({"nucleotide": ids, "data": rows}, path)


def write_wrapped(path: Path) -> None:
    """A FASTA file as the earlier version wrote it, 60 letters a line."""
    lines = []
    for name, text in list(read_fasta(path)):
        lines += [f">{name}", *(text[i : i + 60] for i in range(0, len(text), 60))]
    path.write_text("\n".join(lines) + "\n")


def age(layout: Layout, *, completed: bool) -> None:
    """Turn a finished run of ours, with its intermediate files, into one of an earlier version."""
    shutil.rmtree(layout.checkpoints)
    for receipt in (*layout.root.rglob("*.done"), *layout.merged_folder.glob("*_scores.tsv")):
        receipt.unlink()
    for path in (layout.chunks_table, layout.contigs_table, layout.virus_fasta, layout.run_record):
        path.unlink()
    for path, (molecule, number) in feature_files(layout).items():
        features = load_features(path, molecule)
        write_old(path, features.ids, features.data)
        write_wrapped(layout.split(molecule, number))
    if not completed:
        shutil.rmtree(layout.merged_folder)
        layout.features("protein", 3).unlink()
    stages: dict[str, object] = {name: {"status": "completed", "outputs": {}} for name in STAGES}
    if not completed:
        stages["PROTEIN_FEATURES"] = {"status": "in_progress", "outputs": {}}
    files = [f"elsewhere/{layout.chunked.name}"]
    stages["CHUNKING"] = {"status": "completed", "outputs": {"files": files}}
    config = {"expected_length": layout.chunk_length, "model_path": "mlp.pth"}
    layout.checkpoints.mkdir()
    layout.legacy_state.write_text(json.dumps({"pipeline_config": config, "stages": stages}))


def make_legacy(folder: Path, *, completed: bool = False, stem: str = "in") -> tuple[Path, Layout]:
    """An input, and the directory of an earlier run on it: by default one ESM file is missing."""
    source = folder / f"{stem}.fa"
    make_input(source)
    predict(source, folder / "old")
    layout = Layout(folder / "old", stem, 200)
    age(layout, completed=completed)
    return source, layout


def results(layout: Layout) -> dict[str, bytes]:
    """The result files."""
    paths = (layout.predictions, layout.consensus, layout.contigs_table, layout.chunks_table)
    return {path.name: path.read_bytes() for path in paths}
