"""What is kept of a tensor of a step: its size, its values that are not finite, and what tells it from another one.

Legend: V values of a tensor, C chunks of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, NamedTuple

import numpy as np

from ernie.formatting import plural

# In the order in which a step computes them.
Kind = Literal["weight", "moment", "operator", "output", "loss", "output gradient", "gradient", "sum", "update"]
# Of a reading as plain data, see `ernie.json_file.read_json`.
KEYS = {
    **{"kind": str, "name": str, "micro": (int, NoneType), "shape": [int], "norm": float, "largest": float},
    **{"not_finite": int, "first": [int], "digest": str, "sums": [float], "sizes": [float]},
}
_OF_GRADIENTS = ("moment", "gradient", "sum", "update")
_NOISE = 1e-6  # of the root mean square of the largest gradient: what smaller ones are is rounding
_CHUNKS = 64  # of the values, at most
_PHRASES: dict[Kind, str] = {
    "weight": "the weight {}",
    "moment": "the optimizer's {}",
    "operator": "the output of the operator {}",
    "output": "the output of {}",
    "loss": "the loss of {}",
    "output gradient": "the gradient of the output of {}",
    "gradient": "the gradient of {}",
    "sum": "the gradient of {}, summed over the micro-batches",
    "update": "the update of {}",
}


class Place(NamedTuple):
    """Which tensor of a step: its kind, its name in the model, and the micro-batch (from 0), if it belongs to one."""

    kind: Kind
    name: str
    micro: int | None = None

    def __str__(self) -> str:
        where = "" if self.micro is None else f" in micro-batch {self.micro + 1}"
        return _PHRASES[self.kind].format(self.name) + where


@dataclass(frozen=True)
class Reading:
    """The reading of a tensor.

    `norm` (L2) and `largest` (absolute) are of the finite values.  `first` is the index of the first value that is not
    finite.  Equal tensors, and only these, have the same `digest`.  `sums` are those of C chunks of the values, `sizes`
    those of their absolute values: rounding changes the former by a tiny fraction of the latter.
    """

    place: Place
    shape: tuple[int, ...]
    norm: float
    largest: float
    not_finite: int
    first: tuple[int, ...]
    digest: str
    sums: tuple[float, ...]
    sizes: tuple[float, ...]

    @classmethod
    def of(cls, place: Place, values: np.ndarray) -> Reading:
        """Read an array."""
        finite = np.isfinite(values)
        bad = int(values.size - finite.sum())
        wide = np.where(finite, values, 0).astype(np.float64).ravel()
        edges = np.unique(np.linspace(0, wide.size, min(_CHUNKS, wide.size), endpoint=False).astype(np.int64))
        sizes = np.add.reduceat(np.abs(wide), edges) if wide.size else np.empty(0)
        return cls(
            place=place,
            shape=tuple(values.shape),
            norm=float(np.sqrt(np.square(wide).sum())),
            largest=float(np.abs(wide).max(initial=0.0)),
            not_finite=bad,
            first=tuple(map(int, np.argwhere(~finite)[0])) if bad else (),
            digest=hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest(),
            sums=_short(np.add.reduceat(wide, edges) if wide.size else sizes),
            sizes=_short(sizes),
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Reading:
        """Return the reading that `as_dict` has described."""
        place = Place(record["kind"], record["name"], record["micro"])
        return cls(place, **{name: _frozen(record[name]) for name in KEYS if name not in Place._fields})

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def rms(self) -> float:
        """The root of the mean square."""
        return self.norm / math.sqrt(max(1, self.size))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        record = {**self.place._asdict(), **{name: getattr(self, name) for name in KEYS if name not in Place._fields}}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    def difference(self, other: Reading) -> float:
        """Return how much two tensors of a place differ, relative to their values: 0 if they are equal.

        It is infinite for other shapes and for other numbers of values that are not finite.  Rounding gives about 1e-7
        in float32, and 1e-3 in bfloat16.
        """
        if self.digest == other.digest:
            return 0.0
        if self.shape != other.shape or self.not_finite != other.not_finite:
            return math.inf
        sums = np.abs(np.subtract(self.sums, other.sums))
        sizes = np.maximum(self.sizes, other.sizes)
        sizes = np.maximum(sizes, sizes.mean())  # sums that cancel round by more than their own size
        return float(np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0).max(initial=0.0))

    def wrong(self) -> str:
        """Say which values are not finite."""
        at = f" at {list(self.first)}" if self.first else ""
        return f"{self.not_finite:,} of {plural(self.size, 'value')} not finite, the first{at}"


def _short(values: np.ndarray) -> tuple[float, ...]:
    """Return numbers with the digits of float32, as which they take half the place in a file."""
    return tuple(float(f"{value:.9g}") for value in values.tolist())


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def first_wrong(readings: Sequence[Reading]) -> Reading | None:
    """Return the first reading with values that are not finite, if any."""
    return next((reading for reading in readings if reading.not_finite), None)


class FirstDifference(NamedTuple):
    """The first tensor in which two steps differ, as read from both; `relative` is how much (`Reading.difference`)."""

    one: Reading
    other: Reading
    relative: float


def first_difference(
    one: Sequence[Reading], other: Sequence[Reading], tolerance: float = 0.0
) -> FirstDifference | None:
    """Return the first tensor that differs by more than `tolerance`, by a single bit if that is 0.

    Tensors that only one of the steps has are passed over: another layout or machine computes by other operators.  With
    a tolerance, so are gradients that are nothing but rounding errors, as those of the bias of keys, and their updates.
    """
    known = {reading.place: reading for reading in other}
    noise = _only_rounding(one) if tolerance else set()
    for reading in one:
        match = known.get(reading.place)
        if match is None or reading.digest == match.digest:
            continue
        if reading.place.kind in _OF_GRADIENTS and reading.place.name.partition("/")[0] in noise:
            continue
        relative = reading.difference(match)
        if relative > tolerance or not tolerance:
            return FirstDifference(reading, match, relative)
    return None


def _only_rounding(readings: Sequence[Reading]) -> set[str]:
    """Return the parameters whose gradients are nothing but rounding errors."""
    sums = [reading for reading in readings if reading.place.kind == "sum"]
    most = max((reading.rms for reading in sums), default=0.0)
    return {reading.place.name for reading in sums if reading.rms < _NOISE * most and not reading.not_finite}


def elements(one: np.ndarray, other: np.ndarray) -> str:
    """Say in which values two arrays of a shape differ, and how; "" if in none.

    The value is shown that differs most.  If a single bit tells its two forms apart, the bit is named.
    """
    differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
    if not (count := int(differs.sum())):
        return ""
    with np.errstate(all="ignore"):
        gap = np.abs(one.astype(np.float64) - other.astype(np.float64))
    gap = np.where(differs, np.where(np.isnan(gap), np.inf, gap), -1)
    at = np.unravel_index(int(gap.argmax()), one.shape)
    bit = flipped_bit(float(one[at]), float(other[at])) if one.dtype == np.float32 else None
    told = "" if bit is None else f": bit {bit} is flipped"
    index = list(map(int, at))
    return f"{count:,} of {plural(one.size, 'value')}; at {index} {one[at]:.9g} against {other[at]:.9g}{told}"


def flipped_bit(one: float, other: float) -> int | None:
    """Return the one bit in which two numbers differ as float32, or None if there are several."""
    bits = int(np.bitwise_xor(*np.array([one, other], np.float32).view(np.uint32)))
    return bits.bit_length() - 1 if bits.bit_count() == 1 else None
