"""Measure reading, chunking and translation, in records and chunks per second.

    python -m benchmarks.reading [--chunks 20000] [--reads 100000]

Chunks are cut, translated in six frames and formatted as FASTA with their open frames. Reading is
compared with dnaio, which does not check the letters (and reads FASTQ in C).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil
from pathlib import Path

import dnaio

from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.io.frames import chunk_id, chunk_spans, open_frames
from virnucpro.io.input_summary import summarise_input
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import Record, Records

LENGTH = 500  # bases of a chunk, and of a read
BATCH = 2_000  # chunks that are translated together


def run_batches(records: list[Record], length: int, batch: int) -> Iterator[bytes]:
    """Chunk, translate and format one batch of chunks at a time."""
    names: list[str] = []
    chunks: list[str] = []
    for record in records:
        for number, (start, end) in enumerate(chunk_spans(len(record.sequence), length), 1):
            names.append(chunk_id(record.id, number))
            chunks.append(record.sequence[start:end].upper())
            if len(chunks) == batch:
                yield from formatted(names, chunks)
                names, chunks = [], []
    yield from formatted(names, chunks)


def formatted(names: list[str], chunks: list[str]) -> Iterator[bytes]:
    """Yield the chunks, then the nucleotides and the proteins of their open frames."""
    yield fasta_bytes(zip(names, chunks, strict=True))
    frames = [
        (name + frame.label, frame)
        for name, result in zip(names, open_frames(chunks), strict=True)
        for frame in result.frames
    ]
    yield fasta_bytes((name, frame.nucleotide) for name, frame in frames)
    yield fasta_bytes((name, frame.protein) for name, frame in frames)


def timed(run: Callable[[], object]) -> float:
    """Return the seconds of the faster of two runs."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def random_records(count: int, length: int) -> list[Record]:
    """Return records of about four chunks."""
    letters = random.Random(1)
    size = 4 * length
    return [
        Record(f"contig{i}", f"contig{i}", "".join(letters.choices("ACGT", k=size - i % length)))
        for i in range(ceil(count / 4))
    ]


def exhaust(run: Callable[..., Iterable[object]], *arguments: object) -> None:
    """Do all of the work of an iterator."""
    for _ in run(*arguments):
        pass


def bench_reading(reads: int, bases: int, folder: Path) -> None:
    """Print the rates of reading ``reads`` records of ``bases`` letters."""
    letters = random.Random(2)
    pool = ["".join(letters.choices("ACGT", k=bases)) for _ in range(1000)]
    fasta, fastq = folder / "reads.fa", folder / "reads.fq"
    fasta.write_bytes(fasta_bytes((f"read{i} x", pool[i % 1000]) for i in range(reads)))
    with fastq.open("w") as file:
        file.writelines(f"@read{i} x\n{pool[i % 1000]}\n+\n{'I' * bases}\n" for i in range(reads))
    works: list[tuple[str, Path, Callable[[Path], object]]] = [
        ("Records FASTA", fasta, partial(exhaust, Records)),
        ("Records FASTQ", fastq, partial(exhaust, Records)),
        ("summarise_input FASTA", fasta, lambda path: summarise_input(InputFiles(path))),
        ("read_fasta", fasta, partial(exhaust, read_fasta)),
    ]
    for title, path, run in works:
        plain = reads / timed(partial(dnaio_read, path))
        row(f"{title} {bases} bp", plain, reads / timed(partial(run, path)), "records/s")


def dnaio_read(path: Path) -> int:
    """Read with dnaio, which does not check letters."""
    with dnaio.open(path, open_threads=0) as reader:
        return sum(1 for _ in reader)


def row(title: str, dnaio: float | None, virnucpro: float, unit: str) -> None:
    """Print a row of the table."""
    other = "-" if dnaio is None else f"{dnaio:,.0f}"
    print(f"| {title:<28} | {other:>12} | {virnucpro:>12,.0f} | {unit} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chunks", type=int, default=40_000, help="random chunks to translate")
    parser.add_argument("--reads", type=int, default=200_000, help="records to read")
    options = parser.parse_args()
    print(f"| {'':<28} | {'dnaio':>12} | {'VirNucPro':>12} | unit |")
    print("|---|---:|---:|---|")
    records = random_records(options.chunks, LENGTH)
    chunks = sum(len(chunk_spans(len(record.sequence), LENGTH)) for record in records)
    seconds = timed(partial(exhaust, run_batches, records, LENGTH, BATCH))
    row(f"chunk+translate {LENGTH} bp", None, chunks / seconds, "chunks/s")
    with tempfile.TemporaryDirectory() as folder:
        bench_reading(options.reads, LENGTH, Path(folder))


if __name__ == "__main__":
    main()
