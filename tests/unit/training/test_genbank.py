"""GenBank files: sequences, headers, and the proteins that frames are compared with."""

from __future__ import annotations

import gzip
import io

import pytest

from tests.unit.training.made_genomes import coding
from virnucpro.errors import InputError
from virnucpro.training.data.genomes import is_genbank, read_genbank

SeqIO = pytest.importorskip("Bio.SeqIO")
from Bio.Seq import Seq  # noqa: E402
from Bio.SeqFeature import FeatureLocation, SeqFeature  # noqa: E402
from Bio.SeqRecord import SeqRecord  # noqa: E402


def genbank(*features: SeqFeature, sequence: str = "", name: str = "NC_000001.1") -> str:
    """A record in GenBank's format, as Biopython writes it."""
    record = SeqRecord(
        Seq(sequence), id=name, name="NC_000001", description="made-up phage, complete genome"
    )
    record.annotations |= {"molecule_type": "DNA", "organism": "Madeupvirus one"}
    record.features.extend(features)
    stream = io.StringIO()
    SeqIO.write([record], stream, "genbank")
    return stream.getvalue()


def cds(start: int, end: int, strand: int = 1, **said: str) -> SeqFeature:
    return SeqFeature(
        FeatureLocation(start, end, strand),
        type="CDS",
        qualifiers={k: [v] for k, v in said.items()},
    )


@pytest.fixture
def read(tmp_path):
    def _read(text: str):
        path = tmp_path / "a.gbff.gz"
        path.write_bytes(gzip.compress(text.encode()))
        assert is_genbank(path)
        return list(read_genbank(path))

    return _read


SEQUENCE = coding(1, 3000)


def test_records_with_header_and_sequence(read):
    text = genbank(sequence=SEQUENCE) + genbank(sequence="ACGTRN", name="NC_000002.1")
    first, second = read(text)
    header = "NC_000001.1 made-up phage, complete genome [Madeupvirus one]"
    assert first[:3] == ("NC_000001.1", header, SEQUENCE)
    assert (second[0], second[2]) == ("NC_000002.1", "ACGTRN")


PROTEIN = str(Seq(SEQUENCE[:1500]).translate())
GENE = SeqFeature(FeatureLocation(0, 1500, 1), type="gene")


@pytest.mark.parametrize(
    ("features", "codes"),
    [
        ([cds(0, 1500, translation=PROTEIN)], True),
        ([cds(0, 1500)], True),  # without a translation, the bases are translated
        ([cds(0, 200), cds(1500, 3000, translation=PROTEIN)], False),  # not there
        ([GENE, cds(0, 1500, pseudo="")], False),
    ],
)
def test_a_frame_must_lie_in_an_annotated_protein(read, features, codes):
    (record,) = read(genbank(*features, sequence=SEQUENCE))
    assert record.may_code(PROTEIN[100:266], 300, 800) == codes
    assert not record.may_code("W" + PROTEIN[100:266], 300, 800)


def test_a_gene_on_the_other_strand_that_begins_within_a_codon(read):
    reverse = str(Seq(SEQUENCE[601:1500]).reverse_complement())
    expected = str(Seq(reverse[1:][: (len(reverse) - 1) // 3 * 3]).translate())
    (record,) = read(genbank(cds(601, 1500, -1, codon_start="2"), sequence=SEQUENCE))
    assert record.may_code(expected, 601, 1500)
    assert len(expected) == 299


def test_a_record_that_only_refers_to_others_has_no_sequence(read):
    text = genbank(sequence=SEQUENCE)
    head = text[: text.index("ORIGIN")]
    ((name, _, sequence, *_),) = read(head + "CONTIG      join(NC_000009.1:1..3000)\n//\n")
    assert (name, sequence) == ("NC_000001.1", "")


def test_damage(read):
    whole = genbank(sequence="ACGT")
    for text in (whole.replace("1 acgt", "1 aczt"), "LOCUS       x\nnonsense\n"):
        with pytest.raises(InputError, match="is damaged at its beginning"):
            read(text)
