"""Fit how often others look viral to lite on those of outside collections.

    python examples/lite/tail.py CLASSIFIER ENCODER DATASET

The column `fdr` follows from how often others look as viral as a record. `virnucpro train lite`
fits that on all others of the validation part of DATASET. A sample may have no host of a known
kind, so this fits it again on the groups whose names begin with "outside", and writes it into
CLASSIFIER. Scores and calls stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from virnucpro.classifier.contigs import contig_terms, with_tail
from virnucpro.classifier.files import inspect_classifier
from virnucpro.encoders.lite import read_lite
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.fitting import CONTIGS
from virnucpro.training.lite.genomes import GenomeSet, genome_set, measured_windows
from virnucpro.training.lite.trainer import LiteModel, LiteTrainingSettings, window_margins

FIELD = "virnucpro"  # of the metadata of a classifier


def terms(model: LiteModel, genomes: GenomeSet, length: int, temperature: float) -> np.ndarray:
    """Return the terms of contigs of others: float64 ``[n, 5]``."""
    rows: list[tuple[float, ...]] = []
    for count, contigs in CONTIGS.items():
        records, starts = measured_windows(genomes, count * length, contigs, 1)
        others = ~genomes.virus[records]
        records, starts = records[others], starts[others]
        offsets = (starts[:, None] + np.arange(count) * length).ravel()
        margins = window_margins(model, genomes, np.repeat(records, count), offsets, length)
        margins = margins.reshape(-1, count).astype(np.float64)
        rows += map(contig_terms, (margins / temperature).tolist())
    return np.array(rows)


def main() -> None:
    """Write the classifier again."""
    path, encoder, dataset = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    known, model = inspect_classifier(path), LiteModel(LiteTrainingSettings())
    assert known.temperature is not None
    model.load_state_dict(load_file(path), strict=False)
    model.encoder = read_lite(encoder)
    model.eval()
    # Windows are drawn of either label; those of viruses are not used.
    genomes = genome_set(
        record
        for record in Dataset(dataset).records("validation")
        if record.label == "virus" or record.group.startswith("outside")
    )
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()[FIELD])
    for length, contigs in known.contigs.items():
        rows = terms(model, genomes, length, known.temperature)
        fitted = with_tail(contigs, rows, np.zeros(len(rows), np.bool_))
        said["contigs"][str(length)] = list(fitted)
    save_file(load_file(path), path, {FIELD: json.dumps(said, sort_keys=True)})


if __name__ == "__main__":
    main()
