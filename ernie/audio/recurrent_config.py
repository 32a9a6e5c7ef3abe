"""The shape of a recurrent encoder."""

from __future__ import annotations

from dataclasses import dataclass

from ernie.config import MOST_LAYERS, check_least, check_most


@dataclass(frozen=True)
class RecurrentConfig:
    """`layers` of `units` gated units; for chunked sound, the last layer has a look-ahead of `ahead` vectors."""

    layers: int = 3
    units: int = 256
    ahead: int = 4

    def __post_init__(self) -> None:
        check_least(self, layers=1, units=1, ahead=0)
        check_most(self, layers=MOST_LAYERS)

    @property
    def least_weights(self) -> int:
        """How many weights the layers have at least: three gates' of each, from the state."""
        return 3 * self.layers * self.units**2
