"""What the genes of a record say of it, beside its scores.

Hallmark genes and virus markers speak for a virus, host markers against one (docs/hallmarks.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A record is so many times as likely a virus for each function that its hallmark genes have, at
# most two, and for each of its virus markers, at most two, and so many times less likely for each
# of its host markers, at most two. Of held-out pieces of 2,000 to 40,000 bases, hallmarks of one
# function are 6 to 79 times as frequent in viruses as in hosts, and of two or more 9 to 69 times,
# where the proviruses of hosts count as hosts. In pieces of up to 20,000 bases of bacteria and
# archaea, markers are at least 90 times as frequent as in those of phages, and 9 to 27 times as in
# giant viruses and herpesviruses (examples/hallmarks/measure.py, measure_markers.py;
# docs/hallmarks.md has the tables). All are less here: hosts that score like viruses may be of a
# kind that has them more often, or less. So may proviruses that nobody has marked: with 4 for a
# virus marker, more calls of the tier high were wrong.
HALLMARK_ODDS = 8.0
MARKER_ODDS = 20.0
VIRUS_MARKER_ODDS = 2.0
MOST = 2
# Which share of viruses of at least so many bases have a hallmark, by the same tables: for kinds of
# viruses that have them less often than others.
LENGTHS = np.array([0, 5_000, 10_000, 20_000, 40_000])
SHARES_WITH_HALLMARK = np.array([0.0, 0.1, 0.2, 0.3, 0.45])


class GeneEvidence(NamedTuple):
    """What was found among the genes of records: arrays ``[records]``."""

    searched: npt.NDArray[np.bool_]  # whether genes were looked for
    hallmarks: Ints  # the functions of their hallmark genes; several genes may have the same
    markers: Ints  # the functions of their host markers
    virus_markers: Ints

    def put(self, place: int, hallmarks: int, markers: int, virus_markers: int) -> None:
        """Set what was found among the genes of one record."""
        for column, value in zip(self, (True, hallmarks, markers, virus_markers), strict=True):
            column[place] = value

    def chosen(self, which: slice | npt.NDArray[np.bool_] | Ints) -> GeneEvidence:
        """Return the evidence of some of the records."""
        return GeneEvidence._make(column[which] for column in self)


def no_evidence(records: int) -> GeneEvidence:
    """Return that of records whose genes were not looked for."""
    return GeneEvidence(np.zeros(records, bool), *np.zeros((3, records), np.int64))


def share_with_hallmark(lengths: Ints) -> Floats:
    """Return ``[records]``, how likely a virus of each of the ``lengths`` has a hallmark."""
    shares: Floats = SHARES_WITH_HALLMARK[np.searchsorted(LENGTHS, lengths, side="right") - 1]
    return shares


def evidence_odds(lengths: Ints, evidence: GeneEvidence) -> Floats:
    """Return ``[records]``, how many times as likely their genes are of a virus as of another.

    Genes without a hallmark speak against a virus where the record is long. Those without a host
    marker say nothing: genomes of eukaryotes have none either. There are few different values.
    """
    found = np.minimum(evidence.hallmarks, MOST)
    odds = np.where(found > 0, HALLMARK_ODDS**found, 1 - share_with_hallmark(lengths))
    odds = odds * VIRUS_MARKER_ODDS ** np.minimum(evidence.virus_markers, MOST)
    odds = odds / MARKER_ODDS ** np.minimum(evidence.markers, MOST)
    return np.where(evidence.searched, odds, 1.0)
