"""The report of a finished training, and the model card that is written from it.

The card says what a classifier was trained on, how, and how good it is.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.columns import table_rows
from virnucpro.contracts import Json
from virnucpro.formatting import counted
from virnucpro.layout import MOLECULES
from virnucpro.metrics.classification import auroc, call_metrics, metric_text
from virnucpro.metrics.temperature import log_loss
from virnucpro.settings import SHIPPED_MODELS, AnalysisSettings
from virnucpro.training.classifier.trainer import TrainingSettings
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.version import __version__


@dataclass(frozen=True)
class TrainingReport:
    """What is known of a finished classifier.

    ``record`` is what ``train embed`` recorded, ``devices`` has one name per process, ``width`` is
    the numbers per frame, and ``metrics`` are those of :func:`frame_metrics`, by part.
    """

    dataset: Dataset
    record: Mapping[str, Json]
    settings: TrainingSettings
    command: str
    devices: Sequence[str]
    width: int
    temperature: float
    best_epoch: int
    epochs: int
    left_out: int
    metrics: Mapping[str, Mapping[str, float | None]]


def frame_metrics(
    logits: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], temperature: float
) -> dict[str, float | None]:
    """Return the metrics of frames, called as the likelier class; None for an undefined one.

    ``logits`` are ``[n, 2]`` (others, virus), ``labels`` are ``[n]`` (0 or 1).
    """
    margins, virus = (logits[:, 1] - logits[:, 0]) / temperature, labels == 1
    found = call_metrics(virus, margins > 0)
    return {
        "frames": found["rows"],
        **{name: found[name] for name in ("virus", "accuracy", "precision", "recall", "f1")},
        "auroc": auroc(virus, margins),
        "log_loss": log_loss(virus, margins),
    }


def predict_commands(report: TrainingReport, classifier: Path) -> list[str]:
    """Return the commands that use the classifier, as they can be typed into a shell.

    Encoders that no model type has are named in a configuration file, which the first of two
    commands writes.
    """
    name, length = shlex.quote(str(classifier)), report.dataset.lengths()[0]
    nucleotide, protein = (report.record["models"][molecule] for molecule in MOLECULES)
    if nucleotide["name"] == protein["name"] in SHIPPED_MODELS:
        return [f"virnucpro predict contigs.fa -m {nucleotide['name']} -p {name} -e {length}"]
    command = f"virnucpro predict contigs.fa -m custom -p {name} -e {length}"
    released = AnalysisSettings()
    if (nucleotide["name"], protein["name"]) == (released.nucleotide_model, released.protein_model):
        return [command]
    names = {
        key: {"model_name": model["path"] if Path(model["name"]).exists() else model["name"]}
        for key, model in (("dnabert", nucleotide), ("esm", protein))
    }
    configuration = shlex.quote(str(classifier.with_suffix(".yaml")))
    text = shlex.quote(json.dumps({"features": names}, ensure_ascii=False))
    return [f"echo {text} > {configuration}", f"{command} -c {configuration}"]


def card_text(report: TrainingReport, name: str) -> str:
    """Return the card of the classifier file ``name``, in Markdown."""
    lengths = " or ".join(map(str, report.dataset.lengths()))
    inputs = ", then ".join(
        f"the {model['dim']} numbers of {_plain(model['name'])} ({_plain(model['family'])})"
        for model in (report.record["models"][molecule] for molecule in MOLECULES)
    )
    lines = [
        f"# {_plain(name)}",
        "",
        "Scores open reading frames of DNA as viral or not, from two embeddings of each frame.",
        "",
        f"- Input: {inputs}; {report.width} in all.",
        f"- Chunk length: {lengths} bases.",
        "- Use:",
        "",
        *(f"      {command}" for command in predict_commands(report, Path(name))),
        "",
        f"- Made by virnucpro {__version__}.",
        *("", "## Training data", "", *_training_data(report)),
        *("", "## Training", "", *_training(report)),
        *("", "## How good it is", "", *_metrics(report)),
        "",
        "## Limits",
        "",
        f"- Nothing is known about chunks of other lengths than {lengths} bases.",
        "- Only chunks with an open reading frame get a score.",
        "- Groups of organisms that are not in the table above were not seen in training.",
        "- Scores are calibrated for the share of viral frames in the validation part; a sample "
        "with another share shifts them.",
        "- `virnucpro predict` calls a record by all of its chunks: these metrics are not those "
        "of records.",
    ]
    return "\n".join(lines) + "\n"


def _training_data(report: TrainingReport) -> list[str]:
    lines = ["Sources:", ""]
    for source in report.dataset.description.get("sources", ()):
        file, digest = _plain(Path(str(source["file"])).name), str(source["sha256"])[:16]
        lines.append(f"- {file} (sha256 {digest}...)")
    counts: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    names = ("label", "group", "part", "genome", "frames")
    for _, (*kind, part, genome, frames) in table_rows(report.dataset.genomes_table, *names):
        for key in ((*kind, part), ("all", "", part)) if frames != "0" else ():
            counts.setdefault(key, []).append((genome, int(frames)))
    rows = []
    for group in sorted({key[:2] for key in counts}, key=lambda group: (group[0] == "all", group)):
        found = [counts.get((*group, part), []) for part in PARTS]
        amounts = [(len({g for g, _ in records}), sum(n for _, n in records)) for records in found]
        rows.append((*group, *(f"{g:,} ({n:,})" if n else "-" for g, n in amounts)))
    lines += ["", "Genomes (open frames), by part; no genome is in two parts:", ""]
    lines += _table(("class", "group", *PARTS), rows)
    if report.left_out:
        lines += ["", f"{report.left_out:,} of these frames could not be embedded: left out."]
    return [*lines, "", f"Data set (sha256 of dataset.json): {report.record['data_set']}"]


def _training(report: TrainingReport) -> list[str]:
    counts = Counter(report.devices)
    devices = " and ".join(f"{count} x {_plain(name)}" for name, count in counts.items())
    settings = asdict(report.settings).items()
    return [
        f"Best of {report.epochs} epochs by validation loss: epoch {report.best_epoch}. "
        f"Trained on {devices} ({counted(len(report.devices), 'process', 'processes')}). "
        f"The encoders computed in {report.record['precision']}.",
        "",
        f"    {report.command}",
        "",
        *_table(("setting", "value"), [(name.replace("_", " "), v) for name, v in settings]),
    ]


def _metrics(report: TrainingReport) -> list[str]:
    parts = list(report.metrics)
    rows = []
    for name in next(iter(report.metrics.values())):
        values = [report.metrics[part][name] for part in parts]
        texts = [f"{v:,}" if isinstance(v, int) else metric_text(v) for v in values]
        rows.append((name.replace("_", " "), *texts))
    test_part = "The test part was used for nothing but this table."
    return [
        "The metrics are those of single frames, each called as the likelier class.",
        "",
        *_table(("", *parts), rows),
        "",
        f"Scores are calibrated: logits are divided by a temperature of {report.temperature:.4g}, "
        "fitted on the validation part (Guo et al. 2017).",
        "The validation part also chose the epoch, so its metrics are somewhat too good.",
        test_part if "test" in parts else "There was no test part.",
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines]


def _plain(text: object) -> str:
    """Return names that users gave without any meaning in Markdown."""
    words = " ".join(str(text).split())
    return "".join(f"\\{c}" if c in "\\`*[]<>|#" else c for c in words)
