"""Results for Python programs: typed rows, data frames, and what is wrong with a folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import virnucpro
from tests.declared import line_of
from virnucpro.errors import InputError, UsageError
from virnucpro.tables import CONTIGS, RCL_RESIDUES, ContigRow, RclResidueRow

# Ids that readers of comma-separated files take for quotes, comments, gaps or ends of lines.
IDS = ["NA", '"a', "#b", "'c", "d\re", " f ", "g,h", "ж", "\u2028i", "None", "nan", "1"]
COUNTS = {
    "records": 2,
    "records_scored": 1,
    "records_unscored": {"too_short": 1},
    "calls": {"virus": 1},
    "chunks": {"scored": 3},
    "regions": 3,
    "region_bases": 900,
    "records_with_failures": 0,
}


def write_run(folder: Path, stem: str, ids: list[str] = IDS, **changes: object) -> None:
    record = {"counts": COUNTS, "settings": {}, "input": {}, "notice": "lite", **changes}
    (folder / f"{stem}_run.json").write_text(json.dumps(record))
    gaps = {column.name: None for column in CONTIGS.columns if column.optional}
    lines = [line_of(CONTIGS, record=ids[0], call="virus", **gaps)]
    lines += [line_of(CONTIGS, record=name, call="virus") for name in ids[1:]]
    path = folder / CONTIGS.path.format(stem=stem)
    path.write_text(CONTIGS.header + "".join(lines), encoding="utf-8", newline="\n")


def test_rows_are_typed_and_come_one_after_the_other(tmp_path):
    write_run(tmp_path, "s")
    run = virnucpro.open_run(tmp_path)
    assert (run.stem, run.folder) == ("s", tmp_path)
    first, *others = run.contigs()
    assert isinstance(first, ContigRow)
    assert (first.record, first.length, first.virus_score, first.fdr) == ("NA", 5, None, None)
    assert [row.record for row in others] == IDS[1:]
    assert run.summary.calls == {"virus": 1}
    assert (run.summary.records, run.summary.scored, run.summary.notice) == (2, 1, "lite")
    assert (run.summary.regions, run.summary.region_bases) == (3, 900)


def test_a_data_frame_has_every_row_as_it_is_in_the_table(tmp_path):
    write_run(tmp_path, "s")
    frame = virnucpro.open_run(tmp_path).contigs().to_pandas()
    assert list(frame.columns) == list(CONTIGS.row._fields)
    assert list(frame["record"]) == IDS
    assert frame["length"].sum() == 5 * len(IDS)
    assert list(frame["tier"].isna()) == [True] + [False] * (len(IDS) - 1)
    assert frame["fdr"][1] == 0.5


def test_runs_in_a_folder_are_told_apart_by_name(tmp_path):
    (tmp_path / "s_run.json").write_text('{"counts": ')
    (tmp_path / "train_run.json").write_text('{"counts": {}}')  # of train embed
    for folder, message in ((tmp_path, "virnucpro status"), (tmp_path / "no", "not a directory")):
        with pytest.raises(UsageError, match=message):
            virnucpro.open_run(folder)
    write_run(tmp_path, "a")
    write_run(tmp_path, "b_rcl")
    with pytest.raises(UsageError, match=r"as stem \(option --stem\): a, b_rcl"):
        virnucpro.open_run(tmp_path)
    assert virnucpro.open_run(tmp_path, "b_rcl").stem == "b_rcl"
    with pytest.raises(UsageError, match=r"no finished run 'c'.*there: a, b_rcl"):
        virnucpro.open_run(tmp_path, "c")
    with pytest.raises(UsageError, match="no finished run of rcl predict"):
        virnucpro.open_rcl_run(tmp_path)


@pytest.mark.parametrize(
    "text", ["x\n", CONTIGS.header + "a\t1\n", CONTIGS.header + "a\t" * 12 + "\n"]
)
def test_a_changed_table_is_named(tmp_path, text):
    write_run(tmp_path, "s")
    (tmp_path / "s_contigs.tsv").write_text(text)
    with pytest.raises(InputError, match=r"s_contigs\.tsv"):
        virnucpro.open_run(tmp_path).contigs().to_pandas()


def test_a_missing_table_and_a_changed_record_are_named(tmp_path):
    write_run(tmp_path, "s", counts={"records": "many"})
    run = virnucpro.open_run(tmp_path)
    with pytest.raises(InputError, match=r"s_chunks.tsv does not exist"):
        run.chunks()
    with pytest.raises(InputError, match=r"s_run.json was changed"):
        assert run.summary


def test_a_compressed_table_is_read(tmp_path):
    (tmp_path / "p_rcl_run.json").write_text(json.dumps({"statuses": {"found": 1}}))
    line = RCL_RESIDUES.line(accession="P", position=1, residue="G", probability=0.5)
    with gzip.open(tmp_path / RCL_RESIDUES.path.format(stem="p"), "wt") as file:
        file.write(RCL_RESIDUES.header + line)
    run = virnucpro.open_rcl_run(tmp_path)
    assert list(run.residues()) == [RclResidueRow("P", 1, "G", 0.5)]
    with gzip.open(tmp_path / RCL_RESIDUES.path.format(stem="p"), "rb") as file:
        whole = file.read()
    cut = gzip.compress(whole)[:-9]
    (tmp_path / RCL_RESIDUES.path.format(stem="p")).write_bytes(cut)
    with pytest.raises(InputError, match="changed or cut off"):
        list(run.residues())
