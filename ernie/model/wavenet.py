"""Neural vocoders: an autoregressive WaveNet with Gaussian outputs, and a flow that generates samples in parallel.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281), section 3.

Legend: N sequences, S input samples, R output samples, A rows of a conditioner, C channels, H features of the
conditioner.
"""

from __future__ import annotations

from typing import NamedTuple

import paddle
from paddle import Tensor, nn

from ernie.audio.voice import WaveNetConfig
from ernie.kernels.dilated import more, wavenet
from ernie.kernels.types import GatedLayer, WaveNetEnds
from ernie.model.gaussian import Gaussian


class WaveNet(nn.Layer):
    """A Gaussian for each sample, given the samples before it and a conditioner, (N, R).

    `loudness` is the standard deviation of the samples, which are normalized by it internally.
    """

    def __init__(self, config: WaveNetConfig, conditioner: int, loudness: float = 1.0):
        super().__init__()
        C = config.channels
        self.config, self.loudness = config, loudness
        self.first = nn.Linear(1, C)
        self.layers = nn.LayerList(
            [_Layer(config, conditioner, number + 1 < len(config.dilations)) for number in range(len(config.dilations))]
        )
        self.inner, self.out = nn.Linear(C, C), nn.Linear(C, 2)

    def forward(self, before_NS: Tensor, conditioner_NAH: Tensor) -> Gaussian:
        """Return the Gaussians of the last R = S + 1 - context samples.

        `before` holds the samples that precede each predicted one: the last S rows of the conditioner belong to the
        samples that follow them.
        """
        return self._gaussian(wavenet(before_NS, conditioner_NAH, *self._weights, self.config.dilations))

    def more(self, before_NS: Tensor, conditioner_NAH: Tensor, past_NPC: Tensor | None) -> tuple[Gaussian, Tensor]:
        """Return the Gaussians of samples that follow others, without gradients, and the past of those that come next.

        The past holds the vectors that each layer sees before its current one.  With a past there is a Gaussian for
        each of the S samples; without one the first `context` - 1 samples make it.
        """
        out_NR2, after_NPC = more(before_NS, conditioner_NAH, *self._weights, self.config.dilations, past_NPC)
        return self._gaussian(out_NR2), after_NPC

    @property
    def _weights(self) -> tuple[WaveNetEnds, list[GatedLayer]]:
        first, inner, out = self.first, self.inner, self.out
        ends = WaveNetEnds(first.weight[0] / self.loudness, first.bias, inner.weight, inner.bias, out.weight, out.bias)
        return ends, [layer.weights for layer in self.layers]

    def _gaussian(self, out_NR2: Tensor) -> Gaussian:
        return Gaussian(out_NR2[:, :, 0], out_NR2[:, :, 1]).scaled(self.loudness)


class _Layer(nn.Layer):
    """Weights of one gated layer; `skip` feeds the output, and `on` the next layer."""

    def __init__(self, config: WaveNetConfig, conditioner: int, has_next: bool):
        super().__init__()
        C = config.channels
        self.mix, self.skip = nn.Linear(config.taps * C + conditioner, 2 * C), nn.Linear(C, C, bias_attr=False)
        self.on = nn.Linear(C, C) if has_next else None

    @property
    def weights(self) -> GatedLayer:
        on = () if self.on is None else (self.on.weight, self.on.bias)
        return GatedLayer(self.mix.weight, self.mix.bias, self.skip.weight, *on)


class FlowPast(NamedTuple):
    """What a flow keeps for each network: its last input (N,), and the vectors (N, P, C) that its layers see.

    Each layer's vectors follow those of the one before.
    """

    last: list[Tensor]
    vectors: list[Tensor]


class Flow(nn.Layer):
    """Maps white noise to samples in parallel: each network shifts and scales every sample given those before it.

    Stacked inverse autoregressive flows (Kingma et al., 2016, arXiv 1606.04934).  The output is that of the last one
    times `loudness`.
    """

    def __init__(self, config: WaveNetConfig, conditioner: int, flows: int, loudness: float = 1.0):
        super().__init__()
        self.loudness, self._features = loudness, conditioner
        self.networks = nn.LayerList([WaveNet(config, conditioner) for _ in range(flows)])

    @property
    def context(self) -> int:
        """The number of noise samples that precede the first generated one."""
        return sum(network.config.context for network in self.networks)

    def forward(self, noise_NS: Tensor, conditioner_NSH: Tensor) -> tuple[Tensor, Gaussian]:
        """Return the last R = S - context samples, and the Gaussian that each was sampled from."""
        samples, distribution = noise_NS, Gaussian(paddle.zeros_like(noise_NS), paddle.zeros_like(noise_NS))
        for network in self.networks:
            step = network(samples[:, :-1], conditioner_NSH)
            R = step.mean.shape[1]
            samples, distribution = step.from_noise(samples[:, -R:]), step.compose(distribution.last(R))
        return samples * self.loudness, distribution.scaled(self.loudness)

    def begin(self, noise_NS: Tensor) -> FlowPast:
        """Return the past of sounds before their first sample: noise (N, context) under a conditioner of zeros."""
        conditioner_NSH = paddle.zeros([*noise_NS.shape, self._features])
        samples, past = noise_NS, FlowPast([], [])
        for network in self.networks:
            step, vectors_NPC = network.more(samples[:, :-1], conditioner_NSH, None)
            past.last.append(samples[:, -1])
            past.vectors.append(vectors_NPC)
            samples = step.from_noise(samples[:, samples.shape[1] - step.mean.shape[1] :])
        return past

    def generate(self, past: FlowPast, noise_NS: Tensor, conditioner_NSH: Tensor) -> tuple[Tensor, FlowPast]:
        """Return as many samples as there is noise, (N, S), and the past of those that follow."""
        samples, after = noise_NS, FlowPast([], [])
        for network, last_N, vectors_NPC in zip(self.networks, *past, strict=True):
            before_NS = paddle.concat([last_N.unsqueeze(1), samples[:, :-1]], axis=1)
            step, vectors_NPC = network.more(before_NS, conditioner_NSH, vectors_NPC)
            after.last.append(samples[:, -1])
            after.vectors.append(vectors_NPC)
            samples = step.from_noise(samples)
        return samples * self.loudness, after
