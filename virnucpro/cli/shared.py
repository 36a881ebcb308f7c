"""What the commands share: options, settings, messages, and the screen of their work."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import click
import msgspec
from msgspec import Meta

from virnucpro.configuration import Configuration, load_configuration
from virnucpro.errors import OutputError, UsageError
from virnucpro.formatting import printable
from virnucpro.settings import MOST, SETTINGS, offered

if TYPE_CHECKING:
    from virnucpro.ui.terminal import Screen

CountOrZero = Annotated[int, Meta(ge=0, le=MOST)]
# Options that contradict each other: whoever gives both expects one of two contrary things.
CONTRARY = (("resume", "force"), ("verbose", "quiet"))
EXIT_CODES = (
    "Exit codes: 0 finished, now or before; 2 finished, but some of the work failed; 3 the "
    "existing results were made with other settings or data; 4 GPU missing or lost; 5 the output "
    "is in use by another process; 6 disk full or not writable; 64 wrong usage, configuration or "
    "model file, or no network; 65 wrong or damaged input data; 130 or 143 interrupted (the same "
    "command continues)."
)


class NamedPath(click.Path):
    """A path that is not empty: pathlib takes that for the current folder."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        """``name`` stands for a value in help texts, in capitals."""
        super().__init__(**kwargs)
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("it is empty: is a variable of your script not set?", param, ctx)
        return super().convert(value, param, ctx)


def number_of(declared: Any) -> Callable[[Any], Any]:
    """Return what makes a number of a word, one that an annotation with limits accepts."""
    kind, limits = get_args(declared)

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(kind(value), declared)
        except ValueError:
            accepted = "whole number" if kind is int else "number"
            for words, name in (("of at least", "ge"), ("above", "gt"), ("and at most", "le")):
                limit = getattr(limits, name)
                accepted += f" {words} {limit:,}" if limit not in (None, MOST) else ""
            text = f"{value!r} is not accepted: give a {accepted}"
            raise click.BadParameter(text) from None

    return convert


def numbers_of(declared: Any) -> Callable[[str], Any]:
    """Return what makes a tuple of numbers that are separated by commas, each once."""
    number = number_of(declared)

    def convert(value: str) -> Any:
        words = dict.fromkeys(word.strip() for word in value.split(",") if word.strip())
        return tuple(map(number, words or [value]))

    return convert


FILE = NamedPath("file", path_type=Path)
INPUT = NamedPath("file", path_type=str, readable=False)  # a file or -
FOLDER = NamedPath("dir", path_type=Path)


def option(words: str, kind: Any, text: str, **more: Any) -> click.Option:
    """Return an option of a command.

    Args:
        words: its names, then where needed the word for its value in help texts, such as FILE, and
            the name of its parameter.
        kind: bool for a flag, a tuple of the accepted words, an annotation of numbers with limits,
            or a type of click.
        text: a sentence for people.
        more: arguments of ``click.Option``, such as ``default``.
    """
    names = [word for word in words.split() if word[0] == "-" or not word.isupper()]
    shown = [word for word in words.split() if word not in names]
    if shown:
        more["metavar"] = shown[0]
    if isinstance(kind, tuple):  # texts for people leave out what is for tests
        more["metavar"], kind = f"[{'|'.join(offered(kind))}]", click.Choice(kind)
    if kind is bool:
        more["is_flag"] = True
    elif get_origin(kind) is Annotated:
        more["type"] = number_of(kind)
        more.setdefault("metavar", "N" if get_args(kind)[0] is int else "X")
    else:
        more["type"] = kind
    return click.Option(names, help=text, **more)


def _setting_option(name: str) -> click.Option:
    """Return the option that fills a setting, as the setting declares it."""
    declared = SETTINGS[name]
    default = declared.unset or ("true" if declared.default is True else declared.default)
    text = declared.description + (f"  [default: {default}]" if default else "")
    kind = declared.choices or declared.type
    return option(f"{declared.options} {declared.name}", kind, text, default=None)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep a value in the context of click, where the later one replaces the earlier."""
    values = context.ensure_object(dict)
    if value:
        values[option.name] = value


KEPT: dict[str, Any] = {"expose_value": False, "callback": _keep}
# Every command has these options, and they may also stand before its name.
GLOBAL_OPTIONS = (
    option("-v --verbose", bool, "Show more details.", **KEPT),
    option("-q --quiet", bool, "Show only warnings and errors.", **KEPT),
    option("-c --config", FILE, "Read settings from this YAML file.", **KEPT),
    option("-l --log-file", FILE, "Write a log of the work to this file.", **KEPT),
)
COMMON = {
    "seed": option("--seed", CountOrZero, "Seed of all random choices.", default=0),
    "resume": option("--resume", bool, "Without effect: every work continues.", hidden=True),
    "force": option("-f --force", bool, "Start over; the earlier results are removed."),
    "replace": option("-f --force", bool, "Replace a file that is there."),
    "no_progress": option("--no-progress", bool, "Print a line every 10 seconds instead."),
    "json": option("--json as_json", bool, "Print JSON, for programs."),
}
THRESHOLDS = "min_score max_fdr min_length genes"
PREDICT = " ".join(name for name, declared in SETTINGS.items() if declared.options)


class Command(click.Command):
    """A command whose docstring ends with its examples; help texts show them behind the options."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, **more)
        self.help, title, examples = inspect.cleandoc(more["help"] or "").partition("\nExample")
        self.epilog = f"\b\n{title[1:]}{examples}\n\n{EXIT_CODES}"

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out the command, unless its options contradict each other.

        Raises:
            UsageError: they do, or the current folder was deleted (exit 64).
        """
        try:
            Path.cwd()
        except OSError:
            text = "the current folder is gone: change to one that is there, then try again"
            raise UsageError(text) from None
        given = {**ctx.params, **ctx.ensure_object(dict)}
        for one, other in CONTRARY:
            if given.get(one) and given.get(other):
                raise UsageError(f"--{one} and --{other} contradict each other: leave one out")
        return super().invoke(ctx)


class Group(click.Group):
    """Commands in the order of the help text, of some of which only the modules are known.

    Their ``modules`` are of this folder, and imported when they are called: ``--version`` and a
    mistyped command are answered at once.
    """

    def __init__(self, name: str, modules: Mapping[str, str] = {}, **more: Any) -> None:
        super().__init__(name, params=[*GLOBAL_OPTIONS], **more)
        self.modules = modules
        self.commands.update((name, click.Command(name)) for name in modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if need be; None if there is no such command."""
        if cmd_name not in self.modules:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"virnucpro.cli.{self.modules[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


def command(
    *params: click.Parameter, common: str = "", **more: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command with its own options, and those that ``common`` names.

    The names are those of ``COMMON`` and of settings, separated by blanks.
    """
    shared = [COMMON.get(name) or _setting_option(name) for name in common.split()]
    return click.command(cls=Command, params=[*params, *shared, *GLOBAL_OPTIONS], **more)


def command_line() -> tuple[str, ...]:
    """Return the command as the records of results keep it: without the folder of the program."""
    return ("virnucpro", *sys.argv[1:])


def shown_path(path: Path) -> Path:
    """Return a path relative to the current folder, where it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def say(text: str) -> None:
    """Print a line on standard error, unless only warnings are to be shown."""
    if not click.get_current_context().obj.get("quiet"):
        click.echo(printable(text), err=True)


def tell(*lines: str, always: bool = False) -> None:
    """Print the lines of a result on standard output, unless only warnings are to be shown.

    What somebody asked for is printed ``always``.
    """
    if click.get_current_context().obj.get("quiet") and not always:
        return
    try:
        click.echo(printable("\n".join(lines)))
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # where nobody reads it, the work still counts
            raise OutputError(f"cannot write standard output: {error.strerror}") from error


def configuration(
    options: Mapping[str, Any] | None = None, *, read_file: bool = True
) -> Configuration:
    """Return all settings: defaults, configuration file, and the options of a command on top.

    Options that fill no setting are left to the command. A command whose configuration file has
    keys of its own reads it itself: ``read_file`` is False then.

    Raises:
        UsageError: the configuration file is missing or wrong, or a value out of range (exit 64).
    """
    shared: dict[str, Any] = click.get_current_context().obj
    path = shared.get("config") if read_file else None
    values = {name: value for name, value in (options or {}).items() if value is not None}
    if shared.get("log_file"):
        values["log_file"] = shared["log_file"]
    if shared.get("verbose") or shared.get("quiet"):
        values["level"] = "DEBUG" if shared.get("verbose") else "WARNING"
    settings = (load_configuration(path) if path else Configuration()).with_values(values)
    shared["quiet"] = settings.display.quiet
    return settings


def screen(
    settings: Configuration, warnings: Iterable[str] = (), log: Path | None = None
) -> AbstractContextManager[Screen]:
    """Show in the block what a command does; ``log`` is the log file of a run, if it is one."""
    from virnucpro.ui.terminal import Screen

    return Screen(settings.display, log).shown((*settings.warnings, *warnings))


def save_output(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file, unless the same one is there.

    Raises:
        UsageError: there is another one, and ``force`` does not replace it.
        OutputError: it cannot be written.
    """
    from virnucpro.store.disk import Disk
    from virnucpro.store.work import refuse_existing

    if not (path.is_file() and path.read_bytes() == content):
        if not force:
            refuse_existing([path])
        Disk().save(path, content, durable=False)
