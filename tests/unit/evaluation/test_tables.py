"""Predictions and labels: every table that can be read, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.declared import line_of
from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.tables import find_predictions, join, read_labels
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, PREDICTIONS

LABELS = "record\tlabel\tgroup\tgenome\na\tvirus\tPhages\tg1\nb\tothers\tBacteria\tg2\n"
FRAMES, CONSENSUS_FILE = (
    f"s_merged/prediction_results{name}" for name in (".txt", "_highestscore.csv")
)


def chunk(record: str, end: int, others: object, virus: object, number: int = 1, **cells) -> str:
    places = {"start": 1, "end": end, "chunk": f"{record}_chunk_{number}"}
    scores = {"max_score_0": others, "max_score_1": virus}
    return line_of(CHUNKS, record=record, **{"status": "scored", **places, **scores, **cells})


def frame(chunk: str, others: object, virus: object) -> str:
    line = line_of(PREDICTIONS, Sequence_ID=f"{chunk}F1", score1=0.125, score2=0.375)
    return line.replace("0.125", str(others)).replace("0.375", str(virus))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows(path, *columns, level=None):
    return find_predictions(path, level).rows[list(columns)].to_numpy().tolist()


CONSENSUS_TEXT = CONSENSUS.header + line_of(
    CONSENSUS, Modified_ID="a_chunk_1", max_score_0=0.25, max_score_1=0.75
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An output directory of predict with every table."""
    out = tmp_path / "out"
    closed = {"status": "no_open_frame"}
    chunks = (
        chunk("a", 500, 0.25, 0.75),
        chunk("a", 700, None, None, 2, start=401, **closed),
        chunk("b", 150, 0.9, 0.3),
        chunk("c", 150, 0.5, 0.5),
    )
    contigs = (
        line_of(CONTIGS, record="a", length=700, call="virus", virus_score=0.5, fdr=0.1,
                status="scored"),
        line_of(CONTIGS, record="b", length=0, call="unscored", virus_score=None, fdr=None, **closed),
    )  # fmt: skip
    write(out / "s_chunks.tsv", CHUNKS.header + "".join(chunks))
    write(out / "s_contigs.tsv", CONTIGS.header + "".join(contigs))
    write(out / FRAMES, PREDICTIONS.header + frame("a_chunk_1", 0.25, 0.75))
    write(out / CONSENSUS_FILE, CONSENSUS_TEXT)
    return out


NAN = pytest.approx(float("nan"), nan_ok=True)
SCORED, CLOSED = ("scored", "no_open_frame")
EXPECTED = {  # record, score, length, status, call and rate of the rows
    "chunk": [
        ["a", 0.75, 500, SCORED, False, NAN],
        ["a", NAN, 300, CLOSED, False, NAN],
        ["b", pytest.approx(0.2), 150, SCORED, False, NAN],
        ["c", 0.5, 150, SCORED, False, NAN],
    ],
    "contig": [["a", 0.75, 700, SCORED, True, 0.1], ["b", NAN, 0, CLOSED, False, NAN]],
    "frame": [["a", 0.75, 0, SCORED, False, NAN]],
    "consensus": [["a", 0.75, 0, SCORED, False, NAN]],
}


@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [
        ("s_chunks.tsv", "chunk", "chunk"),
        ("s_contigs.tsv", "contig", "contig"),
        (FRAMES, "frame", "frame"),
        (CONSENSUS_FILE, "chunk", "consensus"),
    ],
)
def test_a_table_by_itself_or_that_of_a_directory(run, name, level, expected):
    found = find_predictions(run / name, None)
    assert (found.level, found.layout.stem, found.layout.root) == (level, "s", run)
    columns = ("record", "score", "length", "status", "called", "fdr")
    assert rows(run / name, *columns) == EXPECTED[expected]
    if expected == level:
        assert rows(run, *columns, level=level) == EXPECTED[level]
    with pytest.raises(UsageError, match="one row per"):
        find_predictions(run / name, "frame" if level != "frame" else "contig")


def test_runs_of_version_1(tmp_path):
    write(tmp_path / "out" / CONSENSUS_FILE, CONSENSUS_TEXT)
    assert rows(tmp_path / "out", "record", "score") == [["a", 0.75]]


def test_a_frame_that_is_nearly_certain_keeps_its_margin(tmp_path):
    text = PREDICTIONS.header + frame("a_chunk_1", "3e-09", "1.0")
    ((score,),) = rows(write(tmp_path / "p.txt", text), "score")
    assert 1 - score == pytest.approx(3e-9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\tb\n1\t2\n",
        CHUNKS.header + "a\tb\n",
        CHUNKS.header + chunk("a", 500, 0.2, 0.8).replace("500", "x"),
        CHUNKS.header + chunk("a", 500, 0.2, 0.8).replace("\n", "\textra\n"),
        PREDICTIONS.header + frame("a", "x", "1"),
        PREDICTIONS.header + frame("a", "0.5", "nan"),
        PREDICTIONS.header + frame("a", "0.5", "1.5"),
        PREDICTIONS.header + frame("a", "0", "0"),
        "Modified_ID\tIs_Virus\na\tTrue\n",  # calls without scores
    ],
)
def test_mistakes_in_predictions(tmp_path, text):
    path = write(tmp_path / "p.tsv", text)
    with pytest.raises(InputError, match=str(path)):
        find_predictions(path, None)


def test_nothing_or_too_much_to_evaluate(run, tmp_path):
    (tmp_path / "empty").mkdir()
    (run / "s_contigs.tsv").unlink()
    for path, level in (("nothing", None), ("empty", None), ("out", "contig")):
        with pytest.raises(UsageError):
            find_predictions(tmp_path / path, level)
    (run / "t_merged").mkdir()
    with pytest.raises(UsageError, match=r"several runs \(s, t\)"):
        find_predictions(run, None)


# Labels


@pytest.mark.parametrize(
    "words", [("virus", "others"), ("viral", "nonviral"), ("virus", "nonvirus"), ("1", "0")]
)
def test_words_for_labels(tmp_path, words):
    text = f"label\trecord\n{words[0]}\ta\n{words[1].upper()}\tb\n\t c\n"
    text += "undecided\td\nunscored\te\n"
    found = read_labels(write(tmp_path / "l.tsv", text))
    assert found.values.tolist() == [["a", "virus", "", "a", ""], ["b", "others", "", "b", ""]]


@pytest.mark.parametrize(
    "text",
    [
        "record\tgroup\na\tx\n",
        "record\tlabel\na\tplant\n",
        "record\tlabel\na\tvirus\na\tothers\n",
        "record\tlabel\na\tvirus\n\nb\tvirus\textra\n",
        "record\tlabel\n" + "x\tvirus\n" * 9000 + "\udcff\tvirus\n",
    ],
)
def test_mistakes_in_labels(tmp_path, text):
    path = tmp_path / "l.tsv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError):
        read_labels(path)


# Both


@pytest.fixture
def joined(run, tmp_path):
    def _joined(labels, place="", level=None):
        path = write(tmp_path / "labels.tsv", labels)
        return join(find_predictions(run / place, level), read_labels(path))

    return _joined


def test_what_cannot_be_used_is_counted(joined):
    used, missed, counts = joined(LABELS + "z\tvirus\t\t\n")
    assert counts == {
        "rows": 4,
        "used": 2,
        "unlabelled": 1,
        "unscored": [{"label": "virus", "status": "no_open_frame", "rows": 1}],
        "labelled_records_without_a_row": {"virus": 1},
        "rows_of_the_training_part": 0,
    }
    assert used[["label", "group", "length"]].to_numpy().tolist() == [
        ["virus", "Phages", "300 to 500"],
        ["others", "Bacteria", "up to 150"],
    ]
    assert missed.group.tolist() == ["Phages"]
    used, missed, counts = joined(LABELS, level="contig")
    assert used.length.tolist() == ["500 to 1,000"]  # the other one has 0
    # A record that is only unscored is not absent.
    assert [row["label"] for row in counts["unscored"]] == ["others"]
    assert (len(missed), counts["labelled_records_without_a_row"]) == (0, {})
    assert joined(LABELS, FRAMES)[0].length.isna().all()
    counts = joined("record\tlabel\tpart\na\tvirus\ttrain\nb\tothers\ttest\n")[2]
    assert counts["rows_of_the_training_part"] == 1
    with pytest.raises(InputError, match="no row with a label"):
        joined("record\tlabel\nq\tvirus\n")
