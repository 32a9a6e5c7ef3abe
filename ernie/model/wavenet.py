"""Waveforms sample by sample: WaveNet with a Gaussian for each sample, and a flow that makes all samples at once.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281), section 3.

Legend: N sequences, S samples that come in and R that come out, C channels, H features of the conditioner.
"""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.voice import WaveNetConfig
from ernie.kernels.dilated import GatedLayer, gated_stack
from ernie.model.gaussian import Gaussian


class WaveNet(nn.Layer):
    """What each sample is likely to be, as a Gaussian, by those before it and a conditioner, (N, R).

    `loudness` is the deviation of all samples: inside they are counted in it.
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

    def forward(self, before_NS: Tensor, conditioner_NSH: Tensor) -> Gaussian:
        """The Gaussians of the last R = S + 1 - context samples.

        `before` are the samples before each that is told: the conditioner's sample s belongs to what follows them.
        """
        x_NSC = before_NS.unsqueeze(-1) * (self.first.weight[0] / self.loudness) + self.first.bias
        layers = [layer.weights for layer in self.layers]
        total_NRC = gated_stack(x_NSC, conditioner_NSH, layers, self.config.dilations)
        found_NR2 = self.out(F.relu(self.inner(F.relu(total_NRC))))
        return Gaussian(found_NR2[:, :, 0], found_NR2[:, :, 1]).louder(self.loudness)


class _Layer(nn.Layer):
    """The weights of one layer."""

    def __init__(self, config: WaveNetConfig, conditioner: int, leads_on: bool):
        super().__init__()
        C = config.channels
        self.mix, self.skip = nn.Linear(config.taps * C + conditioner, 2 * C), nn.Linear(C, C, bias_attr=False)
        self.on = nn.Linear(C, C) if leads_on else None

    @property
    def weights(self) -> GatedLayer:
        on = () if self.on is None else (self.on.weight, self.on.bias)
        return GatedLayer(self.mix.weight, self.mix.bias, self.skip.weight, *on)


class Flow(nn.Layer):
    """From white noise to samples, all at once: each network moves and scales every sample by those before it.

    Inverse autoregressive flows (Kingma et al., 2016, arXiv 1606.04934), one after the other.  What comes out is
    `loudness` times as loud as what the last of them makes.
    """

    def __init__(self, config: WaveNetConfig, conditioner: int, flows: int, loudness: float = 1.0):
        super().__init__()
        self.loudness = loudness
        self.networks = nn.LayerList([WaveNet(config, conditioner) for _ in range(flows)])

    @property
    def context(self) -> int:
        """How many samples of noise come before the first that is made."""
        return sum(network.config.context for network in self.networks)

    def forward(self, noise_NS: Tensor, conditioner_NSH: Tensor) -> tuple[Tensor, Gaussian]:
        """The last R = S - context samples, and the Gaussian that each was drawn from."""
        samples, drawn = noise_NS, Gaussian(paddle.zeros_like(noise_NS), paddle.zeros_like(noise_NS))
        for network in self.networks:
            own = network(samples[:, :-1], conditioner_NSH[:, 1:])
            R = own.mean.shape[1]
            samples, drawn = own.applied(samples[:, -R:]), own.after(drawn.last(R))
            conditioner_NSH = conditioner_NSH[:, -R:]
        return samples * self.loudness, drawn.louder(self.loudness)
