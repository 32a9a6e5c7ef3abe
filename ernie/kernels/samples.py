"""Classes that are drawn from the softmax of logits.  Legend: P positions, V classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from ernie.kernels.upload import on_device


@dataclass(frozen=True)
class Samples:
    """The numbers from 0 to less than 1 that decide what is drawn, float64, and what was drawn, int64, once it was."""

    draws_P: np.ndarray
    classes_P: np.ndarray

    def draw(self, probabilities_PV: Tensor, first: int = 0) -> None:
        """Fill in the classes of as many positions as there are probabilities, from the `first` on."""
        part = slice(first, first + probabilities_PV.shape[0])
        sums_PV = paddle.cumsum(probabilities_PV, axis=-1)
        thresholds_P1 = on_device(self.draws_P[part].astype(np.float32)).unsqueeze(-1) * sums_PV[:, -1:]
        drawn = paddle.searchsorted(sums_PV, thresholds_P1, right=True).squeeze(-1)
        self.classes_P[part] = np.minimum(drawn.numpy(), probabilities_PV.shape[1] - 1)
