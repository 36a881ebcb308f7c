"""The configuration file of a training of the RCL predictor.

It is that of RCL-identifier (``config.yaml``): all of its keys are accepted, those without a
meaning here are named in one warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from virnucpro.contracts import Json
from virnucpro.errors import ConfigError
from virnucpro.rcl.settings import RclTrainingSettings


@dataclass(frozen=True)
class RclConfiguration:
    """What a configuration file says. None where it does not say.

    Attributes:
        values: settings of the training by the name of their field.
        networks: settings by kind of network.
        serpins: the table ``data.train_serpin``.
        others: the table ``data.train_non_serpin``.
        device: ``hardware.device``.
        multi_gpu: ``hardware.use_multi_gpu``.
        gpu_ids: ``hardware.gpu_ids``.
        mixed_precision: ``hardware.mixed_precision``.
        tensorboard: ``logging.use_tensorboard``.
        runs: ``output.runs_dir``.
        esm_model: ``encoding.esm2.model_name``.
        warning: names the keys that have no meaning here.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    networks: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    serpins: Path | None = None
    others: Path | None = None
    device: str | None = None
    multi_gpu: bool | None = None
    gpu_ids: str | None = None
    mixed_precision: bool | None = None
    tensorboard: bool | None = None
    runs: Path | None = None
    esm_model: str | None = None
    warning: str | None = None

    def applied_to(self, settings: RclTrainingSettings) -> RclTrainingSettings:
        """Return ``settings`` with the values of the file in their place."""
        networks = {
            kind: {**defaults, **self.networks.get(kind, {})}
            for kind, defaults in settings.networks.items()
        }
        return replace(settings, networks=networks, **self.values)


def _whole(least: int, most: int = 1 << 30) -> Callable[[Any], Any]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least}")
        return value

    return check


def _number(least: float, most: float, *, open_ends: bool = False) -> Callable[[Any], Any]:
    def check(value: Any) -> float:
        text = f"a number from {least:g} to {most:g}"
        if isinstance(value, str):  # YAML reads 1e-3 as text
            try:
                value = float(value)
            except ValueError:
                raise ValueError(text) from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(text)
        if not least <= value <= most or (open_ends and value in (least, most)):
            raise ValueError(text)
        return float(value)

    return check


def _one_of(*choices: str) -> Callable[[Any], Any]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _counts(value: Any) -> list[int]:
    if not isinstance(value, list) or not 1 <= len(value) <= 64:
        raise ValueError("a list of whole numbers from 1")
    return [_whole(1, 1 << 16)(entry) for entry in value]


def _weights(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("two numbers, such as [1.0, 5.0]")
    first, second = (_number(0, 1e6)(entry) for entry in value)
    return first, second


def _gpus(value: Any) -> str:
    if not isinstance(value, list):
        raise ValueError("a list of GPUs, such as [0, 1]")
    return ",".join(str(entry) for entry in value)


_DROPOUT = _number(0, 0.99)
_SETTINGS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "data.max_length": ("max_length", _whole(16, 1 << 20)),
    "data.train_split": ("train_split", _number(0, 1, open_ends=True)),
    "data.random_seed": ("seed", _whole(0)),
    "training.batch_size": ("batch_size", _whole(2)),
    "training.epochs": ("epochs", _whole(1)),
    "training.learning_rate": ("learning_rate", _number(0, 1e3, open_ends=True)),
    "training.weight_decay": ("weight_decay", _number(0, 1e3)),
    "training.patience": ("patience", _whole(1)),
    "training.loss_weights": ("loss_weights", _weights),
    "training.optimizer": ("optimizer", _one_of("adam", "adamw")),
    "training.scheduler": ("scheduler", _one_of("reduce_on_plateau", "cosine", "none")),
    "evaluation.threshold": ("threshold", _number(0, 1)),
}
_NETWORKS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "cnn": {"channels": _counts, "kernel_sizes": _counts, "dropout": _DROPOUT},
    "unet": {
        "base_filters": _whole(2, 4096),
        "depth": _whole(1, 10),
        "dropout": _DROPOUT,
        "attention": _flag,
    },
    "lstm": {"hidden_dim": _whole(1, 1 << 14), "num_layers": _whole(1, 64), "dropout": _DROPOUT},
}
_OTHERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "data.train_serpin": ("serpins", _text),
    "data.train_non_serpin": ("others", _text),
    "hardware.device": ("device", _text),
    "hardware.use_multi_gpu": ("multi_gpu", _flag),
    "hardware.gpu_ids": ("gpu_ids", _gpus),
    "hardware.mixed_precision": ("mixed_precision", _flag),
    "logging.use_tensorboard": ("tensorboard", _flag),
    "output.runs_dir": ("runs", _text),
    "encoding.esm2.model_name": ("esm_model", _text),
}
# The tables of the test are named to ``rcl evaluate``; the others repeat what has one value here.
_SILENT = ("data.test_serpin", "data.test_non_serpin", "training.monitor", "training.mode")


def read_rcl_configuration(path: Path) -> RclConfiguration:
    """Read a configuration file of a training.

    Raises:
        ConfigError: it is missing or not YAML, or a value is not usable; names the key.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections such as data and training")
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    networks: dict[str, dict[str, Json]] = {}
    unused: list[str] = []

    def checked(key: str, check: Callable[[Any], Any], value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise ConfigError(f"{path}: {key} is {value!r}, expected {error}") from None

    for key, value in _flattened(content):
        section, _, rest = key.partition(".")
        kind, _, name = rest.partition(".")
        if key in _SETTINGS:
            values[_SETTINGS[key][0]] = checked(key, _SETTINGS[key][1], value)
        elif key in _OTHERS:
            if value is not None and value != []:
                others[_OTHERS[key][0]] = checked(key, _OTHERS[key][1], value)
        elif section == "models" and name in _NETWORKS.get(kind, {}):
            networks.setdefault(kind, {})[name] = checked(key, _NETWORKS[kind][name], value)
        elif key not in _SILENT:
            unused.append(key)
    for name in ("serpins", "others", "runs"):
        if name in others:
            others[name] = Path(others[name])
    if others.get("device") == "cuda" and not others.get("multi_gpu"):
        others["device"] = None  # what the program does anyway where there is a GPU
    warning = None
    if unused:
        warning = f"{path}: these keys have no meaning here and are not read: {', '.join(unused)}"
    return RclConfiguration(values, networks, **others, warning=warning)


def _flattened(content: Mapping[Any, Any], prefix: str = "") -> Sequence[tuple[str, Any]]:
    """Return the values of nested sections by their key, such as ``data.max_length``."""
    pairs: list[tuple[str, Any]] = []
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key.count(".") < 3:
            pairs += _flattened(value, f"{key}.")
        else:
            pairs.append((key, value))
    return pairs
