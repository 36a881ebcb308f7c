"""Predictions and labels: every table that can be read, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.labels import join, read_labels
from virnucpro.evaluation.predictions import find_predictions
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, LABELLED_FRAMES, PREDICTIONS

LABELS = "record\tlabel\tgroup\tgenome\na\tvirus\tPhages\tg1\nb\tothers\tBacteria\tg2\n"
FRAMES, CONSENSUS_FILE = (
    f"s_merged/prediction_results{name}" for name in (".txt", "_highestscore.csv")
)
CONTIG_ROWS = (
    "a\t700\t2\t1\t0.7\tvirus\t0.500000\tlow\t0\t0\t1\tscored\t0.100000\t0\t700\n"
    "b\t150\t1\t0\t0\tunscored\tNA\tNA\t0\t0\t0\tno_open_frame\tNA\t0\t0\n"
)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows(path, level=None):
    return list(find_predictions(path, level).rows().itertuples(index=False))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An output directory of predict with every table."""
    out = tmp_path / "out"
    write(
        out / "s_chunks.tsv",
        CHUNKS.header + "a\ta_chunk_1\t1\t500\tscored\t1\t0.25\t0.75\n"
        "a\ta_chunk_2\t401\t700\tno_open_frame\t0\tNA\tNA\n"
        "b\tb_chunk_1\t1\t150\tscored\t2\t0.9\t0.3\nc\tc_chunk_1\t1\t150\tscored\t1\t0.5\t0.5\n",
    )
    write(out / "s_contigs.tsv", CONTIGS.header + CONTIG_ROWS)
    write(out / FRAMES, PREDICTIONS.header + "a_chunk_1F1\tvirus\t0.25\t0.75\n")
    write(out / CONSENSUS_FILE, CONSENSUS.header + "a_chunk_1\tTrue\t0.25\t0.75\n")
    return out


def test_a_directory_has_every_level(run: Path) -> None:
    chunks = rows(run)
    assert [(row.chunk, row.record, row.length) for row in chunks] == [
        ("a_chunk_1", "a", 500),
        ("a_chunk_2", "a", 300),
        ("b_chunk_1", "b", 150),
        ("c_chunk_1", "c", 150),
    ]
    assert [row.score for row in chunks] == pytest.approx(
        [0.75, float("nan"), 0.2, 0.5], nan_ok=True
    )
    assert chunks[1].status == "no_open_frame"
    contigs = rows(run, "contig")
    assert (contigs[0].score, contigs[0].fdr, contigs[0].length) == (0.75, 0.1, 700)
    assert (contigs[0].called, contigs[1].called) == (True, False)
    assert contigs[1].status == "no_open_frame"
    (frame,) = rows(run, "frame")
    assert (frame.chunk, frame.record, frame.score) == ("a_chunk_1", "a", 0.75)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("s_chunks.tsv", "chunk"),
        ("s_contigs.tsv", "contig"),
        (FRAMES, "frame"),
        (CONSENSUS_FILE, "chunk"),
    ],
)
def test_a_table_by_itself_says_what_it_is(run: Path, name: str, level: str) -> None:
    found = find_predictions(run / name, None)
    assert (found.kind.level, found.stem, found.folder, found.kind.graded) == (
        level,
        "s",
        run,
        True,
    )
    with pytest.raises(UsageError, match="one row per"):
        find_predictions(run / name, "frame" if level != "frame" else "contig")


def test_runs_of_older_versions(tmp_path: Path) -> None:
    text = "Modified_ID\tIs_Virus\na_chunk_1\tTrue\nb_chunk_2\tFalse\n"
    write(tmp_path / "out" / CONSENSUS_FILE, text)
    assert not find_predictions(tmp_path / "out", None).kind.graded
    assert [(row.record, row.score) for row in rows(tmp_path / "out")] == [("a", 1.0), ("b", 0.0)]
    header = CONTIGS.header.replace("\tfdr\tregions\tviral_bases", "")
    line = "a\t700\t2\t1\t0.7\tvirus\t-1.000000\tlow\t0\t0\t1\tscored\n"
    (only,) = rows(write(tmp_path / "t_contigs.tsv", header + line))
    assert only.score == 0
    assert only.fdr != only.fdr


def test_a_frame_that_is_nearly_certain_keeps_its_margin(tmp_path: Path) -> None:
    (frame,) = rows(
        write(tmp_path / "p.txt", PREDICTIONS.header + "a_chunk_1F1\tvirus\t3e-09\t1.0\n")
    )
    assert 1 - frame.score == pytest.approx(3e-9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\tb\n1\t2\n",
        CHUNKS.header + "a\tb\n",
        CHUNKS.header + "a\ta_chunk_1\tx\t500\tscored\t1\t0.2\t0.8\n",
        CHUNKS.header + "a\ta_chunk_1\t1\t500\tscored\t1\t0.2\t0.8\textra\n",
        *(
            PREDICTIONS.header + f"aF1\tvirus\t{scores}\n"
            for scores in ("x\t1", "0.5\tnan", "0.5\t1.5", "0\t0")
        ),
        "Modified_ID\tIs_Virus\na\tperhaps\n",
    ],
)
def test_mistakes_in_predictions(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "p.tsv", text)
    with pytest.raises(InputError, match=f"{path} is"):
        rows(path)


def test_nothing_or_too_much_to_evaluate(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (run / "s_contigs.tsv").unlink()
    for path, level in ((tmp_path / "nothing", None), (tmp_path / "empty", None), (run, "contig")):
        with pytest.raises(UsageError):
            find_predictions(path, level)
    (run / "t_merged").mkdir()
    with pytest.raises(UsageError, match=r"several runs \(s, t\): .* such as .*s_chunks.tsv"):
        find_predictions(run, None)


# Labels


def labels_of(path):
    return {row.record: row for row in read_labels(path).table.itertuples(index=False)}


@pytest.mark.parametrize("words", [("virus", "others"), ("viral", "nonviral"), ("1", "0")])
def test_words_for_labels(tmp_path: Path, words: tuple[str, str]) -> None:
    text = f"label\trecord\n{words[0]}\ta\n{words[1].upper()}\tb\n\t c\n"
    path = write(tmp_path / "l.tsv", text)
    found = labels_of(path)
    assert [(row.record, row.label) for row in found.values()] == [("a", "virus"), ("b", "others")]
    assert (found["a"].genome, found["a"].group) == ("a", "")
    assert read_labels(path).blank == 1


def test_the_tables_of_a_data_set(tmp_path: Path) -> None:
    text = (
        "record\tsource\tlabel\tgroup\tgenome\tpart\tbases\tchunks\tframes\tnote\n"
        "a\tx.fa\tvirus\tPhages\tg1\ttest\t5000\t10\t4\t\nb\ty.fa\tothers\tBac\tg2\ttrain\t1\t1\t1\t\n"
    )
    found = labels_of(write(tmp_path / "genomes.tsv", text))
    assert (found["a"].group, found["a"].part, found["b"].genome) == ("Phages", "test", "g2")
    lines = [
        f"a_300bp_chunk_1{frame}\ta_300bp_chunk_1\ta\tg\tPhages\tvirus\t300\n"
        for frame in ("F1", "R2")
    ]
    path = write(tmp_path / "test_frames.tsv", LABELLED_FRAMES.header + "".join(lines))
    (row,) = read_labels(path).table.itertuples(index=False)
    assert (row.chunk, row.record, row.length, row.part) == ("a_300bp_chunk_1", "a", 300, "test")


@pytest.mark.parametrize(
    "text",
    [
        "record\tgroup\na\tx\n",
        "record,label\na,virus\n",
        "record\tlabel\na\tplant\n",
        "record\tlabel\na\tvirus\na\tothers\n",
        "record\tlabel\na\t\n",
        "record\tlabel\na\tvirus\n\nb\tvirus\textra\n",
        "record\tlabel\n" + "x\tvirus\n" * 9000 + "\udcff\tvirus\n",
    ],
)
def test_mistakes_in_labels(tmp_path: Path, text: str) -> None:
    path = tmp_path / "l.tsv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError):
        read_labels(path)


# Both


@pytest.fixture
def joined(run, tmp_path):
    def _joined(labels, place="", level=None, name="labels.tsv"):
        path = write(tmp_path / name, labels)
        return join(find_predictions(run / place, level), read_labels(path))

    return _joined


def test_what_cannot_be_used_is_counted(joined) -> None:
    sample = joined(LABELS + "z\tvirus\t\t\n")
    counts = sample.counts
    assert (counts.rows, counts.used, counts.unlabelled) == (4, 2, 1)
    assert counts.unscored == {("virus", "no_open_frame"): 1}
    assert counts.absent == {"virus": 1}
    assert sample.virus.tolist() == [True, False]
    assert sample.group_names == (("virus", "Phages"), ("others", "Bacteria"))
    assert [sample.length_names[i] for i in sample.lengths] == ["<=500", "<=150"]
    contigs = joined(LABELS, level="contig").counts  # a record that is only unscored is not absent
    assert (contigs.unscored, contigs.absent) == ({("others", "no_open_frame"): 1}, {})
    assert joined(LABELS, FRAMES).length_names == ("",)
    assert joined("record\tlabel\tpart\na\tvirus\ttrain\nb\tothers\ttest\n").counts.trained == 1
    with pytest.raises(InputError, match=r"none of the 4 rows .*\(4 have no label"):
        joined("record\tlabel\nq\tvirus\n")


def test_chunk_lengths_of_a_data_set_go_before_bases(run: Path, joined) -> None:
    names = (("r_500bp_chunk_1", 500), ("r_300bp_chunk_1", 300))
    frames = "".join(f"{name}F1\t{name}\tr\tg\tPhages\tvirus\t{length}\n" for name, length in names)
    scores = "".join(f"{name}F1\tvirus\t0.2\t0.8\n" for name, _ in names)
    write(run / "p.txt", PREDICTIONS.header + scores)
    sample = joined(LABELLED_FRAMES.header + frames, "p.txt", name="test_frames.tsv")
    assert [sample.length_names[i] for i in sample.lengths] == ["500", "300"]
    assert sample.clusters.tolist() == [0, 0]
