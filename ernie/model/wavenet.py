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
from ernie.kernels.dilated import Ends, GatedLayer, wavenet
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
        ends = Ends(first.weight[0] / self.loudness, first.bias, inner.weight, inner.bias, out.weight, out.bias)
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


class FlowCache(NamedTuple):
    """What a flow keeps of its past: the last inputs of each network, as far as it sees, and of the conditioner."""

    samples: tuple[Tensor, ...]
    conditioner: Tensor


class Flow(nn.Layer):
    """Maps white noise to samples in parallel: each network shifts and scales every sample given those before it.

    Stacked inverse autoregressive flows (Kingma et al., 2016, arXiv 1606.04934).  The output is that of the last one
    times `loudness`.
    """

    def __init__(self, config: WaveNetConfig, conditioner: int, flows: int, loudness: float = 1.0):
        super().__init__()
        self.loudness = loudness
        self.networks = nn.LayerList([WaveNet(config, conditioner) for _ in range(flows)])

    @property
    def context(self) -> int:
        """The number of noise samples that precede the first generated one."""
        return sum(network.config.context for network in self.networks)

    def forward(self, noise_NS: Tensor, conditioner_NSH: Tensor) -> tuple[Tensor, Gaussian]:
        """Return the last R = S - context samples, and the Gaussian that each was sampled from."""
        samples, distribution, _ = self.forward_cached(noise_NS, conditioner_NSH, None)
        return samples, distribution

    def forward_cached(
        self, noise_NS: Tensor, conditioner_NSH: Tensor, cache: FlowCache | None
    ) -> tuple[Tensor, Gaussian, FlowCache]:
        """As `forward`, and return the new cache, too.

        After the first call, which has no cache, there are as many samples as there is noise, and each network computes
        its own context anew, not that of the networks after it.
        """
        conditioner_NAH = conditioner_NSH if cache is None else _after(cache.conditioner, conditioner_NSH)
        samples, distribution = noise_NS, Gaussian(paddle.zeros_like(noise_NS), paddle.zeros_like(noise_NS))
        contexts, kept = [network.config.context for network in self.networks], []
        for number, network in enumerate(self.networks):
            inputs_NS = samples if cache is None else _after(cache.samples[number], samples)
            step = network(inputs_NS[:, :-1], conditioner_NAH)
            R = step.mean.shape[1]
            samples, distribution = step.from_noise(samples[:, -R:]), step.compose(distribution.last(R))
            kept.append(inputs_NS[:, -contexts[number] :])
        samples, distribution = samples * self.loudness, distribution.scaled(self.loudness)
        return samples, distribution, FlowCache(tuple(kept), conditioner_NAH[:, -max(contexts) :])


def _after(earlier: Tensor, later: Tensor) -> Tensor:
    return paddle.concat([earlier, later], axis=1)
