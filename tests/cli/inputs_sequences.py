"""Bad and odd sequence files: rows 1 to 51."""

from __future__ import annotations

import bz2
import lzma
import sys

from tests.cli.inputs import PLAIN, SEQUENCE, Case, bases, packed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

S = SEQUENCE
READS = b"@a first\n" + S + b"\n+\n" + b"I" * 120 + b"\n@b\n" + S[7:] + b"\n+b\n" + b"!" * 113

# Through the command line one of each kind; all others are in tests/unit/io/test_records.py.
REFUSED = (
    Case("1 empty file", b"", ("FILE: no sequences",), "check what wrote it"),
    Case("2 blank lines only", b"\n \n\t\n\r\n", ("FILE: no sequences",), "check what wrote it"),
    Case("7 text first", b"\nhello\n>a\nACGT\n", ("FILE: line 2: text before",), "give a FASTA"),
    Case("15 bare >", b">a\nACGT\n>\nACGT\n", ("FILE: line 3: the header",), "write one after the '>'"),
    Case(
        "18 duplicate ids",
        b"".join(b">%d x%d\nAC\n" % (i % 7, i) for i in range(14)),
        ("FILE", "occur more than once: 0, 1, 2, 3, 4;"),
        "--duplicate-ids rename; where these are pairs of reads, one mate after the other, use "
        "--interleaved",
    ),
    Case("23 latin-1", b">a\nAC\n>p\xe4th\nAC\n", ("FILE: line 3, record 'p",), "save the file as UTF-8"),
    Case(
        "25 terminal escape in a header",
        b">a \x1b[31mred\nAC\n",
        ("FILE: line 1, record 'a': there is a control",),
        "remove it",
    ),
    Case("26 binary", bytes(range(256)) * 20, ("FILE: line 1: the file is not text",), "decompress first"),
    Case(
        "28 FASTQ cut in its qualities",
        b"@r\nACGT\n+\nIIII\n@s\nACGT\n+\nII",
        ("FILE: line 5, record 's'",),
        "is it truncated",
    ),
    Case(
        "29 protein",
        b">a\nACGT\n>b\nACG\nMKLVE\n",
        ("FILE: line 5, record 'b': looks like protein",),
        "give nucleotide sequences",
    ),
    Case("33 gaps", b">a\nACGT\nAC-GT\n", ("FILE: line 3, record 'a'", "'-'"), "remove gaps"),
    Case("47 truncated gzip", packed(PLAIN)[:-5], ("FILE: ", "truncated"), "copy or download"),
    Case("51 gzip in gzip", packed(packed(PLAIN)), ("FILE: line 1: the file",), "decompress first"),
)  # fmt: skip

SCORED = (("a", 120, "scored"), ("b", 113, "scored"))
ACCEPTED = (
    Case("16 blank before the id", PLAIN.replace(b">", b">  "), records=SCORED),
    Case(
        "18 duplicate ids renamed",
        PLAIN.replace(b">b", b">a again"),
        options=("--duplicate-ids", "rename"),
        records=(("a", 120, "scored"), ("a_2", 113, "scored")),
    ),
    Case(
        "18 renamed past a name that is there",
        b">a_2\nAC\n>a\nAC\n>a\nAC\n",
        options=("--duplicate-ids", "rename"),
        records=(("a_2", 2, "too_short"), ("a", 2, "too_short"), ("a_3", 2, "too_short")),
    ),
    Case(
        "19 id that looks like a frame",
        PLAIN.replace(b">b", b">a_chunk_1F1"),
        records=(("a", 120, "scored"), ("a_chunk_1F1", 113, "scored")),
    ),
    Case(
        "20 ids like paths",
        PLAIN.replace(b">a", b">../../x").replace(b">b", b">/etc/x"),
        records=(("../../x", 120, "scored"), ("/etc/x", 113, "scored")),
    ),
    Case(
        "21 quotes, commas and markup",
        PLAIN.replace(b">a", b">\"a',[red]%s{0}").replace(b">b", b">=cmd|'x'"),
        records=(("\"a',[red]%s{0}", 120, "scored"), ("=cmd|'x'", 113, "scored")),
    ),
    Case(
        "22 UTF-8 id",
        PLAIN.replace(b">a", ">pfäd_文".encode()),
        records=(("pfäd_文", 120, "scored"), ("b", 113, "scored")),
    ),
    Case(
        "24 header just short enough",
        b">" + b"x" * (1 << 20) + b"\n" + S + b"\n",
        records=(("x" * (1 << 20), 120, "scored"),),
    ),
    Case("27 FASTQ", READS, same=True),
    Case("30 U read as T", PLAIN.replace(b"T", b"U"), same=True),
    Case(
        "37 one and two bases",
        b">a\nA\n>b\nAC\n>c\n" + S,
        records=(("a", 1, "too_short"), ("b", 2, "too_short"), ("c", 120, "scored")),
    ),
    Case(
        "38 all N",
        b">a\n" + b"N" * 700 + b"\n>b\n" + S,
        records=(("a", 700, "ambiguous"), ("b", 120, "scored")),
    ),
    Case(
        "39 stops in all frames",
        b">a\n" + b"TAATTAATTAA" * 9 + b"\n>b\n" + S,
        records=(("a", 99, "no_open_frame"), ("b", 120, "scored")),
    ),
    Case(
        "40 nothing scorable",
        b">a\nAC\n>b\nNNNNNN\n>c\n" + b"TAATTAATTAA" * 9,
        says=("None of the 3 records could be scored",),
        records=(("a", 2, "too_short"), ("b", 6, "ambiguous"), ("c", 99, "no_open_frame")),
    ),
    Case("45 gzip", packed(PLAIN), same=True, name="sample.fa.gz"),
    Case("46 gzip of two members", packed(PLAIN[:50]) + packed(PLAIN[50:]), same=True),
    Case("50 .gz that is plain", PLAIN, same=True, name="sample.fasta.gz"),
    Case("51 xz", lzma.compress(PLAIN), same=True, name="sample.fna.xz"),
    Case("51 zst", zstd.compress(PLAIN), same=True, name="sample.fa.zst"),
    Case("51 bz2", bz2.compress(PLAIN), same=True, name="sample.fa.bz2"),
)

# Chunks (start, end; from 1, inclusive) of one record at a chunk length of 500.
CHUNKED = (
    ("41 exactly L", bases(500), [("1", "500")]),
    ("42 L + 1", bases(501), [("1", "500"), ("251", "501")]),
    ("42 L - 1", bases(499), [("1", "499")]),
    ("42 2 L", bases(1000), [("1", "500"), ("501", "1000")]),
)
