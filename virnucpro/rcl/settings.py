"""The settings of a training of the RCL predictor, and the configuration file that may hold them.

The file is that of RCL-identifier (``config.yaml``): all of its keys are accepted, those without a
meaning here are named in one warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from virnucpro.contracts import Json
from virnucpro.errors import ConfigError, UsageError

RclRecipe = Literal["original", "modern"]
KINDS = ("cnn", "unet", "lstm")
TABLE_ENCODINGS = ("onehot", "blosum")
PLATEAU_FACTOR = 0.5  # of the original: ReduceLROnPlateau(mode="max", factor=0.5)
WARM_UP_EPOCHS = 1.0  # in which a cosine schedule rises from zero

NETWORK_DEFAULTS: Mapping[str, Mapping[str, Json]] = {
    "cnn": {"channels": [256, 128, 64, 32], "kernel_sizes": [7, 5, 5, 3], "dropout": 0.3},
    "unet": {"base_filters": 32, "depth": 4, "dropout": 0.25, "attention": True},
    "lstm": {"hidden_dim": 256, "num_layers": 2, "dropout": 0.3},
}


@dataclass(frozen=True)
class RclTrainingSettings:
    """Everything that decides the weights, beside the proteins.

    Attributes:
        recipe: ``original`` pads every protein to ``max_length`` and splits at random, as
            RCL-identifier does; ``modern`` masks the padding, puts proteins of similar length
            into one batch, splits by clusters, cuts some proteins into fragments, and keeps a
            running mean of the weights.
        encoding: what a residue becomes.
        model: the kind of network.
        networks: the settings of each kind.
        max_length: residues above which a protein is left out.
        train_split: share of the proteins to train on.
        seed: of the split, the first weights, the order, the fragments and the dropout.
        batch_size: proteins per step, over all processes together.
        epochs: the largest number of epochs.
        learning_rate: the highest one.
        weight_decay: of the optimizer; Adam adds it to the gradients.
        patience: epochs without a higher F1 of the validation part before training stops. With
            ``reduce_on_plateau``, half of it before the learning rate is halved.
        loss_weights: of residues outside the RCL, and of those in it.
        optimizer: ``adam`` or ``adamw``.
        scheduler: ``reduce_on_plateau``, ``cosine`` or ``none``.
        fragments: share of the proteins of a batch that are cut to a random half or more.
        averaged: steps over which the weights are averaged, as a running mean: the weight of a step
            falls by this part of itself with each later one. A tenth of all steps where that is
            less; 0 keeps the weights of the last step.
        threshold: written into the model as the one to predict with.
        precision: arithmetic of convolutions and products in training; all else is fp32.
    """

    recipe: RclRecipe = "modern"
    encoding: str = "onehot"
    model: str = "unet"
    networks: Mapping[str, Mapping[str, Json]] = field(default_factory=lambda: NETWORK_DEFAULTS)
    max_length: int = 1024
    train_split: float = 0.8
    seed: int = 42
    batch_size: int = 32
    epochs: int = 50
    learning_rate: float = 0.001
    weight_decay: float = 0.0001
    patience: int = 5
    loss_weights: tuple[float, float] = (1.0, 5.0)
    optimizer: str = "adam"
    scheduler: str = "reduce_on_plateau"
    fragments: float = 0.0
    averaged: int = 0
    threshold: float = 0.5
    precision: str = "fp32"

    @property
    def network(self) -> dict[str, Any]:
        """The keyword arguments of the network that is trained."""
        return dict(self.networks[self.model])

    @property
    def masked(self) -> bool:
        """Whether the padding has no influence."""
        return self.recipe == "modern"

    def facts(self) -> dict[str, Json]:
        """Return the settings by name, of the networks only those of the one that is trained."""
        facts = asdict(self)
        del facts["networks"]
        if not self.averaged:  # as before there was a mean, so that such trainings can go on
            del facts["averaged"]
        return {**facts, "loss_weights": list(self.loss_weights), "network": self.network}

    def cosine_rate(self, epochs: float) -> float:
        """Return the learning rate of a cosine schedule after so many ``epochs``."""
        if epochs < WARM_UP_EPOCHS:
            return self.learning_rate * (0.02 + 0.98 * epochs / WARM_UP_EPOCHS)
        progress = (epochs - WARM_UP_EPOCHS) / max(self.epochs - WARM_UP_EPOCHS, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


RCL_RECIPES: Mapping[str, RclTrainingSettings] = {
    # The defaults of the config.yaml of RCL-identifier.
    "original": RclTrainingSettings(recipe="original"),
    "modern": RclTrainingSettings(
        epochs=30, patience=10, scheduler="cosine", fragments=0.2, averaged=200
    ),
}


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


def check_settings(settings: RclTrainingSettings, processes: int) -> None:
    """Raise UsageError where settings contradict each other."""
    if settings.batch_size < 2 * processes:
        raise UsageError(
            f"--batch-size {settings.batch_size} is less than two proteins for each of "
            f"{processes} processes: use a larger one, or fewer GPUs"
        )
    network = settings.network
    if settings.model == "cnn" and len(network["channels"]) != len(network["kernel_sizes"]):
        raise UsageError("models.cnn: channels and kernel_sizes need the same number of entries")
    if settings.model == "cnn" and any(size % 2 == 0 for size in network["kernel_sizes"]):
        raise UsageError("models.cnn: kernel_sizes must be odd, so that the length stays the same")
    if settings.model == "unet" and settings.max_length < 2 ** int(network["depth"]):
        raise UsageError("models.unet.depth: data.max_length is too short for so many levels")
