"""The readings of a step by layer: the sizes of its outputs, gradients, weights and updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ernie.replay.reading import Kind, Reading

_HEADER = [
    *("layer", "output, rms", "output, largest", "not finite", "gradient of output, norm"),
    *("weights, norm", "gradient, norm", "gradient, largest", "update / weights"),
]
_NAMED = 2  # parts of the name of a layer that is none of several in a list


@dataclass
class Layer:
    """A layer, or a head, with the readings of its outputs and its parameters."""

    name: str
    readings: dict[Kind, list[Reading]] = field(default_factory=dict)

    def norm(self, kind: Kind) -> float:
        """Return the norm of all tensors of a kind together; NaN if there is none, or no finite value."""
        found = self._some_finite(kind)
        return math.sqrt(sum(reading.norm**2 for reading in found)) if found else math.nan

    def largest(self, kind: Kind) -> float:
        """Return the largest absolute value of a kind; NaN if there is none, or no finite value."""
        return max((reading.largest for reading in self._some_finite(kind)), default=math.nan)

    @property
    def rms(self) -> float:
        """The root mean square of its outputs."""
        size = sum(reading.size for reading in self._some_finite("output"))
        return self.norm("output") / math.sqrt(size) if size else math.nan

    @property
    def ratio(self) -> float:
        """The norm of the update over that of the weights."""
        weights = self.norm("weight")
        return self.norm("update") / weights if weights else math.nan

    def _some_finite(self, kind: Kind) -> list[Reading]:
        return [reading for reading in self.readings.get(kind, []) if reading.not_finite < reading.size]

    @property
    def not_finite(self) -> float:
        """The fraction of all its values that are not finite."""
        everything = [reading for found in self.readings.values() for reading in found]
        return sum(reading.not_finite for reading in everything) / max(1, sum(reading.size for reading in everything))


def layers(readings: Sequence[Reading]) -> list[Layer]:
    """Return the layers of a model in the order of its parameters."""
    found: dict[str, Layer] = {}
    for reading in readings:
        if reading.place.kind in ("moment", "loss"):
            continue
        name = layer_of(reading.place.name, is_layer=reading.place.kind in ("output", "output gradient"))
        layer = found.setdefault(name, Layer(name))
        layer.readings.setdefault(reading.place.kind, []).append(reading)
    return list(found.values())


def layer_of(name: str, *, is_layer: bool = False) -> str:
    """Return the layer that a parameter or an operator belongs to, or a layer itself.

    It is the name up to the number of one in a list, such as `ernie.encoder.layers.3`, or else its first two parts.
    """
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    end = min(_NAMED, len(parts) - (not is_layer)) if numbered is None else numbered + 1
    return ".".join(parts[: max(1, end)])


def rows(found: Sequence[Layer]) -> list[list[str]]:
    """Return a table of layers, numbered as in figures, its header first."""
    numbered = enumerate(found)
    return [_HEADER, *([f"{number} {layer.name}", *map(_shown, _numbers(layer))] for number, layer in numbered)]


def _numbers(layer: Layer) -> list[float]:
    return [
        *(layer.rms, layer.largest("output"), layer.not_finite, layer.norm("output gradient")),
        *(layer.norm("weight"), layer.norm("sum"), layer.largest("sum"), layer.ratio),
    ]


def _shown(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3g}"
