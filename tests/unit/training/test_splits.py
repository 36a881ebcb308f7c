"""Which genome goes where."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.training.made_genomes import coding, mutated
from virnucpro.errors import InputError
from virnucpro.training.data.genomes import GenomeSurvey, SurveyedRecord
from virnucpro.training.data.relatives import sketch
from virnucpro.training.data.splits import assign_parts, check_genomes, drop_relatives
from virnucpro.training.data.table import SourceRow


def row(line: int = 2, part=None, test=None, label: str = "virus") -> SourceRow:
    return SourceRow(line, "a.fa", Path("a.fa"), label, "g", part, test, None, None, None)


def origin(genome: str, of: SourceRow | None) -> SurveyedRecord:
    return SurveyedRecord(f"record of {genome}", "a.fa", of, genome, genome, 1000)


def parts(origins, **options):
    assign_parts(origins, **{"test": 0.1, "validation": 0.1, "seed": 0, **options})
    return [o.part for o in origins]


def test_fractions_of_many_genomes():
    many = [origin(f"genome {n}", row()) for n in range(5000)]
    counts = Counter(parts(many, test=0.2, validation=0.1))
    assert counts["test"] == pytest.approx(1000, rel=0.1)
    assert counts["validation"] == pytest.approx(500, rel=0.15)


def test_a_genome_stays_together_and_keeps_its_part_when_others_come():
    few = [origin(f"genome {n % 7}", row()) for n in range(70)]
    first = parts(few)
    by = dict(zip((o.genome for o in few), first, strict=True))
    assert all(by[o.genome] == o.part for o in few)
    more = [origin(f"genome {n}", row()) for n in range(700)]
    parts(more)
    assert {o.genome: o.part for o in more[:7]} == by
    assert parts([origin(f"genome {n}", row()) for n in range(70)], seed=1) != parts(
        [origin(f"genome {n}", row()) for n in range(70)]
    )


def test_rows_with_their_own_part_or_fraction():
    assert parts([origin(f"g{n}", row(part="validation")) for n in range(5)]) == ["validation"] * 5
    assert parts([origin(f"g{n}", row(test=1.0)) for n in range(5)]) == ["test"] * 5
    none = parts([origin(f"g{n}", row(test=0.0)) for n in range(500)], test=1.0)
    assert set(none) == {"train", "validation"}


def test_held_out_by_one_row_is_held_out_of_all():
    first = origin("g", row(2, "train"))
    second = origin("g", row(3, "test"))
    third = origin("g", row(4))
    assert parts([first, second, third]) == [None, "test", "test"]
    assert first.note == "line 3 of the table sends its genome to test"


def test_a_taxon_stays_together_whatever_its_rows_and_labels_are():
    phage_row, host_row = row(2), row(3, test=0.5, label="others")
    many = [
        SurveyedRecord(f"{kind}{n}", "a.fa", kind_row, f"{kind}{n}", f"genus {n % 300}", 1000)
        for n in range(900)
        for kind, kind_row in (("phage", phage_row), ("host", host_row))
    ]
    found = parts(many, test=0.1)
    part_of = dict(zip((o.taxon for o in many), found, strict=True))
    assert [part_of[o.taxon] for o in many] == found
    assert Counter(part_of.values())["test"] == pytest.approx(150, rel=0.15)  # the larger fraction


def test_the_genomes_of_a_taxon_that_no_row_decides_follow_the_others():
    named = SurveyedRecord("a", "a.fa", row(2, "train"), "a", "genus", 1000)
    others = [SurveyedRecord(f"b{n}", "a.fa", row(3), f"b{n}", "genus", 1000) for n in range(2)]
    assert parts([named, *others], test=1.0) == ["train", "train", "train"]


def test_a_genome_has_one_label():
    pair = [origin("g", row(2)), origin("g", row(3, label="others"))]
    with pytest.raises(InputError, match=r"'g' is virus by line 2 and others by line 3"):
        check_genomes(Path("t.tsv"), pair)
    check_genomes(Path("t.tsv"), [pair[0], origin("h", pair[1].row), origin("g", None)])


def test_a_genome_has_one_taxon():
    pair = [SurveyedRecord(n, "a.fa", row(), "g", f"genus {n}", 1000) for n in "ab"]
    message = r"'g' has taxon 'genus a' by its record 'a' \(line 2\) and 'genus b' by 'b'"
    with pytest.raises(InputError, match=message):
        check_genomes(Path("t.tsv"), pair)


def test_relatives_of_held_out_genomes_are_dropped():
    base, other = coding(1, 20_000), coding(2, 20_000)
    made = [
        ("held", "test", base),
        ("same in train", "train", base),
        ("near in validation", "validation", mutated(base, 0.02)),
        ("far in train", "train", coding(3, 20_000)),
        ("chimera in train", "train", base[:600] + coding(4, 19_400)),
        ("validation", "validation", other),
        ("related to it", "train", other[:5000] + coding(5, 5000)),
        ("related to the dropped one", "train", coding(6, 5000)),
    ]
    origins = [SurveyedRecord(n, "a.fa", row(), n, n, len(s), part=p) for n, p, s in made]
    drop_relatives(GenomeSurvey((), origins, [sketch(s) for _, _, s in made]), 0.05)
    assert {o.name: o.part for o in origins if o.part is None}.keys() == {
        "same in train",
        "near in validation",
        "related to it",
    }
    notes = {o.name: o.note for o in origins}
    assert notes["same in train"] == "shares 100.0 % of its 31-mers with test"
    assert notes["related to it"].endswith("with validation")
    assert notes["chimera in train"] == ""  # three in a hundred


def test_all_records_of_a_related_genome_go_and_its_share_counts_them_together():
    base = coding(1, 20_000)
    records = [("held", "h", base), ("a", "g", base[:2000]), ("b", "g", coding(2, 8000))]
    origins = [
        SurveyedRecord(n, "a.fa", row(), g, g, len(s), part="test" if n == "held" else "train")
        for n, g, s in records
    ]
    found = GenomeSurvey((), origins, [sketch(s) for _, _, s in records])
    drop_relatives(found, 0.3)
    assert [o.part for o in origins] == ["test", "train", "train"]
    drop_relatives(found, 0.1)
    assert [o.part for o in origins] == ["test", None, None]


def test_the_other_genomes_of_a_held_out_taxon_follow_it():
    held = [SurveyedRecord(f"r{n}", "a.fa", row(part="test"), f"g{n}", "Vibrio", 9)
            for n in range(2)]  # fmt: skip
    others = [SurveyedRecord(f"o{n}", "a.fa", row(), f"o{n}", "Vibrio", 9) for n in range(3)]
    trained = [SurveyedRecord("t", "a.fa", row(part="train"), "t", "Vibrio", 9)]
    found = parts([*held, *others, *trained], test=0, validation=0)
    assert found == ["test"] * 5 + ["train"]  # a row's own word counts for its own genomes
