"""The settings of a training: those of the original program, and modern ones.

The network is the same with both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virnucpro.training.loop import cosine_rate

RecipeName = Literal["original", "modern"]
STEP_EPOCHS, STEP_FACTOR = 10, 0.85  # train.py of the original: StepLR(step_size=10, gamma=0.85)


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that decides the weights, beside the data.

    Attributes:
        recipe: the name of the settings that these started from.
        optimizer: SGD with ``momentum``, or AdamW with ``weight_decay`` on the two matrices.
        schedule: the schedule of the learning rate: ``step``, or ``cosine`` with a warm-up.
        standardise: whether inputs get mean 0 and variance 1. At the end this is folded into the
            first layer, so that the finished classifier takes embeddings as they are.
        epochs: the largest number of epochs.
        batch_size: frames per step, over all processes together.
        learning_rate: its highest value.
        momentum: of SGD.
        weight_decay: of AdamW.
        hidden: units of the hidden layer.
        dropout: the fraction of hidden units that are left out at each step.
        patience: epochs without a lower validation loss before training stops.
        seed: the seed of first weights, order and dropout.
        precision: the arithmetic of the matrix products in training; all else is fp32.
    """

    recipe: RecipeName
    optimizer: Literal["sgd", "adamw"]
    schedule: Literal["step", "cosine"]
    standardise: bool
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    hidden: int = 512
    dropout: float = 0.5
    patience: int = 5
    seed: int = 42
    precision: str = "fp32"

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many ``epochs``."""
        if self.schedule == "step":
            return self.learning_rate * STEP_FACTOR ** (int(epochs) // STEP_EPOCHS)
        return cosine_rate(self.learning_rate, epochs, self.epochs)


RECIPES: dict[RecipeName, TrainingSettings] = {
    # train.py of https://github.com/Li-Jing-1997/VirNucPro: 512 hidden units, dropout 0.5, SGD
    # with these numbers, batches of 32, at most 200 epochs, early stopping after 5.
    "original": TrainingSettings(
        recipe="original",
        optimizer="sgd",
        schedule="step",
        standardise=False,
        epochs=200,
        batch_size=32,
        learning_rate=0.0002,
        momentum=0.9,
    ),
    # Batches of 512 keep a GPU busy. With them, AdamW at its usual rate needs some tens of epochs.
    # There is weight decay and no label smoothing, because smoothed labels bend the scores, which
    # are calibrated afterwards.
    "modern": TrainingSettings(
        recipe="modern",
        optimizer="adamw",
        schedule="cosine",
        standardise=True,
        epochs=40,
        batch_size=512,
        learning_rate=0.001,
        weight_decay=0.01,
    ),
}
