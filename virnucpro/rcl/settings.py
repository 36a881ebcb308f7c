"""The settings of a training, under the keys of the ``config.yaml`` of RCL-identifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, field, to_builtins
from msgspec.structs import fields

from virnucpro.configuration import nested, parse_yaml
from virnucpro.errors import UsageError
from virnucpro.settings import Count, Share

Size = Annotated[int, Meta(ge=1, le=1 << 16)]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]
Residues = Annotated[int, Meta(ge=16, le=1 << 20)]
Batch = Annotated[int, Meta(ge=2, le=1 << 20)]


class CnnSettings(Struct, frozen=True):
    """The sizes of :class:`virnucpro.rcl.models.RclCnn`."""

    channels: tuple[Size, ...] = (256, 128, 64, 32)
    kernel_sizes: tuple[Size, ...] = (7, 5, 5, 3)
    dropout: Dropout = 0.3

    def __post_init__(self) -> None:
        """Check that every layer has a kernel, and keeps the length of a protein."""
        sizes = self.kernel_sizes
        if not sizes or len(sizes) != len(self.channels) or any(size % 2 == 0 for size in sizes):
            raise ValueError("kernel_sizes needs an odd number for each of the channels")


class UnetSettings(Struct, frozen=True):
    """The sizes of :class:`virnucpro.rcl.models.RclUnet`."""

    base_filters: Annotated[int, Meta(ge=2, le=4096)] = 32
    depth: Annotated[int, Meta(ge=1, le=10)] = 4
    dropout: Dropout = 0.25
    attention: bool = True


class LstmSettings(Struct, frozen=True):
    """The sizes of :class:`virnucpro.rcl.models.RclLstm`."""

    hidden_dim: Size = 256
    num_layers: Annotated[int, Meta(ge=1, le=64)] = 2
    dropout: Dropout = 0.3


NetworkSettings = CnnSettings | UnetSettings | LstmSettings


class RclTrainingSettings(Struct, frozen=True):
    """Everything that decides a training, beside the content of the tables.

    A setting has the name of the option that fills it, and its key in the file where that differs.

    Attributes:
        split: ``random``, ``clusters``, or a table of parts.
        max_length: residues of the longest protein that is trained on.
        seed: of all random choices.
        batch_size: proteins of a step, over all processes together.
        lr: the highest learning rate.
        weight_decay: Adam adds it to the gradients.
        patience: epochs without a higher F1 of the validation part before training stops. With
            ``reduce_on_plateau``, half of it before the learning rate is halved.
        loss_weights: of residues outside the RCL, and of those in it.
        fragments: share of the proteins of a batch that are cut to a random half or more.
        averaged: steps over which the weights are averaged, as a running mean: the weight of a step
            falls by this part of itself with each later one. A tenth of all steps where that is
            less; 0 keeps the weights of the last step.
        device, use_multi_gpu, gpu_ids: where it is trained; options replace all three.
        threshold: is written into the model as the one to predict with.
        output_dir: the folder of all trainings.
    """

    encoding: str = "onehot"
    model: Literal["cnn", "unet", "lstm"] = "unet"
    split: str = "clusters"
    precision: Literal["fp32", "bf16"] = "fp32"
    esm_model: str | None = None
    max_length: Residues = field(name="data.max_length", default=1024)
    train_split: Annotated[float, Meta(gt=0, lt=1)] = field(name="data.train_split", default=0.8)
    seed: Annotated[int, Meta(ge=0, le=1 << 31)] = field(name="data.random_seed", default=42)
    serpins: str | None = field(name="data.train_serpin", default=None)
    others: str | None = field(name="data.train_non_serpin", default=None)
    cnn: CnnSettings = field(name="models.cnn", default=CnnSettings())
    unet: UnetSettings = field(name="models.unet", default=UnetSettings())
    lstm: LstmSettings = field(name="models.lstm", default=LstmSettings())
    batch_size: Batch = field(name="training.batch_size", default=32)
    epochs: Count = field(name="training.epochs", default=30)
    lr: Annotated[float, Meta(gt=0, le=1e3)] = field(name="training.learning_rate", default=0.001)
    weight_decay: Weight = field(name="training.weight_decay", default=0.0001)
    patience: Count = field(name="training.patience", default=10)
    loss_weights: tuple[Weight, Weight] = field(name="training.loss_weights", default=(1.0, 5.0))
    optimizer: Literal["adam"] = field(name="training.optimizer", default="adam")
    scheduler: Literal["reduce_on_plateau", "cosine"] = field(
        name="training.scheduler", default="cosine"
    )
    fragments: Share = field(name="training.fragments", default=0.2)
    averaged: Annotated[int, Meta(ge=0, le=1 << 30)] = field(name="training.averaged", default=200)
    device: str | None = field(name="hardware.device", default=None)
    use_multi_gpu: bool = field(name="hardware.use_multi_gpu", default=False)
    gpu_ids: tuple[int | str, ...] = field(name="hardware.gpu_ids", default=())
    mixed_precision: bool = field(name="hardware.mixed_precision", default=False)
    threshold: Share = field(name="evaluation.threshold", default=0.5)
    tensorboard: bool = field(name="logging.use_tensorboard", default=True)
    output_dir: str = field(name="output.runs_dir", default="runs")

    @property
    def tables(self) -> tuple[Path, Path | None]:
        """The tables of the proteins with an RCL and without. UsageError where none is named."""
        if self.serpins is None:
            raise UsageError("name the proteins with an RCL: --serpins, or data.train_serpin")
        return Path(self.serpins), Path(self.others) if self.others else None

    @property
    def network(self) -> NetworkSettings:
        """The settings of the network that is trained."""
        kinds: dict[str, NetworkSettings] = {"cnn": self.cnn, "unet": self.unet, "lstm": self.lstm}
        return kinds[self.model]


def training_settings(
    path: Path | None, options: Mapping[str, Any]
) -> tuple[RclTrainingSettings, list[str]]:
    """Return the settings of a configuration file, with options on top.

    ``options`` are those of a command, of which some are settings of the same name; None is an
    option that was not given. The second value is a warning on keys of the file without a meaning,
    if there are any.
    """
    content = dict(parse_yaml(path)) if path else {}
    defaults = nested(to_builtins(RclTrainingSettings()))
    known = set(_keys(defaults))
    unused = [name for name in _keys(content) if name not in known]
    text = f"{path}: these keys have no meaning here and are not read: {', '.join(unused)}"
    values: dict[str, Any] = {}
    try:
        for name, value in content.items():
            if isinstance(defaults.get(name), dict):
                values |= {f"{name}.{key}": part for key, part in (value or {}).items()}
            else:
                values[name] = value
        for setting in fields(RclTrainingSettings):
            if (option := options.get(setting.name)) is not None:
                values[setting.encode_name] = str(option) if isinstance(option, Path) else option
        given = {key: value for key, value in values.items() if value not in (None, [])}
        settings = convert(given, RclTrainingSettings, strict=False)
    except (AttributeError, ValueError) as error:  # of a section that is not one, or of msgspec
        raise UsageError(f"{path}: {error}" if path else str(error)) from error
    return settings, [text] if unused else []


def _keys(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of the values of nested sections, such as ``data.max_length``."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
