"""The YAML configuration file: every key, the setting it fills, and what it means.

The keys of version 1 keep working. One table drives reading, checking and
``virnucpro utils generate-config``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from virnucpro.errors import ConfigError
from virnucpro.precision import PRECISION_CHOICES
from virnucpro.settings import (
    COMPILE_CHOICES,
    DUPLICATE_ID_CHOICES,
    MODEL_TYPES,
    SHOWN_MODEL_TYPES,
    AnalysisSettings,
    DisplaySettings,
    MachineSettings,
)

MAX_DEPTH = 16
MAX_BYTES = 1 << 20  # a configuration is a page of text; more is a mistake or an attack


@dataclass(frozen=True)
class ConfigKey:
    """One key of the configuration file.

    Attributes:
        name: the key with the groups it stands in, separated by dots.
        setting: the setting it fills: ``analysis``, ``machine`` or ``display``, and its attribute.
        accepts: ``count`` (a whole number from 1), ``text``, ``flag``, ``inverted flag`` (true
            turns the setting off), or the accepted words, separated by ``|``. A question mark at
            the end also accepts null and ``auto``: the program decides.
        description: a sentence for people.
    """

    name: str
    setting: str
    accepts: str
    description: str


KEYS = (
    ConfigKey(
        "prediction.batch_size",
        "machine.classifier_rows",
        "count",
        "Rows that the classifier reads at a time.",
    ),
    ConfigKey(
        "prediction.num_workers",
        "machine.tokenizer_threads",
        "count",
        "Host threads per worker that make tokens.",
    ),
    ConfigKey(
        "prediction.sequences_per_file",
        "analysis.sequences_per_file",
        "count",
        "Frames per split file.",
    ),
    ConfigKey(
        "prediction.default_model_type",
        "analysis.model_type",
        "|".join(MODEL_TYPES),
        "Model type.",
    ),
    ConfigKey(
        "prediction.expected_length",
        "analysis.chunk_length",
        "count?",
        "Bases per chunk; null takes those of the model type.",
    ),
    ConfigKey(
        "prediction.model_path",
        "analysis.classifier",
        "text?",
        "Classifier file of model type custom.",
    ),
    ConfigKey(
        "prediction.models.300",
        "analysis.classifiers.300",
        "text",
        "Classifier file of model type 300.",
    ),
    ConfigKey(
        "prediction.models.500",
        "analysis.classifiers.500",
        "text",
        "Classifier file of model type 500.",
    ),
    ConfigKey(
        "prediction.duplicate_ids",
        "analysis.duplicate_ids",
        "|".join(DUPLICATE_ID_CHOICES),
        "What is done with record ids that occur twice.",
    ),
    ConfigKey("device.default", "machine.device", "text", "auto, cpu, cuda, cuda:0,2 or a UUID."),
    ConfigKey("device.gpus", "machine.gpus", "text?", "Indices or UUIDs of GPUs, such as 0,1,2."),
    ConfigKey(
        "device.fallback_to_cpu",
        "machine.fallback_to_cpu",
        "flag",
        "Whether auto may use the CPU if there is no GPU.",
    ),
    ConfigKey(
        "device.cpu_workers",
        "machine.cpu_workers",
        "count?",
        "Worker processes on the CPU; null computes in the main process.",
    ),
    ConfigKey(
        "device.precision",
        "analysis.precision",
        "|".join(PRECISION_CHOICES),
        "Arithmetic of the encoders.",
    ),
    ConfigKey(
        "device.compile",
        "machine.compile",
        "|".join(COMPILE_CHOICES),
        "Whether models are compiled for a GPU.",
    ),
    ConfigKey(
        "features.dnabert.model_name",
        "analysis.nucleotide_model",
        "text",
        "Nucleotide encoder: name on the Hugging Face hub, or folder.",
    ),
    ConfigKey(
        "features.dnabert.batch_size",
        "machine.nucleotide_batch",
        "count?",
        "Sequences per batch; null measures what the device takes.",
    ),
    ConfigKey(
        "features.esm.model_name",
        "analysis.protein_model",
        "text",
        "Protein encoder: name of an ESM-2 model, name on the hub, folder or file.",
    ),
    ConfigKey(
        "features.esm.truncation_seq_length",
        "analysis.truncation",
        "count",
        "Residues per protein that are embedded.",
    ),
    ConfigKey(
        "features.esm.toks_per_batch",
        "machine.protein_batch",
        "count?",
        "Tokens per batch; null measures what the device takes.",
    ),
    ConfigKey(
        "parallelization.num_workers",
        "machine.max_workers",
        "count?",
        "Largest number of GPUs; null uses all.",
    ),
    ConfigKey(
        "parallelization.threads",
        "machine.threads",
        "count?",
        "Host threads in total; null uses all cores.",
    ),
    ConfigKey(
        "files.auto_cleanup",
        "machine.keep_intermediate",
        "inverted flag",
        "Whether intermediate files are removed at the end.",
    ),
    ConfigKey(
        "logging.default_level",
        "display.level",
        "DEBUG|INFO|WARNING|ERROR",
        "What is shown.",
    ),
    ConfigKey(
        "logging.auto_log_file",
        "display.auto_log",
        "flag",
        "Whether a log is written to .checkpoints/STEM/run.log.",
    ),
)

# Keys of the configuration files of version 1 that no longer have an effect.
OBSOLETE_KEYS = (
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
    """The settings of a command, with warnings about the file that they came from."""

    analysis: AnalysisSettings = field(default_factory=AnalysisSettings)
    machine: MachineSettings = field(default_factory=MachineSettings)
    display: DisplaySettings = field(default_factory=DisplaySettings)
    warnings: tuple[str, ...] = ()

    def with_values(self, values: Mapping[str, Any]) -> Configuration:
        """Return these settings with ``values``, named as in :attr:`ConfigKey.setting`, on top.

        Raises:
            UsageError: a value is out of its range (exit 64).
        """
        changes: dict[str, dict[str, Any]] = {"analysis": {}, "machine": {}, "display": {}}
        classifiers = dict(self.analysis.classifiers)
        for setting, value in values.items():
            group, name, *entry = setting.split(".")
            if entry:
                classifiers[entry[0]] = value
            else:
                changes[group][name] = value
        return replace(
            self,
            analysis=replace(self.analysis, classifiers=classifiers, **changes["analysis"]),
            machine=replace(self.machine, **changes["machine"]),
            display=replace(self.display, **changes["display"]),
        )


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file on top of the defaults.

    Raises:
        ConfigError: the file is missing or not YAML, a key is unknown or a value has the wrong
            type; the message names the key or the line (exit 64).
    """
    known = {key.name: key for key in KEYS}
    values: dict[str, Any] = {}
    obsolete = []
    for name, value in _flatten(_parse(path), known):
        if name in known:
            values[known[name].setting] = _checked(path, known[name], value)
        elif any(name == key or name.startswith(key + ".") for key in OBSOLETE_KEYS):
            obsolete.append(name)
        else:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            advice = f"did you mean {close[0]}?" if close else "see virnucpro utils generate-config"
            raise ConfigError(f"{path}: unknown key {name}; {advice}")
    warnings: tuple[str, ...] = ()
    if obsolete:
        warnings = (f"{path}: these keys no longer have an effect: {', '.join(obsolete)}",)
    return replace(Configuration().with_values(values), warnings=warnings)


def default_yaml() -> str:
    """Return the defaults as a commented configuration file, each key with its meaning."""
    lines = ["# Configuration of VirNucPro. Every value in this file is the default.", ""]
    open_groups: list[str] = []
    for key in KEYS:
        *groups, leaf = (f'"{part}"' if part.isdigit() else part for part in key.name.split("."))
        shared = 0
        while shared < min(len(groups), len(open_groups)) and groups[shared] == open_groups[shared]:
            shared += 1
        for depth in range(shared, len(groups)):
            lines.append(f"{'  ' * depth}{groups[depth]}:")
        open_groups = groups
        group, name, *entry = key.setting.split(".")
        value = getattr(getattr(Configuration(), group), name)
        value = value[entry[0]] if entry else not value if key.accepts == "inverted flag" else value
        written = yaml.safe_dump(value, default_flow_style=True).strip().removesuffix("...").strip()
        choices = ""
        if "|" in key.accepts:  # toy is for tests only
            shown = SHOWN_MODEL_TYPES if name == "model_type" else key.accepts.split("|")
            choices = f" One of {', '.join(shown)}."
        lines.append(f"{'  ' * len(groups)}{leaf}: {written}  # {key.description}{choices}")
    return "\n".join(lines) + "\n"


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


def _flatten(
    document: Mapping[Any, Any], known: Mapping[str, ConfigKey], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        full_name = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and full_name not in known:
            yield from _flatten(value, known, f"{full_name}.")
        elif value is None and any(key.startswith(full_name + ".") for key in known):
            continue  # a heading with nothing below it
        else:
            yield full_name, value


def _checked(path: Path, key: ConfigKey, value: Any) -> Any:
    """Return the value of the setting for the value of a key, if the key accepts it."""
    accepts = key.accepts
    if accepts.endswith("?"):
        accepts = accepts[:-1]
        if value is None or value == "auto":
            return None
    if accepts in ("flag", "inverted flag"):
        if isinstance(value, bool):
            return value if accepts == "flag" else not value
        expected = "true or false"
    elif accepts == "count":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        expected = "a whole number of 1 or more"
    elif accepts == "text":
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            return str(value)
        expected = "text"
    else:
        if str(value) in accepts.split("|") and not isinstance(value, bool):
            return str(value)
        expected = f"one of {', '.join(accepts.split('|'))}"
    raise ConfigError(f"{path}: {key.name} must be {expected}, not {value!r}")
