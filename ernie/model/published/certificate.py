"""Conversion certificates: the largest difference in each layer's outputs, and what it was measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ernie.model.published.probe import States

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Check:
    """One comparison: `against` describes the other side, `differences` holds the largest difference of each layer.

    Differences are absolute where a layer's outputs are at most 1, and relative to the largest output otherwise.
    Float32 sums computed in another order differ by about 1e-6 of the summed values.  Some of BERT's hidden units are
    near 20 and its logits near 30, so that an absolute limit would be strict for those and lax for others.
    """

    against: str
    differences: Mapping[str, float]

    @classmethod
    def of(cls, against: str, ours: States, theirs: States, skip: frozenset[str] = frozenset()) -> Check:
        """Compare the layers that both sides have, except `skip`; NaN and infinity count as an infinite difference."""
        shared = [name for name in ours if name in theirs and name not in skip]
        return cls(against, {name: _difference(ours[name], theirs[name]) for name in shared})

    @property
    def worst(self) -> float:
        return max(self.differences.values())


@dataclass(frozen=True)
class Certificate:
    """The result of all checks of a conversion, layer by layer.

    `independent` is True when another framework computed one of the sides.  Otherwise the written folder was only read
    back, which shows that nothing was lost in writing, but not that the source was interpreted correctly.
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
        """Return the certificate as plain data, for certificate.json."""
        return {**asdict(self), "worst": self.worst, "passed": self.passed}

    def __str__(self) -> str:
        """Format the certificate as a table with a row for each layer and a column for each check."""
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
