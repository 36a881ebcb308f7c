"""The shipped model lite: calls of sequences that it was not trained on."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

from tests.cli.inputs import table
from tests.forked import run_forked
from virnucpro.classifier.files import inspect_classifier
from virnucpro.cli.demo import EXAMPLE, PROPHAGE
from virnucpro.encoders.lite import LITE
from virnucpro.encoders.registry import locate
from virnucpro.io.records import Records
from virnucpro.settings import LITE_CLASSIFIER
from virnucpro.store.hashed import hashed
from virnucpro.tables import CONTIGS, REGIONS

ROOT = Path(__file__).parents[2]
HELD_OUT = {  # by the beginnings of their ids
    "genomes_wide/viral/viruses_viptree.fa.gz": ("MN844877", "MT708546", "OQ135103", "NC_002362"),
    "genomes_wide/viral/viruses_mixed.fa.gz": ("TLL", "sample_1327", "NC_009016", "MK473382"),
    "genomes/viral/mammarenaviruses.fa.gz": ("",),
    "genomes_wide/nonviral/wastewater_ebpr_mags.fa.gz": ("",),
}
PIECES = 150  # a file


def predict(source: Path, out: Path, *options: str) -> None:
    done = run_forked("predict", source, "-o", out, "-m", "lite", "--device", "cpu", *options)
    assert done.code == 0, done.err


def test_it_is_small_and_says_what_it_is():
    encoder, classifier = LITE.packaged, LITE_CLASSIFIER
    assert encoder.stat().st_size + classifier.stat().st_size < 10_000_000
    info = inspect_classifier(classifier)
    assert info.extra["command"].startswith("virnucpro train lite DATASET --output-dir DIR")
    assert info.temperature is not None  # calibrated: there is a column fdr
    assert info.chunk_lengths == (500, 300, 150)
    assert all(info.contigs[length].has_distributions for length in info.chunk_lengths)
    source = locate("lite", "nucleotide")
    assert (source.family, source.reading) == ("lite", "whole chunks")
    assert info.extra["encoder_sha256"] == hashed(encoder).sha256


def test_the_records_of_the_example_are_called_right(tmp_path, monkeypatch):
    predict(EXAMPLE, tmp_path / "out")
    calls = dict(CONTIGS.read(tmp_path / "out/example_contigs.tsv", "record", "call"))
    contigs = [name for name in calls if name.startswith(("virus", "host"))]
    assert len(contigs) == 13
    for name in contigs:
        right = ("virus", "undecided") if "NC_002362" in name else ("virus",)
        assert calls[name] in (right if name.startswith("virus") else ("nonvirus",)), name
    (place,) = REGIONS.read(tmp_path / "out/example_regions.tsv", "record", "start", "end")
    host, first, last = PROPHAGE
    shared = min(last, int(place[2])) - max(first, int(place[1]))
    assert (place[0], shared > 0.9 * (last - first)) == (host, True)
    labels = tmp_path / "labels.tsv"
    contigs.remove(host)
    lines = [f"{name}\t{'virus' if name.startswith('virus') else 'others'}\n" for name in contigs]
    labels.write_text("record\tlabel\n" + "".join(lines))
    monkeypatch.syspath_prepend(ROOT / "examples/lite")
    script = runpy.run_path(str(ROOT / "examples/lite/mixtures.py"))
    records = script["known_records"](labels, tmp_path / "out/example_run.json")
    assert len(records) == len(contigs)
    model = inspect_classifier(LITE_CLASSIFIER).contigs[500]
    pieces, _ = script["cut"](records, 500, model)
    chunks = [len(record.chunks.start) for record in records]
    assert pieces.found.chunks_scored.sum() == sum(chunks)
    called, wrong = script["measure"](pieces, model)[:2]
    assert called > 5
    assert wrong == 0


def test_the_example_is_made_by_its_script(genomes, capsys):
    if not (genomes.parent / "phages_new").is_dir():
        pytest.skip("there are no phages_new beside the genomes")
    runpy.run_path(str(ROOT / "examples/demo/assembly.py"))["main"](genomes.parent)
    assert capsys.readouterr().out == EXAMPLE.read_text()


@pytest.mark.parametrize(("length", "least"), [(500, 0.86), (300, 0.82), (150, 0.73)])
def test_held_out_groups(genomes, tmp_path, length, least):
    """The model card has the whole table; this is a sample of it, with room for chance."""
    chance, source, virus = random.Random(5), tmp_path / "pieces.fa", {}
    with source.open("w") as out:
        for file, ids in HELD_OUT.items():
            label, every = "/viral/" in file, Records(genomes.parent / file)
            records = [r for r in every if len(r.sequence) > length and r.id.startswith(ids)]
            for number in range(PIECES * (1 if label else 3)):
                record = chance.choice(records)
                start = chance.randrange(len(record.sequence) - length)
                name = f"{Path(file).name.split('.')[0]}_{number}"
                virus[name] = label
                out.write(f">{name}\n{record.sequence[start : start + length]}\n")
    predict(source, tmp_path / "out", "-e", str(length))
    pieces = table(tmp_path / "out/pieces_chunks.tsv")
    scored = [row for row in pieces if row["status"] == "scored"]
    assert len(scored) > 0.99 * len(virus)  # with or without an open frame; few are repeats
    margins = [float(row["max_score_1"]) - float(row["max_score_0"]) for row in scored]
    found = roc_auc_score([virus[row["record"]] for row in scored], margins)
    assert found > least
