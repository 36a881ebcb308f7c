"""The settings of a training of the RCL predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from virnucpro.contracts import Json
from virnucpro.errors import UsageError

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
        """Return the settings with those of ``values`` in their place, other names left alone."""
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
        """Return the settings by name, of the networks only those of the one that is trained."""
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
