"""Commands in the documentation: each is one that the program would accept."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.inputs import table
from tests.faults.processes import until
from tests.report_data import Shown, write_run
from virnucpro import errors
from virnucpro.cli import app
from virnucpro.layout import Layout
from virnucpro.store.lock import holder

ROOT = Path(__file__).parents[2]
USAGE = (ROOT / "docs/usage.md").read_text()
RCL = (ROOT / "docs/rcl.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def _documented() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"```sh\n(.*?)```", page.read_text().replace("\\\n", " "), re.DOTALL)
        lines = re.findall(r"^ *(?:exec )?(virnucpro .*)", "\n".join(blocks), re.MULTILINE)
        found += [(page.name, line) for line in lines]
    # The commands of RCL-identifier, each in its form of today.
    for line in re.findall(r"^\|.*\| `(virnucpro rcl [^`]+)`", RCL, re.MULTILINE):
        found.append(("rcl.md", line.replace("--multi-gpu|", "")))
    return found


@pytest.mark.parametrize(("page", "line"), _documented())
def test_documented_commands_are_accepted(page, line):
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = app
    context = click.Context(app, info_name="virnucpro")
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(context, words)
    command.make_context(command.name, words, parent=context)


# Commands of the first two pages that need the network or minutes.
NOT_RUN = {
    *("pip install torch --index-url https://download.pytorch.org/whl/cpu", "pip install ."),
    "virnucpro models fetch 500",
}


def test_every_command_of_the_first_two_pages_is_run_or_listed(
    tmp_path, monkeypatch, call, example
):
    """``lite`` takes the place of the released models, which are not part of the package."""
    lines = []
    for page in ("README.md", "docs/first_sample.md"):
        blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        lines += [shlex.split(line, comments=True) for line in "".join(blocks).splitlines()]
    commands = dict.fromkeys(shlex.join(words) for words in lines)
    assert commands.keys() >= NOT_RUN
    shutil.copyfile(example, tmp_path / "contigs.fa")
    monkeypatch.chdir(tmp_path)
    for line in [line for line in commands if line not in NOT_RUN]:
        program, command, *arguments = shlex.split(line)
        assert program == "virnucpro", line
        if command == "predict" and "--model-type" not in arguments:
            arguments += ["--model-type", "lite"]
        assert call(command, *arguments).code == 0, line


def test_the_tables_of_genomad_and_checkv_are_joined(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(Path("results"), [Shown(id, "virus", [0.9]) for id in ("7", "NA")], "contigs")
    for path, text in {
        "genomad/contigs_virus_annotate/contigs_virus_taxonomy.tsv": "seq_name lineage\n7 Viruses;;\n",
        "checkv/quality_summary.tsv": "contig_id completeness\n7 97.0\nNA NA\nh|region_1_500 12.0\n",
    }.items():
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text(text.replace(" ", "\t"))
    section = USAGE.partition("## Taxonomy and completeness")[2]
    exec(section.partition("```python\n")[2].partition("```")[0], {})
    names, rows = (
        ("record", "length", "lineage", "completeness"),
        table(Path("contigs_described.tsv")),
    )
    assert [[row[name] for name in names] for row in rows] == [
        ["7", "500", "Viruses;;", "97.0"],
        ["NA", "500", "", "NA"],
        ["h|region_1_500", "", "", "12.0"],
    ]


def test_tests_and_modules_that_the_developer_page_names_exist():
    page = (ROOT / "docs/developing.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    text = (ROOT / "tests/test_additions.py").read_text()
    assert len(named) >= 3
    assert all(f"def {name}(" in text for name in named)
    for path in re.findall(r"`(\w+/[\w/]+\.py)`", page):
        assert (ROOT / path).exists() or (ROOT / "virnucpro" / path).exists(), path


def test_the_python_examples_run_one_after_the_other(tmp_path, monkeypatch, capsys, example):
    shutil.copyfile(example, tmp_path / "contigs.fa")
    (tmp_path / "proteins.fa").write_text(f">p\n{'ACDEFGHIKLMNPQRSTVWY' * 20}\n")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "6 {'nonvirus': 3, 'undecided': 1, 'virus': 2}" in printed
    assert "virus_NC_002362.1:1-6087_chunk_1 1 500" in printed
    assert "no_serpin" in printed


def test_the_batch_script_is_stopped_and_continued_as_described(tmp_path):
    """Slurm sends the signal of ``B:`` to the shell of the batch script, and to nothing else."""
    section = USAGE[USAGE.index("## Under Slurm") :]
    script = section[section.index("#!/bin/bash") : section.index("```\n\nTwo minutes")]
    program = tmp_path / "bin/virnucpro"
    program.parent.mkdir()
    code = "import sys; from virnucpro.__main__ import main; sys.argv[1:] += sys.stdin.read().split(); main()"
    options = "--model-type toy --device cpu"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' \"$@\" << E\n{options}\nE\n")
    program.chmod(0o755)
    lines = (f">r{n}\n{'GCT' * 160}\n" for n in range(2_000))
    (tmp_path / "contigs.fa").write_text("".join(lines))
    (tmp_path / "job.sh").write_text(script)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    codes, lock = [], Layout(tmp_path / "results", "contigs").lock
    for stop in (True, False):
        job = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment)
        if stop:
            # As soon as there is a run to stop: all of its stages are still to be computed.
            until(lambda: holder(lock) is not None)
            job.send_signal(signal.SIGUSR1)
        codes.append(job.wait(timeout=300))
        assert holder(lock) is None
    assert codes == [143, 0]
    assert (tmp_path / "results/contigs_contigs.tsv").exists()


def test_the_documented_exit_codes_are_those_of_the_errors():
    table = USAGE[USAGE.index("## Exit codes") : USAGE.index("## Under Slurm")]
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
             for code in row.split(",")]  # fmt: skip
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    known = {getattr(error, "exit_code", 1) for error in classes} | {errors.EXIT_PARTIAL, 130, 143}
    assert set(codes) == known
