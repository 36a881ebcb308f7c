"""The classifier itself: merged embeddings to a score for ``others`` and one for ``virus``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from virnucpro.compute.threads import one_thread

INNER_BATCH = 256  # rows of every matrix product, whatever the caller passes


class Classifier:
    """Linear, batch normalisation, ReLU, (dropout, in training only), linear, softmax.

    ``input_width`` numbers per row, ``hidden`` units; ``state`` holds ``hidden_layer``, ``bn1`` and
    ``output_layer`` as the original names them. The logits are divided by ``temperature`` before
    the softmax (Guo et al. 2017, arXiv:1706.04599).
    """

    def __init__(
        self, state: Mapping[str, torch.Tensor], eps: float, temperature: float = 1.0
    ) -> None:
        self._state = {key: value.float() for key, value in state.items()}
        self._eps = eps
        self._temperature = temperature
        self.hidden, self.input_width = self._state["hidden_layer.weight"].shape

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """float32 ``[n, input_width]`` to float32 ``[n, 2]``: others, virus; a row sums to 1.

        Rows go through in batches of ``INNER_BATCH``, the last one filled up with zeros, on one
        thread (see ``compute.threads``). So a row's score depends on nothing but the row and its
        place in such a batch: calls with multiples of ``INNER_BATCH`` rows give the same bits,
        however many.

        Raises:
            ValueError: the rows have another width.
        """
        return self._batched(features, calibrated=True)

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """The same without softmax and temperature: what a temperature is fitted on.

        Raises:
            ValueError: the rows have another width.
        """
        return self._batched(features, calibrated=False)

    def _batched(self, features: torch.Tensor, *, calibrated: bool) -> torch.Tensor:
        if features.ndim != 2 or features.shape[1] != self.input_width:
            raise ValueError(f"features {tuple(features.shape)}, expected [n, {self.input_width}]")
        out = torch.empty(len(features), 2)
        with torch.inference_mode(), one_thread():
            for start in range(0, len(features), INNER_BATCH):
                rows = features[start : start + INNER_BATCH].float()
                logits = self._forward(F.pad(rows, (0, 0, 0, INNER_BATCH - len(rows))))
                if calibrated:  # a division by 1.0 changes no bit
                    logits = (logits / self._temperature).softmax(dim=1)
                out[start : start + len(rows)] = logits[: len(rows)]
        return out

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, in]`` to ``[n, 2]``."""
        s = self._state
        x = F.linear(x, s["hidden_layer.weight"], s["hidden_layer.bias"])  # [n, hidden]
        statistics = s["bn1.running_mean"], s["bn1.running_var"]
        x = F.batch_norm(x, *statistics, s["bn1.weight"], s["bn1.bias"], eps=self._eps)
        return F.linear(F.relu(x), s["output_layer.weight"], s["output_layer.bias"])  # [n, 2]
