"""Embeddings of the split files, on the workers. One stage, two encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch

from virnucpro.contracts import (
    Device,
    DiskNeed,
    Json,
    Receipts,
    Session,
    Stage,
    Task,
)
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import family_named, open_encoder
from virnucpro.layout import Layout, Molecule, receipt_beside
from virnucpro.settings import CompileMode, MachineSettings
from virnucpro.stages.embedding_session import EmbeddingSession
from virnucpro.stages.splitting import split_files
from virnucpro.store import legacy
from virnucpro.store.disk import Disk

BYTES_PER_NUMBER = 4  # features are float32
# The id of a frame in a feature file, on average, with its share of the rest of the file.
BYTES_PER_ID = 32
COPIES = 2  # of each embedding: in the feature file, and in the merged one


@dataclass(frozen=True)
class EmbeddingStage(Stage):
    """Embeds one molecule with one encoder. Each file has a receipt that the worker writes.

    ``budget`` (tokens or sequences per batch) is for the device and not part of the fingerprint;
    None finds it, unless ``kept`` has one that an earlier start found, by :func:`budget_key`.
    ``compile`` says whether the model is compiled, ``auto`` where ``sequences`` are many: those of
    the whole run, done or not, so that a resumed run computes as it began.
    """

    layout: Layout
    disk: Disk
    molecule: Molecule
    source: EncoderSource
    precision: str
    truncation: int
    budget: int | None
    kept: Mapping[str, int] = field(default_factory=dict)
    compile: CompileMode = "auto"
    sequences: int = 0

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    intermediate: ClassVar[bool] = True
    divisible: ClassVar[bool] = True
    version = 1

    @property
    def name(self) -> str:
        """``nucleotide_embeddings`` or ``protein_embeddings``."""
        return f"{self.molecule}_embeddings"

    @property
    def title(self) -> str:
        """What is embedded, and by which kind of encoder."""
        return f"{self.molecule.capitalize()} embeddings ({family_named(self.source.family).title})"

    @property
    def file_pattern(self) -> Path:
        """The feature file of a split file."""
        return self.layout.features(self.molecule, "{number}")

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file."""
        files = split_files(receipts, self.layout, self.molecule)
        return [
            replace(self._task(number), weight=file.bytes, count=file.rows)
            for number, file in enumerate(files, 1)
        ]

    def _task(self, number: int) -> Task:
        split = self.layout.split(self.molecule, number)
        output = self.layout.features(self.molecule, number)
        params = {
            "encoder": self.source.sha256,
            "family": self.source.family,
            "precision": self.precision,
            "truncation": self.truncation,
        }
        return Task(self.name, self.version, (split,), (output,), receipt_beside(output), params)

    def by_file(self) -> EmbeddingStage:
        """Return the stage itself: it has a task per split file."""
        return self

    def opened_for(self, sequences: int, budgets: Mapping[str, int]) -> EmbeddingStage:
        """Return the stage as it is opened where it embeds so many sequences in all."""
        return replace(self, sequences=sequences, kept=budgets)

    def disk_need(self, receipts: Receipts) -> DiskNeed:
        """Return what the embeddings take, in feature files and in the merged ones."""
        frames = sum(f.rows for f in split_files(receipts, self.layout, self.molecule))
        size = COPIES * frames * (self.source.dim * BYTES_PER_NUMBER + BYTES_PER_ID)
        unit = "chunks" if self.source.reading == "whole chunks" else "open frames"
        return DiskNeed(size, f"the features of {frames:,} {unit}")

    def take_over(self) -> Sequence[str]:
        """Write the receipts of feature files of a run of version 1."""
        dim = self.source.dim
        return legacy.take_over(self.layout, self.disk, self._task, self.molecule, dim)

    def open(self, device: Device) -> Session:
        """Load the model. Called in the worker, where a GPU is the only one visible."""
        if device.kind == "cuda":
            torch.cuda.empty_cache()  # the blocks of the previous stage's model
        kept = None if self.budget else self.kept.get(budget_key(self.name, device))
        budget = self.budget or kept
        encoder = open_encoder(
            self.source, device.kind, self.precision, budget=budget, truncation=self.truncation
        )
        if isinstance(encoder, BatchedEncoder):
            encoder.optimise(self.compile, self.sequences)
        facts = {**encoder.facts(), "precision": self.precision}
        if kept:
            facts["found"] = "kept"
        return EmbeddingSession(encoder, self.source, self.molecule, self.disk, device, facts)


def budget_key(stage: str, device: Device) -> str:
    """Return the name of a measured budget; devices of the same name and memory share it."""
    return f"{stage} on {device.name}, {device.memory} bytes"


@dataclass(frozen=True)
class EncoderSetup:
    """The encoders of a run; ``protein`` is None where the other one reads whole chunks."""

    nucleotide: EncoderSource
    protein: EncoderSource | None
    precision: str
    truncation: int

    @property
    def sources(self) -> dict[Molecule, EncoderSource]:
        """The encoders by the molecule that they read, in the order of merged features."""
        sources: dict[Molecule, EncoderSource] = {"nucleotide": self.nucleotide}
        return sources if self.protein is None else {**sources, "protein": self.protein}

    @property
    def molecules(self) -> tuple[Molecule, ...]:
        """The molecules that are embedded."""
        return tuple(self.sources)

    def stages(
        self, layout: Layout, disk: Disk, machine: MachineSettings, budgets: Mapping[str, int]
    ) -> list[Stage]:
        """Return a stage per encoder; ``budgets`` are those of an earlier start."""
        requested = {"nucleotide": machine.nucleotide_batch, "protein": machine.protein_batch}
        return [
            EmbeddingStage(
                layout,
                disk,
                molecule,
                source,
                self.precision,
                self.truncation,
                requested[molecule],
                budgets,
                machine.compile,
            )
            for molecule, source in self.sources.items()
        ]

    def identity(self) -> dict[str, Json]:
        """Return what an embedding depends on, beside its sequence."""
        return {
            "nucleotide model": self.nucleotide.sha256,
            "protein model": self.protein.sha256 if self.protein else None,
            "truncation": self.truncation,
            "precision": self.precision,
        }
