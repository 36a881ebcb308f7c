"""Trains a pair of lite encoders and their classifier together, end to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.encoders.lite import Inputs, branch_shape, nucleotide_inputs, protein_inputs
from virnucpro.encoders.lite_features import (
    NO_CODON,
    Census,
    Letters,
    census_features,
    protein_features,
)
from virnucpro.encoders.lite_network import NO_CODE, Branch
from virnucpro.training.censuses import CountedWords
from virnucpro.training.lite_data import RESIDUE_OF, FrameSet, Sampler

BASES_A_BATCH = 512 * 500
FLOOR = 0.002  # shares vary by 0.004 (pairs of residues) to 0.015 (codons)
WARM_UP = 200  # steps
AVERAGE = 0.998  # the weights that are kept are a running mean over some 500 steps


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

    steps: int = 9000
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


def train(
    recipe: LiteRecipe,
    sets: Sequence[FrameSet],
    clusters: npt.NDArray[np.int32],
    counted: Sequence[CountedWords],
    report: Callable[[int, float], None],
) -> Pair:
    """Train on ``sets``, one chunk length a batch, all in turn; gives the averaged weights.

    ``report`` is called after each step with its number (from 1) and its loss. The same arguments
    give the same weights on one machine with the same number of threads.
    """
    torch.manual_seed(recipe.seed)
    random = np.random.default_rng(recipe.seed)
    samplers = [Sampler(frames, clusters) for frames in sets]
    pair = Pair(recipe, len(counted))
    _standardise(pair, samplers, sets, counted, random)
    average = AveragedModel(pair, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE), use_buffers=True)
    weights = [p for p in pair.parameters() if p.ndim > 1]
    others = [p for p in pair.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others}],
        lr=recipe.learning_rate,
        weight_decay=0.0,
    )
    for step in range(recipe.steps):
        number = step % len(sets)
        size = BASES_A_BATCH // sets[number].length // 2 * 2
        drawn = samplers[number].draw(size, recipe.mutated, random)
        nucleotide, protein = _inputs(drawn.codons, drawn.clusters, counted)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe.steps)
        with torch.autocast("cpu", torch.bfloat16):
            logits = pair(nucleotide, protein)
        labels = torch.from_numpy(drawn.virus.astype(np.int64))
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.smoothing)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(pair)
        report(step + 1, float(loss.detach()))
    trained: Pair = average.module
    return trained.eval()


def margins(
    pair: Pair, frames: FrameSet, censuses: Sequence[Census], batch: int = 512
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


def chunk_margins(
    found: npt.NDArray[np.float32], frames: FrameSet
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Margins of the chunks, as the consensus takes them from frames, and their labels."""
    _, chunk = np.unique(frames.chunks, return_inverse=True)
    best = np.full(chunk.max() + 1, -np.inf, np.float32)
    worst = np.full(chunk.max() + 1, np.inf, np.float32)
    virus = np.zeros(chunk.max() + 1, np.bool_)
    np.maximum.at(best, chunk, found)
    np.minimum.at(worst, chunk, found)
    virus[chunk] = frames.virus
    # max_score_1 is the sigmoid of the best margin, max_score_0 that of minus the worst; their
    # order is that of the sum.
    return best + worst, virus


def facts(recipe: LiteRecipe) -> dict[str, float]:
    """The recipe, for metadata and the model card."""
    return asdict(recipe)


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


def _standardise(
    pair: Pair,
    samplers: Sequence[Sampler],
    sets: Sequence[FrameSet],
    counted: Sequence[CountedWords],
    random: np.random.Generator,
) -> None:
    """Mean and deviation of the features, over some batches of every length."""
    seen: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for sampler, frames in zip(samplers, sets, strict=True):
        for _ in range(10):
            drawn = sampler.draw(BASES_A_BATCH // frames.length // 2 * 2, 0.0, random)
            for several, inputs in zip(
                seen, _inputs(drawn.codons, drawn.clusters, counted), strict=True
            ):
                several.append(inputs[1])
    for branch, several in zip((pair.nucleotide, pair.protein), seen, strict=True):
        features = torch.cat(several)
        branch.mean.copy_(features.mean(dim=0))
        # A share that is nearly always nought must not become large where it is not.
        branch.scale.copy_(features.std(dim=0) + FLOOR)


def _schedule(step: int, steps: int) -> float:
    """Share of the learning rate: up within ``WARM_UP`` steps, then down along a cosine."""
    up = min(1.0, (step + 1) / WARM_UP)
    return up * (0.5 + 0.5 * math.cos(math.pi * step / steps)) + 1e-3
