"""Trains a pair of lite encoders and their classifier together, end to end."""

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
    Letters,
    WordCensus,
    census_features,
    protein_features,
)
from virnucpro.training.lite.censuses import CountedWords
from virnucpro.training.lite.frames import RESIDUE_OF, Drawn, FrameSet, Sampler

BASES_A_BATCH = 512 * 500
FLOOR = 0.002  # shares vary by 0.004 (pairs of residues) to 0.015 (codons)
WARM_UP = 200  # steps, or a tenth of a training of fewer than 2,000
AVERAGED = 12  # the weights that are kept are a running mean over the last twelfth of the steps


@dataclass(frozen=True)
class LiteRecipe:
    """How the pair is trained; chosen by trial on the validation part.

    Attributes:
        steps: batches.
        seed: of the weights, the batches and the dropout.
        dim: width of each embedding.
        hidden: units of the classifier.
        dropout: on the embeddings half of it, on the hidden units all of it.
        learning_rate, weight_decay: of AdamW, with a warm-up and a cosine.
        smoothing: of the labels; some frames of a phage are bacterial, and the other way round.
        mutated: mean share of codons replaced in half of the frames.
    """

    steps: int = 6000
    seed: int = 0
    dim: int = 256
    hidden: int = 256
    dropout: float = 0.4
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    smoothing: float = 0.02
    mutated: float = 0.1


class Pair(nn.Module):
    """Both branches and the classifier on top; its names are those of the classifier file."""

    def __init__(self, recipe: LiteRecipe, censuses: int) -> None:
        super().__init__()
        self.nucleotide = Branch(branch_shape("nucleotide", 0, recipe.dim))
        self.protein = Branch(branch_shape("protein", censuses, recipe.dim))
        self.drop = nn.Dropout(recipe.dropout / 2)
        self.hidden_layer = nn.Linear(2 * recipe.dim, recipe.hidden)
        self.bn1 = nn.BatchNorm1d(recipe.hidden)
        self.drop_hidden = nn.Dropout(recipe.dropout)
        self.output_layer = nn.Linear(recipe.hidden, 2)

    def forward(self, nucleotide: Inputs, protein: Inputs) -> torch.Tensor:
        """Logits of others and virus, float32 ``[B, 2]``."""
        merged = torch.cat([self.nucleotide(*nucleotide), self.protein(*protein)], dim=1)
        hidden = self.hidden_layer(self.drop(merged)).float()
        hidden = self.drop_hidden(F.relu(self.bn1(hidden)))
        return torch.as_tensor(self.output_layer(hidden)).float()

    def classifier_state(self) -> dict[str, torch.Tensor]:
        """The classifier alone."""
        heads = ("hidden_layer.", "bn1.", "output_layer.")
        return {k: v for k, v in self.state_dict().items() if k.startswith(heads)}


class Trainer:
    """Trains on ``sets``, one chunk length a batch, all in turn.

    The same arguments give the same weights on one machine with the same number of threads, also
    when the training was stopped and went on with :meth:`state`.
    """

    def __init__(
        self,
        recipe: LiteRecipe,
        sets: Sequence[FrameSet],
        clusters: npt.NDArray[np.int32],
        counted: Sequence[CountedWords],
    ) -> None:
        """``clusters`` is int32 ``[genomes]``; frames have ``counted`` without their own fold."""
        torch.manual_seed(recipe.seed)
        self.step = 0
        self.losses: list[float] = []
        self._recipe = recipe
        self._sets = sets
        self._counted = counted
        self._random = np.random.default_rng(recipe.seed)
        self._samplers = [Sampler(frames, clusters) for frames in sets]
        self._pair = Pair(recipe, len(counted))
        self._standardise()
        decay = max(0.0, 1 - AVERAGED / recipe.steps)
        running_mean = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self._average = AveragedModel(self._pair, multi_avg_fn=running_mean, use_buffers=True)
        self._optimizer = _optimizer(self._pair, recipe)

    def advance(self) -> None:
        """One batch."""
        recipe, pair = self._recipe, self._pair
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(self.step, recipe.steps)
        drawn = self._draw(self.step % len(self._sets), recipe.mutated)
        nucleotide, protein = _inputs(drawn.codons, drawn.clusters, self._counted)
        with torch.autocast("cpu", torch.bfloat16):
            logits = pair(nucleotide, protein)
        labels = torch.from_numpy(drawn.virus.astype(np.int64))
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.smoothing)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        self._optimizer.step()
        self._average.update_parameters(pair)
        self.losses.append(float(loss.detach()))
        self.step += 1

    def finish(self) -> Pair:
        """The averaged weights, ready to be used."""
        self._pair.load_state_dict(self._average.module.state_dict())
        return self._pair.eval()

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on."""
        return {
            "step": self.step,
            "pair": self._pair.state_dict(),
            "average": self._average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "torch": torch.get_rng_state(),
            "numpy": self._random.bit_generator.state,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.step = int(state["step"])
        self._pair.load_state_dict(state["pair"])
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        self._random.bit_generator.state = state["numpy"]

    def _draw(self, number: int, mutated: float) -> Drawn:
        size = max(2, BASES_A_BATCH // self._sets[number].length // 2 * 2)
        return self._samplers[number].draw(size, mutated, self._random)

    def _standardise(self) -> None:
        """Mean and deviation of the features, over some batches of every length."""
        seen: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for number in range(len(self._sets)):
            for _ in range(10):
                drawn = self._draw(number, 0.0)
                inputs = _inputs(drawn.codons, drawn.clusters, self._counted)
                for several, own in zip(seen, inputs, strict=True):
                    several.append(own[1])
        for branch, several in zip((self._pair.nucleotide, self._pair.protein), seen, strict=True):
            features = torch.cat(several)
            branch.mean.copy_(features.mean(dim=0))
            # A share that is nearly always nought must not become large where it is not.
            branch.scale.copy_(features.std(dim=0) + FLOOR)


def margins(
    pair: Pair, frames: FrameSet, censuses: Sequence[WordCensus], batch: int = 512
) -> npt.NDArray[np.float32]:
    """Logit of virus less that of others, as ``predict`` computes it: float32 ``[n]``."""
    out = np.empty(len(frames.codons), np.float32)
    lengths = (frames.codons < NO_CODON).sum(axis=1)
    with torch.inference_mode():
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            for start in range(0, len(rows), batch):
                own = rows[start : start + batch]
                codons = np.ascontiguousarray(frames.codons[own, :length])
                inputs = nucleotide_inputs(codons), protein_inputs(RESIDUE_OF[codons], censuses)
                logits = pair(*inputs)
                out[own] = (logits[:, 1] - logits[:, 0]).numpy()
    return out


def chunk_scores(
    found: npt.NDArray[np.float32], frames: FrameSet
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Scores of the chunks and their labels, from the margins of their frames.

    A score is ``max_score_1 - max_score_0``, by which ``evaluate`` ranks chunks: float64, -1 to 1.
    """
    from scipy.special import expit

    _, chunk = np.unique(frames.chunks, return_inverse=True)
    best = np.full(chunk.max() + 1, -np.inf)
    worst = np.full(chunk.max() + 1, np.inf)
    virus = np.zeros(chunk.max() + 1, np.bool_)
    np.maximum.at(best, chunk, found)
    np.minimum.at(worst, chunk, found)
    virus[chunk] = frames.virus
    return np.asarray(expit(best) - expit(-worst)), virus


def _inputs(
    codons: Letters, clusters: npt.NDArray[np.int32], counted: Sequence[CountedWords]
) -> tuple[Inputs, Inputs]:
    """As :func:`protein_inputs`, but each frame with the censuses that do not know its genome."""
    residues = RESIDUE_OF[codons]
    codes = np.full((len(residues), len(counted), residues.shape[1]), NO_CODE, np.int64)
    features = [protein_features(residues, ())]
    for number, words in enumerate(counted):
        found, whole = words.look_up(residues, clusters)
        codes[:, number, : found.shape[1]] = np.where(whole, found, NO_CODE)
        features.append(census_features(found, whole))
    protein = (
        torch.from_numpy(residues.astype(np.int64)),
        torch.from_numpy(np.concatenate(features, axis=1)),
        torch.from_numpy(codes),
    )
    return nucleotide_inputs(codons), protein


def _optimizer(pair: Pair, recipe: LiteRecipe) -> torch.optim.AdamW:
    """Weight decay for matrices and kernels only, as is usual."""
    matrices = [p for p in pair.parameters() if p.ndim > 1]
    others = [p for p in pair.parameters() if p.ndim <= 1]
    groups: list[dict[str, object]] = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate)


def _schedule(step: int, steps: int) -> float:
    """Share of the learning rate: up within the first steps, then down along a cosine."""
    up = min(1.0, (step + 1) / min(WARM_UP, steps // 10 + 1))
    return up * (0.5 + 0.5 * math.cos(math.pi * step / steps)) + 1e-3
