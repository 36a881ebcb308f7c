"""The model ``hmm``: how a profile is made, read, and used."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from virnucpro.errors import ModelError
from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.finders import open_finder
from virnucpro.rcl.profile import RclProfile, build_profile, read_profile

# Human alpha-1-antichymotrypsin, UniProtKB P01011 (CC BY 4.0).
SERPIN = (
    "MERMLPLLALGLLAAGFCPAVLCHPNSPLDEENLTQENQDRGTHVDLGLASANVDFAFSLYKQLVLKAPDKNVIFSPLSISTALAFLSLG"
    "AHNTTLTEILKGLKFNLTETSEAEIHQSFQHLLRTLNQSSDELQLSMGNAMFVKEQLSLLDRFTEDAKRLYGSEAFATDFQDSAAAKKLI"
    "NDYVKNGTRGKITDLIKDLDSQTMMVLVNYIFFKAKWEMPFDPQDTHQSRFYLSKKKWVMVPMMSLHHLTIPYFRDEELSCTVVELKYTG"
    "NASALFILPDQDKMEEVEAMLLPETLKRWRDSLEFREIGELYLPKFSISRDYNLNDILLQLGIEEAFTSKADLSGITGARNLAVSQVVHK"
    "AVLDVFEEGTEASAATAVKITLLSALVETRTIVRFNRPFLMIIVPTDTQNIFFMSKVTNPKQA"
)
START, END = 369, 397


def changed(sequence: str, share: float, seed: int) -> str:
    chance = random.Random(seed)
    return "".join(chance.choice(AMINO_ACIDS) if chance.random() < share else c for c in sequence)


@pytest.fixture(scope="module")
def profile() -> RclProfile:
    serpins = [(changed(SERPIN, 0.2, n), START, END) for n in range(12)]
    return build_profile(serpins, {"serpins": 12})


@pytest.mark.parametrize(
    ("sequence", "shift"),
    [
        (SERPIN, 0),
        (changed(SERPIN, 0.3, 99), 0),
        (changed("M" * 200, 1, 1) + SERPIN + changed("M" * 1500, 1, 2), 200),
        (SERPIN[150:], -150),
        (SERPIN.lower(), 0),
        (SERPIN + "*", 0),
        # of two domains the last one
        (SERPIN + changed(SERPIN, 0.1, 5), len(SERPIN)),
    ],
)
def test_the_rcl_is_found(profile, sequence, shift):
    (result,) = profile.find([sequence])
    *ends, confidence = result.region
    assert ends == [START + shift, END + shift]
    inside = np.zeros(len(sequence), bool)
    inside[START + shift - 1 : END + shift] = True
    assert (result.probabilities[~inside] == 0).all()
    assert confidence == pytest.approx(result.probabilities[inside].mean(), abs=1e-6)
    assert confidence > 0.8


def test_others_and_fragments(profile):
    statuses = {
        changed("M" * 400, 1, 3): "no_serpin",
        SERPIN[:340]: "incomplete",
        "M": "no_serpin",
        SERPIN: "found",
        "A" * 100_001: "too_long",
        "A" * 100_000: "no_serpin",
    }
    results = profile.find(list(statuses), END - START + 1)
    assert [result.status for result in results] == list(statuses.values())
    assert profile.find([SERPIN], END - START + 2)[0].status == "incomplete"


def test_posterior_probabilities_belong_to_their_residues(profile):
    insertion = SERPIN[:380] + "DEDKDEDKDED" + SERPIN[380:]
    (result,) = profile.find([insertion])
    assert result.region[:2] == (START, END + 11)
    ((columns, posterior),) = profile.place([SERPIN])
    first, last = profile.columns
    assert columns[START - 1] == first
    assert columns[END - 1] == last
    assert (posterior[100:300] > 0.9).all()  # in the middle of a domain there is no doubt


def test_a_profile_is_read_as_it_was_written(profile, tmp_path):
    path = tmp_path / "p.hmm"
    path.write_bytes(profile.to_bytes())
    again = read_profile(path)
    assert again.columns == profile.columns
    made = json.loads(again.hmm.description)["training"]
    assert made == {"serpins": 12, "serpins_aligned": 12}
    assert again.to_bytes() == path.read_bytes()
    content = path.read_bytes()
    for old, new in (
        (b'"content": "rcl"', b'"content": "abc"'),
        (b'"rcl_columns": [', b'"rcl_columns": [9, '),
        (b'"rcl_columns": [', b'"rcl_columns": [-'),
        (b'"schema": 1', b'"schema": 9'),
        (b"HMMER3/f", b"HMMER9/f"),
        (b"ALPH  amino", b"ALPH  DNA\n"),
        (content[3000:], b""),
        (b"NAME", content + b"NAME"),
    ):
        path.write_bytes(content.replace(old, new, 1))
        with pytest.raises(ModelError, match=str(path)):
            read_profile(path)


def test_the_shipped_profile_finds_the_rcl_of_a_serpin():
    finder = open_finder("hmm")
    (result,) = finder.find([SERPIN])
    assert result.region[:2] == (START, END)
    assert finder.label == "hmm"


def test_the_command(call, tmp_path):
    table, output = tmp_path / "serpins.csv", tmp_path / "my.hmm"
    rows = [f"s{n},{START},{END},{changed(SERPIN, 0.2, n)}\n" for n in (0, 0, 1)]
    table.write_text("id,rcl_start,rcl_end,Sequence\n" + "".join(rows[:2]))
    assert call("rcl", "profile", table, "--output", output).code == 64  # twice the same
    table.write_text("id,rcl_start,rcl_end,Sequence\n" + "".join(rows[1:]))
    result = call("rcl", "profile", table, "--output", output)
    assert result.code == 0, result.err
    assert "aligning 2 serpins" in result.err
    assert read_profile(output).columns
    assert call("rcl", "profile", table, "--output", tmp_path / "my.txt").code == 64
