"""``virnucpro describe``, with stand-ins that read and write what geNomad and CheckV do."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest

from tests.declared import cells_of
from tests.report_data import Shown, write_run
from virnucpro.results import open_run
from virnucpro.tables import DESCRIBED, REGIONS, VIRUS

LINEAGE = "Viruses;Duplodnaviria;Heunggongvirae;Uroviricota;Caudo&viricetes;;"
START = f"""#!{sys.executable}
import os, pathlib, sys, time
with open(os.environ["CALLED"], "a") as called:
    print(pathlib.Path(sys.argv[0]).name, file=called)
def row(*cells):
    print(*cells, sep="\\t", file=out)
def ids(path):
    found = [line[1:].split()[0] for line in open(path) if line[0] == ">"]
    assert len(set(found)) == len(found) and not set('"|') & set("".join(found))
    return found
"""
# Of the sequences, geNomad lists those with a gene that it knows.
GENOMAD = f"""{START}
annotate, threads, n, fasta, folder, database = sys.argv[1:]
assert (annotate, threads, int(n)) == ("annotate", "--threads", 2)
if os.path.exists(database + "/broken"):
    sys.exit("[12:00:01] Error: no version\\nTraceback\\nFileNotFoundError: version.txt")
if os.path.exists(database + "/slow"):
    print("slow", os.getpid(), flush=True)
    time.sleep(600)
stem = pathlib.Path(fasta).stem
os.makedirs(f"{{folder}}/{{stem}}_annotate")
with open(f"{{folder}}/{{stem}}_annotate/{{stem}}_taxonomy.tsv", "w") as out:
    row("seq_name", "n_genes_with_taxonomy", "agreement", "taxid", "lineage")
    for id in ids(fasta)[:2]:
        row(id, 3, "0.8333", 2561, "{LINEAGE}")
"""
HEAD = """contig_id contig_length provirus proviral_length gene_count viral_genes host_genes
checkv_quality miuvig_quality completeness completeness_method contamination kmer_freq warnings"""
CHECKV = f"""{START}
end_to_end, t, n, d, database, fasta, folder = sys.argv[1:]
assert (end_to_end, t, int(n), d) == ("end_to_end", "-t", 2, "-d")
os.mkdir(folder)
known = ["Complete", "High-quality", 100.0, "DTR (high-confidence)", 1.5]
unknown = ["Not-determined", "Genome-fragment", "NA", "NA", 0.0]
with open(folder + "/quality_summary.tsv", "w") as out:
    row(*{HEAD.split()})
    for number, id in enumerate(ids(fasta)):
        row(id, 9, "No", "NA", 5, 4, 0, *(unknown if number else known), 1.0, "")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run of odd names in ``a b``, both programs, and a database of each."""
    records = [
        Shown('gi|1|"a"', "virus", [0.9, 0.8, 0.7], 0.01, [(0, 1)]),
        Shown("x\u00a0y", "virus", [0.9, 0.9], 0.02),
        Shown("host", "nonvirus", [0.1, 0.9, 0.1], 0.6, [(1, 1)]),
    ]
    write_run(tmp_path / "a b", records, "s;t")
    names = ['gi|1|"a" [topology=circular]', "x\u00a0y text", "host|region_501_1000 text"]
    fasta = "".join(f">{name}\nACGT\nAC\n" for name in names)
    (tmp_path / "a b" / "s;t_virus.fna").write_text(fasta, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, text in (("genomad", GENOMAD), ("checkv", CHECKV)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
        (tmp_path / f"{name}_db").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    return tmp_path


def words_of(home: Path, *names: str) -> list[object]:
    databases = [f"--{name}-db={home / name}_db" for name in names or ("genomad", "checkv")]
    return ["describe", home / "a b", "-t", 2, *databases]


def column(home: Path, name: str) -> list[str]:
    table = home / "a b" / "s;t_virus_described.tsv"
    return [cells[name] for cells in cells_of(DESCRIBED, table)]


def test_the_table_joins_what_both_say(call: Callable, home: Path) -> None:
    report, table = (home / "a b" / f"s;t_{name}" for name in ("report.html", "virus.tsv"))
    assert call("report", home / "a b").code == 0
    before = report.read_text()
    assert call(*words_of(home)).code == 0
    described = home / "a b" / "s;t_virus_described.tsv"
    columns = VIRUS.row._fields
    rows = list(DESCRIBED.read(described, *columns))
    assert rows[:2] == list(VIRUS.read(table, *columns))
    assert column(home, "record")[2:] == ["host|region_501_1000"]
    assert column(home, "taxonomy") == [LINEAGE, LINEAGE, "Unclassified"]
    assert column(home, "taxonomy_agreement") == ["0.8333", "0.8333", "NA"]
    assert column(home, "completeness") == ["100.00", "NA", "NA"]
    assert column(home, "completeness_method") == ["DTR (high-confidence)", "NA", "NA"]
    assert column(home, "checkv_quality") == ["Complete", "Not-determined", "Not-determined"]
    assert column(home, "contamination") == ["1.50", "0.00", "0.00"]
    cells = f'<td title="{escape(LINEAGE)}">Caudo&amp;viricetes</td><td class="n">100.0</td></tr>'
    assert (before.count(cells), report.read_text().count(cells)) == (0, 1)
    content = described.read_bytes()
    described.unlink()
    assert (call("report", home / "a b").code, report.read_text()) == (0, before)
    described.write_bytes(content)
    whole, score = table.read_text(), rows[0][columns.index("score")]
    # A second command runs nothing, but where a score is another one.
    for new, calls, more in ((score, 2, ()), ("0.1", 4, ()), (score, 6, ()), (score, 8, ["-f"])):
        table.write_text(whole.replace(score, new, 1))
        assert call(*words_of(home), *more).code == 0
        assert len((home / "called").read_text().split()) == calls
    assert described.read_bytes() == content
    described.write_bytes(content.rpartition(b"host")[0])  # as where a region is new
    assert "1 viral record" in open_run(home / "a b").undescribed()
    table.write_text(VIRUS.header + "\t".join(rows[0]) + "\n")  # as after another threshold
    described.with_name("s;t_regions.tsv").write_text(REGIONS.header)
    assert "no longer viral: 1" in open_run(home / "a b").undescribed()
    assert (call(*words_of(home)).code, len(column(home, "taxonomy"))) == (0, 1)


def test_what_is_not_installed_or_not_given_is_left_out(call: Callable, home: Path) -> None:
    one = call(*words_of(home, "genomad"))
    assert (one.code, set(column(home, "checkv_quality"))) == (0, {"NA"})
    assert open_run(home / "a b").undescribed() == ""
    line = next(line for line in one.out.splitlines() if "end_to_end" in line)
    paths = [str(home / "a b" / name) for name in ("s;t_virus.fna", "checkv")]
    assert shlex.split(line)[4:] == ["-d", "CHECKV_DATABASE", *paths]
    (home / "bin" / "genomad").unlink()
    assert call(*words_of(home)).code == 0, "geNomad has run before"
    assert (home / "called").read_text().split() == ["genomad", "checkv"]
    assert set(column(home, "taxonomy")) == {LINEAGE, "Unclassified"}
    assert (call(*words_of(home), "-f").code, set(column(home, "taxonomy"))) == (2, {"NA"})
    (home / "bin" / "checkv").unlink()
    none = call(*words_of(home), "-f")
    printed = [none.out.count(name) for name in ("genomad annotate", "checkv end_to_end")]
    assert (none.code, printed) == (64, [1, 1])
    assert call(*words_of(home, "checkv")).code == 0, "CheckV has run before"


def test_a_program_that_fails_stops_no_other(call: Callable, home: Path) -> None:
    (home / "genomad_db" / "broken").touch()
    done = call(*words_of(home))
    assert (done.code, "Traceback / FileNotFoundError: version.txt" in done.err) == (2, True)
    assert (set(column(home, "taxonomy")), len(set(column(home, "checkv_quality")))) == ({"NA"}, 2)
    assert not list((home / "a b").rglob("describe")), "the working folder is removed"
    for text in (f"#!{sys.executable}\n", "#!/no/such/python\n"):  # the first writes nothing
        (home / "bin" / "checkv").write_text(text)
        assert call(*words_of(home, "checkv"), "-f").code == 64


@pytest.mark.parametrize("value", ["nan", "-5", "1.01", "many"])
def test_a_share_that_is_none_is_refused(call: Callable, home: Path, value: str) -> None:
    for name, number in (("genomad", '"0.8333"'), ("checkv", "100.0")):
        program = home / "bin" / name
        wrong = value.replace("1.01", "101") if name == "checkv" else value
        program.write_text(program.read_text().replace(number, f'"{wrong}"'))
        assert call(*words_of(home, name)).code == 64
    assert not (home / "a b" / "s;t_virus_described.tsv").exists()


def test_files_that_do_not_fit_are_refused(call: Callable, home: Path) -> None:
    fasta, table = home / "a b" / "s;t_virus.fna", home / "a b" / "s;t_virus_described.tsv"
    whole = fasta.read_bytes()
    for wrong in (whole + b">x\xc2\xa0y\nA\n", whole.replace(b"host", b"hose"), b"\xff", None):
        fasta.write_bytes(wrong) if wrong else fasta.unlink()
        assert call(*words_of(home)).code == 65
    fasta.write_bytes(whole)
    table.write_text("mine")
    assert call(*words_of(home)).code == 0
    assert table.with_name(f"{table.name}.yours").read_text() == "mine"
    write_run(home / "none", [Shown("n", "nonvirus", [0.1])])
    write_run(home / "pairs", [Shown("p", "virus", [0.9])], input={"path": "-", "mates": {}})
    assert [call("describe", home / name).code for name in ("none", "pairs")] == [0, 64]


def test_an_interrupted_command_ends_the_program(start: Callable, home: Path) -> None:
    (home / "genomad_db" / "slow").touch()
    command, log = start("virnucpro", *words_of(home), "-l", home / "log"), home / "log"
    while not (log.exists() and "genomad: slow" in log.read_text()):
        assert command.poll() is None
        time.sleep(0.05)
    pid = int(log.read_text().split("genomad: slow ")[1].split()[0])
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 143
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not list((home / "a b").rglob("describe"))
