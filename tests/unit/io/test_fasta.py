"""The program's own FASTA files survive a round trip."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from virnucpro.io.fasta import fasta_batches, fasta_bytes, read_fasta

NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=12
)
PAIRS = st.lists(st.tuples(NAMES, st.text("ACGTN", max_size=9)), max_size=6)


@given(PAIRS, st.integers(0, 6), st.integers(0, 6))
def test_round_trip(tmp_path_factory, pairs, start, stop):
    path = tmp_path_factory.getbasetemp() / "own.fa"
    path.write_bytes(fasta_bytes(pairs))
    assert list(read_fasta(path)) == pairs
    assert list(read_fasta(path, start, stop)) == pairs[start:stop]
    assert list(read_fasta(path, start)) == pairs[start:]
    batches = [list(zip(*batch, strict=True)) for batch in fasta_batches(path, 1 + start)]
    assert [pair for batch in batches for pair in batch] == pairs
    assert {len(batch) for batch in batches[:-1]} <= {1 + start}
