"""Predictions and labels: every table that can be read, and every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.labels import read_labels
from virnucpro.evaluation.predictions import PredictionRow, Predictions, find_predictions
from virnucpro.evaluation.sample import Sample, join
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, LABELLED_FRAMES, PREDICTIONS

LABELS = "record\tlabel\tgroup\tgenome\na\tvirus\tPhages\tg1\nb\tothers\tBacteria\tg2\n"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _rows(predictions: Predictions) -> list[PredictionRow]:
    return list(predictions.rows())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An output directory of predict with every table."""
    out = tmp_path / "out"
    _write(
        out / "s_chunks.tsv",
        CHUNKS.header + "a\ta_chunk_1\t1\t500\tscored\t1\t0.25\t0.75\n"
        "a\ta_chunk_2\t401\t700\tno_open_frame\t0\tNA\tNA\n"
        "b\tb_chunk_1\t1\t150\tscored\t2\t0.9\t0.3\nc\tc_chunk_1\t1\t150\tscored\t1\t0.5\t0.5\n",
    )
    _write(
        out / "s_contigs.tsv",
        CONTIGS.header
        + "a\t700\t2\t1\t0.7\tvirus\t0.500000\tlow\t0\t0\t1\tscored\t0.100000\t0\t700\n"
        "b\t150\t1\t0\t0\tunscored\tNA\tNA\t0\t0\t0\tno_open_frame\tNA\t0\t0\n",
    )
    _write(
        out / "s_merged/prediction_results.txt",
        PREDICTIONS.header + "a_chunk_1F1\tvirus\t0.25\t0.75\n",
    )
    consensus = CONSENSUS.header + "a_chunk_1\tTrue\t0.25\t0.75\n"
    _write(out / "s_merged/prediction_results_highestscore.csv", consensus)
    return out


def test_a_directory_has_every_level(run: Path) -> None:
    chunks = _rows(find_predictions(run, None))
    assert [(row.chunk, row.record, row.length) for row in chunks] == [
        ("a_chunk_1", "a", 500),
        ("a_chunk_2", "a", 300),
        ("b_chunk_1", "b", 150),
        ("c_chunk_1", "c", 150),
    ]
    assert chunks[0].score == 0.75
    assert chunks[2].score == pytest.approx(0.2)
    assert chunks[1].score != chunks[1].score
    assert chunks[1].status == "no_open_frame"
    contigs = _rows(find_predictions(run, "contig"))
    assert (contigs[0].score, contigs[0].fdr, contigs[0].length) == (0.75, 0.1, 700)
    assert contigs[1].status == "no_open_frame"
    (frame,) = _rows(find_predictions(run, "frame"))
    assert (frame.chunk, frame.record, frame.score) == ("a_chunk_1", "a", 0.75)


def test_a_table_by_itself_says_what_it_is(run: Path) -> None:
    names = {
        "s_chunks.tsv": "chunk",
        "s_contigs.tsv": "contig",
        "s_merged/prediction_results.txt": "frame",
        "s_merged/prediction_results_highestscore.csv": "chunk",
    }
    for name, level in names.items():
        found = find_predictions(run / name, None)
        assert (found.level, found.stem, found.graded) == (level, "s", True)
        assert _rows(found)[0].score == 0.75
    with pytest.raises(UsageError, match="one row per chunk, not per contig"):
        find_predictions(run / "s_chunks.tsv", "contig")


def test_runs_of_older_versions(tmp_path: Path) -> None:
    merged = tmp_path / "out/s_merged"
    path = merged / "prediction_results_highestscore.csv"
    _write(path, "Modified_ID\tIs_Virus\na_chunk_1\tTrue\nb_chunk_2\tFalse\n")
    found = find_predictions(tmp_path / "out", None)
    assert not found.graded
    assert [(row.record, row.score) for row in found.rows()] == [("a", 1.0), ("b", 0.0)]
    contigs = CONTIGS.header.replace("\tfdr\tregions\tviral_bases", "")
    row = "a\t700\t2\t1\t0.7\tvirus\t-1.000000\tlow\t0\t0\t1\tscored\n"
    older = find_predictions(_write(tmp_path / "t_contigs.tsv", contigs + row), None)
    (only,) = older.rows()
    assert only.score == 0
    assert only.fdr != only.fdr


def test_a_frame_that_is_nearly_certain_keeps_its_margin(tmp_path: Path) -> None:
    path = _write(tmp_path / "p.txt", PREDICTIONS.header + "a_chunk_1F1\tvirus\t3e-09\t1.0\n")
    (frame,) = find_predictions(path, None).rows()
    assert 1 - frame.score == pytest.approx(3e-9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a\tb\n1\t2\n", "not a table of predictions"),
        (CHUNKS.header + "a\tb\n", "line 2: 2 fields, expected 8"),
        (PREDICTIONS.header + "aF1\tvirus\tx\t1\n", "line 2: 'x' is not a number"),
        (PREDICTIONS.header + "aF1\tvirus\t0.5\tnan\n", "line 2: 'nan' is not a number"),
        (PREDICTIONS.header + "aF1\tvirus\t0.5\t1.5\n", "line 2: a score is out of range"),
        (PREDICTIONS.header + "aF1\tvirus\t0\t0\n", "line 2: both scores are 0"),
        ("Modified_ID\tIs_Virus\na\tperhaps\n", "Is_Virus is 'perhaps'"),
        (CHUNKS.header + "a\ta_chunk_1\tx\t500\tscored\t1\t0.2\t0.8\n", "not a range of bases"),
    ],
)
def test_mistakes_in_predictions(tmp_path: Path, text: str, says: str) -> None:
    path = _write(tmp_path / "p.tsv", text)
    with pytest.raises(InputError, match=says):
        _rows(find_predictions(path, None))


def test_nothing_or_too_much_to_evaluate(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        find_predictions(tmp_path / "nothing", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no predictions of a finished run: .*status"):
        find_predictions(tmp_path / "empty", None)
    (run / "s_contigs.tsv").unlink()
    with pytest.raises(UsageError, match="has not finished"):
        find_predictions(run, "contig")
    (run / "t_merged").mkdir()
    with pytest.raises(UsageError, match=r"several runs \(s, t\): .* such as .*s_chunks.tsv"):
        find_predictions(run, None)
    for name in "uvwx":
        (run / f"{name}_merged").mkdir()
    with pytest.raises(UsageError, match=r"several runs \(s, t, u, v, w and 1 more\)"):
        find_predictions(run, None)


# Labels


@pytest.mark.parametrize("words", [("virus", "others"), ("viral", "nonviral"), ("1", "0")])
def test_words_for_labels(tmp_path: Path, words: tuple[str, str]) -> None:
    text = f"label\trecord\n{words[0]}\ta\n{words[1].upper()}\tb\n\t c\n"
    labels = read_labels(_write(tmp_path / "l.tsv", text))
    assert [o.virus for o in labels.records.values()] == [True, False]
    assert labels.records["a"].genome == "a"
    assert labels.records["a"].group == ""
    assert labels.blank == 1


def test_the_genomes_table_of_a_data_set(tmp_path: Path) -> None:
    text = (
        "record\tsource\tlabel\tgroup\tgenome\tpart\tbases\tchunks\tframes\tnote\n"
        "a\tx.fa\tvirus\tPhages\tg1\ttest\t5000\t10\t4\t\nb\ty.fa\tothers\tBac\tg2\ttrain\t1\t1\t1\t\n"
    )
    labels = read_labels(_write(tmp_path / "genomes.tsv", text))
    assert (labels.records["a"].group, labels.records["a"].part) == ("Phages", "test")
    assert labels.records["b"].genome == "g2"


def test_the_frames_table_of_a_data_set(tmp_path: Path) -> None:
    rows = "a_300bp_chunk_1F1\ta_300bp_chunk_1\ta\tg\tPhages\tvirus\t300\n"
    rows += "a_300bp_chunk_1R2\ta_300bp_chunk_1\ta\tg\tPhages\tvirus\t300\n"
    labels = read_labels(_write(tmp_path / "test_frames.tsv", LABELLED_FRAMES.header + rows))
    assert list(labels.chunks) == ["a_300bp_chunk_1"]
    origin = labels.chunks["a_300bp_chunk_1"]
    assert (origin.record, origin.length, origin.part) == ("a", 300, "test")
    assert labels.records == {"a": origin}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("record\tgroup\na\tx\n", "no column 'label'"),
        ("record,label\na,virus\n", "first line names record,label: .* tabs between its columns"),
        ("record\tlabel\na\tplant\n", "line 2: label 'plant' is none of"),
        ("record\tlabel\na\tvirus\na\tothers\n", "labelled virus and others"),
        ("record\tlabel\na\t\n", "no row with a label"),
        ("record\tlabel\na\tvirus\n\nb\tvirus\textra\n", "line 4: 3 fields, expected 2"),
    ],
)
def test_mistakes_in_labels(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_labels(_write(tmp_path / "l.tsv", text))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "l.tsv"
    path.write_bytes(b"record\tlabel\n" + b"x\tvirus\n" * 9000 + b"\xff\tvirus\n")
    with pytest.raises(InputError, match="not in UTF-8"):
        read_labels(path)


# Both


def _joined(predictions: Path, labels: str, tmp_path: Path, level=None) -> Sample:
    path = _write(tmp_path / "labels.tsv", labels)
    return join(find_predictions(predictions, level), read_labels(path))


def test_what_cannot_be_used_is_counted(run: Path, tmp_path: Path) -> None:
    sample = _joined(run, LABELS + "z\tvirus\t\t\n", tmp_path)
    counts = sample.counts
    assert (counts.rows, counts.used, counts.unlabelled) == (4, 2, 1)
    assert counts.unscored == {("virus", "no_open_frame"): 1}
    assert counts.absent == {"virus": 1}
    assert sample.virus.tolist() == [True, False]
    assert sample.group_names == (("virus", "Phages"), ("others", "Bacteria"))
    assert [sample.length_names[i] for i in sample.lengths] == ["<=500", "<=150"]


def test_a_record_that_is_only_unscored_is_not_absent(run: Path, tmp_path: Path) -> None:
    counts = _joined(run, LABELS, tmp_path, "contig").counts
    assert counts.unscored == {("others", "no_open_frame"): 1}
    assert counts.absent == {}


def test_chunk_lengths_of_a_data_set_go_before_bases(tmp_path: Path) -> None:
    rows = "".join(
        f"{name}F1\t{name}\tr\tg\tPhages\tvirus\t{length}\n"
        for name, length in (("r_500bp_chunk_1", 500), ("r_300bp_chunk_1", 300))
    )
    _write(tmp_path / "test_frames.tsv", LABELLED_FRAMES.header + rows)
    text = (
        PREDICTIONS.header
        + "r_500bp_chunk_1F1\tvirus\t0.2\t0.8\nr_300bp_chunk_1F1\tothers\t0.6\t0.4\n"
    )
    frames = find_predictions(_write(tmp_path / "p.txt", text), None)
    sample = join(frames, read_labels(tmp_path / "test_frames.tsv"))
    assert [sample.length_names[i] for i in sample.lengths] == ["500", "300"]
    assert sample.clusters.tolist() == [0, 0]


def test_without_lengths_there_are_no_classes(run: Path, tmp_path: Path) -> None:
    sample = _joined(run / "s_merged/prediction_results.txt", LABELS, tmp_path)
    assert sample.length_names == ("",)


def test_rows_of_the_training_part_are_counted(run: Path, tmp_path: Path) -> None:
    labels = "record\tlabel\tpart\na\tvirus\ttrain\nb\tothers\ttest\n"
    assert _joined(run, labels, tmp_path).counts.trained == 1


def test_other_ids_altogether(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the 4 rows .*\(4 have no label"):
        _joined(run, "record\tlabel\nq\tvirus\n", tmp_path)
