"""Compare the calls of two runs of the same input, such as one in bf16 and one in fp32.

    virnucpro predict contigs.fa -o exact --precision fp32
    virnucpro predict contigs.fa -o half --precision bf16
    python -m benchmarks.calls exact half

A precision may become the default where at least 99.9 % of the calls are those of fp32, over 1,000
chunks or more.
"""

from __future__ import annotations

import argparse

from virnucpro.results import PredictionRun, open_run


def chunk_calls(run: PredictionRun) -> dict[str, bool]:
    """Return whether each scored chunk looks like virus, as predict compares its two scores."""
    return {
        row.chunk: row.max_score_1 >= row.max_score_0
        for row in run.chunks()
        if row.max_score_0 is not None and row.max_score_1 is not None
    }


def contig_calls(run: PredictionRun) -> dict[str, str]:
    """Return the call of each record."""
    return {row.record: row.call for row in run.contigs()}


def main() -> None:
    """Print the share of the same calls of chunks and of contigs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", help="output directory of a run")
    parser.add_argument("second", help="output directory of the other run")
    options = parser.parse_args()
    first, second = open_run(options.first), open_run(options.second)
    for name, one, other in (
        ("chunks", chunk_calls(first), chunk_calls(second)),
        ("contigs", contig_calls(first), contig_calls(second)),
    ):
        same = sum(other.get(key) == call for key, call in one.items())
        print(f"{name}: {same:,} of {len(one):,} calls are the same: {same / len(one):.3%}")


if __name__ == "__main__":
    main()
