"""A small labelled data set, written as the contract of ``training.dataset`` says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from virnucpro.executors.executor import Executor
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import open_frames
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.tables import LABELLED_FRAMES, LabelledFrameRow
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.embed import embed

STOPS = ("TAA", "TAG", "TGA")
LENGTH = 300
LETTERS = {"virus": "AAAATTTTCG", "others": "AATTCCCCGGGG"}


def genome(label: str, codons: int, seed: int) -> str:
    """Random codons without a stop: rich in A and T for a virus, in C and G for the others."""
    source = random.Random(f"{label} {seed}")
    made: list[str] = []
    while len(made) < codons:
        codon = "".join(source.choices(LETTERS[label], k=3))
        if codon not in STOPS:
            made.append(codon)
    return "".join(made)


def frames_of(label: str, name: str, codons: int, seed: int) -> Iterator[tuple]:
    """A row, the nucleotides and the protein of each open frame of a genome."""
    text = genome(label, codons, seed)
    chunks = [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]
    for number, label_of_frame, nucleotide, protein in zip(*open_frames(chunks)[1:], strict=True):
        chunk = f"{name}_chunk_{number}"
        row = LabelledFrameRow(
            chunk + label_of_frame, chunk, name, name, f"{label}_group", label, LENGTH
        )
        yield row, nucleotide, protein


def make_dataset(
    root: Path, genomes: tuple[int, int, int] = (6, 2, 2), codons: int = 1000, shard: int = 50
) -> Dataset:
    """A data set with so many genomes of each label in train, validation and test."""
    dataset = Dataset(root)
    root.mkdir(parents=True, exist_ok=True)
    parts: dict[str, dict[str, int]] = {part: {"shards": 0, "frames": 0} for part in PARTS}
    facts = {
        "schema": 2,
        "content": "frames",
        "lengths": [LENGTH],
        "seed": 1,
        "version": "2.0.0",
        "command": ["virnucpro", "train", "prepare", "genomes.tsv"],
        "sources": [{"file": "genomes.fa", "sha256": "0" * 64}],
        "parts": parts,
    }
    dataset.description_file.write_text(json.dumps(facts))
    lines = ["record\tsource\tlabel\tgroup\tgenome\ttaxon\tpart\tbases\tframes\tnote\n"]
    for part, count in zip(PARTS, genomes, strict=True):
        found = []
        for label in ("virus", "others"):
            for number in range(count):
                name = f"{part}_{label}_{number}"
                rows = list(frames_of(label, name, codons, number * 10 + PARTS.index(part)))
                found += rows
                cells = (name, "genomes.fa", label, f"{label}_group", name, name, part)
                lines.append("\t".join(map(str, (*cells, 3 * codons, len(rows), ""))) + "\n")
        random.Random(part).shuffle(found)
        parts[part] = _write_part(dataset, part, found, shard)
    dataset.description_file.write_text(json.dumps(facts))
    dataset.genomes_table.write_text("".join(lines))
    return Dataset(root)  # its description is read once, and was read before it was complete


def _write_part(dataset: Dataset, part: str, found: list, shard: int) -> dict[str, int]:
    layout = dataset.layout(part)
    starts = range(0, len(found), shard)
    for number, start in enumerate(starts, 1):
        for molecule, column in (("nucleotide", 1), ("protein", 2)):
            path = layout.split(molecule, number)
            path.parent.mkdir(exist_ok=True)
            rows = found[start : start + shard]
            path.write_bytes(fasta_bytes((row[0].frame, row[column]) for row in rows))
    table = "".join(
        [LABELLED_FRAMES.header, *(LABELLED_FRAMES.line(**row[0]._asdict()) for row in found)]
    )
    dataset.frames_table(part).write_text(table)
    return {"shards": len(starts), "frames": len(found)}


def embed_toy(dataset: Dataset, executor: Executor | None = None, **changed) -> int:
    """Embed a data set with the toy encoders, or others in their place."""
    analysis = replace(AnalysisSettings(model_type="toy").resolved(), **changed)
    machine = MachineSettings(device="cpu")
    return embed(dataset, analysis, machine, lambda event: None, executor=executor)[1]
