"""The model ``hmm``: a profile hidden Markov model of serpins, whose RCL columns are known.

A protein is compared with the profile. Where it matches, it is aligned to the profile, and the
residues in the columns of the RCL are its RCL. No network takes part. The package pyhmmer (Larralde
and Zeller 2023, doi:10.1093/bioinformatics/btad214) does the work.

The file is one of HMMER 3 (ASCII). Its description holds, as JSON, the columns of the RCL::

    {"content": "rcl", "rcl_columns": [350, 374], "schema": 1, "training": {...}}
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Json
from virnucpro.errors import ModelError, UsageError
from virnucpro.models.store import check_file
from virnucpro.rcl.proteins import RclResult
from virnucpro.store.documents import parse_json

PROFILE_SUFFIX = ".hmm"
MOST_CHANCE = 1e-10
"""Probability that an unrelated protein matches as well (E-value for one protein). None of
2,560 proteins that are not serpins has less than 10, the worst of 1,423 serpins has 7e-15."""
MOST_RESIDUES = 100_000  # of a protein that HMMER compares
TRAINING_LENGTHS = (300, 700)
"""Residues of serpins that the profile is made from: neither fragments nor several domains."""
ROUNDS = 2  # of alignment; a third one changes nothing
FLANK = 20  # residues that are aligned beyond what matched
# HMMER takes what is not a letter of an amino acid, such as a stop sign, for something else.
NOT_A_LETTER = re.compile("[^A-Z]")


class Description(msgspec.Struct):
    """What the description of a profile says, as JSON."""

    schema: Literal[1]
    content: Literal["rcl"]
    rcl_columns: tuple[int, int]


@dataclass(frozen=True)
class RclProfile:
    """A ``pyhmmer.plan7.HMM``, and the first and last column of its RCL, counted from 1."""

    hmm: Any
    columns: tuple[int, int]
    sha256: str = ""
    encoding: ClassVar[str] = "hmm"
    threshold: ClassVar[float] = 0.5

    def find(self, sequences: Sequence[str], shortest: int = 1) -> list[RclResult]:
        """Return the RCL of each protein. The results do not depend on the other proteins.

        The status is ``found``; ``no_serpin`` where the protein does not match; ``incomplete``
        where it matches, but has less than ``shortest`` residues of an RCL; ``too_long`` where it
        has more than ``MOST_RESIDUES`` and is not compared. A protein with several
        serpin domains has the RCL of the last one that is complete: annotated proteins have it
        there, with one exception among eight.
        """
        import pyhmmer

        pipeline = pyhmmer.plan7.Pipeline(_alphabet(), Z=1, E=MOST_CHANCE)
        too_long = [len(sequence) > MOST_RESIDUES for sequence in sequences]
        compared = ["X" if long else each for each, long in zip(sequences, too_long, strict=True)]
        hits = pipeline.search_hmm(self.hmm, _block(compared))
        copies = {int(hit.name): self._copies(hit, len(sequences[int(hit.name)])) for hit in hits}
        spans = [(number, span) for number, found in sorted(copies.items()) for span in found]
        placed = self.place([sequences[number][start:stop] for number, (start, stop) in spans])
        results = []
        for number, sequence in enumerate(sequences):
            status = "incomplete" if number in copies else "no_serpin"
            status = "too_long" if too_long[number] else status
            results.append(RclResult(status, None, np.zeros(len(sequence), np.float32)))
        for (number, (start, _)), (residue_columns, posterior) in zip(spans, placed, strict=True):
            first, last = self.columns
            residues = np.flatnonzero((residue_columns >= first) & (residue_columns <= last))
            # The residues must be more than the torn end of a fragment.
            if len(residues) <= (last - first) // 4:
                continue
            begin, end = int(residues[0]), int(residues[-1])
            if end - begin + 1 < shortest:
                continue
            probabilities = np.zeros(len(sequences[number]), np.float32)
            probabilities[start + begin : start + end + 1] = posterior[begin : end + 1]
            confidence = float(posterior[begin : end + 1].mean(dtype=np.float64))
            region = start + begin + 1, start + end + 1, confidence
            results[number] = RclResult("found", region, probabilities)
        return results

    def _copies(self, hit: Any, length: int) -> list[tuple[int, int]]:
        """Return where the serpin domains of a protein lie: start and end, 0-based, half-open.

        HMMER reports the pieces of a domain that has a long insertion one by one. A piece belongs
        to the domain before it if it goes on in the profile where that one ended.
        """
        pieces = sorted(hit.domains, key=lambda domain: domain.env_from)
        copies: list[list[Any]] = []
        for piece in pieces:
            overlap = copies and copies[-1][-1].alignment.hmm_to - piece.alignment.hmm_from
            if copies and overlap < (piece.alignment.hmm_to - piece.alignment.hmm_from) / 2:
                copies[-1].append(piece)
            else:
                copies.append([piece])
        spans = []
        for number, copy in enumerate(copies):
            # What the profile has before and behind the pieces may be there without a match, but
            # not beyond a neighbour.
            start = copy[0].env_from - copy[0].alignment.hmm_from - FLANK
            stop = copy[-1].env_to + self.hmm.M - copy[-1].alignment.hmm_to + FLANK
            before = copies[number - 1][-1].env_to if number else 0
            behind = copies[number + 1][0].env_from if number + 1 < len(copies) else length
            start = max(start, min(before, copy[0].env_from - 1))
            stop = min(stop, max(behind, copy[-1].env_to))
            spans.append((start, stop))
        return spans

    def place(
        self, sequences: Sequence[str]
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Align proteins that match, and return the column and its posterior of each residue.

        Both are ``[L]``. The column is counted from 1; it is 0 for a residue between two columns.
        """
        if not sequences:
            return []
        import pyhmmer

        block = _block(sequences)
        aligner = pyhmmer.plan7.TraceAligner()
        traces = aligner.compute_traces(self.hmm, block)
        alignment: Any = aligner.align_traces(self.hmm, block, traces, all_consensus_cols=True)
        is_column = np.frombuffer(alignment.reference.encode(), "S1") != b"."
        column = np.where(is_column, np.cumsum(is_column), 0)
        placed = []
        for row, trace in zip(alignment.alignment, traces, strict=True):
            letters = np.frombuffer(row.encode(), "S1")
            is_residue = (letters != b"-") & (letters != b".")
            matches = np.flatnonzero(is_residue & is_column)
            first, last = (int(matches[0]), int(matches[-1])) if len(matches) else (0, -1)
            # The trace has a state per residue, one per column that is passed over between the
            # first and the last residue in a column, and three silent states at each end and
            # between the flanks and the columns: S and N, B; E and C, T.
            places = np.arange(len(letters))
            is_state = is_residue | (is_column & (places > first) & (places < last))
            values = np.array(trace.posterior_probabilities, np.float32)
            silent = np.select([places > last, places >= first], [4, 2], 1)
            states = np.cumsum(is_state) + silent
            placed.append((column[is_residue], values[states[is_residue]]))
        return placed

    def to_bytes(self) -> bytes:
        """Return the profile as a file; the same profile gives the same bytes."""
        out = io.BytesIO()
        self.hmm.write(out)
        # HMMER writes down when and with which command it was made.
        return re.sub(rb"^(DATE|COM) .*\n", b"", out.getvalue(), flags=re.MULTILINE)


def read_profile(path: Path) -> RclProfile:
    """Read a profile."""
    import pyhmmer

    check_file(path)
    content = path.read_bytes()
    try:
        with pyhmmer.plan7.HMMFile(io.BytesIO(content)) as file:
            (hmm,) = file
        about = msgspec.convert(parse_json(hmm.description or ""), Description)
        first, last = about.rcl_columns
        if not 1 <= first < last <= hmm.M or not hmm.alphabet.is_amino():
            raise ValueError("the columns of the RCL are not there")
    except (OSError, ValueError, EOFError, RuntimeError, pyhmmer.errors.EaselError) as error:
        raise ModelError(f"{path} is not a profile with RCL columns ({error})") from error
    sha256 = hashlib.sha256(content).hexdigest()
    return RclProfile(hmm, about.rcl_columns, sha256)


def build_profile(
    serpins: Sequence[tuple[str, int, int]], training: Mapping[str, Json]
) -> RclProfile:
    """Make a profile from serpins with an annotated RCL: sequence, first and last residue, from 1.

    Those of ``TRAINING_LENGTHS`` residues are aligned to a profile of the one of median length, and
    a profile of that alignment takes its place; that is done twice. The columns that most first and
    last residues of the annotated RCLs are in become those of the RCL. ``training`` is written into
    the file. The same proteins give the same profile.
    """
    import pyhmmer

    shortest, longest = TRAINING_LENGTHS
    chosen = sorted({serpin for serpin in serpins if shortest <= len(serpin[0]) <= longest})
    if len(chosen) < 2:
        raise UsageError(f"a profile needs two serpins of {shortest} to {longest} residues or more")
    alphabet = _alphabet()
    background = pyhmmer.plan7.Background(alphabet)
    block = _block([sequence for sequence, _, _ in chosen])
    median = sorted(range(len(chosen)), key=lambda number: (len(chosen[number][0]), number))
    builder = pyhmmer.plan7.Builder(alphabet)
    hmm, _, _ = builder.build(block[median[len(chosen) // 2]], background)
    for _ in range(ROUNDS):
        alignment: Any = pyhmmer.hmmalign(hmm, block, cpus=1, trim=False, digitize=True)
        alignment.name = "serpin"
        # Insertions make the alignment so long that every row would count as a fragment, whose
        # gaps do not count: the profile would have a column for each insertion.
        builder = pyhmmer.plan7.Builder(alphabet, fragthresh=0.0)
        hmm, _, _ = builder.build_msa(alignment, background)
    placed = RclProfile(hmm, (1, 1)).place([sequence for sequence, _, _ in chosen])
    starts, ends = Counter[int](), Counter[int]()
    for (_, start, end), (columns, _) in zip(chosen, placed, strict=True):
        starts[int(columns[start - 1])] += 1
        ends[int(columns[end - 1])] += 1
    del starts[0], ends[0]
    region = (starts.most_common(1)[0][0], ends.most_common(1)[0][0])
    facts = {**training, "serpins_aligned": len(chosen)}
    about = {"schema": 1, "content": "rcl", "rcl_columns": region, "training": facts}
    hmm.description = json.dumps(about, sort_keys=True)
    return RclProfile(hmm, region)


@cache
def _alphabet() -> Any:
    """Return the alphabet of proteins. One for all: a profile does not keep its alphabet alive."""
    import pyhmmer

    return pyhmmer.easel.Alphabet.amino()


def _block(sequences: Sequence[str]) -> Any:
    """Return proteins as HMMER reads them; the name of each is its number."""
    from pyhmmer import easel

    block = easel.DigitalSequenceBlock(_alphabet())
    for number, sequence in enumerate(sequences):
        text = NOT_A_LETTER.sub("X", sequence.upper())
        block.append(easel.TextSequence(name=str(number), sequence=text).digitize(_alphabet()))
    return block
