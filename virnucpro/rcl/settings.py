"""The settings of a training, under the keys of the ``config.yaml`` of RCL-identifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, to_builtins

from virnucpro.configuration import parse_yaml
from virnucpro.contracts import Json
from virnucpro.errors import UsageError

Count = Annotated[int, Meta(ge=1, le=1 << 30)]
Size = Annotated[int, Meta(ge=1, le=1 << 16)]
Share = Annotated[float, Meta(ge=0, le=1)]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]


class DataSettings(Struct, frozen=True):
    """The proteins that are trained on: longer ones are left out."""

    max_length: Annotated[int, Meta(ge=16, le=1 << 20)] = 1024
    train_split: Annotated[float, Meta(gt=0, lt=1)] = 0.8
    random_seed: Annotated[int, Meta(ge=0, le=1 << 31)] = 42  # of all random choices
    train_serpin: str | None = None
    train_non_serpin: str | None = None


class CnnSettings(Struct, frozen=True):
    """The arguments of :class:`virnucpro.rcl.networks.RclCnn`."""

    channels: tuple[Size, ...] = (256, 128, 64, 32)
    kernel_sizes: tuple[Size, ...] = (7, 5, 5, 3)
    dropout: Dropout = 0.3

    def __post_init__(self) -> None:
        """Check that every layer has a kernel, and keeps the length of a protein."""
        sizes = self.kernel_sizes
        if not sizes or len(sizes) != len(self.channels) or any(size % 2 == 0 for size in sizes):
            raise ValueError("kernel_sizes needs an odd number for each of the channels")


class UnetSettings(Struct, frozen=True):
    """The arguments of :class:`virnucpro.rcl.networks.RclUnet`."""

    base_filters: Annotated[int, Meta(ge=2, le=4096)] = 32
    depth: Annotated[int, Meta(ge=1, le=10)] = 4
    dropout: Dropout = 0.25
    attention: bool = True


class LstmSettings(Struct, frozen=True):
    """The arguments of :class:`virnucpro.rcl.networks.RclLstm`."""

    hidden_dim: Size = 256
    num_layers: Annotated[int, Meta(ge=1, le=64)] = 2
    dropout: Dropout = 0.3


class NetworkSettings(Struct, frozen=True):
    """The settings of each kind of network."""

    cnn: CnnSettings = CnnSettings()
    unet: UnetSettings = UnetSettings()
    lstm: LstmSettings = LstmSettings()


class FitSettings(Struct, frozen=True):
    """How a network is trained.

    Attributes:
        patience: epochs without a higher F1 of the validation part before training stops. With
            ``reduce_on_plateau``, half of it before the learning rate is halved.
        loss_weights: of residues outside the RCL, and of those in it.
        fragments: share of the proteins of a batch that are cut to a random half or more.
        averaged: steps over which the weights are averaged, as a running mean: the weight of a step
            falls by this part of itself with each later one. A tenth of all steps where that is
            less; 0 keeps the weights of the last step.
    """

    batch_size: Annotated[int, Meta(ge=2, le=1 << 20)] = 32  # over all processes together
    epochs: Count = 30
    learning_rate: Annotated[float, Meta(gt=0, le=1e3)] = 0.001  # the highest one
    weight_decay: Weight = 0.0001  # Adam adds it to the gradients
    patience: Count = 10
    loss_weights: tuple[Weight, Weight] = (1.0, 5.0)
    optimizer: Literal["adam"] = "adam"
    scheduler: Literal["reduce_on_plateau", "cosine"] = "cosine"
    fragments: Share = 0.2
    averaged: Annotated[int, Meta(ge=0, le=1 << 30)] = 200


class HardwareSettings(Struct, frozen=True):
    """Where it is trained; options replace all of these but ``mixed_precision``."""

    device: str | None = None
    use_multi_gpu: bool = False
    gpu_ids: list[int | str] = []
    mixed_precision: bool = False


class EvaluationSettings(Struct, frozen=True):
    """``threshold`` is written into the model as the one to predict with."""

    threshold: Share = 0.5


class LoggingSettings(Struct, frozen=True):
    """What is written beside the results."""

    use_tensorboard: bool = True


class OutputSettings(Struct, frozen=True):
    """``runs_dir`` is the folder of all trainings."""

    runs_dir: str = "runs"


class RclTrainingSettings(Struct, frozen=True):
    """Everything that decides a training, beside the content of the tables.

    ``split`` is ``random``, ``clusters``, or a table of parts.
    """

    encoding: str = "onehot"
    model: Literal["cnn", "unet", "lstm"] = "unet"
    split: str = "clusters"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    esm_model: str | None = None
    data: DataSettings = DataSettings()
    models: NetworkSettings = NetworkSettings()
    training: FitSettings = FitSettings()
    hardware: HardwareSettings = HardwareSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    logging: LoggingSettings = LoggingSettings()
    output: OutputSettings = OutputSettings()

    @property
    def tables(self) -> tuple[Path, Path | None]:
        """The tables of the proteins with an RCL and without. UsageError where none is named."""
        serpins, others = self.data.train_serpin, self.data.train_non_serpin
        if serpins is None:
            raise UsageError("name the proteins with an RCL: --serpins, or data.train_serpin")
        return Path(serpins), Path(others) if others else None

    @property
    def network(self) -> dict[str, Any]:
        """The keyword arguments of the network that is trained."""
        return dict(to_builtins(getattr(self.models, self.model)))


def training_settings(
    path: Path | None, options: Mapping[str, Json]
) -> tuple[RclTrainingSettings, list[str]]:
    """Return the settings of a configuration file, with options on top.

    ``options`` are named as in the file; None is an option that was not given. The second value is
    a warning on keys of the file without a meaning, if there are any.
    """
    content = dict(parse_yaml(path)) if path else {}
    known = set(_keys(to_builtins(RclTrainingSettings())))
    unused = [name for name in _keys(content) if name not in known]
    text = f"{path}: these keys have no meaning here and are not read: {', '.join(unused)}"
    try:
        values = _merged(_merged({}, content), options)
        settings = convert(values, RclTrainingSettings, strict=False)
    except (TypeError, ValueError) as error:  # of msgspec, or a section that is not one
        raise UsageError(f"{path}: {error}" if path else str(error)) from error
    return settings, [text] if unused else []


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``top``, whose null values and empty lists are not set."""
    values = dict(base)
    for name, value in top.items():
        if isinstance(value, Mapping):
            values[name] = _merged(values.get(name) or {}, value)
        elif value is not None and value != []:
            values[name] = value
    return values


def _keys(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of the values of nested sections, such as ``data.max_length``."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
