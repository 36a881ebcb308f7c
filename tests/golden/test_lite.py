"""The shipped model lite: calls of sequences that it was not trained on."""

from __future__ import annotations

import csv
import os
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from Bio.Seq import Seq
from sklearn.metrics import roc_auc_score

from tests.declared import cells_of
from virnucpro.classifier.files import inspect_classifier
from virnucpro.cli.demo import example_fasta
from virnucpro.encoders.lite import LITE
from virnucpro.encoders.registry import locate
from virnucpro.io.records import read_records
from virnucpro.settings import LITE_CLASSIFIER
from virnucpro.store.disk import sha256_of
from virnucpro.tables import CHUNKS, CONTIGS
from virnucpro.training.data.table import read_genome_table

ROOT = Path(__file__).parents[2]
HELD_OUT = {
    "viral/phages_small.fa.gz": True,
    "viral/phages_refseq.fa.gz": True,
    "viral/mammarenaviruses.fa.gz": True,
    "nonviral/bacteria_clinical.fa.gz": False,
}
PIECES = 150  # a file


def predict(source: Path, out: Path, *options: str) -> None:
    command = [sys.executable, "-m", "virnucpro", "predict", source, "-o", out, "-m", "lite"]
    subprocess.run([*command, "-q", "--device", "cpu", *options], check=True)


def test_it_is_small_and_says_what_it_is() -> None:
    encoder, classifier = LITE.packaged(), LITE_CLASSIFIER
    assert encoder.stat().st_size + classifier.stat().st_size < 10_000_000
    info = inspect_classifier(classifier)
    assert info.extra["command"].startswith("virnucpro train lite DATASET --output-dir DIR")
    assert info.temperature is not None  # calibrated: there is a column fdr
    assert info.chunk_lengths == (500, 300, 150)
    assert set(info.contigs) == {500, 300, 150}
    source = locate("lite", "nucleotide")
    assert (source.family, source.reading) == ("lite", "whole chunks")
    assert info.extra["encoder_sha256"] == sha256_of(encoder)


def test_the_contigs_of_the_example_are_called_right(tmp_path: Path) -> None:
    example = tmp_path / "example.fa"
    example.write_text(example_fasta())
    predict(example, tmp_path / "out")
    calls = dict(CONTIGS.read(tmp_path / "out/example_contigs.tsv", "record", "call"))
    contigs = {name: call for name, call in calls.items() if name.startswith(("virus", "bact"))}
    assert len(contigs) == 6
    for name, call in contigs.items():
        assert call == ("virus" if name.startswith("virus") else "nonvirus"), name
    reads = [(name, call) for name, call in calls.items() if name.startswith("read_")]
    wrong = [name for name, call in reads if call == "virus" and not name.endswith("_virus")]
    assert len(wrong) <= 1
    labels = tmp_path / "labels.tsv"
    lines = [f"{name}\t{'virus' if name.startswith('virus') else 'others'}\n" for name in contigs]
    labels.write_text("record\tlabel\n" + "".join(lines))
    script = runpy.run_path(str(ROOT / "examples/lite/mixtures.py"))
    scores, model = script["read_scores"](tmp_path / "out/example_run.json", labels)
    assert len(scores) == 6
    assert model.tail_slope
    assert all((found[0] < 0.05) == virus for virus, _, found in scores)


def test_the_mates_to_measure_with_are_the_ends_of_the_pieces(tmp_path: Path) -> None:
    piece = "".join(random.Random(1).choices("ACGTN", k=500))
    (tmp_path / "pieces_500.fa").write_text(f">p\n{piece}\n>q\n{piece[::-1]}\n")
    runpy.run_path(str(ROOT / "examples/lite/heldout.py"))["write_mates"](tmp_path)
    first, second = (list(read_records(tmp_path / f"mates_{n}.fa")) for n in (1, 2))
    assert [record.id for record in first] == [record.id for record in second] == ["p", "q"]
    assert first[0].sequence == piece[:150]
    assert second[0].sequence == str(Seq(piece[-150:]).reverse_complement())


STAND_INS = {
    # Each writes what the real program writes, as far as it is read: a score from the first base.
    "genomad": """out="$4/outside_$(basename "$4" | cut -d_ -f2)_nn_classification"; mkdir -p "$out"
        printf 'seq_name\\tchromosome_score\\tplasmid_score\\tvirus_score\\n' > "$out/$(basename "$out").tsv"
        awk '/^>/ {n = substr($1, 2); next} {v = /^A/ ? 0.9 : 0.1; OFS = "\\t"; print n, 1 - v, 0, v}' \
            "$3" >> "$out/$(basename "$out").tsv" """,
    "jaeger": """mkdir -p "$7/default"; out="$7/default/$(basename "$5" .fa)_jaeger.tsv"
        printf 'contig_id\\tprediction\\tbacteria_score\\tphage_score\\teukarya_score\\tarchaea_score\\n' > "$out"
        awk '/^>/ {n = substr($1, 2); gsub("___", " ", n); next}
            {OFS = "\\t"; print n, /^A/ ? "phage" : "bacteria", 0, /^A/ ? 2 : -2, 0, 0}' "$5" >> "$out" """,
}


def test_other_programs_beside_lite(tmp_path: Path) -> None:
    """With stand-ins that see the first base: one of two phages begins with A, and no host."""
    for name, body in STAND_INS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nset -eu\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    pieces = {"ph___1": "AC", "ph2": "CA", "host1": "CC", "host2": "GT", "inside": "AA"}
    rows = "".join(
        f"{name}\t{'virus' if 'ph' in name else 'others'}\t"
        f"{'' if name == 'inside' else 'outside '}{'phages' if 'ph' in name else 'archaea'}\n"
        for name in pieces
    )
    (tmp_path / "labels.tsv").write_text("record\tlabel\tgroup\n" + rows)
    for length in (500, 2100, 5000):
        fasta = "".join(f">{name}\n{two * (length // 2)}\n" for name, two in pieces.items())
        (tmp_path / f"pieces_{length}.fa").write_text(fasta)
        calls = "".join(f"{name}\t{'ph' in name:d}\tvirus\n" for name in pieces)
        (tmp_path / f"pieces_{length}_contigs.tsv").write_text(
            f"record\tvirus_score\tcall\n{calls}"
        )
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", ROOT / "examples/lite/peers.sh", tmp_path, tmp_path, tmp_path / "work"]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    shares = {(length, name): cells for length, name, *cells in lines}
    lite = ["4", "1.000", "1.000", "100.0 %", "100.0 %", "100.0 %", "0.0 % (-)"]
    other = ["4", "0.750", "0.750", "50.0 %", "50.0 %", "0.0 %", "0.0 % (-)"]
    assert shares == {
        ("500 bp", "lite"): lite,
        ("500 bp", "genomad"): other,
        **{
            (length, name): lite if name == "lite" else other
            for length in ("2,100 bp", "5,000 bp")
            for name in ("lite", "genomad", "jaeger")
        },
    }


@pytest.mark.parametrize(("length", "least"), [(500, 0.86), (300, 0.82), (150, 0.73)])
def test_held_out_groups(genomes: Path, tmp_path: Path, length: int, least: float) -> None:
    """The model card has the whole table; this is a sample of it, with room for chance."""
    chance, source, virus = random.Random(5), tmp_path / "pieces.fa", {}
    with source.open("w") as out:
        for file, label in HELD_OUT.items():
            records = [r for r in read_records(genomes / file) if len(r.sequence) > length]
            for number in range(PIECES * (1 if label else 3)):
                record = chance.choice(records)
                start = chance.randrange(len(record.sequence) - length)
                name = f"{file.split('/')[1].split('.')[0]}_{number}"
                virus[name] = label
                out.write(f">{name}\n{record.sequence[start : start + length]}\n")
    predict(source, tmp_path / "out", "-e", str(length))
    pieces = cells_of(CHUNKS, tmp_path / "out/pieces_chunks.tsv")
    scored = [row for row in pieces if row["status"] == "scored"]
    assert len(scored) == len(virus)  # with or without an open frame
    margins = [float(row["max_score_1"]) - float(row["max_score_0"]) for row in scored]
    found = roc_auc_score([virus[row["record"]] for row in scored], margins)
    assert found > least


def test_the_table_of_the_small_model_covers_all_genomes(genomes: Path) -> None:
    folder = genomes.parent
    if not all((folder / name).is_dir() for name in ("genomes_more", "genomes_wide")):
        pytest.skip("the further genomes are not here")
    table = read_genome_table(ROOT / "examples/lite/genomes.tsv", folder)
    labels = {"viral": "virus", "nonviral": "others", "other": "others"}
    listed = {}
    for name in ("genomes", "genomes_more", "genomes_wide"):
        with (folder / name / "MANIFEST.tsv").open(newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                listed[f"{name}/{row['file']}"] = labels[row["label"]]
    assert {row.file: row.label for row in table} == listed
    held = {row.group for row in table if row.part == "test"}
    assert len(held) == 18
    outside = {row.part for row in table if row.group.startswith("outside ")}
    assert outside == {"validation", "test"}
