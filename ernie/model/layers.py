"""Layers that the encoder and its heads are made of."""

from __future__ import annotations

from paddle import Tensor, nn

from ernie.kernels.linear import linear


class Linear(nn.Linear):
    """A linear layer with a bias, (T, D) -> (T, E)."""

    def forward(self, x_TD: Tensor) -> Tensor:
        return linear(x_TD, self.weight, self.bias)
