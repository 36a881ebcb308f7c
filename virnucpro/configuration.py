"""The YAML configuration file: every key, the setting it fills, and what it means.

The keys of version 1 keep working. The declarations in :mod:`virnucpro.settings` drive reading,
checking and ``virnucpro utils generate-config``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from virnucpro.errors import ConfigError
from virnucpro.settings import (
    MODEL_TYPES,
    SHOWN_MODEL_TYPES,
    AnalysisSettings,
    CutSettings,
    DisplaySettings,
    MachineSettings,
)

MOST = 2**31 - 1  # torch and the system take no larger count
MOST_THREADS = 4096  # threads and processes; more of them end the process or the machine
THREAD_COUNTS = ("threads", "tokenizer_threads", "cpu_workers")
MAX_DEPTH = 16
_OTHER_NUMBER = re.compile(r"[-+]?0[0-9a-zA-Z]|.*[_:]")  # octal, of base 60, and the like
MAX_BYTES = 1 << 20  # a configuration is a page of text; more is a mistake or an attack


@dataclass(frozen=True)
class ConfigKey:
    """A key of the configuration file; see :func:`virnucpro.settings.setting`.

    Attributes:
        setting: the attribute that it fills, whose name is unique among all settings.
        kind: the type of its values: bool, int, float or str.
    """

    setting: str
    kind: type
    default: Any
    key: str
    description: str
    unset: str
    choices: tuple[str, ...]

    @property
    def most(self) -> int:
        """The largest number that it accepts."""
        return MOST_THREADS if self.setting in THREAD_COUNTS else MOST


def _keys() -> Iterator[ConfigKey]:
    for group in (AnalysisSettings, CutSettings, MachineSettings, DisplaySettings):
        hints = get_type_hints(group)
        for declared in fields(group):
            if declared.metadata:
                hint = hints[declared.name]
                kinds = (hint, *get_args(hint))
                kind = next((kind for kind in (bool, int, float) if kind in kinds), str)
                yield ConfigKey(declared.name, kind, declared.default, **declared.metadata)


KEYS = {key.key: key for key in _keys()}

# Keys of earlier configuration files that no longer have an effect.
OBSOLETE_KEYS = (
    "version",
    "features.dnabert.trust_remote_code",
    "features.esm.representation_layer",
    "parallelization.enabled",
    "checkpointing",
    "cluster.files",
    "files.keep_files",
    "logging.format",
    "logging.level",
    "progress",
    "validation",
)


@dataclass(frozen=True)
class Configuration:
    """The settings of a command, with warnings about the file that they came from."""

    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    cuts: CutSettings = field(default_factory=CutSettings)
    machine: MachineSettings = field(default_factory=MachineSettings)
    display: DisplaySettings = field(default_factory=DisplaySettings)
    warnings: tuple[str, ...] = ()

    def with_values(self, values: Mapping[str, Any]) -> Configuration:
        """Return these settings with ``values``, named as the settings are, on top.

        Values of other names are left to the caller.

        Raises:
            UsageError: a value is out of its range (exit 64).
        """
        groups: dict[str, Any] = {}
        for name in ("analysis", "cuts", "machine", "display"):
            group = getattr(self, name)
            own = {f.name: values[f.name] for f in fields(group) if f.name in values}
            groups[name] = replace(group, **own)
        return replace(self, **groups)


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file on top of the defaults.

    Raises:
        ConfigError: the file is missing or not YAML, a key is unknown or a value has the wrong
            type; the message names the key or the line (exit 64).
    """
    values: dict[str, Any] = {}
    obsolete = []
    for name, value in _flatten(_parse(path)):
        if name in KEYS:
            values[KEYS[name].setting] = checked_value(f"{path}: {name}", KEYS[name], value)
        elif any(name == key or name.startswith(key + ".") for key in OBSOLETE_KEYS):
            obsolete.append(name)
        else:
            close = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.5)
            advice = f"did you mean {close[0]}?" if close else "see virnucpro utils generate-config"
            raise ConfigError(f"{path}: unknown key {name}; {advice}")
    warnings: tuple[str, ...] = ()
    if obsolete:
        warnings = (f"{path}: these keys no longer have an effect: {', '.join(obsolete)}",)
    return replace(Configuration().with_values(values), warnings=warnings)


def default_yaml() -> str:
    """Return the defaults as a commented configuration file, each key with its meaning."""
    document: dict[str, Any] = {}
    for name, key in KEYS.items():
        *groups, leaf = name.split(".")
        group = document
        for part in groups:
            group = group.setdefault(part, {})
        group[leaf] = key
    first = "# Configuration of VirNucPro. Every value in this file is the default."
    return "\n".join([first, "", *_yaml_lines(document)]) + "\n"


def _yaml_lines(group: Mapping[str, Any]) -> Iterator[str]:
    for name, entry in group.items():
        label = f'"{name}"' if name.isdigit() else name
        if isinstance(entry, dict):
            yield f"{label}:"
            yield from (f"  {line}" for line in _yaml_lines(entry))
            continue
        written = yaml.safe_dump(entry.default, default_flow_style=True)
        written = written.strip().removesuffix("...").strip()
        note = f" null: {entry.unset}." if entry.unset else ""
        if entry.choices:
            shown = SHOWN_MODEL_TYPES if entry.choices == MODEL_TYPES else entry.choices
            note = f" One of {', '.join(shown)}."
        yield f"{label}: {written}  # {entry.description}{note}"


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} is larger than 1 MiB: this is not a configuration file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"configuration {path} not found; make one: virnucpro utils generate-config -o {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path} cannot be read: {error}") from error
    try:
        _check_shape(path, text)
        _refuse_ambiguous(path, yaml.compose(text, yaml.SafeLoader))
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(
            f"{path}, line {line}: {error.problem}; this is not plain YAML"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: this is not plain YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError(f"{path}: expected keys and values, found a {type(document).__name__}")
    return document


def _check_shape(path: Path, text: str) -> None:
    """Refuse YAML that takes long to read and that no configuration needs."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):  # can stand for an exponentially large document
            raise ConfigError(f"{path}: aliases (*name) are not accepted; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{path}: nested too deeply, this is not a configuration file")


def _refuse_ambiguous(path: Path, node: yaml.Node | None) -> None:
    """Raise ConfigError for a key that stands twice, and for numbers that are not decimal.

    YAML would silently take the last key, and read ``010`` as 8 and ``1:30`` as 90.
    """
    if (
        isinstance(node, yaml.ScalarNode)
        and node.tag.endswith((":int", ":float"))
        and _OTHER_NUMBER.match(node.value)
    ):
        raise ConfigError(
            f"{path}, line {node.start_mark.line + 1}: {node.value} is not a decimal number: write "
            f"one, or put text in quotes"
        )
    if not isinstance(node, yaml.CollectionNode):
        return
    names = set()
    for entry in node.value:
        name, value = entry if isinstance(node, yaml.MappingNode) else (None, entry)
        _refuse_ambiguous(path, value)
        if not isinstance(name, yaml.ScalarNode):
            continue
        if (name.tag, name.value) in names:
            raise ConfigError(
                f"{path}, line {name.start_mark.line + 1}: {name.value} stands there twice: keep "
                f"one of them"
            )
        names.add((name.tag, name.value))


def _flatten(document: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        full_name = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and full_name not in KEYS:
            yield from _flatten(value, f"{full_name}.")
        elif value is None and any(key.startswith(full_name + ".") for key in KEYS):
            continue  # a heading with nothing below it
        else:
            yield full_name, value


def checked_value(label: str, key: ConfigKey, value: Any) -> Any:
    """Return the value of the setting for the value of a key, if the key accepts it.

    Raises:
        ConfigError: it does not; the message names the value as ``label``.
    """
    if key.default is None and value in (None, "auto"):
        return None
    flag = isinstance(value, bool)
    if key.kind is bool:
        if flag:
            return value
        expected = "true or false"
    elif key.kind is int:
        if isinstance(value, int) and not flag and 1 <= value <= key.most:
            return value
        too_large = isinstance(value, int) and value > key.most
        expected = f"at most {key.most:,}" if too_large else "a whole number of 1 or more"
    elif key.kind is float:
        if isinstance(value, int | float) and not flag and abs(value) <= key.most:
            return float(value)
        expected = "a number"
    else:
        text = str(value) if isinstance(value, str | int) and not flag else ""
        if text in key.choices or (text and not key.choices):
            return text
        expected = f"one of {', '.join(key.choices)}" if key.choices else "text"
    raise ConfigError(f"{label} must be {expected}, not {value!r}")
