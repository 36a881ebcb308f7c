"""Build the documentation site with Zensical (https://zensical.org).

    pip install --editable . zensical
    python tools/build_site.py DIR

The pages are those of ``docs`` and the Markdown files beside it; ``commands.md`` is written from the
commands themselves. DIR gets ``pages`` (what the site is made of) and ``site`` (open ``index.html``).
A broken link ends the build with an error. Zensical is the successor of Material for MkDocs by the
same authors, whose end of life is announced for May 2027, and reads its configuration.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from virnucpro.cli.app import app

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?://)(?:\.\./|docs/)?([^)#]*)(#[^)]*)?\)")
WIDTH = 100  # of a help text, in characters


def write_pages(folder: Path) -> None:
    """Write all pages of the site into ``folder``, with links that lead to each other."""
    shutil.copytree(ROOT / "docs", folder)
    (folder / "description.md").unlink()  # of the package index
    (folder / "mkdocs.yml").unlink()
    for path in ROOT.glob("*.md"):
        name = "index.md" if path.name == "README.md" else path.name
        shutil.copyfile(path, folder / name)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    for page in folder.glob("*.md"):
        text = LINK.sub(_link, page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")


def _link(match: re.Match[str]) -> str:
    target = "index.md" if match[1] == "README.md" else match[1]
    return f"]({target}{match[2] or ''})"


def commands_page() -> str:
    """Return the reference of all commands: the help text of each."""
    parts = [
        "# Commands",
        "Every command prints its text with `--help`. This page has all of them.",
    ]
    for path, context in commands(app, click.Context(app, info_name="virnucpro")):
        help_text = context.command.get_help(context)
        parts.append(f"## {path}\n\n```text\n{help_text}\n```")
    return "\n\n".join(parts) + "\n"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """Yield the path of each command with a context for its help text."""
    context.terminal_width = WIDTH
    yield context.command_path, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


def build(folder: Path) -> int:
    """Write the pages and build the site; return the exit code of Zensical."""
    if importlib.util.find_spec("zensical") is None:
        sys.exit("the site is built by Zensical, which is missing: pip install zensical")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "pages", ignore_errors=True)
    write_pages(folder / "pages")
    shutil.copyfile(ROOT / "docs" / "mkdocs.yml", folder / "mkdocs.yml")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("folder", type=Path)
    sys.exit(build(parser.parse_args().folder))
