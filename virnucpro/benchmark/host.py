"""The host stages, by the same functions that predict calls."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from virnucpro.benchmark.workload import BATCH, MIXES, Workload
from virnucpro.bio.chunks import chunk_id, chunk_spans
from virnucpro.bio.fasta import fasta_bytes
from virnucpro.bio.frames import open_frames
from virnucpro.bio.records import Record, read_records
from virnucpro.checkpoint.codec import Features, encode_features
from virnucpro.checkpoint.disk import DiskWithoutResume
from virnucpro.classifier import Classifier
from virnucpro.contracts import Json, Task
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.random_weights import random_encoder
from virnucpro.layout import Layout
from virnucpro.stages.merging import Merging

Say = Callable[[str], None]

ROWS = 4096  # of the features that are written, merged and classified again and again
WIDTHS = {"nucleotide": 768, "protein": 2560}  # DNABERT-S, ESM-2 3B
HIDDEN = 512  # units of the released classifiers
MILLION = 1_000_000
BASES = 2_000_000  # of the records that are made up
SLICE = 500  # sequences tokenised at a time


@dataclass(frozen=True)
class Step:
    """One stage: called again and again, each time on ``count`` of ``unit``."""

    name: str
    unit: str
    count: int
    call: Callable[[], object]


def measure_stages(
    work: Workload, source: Path | None, seconds: float, say: Say
) -> list[dict[str, Json]]:
    """Rates of the stages between the input and the scores, each for ``seconds`` at least.

    Records are those of ``source``, or made up. Raises InputError, OutputError.
    """
    found: list[dict[str, Json]] = []
    with tempfile.TemporaryDirectory(prefix="virnucpro-") as folder:
        for step in _steps(work, source, Path(folder)):
            say(f"stage {step.name}")
            step.call()  # warm
            calls, started = 0, time.perf_counter()
            while (passed := time.perf_counter() - started) < seconds or not calls:
                step.call()
                calls += 1
            rate = calls * step.count / passed
            found.append(
                {
                    "stage": step.name,
                    "unit": step.unit,
                    "a_second": rate,
                    "seconds_a_million": MILLION / rate,
                    "measured": calls * step.count,
                }
            )
    return found


def _steps(work: Workload, source: Path | None, folder: Path) -> Iterator[Step]:
    path = source or _made_up(folder / "records.fa", work.name)
    records = list(read_records(path))
    chunks = [chunk for _, chunk in _cut(records, work.chunk_length)]
    yield Step("parse", "records", len(records), lambda: sum(1 for _ in read_records(path)))
    yield Step(
        "chunk", "chunks", len(chunks), lambda: fasta_bytes(_cut(records, work.chunk_length))
    )
    yield Step("translate", "chunks", len(chunks), lambda: _translate(chunks))
    # Tokens do not depend on the size of the model.
    for family, size in (("esm2", "1x24x2"), ("dnabert-s", "1x24x2")):
        encoder = random_encoder(family, size, "cpu", "fp32", budget=None, truncation=1024)
        some = list(work.of(family)[:SLICE])
        call = partial(_tokenise, encoder, some)
        yield Step(f"tokenise {family}", "frames", len(some), call)
    yield from _feature_steps(folder)


def _made_up(path: Path, name: str) -> Path:
    """Random records of the lengths of the mix."""
    mix = MIXES[name]
    length = (mix.shortest + mix.longest) // 2
    text = "".join(random.Random(0).choices("ACGT", k=BASES))
    pairs = ((f"record{i}", text[i : i + length]) for i in range(0, BASES - length, length))
    DiskWithoutResume().save(path, fasta_bytes(pairs))
    return path


def _cut(records: list[Record], length: int) -> Iterator[tuple[str, str]]:
    for record in records:
        for number, (start, stop) in enumerate(chunk_spans(len(record.sequence), length), 1):
            yield chunk_id(record.id, number), record.sequence[start:stop]


def _translate(chunks: list[str]) -> None:
    source = iter(chunks)
    while batch := list(islice(source, BATCH)):
        open_frames(batch)


def _tokenise(encoder: BatchedEncoder, sequences: list[str]) -> None:
    for _ in encoder.batches(sequences):
        pass


def _feature_steps(folder: Path) -> Iterator[Step]:
    """Writing the features of both molecules, merging them, classifying the merged rows."""
    disk = DiskWithoutResume()
    ids = [f"record{i // 6}_chunk_1F{i % 6}" for i in range(ROWS)]
    drawn = torch.Generator().manual_seed(0)
    halves = {m: torch.randn(ROWS, width, generator=drawn) for m, width in WIDTHS.items()}
    layout = Layout(folder, "bench", 500)
    paths = (layout.features("nucleotide", 1), layout.features("protein", 1))

    def write() -> None:
        nucleotide = encode_features(Features(ids, halves["nucleotide"]), "nucleotide")
        disk.save(paths[0], nucleotide, ROWS)
        disk.save(paths[1], encode_features(Features(ids, halves["protein"]), "protein"), ROWS)

    yield Step("write features", "rows", ROWS, write)
    split = layout.split("nucleotide", 1)
    disk.save(split, fasta_bytes((name, "ACGT") for name in ids), ROWS)
    merging = Merging(layout, disk)
    merged = layout.merged(1)
    receipt = merged.with_suffix(".done")
    task = Task("merging", 1, (*paths, split), (merged,), receipt, {"failed": []})
    yield Step("merge", "rows", ROWS, lambda: merging.run(task, lambda n, t: None))
    rows = torch.cat(list(halves.values()), dim=1)
    classifier = _classifier(rows.shape[1], drawn)
    yield Step("classify", "rows", ROWS, lambda: classifier.scores(rows))


def _classifier(width: int, drawn: torch.Generator) -> Classifier:
    """Of the released sizes, with random weights."""
    shapes = {
        "hidden_layer.weight": (HIDDEN, width),
        "hidden_layer.bias": (HIDDEN,),
        "bn1.weight": (HIDDEN,),
        "bn1.bias": (HIDDEN,),
        "bn1.running_mean": (HIDDEN,),
        "bn1.running_var": (HIDDEN,),
        "output_layer.weight": (2, HIDDEN),
        "output_layer.bias": (2,),
    }
    state = {name: torch.rand(shape, generator=drawn) for name, shape in shapes.items()}
    return Classifier(state, 1e-5)
