"""The settings of low-rank adaptation.  Imports no Paddle: configurations use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ernie.errors import UserError, nearest

# The matrices of an encoder layer that can be adapted, and its sublayers that hold them.
TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "query": "q",
        "key": "k",
        "value": "v",
        "attention_out": "attention_out",
        "inner": "inner",
        "outer": "outer",
    }
)


@dataclass(frozen=True)
class AdapterConfig:
    """Low-rank adaptation (LoRA: Hu et al., 2021, arXiv 2106.09685).

    A product of two matrices is learned for each of the `targets` in every layer.  `rank` is its inner dimension; it is
    multiplied by `alpha` / `rank` and added to the pretrained matrix.  The targets are `query`, `key`, `value` and
    `attention_out` of the attention, `inner` and `outer` of the feed-forward network.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UserError(f"rank: expected at least 1, found {self.rank}; without `adapt` all weights are trained")
        if not self.alpha > 0:
            raise UserError(f"alpha: expected more than 0, found {self.alpha:g}")
        if not self.targets:
            raise UserError(f"targets: expected at least one of {', '.join(TARGETS)}")
        for name in self.targets:
            if name not in TARGETS:
                raise UserError(f"targets: there is no matrix '{name}'.{nearest(name, TARGETS)}")
        if len(set(self.targets)) < len(self.targets):
            raise UserError("targets: a matrix is listed twice")
