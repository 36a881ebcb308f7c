"""Bytes in, records or an error out. The numbers in the ids are the rows of the input catalogue."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zipfile
from pathlib import Path

import dnaio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError, UsageError
from virnucpro.io import compression, records, text
from virnucpro.io.records import LONGEST_HEADER, Record, holds_qualities, read_records

PLAIN = b">a x\nACGT\nAC\n>b\nGG\n"
PAIRS = [("a", "ACGTAC"), ("b", "GG")]
LONG_ID = "i" * LONGEST_HEADER


def read(tmp_path: Path, data: bytes, name: str = "in.fa") -> list[Record]:
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_records(path))


def pairs(records: list[Record]) -> list[tuple[str, str]]:
    return [(record.id, record.sequence) for record in records]


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.fa", PLAIN)
    return buffer.getvalue()


ACCEPTED = [
    ("1-empty", b"", []),
    ("2-blank", b"\n \n\t\r\n", []),
    ("8-leading-blank", b"\n\r\n \n>a\nAC\n", [("a", "AC")]),
    ("10-bom", b"\xef\xbb\xbf>a\nAC\n", [("a", "AC")]),
    ("12-crlf", b">a x\r\nAC\r\nGT\r\n>b\r\nGG\r\n", [("a", "ACGT"), ("b", "GG")]),
    ("13-cr", b">a x\rAC\rGT\r>b\rGG\r", [("a", "ACGT"), ("b", "GG")]),
    ("14-no-final-newline", b">a\nAC\n>b\nGG", [("a", "AC"), ("b", "GG")]),
    ("16-blank-before-id", b"> id x\nAC\n", [("id", "AC")]),
    ("17-tab", b">id\tx y\nAC\n", [("id", "AC")]),
    ("18-duplicates", b">a\nAC\n>a\nGG\n", [("a", "AC"), ("a", "GG")]),
    ("19-chunk-like", b">a_chunk_1F1\nAC\n", [("a_chunk_1F1", "AC")]),
    ("20-path-like", b">../../x\nAC\n>/etc/x\nGG\n", [("../../x", "AC"), ("/etc/x", "GG")]),
    ("21-quotes", b">\"a',b[red]\nAC\n", [("\"a',b[red]", "AC")]),
    ("22-utf8", ">séquence_β x\nAC\n".encode(), [("séquence_β", "AC")]),
    (
        "22-odd-blanks",
        ">a\xa01 x\nAC\n>a\u3000 2\nG\n>\ta\u2028b\tx\nT\n".encode(),
        [("a\xa01", "AC"), ("a\u3000", "G"), ("a\u2028b", "T")],
    ),
    ("22-utf8-fastq", "@é\nAC\n+\nII\n".encode(), [("é", "AC")]),
    ("27-fastq", b"@a x\nACGTAC\n+a x\n@IIII+\n@b\nGG\n+\n>I\n", PAIRS),
    ("27-fastq-crlf", b"@a\r\nAC\r\n+\r\nII\r\n", [("a", "AC")]),
    (
        "27-fastq-blank-lines",
        b"\n@a\nAC\n+\nII\n\n\n@b\nG\n+\nI\n\n\n\n\n",
        [("a", "AC"), ("b", "G")],
    ),
    ("27-fastq-no-final-newline", b"@a\nAC\n+\nII", [("a", "AC")]),
    ("30-uracil", b">a\nACGUu\n", [("a", "ACGTt")]),
    ("31-lower", b">a\nacgtN\n", [("a", "acgtN")]),
    ("32-iupac", b">a\nACGTUNRYSWKMBDHV\nn\n", [("a", "ACGTTNRYSWKMBDHVn")]),
    ("35-blanks", b">a\nAC GT\tAC\n\nGG \n", [("a", "ACGTACGG")]),
    ("36-empty-record", b">a\n>b\nAC\n>c", [("a", ""), ("b", "AC"), ("c", "")]),
    ("36-empty-fastq-record", b"@a\n\n+\n\n@b\nA\n+\nI\n", [("a", ""), ("b", "A")]),
    ("37-short", b">a\nA\n>b\nAC\n", [("a", "A"), ("b", "AC")]),
    ("38-all-n", b">a\nNNNN\n", [("a", "NNNN")]),
    ("45-gzip", gzip.compress(PLAIN), PAIRS),
    ("46-members", gzip.compress(PLAIN[:7]) + gzip.compress(b"") + gzip.compress(PLAIN[7:]), PAIRS),
    ("46-padding", gzip.compress(PLAIN) + b"\0" * 512, PAIRS),
    ("51-bz2", bz2.compress(PLAIN[:7]) + bz2.compress(PLAIN[7:]), PAIRS),
    ("51-xz", lzma.compress(PLAIN) + lzma.compress(b"GG"), [("a", "ACGTAC"), ("b", "GGGG")]),
]


@pytest.mark.parametrize(
    ("data", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ACCEPTED]
)
def test_accepted(tmp_path, data, expected):
    assert pairs(read(tmp_path, data)) == expected
    # Whatever the name says (rows 45 and 50)
    assert pairs(read(tmp_path, data, "in.fq.gz")) == expected


@pytest.mark.parametrize(
    ("data", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ACCEPTED]
)
def test_blocks_of_any_size_give_the_same(tmp_path, data, expected, monkeypatch):
    for size in (1, 2, 7):
        monkeypatch.setattr(compression, "BLOCK", size)
        monkeypatch.setattr(text, "_HEAD", 3)  # a byte-order mark
        if not data.startswith((b"\x1f\x8b", b"BZh", b"\xfd")):
            monkeypatch.setattr(compression, "_PACKED_BLOCK", size)
        assert pairs(read(tmp_path, data)) == expected


def test_qualities_are_those_of_the_letters(tmp_path):
    assert [r.qualities for r in read(tmp_path, b"@a x\nACGT\n+a x\n@I+>\n@b\n\n+\n\n")] == [
        "@I+>",
        "",
    ]
    odd = b"@a\n AC\tG \n+\n!IJ!K!\n@b\nGU\n+\nAB\n"  # blanks, and a U
    found = read(tmp_path, odd)
    assert [(r.sequence, r.qualities) for r in found] == [("ACG", "IJK"), ("GT", "AB")]
    assert [r.qualities for r in read(tmp_path, PLAIN)] == [None, None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", False, id="empty"),
        pytest.param(b" \n\n", False, id="blank"),
        pytest.param(PLAIN, False, id="fasta"),
        pytest.param(b"\n \n@a\nAC\n+\nII\n", True, id="fastq"),
        pytest.param(b"\xef\xbb\xbf@a\r\nAC\r\n+\r\nII\r\n", True, id="byte-order-mark"),
        pytest.param(gzip.compress(b"@a\nAC\n+\nII\n"), True, id="gzip"),
    ],
)
def test_a_file_with_qualities_is_known_by_its_beginning(tmp_path, data, expected):
    path = tmp_path / "in"
    path.write_bytes(data)
    assert holds_qualities(path) is expected


def _by_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    with monkeypatch.context() as patched:
        patched.setattr(records, "_plain_records", lambda heads, lines_of: None)
        return list(read_records(path))


@pytest.mark.parametrize("kind", ["fasta", "fastq"])
def test_records_of_a_block_are_those_that_are_read_one_by_one(tmp_path, kind, monkeypatch):
    sequences = ["ACGTN", "acgt" * 30, "", "RYSWKM", "G" * 70]
    headers = ["a", "b text", "é\u00a0x", "d\ttab", "e  two"]
    made = [(f"{h}", s) for _ in range(40) for h, s in zip(headers, sequences, strict=True)]
    made.insert(151, ("u", "ACGU"))  # unusual: from here on, one by one
    if kind == "fasta":
        data = "".join(f">{h}\n{s[:50]}\n{s[50:]}\n" for h, s in made)
    else:
        data = "".join(f"@{h}\n{s}\n+\n{'@' * len(s)}\n" for h, s in made)
    path = tmp_path / "in"
    path.write_bytes(data.encode())
    for size in (1 << 20, 1000, 97):
        monkeypatch.setattr(compression, "BLOCK", size)
        monkeypatch.setattr(compression, "_PACKED_BLOCK", size)
        reading = read_records(path)
        found = list(reading)
        assert found == _by_record(path, monkeypatch)
        assert [(r.header, r.sequence) for r in found] == [
            (h, s.replace("U", "T")) for h, s in made
        ]
        assert reading.uracil


REFUSED = [
    ("7-text-first", b"\nhello\n>a\nAC\n", "line 2", "text before the first '>': 'hello'"),
    ("9-comment", b";c\n>a\nAC\n", "line 1", "comment"),
    ("9-comment-inside", b">a\nAC\n;c\nGG\n", "line 3, record 'a'", "comment"),
    ("11-utf16", ">a\nAC\n".encode("utf-16"), "line 1", "UTF-16"),
    ("11-utf16-no-bom", ">a\nAC\n".encode("utf-16-le"), "line 1", "UTF-16"),
    ("15-no-id", b">a\nAC\n>\nGG\n", "line 3", "no id"),
    ("15-no-id-blanks", b"> \t\nGG\n", "line 1", "no id"),
    ("15-no-id-fastq", b"@\nGG\n+\nII\n", "line 1", "no id"),
    ("23-latin1", b">b\nA\n>caf\xe9 x\nAC\n", "line 3, record 'caf\ufffd'", "byte offset 9 "),
    ("23-latin1-bom", b"\xef\xbb\xbf>caf\xe9\nAC\n", "line 1, record 'caf\ufffd'", "offset 7 "),
    ("23-latin1-cut", b">a\nA\n>caf\xc3", "line 3, record 'caf\ufffd'", "byte offset 9 "),
    ("23-latin1-crlf", b">a\r\nA\r\n>caf\xe9\r\n", "line 3, record 'caf\ufffd'", "offset 11 "),
    ("24-header", b">a\nA\n>" + LONG_ID.encode() + b"x\nA\n", "line 3, record 'iii", "1 MiB"),
    ("25-nul", b">a\nAC\n>b\nA\0C\n", "line 4, record 'b'", "control character 0x00"),
    ("25-nul-header", b">a\nAC\n>b\0\nAC\n", "line 3, record 'b\\x00'", "control character 0x00"),
    ("25-escape-header", b">a \x1b[31m\nAC\n", "line 1, record 'a'", "control character 0x1b"),
    ("25-c1-header", ">a \x9b\nAC\n".encode(), "line 1, record 'a'", "control character 0x9b"),
    ("25-control-quality", b"@a\nAC\n+\nI\x01\n", "line 4, record 'a'", "quality"),
    ("26-binary", b"\x7fELF\2\1\1\0\0", "line 1", "binary"),
    ("26-png", b"\x89PNG\r\n\x1a\n\0\0", "line 1", "binary"),
    ("26-bam", gzip.compress(b"BAM\1" + bytes(50)), "in.fa", "samtools fasta"),
    ("26-tar", gzip.compress(b"a.fa".ljust(257, b"\0") + b"ustar"), "in.fa", "tar"),
    ("28-one-line", b"@a\nAC\n+\nII\n@b", "line 5, record 'b'", "truncated"),
    ("28-two-lines", b"@a\nAC\n+\nII\n@b\nAC\n", "line 6, record 'b'", "truncated"),
    ("28-three-lines", b"@a\nAC\n+\nII\n@b\nAC\n+", "line 7, record 'b'", "truncated"),
    ("28-short-quality", b"@a\nACG\n+\nI", "line 4, record 'a'", "3 bases but 1 qualities"),
    ("28-wrapped", b"@a\nAC\nGT\n+\nIIII\n", "line 3, record 'a'", "begin with '+'"),
    ("28-shifted", b"@a\nAC\n+\nII\nAC\n", "line 5", "begin with '@'"),
    ("29-protein", b">a\nACG\nMKVLE*\n", "line 3, record 'a'", "looks like protein (letter 'L')"),
    ("29-protein-fastq", b"@a\nMKVL\n+\nIIII\n", "line 2, record 'a'", "looks like protein"),
    ("33-gap", b">a\nAC\nA-C\n", "line 3, record 'a'", "gaps ('-')"),
    ("33-dot", b">a\nA.C\n", "line 2, record 'a'", "gaps ('.')"),
    ("34-stop", b">a\nAC*\n", "line 2, record 'a'", "'*' is not a nucleotide"),
    ("34-digit", b">a\n1 AC\n", "line 2, record 'a'", "'1' is not a nucleotide"),
    ("other-letter", b">a\nACX\n", "line 2, record 'a'", "'X' is not a nucleotide code"),
    ("other-script", ">a\nACé\n".encode(), "line 2, record 'a'", "'é' is not a nucleotide code"),
    ("other-mark", b">a\nAC>b\n", "line 2, record 'a'", "'>' inside"),
    ("47-truncated", gzip.compress(PLAIN)[:-5], "in.fa", "gzip data are truncated"),
    ("47-header-only", b"\x1f\x8b", "in.fa", "gzip data are truncated"),
    ("47-bz2", bz2.compress(PLAIN)[:-5], "in.fa", "bzip2 data are truncated"),
    ("47-xz", lzma.compress(PLAIN)[:-5], "in.fa", "xz data are truncated"),
    ("47-damaged", gzip.compress(PLAIN)[:-6] + bytes(6), "in.fa", "gzip data are damaged"),
    ("48-garbage", gzip.compress(PLAIN) + b">c\nAC\n", "in.fa", "something else follows"),
    ("48-garbage-bz2", bz2.compress(PLAIN) + b"x", "in.fa", "something else follows"),
    ("48-garbage-xz", lzma.compress(PLAIN) + b"x", "in.fa", "something else follows"),
    ("51-zip", zipped(), "in.fa", "decompress first"),
    ("51-zst", b"\x28\xb5\x2f\xfd\x04\x00", "in.fa", "decompress first"),
    ("51-twice", gzip.compress(gzip.compress(PLAIN)), "in.fa", "decompress first"),
]


@pytest.mark.parametrize(
    ("data", "place", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_refused(tmp_path, data, place, message):
    with pytest.raises(InputError) as caught:
        read(tmp_path, data)
    assert str(tmp_path / "in.fa") + ": " in str(caught.value)
    assert place in str(caught.value)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [pytest.param(*row[1:], id=row[0]) for row in REFUSED if row[0][:2] not in ("24", "26", "51")],
)
def test_refused_alike_in_small_blocks(tmp_path, data, place, message, monkeypatch):
    monkeypatch.setattr(compression, "BLOCK", 3)
    if not data.startswith((b"\x1f\x8b", b"BZh", b"\xfd")):
        monkeypatch.setattr(compression, "_PACKED_BLOCK", 3)
    with pytest.raises(InputError) as caught:
        read(tmp_path, data)
    assert place in str(caught.value)
    assert message in str(caught.value)


def test_3_missing(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        list(read_records(tmp_path / "none.fa"))


def test_4_directory(tmp_path):
    with pytest.raises(UsageError, match="is a directory"):
        list(read_records(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_5_unreadable(tmp_path):
    path = tmp_path / "in.fa"
    path.write_bytes(PLAIN)
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_records(path))


def test_24_a_file_without_line_ends_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "in.fa"
    with path.open("wb") as file:
        file.write(b">a")
        file.truncate(1 << 40)  # a sparse terabyte of NUL
    with pytest.raises(InputError, match="1 MiB"):
        list(read_records(path))


def test_24_one_mebibyte_is_allowed(tmp_path):
    assert pairs(read(tmp_path, f">{LONG_ID}\nAC\n".encode())) == [(LONG_ID, "AC")]


def test_49_bomb(tmp_path):
    path = tmp_path / "in.fa"
    path.write_bytes(gzip.compress(b">a\n" + b"A" * 10_000_000))
    with pytest.raises(InputError, match=r"more than the 1,000,000 bytes"):
        list(read_records(path, limit=1_000_000))
    assert len(next(read_records(path, limit=10_000_003)).sequence) == 10_000_000


def test_49_a_plain_file_has_no_limit(tmp_path):
    path = tmp_path / "in.fa"
    path.write_bytes(PLAIN)
    assert len(list(read_records(path, limit=1))) == 2


def test_header_is_kept(tmp_path):
    assert [r.header for r in read(tmp_path, b"> a\tb  c \r\nAC\n")] == [" a\tb  c "]


@pytest.mark.parametrize(
    ("data", "expected"), [(b">U u\nACGT\n", False), (b">a\nACGT\n>b\nau\n", True)]
)
def test_30_uracil_is_noticed(tmp_path, data, expected):
    path = tmp_path / "in.fa"
    path.write_bytes(data)
    records = read_records(path)
    assert len(list(records)) == 1 + data.count(b"\n>")
    assert records.uracil is expected


def test_reading_can_stop_early(tmp_path):
    path = tmp_path / "in.fa"
    path.write_bytes(PLAIN)
    with read_records(path) as records:
        assert next(records).id == "a"
    assert list(records) == []


MIXED = st.lists(
    st.sampled_from(
        [
            *(b">", b"@", b"+", b"\n", b"\r", b"\r\n", b" ", b"\t", b";", b"\0", b"-", b"*"),
            *(b"a", b"ACGT", b"u", b"E", b"II", b"\x1f\x8b"),
            *(b"\xc3\xa9", b"\xe9", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8"),
        ]
    ),
    max_size=40,
).map(b"".join)


def outcome(path: Path, data: bytes) -> list[Record] | str:
    """The records of ``data``, or the message of the error."""
    path.write_bytes(data)
    try:
        return list(read_records(path))
    except InputError as error:
        return str(error)


@given(st.one_of(st.binary(max_size=200), MIXED, MIXED.map(gzip.compress), MIXED.map(bz2.compress)))
def test_any_bytes_give_records_or_an_input_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.fa"
    found = outcome(path, data)
    if isinstance(found, str):
        assert found.startswith(f"{path}: ")
        return
    for record in found:
        assert record.header.split()[0] == record.id
        assert not re.search(r"[^ACGTNRYSWKMBDHV]", record.sequence, re.IGNORECASE)


@given(MIXED, st.integers(1, 5))
def test_small_blocks_change_neither_records_nor_messages(tmp_path_factory, data, size):
    path = tmp_path_factory.getbasetemp() / "small.fa"
    data = b">a\nACGT\n" + data if data[:1] != b"@" else data
    whole = outcome(path, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "BLOCK", size)
        patch.setattr(compression, "_PACKED_BLOCK", size)
        patch.setattr(text, "_HEAD", 3)
        in_parts = outcome(path, data)
    if isinstance(whole, str) and "not UTF-8" in whole:  # it is looked for a block at a time
        assert isinstance(in_parts, str)
    else:
        assert in_parts == whole


@given(data=st.binary(max_size=60), keep=st.integers(0, 100))
def test_damaged_compressed_data(tmp_path_factory, data, keep):
    path = tmp_path_factory.getbasetemp() / "damaged.fa"
    for packed in (gzip.compress(PLAIN), bz2.compress(PLAIN), lzma.compress(PLAIN)):
        found = outcome(path, packed[:keep] + data)
        assert not isinstance(found, str) or found.startswith(f"{path}: ")


NAMES = st.text("abc1_|.", min_size=1, max_size=8)
SEQUENCES = st.text("ACGTNacgt", max_size=90)


@given(st.lists(st.tuples(NAMES, SEQUENCES), min_size=1, max_size=8), st.integers(1, 70))
def test_same_as_dnaio(tmp_path_factory, named, width):
    path = tmp_path_factory.getbasetemp() / "dnaio.fa"
    wrap = re.compile(f".{{1,{width}}}")
    wrapped = "".join(f">{n} x\n" + "".join(f"{w}\n" for w in wrap.findall(s)) for n, s in named)
    fastq = "".join(f"@{n} x\n{s}\n+\n{'I' * len(s)}\n" for n, s in named)
    for kind, data in (("fasta", wrapped), ("fastq", fastq)):
        path.write_text(data)
        with dnaio.open(path, fileformat=kind, open_threads=0) as reader:
            expected = [(record.name, record.sequence) for record in reader]
        assert [(r.header, r.sequence) for r in read_records(path)] == expected


# --- proteins --------------------------------------------------------------------------------


def test_residues_are_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.faa"
    path.write_bytes(b">a first\nMBZ UXJ*\nmkl\n>empty\n>c\nACGTACGT\n")
    records = [(r.id, r.sequence) for r in read_records(path, molecule="protein")]
    assert records == [("a", "MBZUXJ*mkl"), ("empty", ""), ("c", "ACGTACGT")]
    path.write_bytes(b"@a\nMKL\n+\nIII\n")
    assert [r.sequence for r in read_records(path, molecule="protein")] == ["MKL"]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (b">a\nMKL\n>b\nMKL\nM-KL\n", "line 5, record 'b'", "gaps"),
        (b">a\nMK1L\n", "line 2, record 'a'", "not an amino acid"),
        (b">a\nMK\xc3\xa4L\n", "line 2, record 'a'", "not a letter of an amino acid"),
        (b">a\n" + b"ACGT" * 10 + b"\n", "line 2, record 'a'", "looks like nucleotides"),
        (b">a\n" + b"acgun" * 9 + b"\n", "line 2, record 'a'", "looks like nucleotides"),
        (b"@a\nMKL\n+\nII\n", "line 4, record 'a'", "3 residues but 2 qualities"),
    ],
)
def test_what_is_not_a_protein_is_refused(
    tmp_path: Path, text: bytes, place: str, message: str
) -> None:
    path = tmp_path / "p.faa"
    path.write_bytes(text)
    with pytest.raises(InputError, match=message) as refusal:
        list(read_records(path, molecule="protein"))
    assert place in str(refusal.value)


def test_a_protein_of_one_or_two_letters_is_a_protein(tmp_path: Path) -> None:
    path = tmp_path / "p.faa"
    path.write_bytes(b">a\n" + b"G" * 99 + b"\n>b\n" + b"AG" * 50 + b"\n")
    assert len(list(read_records(path, molecule="protein"))) == 2
