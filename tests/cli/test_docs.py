"""Commands in the documentation: each is one that the program would accept."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from benchmarks import expected_rates
from tests.test_architecture import ORDER
from virnucpro.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def _documented() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                if line.strip().startswith("virnucpro "):
                    found.append((page.name, line.strip()))
    return found


@pytest.mark.parametrize(("page", "line"), _documented())
def test_documented_commands_are_accepted(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = app
    context = click.Context(app, info_name="virnucpro")
    while isinstance(command, click.Group):
        name = next(word for word in words if not word.startswith("-"))
        found = command.get_command(context, name)
        assert found is not None, f"{page}: {line}"
        words.remove(name)
        command = found
    command.make_context(command.name, words, parent=context)


def test_the_expected_rates_are_those_that_the_command_prints(capsys) -> None:
    expected_rates.main()
    table = capsys.readouterr().out
    assert len(table.splitlines()) > 3
    assert table in (ROOT / "GPU_OPTIMIZATION.md").read_text()


def test_documented_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_house_is_described_from_the_bottom_to_the_top() -> None:
    page = (ROOT / "docs/developing.md").read_text()
    table = page[page.index("## The house") : page.index("## The way of one record")]
    places = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", table, re.MULTILINE)
    assert tuple(places) == ORDER


def test_tests_and_modules_that_the_developer_page_names_exist() -> None:
    page = (ROOT / "docs/developing.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    text = (ROOT / "tests/test_additions.py").read_text()
    assert len(named) >= 4
    assert all(f"def {name}(" in text for name in named)
    for path in re.findall(r"`(\w+/[\w/]+\.py)`", page):
        assert (ROOT / path).exists() or (ROOT / "virnucpro" / path).exists(), path


def test_every_option_of_predict_is_documented() -> None:
    usage = (ROOT / "docs/usage.md").read_text()
    predict = app.get_command(click.Context(app), "predict")
    assert predict is not None
    for parameter in predict.params:
        for name in parameter.opts:
            if name.startswith("--") and name not in ("--help", "--parallel"):
                short = [o for o in parameter.opts if not o.startswith("--")]
                assert name in usage or any(o in usage for o in short), name
