"""Bytes in, records or an error out. The numbers in the ids are the rows of the input catalogue."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import sys
from itertools import permutations
from pathlib import Path

import dnaio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError
from virnucpro.io import text
from virnucpro.io.records import LONGEST_HEADER, Record, Records, holds_qualities

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN = b">a x\nACGT\nAC\n>b\nGG\n"
PAIRS = [("a", "ACGTAC"), ("b", "GG")]
LONG_ID = "i" * LONGEST_HEADER


def zst(data: bytes) -> bytes:
    """A frame as ``zstd`` writes it, with a checksum."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS = (gzip.compress, bz2.compress, lzma.compress, zst)
SKIPPED = b"\x5f\x2a\x4d\x18\x04\0\0\0skip"  # a frame that readers of zstd pass over


def read(tmp_path: Path, data: bytes, name: str = "in.fa", **options) -> list[Record]:
    path = tmp_path / name
    path.write_bytes(data)
    return list(Records(path, **options))


def pairs(records: list[Record]) -> list[tuple[str, str]]:
    return [(record.id, record.sequence) for record in records]


ACCEPTED = [
    ("1-empty", b"", []),
    ("2-blank", b"\n \n\t\r\n", []),
    ("8-leading-blank", b"\n\r\n \n>a\nAC\n", [("a", "AC")]),
    ("10-bom", b"\xef\xbb\xbf>a\nAC\n", [("a", "AC")]),
    ("13-cr", b">a x\rAC\rGT\r>b\rGG\r", [("a", "ACGT"), ("b", "GG")]),
    ("16-blank-before-id", b"> id x\nAC\n", [("id", "AC")]),
    ("17-tab", b">id\tx y\nAC\n", [("id", "AC")]),
    ("18-duplicates", b">a\nAC\n>a\nGG\n", [("a", "AC"), ("a", "GG")]),
    ("19-chunk-like", b">a_chunk_1F1\nAC\n", [("a_chunk_1F1", "AC")]),
    ("21-quotes", b">\"a',b[red]\nAC\n", [("\"a',b[red]", "AC")]),
    ("22-utf8", ">séquence_β x\nAC\n".encode(), [("séquence_β", "AC")]),
    (
        "22-odd-blanks",
        ">a\xa01 x\nAC\n>a\u3000 2\nG\n>\ta\u2028b\tx\nT\n".encode(),
        [("a\xa01", "AC"), ("a\u3000", "G"), ("a\u2028b", "T")],
    ),
    ("24-one-mebibyte", f">{LONG_ID}\nAC\n".encode(), [(LONG_ID, "AC")]),
    ("27-fastq", b"@a x\nACGTAC\n+a x\n@IIII+\n@b\nGG\n+\n>I", PAIRS),
    (
        "27-fastq-blank-lines",
        b"\n@a\nAC\n+\nII\n\n\n@b\nG\n+\nI\n\n\n\n\n",
        [("a", "AC"), ("b", "G")],
    ),
    ("30-uracil", b">a\nACGUu\n", [("a", "ACGTt")]),
    ("31-lower", b">a\nacgtN\n", [("a", "acgtN")]),
    ("32-iupac", b">a\nACGTUNRYSWKMBDHV\nn\n", [("a", "ACGTTNRYSWKMBDHVn")]),
    ("35-blanks", b">a\nAC GT\tAC\n\nGG \n", [("a", "ACGTACGG")]),
    ("36-empty-record", b">a\n>b\nAC\n>c", [("a", ""), ("b", "AC"), ("c", "")]),
    ("37-short", b">a\nA\n>b\nAC\n", [("a", "A"), ("b", "AC")]),
    ("38-all-n", b">a\nNNNN\n", [("a", "NNNN")]),
    ("46-members", gzip.compress(PLAIN[:7]) + gzip.compress(b"") + gzip.compress(PLAIN[7:]), PAIRS),
    ("46-padding", gzip.compress(PLAIN) + b"\0" * 512, PAIRS),
    (
        "46-padding-xz",
        b"".join(lzma.compress(part) + bytes(8) for part in (PLAIN[:7], b"", PLAIN[7:])),
        PAIRS,
    ),
    ("51-skippable", SKIPPED + zst(PLAIN[:7]) + SKIPPED + zst(PLAIN[7:]) + SKIPPED, PAIRS),
    *(
        (f"51-{pack.__module__}", pack(PLAIN[:7]) + pack(b"") + pack(PLAIN[7:]), PAIRS)
        for pack in PACKERS
    ),
]


@pytest.mark.parametrize(("data", "expected"), [pytest.param(*r[1:], id=r[0]) for r in ACCEPTED])
def test_accepted(tmp_path, data, expected):
    assert pairs(read(tmp_path, data)) == expected
    assert pairs(read(tmp_path, data, "in.fq.gz")) == expected  # whatever the name says: 45, 50


def test_headers_and_qualities_are_kept(tmp_path):
    assert [r.header for r in read(tmp_path, b"> a\tb  c \r\nAC\n")] == [" a\tb  c "]
    odd = b"@b\nGU\n+\nAB\n@c\n\n+\n\n"  # a U, and nothing
    found = [(r.sequence, r.qualities) for r in read(tmp_path, odd)]
    assert found == [("GT", "AB"), ("", "")]
    assert [r.qualities for r in read(tmp_path, PLAIN)] == [None, None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", False),
        (b" \n\n", False),
        (PLAIN, False),
        (b"\n \n@a\nAC\n+\nII\n", True),
        (b"\xef\xbb\xbf@a\r\nAC\r\n+\r\nII\r\n", True),
        pytest.param(gzip.compress(b"@a\nAC\n+\nII\n"), True, id="gzip"),
    ],
)
def test_a_file_with_qualities_is_known_by_its_beginning(tmp_path, data, expected):
    path = tmp_path / "in"
    path.write_bytes(data)
    assert holds_qualities(path) is expected


REFUSED = [
    ("7-text-first", b"\nhello\n>a\nAC\n", "line 2: text before the first record: 'hello'"),
    ("9-comment", b";c\n>a\nAC\n", "line 1: text before"),
    ("11-utf16", ">a\nAC\n".encode("utf-16"), "line 1: "),
    ("15-no-id", b">a\nAC\n>\nGG\n>b\nC\n", "line 3: the header has no id"),
    ("15-no-id-fastq", b"@\nGG\n+\nII\n", "line 1: the header has no id"),
    ("23-latin1", b">b\nA\n>caf\xe9 x\nAC\n", "line 3, record 'caf\\xe9': byte 0xe9 "),
    ("23-cut-within-a-letter", b">b\nAC\xc3", "line 2, record 'b': byte 0xc3 "),
    ("23-latin1-within", b">a\nA\nA\xe9\n", "line 3, record 'a': byte 0xe9 "),
    ("24-header", b">a\nA\n>" + LONG_ID.encode() + b"x\nA\n", "line 3, record 'iii"),
    ("25-nul", b">a\nAC\n>b\nA\0C\n", "line 4, record 'b': '\\x00'"),
    ("25-nul-header", b">a\nAC\n>b\0\nAC\n", "line 3, record 'b\\x00': there is a control"),
    ("25-escape-header", b">a \x1b[31m\nAC\n", "line 1, record 'a': there is a control"),
    ("25-control-quality", b"@a\nAC\n+\nI\x01\n", "line 1, record 'a': a FASTQ record"),
    ("26-binary", b"\x7fELF\2\1\1\0\0", "line 1: text before"),
    ("28-letter-quality", "@a\nAC\n+\nI\u00e9\n".encode(), "line 1, record 'a': a FASTQ record"),
    ("28-short-quality", b"@a\nACG\n+\nI", "line 1, record 'a': a FASTQ record"),
    ("28-blank", b"@a\nA C\n+\nIII\n", "line 1, record 'a': a FASTQ record"),
    ("28-wrapped", b"@a\nAC\nGT\n+\nIIII\n", "line 1, record 'a': a FASTQ record"),
    ("28-after-blank-lines", b"@a\nAC\n+\nII\n\n\n@b\nA-\n+\nII\n", "line 8, record 'b': '-'"),
    ("29-protein", b">a\nACG\nMKVLE*\n", "line 3, record 'a': looks like protein (letter 'L')"),
    ("29-lower-protein", b">a\nACG\nmkv*le\n", "line 3, record 'a': looks like protein (letter 'l')"),
    ("33-gap", b">a\nAC\nA-C\n", "line 3, record 'a': '-'"),
    ("other-script", ">a\nACé\n".encode(), "line 2, record 'a': 'é'"),
    *((f"47-{pack.__module__}", pack(PLAIN)[:-5], "truncated") for pack in PACKERS),
    ("47-header-only", b"\x1f\x8b", "truncated"),
    ("47-damaged", gzip.compress(PLAIN)[:-6] + bytes(6), "damaged"),
    *((f"48-{pack.__module__}", pack(PLAIN) + b">c\nAC\n", "damaged") for pack in PACKERS),
    *((f"48-{each.__module__}-{other.__module__}", each(PLAIN) + other(PLAIN), "damaged")
      for each, other in permutations(PACKERS, 2)),
    ("51-zip", b"PK\x03\x04" + bytes(60), "plain or as gzip"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "place"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_refused(tmp_path, data, place):
    with pytest.raises(InputError) as caught:
        read(tmp_path, data)
    assert str(caught.value).startswith(f"{tmp_path / 'in.fa'}: ")
    assert place in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("pack", PACKERS)
def test_a_flipped_bit_in_a_compressed_file_is_noticed_or_changes_nothing(tmp_path, pack):
    data = bytearray(pack(b">a\nACGTTGCA\n") + pack(b">b\nGGGTACCA\n>c\nTTTT\n"))
    whole = read(tmp_path, data)
    assert len(whole) == 3
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        found = outcome(tmp_path / "in.fa", data)
        assert found == whole or isinstance(found, str), f"bit {bit}"
        data[bit // 8] ^= 1 << bit % 8


def test_a_file_without_line_ends_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "in.fa"
    with path.open("wb") as file:
        file.write(b">a")
        file.truncate(1 << 40)  # a sparse terabyte of NUL
    with pytest.raises(InputError, match="1 MiB"):
        list(Records(path))


def test_a_record_that_unpacks_to_more_than_the_limit_is_refused(tmp_path):
    data = gzip.compress(b">a\n" + b"A" * 10_000_000)
    with pytest.raises(InputError, match=r"more than the 1,000,000 bytes"):
        read(tmp_path, data, limit=1_000_000)
    assert len(read(tmp_path, data, limit=10_000_003)[0].sequence) == 10_000_000
    assert len(read(tmp_path, PLAIN, limit=1)) == 2  # a plain file has no limit


MIXED = st.lists(
    st.sampled_from(
        [
            *(b">", b"@", b"+", b"\n", b"\r", b"\r\n", b" ", b"\t", b";", b"\0", b"-", b"*"),
            *(b"a", b"ACGT", b"u", b"E", b"II", b"\x1f\x8b", b"\n>a\n", b"\n@a\nA\n+\nI\n"),
            *(b"\xc3\xa9", b"\xe9", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8"),
        ]
    ),
    max_size=40,
).map(b"".join)


def outcome(path: Path, data: bytes) -> list[Record] | str:
    """The records of ``data``, or the message of the error."""
    path.write_bytes(data)
    try:
        return list(Records(path))
    except InputError as error:
        return str(error)


@given(
    st.one_of(st.binary(max_size=200), MIXED, MIXED.map(gzip.compress), MIXED.map(zstd.compress))
)
def test_any_bytes_give_records_or_an_input_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.fa"
    found = outcome(path, data)
    if isinstance(found, str):
        assert found.startswith(f"{path}: ")
        return
    for record in found:
        assert re.split("[ \t]+", record.header.lstrip(" \t"))[0] == record.id
        assert not re.search(r"[^ACGTNRYSWKMBDHV]", record.sequence, re.IGNORECASE)


@given(MIXED, st.integers(1, 5))
def test_small_blocks_change_neither_records_nor_messages(tmp_path_factory, data, size):
    path = tmp_path_factory.getbasetemp() / "small.fa"
    data = b">a\nACGT\n" + data if data[:1] != b"@" else data
    whole = outcome(path, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK", size)
        assert outcome(path, data) == whole


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
        assert [(r.header, r.sequence) for r in Records(path)] == expected


# --- proteins --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b">a first\nMBZ UXJ*\nmkl\n>e\n>c\nACGTACGT\n", ["MBZUXJ*mkl", "", "ACGTACGT"]),
        (b"@a\nMKL\n+\nIII\n", ["MKL"]),
        (b">a\n" + b"G" * 99 + b"\n>b\n" + b"AG" * 50 + b"\n", ["G" * 99, "AG" * 50]),
        (b">a\nMKL\n>b\nMKL\nM-KL\n", "line 5, record 'b': '-' is no amino acid"),
        (b">a\nMK\xc3\xa4L\n", "line 2, record 'a': 'ä' is no amino acid"),
        (b">a\n" + b"ACGT" * 10 + b"\n", "line 2, record 'a': looks like nucleotides"),
        (b">a\nMK\n>b\n" + b"acgun" * 9 + b"\n", "line 4, record 'b': looks like nucleotides"),
        (b"@a\nMKL\n+\nII\n", "line 1, record 'a': a FASTQ record"),
    ],
)
def test_proteins(tmp_path, data, expected):
    if isinstance(expected, list):
        (tmp_path / "in.fa").write_bytes(data)
        records = Records(tmp_path / "in.fa", molecule="protein")
        assert [record.sequence for record in records] == expected
        assert not records.uracil
        return
    with pytest.raises(InputError) as caught:
        read(tmp_path, data, molecule="protein")
    assert expected in str(caught.value)
