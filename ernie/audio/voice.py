"""The shape of a voice: what makes sound of an encoder's vectors."""

from __future__ import annotations

from dataclasses import dataclass, field

from ernie.config import check_least


@dataclass(frozen=True)
class WaveNetConfig:
    """The size of a WaveNet: `stacks` of layers whose dilations go from 1 to 2^(depth - 1), each seeing `taps` samples.

    `channels` are those of its vectors.
    """

    channels: int = 64
    stacks: int = 2
    depth: int = 8
    taps: int = 2

    def __post_init__(self) -> None:
        check_least(self, channels=1, stacks=1, depth=1, taps=2)

    @property
    def dilations(self) -> tuple[int, ...]:
        """The dilation of each layer."""
        return tuple(2**power for power in range(self.depth)) * self.stacks

    @property
    def context(self) -> int:
        """How many samples before the one that it tells a network sees."""
        return (self.taps - 1) * sum(self.dilations) + 1


@dataclass(frozen=True)
class VoiceConfig:
    """The decoder makes `reduction` frames at a time; `conditioner` features of each sample tell the networks of them.

    `wavenet` makes one sample after the other; `flows` networks of the shape `flow`, one after the other, make all
    samples at once.
    """

    reduction: int = 4
    conditioner: int = 32
    wavenet: WaveNetConfig = field(default_factory=WaveNetConfig)
    flows: int = 4
    flow: WaveNetConfig = field(default_factory=lambda: WaveNetConfig(channels=32, stacks=1, depth=8, taps=3))

    def __post_init__(self) -> None:
        check_least(self, reduction=1, conditioner=1, flows=1)
