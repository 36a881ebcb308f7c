"""What the commands share: options, settings, messages, and the screen of their work."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import click
import msgspec
from msgspec import Meta

from virnucpro.configuration import Configuration, load_configuration
from virnucpro.errors import RunInterruptedError, UsageError
from virnucpro.formatting import printable
from virnucpro.settings import MOST, SETTINGS

if TYPE_CHECKING:
    from virnucpro.executors.signals import Interruption
    from virnucpro.ui.terminal import ProgressScreen

F = TypeVar("F", bound=Callable[..., Any])


class NamedPath(click.Path):
    """A path that is not empty: pathlib takes that for the current folder."""

    def __init__(self, shown: str, **kwargs: Any) -> None:
        """``shown`` is what stands for a value in help texts."""
        super().__init__(**kwargs)
        self.shown = shown

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what stands for a value in help texts."""
        return self.shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("it is empty: is a variable of your script not set?", param, ctx)
        return super().convert(value, param, ctx)


class NumberType(click.ParamType[Any]):
    """The values that an annotation accepts; help texts show them as N or X, without its limits."""

    name = "number"

    def __init__(self, declared: Any) -> None:
        self.declared, self.kind = declared, get_args(declared)[0]

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what stands for a value in help texts."""
        return "N" if self.kind is int else "X"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return msgspec.convert(self.kind(value), self.declared)
        except ValueError as error:
            self.fail(f"{value!r} is not accepted: {error}", param, ctx)


CountOrZero = Annotated[int, Meta(ge=0, le=MOST)]
FILE = NamedPath("FILE", path_type=Path)
INPUT = NamedPath("FILE", path_type=str, readable=False)  # a file or -
FOLDER = NamedPath("DIR", path_type=Path)


class ListType(click.ParamType[Any]):
    """Values of one type, separated by commas, each once."""

    name = "list"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values as a tuple."""
        words = separated(value) or [value]
        return tuple(self.kind.convert(word, param, ctx) for word in words)


EXIT_CODES = (
    "Exit codes: 0 finished, now or before; 2 finished, but some of the work failed; 3 the "
    "existing results were made with other settings or data; 4 GPU missing or lost; 5 the output "
    "is in use by another process; 6 disk full or not writable; 64 wrong usage, configuration or "
    "model file, or no network; 65 wrong or damaged input data; 130 or 143 interrupted (the same "
    "command continues)."
)


def command_line() -> tuple[str, ...]:
    """Return the command as the records of results keep it: without the folder of the program."""
    return ("virnucpro", *sys.argv[1:])


class Command(click.Command):
    """A command whose docstring ends with its examples, which help texts show behind the options.

    ``sections`` maps headings to the long names of the options below them.
    """

    def __init__(
        self, name: str, *, sections: Mapping[str, Sequence[str]] = {}, **more: Any
    ) -> None:
        super().__init__(name, **more)
        self.help, title, examples = inspect.cleandoc(more["help"]).partition("\nExample")
        self.epilog = f"\b\n{title[1:]}{examples}\n\n{EXIT_CODES}"
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section."""
        if not self.sections:
            super().format_options(ctx, formatter)
        options = {max(option.opts, key=len): option for option in self.get_params(ctx)}
        for heading, names in self.sections.items():
            with formatter.section(heading):
                rows = [options[name].get_help_record(ctx) for name in names]
                formatter.write_dl([row for row in rows if row])


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


command = functools.partial(click.command, cls=Command)


def grouped(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, which help texts show in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep a value in the context of click, where the later one replaces the earlier."""
    values = context.ensure_object(dict)
    if value:
        values[option.name] = value
    if values.get("verbose") and values.get("quiet"):
        raise UsageError("--quiet and --verbose contradict each other: leave one out")


_kept_option = functools.partial(click.option, expose_value=False, callback=_keep)
# Every command has these options, and they may also stand before its name.
short_options = grouped(
    _kept_option("-v", "--verbose", is_flag=True, help="Show more details."),
    _kept_option("-q", "--quiet", is_flag=True, help="Show only warnings and errors."),
    _kept_option("-c", "--config", type=FILE, help="Read settings from this YAML file."),
)
# Commands that work for a while write a log, too.
global_options = grouped(
    short_options,
    _kept_option("-l", "--log-file", type=FILE, help="Write a log to this file."),
)


def option(words: str, kind: Any, text: str, **more: Any) -> Callable[[F], F]:
    """Return an option of a command.

    Args:
        words: its names, then where needed the word for its value in help texts, such as FILE, and
            the name of its parameter.
        kind: bool for a flag, a tuple of the accepted words, an annotation of numbers with limits,
            or a type of click.
        text: a sentence for people.
        more: arguments of ``click.option``, such as ``default``.
    """
    names = [word for word in words.split() if word[0] == "-" or not word.isupper()]
    shown = [word for word in words.split() if word not in names]
    if shown:
        more["metavar"] = shown[0]
    if kind is bool:
        more["is_flag"] = True
    elif get_origin(kind) is Annotated:
        more["type"] = NumberType(kind)
    else:
        more["type"] = click.Choice(kind) if isinstance(kind, tuple) else kind
    return click.option(*names, help=text, **more)


def setting_option(name: str) -> Callable[[F], F]:
    """Return the option that fills a setting, as the setting declares it."""
    declared = SETTINGS[name]
    default = declared.unset or declared.default
    text = declared.description + (f"  [default: {default}]" if default else "")
    more = {"metavar": f"[{'|'.join(declared.shown_choices)}]"} if declared.choices else {}
    kind = declared.choices or declared.type
    return option(f"{declared.options} {declared.name}", kind, text, default=None, **more)


def resume_or_force(context: click.Context, option: click.Parameter, value: bool) -> bool:
    """Refuse both options together: whoever gives them expects one of two contrary things."""
    other = "force" if option.name == "resume" else "resume"
    if value and context.params.get(other):
        raise UsageError(
            "--resume continues what is there, --force moves it aside and starts over: give only "
            "one of them"
        )
    return value


threads_option = setting_option("threads")
seed_option = option("--seed", CountOrZero, "Seed of all random choices.", default=0)
resume_option = option(
    "--resume",
    bool,
    "Continue unfinished work of the same command, and try again what failed.",
    callback=resume_or_force,
)
force_option = option(
    "-f --force",
    bool,
    "Start over; existing results are moved aside.",
    callback=resume_or_force,
)
no_progress_option = option(
    "--no-progress", bool, "Print a plain line every 10 seconds instead of drawing the progress."
)
json_option = option("--json as_json", bool, "Print JSON, for programs.")
precision_option = setting_option("precision")
device_options = grouped(setting_option("device"), setting_option("gpus"))
encoder_options = grouped(
    device_options,
    setting_option("cpu_workers"),
    setting_option("compile"),
    precision_option,
    setting_option("protein_batch"),
    setting_option("nucleotide_batch"),
    setting_option("tokenizer_threads"),
    threads_option,
)
cut_options = grouped(*map(setting_option, ("min_score", "max_fdr", "min_length")))
predict_options = grouped(*(setting_option(n) for n, s in SETTINGS.items() if s.options))


def shown_path(path: Path) -> Path:
    """Return a path relative to the current folder, where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def separated(text: str) -> list[str]:
    """Return the words of a list such as ``train,validation``, each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _shared_values() -> dict[str, Any]:
    values: dict[str, Any] = click.get_current_context().ensure_object(dict)
    return values


def quiet() -> bool:
    """Return whether ``--quiet`` was given."""
    return bool(_shared_values().get("quiet"))


def say(text: str) -> None:
    """Print a line on standard error, unless ``--quiet`` was given."""
    if not quiet():
        click.echo(printable(text), err=True)


def tell(settings: Configuration, *lines: str) -> None:
    """Print the lines of a result on standard output, unless only warnings are to be shown."""
    if settings.display.quiet:
        return
    try:
        click.echo("\n".join(lines))
    except BrokenPipeError:  # nobody reads it any more; the work counts all the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_at_start(text: str) -> None:
    """Say on a terminal what begins, for the seconds in which large packages are imported."""
    if sys.stderr is not None and sys.stderr.isatty():
        say(f"{text} ...")


def configuration_file() -> Path | None:
    """Return the file that ``--config`` names."""
    return _shared_values().get("config")


def configuration(
    options: Mapping[str, Any] | None = None, *, read_file: bool = True
) -> Configuration:
    """Return all settings: defaults, configuration file, and the options of a command on top.

    Options that fill no setting are left to the command. A command whose configuration file has
    keys of its own reads it itself: ``read_file`` is False then.

    Raises:
        ConfigError: the configuration file is missing or wrong (exit 64).
        UsageError: a value is out of its range (exit 64).
    """
    shared = _shared_values()
    path = configuration_file() if read_file else None
    values = {name: value for name, value in (options or {}).items() if value is not None}
    if shared.get("log_file"):
        values["log_file"] = shared["log_file"]
    if shared.get("verbose") or shared.get("quiet"):
        values["level"] = "DEBUG" if shared.get("verbose") else "WARNING"
    return (load_configuration(path) if path else Configuration()).with_values(values)


@contextmanager
def shown_on(
    screen: ProgressScreen, warnings: Iterable[str] = (), *, advice: str = ""
) -> Iterator[Interruption]:
    """Show the work of the block on ``screen``, and end it cleanly at the first signal.

    ``warnings`` are those of the configuration file; ``advice`` tells what to do after a signal.
    """
    from virnucpro.executors.signals import interruptible

    try:
        with interruptible() as interruption, screen:
            for warning in warnings:
                screen.warn(warning)
            yield interruption
    except RunInterruptedError as stop:
        if not advice:
            raise
        raise RunInterruptedError(stop.signal_number, advice) from stop


def save_output(path: Path, content: bytes, *, force: bool, option: str) -> None:
    """Write a file that ``option`` names, unless the same one is there.

    Raises:
        UsageError: another file of that name is there, and not ``force`` (exit 64).
        OutputError: it cannot be written, or the other file not be moved aside (exit 6).
    """
    from virnucpro.layout import checkpoint_folder, existing_paths
    from virnucpro.store.disk import Disk, is_own_file
    from virnucpro.store.work import ExistingWork, WorkIdentity, check_work

    if is_own_file(path) and path.read_bytes() == content:
        return
    previous = checkpoint_folder(path.parent) / f"{path.name}.previous"
    foreign = existing_paths(path)
    existing = ExistingWork(path.parent, previous, foreign_files=foreign, option=option)
    disk = Disk()
    check_work(WorkIdentity("the file", {}), existing, disk, force=force)
    disk.save(path, content, durable=False)
