"""Make the classifier of model type ``toy``: random weights, for the two toy encoders.

python -m tools.make_toy_classifier tests/data/toy_classifier.safetensors
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from virnucpro.classifier.files import classifier_to_bytes

INPUT, HIDDEN = 32, 8


def state() -> dict[str, torch.Tensor]:
    """The weights, the same everywhere and always."""
    random = torch.Generator().manual_seed(7)
    return {
        "hidden_layer.weight": torch.randn(HIDDEN, INPUT, generator=random),
        "hidden_layer.bias": torch.zeros(HIDDEN),
        "bn1.weight": torch.ones(HIDDEN),
        "bn1.bias": torch.zeros(HIDDEN),
        "bn1.running_mean": torch.zeros(HIDDEN),
        "bn1.running_var": torch.ones(HIDDEN),
        "output_layer.weight": torch.randn(2, HIDDEN, generator=random),
        "output_layer.bias": torch.zeros(2),
    }


if __name__ == "__main__":
    content = classifier_to_bytes(
        state(),
        encoders=["toy-nucleotide", "toy-protein"],
        chunk_lengths=[],
        extra={"made_by": "tools/make_toy_classifier.py"},
    )
    Path(sys.argv[1]).write_bytes(content)
