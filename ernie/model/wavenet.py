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
from ernie.kernels.dilated import wavenet
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
        first, inner, out = self.first, self.inner, self.out
        ends = WaveNetEnds(first.weight[0] / self.loudness, first.bias, inner.weight, inner.bias, out.weight, out.bias)
        layers = [layer.weights for layer in self.layers]
        out_NR2 = wavenet(before_NS, conditioner_NAH, ends, layers, self.config.dilations)
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
    """What a flow keeps of its past: the last `inputs` of each network (N, networks, context), and its conditioner.

    Both are as long as a network sees.
    """

    inputs: Tensor
    conditioner: Tensor


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
        length = self.networks[0].config.context
        conditioner_NSH = paddle.zeros([*noise_NS.shape, self._features])
        inputs, samples = [noise_NS[:, -length:]], noise_NS
        for network in self.networks[:-1]:
            step = network(samples[:, :-1], conditioner_NSH)
            samples = step.from_noise(samples[:, -step.mean.shape[1] :])
            inputs.append(samples[:, -length:])
        return FlowPast(paddle.stack(inputs, axis=1), conditioner_NSH[:, :length])

    def generate(self, past: FlowPast, noise_NS: Tensor, conditioner_NSH: Tensor) -> tuple[Tensor, FlowPast]:
        """Return as many samples as there is noise, (N, S), and the past of those that follow."""
        length = past.conditioner.shape[1]
        conditioner_NAH, samples, inputs = _after(past.conditioner, conditioner_NSH), noise_NS, []
        for number, network in enumerate(self.networks):
            inputs_NS = _after(past.inputs[:, number], samples)
            samples = network(inputs_NS[:, :-1], conditioner_NAH).from_noise(samples)
            inputs.append(inputs_NS[:, -length:])
        return samples * self.loudness, FlowPast(paddle.stack(inputs, axis=1), conditioner_NAH[:, -length:])


def _after(earlier: Tensor, later: Tensor) -> Tensor:
    return paddle.concat([earlier, later], axis=1)
