"""The training of a classifier, from the features of a data set to its file and model card."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.classifier.files import (
    ClassifierMetadata,
    build_classifier,
    classifier_to_bytes,
    entry_of,
    inspect_classifier,
)
from virnucpro.contracts import MOLECULES, Device, Json
from virnucpro.errors import InputError, ModelError, UsageError
from virnucpro.events import Notice, Show
from virnucpro.formatting import counted, markdown_table, markdown_text
from virnucpro.layout import CHECKPOINTS, lock_file
from virnucpro.metrics import (
    auroc,
    call_metrics,
    fit_temperature,
    log_loss,
    metric_text,
)
from virnucpro.settings import AnalysisSettings
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity
from virnucpro.training.data.dataset import PARTS, Dataset, Part
from virnucpro.training.features import PartFeatures, RowNumbers, epoch_windows, find_features
from virnucpro.training.loop import (
    MaskedBatchNorm,
    Savepoint,
    TrainingLoop,
    begin_training,
    load_savepoint,
    random_seed,
    sum_over_processes,
)
from virnucpro.training.processes import train_on
from virnucpro.version import __version__

STEP_EPOCHS, STEP_FACTOR = 10, 0.85  # train.py of the original: StepLR(step_size=10, gamma=0.85)


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that decides the weights, beside the data.

    The defaults are those of train.py of https://github.com/Li-Jing-1997/VirNucPro.
    """

    epochs: int = 200  # the most
    batch_size: int = 32  # frames per step, over all processes together
    learning_rate: float = 0.0002  # its highest value
    momentum: float = 0.9  # of SGD
    hidden: int = 512
    dropout: float = 0.5
    patience: int = 5  # epochs without a lower validation loss before training stops
    seed: int = 42  # of first weights, order and dropout
    precision: str = "fp32"  # of the matrix products; all else is fp32


OPTIONS = ("hidden", "epochs", "batch_size", "learning_rate", "patience", "seed", "precision")
"""The settings that have an option on the command line."""


class ClassifierNetwork(nn.Module):
    """Linear layer, batch normalisation, ReLU, dropout, linear layer."""

    def __init__(self, width: int, settings: TrainingSettings) -> None:
        """Draw the first weights as the original does (Xavier), from the seed of the settings."""
        super().__init__()
        random = torch.Generator().manual_seed(settings.seed)
        self.hidden_layer = _linear(width, settings.hidden, random)
        # Batch normalisation takes this bias out again: its gradient consists of rounding errors.
        self.hidden_layer.bias.requires_grad_(False)
        self.bn1 = MaskedBatchNorm(settings.hidden)
        self.output_layer = _linear(settings.hidden, 2, random)
        self._keep_probability = 1 - settings.dropout

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[n, 2]`` of ``[n, width]``.

        ``mask`` ``[n, hidden]`` holds the units that dropout keeps; it is read in training only.
        """
        x = self.hidden_layer(x).float()  # [n, hidden]
        x = F.relu(self.bn1(x[..., None], torch.ones_like(x[:, :1, None]))[..., 0])
        if self.training:
            x = x * mask / self._keep_probability
        return torch.as_tensor(self.output_layer(x)).float()  # [n, 2]


def _linear(width: int, units: int, random: torch.Generator) -> nn.Linear:
    layer = nn.Linear(width, units, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=random)
    nn.init.uniform_(layer.bias, -(width**-0.5), width**-0.5, generator=random)  # torch's default
    return layer


def dropout_mask(rows: int, settings: TrainingSettings, epoch: int, batch: int) -> torch.Tensor:
    """Return which units are kept in a batch, on any device: bool ``[rows, hidden]``."""
    random = torch.Generator().manual_seed(random_seed(settings.seed, epoch, batch))
    mask = torch.empty(rows, settings.hidden, dtype=torch.bool)
    return mask.bernoulli_(1 - settings.dropout, generator=random)


FrameBatch = tuple[int, torch.Tensor, torch.Tensor]
"""The rows of a batch over all processes, and features and labels of this process."""


class ClassifierLoop(TrainingLoop):
    """Trains the classifier on merged features. The lowest validation loss is the best."""

    def __init__(
        self,
        savepoint: Path,
        settings: TrainingSettings,
        train: PartFeatures,
        validation: PartFeatures,
        device: torch.device,
    ) -> None:
        """Load the savepoint."""
        self._settings, self._train, self._validation = settings, train, validation
        network = ClassifierNetwork(train.width, settings).to(device)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, settings.learning_rate, settings.momentum)
        super().__init__(
            savepoint,
            network,
            optimizer,
            (settings.epochs, settings.patience),
            device,
            precision=settings.precision,
        )

    def batches(self, epoch: int) -> tuple[list[int], Iterator[FrameBatch]]:
        """Return the batches of an epoch, whose features are read window by window."""
        settings = self._settings
        windows = epoch_windows(self._train, settings.batch_size, settings.seed, epoch)
        return [len(batch) for window in windows for batch in window], self._read_batches(windows)

    def _read_batches(self, windows: list[list[RowNumbers]]) -> Iterator[FrameBatch]:
        for window in windows:
            own_batches = [batch[self._own_rows(len(batch))] for batch in window]
            features = self._train.take(np.concatenate(own_batches))
            parts = torch.split(features, [len(own_rows) for own_rows in own_batches])
            for batch, own_rows, part in zip(window, own_batches, parts, strict=True):
                labels = torch.from_numpy(self._train.labels[own_rows])
                yield len(batch), part, labels

    def _own_rows(self, rows: int) -> slice:
        """Return which of ``rows`` rows this process takes."""
        start, stop = (n * rows // self.processes for n in (self.process, self.process + 1))
        return slice(start, stop)

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""
        return self._settings.learning_rate * STEP_FACTOR ** (int(epochs) // STEP_EPOCHS)

    def step(self, number: int, content: FrameBatch) -> torch.Tensor:
        """Train on one batch, and return the share of this process in its loss."""
        rows, features, labels = content
        mask = dropout_mask(rows, self._settings, self.savepoint.epoch, number)
        with self.autocast():
            x = features.to(self.device)
            logits = self.model(x, mask[self._own_rows(rows)].to(self.device))
        loss = F.cross_entropy(logits, labels.to(self.device), reduction="sum") / rows
        self.descend(loss)
        return loss.detach()

    def validate(self) -> Mapping[str, float]:
        """Return cross entropy and AUROC on the validation part."""
        virus = self._validation.labels == 1
        own_rows = self._own_rows(len(virus))
        logits = torch.zeros(len(virus), 2, device=self.device)
        self.network.eval()
        unused_mask = torch.empty(0)
        with torch.no_grad():
            blocks = self._validation.blocks(own_rows.start, own_rows.stop)
            own = [self.network(x.to(self.device), unused_mask) for x in blocks]
            logits[own_rows] = torch.cat([logits[:0], *own])
            all_logits = sum_over_processes(logits).cpu().numpy().astype(np.float64)
        margins = all_logits[:, 1] - all_logits[:, 0]
        if not np.isfinite(margins).all():
            return {"validation_loss": float("nan"), "auroc": float("nan")}
        area = auroc(virus, margins)
        return {
            "validation_loss": log_loss(virus, margins),
            "auroc": float("nan") if area is None else area,
        }

    def merit(self, row: Mapping[str, float]) -> float:
        """Return the validation loss, negated."""
        return -row["validation_loss"]


def fit_classifier(
    folder: Path,
    output: Path,
    settings: TrainingSettings,
    devices: Sequence[Device],
    show: Show,
    *,
    force: bool = False,
) -> list[str] | None:
    """Train a classifier on the data set in ``folder``, or finish what an earlier start began.

    There is one process per device. Returns what came out, in sentences; None if an earlier start
    had finished it.
    """
    if output.suffix != ".safetensors" or output.is_dir():
        raise UsageError(f"--output {output}: name a file whose name ends in .safetensors")
    dataset, output = Dataset(folder.absolute()), output.absolute()
    disk = Disk()
    savepoint = output.parent / CHECKPOINTS / f"{output.name}.training.pt"
    results = (output.with_suffix(".md"), output)
    records = _embedding_records(dataset)
    record = records["train"]
    identity: dict[str, Json] = {
        "data set": record["data_set"],
        **{f"{m} model": record["models"][m]["sha256"] for m in MOLECULES},
        "precision of the encoders": record["precision"],
        "truncation": record["truncation"],
        **{
            f"{part} frames": records[part]["counts"]["frames"] - records[part]["counts"]["failed"]
            for part in ("train", "validation")
        },
        **{name.replace("_", " "): value for name, value in asdict(settings).items()},
    }
    wanted = WorkIdentity(f"the training of {output.name}", identity)
    lock = lock_file(output.parent, output.name)
    with locked(lock, "this classifier"):
        earlier: dict[str, Json] = {}
        with suppress(ModelError, LookupError, ValueError, TypeError):
            earlier = dict(parse_json(inspect_classifier(output).extra["training"]))
        point = begin_training(wanted, savepoint, results, earlier, disk, show, force=force)
        if point is None:
            return None
        show(Notice("info", "reading the features"))
        parts = {part: find_features(dataset, part) for part in PARTS if dataset.shards(part)}
        train, validation = parts["train"], parts["validation"]
        if not 0 < train.labels.mean() < 1 or not 0 < validation.labels.mean() < 1:
            raise InputError("train or validation has one class only: prepare more genomes")
        sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
        show(Notice("info", f"frames: {sizes}; {train.width:,} values each"))
        if left_out := sum(records[part]["counts"]["failed"] for part in parts):
            show(Notice("warning", f"left out: {counted(left_out, 'frame')} not embedded"))
        loop = partial(ClassifierLoop, savepoint, settings, train, validation)
        train_on(loop, devices, show)
        point = load_savepoint(savepoint)
        lines = _write_results(output, point, settings, dataset, record, parts, disk)
        disk.remove(savepoint)
        return lines


def _embedding_records(dataset: Dataset) -> Mapping[str, Mapping[str, Json]]:
    """Return what ``train embed`` recorded about every part that has frames."""
    dataset.require_content("frames")
    records: dict[str, Mapping[str, Json]] = {}
    ways: list[Sequence[Json]] = []
    for part in PARTS:
        if not dataset.shards(part):
            if part == "test":
                continue
            raise UsageError(f"{dataset.root} has no frames of {part}: prepare more genomes")
        try:
            records[part] = record = parse_json(dataset.layout(part).run_record.read_bytes())
            models = [record["models"][molecule]["sha256"] for molecule in MOLECULES]
            ways.append((record["data_set"], *models, record["truncation"], record["precision"]))
        except (OSError, ValueError, LookupError, TypeError):
            ways.append([None])
    if ways[0][0] != hashed(dataset.description_file).sha256 or any(way != ways[0] for way in ways):
        raise UsageError(f"not embedded as a whole: use virnucpro train embed {dataset.root}")
    return records


def _write_results(
    output: Path,
    point: Savepoint,
    settings: TrainingSettings,
    dataset: Dataset,
    record: Mapping[str, Json],
    parts: Mapping[Part, PartFeatures],
    disk: Disk,
) -> list[str]:
    """Fit the temperature, measure, write model card and classifier, and say what came out."""
    card = output.with_suffix(".md")
    network = build_classifier(point.best, ClassifierMetadata(), output)
    margins = {}
    for part, features in parts.items():
        if part != "train":
            rows = features.blocks(0, len(features))
            blocks = [network.scores(block, softmax=False).numpy() for block in rows]
            logits = np.concatenate(blocks)
            margins[part] = logits[:, 1].astype(np.float64) - logits[:, 0]
    temperature = fit_temperature(margins["validation"], parts["validation"].labels)
    metrics: dict[str, dict[str, str]] = {}
    for part, values in margins.items():
        virus = parts[part].labels == 1
        found, scaled = call_metrics(virus, values > 0), values / temperature
        rates = {name: found[name] for name in ("accuracy", "precision", "recall", "f1")}
        rates |= {"AUROC": auroc(virus, scaled), "log loss": log_loss(virus, scaled)}
        counts = {"frames": f"{found['rows']:,}", "virus": f"{found['virus']:,}"}
        metrics[part] = counts | {name: metric_text(rate) for name, rate in rates.items()}
    # Without a path: files made from the same data in the same way are the same to the byte.
    words = [f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in OPTIONS]
    command = f"virnucpro train classifier DATASET --output FILE.safetensors {' '.join(words)}"
    encoders, models = {}, [record["models"][molecule] for molecule in MOLECULES]
    usual = (AnalysisSettings.nucleotide_model, AnalysisSettings.protein_model)
    for key, model, name in zip(("dnabert", "esm"), models, usual, strict=True):
        if model["name"] != name:
            encoders[key] = model["path"] if Path(model["name"]).exists() else model["name"]
    facts = {
        "command": command,
        "nucleotide encoder": models[0]["name"],
        "protein encoder": models[1]["name"],
        **point.identity,
        "chunk lengths": ", ".join(map(str, dataset.lengths())),
        "kept epoch": f"{point.best_epoch} of {point.epoch}",
        "temperature of the scores": f"{temperature:.4g}",
    }
    use = how_to_predict(Path(output.name), dataset.lengths()[0], encoders)
    text = _card(output.name, use, facts, metrics)
    disk.save(card, text.encode())
    content = classifier_to_bytes(
        point.best,
        encoders=[entry_of(model["name"], model["family"]) for model in models],
        chunk_lengths=dataset.lengths(),
        extra={
            "made_by": f"virnucpro {__version__}",
            "command": command,
            "seed": str(settings.seed),
            "data_set": record["data_set"],
            "training": json.dumps(point.identity, sort_keys=True),
        },
        temperature=temperature,
    )
    disk.save(output, content)
    config = " -c my.yaml" if encoders else ""
    return [
        f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}.",
        *(
            f"{part}: frames {row['frames']}, AUROC {row['AUROC']}, accuracy {row['accuracy']}, "
            f"F1 {row['f1']}"
            for part, row in metrics.items()
        ),
        f"Scores are calibrated with a temperature of {temperature:.4g}. Rates of contigs come "
        f"from: virnucpro models calibrate custom -p {output} -e {dataset.lengths()[0]}{config}",
        f"Classifier: {output}; model card: {card}",
        "Next: " + "\n".join(how_to_predict(output, dataset.lengths()[0], encoders)),
    ]


def _card(
    file: str, use: Sequence[str], facts: Mapping[str, Json], metrics: Mapping[str, dict[str, str]]
) -> str:
    """Return the model card of the classifier ``file``, in Markdown."""
    rows = [
        (metric, *(row[metric] for row in metrics.values())) for metric in metrics["validation"]
    ]
    command = "\n".join(f"    {line}" for line in use)
    return f"""# {markdown_text(file)}

Scores open reading frames of DNA as viral or not, from two embeddings of each frame. It was made by
virnucpro {__version__}. Use:

{command}

## Training

{markdown_table(("what", "value"), facts.items())}

The file genomes.tsv of the data set says which genome is in which part, and none is in two.

## How good it is

The metrics are those of single frames, each called as the likelier class, and not those of records,
which `virnucpro predict` calls by all of their chunks.

{markdown_table(("", *metrics), rows)}

The validation part chose the epoch and the temperature of the scores (Guo et al. 2017), so its
metrics are somewhat too good. The test part was
{"used for nothing but this table" if "test" in metrics else "empty"}.

## Limits

- Nothing is known about chunks of other lengths, and only those with an open reading frame get a
  score.
- Groups of organisms that are not in the data set were not seen in training.
- A sample with another share of viral frames than the validation part shifts the scores.
"""


def how_to_predict(classifier: Path, length: int, encoders: Mapping[str, str]) -> list[str]:
    """Return lines that say how to predict with a classifier for chunks of ``length`` bases.

    ``encoders`` are names or files of encoders, by their keys in the configuration file.
    """
    command = (
        f"virnucpro predict contigs.fa -m custom -p {shlex.quote(str(classifier))} -e {length}"
    )
    if not encoders:
        return [command]
    names = (f"  {key}: {{model_name: {json.dumps(name)}}}" for key, name in encoders.items())
    return [f"{command} -c my.yaml", "with this in my.yaml:", "features:", *names]
