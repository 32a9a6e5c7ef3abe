"""Comparison of an exported model with its original, on the same inputs.

Legend: N sequences, L padded length, n tokens of one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.model.config import EncoderConfig
from ernie.model.export.runtimes import Run

Source = Callable[[Packed], Sequence[np.ndarray]]  # a batch -> the outputs, one row per sequence or per token


@dataclass(frozen=True)
class Difference:
    """The difference between two computations of an output.

    `largest` is the largest absolute difference, relative to the largest value if that is above 1.  `share` is the norm
    of the difference as a share of the norm of the output.
    """

    output: str
    rows: str
    largest: float
    share: float

    def __str__(self) -> str:
        return f"{self.output}, {self.rows}: largest difference {self.largest:.1e}, relative norm {self.share:.2%}"


def random_rows(config: EncoderConfig, longest: int) -> list[list[Sample]]:
    """Return fixed random batches: rows of several lengths up to `longest`, rows of equal length, and a single row."""
    rng = np.random.default_rng(0)

    def row(length: int) -> Sample:
        return Sample(rng.integers(config.vocab_size, size=length), rng.integers(config.segments, size=length))

    lengths = [longest, (longest + 2) // 3, 1, min(longest, 17)], [min(longest, 9)] * 3, [min(longest, 5)]
    return [[row(length) for length in batch] for batch in lengths]


def compare(
    outputs: Sequence[str], source: Source, exported: Run, batches: Sequence[Sequence[Sample]], rows: str
) -> list[Difference]:
    """Return the difference of each output over all batches, each of which is padded on the right and on the left."""
    wanted: list[list[np.ndarray]] = [[] for _ in outputs]
    found: list[list[np.ndarray]] = [[] for _ in outputs]
    for batch in batches:
        values = source(pack(batch))
        for left in (False, True):
            ids, segments, mask = padded(batch, left)
            for i, (value, exported_value) in enumerate(zip(values, exported(ids, segments, mask), strict=True)):
                wanted[i].append(value)
                found[i].append(exported_value[mask.astype(bool)] if exported_value.ndim == 3 else exported_value)
    return [
        _difference(name, rows, np.concatenate(found[i]), np.concatenate(wanted[i])) for i, name in enumerate(outputs)
    ]


def padded(batch: Sequence[Sample], left: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the padded ids, segments and mask of a batch, (N, L) each."""
    arrays = np.zeros((3, len(batch), max(map(len, batch))), np.int64)
    for i, sample in enumerate(batch):
        slots = np.s_[-len(sample) :] if left else np.s_[: len(sample)]
        arrays[:, i, slots] = sample.ids, sample.segments, np.ones(len(sample))
    return arrays[0], arrays[1], arrays[2]


def _difference(output: str, rows: str, found: np.ndarray, wanted: np.ndarray) -> Difference:
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return Difference(output, rows, float("inf"), float("inf"))
    difference = found.astype(np.float64) - wanted
    largest = float(np.abs(difference).max() / max(1.0, float(np.abs(wanted).max())))
    return Difference(
        output, rows, largest, float(np.linalg.norm(difference) / max(float(np.linalg.norm(wanted)), 1e-30))
    )
