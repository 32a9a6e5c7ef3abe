"""Classes that are drawn from the softmax of logits.  Legend: P positions, V classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels.upload import on_device


@dataclass(frozen=True)
class Samples:
    """The numbers from 0 to less than 1 that decide what is drawn, float64, and what was drawn, int64, once it was."""

    draws_P: np.ndarray
    classes_P: np.ndarray

    @classmethod
    def of(cls, draws_P: np.ndarray) -> Samples:
        """Return samples that are yet to be drawn.  Raises UserError for a number out of range."""
        if not ((draws_P >= 0) & (draws_P < 1)).all():
            raise UserError("draws: expected numbers from 0 to less than 1")
        return cls(np.ascontiguousarray(draws_P, np.float64), np.empty(len(draws_P), np.int64))

    def draw(self, probabilities_PV: Tensor, first: int = 0) -> None:
        """Fill in the classes of as many positions as there are probabilities, from the `first` on."""
        part = slice(first, first + probabilities_PV.shape[0])
        sums_PV = paddle.cumsum(probabilities_PV, axis=-1)
        draws_P = on_device(self.draws_P[part]).astype(sums_PV.dtype)
        below = 1 - paddle.finfo(sums_PV.dtype).eps  # a draw near 1 may round to it
        thresholds_P1 = draws_P.clip(max=below).unsqueeze(-1) * sums_PV[:, -1:]
        self.classes_P[part] = paddle.searchsorted(sums_PV, thresholds_P1, right=True).squeeze(-1).numpy()
