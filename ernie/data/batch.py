"""A batch without padding.

Legend: T tokens of the batch, N sequences, P labelled tokens, U tokens that are written, F frames, M features of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ernie.data.document import IGNORE, Sample


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the sequences of a packed batch begin: offsets (N + 1,), the last one being T."""

    offsets: np.ndarray

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | np.ndarray) -> Layout:
        """The layout of sequences of these lengths, one after the other."""
        return cls(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))

    @property
    def sequences(self) -> int:
        return len(self.offsets) - 1

    @property
    def tokens(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max())

    @property
    def starts(self) -> np.ndarray:
        """The first token of each sequence, (N,): where [CLS] stands."""
        return self.offsets[:-1]

    @cached_property
    def positions(self) -> np.ndarray:
        """Each token's place in its own sequence, (T,)."""
        return np.arange(self.tokens) - np.repeat(self.starts, self.lengths)

    def sequences_of(self, tokens: np.ndarray | None) -> np.ndarray:
        """The sequence that each of some tokens is in; each sequence once where `tokens` is None."""
        if tokens is None:
            return np.arange(self.sequences)
        return np.searchsorted(self.offsets, tokens, side="right") - 1

    @cached_property
    def slots(self) -> np.ndarray:
        """Each token's place in the padded batch (N * longest), (T,)."""
        return np.repeat(np.arange(self.sequences) * self.longest, self.lengths) + self.positions

    def followed_by(self, more: Layout) -> Layout:
        """Where each sequence is followed by as many tokens more as it has in `more`."""
        return Layout(self.offsets + more.offsets)

    @property
    def is_rectangular(self) -> bool:
        """Whether all sequences have the same length, so that a padded batch would hold no padding."""
        return self.tokens == self.sequences * self.longest


class Labels(NamedTuple):
    """Targets (P,), or (P, C) for several at once, and the tokens (P,) they belong to.

    `positions` is None for one target a sequence (N,); where some sequences have none, it holds those that have one.
    """

    values: np.ndarray
    positions: np.ndarray | None


class Written(NamedTuple):
    """What a decoder is given (U,), one sequence for each of the batch, and what it is to write next each time (U,)."""

    ids: np.ndarray
    next: np.ndarray
    layout: Layout


class Frames(NamedTuple):
    """What is heard: features (F, M), one sequence of them for each of the batch."""

    features: np.ndarray
    layout: Layout


@dataclass(frozen=True)
class Packed:
    """Samples of one task, one after the other.

    `ids` and `segments` are (T,).  `samples` (N, 3) names each sample: epoch, item, number within the item.  `written`
    is there where a decoder is to write.  Of speech, `sounds` are N waveforms, and `frames` what is made of them.
    """

    ids: np.ndarray
    segments: np.ndarray
    layout: Layout
    labels: dict[str, Labels]
    samples: np.ndarray
    written: Written | None = None
    sounds: tuple[np.ndarray, ...] = ()
    frames: Frames | None = None

    @property
    def targets(self) -> int:
        """How many targets the loss of this batch sums over."""
        written = 0 if self.written is None else len(self.written.next)
        return written + sum(len(labels.values) for labels in self.labels.values())

    @property
    def padding(self) -> float:
        """The share of a padded batch that would be padding."""
        return 1.0 - self.layout.tokens / (self.layout.sequences * self.layout.longest)


def pack(samples: Sequence[Sample], names: np.ndarray | None = None) -> Packed:
    """Join samples into one packed batch; `names` (N, 3) are their ids (see Packed)."""
    layout = Layout.of_lengths([len(sample) for sample in samples])
    return Packed(
        ids=np.concatenate([sample.ids for sample in samples]).astype(np.int64),
        segments=np.concatenate([sample.segments for sample in samples]).astype(np.int64),
        layout=layout,
        labels={key: _labels([sample.labels[key] for sample in samples]) for key in samples[0].labels},
        samples=np.zeros((len(samples), 3), np.int64) if names is None else names,
        written=_written([sample.written for sample in samples if sample.written is not None]),
        sounds=tuple(sample.sound() for sample in samples if sample.sound is not None),
    )


def plan(lengths: Sequence[int], budget: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Which samples go together: index arrays, in a random order, none with more than `budget` tokens in sum.

    Each sample stands in exactly one batch.  A batch closes when the next sample would not fit; the last two share
    what they hold, so that no step rests on a handful of samples.
    """
    too_long = [i for i, length in enumerate(lengths) if length > budget]
    assert not too_long, f"sample {too_long[0]} has {lengths[too_long[0]]} tokens, the budget is {budget}"
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths, dtype=np.int64)[order]
    batches = _fill(order, sizes, budget)
    if len(batches) > 1:
        batches[-2:] = _halve(np.concatenate(batches[-2:]), np.asarray(lengths), budget)
    return [batches[i] for i in rng.permutation(len(batches))]


def plan_by_length(lengths: Sequence[int], budget: int) -> list[np.ndarray]:
    """As `plan`, but the longest together first, so that a batch holds samples of about one length.

    A sample longer than the budget has a batch of its own.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    return _fill(order, np.minimum(sizes[order], budget), budget)


def _fill(order: np.ndarray, sizes: np.ndarray, budget: int) -> list[np.ndarray]:
    ends = np.cumsum(sizes)
    batches, first = [], 0
    while first < len(order):
        used = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, used + budget, side="right"))
        batches.append(order[first:last])
        first = last
    return batches


def _halve(indices: np.ndarray, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Two batches of the samples that filled two, as even as the budget lets them be."""
    ends = np.cumsum(lengths[indices])
    cut = int(np.searchsorted(ends, ends[-1] / 2, side="right"))
    # Before the cut is no more than half of all.  Where too much is behind it, the next sample moves over: it was in
    # the first of the two that were filled, so that it fits.
    before = int(ends[cut - 1]) if cut else 0
    if ends[-1] - before > budget:
        cut += 1
    return [indices[:cut], indices[cut:]]


def _written(texts: Sequence[np.ndarray]) -> Written | None:
    if not texts:
        return None
    before, after = (np.concatenate([text[part] for text in texts]) for part in (slice(-1), slice(1, None)))
    return Written(
        before.astype(np.int64), after.astype(np.int64), Layout.of_lengths([len(text) - 1 for text in texts])
    )


def _labels(values: list[int | float | np.ndarray]) -> Labels:
    if np.ndim(values[0]):
        joined = np.concatenate(values)
        if joined.ndim > 1:
            return Labels(joined, None)
        labels = joined.astype(np.int64)
    else:
        labels = np.asarray(values)
        if labels.dtype.kind == "f" or not (labels == IGNORE).any():
            return Labels(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64), None)
    positions = np.flatnonzero(labels != IGNORE)
    return Labels(labels[positions], positions)
