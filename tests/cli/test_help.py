"""What commands say about themselves: each option in a sentence, each command with an example."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from virnucpro.cli.app import app


def _commands(
    command: click.Command, path: str = "virnucpro"
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, f"{path} {name}")


COMMANDS = dict(_commands(app))
OPTIONS = {
    f"{path} {parameter.opts[0]}": parameter.help
    for path, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_is_explained(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert command.get_short_help_str(limit=200).endswith(".")
    assert "..." not in command.get_short_help_str(limit=57), "cut off in the list of commands"
    if len(path.split()) > 1 and not isinstance(command, click.Group):
        assert "Example" in (command.epilog or "")
        assert f"{path} " in f"{command.epilog} ", "no example"
    options = {name: text for name, text in OPTIONS.items() if name.startswith(f"{path} -")}
    for name, text in options.items():
        assert text, name
        assert text.endswith((".", "]")), name
        assert text[0].isupper() or not text[0].isalpha(), name
