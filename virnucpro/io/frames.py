"""Where the chunks of a record lie, and the six-frame translation of a batch of chunks.

The standard genetic code (NCBI table 1). Every window of three letters in the batch is looked up
once; because a codon of the reverse strand is a window of the forward strand, that serves all six
frames. Only the few frames without a stop are then written out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, chain, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.settings import SHORTEST_WHOLE

_INFIX = "_chunk_"


def chunk_spans(length: int, chunk_length: int) -> list[tuple[int, int]]:
    """Return where the chunks of a record of ``length`` bases lie: 0-based, half-open, in bases.

    Neighbours overlap so that the chunks cover the record. The original meant to spread the
    overlap evenly, but counts the longer overlaps against one chunk fewer than the shorter ones,
    so the last chunk is mostly shorter than ``chunk_length``. The classifiers were trained with it.
    """
    if length <= chunk_length:
        return [(0, length)] if length else []
    count = -(-length // chunk_length)
    spare = count * chunk_length - length
    low = spare // count
    longer = spare - low * (count - 1)  # so many of the overlaps, the first ones, are low + 1
    starts = (k * (chunk_length - low) - min(k, longer) for k in range(count))
    return [(start, min(start + chunk_length, length)) for start in starts]


def record_spans(lengths: Sequence[int], chunk_length: int) -> list[tuple[int, int]]:
    """Return where the chunks of a record lie, or those of a pair, whose mates have ``lengths``.

    No chunk spans both mates. The bases of the second mate are counted on behind the first one.
    """
    ends = accumulate(lengths, initial=0)
    return [
        (before + start, before + stop)
        for before, length in zip(ends, lengths, strict=False)
        for start, stop in chunk_spans(length, chunk_length)
    ]


def spans_of_records(
    lengths: npt.NDArray[np.int64], chunk_length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return record, start and stop of each chunk of many records, as :func:`record_spans` does.

    ``lengths`` ``[mates, records]`` has one row, or one for each mate of pairs. A record is its
    place in ``lengths``.
    """
    before = (lengths.cumsum(axis=0) - lengths).T.ravel()  # the bases of the other mate
    length = lengths.T.ravel()
    counts = -(-length // chunk_length)
    spare = counts * chunk_length - length
    low = spare // np.maximum(counts, 1)
    longer = spare - low * (counts - 1)
    mate = np.repeat(np.arange(len(length)), counts)
    k = np.arange(len(mate)) - np.repeat(counts.cumsum() - counts, counts)
    start = k * (chunk_length - low[mate]) - np.minimum(k, longer[mate])
    stop = np.minimum(start + chunk_length, length[mate])
    return mate // len(lengths), before[mate] + start, before[mate] + stop


def chunk_id(record_id: str, number: int) -> str:
    """Return the id of chunk ``number`` (from 1) of a record."""
    return f"{record_id}{_INFIX}{number}"


def record_of(chunk_id: str) -> tuple[str, int]:
    """Return the record id and the chunk number (from 1) that :func:`chunk_id` joined.

    Raises:
        ValueError: the text is not the id of a chunk.
    """
    record_id, infix, number = chunk_id.rpartition(_INFIX)
    if not infix or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{chunk_id!r} is not the id of a chunk")
    return record_id, int(number)


FRAME_LABELS = ("F1", "F2", "F3", "R1", "R2", "R3")
WHOLE_LABEL = "FR"
"""Stands where a frame has its label, for a chunk that is read whole, on both strands."""

_BASES = "TCAG"  # the order in which NCBI writes its tables
_AMINO_ACIDS = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
GENETIC_CODE = dict(zip(map("".join, product(_BASES, repeat=3)), _AMINO_ACIDS, strict=True))
_COMPLEMENT = bytes.maketrans(b"ACGT", b"TGCA")

# A letter is a digit of base 5, of which 4 is "any other letter"; a window is three digits.
_DIGITS = bytes("ACGT".find(chr(byte).upper()) % 5 for byte in range(256))
_FORWARD_STOP, _REVERSE_STOP, _CODON = 1, 2, 4


def _tables() -> tuple[bytes, bytes, bytes, bytes]:
    """Return by window its flags and its amino acid on either strand; and the other windows."""
    flags, forward, reverse = bytearray(256), bytearray(256), bytearray(256)
    for codon, amino_acid in GENETIC_CODE.items():
        window = int(codon.translate(str.maketrans("ACGT", "0123")), base=5)
        other = GENETIC_CODE[codon.encode().translate(_COMPLEMENT)[::-1].decode()]
        forward[window], reverse[window] = ord(amino_acid), ord(other)
        flags[window] = (
            _CODON + _FORWARD_STOP * (amino_acid == "*") + _REVERSE_STOP * (other == "*")
        )
    non_codons = bytes(window for window in range(256) if not flags[window])
    return bytes(flags), bytes(forward), bytes(reverse), non_codons


_FLAGS, _FORWARD, _REVERSE, _NON_CODONS = _tables()

# Between chunks: fills up to a multiple of 3, and at least the two letters that keep every window
# that begins in a chunk from reaching into the next one.
_PADDING = ("...", "..", "....")


class Frame(NamedTuple):
    """An open reading frame over a whole chunk."""

    label: str  # one of FRAME_LABELS, or WHOLE_LABEL
    nucleotide: str  # upper case; the codons and one base more, where there is one
    protein: str  # one letter per codon; codons with an ambiguous letter are left out


class ChunkFrames(NamedTuple):
    """The open frames of a chunk, in the order of ``FRAME_LABELS``.

    ``status`` is ``framed`` where there are any; else ``too_short`` (under 3 bases), ``ambiguous``
    (no codon without an ambiguous letter) or ``no_open_frame``; see also :func:`whole_chunks`.
    """

    status: str
    frames: tuple[Frame, ...]


_TOO_SHORT = ChunkFrames("too_short", ())
_AMBIGUOUS = ChunkFrames("ambiguous", ())
_NO_OPEN_FRAME = ChunkFrames("no_open_frame", ())
_REPETITIVE = ChunkFrames("repetitive", ())

KMER = 6  # bases
# Different k-mers among those of a chunk that is read whole. Of chunks of 500 bases of genomes, one
# in a thousand has a smaller share; of tandem repeats with units of up to 60 bases, nearly all.
LEAST_KMERS = 0.4
MOST_UNKNOWN = 0.1  # share of letters other than A, C, G and T; lite was calibrated with no more
GAP = re.compile("[^ACGT]{2,}")


def open_frames(chunks: Sequence[str]) -> list[ChunkFrames]:
    """Translate ``chunks`` (ASCII letters of either case, any lengths), with one result per chunk.

    This needs about 20 bytes of memory per base of the batch.
    """
    if not chunks:
        return []
    padded = chain.from_iterable((chunk, _PADDING[len(chunk) % 3]) for chunk in chunks)
    letters = "".join(padded).upper().encode("ascii")
    lengths = np.fromiter(map(len, chunks), np.int64, len(chunks))
    sizes = lengths + np.array([3, 2, 4])[lengths % 3]
    starts = np.cumsum(sizes) - sizes

    digits = np.frombuffer(letters.translate(_DIGITS), np.uint8)
    begun = np.full(len(digits), 124, np.uint8)  # three times "any other letter"
    begun[:-2] = digits[:-2] * np.uint8(25) + digits[1:-1] * np.uint8(5) + digits[2:]
    windows = begun.tobytes()
    is_open, has_codon = _open(windows, starts, lengths)
    results = [_NO_OPEN_FRAME if codon else _AMBIGUOUS for codon in has_codon]
    for index in np.flatnonzero(lengths < 3).tolist():
        results[index] = _TOO_SHORT

    complement = letters.translate(_COMPLEMENT)
    framed = np.flatnonzero(is_open.any(axis=1))
    places = (framed, starts[framed], lengths[framed], is_open[framed])
    for index, start, length, flags in zip(*(place.tolist() for place in places), strict=True):
        strand = slice(start, start + length)
        texts = (letters[strand], complement[strand][::-1])
        numbers = (number for number, flag in enumerate(flags) if flag)
        frames = (_frame(number, windows, start, length, texts) for number in numbers)
        results[index] = ChunkFrames("framed", tuple(frames))
    return results


def whole_chunks(chunks: Sequence[str]) -> list[ChunkFrames]:
    """Return each chunk as a single "frame" with the label ``WHOLE_LABEL`` and no protein.

    ``chunks`` are ASCII letters of either case. A chunk with fewer than ``SHORTEST_WHOLE`` bases is
    ``too_short``. Several unknown letters in a row become one N: a long gap dilutes what an encoder
    reads. A chunk with fewer than ``SHORTEST_WHOLE`` known bases, or a share of more than
    ``MOST_UNKNOWN`` of others after that, is ``ambiguous``. Tandem repeats are ``repetitive``:
    encoders that have seen few of them take many for viruses.
    """
    found = []
    for read in map(str.upper, chunks):
        chunk = GAP.sub("N", read)
        known = sum(map(chunk.count, "ACGT"))
        if len(read) < SHORTEST_WHOLE:
            found.append(_TOO_SHORT)
        elif known < max(SHORTEST_WHOLE, (1 - MOST_UNKNOWN) * len(chunk)):
            found.append(_AMBIGUOUS)
        else:
            # Two bits of a letter: A, C, G and T have different ones.
            digits = np.frombuffer(chunk.replace("N", "").encode(), np.uint8) >> 1 & 3
            counts = np.bincount(np.convolve(digits, 4 ** np.arange(KMER), "valid"))
            is_repetitive = np.count_nonzero(counts) < LEAST_KMERS * counts.sum()
            whole = ChunkFrames("framed", (Frame(WHOLE_LABEL, chunk, ""),))
            found.append(_REPETITIVE if is_repetitive else whole)
    return found


def chunk_of(frame_id: str) -> str:
    """Return the chunk id of a frame id: all but the label."""
    return frame_id[:-2]


def _open(
    windows: bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], list[bool]]:
    """Return which frames are open, ``[chunks, 6]``, and which have a codon, ``[chunks]``."""
    flags = np.frombuffer(windows.translate(_FLAGS), np.uint8).reshape(-1, 3)
    # [chunks, 3]: all flags of the windows that begin at offset 0, 1, 2 (modulo 3) of a chunk
    offsets = np.stack(
        [np.bitwise_or.reduceat(np.ascontiguousarray(flags[:, i]), starts // 3) for i in range(3)],
        axis=1,
    )
    # The first codon of frame R(f+1) is the window at length - 3 - f.
    phases = (lengths[:, None] - np.arange(3)) % 3
    reverse = np.take_along_axis(offsets, phases, axis=1)
    forward_open = (offsets & (_CODON | _FORWARD_STOP)) == _CODON
    reverse_open = (reverse & (_CODON | _REVERSE_STOP)) == _CODON
    has_codon: list[bool] = ((offsets & _CODON) != 0).any(axis=1).tolist()
    return np.concatenate([forward_open, reverse_open], axis=1), has_codon


def _frame(
    number: int, windows: bytes, start: int, length: int, strands: tuple[bytes, bytes]
) -> Frame:
    """Write out frame ``number`` of the chunk at ``start``; ``strands`` are its two strands."""
    shift = number % 3
    first = start + (shift if number < 3 else (length - shift) % 3)
    codons = windows[first : start + length - 2 : 3]
    protein = codons.translate(_FORWARD if number < 3 else _REVERSE, _NON_CODONS)
    if number >= 3:
        protein = protein[::-1]
    nucleotide = strands[number // 3][shift : shift + 3 * len(protein) + 1]
    return Frame(FRAME_LABELS[number], nucleotide.decode("ascii"), protein.decode("ascii"))
