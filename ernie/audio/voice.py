"""The shape of a voice, which turns the encoder's vectors into sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ernie.config import MOST_LAYERS, check_least, check_most
from ernie.errors import UserError

_MAX_DEPTH = 16


@dataclass(frozen=True)
class WaveNetConfig:
    """The size of a WaveNet: `stacks` of layers with dilations from 1 to 2^(depth - 1) and kernels of `taps` samples.

    `channels` is the width of its hidden vectors.
    """

    channels: int = 64
    stacks: int = 2
    depth: int = 8
    taps: int = 2

    def __post_init__(self) -> None:
        check_least(self, channels=1, stacks=1, depth=1, taps=2)
        check_most(self, stacks=MOST_LAYERS)
        if self.depth > _MAX_DEPTH:
            raise UserError(f"depth: expected at most {_MAX_DEPTH}, dilations of {2 ** (_MAX_DEPTH - 1):,} samples")

    @property
    def least_weights(self) -> int:
        """How many weights the layers have at least: one matrix of each."""
        return self.stacks * self.depth * self.channels**2

    @property
    def dilations(self) -> tuple[int, ...]:
        """The dilation of each layer."""
        return tuple(2**power for power in range(self.depth)) * self.stacks

    @property
    def context(self) -> int:
        """The receptive field: how many samples before the predicted one the network sees."""
        return (self.taps - 1) * sum(self.dilations) + 1


VocoderName = Literal["wavenet", "flow", "griffin_lim"]


@dataclass(frozen=True)
class VoiceConfig:
    """The decoder predicts `reduction` frames at a time, from which `conditioner` features condition each sample.

    `wavenet` is the autoregressive network; `flows` networks of the shape `flow`, one after the other, generate all
    samples in parallel.  With `pulses` they are also given a tone and pulses of the pitch, which is predicted for each
    frame: a network that sees nothing but noise cannot go on with a period for longer than it sees (Wang et al., 2019,
    "Neural source-filter waveform models", arXiv 1904.12088).
    """

    reduction: int = 4
    conditioner: int = 32
    wavenet: WaveNetConfig = field(default_factory=WaveNetConfig)
    flows: int = 4
    flow: WaveNetConfig = field(default_factory=lambda: WaveNetConfig(channels=32, stacks=1, depth=8, taps=3))
    pulses: bool = False

    def __post_init__(self) -> None:
        check_least(self, reduction=1, conditioner=1, flows=1)
        check_most(self, flows=MOST_LAYERS)
