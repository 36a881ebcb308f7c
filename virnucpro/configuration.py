"""The YAML configuration file: every key, its meaning, its setting.

The keys of the program's earlier versions keep working. One table drives reading, checking and
``virnucpro utils generate-config``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from virnucpro.errors import ConfigError
from virnucpro.precision import PRECISION_CHOICES
from virnucpro.settings import AnalysisSettings, DisplaySettings, MachineSettings

MAX_DEPTH = 16
MAX_BYTES = 1 << 20  # a configuration is a page of text; more is a mistake or an attack


@dataclass(frozen=True)
class Key:
    """One YAML key: dotted name, the setting it fills, accepted values, a line for people."""

    name: str
    setting: str
    kind: str
    help: str


_PRECISIONS = "|".join(PRECISION_CHOICES)
KEYS = (
    Key("prediction.batch_size", "machine.classifier_rows", "count", "rows the classifier reads"),
    Key("prediction.num_workers", "machine.tokenizer_threads", "count", "threads for tokens"),
    Key("prediction.sequences_per_file", "analysis.sequences_per_file", "count", "frames a file"),
    Key(
        "prediction.default_model_type",
        "analysis.model_type",
        "300|500|lite|custom|toy",
        "classifier",
    ),
    Key("prediction.expected_length", "analysis.chunk_length", "count?", "bases a chunk"),
    Key("prediction.model_path", "analysis.classifier", "text?", "classifier of type custom"),
    Key("prediction.models.300", "analysis.classifiers.300", "text", "classifier of type 300"),
    Key("prediction.models.500", "analysis.classifiers.500", "text", "classifier of type 500"),
    Key("prediction.duplicate_ids", "analysis.duplicate_ids", "error|rename", "doubled record ids"),
    Key("device.default", "machine.device", "text", "auto, cpu, cuda, cuda:0,2 or a UUID"),
    Key("device.gpus", "machine.gpus", "text?", "indices or UUIDs, e.g. 0,1,2"),
    Key("device.fallback_to_cpu", "machine.fallback_to_cpu", "flag", "auto may do without a GPU"),
    Key("device.cpu_workers", "machine.cpu_workers", "count?", "worker processes on the CPU"),
    Key("device.precision", "analysis.precision", _PRECISIONS, "encoder arithmetic"),
    Key("device.compile", "machine.compile", "auto|always|never", "compile models for a GPU"),
    Key("features.dnabert.model_name", "analysis.nucleotide_model", "text", "hub name or folder"),
    Key("features.dnabert.batch_size", "machine.dnabert_sequences", "count?", "sequences a batch"),
    Key("features.esm.model_name", "analysis.protein_model", "text", "name, folder or file"),
    Key("features.esm.truncation_seq_length", "analysis.truncation", "count", "residues embedded"),
    Key("features.esm.toks_per_batch", "machine.esm_tokens", "count?", "tokens a batch"),
    Key("parallelization.num_workers", "machine.max_workers", "count?", "GPUs used at most"),
    Key("parallelization.threads", "machine.threads", "count?", "host threads in all"),
    Key("files.auto_cleanup", "files.auto_cleanup", "flag", "remove intermediate files at the end"),
    Key("logging.default_level", "display.level", "DEBUG|INFO|WARNING|ERROR", "what is shown"),
    Key("logging.auto_log_file", "display.auto_log", "flag", "log to .checkpoints/STEM/run.log"),
)

# Keys of older default files that no longer mean anything.
OBSOLETE = (
    "version",
    "features.dnabert.trust_remote_code",
    "features.esm.representation_layer",
    "parallelization.enabled",
    "checkpointing",
    "files.keep_files",
    "logging.format",
    "logging.level",
    "progress",
    "validation",
)


@dataclass(frozen=True)
class Configuration:
    """The three groups of settings, with warnings about the file they came from."""

    analysis: AnalysisSettings
    machine: MachineSettings
    display: DisplaySettings
    warnings: tuple[str, ...] = ()


def default_configuration() -> Configuration:
    """The settings without a configuration file."""
    return Configuration(AnalysisSettings(), MachineSettings(), DisplaySettings())


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file on top of the defaults.

    Raises:
        ConfigError: missing, not YAML, unknown key or wrong type; names key and line (exit 64).
    """
    document = _parse(path)
    known = {key.name: key for key in KEYS}
    values: dict[str, Any] = {}
    obsolete = []
    for name, value in _flatten(document, known):
        if name in known:
            values[known[name].setting] = _checked(path, known[name], value)
        elif any(name == o or name.startswith(o + ".") for o in OBSOLETE):
            obsolete.append(name)
        else:
            raise ConfigError(f"{path}: unknown key {name}{_suggestion(name, known)}")
    warnings: tuple[str, ...] = ()
    if obsolete:
        warnings = (f"{path}: ignored, no longer of any effect: {', '.join(obsolete)}",)
    return _apply(values, warnings)


def default_yaml() -> str:
    """The defaults as a commented configuration file, each key with its meaning."""
    lines = ["# VirNucPro configuration. Every value here is the default.", ""]
    opened: list[str] = []
    for key in KEYS:
        *groups, leaf = key.name.split(".")
        shared = 0
        while shared < min(len(groups), len(opened)) and groups[shared] == opened[shared]:
            shared += 1
        for depth in range(shared, len(groups)):
            lines.append(f"{'  ' * depth}{_quoted(groups[depth])}:")
        opened = groups
        text = f"{'  ' * len(groups)}{_quoted(leaf)}: {_yaml_value(_default(key))}"
        lines.append(f"{text}  # {key.help}{_choices(key)}")
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return f'"{name}"' if name.isdigit() else name


def _choices(key: Key) -> str:
    shown = [value for value in key.kind.split("|") if value != "toy"]  # for tests only
    return f": {', '.join(shown)}" if "|" in key.kind else ""


def _yaml_value(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True).strip()
    return text.removesuffix("...").strip()


def _default(key: Key) -> Any:
    defaults = default_configuration()
    if key.setting == "files.auto_cleanup":
        return not defaults.machine.keep_intermediate
    group, name, *rest = key.setting.split(".")
    value = getattr(getattr(defaults, group), name)
    return value[rest[0]] if rest else value


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: larger than 1 MiB, this is no configuration file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"configuration {path} not found; make one: virnucpro utils generate-config -o {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path} cannot be read: {error}") from error
    try:
        _check_shape(path, text)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path}, line {line}: {error.problem}; this is no plain YAML") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: this is no plain YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError(f"{path}: expected keys and values, found a {type(document).__name__}")
    return document


def _check_shape(path: Path, text: str) -> None:
    """Refuse what would take long to read, and no configuration needs."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):  # can stand for an exponentially large document
            raise ConfigError(f"{path}: aliases (*name) are not accepted; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{path}: nested too deeply, this is no configuration file")


def _flatten(
    document: Mapping[Any, Any], known: Mapping[str, Key], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and full not in known:
            yield from _flatten(value, known, f"{full}.")
        elif value is None and any(k.startswith(full + ".") for k in known):
            continue  # a heading with nothing below it
        else:
            yield full, value


def _checked(path: Path, key: Key, value: Any) -> Any:
    """``value`` if it is of the key's kind. ``?`` also accepts null and ``auto``."""
    kind = key.kind
    if kind.endswith("?"):
        kind = kind[:-1]
        if value is None or value == "auto":
            return None
    if kind == "flag":
        if isinstance(value, bool):
            return value
        expected = "true or false"
    elif kind == "count":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        expected = "a whole number of 1 or more"
    elif kind == "text":
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            return str(value)
        expected = "text"
    else:
        if str(value) in kind.split("|") and not isinstance(value, bool):
            return str(value)
        expected = f"one of {', '.join(kind.split('|'))}"
    raise ConfigError(f"{path}: {key.name} must be {expected}, not {value!r}")


def _suggestion(name: str, known: Mapping[str, Key]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else "; see virnucpro utils generate-config"


def _apply(values: dict[str, Any], warnings: tuple[str, ...]) -> Configuration:
    groups: dict[str, dict[str, Any]] = {"analysis": {}, "machine": {}, "display": {}, "files": {}}
    classifiers = dict(AnalysisSettings().classifiers)
    for setting, value in values.items():
        group, name, *rest = setting.split(".")
        if rest:
            classifiers[rest[0]] = value
        else:
            groups[group][name] = value
    if "auto_cleanup" in groups["files"]:
        groups["machine"]["keep_intermediate"] = not groups["files"]["auto_cleanup"]
    return Configuration(
        replace(AnalysisSettings(), classifiers=classifiers, **groups["analysis"]),
        replace(MachineSettings(), **groups["machine"]),
        replace(DisplaySettings(), **groups["display"]),
        warnings,
    )
