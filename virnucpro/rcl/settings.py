"""The settings of a training of the RCL predictor, and the configuration file of RCL-identifier.

Of its ``config.yaml`` all keys are accepted, and the keys without a meaning here are named in one
warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from virnucpro.contracts import Json
from virnucpro.errors import ConfigError, UsageError

PLATEAU_FACTOR = 0.5  # of the original: ReduceLROnPlateau(mode="max", factor=0.5)

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

    recipe: str = "modern"
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

    def with_values(self, values: Mapping[str, Any]) -> RclTrainingSettings:
        """Return the settings with ``values`` in their place; other names are left alone."""
        given = values.get("networks", {})
        networks = {kind: {**facts, **given.get(kind, {})} for kind, facts in self.networks.items()}
        own = {f.name: values[f.name] for f in fields(self) if f.name in values}
        return replace(self, **(own | {"networks": networks}))

    @property
    def network(self) -> dict[str, Any]:
        """The keyword arguments of the network that is trained."""
        return dict(self.networks[self.model])

    @property
    def masked(self) -> bool:
        """Whether the padding has no influence."""
        return self.recipe == "modern"

    def facts(self) -> dict[str, Json]:
        """Return the settings by name; of the networks only the one that is trained."""
        facts = asdict(self)
        del facts["networks"]
        if not self.averaged:  # as before there was a mean, so that such trainings can go on
            del facts["averaged"]
        return {**facts, "loss_weights": list(self.loss_weights), "network": self.network}


RCL_RECIPES: Mapping[str, RclTrainingSettings] = {
    # The defaults of the config.yaml of RCL-identifier.
    "original": RclTrainingSettings(recipe="original"),
    "modern": RclTrainingSettings(
        epochs=30, patience=10, scheduler="cosine", fragments=0.2, averaged=200
    ),
}


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


LARGEST = 1 << 30


class Key(NamedTuple):
    """A key of the file: the setting that it fills, and what a value may be.

    Attributes:
        setting: a field of :class:`virnucpro.rcl.settings.RclTrainingSettings`, or what the command
            line calls it; for a network the name of an argument.
        kind: type of the value, or of the entries of a list.
        least: smallest number.
        most: largest number.
        entries: of a list; 0 for any number from 1, None for a single value.
        choices: the texts that are accepted; all if empty.
    """

    setting: str
    kind: type
    least: float = 0
    most: float = LARGEST
    entries: int | None = None
    choices: tuple[str, ...] = ()


TINY = 1e-12  # the least of numbers above zero
KEYS: Mapping[str, Key] = {
    "data.max_length": Key("max_length", int, 16, 1 << 20),
    "data.train_split": Key("train_split", float, TINY, 1 - TINY),
    "data.random_seed": Key("seed", int),
    "data.train_serpin": Key("serpins", str),
    "data.train_non_serpin": Key("others", str),
    "encoding.esm2.model_name": Key("esm_model", str),
    "models.cnn.channels": Key("channels", int, 1, 1 << 16, 0),
    "models.cnn.kernel_sizes": Key("kernel_sizes", int, 1, 1 << 16, 0),
    "models.cnn.dropout": Key("dropout", float, 0, 0.99),
    "models.unet.base_filters": Key("base_filters", int, 2, 4096),
    "models.unet.depth": Key("depth", int, 1, 10),
    "models.unet.dropout": Key("dropout", float, 0, 0.99),
    "models.unet.attention": Key("attention", bool),
    "models.lstm.hidden_dim": Key("hidden_dim", int, 1, 1 << 14),
    "models.lstm.num_layers": Key("num_layers", int, 1, 64),
    "models.lstm.dropout": Key("dropout", float, 0, 0.99),
    "training.batch_size": Key("batch_size", int, 2),
    "training.epochs": Key("epochs", int, 1),
    "training.learning_rate": Key("learning_rate", float, TINY, 1e3),
    "training.weight_decay": Key("weight_decay", float, 0, 1e3),
    "training.patience": Key("patience", int, 1),
    "training.loss_weights": Key("loss_weights", float, 0, 1e6, 2),
    "training.optimizer": Key("optimizer", str, choices=("adam", "adamw")),
    "training.scheduler": Key("scheduler", str, choices=("reduce_on_plateau", "cosine", "none")),
    "evaluation.threshold": Key("threshold", float, 0, 1),
    "hardware.device": Key("device", str),
    "hardware.use_multi_gpu": Key("multi_gpu", bool),
    "hardware.gpu_ids": Key("gpu_ids", str, entries=0),
    "hardware.mixed_precision": Key("mixed_precision", bool),
    "logging.use_tensorboard": Key("tensorboard", bool),
    "output.runs_dir": Key("runs", str),
}
# The tables of the test are named to ``rcl evaluate``; the others repeat what has one value here.
SILENT = ("data.test_serpin", "data.test_non_serpin", "training.monitor", "training.mode")


def read_rcl_configuration(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read a configuration file of a training.

    Returns:
        The values that the file gives, by the names of ``KEYS``; of networks, under ``networks``,
        by kind and name. And a warning on keys without a meaning, if there are any.

    Raises:
        ConfigError: it is missing or not YAML, or a value is not usable; names the key.
    """
    try:
        content = yaml.safe_load(path.read_bytes()) or {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections such as data and training")
    values: dict[str, Any] = {"networks": {"cnn": {}, "unet": {}, "lstm": {}}}
    unused: list[str] = []
    for name, value in _flattened(content):
        key = KEYS.get(name)
        if key is None:
            unused += [] if name in SILENT else [name]
        elif value is not None and value != []:
            section, kind = name.split(".")[:2]
            place = values["networks"][kind] if section == "models" else values
            place[key.setting] = _checked(value, key, f"{path}: {name}")
    for name in ("serpins", "others", "runs"):
        if name in values:
            values[name] = Path(values[name])
    if "gpu_ids" in values:
        values["gpu_ids"] = ",".join(values["gpu_ids"])
    if values.get("device") == "cuda" and not values.get("multi_gpu"):
        del values["device"]  # what the program does anyway where there is a GPU
    text = f"{path}: these keys have no meaning here and are not read: {', '.join(unused)}"
    return values, [text] if unused else []


def _flattened(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested sections by their key, such as ``data.max_length``."""
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key.count(".") < 3:
            yield from _flattened(value, f"{key}.")
        else:
            yield key, value


def _checked(value: Any, key: Key, place: str) -> Any:
    """Return a value in the type of its key.

    Raises:
        ConfigError: it is not what the key expects.
    """
    if key.entries is not None:
        count = len(value) if isinstance(value, list) else 0
        if not 1 <= count <= 64 or count != (key.entries or count):
            raise ConfigError(f"{place} is {value!r}, expected a list such as [1, 5]")
        return [_checked(entry, key._replace(entries=None), place) for entry in value]
    names = {bool: "true or false", str: "a text", int: "a whole number", float: "a number"}
    expected = ", ".join(key.choices) or names[key.kind]
    if key.kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            value = float(value)  # YAML reads 1e-3 as text
        except ValueError:
            value = str(value)
    if key.kind is str and isinstance(value, int):
        value = str(value)  # the number of a GPU
    good = type(value) is key.kind and (not key.choices or value in key.choices)
    if good and key.kind in (int, float):
        good = key.least <= value <= key.most
        expected += f" from {key.least:g} to {key.most:g}"
    if not good or value == "":
        raise ConfigError(f"{place} is {value!r}, expected {expected}")
    return value
