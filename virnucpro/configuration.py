"""All settings of a command, and the YAML file that they can be read from.

The keys of version 1 keep working. The declarations in :mod:`virnucpro.settings` drive reading,
checking and ``virnucpro utils generate-config``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml
from msgspec import ValidationError, convert

from virnucpro.errors import UsageError
from virnucpro.settings import (
    SETTINGS,
    AnalysisSettings,
    DisplaySettings,
    MachineSettings,
    Setting,
    Thresholds,
    offered,
)

KEYS = {declared.key: declared for declared in SETTINGS.values()}
# Keys of earlier configuration files that no longer have an effect.
OBSOLETE_KEYS = (
    "version",
    "features.dnabert.trust_remote_code",
    "features.esm.representation_layer",
    "parallelization.enabled",
    "prediction.batch_size",
    "checkpointing",
    "files.keep_files",
    "logging.format",
    "logging.level",
    "progress",
    "validation",
)
_OPPOSITES = {"no_progress": "progress", "keep_intermediate": "remove_intermediate"}


@dataclass(frozen=True)
class Configuration:
    """The settings of a command, with warnings about the file that they came from."""

    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    thresholds: Thresholds = field(default_factory=Thresholds)
    machine: MachineSettings = field(default_factory=MachineSettings)
    display: DisplaySettings = field(default_factory=DisplaySettings)
    warnings: tuple[str, ...] = ()

    def with_values(self, values: Mapping[str, Any]) -> Configuration:
        """Return these settings with ``values``, named as the settings are, on top.

        ``no_progress`` and ``keep_intermediate`` stand for the opposite of a setting. Values of
        other names are left to the caller.

        Raises:
            UsageError: values contradict each other (exit 64).
        """
        opposites = {setting: False for name, setting in _OPPOSITES.items() if values.get(name)}
        groups = {}
        for name in ("analysis", "thresholds", "machine", "display"):
            group = getattr(self, name)
            names = {declared.name for declared in fields(group)}
            own = {name: v for name, v in {**values, **opposites}.items() if name in names}
            groups[name] = replace(group, **own)
        return replace(self, **groups)


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file on top of the defaults.

    Raises:
        UsageError: the file is missing or not YAML, a key is unknown or a value has the wrong
            type; the message names the key or the line (exit 64).
    """
    values: dict[str, Any] = {}
    obsolete = []
    for name, value in _flatten(parse_yaml(path)):
        if name in KEYS:
            values[KEYS[name].name] = checked_value(f"{path}: {name}", KEYS[name], value)
        elif any(name == key or name.startswith(key + ".") for key in OBSOLETE_KEYS):
            obsolete.append(name)
        else:
            known = sorted({*KEYS, *(key.rpartition(".")[0] for key in KEYS)} - {name})
            same = [key for key in known if key.endswith("." + name.rpartition(".")[2])]
            close = difflib.get_close_matches(name, same or known, n=1, cutoff=0 if same else 0.5)
            advice = f"did you mean {close[0]}?" if close else "see virnucpro utils generate-config"
            raise UsageError(f"{path}: unknown key {name}; {advice}")
    text = f"{path}: these keys no longer have an effect: {', '.join(obsolete)}"
    return replace(Configuration().with_values(values), warnings=(text,) if obsolete else ())


def default_yaml() -> str:
    """Return the defaults as a commented configuration file, each key with its meaning."""
    first = "# Configuration of VirNucPro. Every value in this file is the default."
    return "\n".join([first, "", *_yaml_lines(nested(KEYS))]) + "\n"


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in sections, as a file has them, by the dots in their keys."""
    document: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return document


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
            note += f" One of {', '.join(offered(entry.choices))}."
        yield f"{label}: {written}  # {entry.description}{note}"


def parse_yaml(path: Path) -> Mapping[str, Any]:
    """Return the content of a YAML file with sections. UsageError: it is not such a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = yaml.safe_load(text)
        # Through aliases, a value may hold itself, or a small file be too large for the memory.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise UsageError(f"{path}: aliases are not accepted: repeat the value")
    except FileNotFoundError:
        raise UsageError(
            f"configuration {path} not found; make one: virnucpro utils generate-config -o {path}"
        ) from None
    except OSError as error:
        raise UsageError(f"configuration {path} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: this is not plain YAML: {error}") from error
    if not isinstance(document, Mapping | None):
        raise UsageError(f"{path}: expected keys and values, found a {type(document).__name__}")
    return document or {}


def _flatten(document: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        full_name = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and full_name not in KEYS:
            yield from _flatten(value, f"{full_name}.")
        elif value is None and any(key.startswith(full_name + ".") for key in KEYS):
            continue  # a heading with nothing below it
        else:
            yield full_name, value


def checked_value(label: str, declared: Setting, value: Any) -> Any:
    """Return the value of a setting for what a file or a Python program gives, if it is one.

    Raises:
        UsageError: it is not; the message names the value as ``label``.
    """
    if declared.default is None and value in (None, "auto"):
        return None
    if type(value) is int and (declared.choices or declared.type is str):  # such as that of a GPU
        value = str(value)
    try:
        return convert(value, declared.type)
    except ValidationError as error:
        among = f" (one of {', '.join(offered(declared.choices))})" if declared.choices else ""
        raise UsageError(f"{label}: {value!r} is not accepted: {error}{among}") from None
