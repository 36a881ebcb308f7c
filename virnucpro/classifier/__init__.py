"""The classifier: its files, its scores, and the encoders it belongs to."""

from virnucpro.classifier.files import (
    LABELS,
    ClassifierInfo,
    inspect,
    load,
    to_bytes,
    with_temperature,
)
from virnucpro.classifier.fit import check_fit
from virnucpro.classifier.scoring import INNER_BATCH, Classifier

__all__ = [
    "INNER_BATCH",
    "LABELS",
    "Classifier",
    "ClassifierInfo",
    "check_fit",
    "inspect",
    "load",
    "to_bytes",
    "with_temperature",
]
