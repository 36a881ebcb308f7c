"""Bad and odd sequence files: rows 1 to 51."""

from __future__ import annotations

import bz2
import lzma

from tests.cli.inputs import PLAIN, SEQUENCE, Case, bases, packed

S = SEQUENCE
LOWER = PLAIN.replace(S[:70], S[:70].lower()).replace(S[70:] + b"\n>", S[70:].lower() + b"\n>")
READS = b"@a first\n" + S + b"\n+\n" + b"I" * 120 + b"\n@b\n" + S[7:] + b"\n+b\n" + b"!" * 113

REFUSED = (
    Case("1 empty file", b"", ("FILE: no sequences",), "check what wrote it"),
    Case("2 blank lines only", b"\n \n\t\n\r\n", ("FILE: no sequences",), "check what wrote it"),
    Case("2 gzip of nothing", packed(b""), ("FILE: no sequences",), "check what wrote it"),
    Case(
        "7 text first",
        b"\nhello\n>a\nACGT\n",
        ("FILE: line 2", "before the first '>': 'hello'"),
        "give a FASTA",
    ),
    Case("7 a bare sequence", b"ACGTACGT\n", ("FILE: line 1", "'ACGTACGT'"), "give a FASTA"),
    Case(
        "9 comment line first",
        b"; made by x\n>a\nACGT\n",
        ("FILE: line 1: comment lines (';')",),
        "remove them",
    ),
    Case(
        "9 comment line within",
        b">a\nACGT\n;x\nAC\n",
        ("FILE: line 3, record 'a': comment lines",),
        "remove them",
    ),
    Case(
        "11 UTF-16",
        ">a\nACGT\n".encode("utf-16"),
        ("FILE: line 1: the file is UTF-16",),
        "iconv -f UTF-16 -t UTF-8",
    ),
    Case(
        "11 UTF-16 without mark",
        ">a\nAC\n".encode("utf-16-be"),
        ("FILE: line 1: the file is UTF-16",),
        "save it as UTF-8",
    ),
    *(
        Case(f"26 {what}", data, ("FILE: ", f"the file is {what}"), f"convert it {how}")
        for what, data, how in (
            ("a BAM file", packed(b"BAM\1" + bytes(600)), "first (samtools fasta)"),
            (
                "a SAM file",
                b"@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:c\tLN:9\n",
                "to FASTA first (samtools",
            ),
            (
                "a SAM file",
                b"@SQ\tSN:c\tLN:9\nr\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\t*\n",
                "to FASTA first",
            ),
            ("a SAM file", b"r/1\t99\tchr1\t7\t30\t8M2I4M\t=\t37\t39\tTTAG\t*\n", "to FASTA first"),
            (
                "a GenBank file",
                b"\nLOCUS       NC_001416  48502 bp    DNA\n",
                "to FASTA first (any2fasta)",
            ),
            (
                "a GenBank file",
                packed(b"GBVRL1.SEQ          Genetic Sequence Data Bank\n"),
                "to FASTA first (any2fasta)",
            ),
            (
                "an EMBL file",
                b"ID   X56734; SV 1; linear; mRNA; STD; PLN; 1859 BP.\r\n",
                "to FASTA first",
            ),
        )
    ),
    Case(
        "26 FASTQ that begins as SAM does", b"@SQ x\nACGT\n+\n!!!\n", ("FILE: line 4",), "truncated"
    ),
    Case(
        "15 bare > in the middle",
        b">a\nACGT\n>\nACGT\n",
        ("FILE: line 3: the header has no id",),
        "write one after the '>'",
    ),
    Case(
        "15 > and blanks",
        b"> \t\nACGT\n",
        ("FILE: line 1: the header has no id",),
        "write one after the '>'",
    ),
    Case(
        "18 duplicate ids",
        b"".join(b">%d x%d\nAC\n" % (i % 7, i) for i in range(14)),
        ("FILE", "occur more than once: 0, 1, 2, 3, 4;"),
        "--duplicate-ids rename; where these are pairs of reads, one mate after the other, use "
        "--interleaved",
    ),
    Case(
        "23 latin-1",
        b">a\nACGT\n>p\xe4th\nACGT\n",
        ("FILE: line 3, record 'p", "byte 0xe4 at byte offset 10"),
        "save the file as UTF-8",
    ),
    Case(
        "24 endless header",
        b">a\nACGT\n>" + b"x" * (1 << 20) + b"y\nACGT\n",
        ("FILE: line 3, record 'xxx", "longer than 1 MiB"),
        "are the line ends missing?",
    ),
    Case(
        "25 NUL in a sequence",
        b">a\nACGT\nAC\0GT\n",
        ("FILE: line 3, record 'a': control character 0x00",),
        "copy it again",
    ),
    Case(
        "25 bell in a header",
        b">a\nACGT\n>b\x07c\nAC\n",
        ("FILE: line 3, record 'b\\x07c': control character 0x07",),
        "remove it",
    ),
    Case(
        "25 terminal escape in a header",
        b">a \x1b[31mred\nAC\n",
        ("FILE: line 1, record 'a': control character 0x1b",),
        "remove it",
    ),
    Case(
        "26 binary",
        bytes(range(256)) * 20,
        ("FILE: line 1: the file is binary",),
        "give a FASTA or FASTQ file",
    ),
    Case(
        "28 FASTQ cut in its qualities",
        b"@r\nACGT\n+\nIIII\n@s\nACGT\n+\nII",
        ("FILE: line 8, record 's': 4 bases but 2 qualities",),
        "is the file truncated?",
    ),
    Case(
        "28 FASTQ cut after its bases",
        b"@r\nACGT\n+\nIIII\n@s\nACGT\n",
        ("FILE: line 6, record 's'", "truncated"),
        "copy the file again",
    ),
    Case(
        "29 protein",
        b">a\nACGT\n>b\nACG\nMKLVE\n",
        ("FILE: line 5, record 'b': looks like protein",),
        "give nucleotide sequences",
    ),
    Case(
        "33 gaps", b">a\nACGT\nAC-GT\n", ("FILE: line 3, record 'a'", "gaps ('-')"), "remove them"
    ),
    Case(
        "34 stop sign",
        b">a\nACGT*\n",
        ("FILE: line 2, record 'a': '*' is not a nucleotide",),
        "remove stop signs",
    ),
    Case(
        "34 position numbers",
        b">a\nACGT\n 61 acgt\n",
        ("FILE: line 3, record 'a': '6' is not a nucleotide",),
        "position numbers",
    ),
    Case(
        "47 truncated gzip",
        packed(PLAIN)[:-5],
        ("FILE: the gzip data are truncated",),
        "copy or download the file again",
    ),
    Case(
        "47 truncated bz2",
        bz2.compress(PLAIN)[:-5],
        ("FILE: the bzip2 data are truncated",),
        "copy or download the file again",
    ),
    Case(
        "47 gzip with a wrong byte",
        packed(PLAIN)[:-6] + b"\0" + packed(PLAIN)[-5:],
        ("FILE: the gzip data are damaged",),
        "copy or download the file again",
    ),
    Case(
        "48 trailing garbage",
        packed(PLAIN) + b"more",
        ("FILE: something else follows the end of the gzip data",),
        "decompress it yourself",
    ),
    Case(
        "51 zip",
        b"PK\x03\x04" + bytes(60),
        ("FILE: the file is a zip archive",),
        "decompress first",
    ),
    Case(
        "51 zst",
        b"\x28\xb5\x2f\xfd" + bytes(60),
        ("FILE: the file is compressed with zstd",),
        "decompress first",
    ),
    Case(
        "51 gzip in gzip",
        packed(packed(PLAIN)),
        ("FILE: the file is compressed twice",),
        "decompress first",
    ),
)

SCORED = (("a", 120, "scored"), ("b", 113, "scored"))
ACCEPTED = (
    Case("8 leading blank lines", b"\n \n\n" + PLAIN, same=True),
    Case("10 byte-order mark", b"\xef\xbb\xbf" + PLAIN, same=True),
    Case("12 CRLF", PLAIN.replace(b"\n", b"\r\n"), same=True),
    Case("13 lone CR", PLAIN.replace(b"\n", b"\r"), same=True),
    Case("14 no final newline", PLAIN.rstrip(), same=True),
    Case("16 blank before the id", PLAIN.replace(b">", b">  "), records=SCORED),
    Case("17 tab after the id", PLAIN.replace(b" first", b"\tfirst second\tthird"), records=SCORED),
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
    Case("31 lower case", PLAIN.lower(), same=True),
    Case("31 mixed case", LOWER, same=True),
    Case(
        "32 IUPAC letters",
        b">a\n" + S[:60] + b"NRYSWKMBDHVn" + S[60:],
        records=(("a", 132, "scored"),),
    ),
    Case(
        "35 spaces inside lines",
        PLAIN.replace(S[:70], S[:10] + b" " + S[10:30] + b" \t " + S[30:70] + b"  "),
        same=True,
    ),
    Case(
        "36 empty record",
        b">a\n>b\n" + S + b"\n>c\n\n\n",
        records=(("a", 0, "too_short"), ("b", 120, "scored"), ("c", 0, "too_short")),
    ),
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
    Case("45 gzip under a plain name", packed(PLAIN), same=True),
    Case("46 gzip of two members", packed(PLAIN[:50]) + packed(PLAIN[50:]), same=True),
    Case("46 gzip with padding", packed(PLAIN) + bytes(512), same=True),
    Case("50 .gz that is plain", PLAIN, same=True, name="sample.fasta.gz"),
    Case("51 xz", lzma.compress(PLAIN), same=True, name="sample.fna.xz"),
    Case("51 bz2", bz2.compress(PLAIN), same=True, name="sample.fa.bz2"),
)

# Chunks (start, end; from 1, inclusive) of one record at a chunk length of 500.
CHUNKED = (
    ("41 exactly L", bases(500), [("1", "500")]),
    ("42 L + 1", bases(501), [("1", "500"), ("251", "501")]),
    ("42 L - 1", bases(499), [("1", "499")]),
    ("42 2 L", bases(1000), [("1", "500"), ("501", "1000")]),
)
