"""Where the chunks of a record lie, and the six-frame translation of a batch of chunks.

The standard genetic code (NCBI table 1). Every window of three letters in the batch is looked up
once; because a codon of the reverse strand is a window of the forward strand, that serves all six
frames. Only the few frames without a stop are then written out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, compress, product
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


def spans_of_records(
    lengths: npt.NDArray[np.int64], chunk_length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return record, start and stop of each chunk of many records, as :func:`chunk_spans` does.

    ``lengths`` ``[mates, records]`` has one row, or one for each mate of pairs. A record is its
    place in ``lengths``. No chunk spans both mates. The bases of the second mate are counted on
    behind the first one.
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
        stops = (_FORWARD_STOP if amino_acid == "*" else 0), (_REVERSE_STOP if other == "*" else 0)
        flags[window] = _CODON + sum(stops)
    non_codons = bytes(window for window in range(256) if not flags[window])
    return bytes(flags), bytes(forward), bytes(reverse), non_codons


_FLAGS, _FORWARD, _REVERSE, _NON_CODONS = _tables()

# Between chunks: fills up to a multiple of 3, and at least the two letters that keep every window
# that begins in a chunk from reaching into the next one.
_PADDING = ("...", "..", "....")


class Frames(NamedTuple):
    """The open frames of a batch of chunks, in the order of the chunks and of ``FRAME_LABELS``.

    The status of a chunk is ``framed`` where it has any; else ``too_short`` (under 3 bases),
    ``ambiguous`` (no codon without an ambiguous letter) or ``no_open_frame``; see also
    :func:`whole_chunks`.
    """

    statuses: list[str]  # of the chunks
    chunks: npt.NDArray[np.int64]  # of the frames: the place of the chunk in the batch
    labels: list[str]  # of the frames: of FRAME_LABELS, or WHOLE_LABEL
    nucleotides: list[str]  # of the frames: upper case; the codons and, if there is, one base more
    proteins: list[str]  # of the frames: a letter per codon; those with other letters are left out


# Tantan (Frith 2011, Nucleic Acids Res 39:e23) finds tandem repeats with units of up to so many
# bases, diverged ones too. These numbers were chosen by the tables of examples/lite/repeats.py.
LONGEST_UNIT = 200
UNIT_DECAY = 0.99  # how much less likely a unit is that is longer by one base
MOST_REPEATED = 0.5  # share of the bases of a chunk that is read whole
MOST_UNKNOWN = 0.1  # share of letters other than A, C, G and T; lite was calibrated with no more
GAP = re.compile("[^ACGT]{2,}")


def open_frames(chunks: Sequence[str]) -> Frames:
    """Translate ``chunks`` (ASCII letters of either case, any lengths).

    This needs about 20 bytes of memory per base of the batch.
    """
    lengths = _lengths(chunks)
    paddings = map(_PADDING.__getitem__, lengths % 3)
    padded = chain.from_iterable(zip(chunks, paddings, strict=True))
    letters = "".join(padded).encode("ascii").upper()
    sizes = lengths + np.array([3, 2, 4])[lengths % 3]
    starts = np.cumsum(sizes) - sizes

    digits = np.frombuffer(letters.translate(_DIGITS), np.uint8)
    windows = digits * np.uint8(25)  # the last two letters are padding: no codon begins there
    windows[:-2] += digits[1:-1] * np.uint8(5)
    windows[:-2] += digits[2:]
    # First the windows that begin at offset 0 (modulo 3) of a chunk, then those at 1, then at 2.
    phases = np.ascontiguousarray(windows.reshape(-1, 3).T).tobytes()
    flags = np.frombuffer(phases.translate(_FLAGS), np.uint8)
    places = starts // 3 + len(phases) // 3 * np.arange(3)[:, None]  # of the first window: [3, n]
    offsets = np.bitwise_or.reduceat(flags, places.ravel()).reshape(places.shape)
    # The first codon of frame R(f+1) is the window at length - 3 - f.
    reverse = np.take_along_axis(offsets, (lengths - np.arange(3)[:, None]) % 3, axis=0)
    forward_open = (offsets & (_CODON | _FORWARD_STOP)) == _CODON
    reverse_open = (reverse & (_CODON | _REVERSE_STOP)) == _CODON
    is_open = np.concatenate([forward_open, reverse_open])
    has_codon = (offsets & _CODON).any(axis=0)
    statuses = np.select(
        [is_open.any(axis=0), lengths < 3, ~has_codon],
        ["framed", "too_short", "ambiguous"],
        "no_open_frame",
    )

    chunk, number = np.nonzero(is_open.T)
    start, length, shift, is_forward = starts[chunk], lengths[chunk], number % 3, number < 3
    first = np.where(is_forward, shift, (length - shift) % 3)  # of the windows that are codons
    place = places[first, chunk]
    columns = (place, place + (length - first) // 3, start, start + length, shift, is_forward)
    nucleotides, proteins = [], []
    for begin, end, left, right, skipped, forward in np.stack(columns, axis=1).tolist():
        codons, strand = phases[begin:end], letters[left:right]
        if forward:
            protein = codons.translate(_FORWARD, _NON_CODONS)
        else:
            protein = codons[::-1].translate(_REVERSE, _NON_CODONS)
            strand = strand[::-1].translate(_COMPLEMENT)
        proteins.append(protein.decode("ascii"))
        nucleotides.append(strand[skipped : skipped + 3 * len(protein) + 1].decode("ascii"))
    labels = [FRAME_LABELS[each] for each in number.tolist()]
    return Frames(statuses.tolist(), chunk, labels, nucleotides, proteins)


def whole_chunks(chunks: Sequence[str]) -> Frames:
    """Return each chunk as a single "frame" with the label ``WHOLE_LABEL`` and no protein.

    ``chunks`` are ASCII letters of either case. A chunk with fewer than ``SHORTEST_WHOLE`` bases is
    ``too_short``. Several unknown letters in a row become one N: a long gap dilutes what an encoder
    reads. A chunk with fewer than ``SHORTEST_WHOLE`` known bases, or a share of more than
    ``MOST_UNKNOWN`` of others after that, is ``ambiguous``. One with a share of ``MOST_REPEATED``
    or more in tandem repeats, such as satellites, is ``repetitive``: encoders that have seen few of
    them take many for viruses.
    """
    reads, lengths = list(map(str.upper, chunks)), _lengths(chunks)
    digits = np.frombuffer("".join(reads).encode("ascii").translate(_DIGITS), np.uint8)
    before = np.searchsorted(np.flatnonzero(digits == 4), np.cumsum(lengths))
    known = lengths - np.diff(before, prepend=0)
    for place in np.flatnonzero(known < lengths).tolist():
        reads[place] = GAP.sub("N", reads[place])
    enough = known >= np.maximum(SHORTEST_WHOLE, (1 - MOST_UNKNOWN) * _lengths(reads))
    is_repetitive = np.zeros(len(reads), bool)
    is_repetitive[enough] = list(map(_is_repetitive, compress(reads, enough)))
    statuses = np.select(
        [lengths < SHORTEST_WHOLE, ~enough, is_repetitive],
        ["too_short", "ambiguous", "repetitive"],
        "framed",
    )
    kept = np.flatnonzero(statuses == "framed")
    texts = [reads[place] for place in kept.tolist()]
    return Frames(statuses.tolist(), kept, [WHOLE_LABEL] * len(kept), texts, [""] * len(kept))


def chunk_of(frame_id: str) -> str:
    """Return the chunk id of a frame id: all but the label."""
    return frame_id[:-2]


def _lengths(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _is_repetitive(chunk: str) -> bool:
    from pydustmasker import TantanMasker  # only what is read whole needs it

    masked = TantanMasker(chunk, max_period=LONGEST_UNIT, decay=UNIT_DECAY).n_masked_bases
    return masked >= MOST_REPEATED * len(chunk)
