"""Genes of viral records: those of pyrodigal-gv, with names and escapes, and only where they belong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from BCBio import GFF
from Bio import SeqIO
from pyrodigal_gv import ViralGeneFinder

from tests.cli.inputs import TOY, table
from tests.conftest import Call
from virnucpro.cli.demo import SOURCE
from virnucpro.io.records import Records
from virnucpro.results import open_run
from virnucpro.stages import output
from virnucpro.stages.genes import VirusGenes
from virnucpro.store.disk import Disk

Calling = Callable[..., Call]
GENOMES = [record.sequence for record in Records(SOURCE)][:3]
HOSTILE = ["plain", "plain_1", "=;,%&", "%3B", ">header", "#comment", "Кириллица", "a|b:1-2"]
PREDICT = ("predict", *TOY, "-e", 150)
ALL, NONE = ("--min-score", "-1"), ("--min-score", "1")


def _records() -> list[tuple[str, str, bool]]:
    names, gap = [*HOSTILE, "gap", "short"], GENOMES[0][:1500] + "N" * 1500 + GENOMES[0][1500:]
    sequences = [GENOMES[n % 3] for n in range(len(HOSTILE))] + [gap, "ACGTACGT"]
    return [(n, s, n == "=;,%&") for n, s in zip(names, sequences, strict=True)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[float]]:
    """The genes of odd names as GFF3 and as proteins, and the share of bases in them."""
    gff3, proteins = (tmp_path_factory.mktemp("genes") / name for name in ("gff3", "faa"))
    with Disk().create(gff3) as one, Disk().create(proteins) as other:
        return gff3, proteins, VirusGenes(one, other).write(_records())


def test_genes_and_proteins_are_those_of_pyrodigal_gv(
    written: tuple[Path, Path, list[float]],
) -> None:
    finder, expected = ViralGeneFinder(meta=True, mask=True), []
    for (name, sequence, _), density in zip(_records(), written[2], strict=True):
        genes = finder.find_genes(sequence)
        assert (len(genes) == 0) == (name == "short")
        places = {base for gene in genes for base in range(gene.begin, gene.end + 1)}
        assert density == pytest.approx(len(places) / len(sequence))
        expected += [(f"{name}_{n}", g, g.translate()) for n, g in enumerate(genes, 1)]
    with written[1].open(encoding="utf-8") as stream:
        proteins = list(SeqIO.parse(stream, "fasta"))
    lines = [line.split("\t") for line in written[0].read_text().splitlines()]
    rows = [cells for cells in lines if len(cells) == 9 and cells[2] == "CDS"]
    assert [(r.id, str(r.seq)) for r in proteins] == [(id_, text) for id_, _, text in expected]
    for record, cells, (id_, gene, _) in zip(proteins, rows, expected, strict=True):
        _, start, end, strand, more = record.description.split(" # ")
        assert (int(start), int(end), int(strand)) == (gene.begin, gene.end, gene.strand)
        assert (unquote(cells[0]), int(cells[3])) == (id_.rsplit("_", 1)[0], gene.begin)
        values = dict(each.split("=") for each in cells[8].rstrip(";").split(";"))
        assert more.split(";") == [f"{n}={v}" for n, v in values.items()][:6]
        assert unquote(values["ID"]) == id_
        assert values["partial"] == f"{gene.partial_begin:d}{gene.partial_end:d}"
        assert values["start_type"] == gene.start_type
        assert values["transl_table"] == str(gene.translation_table)


def test_another_program_reads_the_gff3(written: tuple[Path, Path, list[float]]) -> None:
    lines = written[0].read_text().splitlines()
    assert lines[0] == "##gff-version 3"
    assert [line for line in lines if line.startswith("#")][-1] == "##sequence-region short 1 8"
    with written[0].open(encoding="utf-8") as stream:
        found = {unquote(each.id): each.features for each in GFF.parse(stream)}
    assert set(found) == {*HOSTILE, "gap"}
    ids = [feature.id for features in found.values() for feature in features]
    assert len(ids) == len(set(ids))
    regions = [each for features in found.values() for each in features if each.type == "region"]
    assert [int(each.location.end) for each in regions] == [len(GENOMES[2])]
    assert regions[0] is found["=;,%&"][0]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two viruses; the second one has the same bases at both ends."""
    path = tmp_path / "s.fa"
    path.write_text(f">a one\n{GENOMES[0]}\n>b;c\n{GENOMES[2] + GENOMES[2][:60]}\n")
    return path


def _genes(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*_virus_genes.*")}


def test_genes_follow_the_calls(
    call: Calling, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    again, predict = ("call", out), (*PREDICT, source, "-o", out)
    assert call(*predict, *NONE).code == 0
    assert _genes(out) == {}
    leftover = out / "s_virus_genes.faa"  # not what the program wrote
    leftover.write_text(">a_1\nM\n")
    assert call(*again, *NONE).code == 0
    yours = out / "s_virus_genes.faa.yours"
    assert yours.rename(tmp_path / "mine").read_text() == ">a_1\nM\n"
    assert _genes(out) == {}
    assert call(*again, *ALL).code == 0
    monkeypatch.setattr(output, "MOST_BASES_AT_A_TIME", 100)  # record by record: the same files
    assert call(*PREDICT, source, "-o", other, *ALL).code == 0
    genes = _genes(out)
    assert genes == _genes(other)
    region = b"b%3Bc\tvirnucpro\tregion\t1\t3436\t.\t+\t.\tID=b%3Bc:1..3436;Is_circular=true\n"
    assert region in genes["s_virus_genes.gff3"]
    rows = table(out / "s_virus.tsv")
    assert [*rows[0]][-2] == "coding_density"
    assert all(0.8 < float(row["coding_density"]) <= 1 for row in rows)
    leftover.unlink()
    assert call(*predict, *ALL).code == 0
    assert _genes(out) == genes
    for command in (again, predict):
        assert call(*command, *ALL, "--no-genes").code == 0
        assert _genes(out) == {}
        assert [row.coding_density for row in open_run(out).virus()] == [None, None]
        assert call(*command, *ALL).code == 0
        assert _genes(out) == genes


def test_pairs_have_no_genes(call: Calling, source: Path, tmp_path: Path) -> None:
    mate, out = tmp_path / "mate.fa", tmp_path / "out"
    mate.write_text(source.read_text().replace("GAT", "GAC"))
    assert call(*PREDICT, source, "--input2", mate, "-o", out, *ALL).code == 0
    assert _genes(out) == {}
    assert [row["coding_density"] for row in table(out / "s_virus.tsv")] == ["NA", "NA"]
