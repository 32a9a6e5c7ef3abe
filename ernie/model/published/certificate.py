"""A conversion's certificate: the largest difference of each layer's outputs, and what it was measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ernie.model.published.probe import States

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Check:
    """One comparison: `against` says of what, `differences` the largest one of each layer's outputs.

    A difference is absolute where a layer's outputs are up to 1, and relative to the largest of them above that:
    float32 computed in another order differs by about 1e-6 of the values that were added up.  Some of BERT's hidden
    units are near 20 and its logits near 30, so that an absolute limit would be strict for those and lax for others.
    """

    against: str
    differences: Mapping[str, float]

    @classmethod
    def of(cls, against: str, ours: States, theirs: States, skip: frozenset[str] = frozenset()) -> Check:
        """Compare the layers that both have, except those to `skip`; what is no number counts as infinitely far."""
        shared = [name for name in ours if name in theirs and name not in skip]
        return cls(against, {name: _difference(ours[name], theirs[name]) for name in shared})

    @property
    def worst(self) -> float:
        return max(self.differences.values())


@dataclass(frozen=True)
class Certificate:
    """What a conversion was checked against, layer by layer.

    `independent` is True when a framework other than this library computed one of the sides; otherwise the written
    folder was read again, which shows that nothing was lost in writing, not that the source was understood.
    """

    source: str
    source_format: str
    target_format: str
    tolerance: float
    weights_identical: bool
    checks: tuple[Check, ...]
    independent: bool
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        return max(check.worst for check in self.checks)

    @property
    def passed(self) -> bool:
        return self.weights_identical and self.worst <= self.tolerance

    def record(self) -> dict[str, Any]:
        """The certificate as plain data, for certificate.json."""
        return {**asdict(self), "worst": self.worst, "passed": self.passed}

    def __str__(self) -> str:
        """A table with a line for each layer and a column for each check."""
        layers = list(dict.fromkeys(name for check in self.checks for name in check.differences))
        lines = [f"[{number}] {check.against}" for number, check in enumerate(self.checks, 1)]
        lines += ["", "largest difference" + "".join(f"{f'[{i}]':>12}" for i in range(1, len(self.checks) + 1))]
        for name in layers:
            cells = (check.differences.get(name) for check in self.checks)
            lines.append(f"{name:<18}" + "".join(f"{'-' if cell is None else f'{cell:.1e}':>12}" for cell in cells))
        same = "equal bit for bit" if self.weights_identical else "NOT equal"
        kind = "independent" if self.independent else "round trip only, no other framework ran either side"
        verdict = "within" if self.passed else "NOT within"
        lines += ["", f"weights, written and read again: {same}", f"check: {kind}"]
        return "\n".join([*lines, f"worst: {self.worst:.1e}, {verdict} the tolerance of {self.tolerance:.1e}"])


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    return float(np.abs(ours - theirs).max() / max(1.0, float(np.abs(theirs).max())))
