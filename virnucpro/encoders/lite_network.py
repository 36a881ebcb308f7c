"""The network of a lite encoder: counts and convolutions of a frame to an embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

LETTER, CODE = 16, 8  # numbers an embedded letter, and an embedded code of a census
NARROW, WIDE = 48, 64  # channels of the convolutions
REACH = 6.0  # standard deviations at which a feature is cut off
NO_CODE = 16  # at positions where no word begins


@dataclass(frozen=True)
class Shape:
    """Sizes of a branch.

    Attributes:
        letters: kinds of letters, the unknown one included.
        features: counts a frame.
        censuses: censuses whose codes are read beside the letters.
        dim: width of an embedding.
    """

    letters: int
    features: int
    censuses: int
    dim: int


class Branch(nn.Module):
    """One molecule of a frame to ``dim`` numbers."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.letters = nn.Embedding(shape.letters, LETTER)
        self.codes = nn.ModuleList(nn.Embedding(NO_CODE + 1, CODE) for _ in range(shape.censuses))
        first = LETTER + CODE * shape.censuses
        self.conv1 = nn.Conv1d(first, NARROW, 8, padding=4, stride=2)
        self.conv2 = nn.Conv1d(NARROW, WIDE, 5, padding=2, stride=2)
        self.norm1, self.norm2 = nn.BatchNorm1d(NARROW), nn.BatchNorm1d(WIDE)
        self.out = nn.Linear(shape.features + 2 * WIDE, shape.dim)
        self.norm = nn.BatchNorm1d(shape.dim)
        self.register_buffer("mean", torch.zeros(shape.features))
        self.register_buffer("scale", torch.ones(shape.features))

    def forward(
        self, letters: torch.Tensor, features: torch.Tensor, codes: torch.Tensor
    ) -> torch.Tensor:
        """Embed frames of one length ``L``.

        int64 ``[B, L]``, float32 ``[B, features]``, int64 ``[B, censuses, L]`` to ``[B, dim]``.
        """
        embedded = [self.letters(letters)]
        embedded += [table(codes[:, number]) for number, table in enumerate(self.codes)]
        x = torch.cat(embedded, dim=2).transpose(1, 2)  # [B, first, L]
        x = F.gelu(self.norm1(self.conv1(x)))  # [B, NARROW, L/2 + 1]
        x = F.gelu(self.norm2(self.conv2(x))).float()  # [B, WIDE, L/4 + 1]
        counts = ((features - self.mean) / self.scale).clamp(-REACH, REACH)
        pooled = torch.cat([counts, x.mean(dim=2), x.amax(dim=2)], dim=1)
        out: torch.Tensor = F.gelu(self.norm(self.out(pooled)))
        return out
