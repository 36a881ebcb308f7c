"""Train a small encoder and its classifier, of the same kind as the model type lite, on the CPU.

    virnucpro train prepare genomes.tsv -o data --content records -e 500,300,150
    python examples/lite/train.py data -o my_lite
    python examples/lite/train.py more -o better --start-from my_lite/lite_encoder.safetensors

Both are trained on pieces drawn from the whole records of a data set, of all its chunk lengths;
with --steps 0, only the classifier is. The validation part calibrates the scores; without one,
they keep the calibration of --start-from. The same command goes on with an interrupted training.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn
from windows import (
    Bases,
    GenomeSet,
    WindowSampler,
    even_gc_shares,
    gc_weights,
    genome_set,
    measured_windows,
    mutated,
    note_losses,
    read_mask,
)

from virnucpro.classifier.contigs import (
    PENALTY,
    ContigModel,
    Floats,
    contig_terms,
    fit_contig_model,
)
from virnucpro.classifier.files import ClassifierInfo, classifier_to_bytes, inspect_classifier
from virnucpro.classifier.mixture import with_distributions
from virnucpro.contracts import Device
from virnucpro.encoders.lite import LITE, LiteNetwork, LiteShape, lite_to_bytes, read_lite
from virnucpro.encoders.weights import read_safetensors
from virnucpro.errors import InputError
from virnucpro.events import Event, Notice, Show, StepStarted
from virnucpro.metrics import auroc, fit_temperature
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.work import WorkIdentity
from virnucpro.training.classifier import how_to_predict
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.loop import TrainingLoop, begin_training, load_savepoint
from virnucpro.training.processes import train_on
from virnucpro.version import __version__

BATCH_BASES = 64_000
SAVED_STEPS = 200  # from one savepoint to the next: minutes of work
WARM_UP = 500  # steps, or a tenth of a training of fewer than 5,000
AVERAGED = 20  # the result is a running mean of the weights over the last twentieth of the steps
# From an earlier model on, the rate stays, and the mean is over half of the steps. Wide means are
# better on data of another kind than those of training (SWAD: Cha et al. 2021, NeurIPS 34).
AVERAGED_AGAIN = 2
# The windows of a batch have one length, but in use a model has running statistics of all lengths.
# From this share of the steps on, the batch norms use these in training, too.
SETTLED = 0.7
REWEIGHED = 100  # steps from one change of the shares of groups to the next
OFTENER = 3.0  # a factor for groups that matter more than their bases say
SHORTENED = 0.3  # how often the windows of a length are cut to between 70 and 100 % of it

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d


def has_bf16() -> bool:
    """Return whether the processor multiplies in bf16; without, fp32 is 3 to 8 times as fast.

    Older versions of torch do not say so.
    """
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16"))


@dataclass(frozen=True)
class LiteTrainingSettings:
    """The settings of a lite training."""

    steps: int = 18_000  # batches
    seed: int = 0
    shape: LiteShape = field(default_factory=LiteShape)
    hidden: int = 128  # units of the classifier
    dropout: float = 0.2  # of hidden units; of the embeddings, half of it
    learning_rate: float = 2e-3  # of AdamW, with a warm-up and a cosine
    weight_decay: float = 0.01
    label_smoothing: float = 0.02  # some genes of a phage are bacterial, and the reverse
    mutation_rate: float = 0.05  # mean fraction of bases that are replaced in half of the windows
    more_of: tuple[str, ...] = ()  # groups that are drawn ``OFTENER`` times as often


class LiteModel(nn.Module):
    """The encoder, and the classifier on top. Its names are those of the classifier file."""

    def __init__(self, settings: LiteTrainingSettings) -> None:
        super().__init__()
        self.encoder = LiteNetwork(settings.shape)
        self.drop = nn.Dropout(settings.dropout / 2)
        self.hidden_layer = nn.Linear(settings.shape.dim, settings.hidden)
        self.bn1 = nn.BatchNorm1d(settings.hidden)
        self.drop_hidden = nn.Dropout(settings.dropout)
        self.output_layer = nn.Linear(settings.hidden, 2)

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        """Return the logits of others and virus: int64 ``[B, L]`` to float32 ``[B, 2]``."""
        hidden = self.hidden_layer(self.drop(self.encoder(bases))).float()
        hidden = self.drop_hidden(F.relu(self.bn1(hidden)))
        return torch.as_tensor(self.output_layer(hidden)).float()


Windows = tuple[Bases, npt.NDArray[np.int64]]
"""Windows, uint8 ``[n, L]``, and the records that they are from."""


class LiteLoop(TrainingLoop):
    """Trains a model on windows of genomes: the windows of a batch have one length.

    ``SAVED_STEPS`` steps are what an epoch is to other trainings; they are not validated: the model
    is measured when it is finished. It multiplies
    in bf16 where the processor has instructions for it, else in fp32. The same arguments give the
    same weights on one machine with the same number of threads, also if it was interrupted.
    """

    def __init__(
        self,
        savepoint: Path,
        settings: LiteTrainingSettings,
        genomes: GenomeSet,
        lengths: Sequence[int],
        start: LiteModel | None,
        device: torch.device,
    ) -> None:
        """Draw the first weights, or take those of ``start``, and load the savepoint."""
        self._settings, self._genomes = settings, genomes
        self._samplers = [(length, WindowSampler(genomes, length)) for length in lengths]
        torch.manual_seed(settings.seed)
        self._steady, model = start is not None, LiteModel(settings)
        if start is not None:
            model.load_state_dict(start.state_dict())
        every = list(model.parameters())
        groups = [  # decay of anything but matrices and kernels would distort scales
            {"params": [p for p in every if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
        ]
        epochs = max(1, math.ceil(settings.steps / SAVED_STEPS))
        super().__init__(
            savepoint,
            model,
            torch.optim.AdamW(groups, lr=settings.learning_rate),
            (epochs, epochs),
            device,
            averaged=settings.steps / (AVERAGED_AGAIN if self._steady else AVERAGED),
            precision="bf16" if has_bf16() else "fp32",
        )
        self._step = self.savepoint.epoch * SAVED_STEPS
        self._random = np.random.default_rng(settings.seed)
        self._group_losses = np.ones(len(genomes.group_names))
        self._gc_shares = even_gc_shares()
        if unknown := set(settings.more_of) - set(genomes.group_names):
            raise InputError(f"the training part has no group {min(unknown)!r} to draw more of")
        factors = np.ones(len(genomes.group_names))
        if extra := self.savepoint.extra:
            torch.set_rng_state(extra["torch"])
            self._random.bit_generator.state = extra["numpy"]
            self._group_losses = np.array(extra["group_losses"])
            self._gc_shares = np.array(extra["gc_shares"])
            factors = np.array(extra["factors"])
        self._reweigh(factors)

    def extra_state(self) -> dict[str, Any]:
        """Return the state of the random generators and of what is counted."""
        return {
            "torch": torch.get_rng_state(),
            "numpy": self._random.bit_generator.state,
            "group_losses": self._group_losses.tolist(),
            "factors": self._factors.tolist(),
            "gc_shares": self._gc_shares.tolist(),
        }

    def batches(self, epoch: int) -> tuple[list[int], Iterator[Windows]]:
        """Return steps, each with its batch."""
        steps = min(SAVED_STEPS, self._settings.steps - epoch * SAVED_STEPS)
        return [1] * steps, (self._draw() for _ in range(steps))

    def rate(self, epochs: float) -> float:
        """Return the learning rate of the next step: a short rise, then steady or half a cosine."""
        step, steps = self._step, self._settings.steps
        rise = min(1.0, (step + 1) / min(WARM_UP, steps // 10 + 1))
        cosine = 1.0 if self._steady else 0.5 + 0.5 * math.cos(math.pi * step / steps)
        return self._settings.learning_rate * (rise * cosine + 1e-3)

    def merit(self, row: Mapping[str, float]) -> float:
        """Return what makes the last step the best."""
        return row["epoch"]

    def step(self, number: int, content: Windows) -> torch.Tensor:
        """Train on one batch, and return its loss."""
        windows, records = content
        self._settle_norms()
        labels = torch.from_numpy(self._genomes.virus[records].astype(np.int64))
        with self.autocast():
            logits = self.model(torch.from_numpy(windows).long())
        smoothing = self._settings.label_smoothing
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        weights = gc_weights(self._gc_shares, windows, labels.numpy())
        loss = (torch.from_numpy(weights) * losses).sum() / float(weights.sum())
        self.descend(loss, largest_gradient=1.0)
        groups = self._genomes.groups[records]
        note_losses(self._group_losses, groups, losses.detach().numpy())
        self._step += 1
        if self._step % REWEIGHED == 0:
            self._reweigh(self._group_losses / self._group_losses.mean())
        return loss.detach()

    def _reweigh(self, factors: npt.NDArray[np.float64]) -> None:
        self._factors = factors
        more = np.isin(self._genomes.group_names, self._settings.more_of)
        for _, sampler in self._samplers:
            sampler.reweigh(np.where(more, OFTENER, 1.0) * factors)

    def _settle_norms(self) -> None:
        """Let the batch norms use the statistics of their batch, or later those of all lengths."""
        settled = 0 if self._steady else int(SETTLED * self._settings.steps)
        assert self.average is not None
        for own, mean in zip(self.network.modules(), self.average.module.modules(), strict=True):
            if not isinstance(own, BatchNorm):
                continue
            own.train(self._step < settled)
            if self._step == settled:
                means = {k: v for k, v in mean.state_dict().items() if k.startswith("running")}
                own.load_state_dict(own.state_dict() | means)

    def _draw(self) -> Windows:
        """Return the next batch."""
        random = self._random
        length, sampler = self._samplers[int(random.integers(len(self._samplers)))]
        if random.random() < SHORTENED:
            length = int(length * random.uniform(0.7, 1.0))
        records, offsets = sampler.draw(max(2, BATCH_BASES // length // 2 * 2), length, random)
        windows = self._genomes.windows(records, offsets, length)
        return mutated(windows, self._settings.mutation_rate, random), records


def window_rows(
    network: nn.Module,
    genomes: GenomeSet,
    records: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.float32]:
    """Return what an encoder or a model makes of windows, as in ``predict``: float32 ``[n, D]``."""
    rows = []
    size = max(1, BATCH_BASES // length)
    with torch.inference_mode():
        for start in range(0, len(records), size):
            part = slice(start, start + size)
            windows = genomes.windows(records[part], offsets[part], length)
            rows.append(network(torch.from_numpy(windows).long()).numpy())
    return np.concatenate(rows)


MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")
MEASURED_WINDOWS = 4000  # per part and chunk length
HEAD_WINDOWS = 24_000  # per chunk length, for the classifier; three times as many were not better
ENCODER, REPORT, CLASSIFIER = RESULTS = (  # the last one shows that a training is finished
    "lite_encoder.safetensors",
    "lite.json",
    "lite_classifier.safetensors",
)
CONTIGS = {1: 2000, 2: 1600, 4: 1600, 8: 800, 16: 400, 32: 300}  # by their number of chunks


def fit_lite(
    dataset: Dataset,
    root: Path,
    settings: LiteTrainingSettings,
    show: Show,
    *,
    start_from: Path | None = None,
    mask: Path | None = None,
) -> Mapping[str, Any] | None:
    """Train the model, or continue an interrupted training with the same settings and data.

    A data set without validation records of both labels leaves the calibration of an earlier
    training as it was.

    Args:
        start_from: the encoder of an earlier training, to go on from with the classifier beside it
            and a learning rate that does not fall.
        mask: a table of regions that are not trained on (:func:`windows.read_mask`).

    Returns:
        The content of ``lite.json``; None if the same training was finished before.
    """
    root = root.absolute()
    disk, savepoint = Disk(), root / "lite.savepoint.pt"
    dataset.require_content("records")
    first, started, masked = None, None, None
    if start_from is not None:
        head = start_from.with_name(CLASSIFIER)
        started, encoder = inspect_classifier(head), read_lite(start_from)
        settings = replace(settings, hidden=started.model.hidden, shape=encoder.shape)
        first = LiteModel(settings)
        first.load_state_dict(read_safetensors(head), strict=False)
        first.encoder = encoder
    facts = asdict(settings) | {"chunk lengths": list(dataset.lengths())}
    if start_from is not None:
        facts["started from"] = hashed(start_from).sha256
        facts["started with"] = hashed(head).sha256
    if mask is not None:
        masked, facts["mask"] = read_mask(mask, dataset), hashed(mask).sha256
    digest, threads = hashed(dataset.description_file).sha256, torch.get_num_threads()
    identity = {"settings": facts, "data_set": digest, "threads": threads}
    wanted = WorkIdentity(f"the training of the encoder in {root.name}", _named(identity))
    earlier: dict[str, Any] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        # A finished training is the same one with any number of threads.
        earlier = _named({**parse_json((root / REPORT).read_bytes()), "threads": threads})
    files = [root / name for name in RESULTS]
    if begin_training(wanted, savepoint, files, earlier, disk, show) is None:
        return None
    genomes = genome_set(dataset.records("train"), masked)
    loop = partial(LiteLoop, savepoint, settings, genomes, dataset.lengths(), first)
    train_on(loop, [Device("cpu", threads=threads)], show)
    model = LiteModel(settings)
    model.load_state_dict(load_savepoint(savepoint).best)
    disk.save(root / ENCODER, lite_to_bytes(model.encoder, _origin(identity)))
    encoder = read_lite(root / ENCODER)  # its weights are rounded now
    model = _with_linear_head(encoder, settings, genomes, dataset.lengths())
    results = _write_results(root, model, dataset, identity, started, disk)
    disk.remove(savepoint)
    return results


def _named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights, by names for people."""
    settings = {name.replace("_", " "): value for name, value in identity["settings"].items()}
    return {**settings, "data set": identity["data_set"], "threads": identity["threads"]}


def _origin(identity: Mapping[str, Any]) -> dict[str, str]:
    """Return what the files of a training say about how they were made."""
    settings, default = identity["settings"], LiteTrainingSettings.learning_rate
    return {
        # Without paths, so that the same training gives the same files.
        "command": f"examples/lite/train.py DATASET --output-dir DIR --steps {settings['steps']} "
        f"--seed {settings['seed']}"
        + (" --start-from ENCODER" if "started from" in settings else "")
        + (f" --learning-rate {rate:g}" if (rate := settings["learning_rate"]) != default else "")
        + (" --mask REGIONS" if "mask" in settings else "")
        + "".join(f" --more-of {shlex.quote(group)}" for group in settings["more_of"]),
        "version": __version__,
        "data_set": identity["data_set"],
    }


def _write_results(
    root: Path,
    model: LiteModel,
    dataset: Dataset,
    identity: Mapping[str, Any],
    started: ClassifierInfo | None,
    disk: Disk,
) -> Mapping[str, Any]:
    """Calibrate and measure the finished model; write the report and the classifier."""
    origin, lengths = _origin(identity), dataset.lengths()
    areas: dict[str, dict[str, Any]] = {part: {} for part in MEASURED_PARTS}
    temperature, contigs = (started.temperature, started.contigs) if started else (None, {})
    for part in MEASURED_PARTS:
        genomes, measured = genome_set(dataset.records(part)), []
        for length in lengths:
            records, offsets = measured_windows(genomes, length, MEASURED_WINDOWS, 0)
            if len(records):
                logits = window_rows(model, genomes, records, offsets, length)
                virus = genomes.virus[records]
                measured.append((np.diff(logits.astype(np.float64))[:, 0], virus))
                area = auroc(virus, measured[-1][0])
                amounts = {"chunks": len(virus), "virus": int(virus.sum())}
                areas[part][str(length)] = {**amounts, "auroc": area and round(area, 4)}
        if part == "validation" and measured:
            temperature = fit_temperature(*map(np.concatenate, zip(*measured, strict=True)))
            contigs = _contig_models(model, genomes, lengths, temperature)
    digest = hashed(root / ENCODER).sha256
    report = {**origin, **identity, "temperature": temperature}
    report |= {"chunk_auroc": areas, "encoder": digest}
    disk.save(root / REPORT, (json.dumps(report, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_to_bytes(
        {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")},
        encoders=(LITE.name,),
        chunk_lengths=lengths,
        extra={**origin, "encoder_sha256": digest},
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(root / CLASSIFIER, content)
    return report


def _with_linear_head(
    encoder: LiteNetwork, settings: LiteTrainingSettings, genomes: GenomeSet, lengths: Sequence[int]
) -> LiteModel:
    """Return the encoder with a linear classifier in the form of the others: two opposite units.

    On viruses and hosts of other kinds it is better than the one that was trained with the encoder,
    on mutated windows that count by their GC, and mostly of the groups that are told apart worse.
    """
    from sklearn.linear_model import LogisticRegression

    rows, labels, random = [], [], np.random.default_rng(settings.seed)
    for length in lengths:
        sampler = WindowSampler(genomes, length)
        sampler.reweigh(np.where(np.isin(genomes.group_names, settings.more_of), OFTENER, 1.0))
        count = min(HEAD_WINDOWS, max(2, len(genomes.bases) // length // 2 * 2))
        records, offsets = sampler.draw(count, length, random)
        rows.append(window_rows(encoder, genomes, records, offsets, length))
        labels.append(genomes.virus[records])
    embeddings = np.concatenate(rows).astype(np.float64)
    mean, spread = embeddings.mean(axis=0), embeddings.std(axis=0) + 1e-6
    regression = LogisticRegression(C=1 / (PENALTY * len(embeddings)), max_iter=1000)
    regression.fit((embeddings - mean) / spread, np.concatenate(labels))
    weights = torch.from_numpy(regression.coef_ / spread)  # [1, D]
    bias = torch.from_numpy(regression.intercept_ - regression.coef_ @ (mean / spread))
    model = LiteModel(replace(settings, hidden=2))
    model.encoder = encoder
    model.hidden_layer.weight.data = torch.cat([weights, -weights]).float()
    model.hidden_layer.bias.data = torch.cat([bias, -bias]).float()
    model.output_layer.weight.data = torch.tensor([[-0.5, 0.5], [0.5, -0.5]])
    model.output_layer.bias.data = torch.zeros(2)
    return model.eval()


def _contig_models(
    model: LiteModel, genomes: GenomeSet, lengths: Sequence[int], temperature: float
) -> dict[int, ContigModel]:
    """Return how chunks make a contig, by their length; none where no record is long enough."""
    models = {}
    for length in lengths:
        terms: list[Floats] = []
        labels: list[bool] = []
        groups: list[int] = []
        for count, contigs in CONTIGS.items():
            records, starts = measured_windows(genomes, count * length, contigs, 1)
            if not len(records):
                continue
            offsets = (starts[:, None] + np.arange(count) * length).ravel()
            logits = window_rows(model, genomes, np.repeat(records, count), offsets, length)
            log_odds = np.diff(logits.astype(np.float64)).ravel() / temperature
            first, counts = np.arange(len(records)) * count, np.full(len(records), float(count))
            terms.append(contig_terms(log_odds, first, counts))
            labels += genomes.virus[records].tolist()
            groups += genomes.groups[records].tolist()
        if terms:
            known, virus = np.concatenate(terms), np.array(labels)
            fitted = fit_contig_model(known, virus)
            models[length] = with_distributions(fitted, known, virus, np.array(groups))
    return models


def show(event: Event) -> None:
    """Print messages, and how far the training is."""
    if isinstance(event, Notice):
        print(event.message, file=sys.stderr)
    elif isinstance(event, StepStarted):
        text = f"\r{event.title}, of {SAVED_STEPS} steps each"
        print(text, end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the figures, and how to predict with the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("-o", "--output-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="batches of pieces")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--learning-rate", type=float, help="highest one")
    parser.add_argument(
        "--more-of", action="append", default=[], help="draw this group three times as often"
    )
    parser.add_argument("--start-from", type=Path, help="an encoder, with its classifier beside it")
    parser.add_argument("--mask", type=Path, help="table of regions not to be trained on")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    names = ("seed", "steps", "learning_rate")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    given["more_of"] = tuple(options.more_of)
    dataset, root, others = Dataset(options.dataset), options.output_dir, vars(options)
    others = {name: others[name] for name in ("start_from", "mask")}
    report = fit_lite(dataset, root, LiteTrainingSettings(**given), show, **others)
    if report is None:
        return
    for part, lengths in report["chunk_auroc"].items():
        for bases, row in lengths.items():
            print(f"{part}, {bases} bp: AUROC {row['auroc']} of {row['chunks']:,} chunks")
    if report["temperature"] is None:
        print("no validation records of both labels: the scores are not calibrated")
    encoders = {"dnabert": str(root / ENCODER)}
    use = how_to_predict(root / CLASSIFIER, dataset.lengths()[0], encoders)
    print("\n".join(("Next: " + use[0], *use[1:])))


if __name__ == "__main__":
    main()
