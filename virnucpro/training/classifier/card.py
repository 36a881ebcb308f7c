"""The model card of a classifier: what it was trained on, how, and how good it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from virnucpro.contracts import Json
from virnucpro.formatting import markdown_table, markdown_text
from virnucpro.layout import MOLECULES
from virnucpro.metrics.classification import metric_text
from virnucpro.settings import AnalysisSettings
from virnucpro.training.classifier.trainer import TrainingSettings
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.run import how_to_predict
from virnucpro.training.savepoint import Savepoint
from virnucpro.version import __version__


class TrainingReport(NamedTuple):
    """What is known of a finished classifier; it was trained on a process per device.

    ``record`` is what ``train embed`` recorded, ``point`` the state after the last epoch, and
    ``metrics`` are those of single frames, by part. ``left_out`` counts frames without features.
    """

    dataset: Dataset
    record: Mapping[str, Json]
    settings: TrainingSettings
    point: Savepoint
    command: str
    devices: Sequence[str]
    temperature: float
    left_out: int
    metrics: Mapping[str, Mapping[str, float | None]]

    def use(self, classifier: Path) -> list[str]:
        """Return how to predict with the classifier, and with encoders that are not the usual."""
        usual, encoders = AnalysisSettings(), {}
        names = (usual.nucleotide_model, usual.protein_model)
        for key, molecule, name in zip(("dnabert", "esm"), MOLECULES, names, strict=True):
            model = self.record["models"][molecule]
            if model["name"] != name:
                encoders[key] = model["path"] if Path(model["name"]).exists() else model["name"]
        return how_to_predict(classifier, self.dataset.lengths()[0], encoders)


def card_text(report: TrainingReport, name: str) -> str:
    """Return the card of the classifier file ``name``, in Markdown."""
    record, point, parts = report.record, report.point, list(report.metrics)
    models = [record["models"][molecule] for molecule in MOLECULES]
    inputs = ", then ".join(
        f"the {model['dim']} values of {markdown_text(model['name'])} ({model['family']})"
        for model in models
    )
    lengths = " or ".join(map(str, report.dataset.lengths()))
    sources = "\n".join(
        f"- {markdown_text(Path(source['file']).name)} (sha256 {source['sha256'][:16]}...)"
        for source in report.dataset.description["sources"]
    )
    devices = " and ".join(f"{n} x {markdown_text(d)}" for d, n in Counter(report.devices).items())
    settings = [(key.replace("_", " "), value) for key, value in asdict(report.settings).items()]
    metrics = [
        (metric.replace("_", " "), *(_number(report.metrics[part][metric]) for part in parts))
        for metric in report.metrics[parts[0]]
    ]
    test_part = "used for nothing but this table" if "test" in parts else "empty"
    return f"""# {markdown_text(name)}

Scores open reading frames of DNA as viral or not, from two embeddings of each frame.

- Input: {inputs}; {sum(model["dim"] for model in models)} in all.
- Chunk length: {lengths} bases.
- Made by virnucpro {__version__}. Use:

{_indented(report.use(Path(name)))}

## Training data

{sources}
- data set (sha256 of dataset.json): {record["data_set"]}

Genomes (open frames), by part; no genome is in two parts. Left out because they could not
be embedded: {report.left_out:,}.

{_genomes_table(report.dataset)}

## Training

Best of {point.epoch} epochs by validation loss: epoch {point.best_epoch}. Trained on {devices}. The
encoders computed in {record["precision"]}.

{_indented([report.command])}

{markdown_table(("setting", "value"), settings)}

## How good it is

The metrics are those of single frames, each called as the likelier class, and not those of records,
which `virnucpro predict` calls by all of their chunks.

{markdown_table(("", *parts), metrics)}

Scores are calibrated: logits are divided by a temperature of {report.temperature:.4g}, fitted on
the validation part (Guo et al. 2017), which also chose the epoch: its metrics are somewhat too
good. The test part was {test_part}.

## Limits

- Nothing is known about chunks of other lengths than {lengths} bases.
- Only chunks with an open reading frame get a score.
- Groups of organisms that are not in the table above were not seen in training.
- A sample with another share of viral frames than the validation part shifts the scores.
"""


def _genomes_table(dataset: Dataset) -> str:
    """Return the genomes and frames of each group, and of all, by part."""
    import pandas as pd

    options = {"keep_default_na": False, "quoting": 3}
    table = pd.read_csv(dataset.genomes_table, sep="\t", **options).query("frames > 0")
    table = pd.concat([table, table.assign(label="all", group="")])
    groups = table.groupby(["label", "group", "part"])
    genomes, frames = groups["genome"].nunique(), groups["frames"].sum()
    cells = genomes.map("{:,}".format) + frames.map(" ({:,})".format)
    parts = cells.unstack(fill_value="-")
    rows = [(*index, *row) for index, row in zip(parts.index, parts.to_numpy(), strict=True)]
    return markdown_table(("class", "group", *parts.columns), rows)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _number(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else metric_text(value)
