"""How a classifier is trained: the original's way, and a modern one. The network is the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

RecipeName = Literal["original", "modern"]
STEP_EPOCHS, STEP_FACTOR = 10, 0.85  # train.py of the original: StepLR(step_size=10, gamma=0.85)
WARM_UP = 1.0  # epochs in which a cosine schedule rises from zero


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, beside the data.

    Attributes:
        name: which recipe it started from.
        optimizer: SGD with ``momentum``, or AdamW with ``weight_decay`` on the two matrices.
        schedule: of the learning rate: ``step``, or ``cosine`` with a warm-up.
        standardise: whether inputs get mean 0 and variance 1; folded into the first layer at the
            end, so that the finished classifier takes embeddings as they are.
        hidden: units of the hidden layer.
        dropout: share of hidden units left out at each step.
        epochs: at the most.
        batch_size: frames a step, over all processes together.
        learning_rate: its highest value.
        patience: epochs without a lower validation loss before training stops.
        seed: of first weights, order and dropout.
        precision: arithmetic of the matrix products in training; all else is fp32.
    """

    name: RecipeName
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

    def rate(self, progress: float) -> float:
        """The learning rate after ``progress`` epochs."""
        if self.schedule == "step":
            return self.learning_rate * STEP_FACTOR ** (int(progress) // STEP_EPOCHS)
        if progress < WARM_UP:
            return self.learning_rate * progress / WARM_UP
        left = (progress - WARM_UP) / max(self.epochs - WARM_UP, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * min(left, 1.0))) / 2


# train.py of https://github.com/Li-Jing-1997/VirNucPro: 512 hidden units, dropout 0.5, SGD with
# these numbers, batches of 32, at most 200 epochs, early stopping after 5.
ORIGINAL = Recipe(
    name="original",
    optimizer="sgd",
    schedule="step",
    standardise=False,
    epochs=200,
    batch_size=32,
    learning_rate=0.0002,
    momentum=0.9,
)
# Batches of 512 keep a GPU busy; AdamW at its usual rate then needs some tens of epochs. Weight
# decay and no label smoothing: that would bend the scores, which are to be calibrated afterwards.
MODERN = Recipe(
    name="modern",
    optimizer="adamw",
    schedule="cosine",
    standardise=True,
    epochs=40,
    batch_size=512,
    learning_rate=0.001,
    weight_decay=0.01,
)
RECIPES: dict[RecipeName, Recipe] = {"original": ORIGINAL, "modern": MODERN}
