"""What the commands share: options, settings, messages, and the screen of their work."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import click

from virnucpro.configuration import Configuration, load_configuration
from virnucpro.errors import RunInterruptedError, UsageError
from virnucpro.formatting import printable
from virnucpro.settings import MOST, PRESETS, SETTINGS, Bases, Count, Preset, Share

if TYPE_CHECKING:
    from virnucpro.executors.signals import Interruption
    from virnucpro.ui.terminal import ProgressScreen

RANGE = re.compile(r"\s*\[-?\d+<=x<=\d+\]$")  # as click writes it behind the text of an option
F = TypeVar("F", bound=Callable[..., Any])
Type = TypeVar("Type", bound="click.ParamType[Any]")


class NamedPath(click.Path):
    """A path that is not empty: pathlib takes that for the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("it is empty: is a variable of your script not set?", param, ctx)
        return super().convert(value, param, ctx)


def _shown_as(metavar: str, kind: Type) -> Type:
    """Return a type of option values that help texts show as ``metavar``."""
    kind.get_metavar = lambda param, ctx: metavar  # type: ignore[method-assign]
    return kind


def _within(declared: Any) -> click.ParamType[Any]:
    """Return the type of option values for an annotation of numbers with limits."""
    kind, limits = get_args(declared)
    if kind is int:
        return _shown_as("N", click.IntRange(limits.ge, limits.le))
    return _shown_as("X", click.FloatRange(limits.ge, limits.le))


COUNT = _within(Count)
BASES = _within(Bases)
SHARE = _within(Share)
COUNT_OR_ZERO = _shown_as("N", click.IntRange(0, MOST))
SECONDS = _shown_as("X", click.FloatRange(min=0))
FILE = _shown_as("FILE", NamedPath(path_type=Path))
INPUT = NamedPath(path_type=str, readable=False)  # a file, a pattern or -
FOLDER = _shown_as("DIR", NamedPath(path_type=Path))

EXIT_CODES = {
    0: "finished, now or before",
    2: "finished, but some of the work failed",
    3: "the existing results were made with other settings or data",
    4: "GPU missing or lost",
    5: "the output is in use by another process",
    6: "disk full or not writable",
    64: "wrong usage, configuration or model file, or no network",
    65: "wrong or damaged input data",
    130: "or 143 interrupted (the same command continues)",
}


def command_line() -> tuple[str, ...]:
    """Return the command as the records of results keep it: without the folder of the program."""
    return ("virnucpro", *sys.argv[1:])


def exit_codes(*codes: int) -> str:
    """Return the paragraph of a help text that explains these exit codes."""
    return f"Exit codes: {'; '.join(f'{code} {EXIT_CODES[code]}' for code in codes)}."


class SectionedCommand(click.Command):
    """A command whose help text shows its options in sections, and no ranges of numbers."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        """``sections`` maps each heading to the options below it, by their long names."""
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section."""
        options = {max(option.opts, key=len): option for option in self.get_params(ctx)}
        for heading, names in self.sections.items():
            rows = [options[name].get_help_record(ctx) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(row[0], RANGE.sub("", row[1])) for row in rows if row])


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
        kind: bool for a flag, a tuple of the accepted words, or a type of click.
        text: a sentence for people.
        more: arguments of ``click.option``, such as ``default``.
    """
    names = [word for word in words.split() if word[0] == "-" or not word.isupper()]
    shown = [word for word in words.split() if word not in names]
    if shown:
        more["metavar"] = shown[0]
    if kind is bool:
        more["is_flag"] = True
    else:
        more["type"] = click.Choice(kind) if isinstance(kind, tuple) else kind
    return click.option(*names, help=text, **more)


def setting_option(*names: str) -> Callable[[F], F]:
    """Return the option that fills the setting of the last name, as the setting declares it."""
    declared = SETTINGS[names[-1]]
    kind = declared.choices or declared.type
    if get_origin(kind) is Annotated:
        kind = _within(kind)
    default = declared.unset or declared.default
    text = declared.description + (f"  [default: {default}]" if default else "")
    more = {"metavar": f"[{'|'.join(declared.shown_choices)}]"} if declared.choices else {}
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


def _preset_option(preset: Preset, amount: str) -> Callable[[F], F]:
    cuts = PRESETS[preset]
    rate = f" and, where there is an fdr, at most {cuts.max_fdr:g}" if cuts.max_fdr < 1 else ""
    text = f"Call {amount} records virus: those with a score above {cuts.min_score:g}{rate}."
    return click.option(f"--{preset}", "preset", flag_value=preset, default=None, help=text)


threads_option = setting_option("threads")
seed_option = option("--seed", COUNT_OR_ZERO, "Seed of all random choices.", default=0)
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
CUTS = ("min_score", "max_fdr", "min_length")
cut_options = grouped(
    *map(setting_option, CUTS),
    _preset_option("relaxed", "more"),
    _preset_option("conservative", "fewer"),
)
predict_options = grouped(
    *(setting_option(n) for n, s in SETTINGS.items() if s.options and n not in CUTS), cut_options
)


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
    if "preset" in values:  # which replaces the numbers of the file, too
        values = {"min_score": None, "max_fdr": None, **values}
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
