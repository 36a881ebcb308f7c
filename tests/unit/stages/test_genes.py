"""Genes: those of pyrodigal-gv, with names and escapes, only where they belong; and hallmarks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from BCBio import GFF
from Bio import SeqIO
from pyrodigal_gv import ViralGeneFinder

from tests.cli.inputs import TOY, table
from tests.conftest import Call
from virnucpro.cli.demo import EXAMPLE as SOURCE
from virnucpro.columns import GFF3_HEADER
from virnucpro.io.records import Records
from virnucpro.results import open_run
from virnucpro.stages import calls, genes, output
from virnucpro.stages.calls import Calls
from virnucpro.stages.genes import GeneFinder, Genes, Kind, Predicted, write_genes
from virnucpro.stages.regions import Region
from virnucpro.store.disk import Disk

Calling = Callable[..., Call]
EXAMPLES = list(Records(SOURCE))[:6]  # of 3 to 6 kb; three are of viruses
GENOMES = [record.sequence for record in EXAMPLES[:3]]
HOSTILE = ["plain", "plain_1", "=;,%&", "%3B", ">header", "#comment", "Кириллица", "a|b:1-2"]
PREDICT = ("predict", *TOY, "-e", 150)
ALL, NONE = ("--min-score", "-1"), ("--min-score", "1")


def _records() -> list[tuple[str, str, bool]]:
    names, gap = [*HOSTILE, "gap", "short"], GENOMES[0][:1500] + "N" * 1500 + GENOMES[0][1500:]
    sequences = [GENOMES[n % 3] for n in range(len(HOSTILE))] + [gap, "ACGTACGT"]
    return [(n, s, n == "=;,%&") for n, s in zip(names, sequences, strict=True)]


@pytest.fixture(scope="module")
def finder() -> GeneFinder:
    return GeneFinder()


@pytest.fixture(scope="module")
def written(
    finder: GeneFinder, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, list[Genes]]:
    """The genes of odd names, as GFF3 and as proteins."""
    gff3, proteins = (tmp_path_factory.mktemp("genes") / name for name in ("gff3", "faa"))
    predicted = finder.find([text for _, text, _ in _records()])
    found = [
        its.described(name, len(text))
        for its, (name, text, _) in zip(predicted, _records(), strict=True)
    ]
    with Disk().create(gff3) as one, Disk().create(proteins) as other:
        one.write(GFF3_HEADER.encode())
        for (name, text, circular), genes in zip(_records(), found, strict=True):
            write_genes((one, other), name, len(text), circular, [genes])
    return gff3, proteins, found


def test_genes_and_proteins_are_those_of_pyrodigal_gv(written):
    finder, expected = ViralGeneFinder(meta=True, mask=True), []
    for (name, sequence, _), found in zip(_records(), written[2], strict=True):
        genes = finder.find_genes(sequence)
        assert (len(genes) == 0) == (name == "short")
        places = {base for gene in genes for base in range(gene.begin, gene.end + 1)}
        assert found.density == pytest.approx(len(places) / len(sequence))
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


def test_another_program_reads_the_gff3(written):
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


def test_genes_follow_the_calls(call, source, tmp_path, monkeypatch):
    out, other = tmp_path / "out", tmp_path / "other"
    again, predict = ("call", out), (*PREDICT, source, "-o", out)
    assert call(*predict, *NONE).code == 0
    assert _genes(out) == {}
    leftover = out / "s_virus_genes.faa"  # a call was killed before its receipt was there
    Disk().save(leftover, b">a_1\nM\n")
    assert call(*again, *NONE).code == 0
    assert _genes(out) == {}
    assert call(*again, *ALL).code == 0
    monkeypatch.setattr(output, "MOST_BASES_AT_A_TIME", 100)  # record by record: the same files
    assert call(*PREDICT, source, "-o", other, *ALL).code == 0
    genes = _genes(out)
    assert genes == _genes(other)
    region = b"b%3Bc\tvirnucpro\tregion\t1\t3436\t.\t+\t.\tID=b%3Bc:1..3436;Is_circular=true\n"
    assert region in genes["s_virus_genes.gff3"]
    rows = table(out / "s_virus.tsv")
    names = ["hallmarks", "hallmark_genes", "genes", "host_markers", "host_marker_genes"]
    assert [*rows[0]][-7:] == [*names, "error_rate", "virus_markers"]
    assert all(0.8 < float(row["coding_density"]) <= 1 for row in rows)
    proteins = genes["s_virus_genes.faa"].count(b">")
    assert sum(int(row["genes"]) for row in rows) == proteins > 0
    leftover.unlink()
    assert call(*predict, *ALL).code == 0
    assert _genes(out) == genes
    for command in (again, predict):
        assert call(*command, *ALL, "--no-genes").code == 0
        assert _genes(out) == {}
        assert [row.coding_density for row in open_run(out).virus()] == [None, None]
        assert call(*command, *ALL).code == 0
        assert _genes(out) == genes


def test_pairs_have_no_genes(call, source, tmp_path):
    mate, out = tmp_path / "mate.fa", tmp_path / "out"
    mate.write_text(source.read_text().replace("GAT", "GAC"))
    assert call(*PREDICT, source, "--input2", mate, "-o", out, *ALL).code == 0
    assert _genes(out) == {}
    assert [row["coding_density"] for row in table(out / "s_virus.tsv")] == ["NA", "NA"]


# The contigs of the example; the Caulobacter phage and the Mammarenavirus were held out.
EXAMPLE = {
    "NC_002362.1:1-6087": [],
    "OQ135103:20001-24000": ["portal protein"],
    "NC_077807.1:1-3376": ["nucleocapsid protein"],
    "NC_000913.3:1000001-1006000": [],
    "NC_013716.1:1100001-1104000": [],
    "CP065316.1:1000001-1004000": [],
}


def test_hallmark_genes_of_the_example(finder):
    records = EXAMPLES
    found = finder.find([r.sequence for r in records])
    for record, predicted in zip(records, found, strict=True):
        genes = predicted.described(record.id, len(record.sequence))
        assert genes.functions("hallmark") == EXAMPLE[record.id.partition("_")[2]]
        (alone,) = finder.find([record.sequence])  # one by one: the same
        assert alone.described(record.id, len(record.sequence)) == genes
        products = re.findall("product=(.*?);", zlib.decompress(genes.gff3).decode())
        assert products == [hit.function for hit in genes.hits]


def test_virus_markers_of_a_phage_without_hallmarks(finder):
    """Lactobacillus phage LP65 was kept out of all profiles."""
    record = next(r for r in Records(SOURCE) if r.id == "virus_NC_006565.1:1-15000")
    (predicted,) = finder.find([record.sequence])
    assert predicted.hits == []
    finder.find_virus_markers([(predicted, [(0, 5000)])])
    assert [hit.function for hit in predicted.hits] == ["virus marker 29"]
    finder.find_virus_markers([(predicted, [None])])
    genes = predicted.described(record.id, len(record.sequence))
    assert genes.functions("virus marker") == ["virus marker 29", "virus marker 34"]
    assert genes.functions("hallmark") == []
    assert b"product=virus marker 34;" in zlib.decompress(genes.gff3)


def _rows(genes: Genes) -> tuple[list[list[str]], list[list[str]]]:
    """The lines of the table, and the headers of the proteins."""
    table, proteins = (zlib.decompress(text).decode() for text in (genes.gff3, genes.proteins))
    headers = [line[1:].split(" # ") for line in proteins.splitlines() if line.startswith(">")]
    return [line.split("\t") for line in table.splitlines()], headers


def test_genes_of_a_region_are_those_of_the_record_inside_it(finder):
    text = GENOMES[0] + GENOMES[1]
    (predicted,) = finder.find([text])
    whole, headers = _rows(predicted.described("a;", len(text)))
    start, stop = 1000, len(text) - 500
    inside = predicted.described("a;", len(text), (start, stop))
    rows, its_headers = _rows(inside)
    places = [(int(row[3]), int(row[4])) for row in whole]
    wanted = [n for n, (first, last) in enumerate(places) if first > start and last <= stop]
    assert 0 < len(wanted) == inside.number < len(whole)
    covered = {base for n in wanted for base in range(places[n][0], places[n][1] + 1)}
    assert inside.density == pytest.approx(len(covered) / (stop - start))
    for number, (n, row, header) in enumerate(zip(wanted, rows, its_headers, strict=True), 1):
        assert (row[:8], row[8].partition(";")[2]) == (whole[n][:8], whole[n][8].partition(";")[2])
        assert row[8].partition(";")[0] == f"ID=a%3B|region_{start + 1}_{stop}_{number}"
        assert header[0] == f"a;|region_{start + 1}_{stop}_{number}"
        assert header[1:4] == headers[n][1:4]


def test_genes_of_a_very_long_record_are_found_part_by_part(finder, monkeypatch):
    text = GENOMES[0] + GENOMES[1]
    monkeypatch.setattr(genes, "MOST_BASES", len(GENOMES[0]))
    (predicted,) = finder.find([text])
    rows, _ = _rows(predicted.described("a", len(text)))
    expected = []
    for before, part in zip((0, len(GENOMES[0])), GENOMES, strict=False):
        found = ViralGeneFinder(meta=True, mask=True).find_genes(part)
        expected += [(before + gene.begin, before + gene.end) for gene in found]
    assert [(int(row[3]), int(row[4])) for row in rows] == expected
    assert [row[8].partition(";")[0] for row in rows] == [f"ID=a_{n + 1}" for n in range(len(rows))]


def _pretend(monkeypatch: pytest.MonkeyPatch, *functions: tuple[str, Kind]) -> list[str]:
    """Let the first genes of a record have functions; returns the sequences searched."""
    asked: list[str] = []
    find = GeneFinder.find

    def recorded(finder: GeneFinder, sequences: list[str]) -> list[Predicted]:
        asked.extend(sequences)
        found = [predicted for text in sequences for predicted in find(finder, [text])]
        return found

    def known(
        _: GeneFinder, found: list[Any], __: object, kinds: Sequence[Kind]
    ) -> list[tuple[str, Kind] | None]:
        own = [function for function in functions if function[1] in kinds]
        return [*own, *[None] * len(found)][: len(found)]

    monkeypatch.setattr(GeneFinder, "find", recorded)
    monkeypatch.setattr(GeneFinder, "_functions", known)
    return asked


def _calls_of_lite(call: Calling, folder: Path) -> dict[str, str]:
    """The calls of the contigs of the example, by record."""
    folder.mkdir(exist_ok=True)
    contigs = EXAMPLES
    (folder / "s.fa").write_text("".join(f">{r.id}\n{r.sequence}\n" for r in contigs))
    lite = ("predict", "-m", "lite", "-e", 500, folder / "s.fa", "-o", folder / "out")
    assert call(*lite).code == 0
    return {row["record"]: row["call"] for row in table(folder / "out/s_contigs.tsv")}


@pytest.mark.parametrize(
    ("uncertain", "long", "searched"),
    [
        (3000, 9000, {"virus", "undecided"}),
        (9000, 9000, {"virus"}),
        (9000, 3000, {"virus", "undecided", "nonvirus"}),
    ],
)
def test_genes_are_looked_for_in_viral_in_uncertain_and_in_long_records(
    call, tmp_path, monkeypatch, uncertain, long, searched
):
    asked = _pretend(monkeypatch)
    monkeypatch.setattr(output, "UNCERTAIN", uncertain)
    monkeypatch.setattr(output, "SHORTEST_RECORD", long)
    found = _calls_of_lite(call, tmp_path)
    assert {"virus", "undecided", "nonvirus"} <= set(found.values())
    sequences = {record.id: record.sequence for record in Records(tmp_path / "s.fa")}
    assert asked == [sequences[name] for name, each in found.items() if each in searched]


PORTAL: tuple[str, Kind] = ("portal protein", "hallmark")
TUBE: tuple[str, Kind] = ("tail tube protein", "hallmark")
RIBOSOMAL: tuple[str, Kind] = ("ribosomal protein L2", "host marker")
CHAPERONE: tuple[str, Kind] = ("chaperone DnaK", "host marker")


def test_a_host_with_a_provirus_is_no_virus_by_the_genes_of_the_provirus(
    call, tmp_path, monkeypatch
):
    _pretend(monkeypatch, PORTAL, TUBE)
    monkeypatch.setattr(output, "SHORTEST_RECORD", 3000)
    plain = _calls_of_lite(call, tmp_path)
    assert "nonvirus" not in plain.values()  # two hallmarks
    region = Region(0, 3000, 4, 4, 0.99, None, False)
    monkeypatch.setattr(output, "find_regions", lambda *_: [region])
    assert "nonvirus" in _calls_of_lite(call, tmp_path / "other").values()


def test_a_record_with_two_host_markers_is_no_virus(call, tmp_path, monkeypatch):
    _pretend(monkeypatch, RIBOSOMAL, CHAPERONE)
    found = _calls_of_lite(call, tmp_path)
    assert "virus" not in found.values()


MARKER: tuple[str, Kind] = ("virus marker 7", "virus marker")


def test_virus_markers_are_looked_for_among_the_genes_that_are_shown(call, tmp_path, monkeypatch):
    searched: list[int] = []
    find = GeneFinder.find_virus_markers

    def recorded(finder: GeneFinder, shown: list[tuple[Predicted, list[Any]]]) -> None:
        for predicted, spans in shown:
            if spans:
                find(finder, [(predicted, spans)])
                searched.append(len(predicted.hits))

    _pretend(monkeypatch, MARKER)
    monkeypatch.setattr(GeneFinder, "find_virus_markers", recorded)
    monkeypatch.setattr(output, "SHORTEST_RECORD", 3000)  # the genes of hosts are found, too
    found = _calls_of_lite(call, tmp_path)
    assert len(searched) == sum(each != "nonvirus" for each in found.values()) < len(found)
    rows = table(tmp_path / "out/s_virus.tsv")
    assert {(row["virus_markers"], row["hallmarks"]) for row in rows} == {("1", "0")}
    text = (tmp_path / "out/s_virus_genes.gff3").read_text()
    assert text.count("product=virus marker 7;") == len(rows) > 0


def test_two_genes_of_one_function_are_one_sign_of_a_virus(call, source, tmp_path, monkeypatch):
    counted: list[int] = []

    def call_of(*arguments: Any) -> Calls:
        counted.extend(arguments[3].hallmarks.tolist())
        return calls.call_of(*arguments)

    _pretend(monkeypatch, PORTAL, PORTAL)
    monkeypatch.setattr(output, "call_of", call_of)
    assert call(*PREDICT, source, "-o", tmp_path / "out", *ALL).code == 0
    assert counted == [1, 1]
    for row in table(tmp_path / "out" / "s_virus.tsv"):
        assert (row["hallmarks"], row["host_markers"]) == ("2", "0")
        assert (row["hallmark_genes"], row["host_marker_genes"]) == ("portal protein", "NA")


def test_every_record_classified_as_viral_has_its_genes(call, tmp_path):
    source, out = tmp_path / "s.fa", tmp_path / "out"
    pieces = [genome[i : i + 600] for genome in GENOMES for i in range(0, len(genome) - 600, 75)]
    source.write_text("".join(f">r{n}\n{piece}\n" for n, piece in enumerate(pieces)))
    assert call("predict", "-m", "lite", "-e", 500, source, "-o", out).code == 0
    run = open_run(out)
    rows = list(run.virus())
    assert all(row.coding_density is not None and row.hallmarks is not None for row in rows)
    with_hallmarks = sum(row.hallmarks > 0 for row in rows)
    assert 0 < with_hallmarks < len(rows)
    assert run.record["counts"]["viruses_with_hallmarks"] == with_hallmarks


def test_regions_have_genes_and_hallmarks(call, tmp_path, monkeypatch):
    """A record that is not viral has the genes of its region only, a viral one all of its own."""
    region, out = Region(300, 3200, 4, 4, 0.99, None, False), tmp_path / "out"
    monkeypatch.setattr(output, "SHORTEST_RECORD", 3000)
    monkeypatch.setattr(output, "find_regions", lambda *_: [region])
    (tmp_path / "s.fa").write_text(f">a;b\n{GENOMES[1]}\n")
    for command in ((*PREDICT, tmp_path / "s.fa", "-o"), ("call",)):
        assert call(*command, out, "--min-score", "0.98").code == 0
        assert table(out / "s_virus.tsv") == []
        (row,) = table(out / "s_regions.tsv")
        ids = [f"a;b|region_301_3200_{n}" for n in range(1, int(row["genes"]) + 1)]
        headers = re.findall("^>(.*?) ", (out / "s_virus_genes.faa").read_text(), re.MULTILINE)
        assert headers == ids
        assert (row["hallmarks"], row["hallmark_genes"]) == ("1", "portal protein")
        assert 0.5 < float(row["coding_density"]) <= 1
        lines = (out / "s_virus_genes.gff3").read_text().splitlines()
        assert lines[1] == f"##sequence-region a%3Bb 1 {len(GENOMES[1])}"
        assert len(lines) == 2 + len(ids)
        assert call("call", out, *ALL).code == 0
        assert "|region" not in (out / "s_virus_genes.gff3").read_text()
        assert [row["hallmarks"] for row in table(out / "s_virus.tsv")] == ["1"]
        assert call("call", out, "--min-score", "0.98", "--no-genes").code == 0
        assert _genes(out) == {}
        assert [*table(out / "s_regions.tsv")[0].values()][-7:] == ["NA"] * 7
