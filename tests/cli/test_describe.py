"""``virnucpro describe``, with stand-ins that read and write what geNomad and CheckV do."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.declared import cells_of
from tests.report_data import Shown, write_run
from virnucpro.tables import DESCRIBED, VIRUS

Calling = Callable[..., Call]
LINEAGE = "Viruses;Duplodnaviria;Heunggongvirae;Uroviricota;Caudoviricetes;;"
START = """\
import os, pathlib, sys, time
words = sys.argv[1:]
with open(os.environ["CALLED"], "a") as called:
    print(pathlib.Path(sys.argv[0]).name, *words, file=called)
def ids(path):
    found = [line[1:].split()[0] for line in path.open() if line[0] == ">"]
    if len(set(found)) < len(found) or any('"' in id or "|" in id for id in found):
        sys.exit("repeated or odd ids")
    return found
"""
# Of the sequences, geNomad lists those with a gene that it knows.
GENOMAD = """\
annotate, threads, n, fasta, folder, database = words
assert (annotate, threads) == ("annotate", "--threads") and int(n) > 0
fasta, folder = pathlib.Path(fasta), pathlib.Path(folder)
print("[12:00:00] Executing genomad annotate.")
if (pathlib.Path(database) / "broken").exists():
    sys.exit("[12:00:01] Error: no file version.txt\\nTraceback\\nFileNotFoundError: version.txt")
if (pathlib.Path(database) / "slow").exists():
    print("slow", os.getpid(), flush=True)
    time.sleep(600)
folder.mkdir()
place = folder / f"{fasta.stem}_annotate"
place.mkdir()
with (place / f"{fasta.stem}_taxonomy.tsv").open("w") as out:
    print("seq_name\\tn_genes_with_taxonomy\\tagreement\\ttaxid\\tlineage", file=out)
    for id in ids(fasta)[:2]:
        print(id, 3, "0.8333", 2561, LINEAGE, sep="\\t", file=out)
"""
HEAD = """contig_id contig_length provirus proviral_length gene_count viral_genes host_genes
checkv_quality miuvig_quality completeness completeness_method contamination kmer_freq warnings"""
CHECKV = f"""\
end_to_end, t, n, d, database, fasta, folder = words
assert (end_to_end, t, d) == ("end_to_end", "-t", "-d") and int(n) > 0
folder = pathlib.Path(folder)
folder.mkdir()
with (folder / "quality_summary.tsv").open("w") as out:
    print({HEAD!r}.replace(" ", "\\t").replace("\\n", "\\t"), file=out)
    for number, id in enumerate(ids(pathlib.Path(fasta))):
        known = ["Complete", "High-quality", 100.0, "DTR (high-confidence)", 1.5]
        unknown = ["Not-determined", "Genome-fragment", "NA", "NA", 0.0]
        quality = unknown if number else known
        print(id, 9, "No", "NA", 5, 4, 0, *quality, 1.0, "", sep="\\t", file=out)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run of odd names in ``a b``, both programs, and a database of each."""
    records = [
        Shown('gi|1|"a"', "virus", [0.9, 0.8, 0.7], 0.01),
        Shown("x\u00a0y", "virus", [0.9, 0.9], 0.02),
        Shown("host", "nonvirus", [0.1, 0.9, 0.1], 0.6, [(1, 1)]),
    ]
    write_run(tmp_path / "a b", records, "s;t")
    names = ['gi|1|"a" [topology=circular]', "x\u00a0y text", "host|region_501_1000 text"]
    fasta = tmp_path / "a b" / "s;t_virus.fna"
    fasta.write_text("".join(f">{name}\nACGT\nAC\n" for name in names), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, text in (("genomad", f"LINEAGE = {LINEAGE!r}\n{GENOMAD}"), ("checkv", CHECKV)):
        path = tmp_path / "bin" / name
        path.write_text(f"#!{sys.executable}\n{START}{text}")
        path.chmod(0o755)
        (tmp_path / f"{name}_db").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    return tmp_path


def words_of(home: Path) -> tuple[object, ...]:
    databases = ("--genomad-db", home / "genomad_db", "--checkv-db", home / "checkv_db")
    return ("describe", home / "a b", *databases, "-t", 2)


def column(home: Path, name: str) -> list[str]:
    table = home / "a b" / "s;t_virus_described.tsv"
    return [cells[name] for cells in cells_of(DESCRIBED, table)]


def called(home: Path) -> list[str]:
    path = home / "called"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def check_nothing_left(home: Path) -> None:
    assert not list((home / "a b").rglob("*describe")), "the working folder is removed"


def test_the_table_joins_what_both_say(call: Calling, home: Path) -> None:
    report = home / "a b" / "s;t_report.html"
    assert call("report", home / "a b").code == 0
    before = report.read_text()
    assert "completeness</th>" not in before
    assert call(*words_of(home)).code == 0
    rows = list(VIRUS.read(home / "a b" / "s;t_virus.tsv", *VIRUS.names))
    described = home / "a b" / "s;t_virus_described.tsv"
    shown = list(DESCRIBED.read(described, *DESCRIBED.names))
    assert [row[: len(VIRUS.names)] for row in shown[:2]] == rows
    assert column(home, "record") == ['gi|1|"a"', "x\u00a0y", "host|region_501_1000"]
    assert column(home, "fdr") == ["0.010000", "0.020000", "NA"]
    assert column(home, "taxonomy") == [LINEAGE, LINEAGE, "Unclassified"]
    assert column(home, "taxonomy_agreement") == ["0.8333", "0.8333", "NA"]
    assert column(home, "completeness") == ["100.00", "NA", "NA"]
    assert column(home, "completeness_method") == ["DTR (high-confidence)", "NA", "NA"]
    assert column(home, "checkv_quality") == ["Complete", "Not-determined", "Not-determined"]
    assert column(home, "contamination") == ["1.50", "0.00", "0.00"]
    cells = f'<td title="{LINEAGE}">Caudoviricetes</td><td class="n">100.0</td></tr>'
    assert report.read_text().count(cells) == 1
    check_nothing_left(home)
    # A second command runs nothing; with --force it does. Without the table the report is as it was
    content = described.read_bytes()
    assert (call(*words_of(home)).code, len(called(home))) == (0, 2)
    assert (call(*words_of(home), "-f").code, len(called(home))) == (0, 4)
    assert described.read_bytes() == content
    described.unlink()
    assert call("report", home / "a b").code == 0
    assert report.read_text() == before


def test_what_is_not_installed_or_not_given_is_left_out(call: Calling, home: Path) -> None:
    one = call(*words_of(home)[:4])
    assert (one.code, called(home), set(column(home, "checkv_quality"))) == (0, ["genomad"], {"NA"})
    line = next(line for line in one.out.splitlines() if "end_to_end" in line)
    fasta = str(home / "a b" / "s;t_virus.fna")
    assert shlex.split(line)[4:] == ["-d", "CHECKV_DATABASE", fasta, str(home / "a b" / "checkv")]
    (home / "bin" / "genomad").unlink()
    assert call(*words_of(home)).code == 0, "the first one has run before"
    assert called(home) == ["genomad", "checkv"]
    assert set(column(home, "taxonomy")) == {LINEAGE, "Unclassified"}
    assert (call(*words_of(home), "-f").code, set(column(home, "taxonomy"))) == (2, {"NA"})
    (home / "bin" / "checkv").unlink()
    none = call(*words_of(home), "-f")
    assert (none.code, none.out.count("genomad annotate"), len(called(home))) == (64, 1, 3)
    assert call("describe", home / "a b", "--checkv-db", home / "called").code == 0, "it is there"


def test_a_program_that_fails_stops_no_other(call: Calling, home: Path) -> None:
    (home / "genomad_db" / "broken").touch()
    done = call(*words_of(home))
    assert (done.code, "Traceback / FileNotFoundError: version.txt" in done.err) == (2, True)
    assert (set(column(home, "taxonomy")), len(set(column(home, "checkv_quality")))) == ({"NA"}, 2)
    assert call(*words_of(home)[:4], "-f").code == 64
    check_nothing_left(home)
    (home / "bin" / "checkv").write_text(f"#!{sys.executable}\n")  # as CheckV: exit 0, and nothing
    assert call(*words_of(home)[:2], *words_of(home)[4:]).code == 64
    (home / "bin" / "checkv").write_text("#!/no/such/python\n")
    assert call(*words_of(home)[:2], *words_of(home)[4:]).code == 64


def test_files_that_do_not_fit_are_refused(call: Calling, home: Path) -> None:
    fasta, table = home / "a b" / "s;t_virus.fna", home / "a b" / "s;t_virus_described.tsv"
    whole = fasta.read_bytes()
    for wrong in (whole + b">x\xc2\xa0y\nA\n", whole.replace(b"host", b"hose"), b"\xff", None):
        fasta.write_bytes(wrong) if wrong else fasta.unlink()
        assert call(*words_of(home)).code == 65
    fasta.write_bytes(whole)
    table.write_text("mine")
    assert (call(*words_of(home)).code, table.read_text(), called(home)) == (64, "mine", [])
    assert call(*words_of(home), "-f").code == 0
    assert [p.read_text() for p in (home / "a b/.checkpoints").rglob(table.name)] == ["mine"]
    write_run(home / "none", [Shown("n", "nonvirus", [0.1])])
    assert call("describe", home / "none").code == 0
    write_run(home / "pairs", [Shown("p", "virus", [0.9])], input={"path": "-", "mates": {}})
    assert call("describe", home / "pairs").code == 64


def test_an_interrupted_command_ends_the_program(start: Callable, home: Path) -> None:
    (home / "genomad_db" / "slow").touch()
    command = start("virnucpro", *words_of(home), "-l", home / "log")
    while not (home / "log").exists() or "genomad: slow" not in (home / "log").read_text():
        assert command.poll() is None
        time.sleep(0.05)
    pid = int((home / "log").read_text().split("genomad: slow ")[1].split()[0])
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 143
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    check_nothing_left(home)
