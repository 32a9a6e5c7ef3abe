"""The arguments of kernels that are more than tensors: weights that belong together, settings, and runs of rows.

Legend: D width, F inner width, C channels, H features of a conditioner, K skip channels, O outputs, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from paddle import Tensor

Activation = Literal["none", "gelu", "relu"]


class LayerWeights(NamedTuple):
    """The parameters of a layer: matrices (in, out), biases (out,), gain and offset of both norms (D,)."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    inner: Tensor
    outer: Tensor
    q_bias: Tensor
    k_bias: Tensor
    v_bias: Tensor
    out_bias: Tensor
    inner_bias: Tensor
    outer_bias: Tensor
    gain1: Tensor
    offset1: Tensor
    gain2: Tensor
    offset2: Tensor


class Factors(NamedTuple):
    """What a matrix (D, E) is trained by: it equals its pretrained values plus `scale` times `a` (D, r) `b` (r, E)."""

    a: Tensor
    b: Tensor
    scale: float


class LowRank(NamedTuple):
    """A low-rank update of a matrix (D, E): `a` (D, r) times `b` (r, E), as contiguous float32 arrays.

    LoRA: Hu et al., 2021, arXiv 2106.09685, section 4.1.  Any scale is in `b`.
    """

    a: np.ndarray
    b: np.ndarray


class LayerUpdates(tuple[Mapping[str, LowRank], ...]):
    """Low-rank updates of the matrices of each layer, by their names in LayerWeights.

    They are checked once for layers of the sizes `checked_for`, and put into the form `native` of C++ once: reuse the
    object.
    """

    checked_for: tuple[int, ...] | None = None
    native: Any = None

    def __reduce__(self) -> tuple[type[LayerUpdates], tuple[tuple[Mapping[str, LowRank], ...]]]:
        return LayerUpdates, (tuple(self),)  # addresses are those of this object's arrays


class Adapted(NamedTuple):
    """The tokens from `start` to `stop`, for which matrices of the layers have updates."""

    start: int
    stop: int
    layers: LayerUpdates


@dataclass(frozen=True)
class LayerSettings:
    """The hyperparameters of a layer.  Dropouts are probabilities."""

    heads: int
    activation: Literal["gelu", "relu"]
    epsilon: float
    dropout: float = 0.0
    attention_dropout: float = 0.0


class GatedLayer(NamedTuple):
    """The weights of a layer.

    `mix` (taps C + H, 2 C), with its bias, is the dilated convolution: the oldest tap first, the conditioner last.
    `skip` (C, K) projects to the output of the stack; `residual` (C, C), with its bias, to the next layer, so that the
    last layer has none.
    """

    mix: Tensor
    mix_bias: Tensor
    skip: Tensor
    residual: Tensor | None = None
    residual_bias: Tensor | None = None


class WaveNetEnds(NamedTuple):
    """The weights of a WaveNet before and after its stack.

    A sample times `first` (C,), plus its bias, is the vector of the first layer.  `inner` (K, K) and `out` (K, O), with
    their biases, each after a rectifier, map the sum of the skip outputs to the outputs.
    """

    first: Tensor
    first_bias: Tensor
    inner: Tensor
    inner_bias: Tensor
    out: Tensor
    out_bias: Tensor


class SamplingWeights(NamedTuple):
    """The weights of a WaveNet, as float32 arrays.

    `first` (2, C), a weight and a bias, maps a sample divided by `loudness` to a vector.  `mix` (L, taps C, 2 C) has
    the oldest tap of each layer first.  `skip_residual` (L, C, 2 C) projects to the output of the stack and to the next
    layer; the bias of the latter is `residual_bias` (L, C).  `inner` (C, C) and `out` (C, 2) map the summed skip
    outputs to a mean and a log scale: the next sample is loudness * (mean + exp(log_scale) * noise).
    """

    dilations: tuple[int, ...]
    loudness: float
    first: np.ndarray
    mix: np.ndarray
    skip_residual: np.ndarray
    residual_bias: np.ndarray
    inner: np.ndarray
    inner_bias: np.ndarray
    out: np.ndarray
    out_bias: np.ndarray

    @property
    def taps(self) -> int:
        """The number of vectors a layer sees at once."""
        return self.mix.shape[1] // self.first.shape[1]


@dataclass(frozen=True)
class AdamStep:
    """The settings of one AdamW step of one parameter; `power1` and `power2` are beta1^t and beta2^t after the step."""

    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    power1: float
    power2: float
    gradient_scale: float = 1.0


class Runs(NamedTuple):
    """Keys and values (S, D) of N sequences in R runs of consecutive rows, float32, as Runs in src/attention.h.

    The n-th sequence has the runs `offsets[n]` to `offsets[n + 1]`.  `keys` and `values` hold the addresses of each
    run's first row, `rows` their number.  Whoever makes the runs keeps the memory alive while they are used.
    """

    offsets: np.ndarray  # (N + 1,) int32
    keys: np.ndarray  # (R,) int64
    values: np.ndarray  # (R,) int64
    rows: np.ndarray  # (R,) int32
