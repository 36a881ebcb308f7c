"""Which genome goes where, and shared 31-mers against a plain count of strings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.unit.training.made_genomes import coding, mutated
from virnucpro.errors import InputError
from virnucpro.training.data import splits
from virnucpro.training.data.splits import (
    SCALED,
    K,
    assign_parts,
    check_genomes,
    drop_relatives,
    sketch,
)

COLUMNS = ("genome", "taxon", "wanted", "test", "label", "part")


def survey(*rows: tuple) -> pd.DataFrame:
    """Records with the first of ``COLUMNS``; the others are those of a row that says nothing."""
    usual = ("", None, None, None, "virus", "")
    full = [(*row, *usual[len(row) :]) for row in rows]
    found = pd.DataFrame(full, columns=COLUMNS)
    found["taxon"] = found["taxon"].fillna(found["genome"])
    return found.assign(note="")


def parts(records: pd.DataFrame, **options) -> list[str]:
    assign_parts(records, **{"test": 0.1, "validation": 0.1, "seed": 0, **options})
    return records["part"].tolist()


def test_a_genome_stays_together_and_keeps_its_part_when_others_come():
    few = parts(survey(*((f"genome {n % 7}",) for n in range(70))))
    assert few == few[:7] * 10
    more = survey(*((f"genome {n}",) for n in range(700)))
    first = parts(more)
    assert first[:7] == few[:7]
    assert parts(more, seed=1) != first
    assert set(parts(more, test=0.5, validation=0.5)) == {"test", "validation"}


def test_a_taxon_stays_together_whatever_its_rows_and_labels_are():
    many = survey(
        *((f"phage{n}", f"genus {n % 300}") for n in range(900)),
        *((f"host{n}", f"genus {n % 300}", None, 0.5, "others") for n in range(900)),
    )
    found = parts(many)
    part_of = dict(zip(many["taxon"], found, strict=True))
    assert [part_of[taxon] for taxon in many["taxon"]] == found
    assert Counter(part_of.values())["test"] == pytest.approx(150, rel=0.15)  # the larger fraction


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        ([(f"g{n}", None, "validation") for n in range(3)], {}, ["validation"] * 3),
        ([(f"g{n}", None, None, 1.0) for n in range(3)], {}, ["test"] * 3),
        ([(f"g{n}", None, None, 0.0) for n in range(3)], {"test": 1.0, "validation": 1.0},
         ["validation"] * 3),
        # Held out by one row is held out of all.
        ([("g", None, "train"), ("g", None, "test"), ("g",)], {}, ["dropped", "test", "test"]),
        # Genomes that no row decides follow those of their taxon that a row decides.
        ([("a", "genus", "train"), ("b", "genus"), ("c", "genus")], {"test": 1.0}, ["train"] * 3),
        ([("a", "Vibrio", "test"), ("b", "Vibrio"), ("c", "Vibrio", "train")], {"test": 0.0},
         ["test", "test", "train"]),
        ([("g", None, None, None, "", "unused")], {}, ["unused"]),
    ],
)  # fmt: skip
def test_what_rows_decide(rows, options, expected):
    assert parts(survey(*rows), **options) == expected


def test_a_genome_has_one_label_and_one_taxon():
    labels = survey(("g",), ("g", None, None, None, "others"))
    with pytest.raises(InputError, match=r"'g' has label 'virus' and 'others'"):
        check_genomes(Path("t.tsv"), labels)
    taxa = survey(("g", "genus a"), ("g", "genus b"))
    with pytest.raises(InputError, match=r"'g' has taxon 'genus a' and 'genus b'"):
        check_genomes(Path("t.tsv"), taxa)
    check_genomes(Path("t.tsv"), survey(("g",), ("h", None, None, None, "others")))


def test_relatives_of_held_out_genomes_are_dropped():
    base, other = coding(1, 20_000), coding(2, 20_000)
    made = [
        ("held", "test", base),
        ("same in train", "train", base),
        ("near in validation", "validation", mutated(base, 0.02)),
        ("far in train", "train", coding(3, 20_000)),
        ("chimera in train", "train", base[:600] + coding(4, 19_400)),  # three in a hundred
        ("validation", "validation", other),
        ("related to it", "train", other[:5000] + coding(5, 5000)),
        ("related to the dropped one", "train", coding(6, 5000)),
        ("in two records", "train", base[:2000]),
        ("in two records", "train", coding(2, 90_000)[40_000:]),  # which make it no relative
    ]
    found = survey(*((name,) for name, _, _ in made))
    found["part"], found["sketch"] = [p for _, p, _ in made], [sketch(s) for _, _, s in made]
    drop_relatives(found, 0.05)
    dropped = found[found["part"] == "dropped"].set_index("genome")["note"]
    assert list(dropped.index) == ["same in train", "near in validation", "related to it"]
    assert dropped["same in train"] == "shares 100.0 % of its 31-mers with test"
    assert dropped["related to it"].endswith("with validation")


COMPLEMENT = str.maketrans("ACGT", "TGCA")


def _plain(sequence: str) -> set[int]:
    """The sampled canonical 31-mers, one string after the other."""
    found = set()
    upper = sequence.upper()
    for start in range(len(upper) - K + 1):
        word = upper[start : start + K]
        if set(word) <= set("ACGT"):
            other = word.translate(COMPLEMENT)[::-1]
            number = min(int("".join(str("ACGT".index(b)) for b in w), 4) for w in (word, other))
            mixed = number * 0x9E3779B97F4A7C15 % 2**64
            mixed ^= mixed >> 32
            mixed = mixed * 0xD6E8FEB86659FD93 % 2**64
            mixed ^= mixed >> 29
            if mixed < 2**64 // SCALED:
                found.add(mixed)
    return found


@pytest.mark.parametrize("bases", [0, 1, 30, 31, 32, 46, 63, 3000])
def test_a_sketch_is_what_plain_counting_finds(bases):
    for seed in range(5):
        sequence = coding(seed, bases)
        assert sketch(sequence).tolist() == sorted(_plain(sequence))


def test_unknown_bases_case_and_blocks_make_no_seam(monkeypatch):
    sequence = coding(1, 4000)
    broken = sequence[:1500] + "NRY" + sequence[1500:3000].lower() + "N" + sequence[3000:]
    assert sketch(broken).tolist() == sorted(_plain(broken))
    monkeypatch.setattr(splits, "BLOCK", 700)
    assert sketch(broken).tolist() == sorted(_plain(broken))
