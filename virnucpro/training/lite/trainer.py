"""The lite encoders and their classifier in training: settings, network, trainer and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.encoders.lite import (
    NO_CODE,
    Branch,
    Inputs,
    branch_shape,
    nucleotide_inputs,
    protein_inputs,
)
from virnucpro.encoders.lite_features import (
    NO_CODON,
    WordCounts,
    protein_features,
    word_count_features,
)
from virnucpro.training.classifier.network import weight_decay_groups
from virnucpro.training.lite.frames import RESIDUE_OF, FrameSampler, FrameSet, LiteBatch
from virnucpro.training.lite.word_counts import FoldedWordCounts

BASES_PER_BATCH = 512 * 500
STANDARDISATION_BATCHES = 10  # per chunk length
LEAST_DEVIATION = 0.002  # shares vary by 0.004 (pairs of residues) to 0.015 (codons)
WARM_UP = 200  # steps, or a tenth of a training of fewer than 2,000
AVERAGED = 12  # the result is a running mean of the weights over the last twelfth of the steps


@dataclass(frozen=True)
class LiteTrainingSettings:
    """The settings of a lite training. They were chosen by trial on the validation part.

    Attributes:
        steps: batches.
        seed: the seed of the weights, the batches and the dropout.
        dim: numbers per embedding.
        hidden: units of the classifier.
        dropout: the fraction of hidden units that are left out; of the embeddings, half of it.
        learning_rate: of AdamW, with a warm-up and a cosine.
        weight_decay: of AdamW.
        label_smoothing: some frames of a phage are bacterial, and the reverse.
        mutation_rate: the mean fraction of codons that are replaced in half of the frames.
    """

    steps: int = 6000
    seed: int = 0
    dim: int = 256
    hidden: int = 256
    dropout: float = 0.4
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    label_smoothing: float = 0.02
    mutation_rate: float = 0.1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a short rise, then a cosine."""
        rise = min(1.0, (step + 1) / min(WARM_UP, self.steps // 10 + 1))
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / self.steps)
        return self.learning_rate * (rise * cosine + 1e-3)


class LitePair(nn.Module):
    """Both encoders and the classifier on top. Its names are those of the classifier file."""

    def __init__(self, settings: LiteTrainingSettings, word_counts: int) -> None:
        super().__init__()
        self.nucleotide = Branch(branch_shape("nucleotide", 0, settings.dim))
        self.protein = Branch(branch_shape("protein", word_counts, settings.dim))
        self.drop = nn.Dropout(settings.dropout / 2)
        self.hidden_layer = nn.Linear(2 * settings.dim, settings.hidden)
        self.bn1 = nn.BatchNorm1d(settings.hidden)
        self.drop_hidden = nn.Dropout(settings.dropout)
        self.output_layer = nn.Linear(settings.hidden, 2)

    def forward(self, nucleotide: Inputs, protein: Inputs) -> torch.Tensor:
        """Return the logits of others and virus: float32 ``[B, 2]``."""
        merged = torch.cat([self.nucleotide(*nucleotide), self.protein(*protein)], dim=1)
        hidden = self.hidden_layer(self.drop(merged)).float()
        hidden = self.drop_hidden(F.relu(self.bn1(hidden)))
        return torch.as_tensor(self.output_layer(hidden)).float()

    def classifier_state(self) -> dict[str, torch.Tensor]:
        """Return the state of the classifier alone."""
        layers = ("hidden_layer.", "bn1.", "output_layer.")
        return {name: v for name, v in self.state_dict().items() if name.startswith(layers)}


class LiteTrainer:
    """Trains a pair on ``sets``. A batch has one chunk length; the lengths take turns.

    The same arguments give the same weights on one machine with the same number of threads, also
    if the training was stopped and continued with :meth:`state`.
    """

    def __init__(
        self,
        settings: LiteTrainingSettings,
        sets: Sequence[FrameSet],
        clusters: npt.NDArray[np.int32],
        folded_counts: Sequence[FoldedWordCounts],
    ) -> None:
        """Draw the first weights, and standardise the features.

        ``clusters`` is int32 ``[genomes]``. A frame looks words up in ``folded_counts`` without
        its own fold.
        """
        torch.manual_seed(settings.seed)
        self.step = 0
        self.losses: list[float] = []
        self._settings = settings
        self._sets = sets
        self._folded_counts = folded_counts
        self._random = np.random.default_rng(settings.seed)
        self._samplers = [FrameSampler(frames, clusters) for frames in sets]
        self._pair = LitePair(settings, len(folded_counts))
        self._standardise()
        decay = max(0.0, 1 - AVERAGED / settings.steps)
        running_mean = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self._average = AveragedModel(self._pair, multi_avg_fn=running_mean, use_buffers=True)
        groups = weight_decay_groups(self._pair, settings.weight_decay)
        self._optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)

    def advance(self) -> None:
        """Train on one batch."""
        settings, pair = self._settings, self._pair
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = settings.rate(self.step)
        batch = self._draw(self.step % len(self._sets), settings.mutation_rate)
        nucleotide, protein = self._inputs(batch)
        with torch.autocast("cpu", torch.bfloat16):
            logits = pair(nucleotide, protein)
        labels = torch.from_numpy(batch.virus.astype(np.int64))
        loss = F.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        self._optimizer.step()
        self._average.update_parameters(pair)
        self.losses.append(float(loss.detach()))
        self.step += 1

    def finish(self) -> LitePair:
        """Return the pair with the averaged weights, ready to be used."""
        self._pair.load_state_dict(self._average.module.state_dict())
        return self._pair.eval()

    def state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "step": self.step,
            "pair": self._pair.state_dict(),
            "average": self._average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "torch": torch.get_rng_state(),
            "numpy": self._random.bit_generator.state,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state` was taken."""
        self.step = int(state["step"])
        self._pair.load_state_dict(state["pair"])
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        self._random.bit_generator.state = state["numpy"]

    def _draw(self, set_number: int, mutation_rate: float) -> LiteBatch:
        size = max(2, BASES_PER_BATCH // self._sets[set_number].length // 2 * 2)
        return self._samplers[set_number].draw(size, mutation_rate, self._random)

    def _inputs(self, batch: LiteBatch) -> tuple[Inputs, Inputs]:
        """Return the inputs of both encoders, each frame with word counts without its own fold.

        The inputs are laid out as by :func:`protein_inputs`.
        """
        residues = RESIDUE_OF[batch.codons]
        shape = (len(residues), len(self._folded_counts), residues.shape[1])
        codes = np.full(shape, NO_CODE, np.int64)
        features = [protein_features(residues, ())]
        for number, counts in enumerate(self._folded_counts):
            word_codes, whole = counts.look_up(residues, batch.clusters)
            codes[:, number, : word_codes.shape[1]] = np.where(whole, word_codes, NO_CODE)
            features.append(word_count_features(word_codes, whole))
        protein = (
            torch.from_numpy(residues.astype(np.int64)),
            torch.from_numpy(np.concatenate(features, axis=1)),
            torch.from_numpy(codes),
        )
        return nucleotide_inputs(batch.codons), protein

    def _standardise(self) -> None:
        """Set mean and deviation of the features to those of some batches of every length."""
        inputs = [
            self._inputs(self._draw(number, 0.0))
            for number in range(len(self._sets))
            for _ in range(STANDARDISATION_BATCHES)
        ]
        for molecule, branch in enumerate((self._pair.nucleotide, self._pair.protein)):
            features = torch.cat([batch[molecule][1] for batch in inputs])
            branch.mean.copy_(features.mean(dim=0))
            # A share that is nearly always 0 must not become large where it is not 0.
            branch.scale.copy_(features.std(dim=0) + LEAST_DEVIATION)


def frame_margins(
    pair: LitePair, frames: FrameSet, word_counts: Sequence[WordCounts], batch_size: int = 512
) -> npt.NDArray[np.float32]:
    """Return the logits of virus less those of others, as in ``predict``: float32 ``[n]``."""
    margins = np.empty(len(frames.codons), np.float32)
    lengths = (frames.codons < NO_CODON).sum(axis=1)
    with torch.inference_mode():
        for length in np.unique(lengths):
            length_rows = np.flatnonzero(lengths == length)
            for start in range(0, len(length_rows), batch_size):
                rows = length_rows[start : start + batch_size]
                codons = np.ascontiguousarray(frames.codons[rows, :length])
                residues = RESIDUE_OF[codons]
                logits = pair(nucleotide_inputs(codons), protein_inputs(residues, word_counts))
                margins[rows] = (logits[:, 1] - logits[:, 0]).numpy()
    return margins


def chunk_scores(
    margins: npt.NDArray[np.float32], frames: FrameSet
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return scores and labels of the chunks, from the margins of their frames.

    A score is ``max_score_1 - max_score_0``, by which ``evaluate`` ranks chunks: float64, -1 to 1.
    """
    from scipy.special import expit

    _, chunk = np.unique(frames.chunks, return_inverse=True)
    highest = np.full(chunk.max() + 1, -np.inf)
    lowest = np.full(chunk.max() + 1, np.inf)
    virus = np.zeros(chunk.max() + 1, np.bool_)
    np.maximum.at(highest, chunk, margins)
    np.minimum.at(lowest, chunk, margins)
    virus[chunk] = frames.virus
    return np.asarray(expit(highest) - expit(-lowest)), virus
