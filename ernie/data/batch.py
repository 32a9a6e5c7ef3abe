"""Packed batches, which have no padding.

Legend: T tokens of the batch, N sequences, R rows of one or more sequences, P labeled tokens, U decoder tokens, F
frames, M features per frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ernie.data import seeded_rng
from ernie.data.document import IGNORE, Sample
from ernie.errors import UserError


@dataclass(frozen=True, eq=False)
class Layout:
    """The sequence boundaries of a packed batch: start offsets (N + 1,), of which the last is T."""

    offsets: np.ndarray

    def __post_init__(self) -> None:
        """Raise UserError for offsets that do not rise from 0: the kernels read and write between them."""
        offsets = self.offsets
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise UserError(f"offsets of a layout: expected numbers that rise from 0, found {offsets!s:.80}")

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | np.ndarray) -> Layout:
        """Build the layout of consecutive sequences of the given lengths."""
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
        """The index of each sequence's first token, [CLS], (N,)."""
        return self.offsets[:-1]

    @cached_property
    def positions(self) -> np.ndarray:
        """Each token's position within its sequence, (T,)."""
        return np.arange(self.tokens) - np.repeat(self.starts, self.lengths)

    def sequences_of(self, tokens: np.ndarray | None) -> np.ndarray:
        """Return the sequence index of each of the given tokens, or every sequence once if `tokens` is None."""
        if tokens is None:
            return np.arange(self.sequences)
        return np.searchsorted(self.offsets, tokens, side="right") - 1

    @cached_property
    def slots(self) -> np.ndarray:
        """Each token's index in the flattened padded batch (N * longest), (T,)."""
        return np.repeat(np.arange(self.sequences) * self.longest, self.lengths) + self.positions

    def followed_by(self, more: Layout) -> Layout:
        """Return the layout in which each sequence is extended by its length in `more`."""
        return Layout(self.offsets + more.offsets)

    @property
    def is_rectangular(self) -> bool:
        """Whether all sequences have the same length, so that a padded batch would have no padding."""
        return self.tokens == self.sequences * self.longest


class Labels(NamedTuple):
    """Targets (P,), or (P, C) with C targets each, and the indices (P,) of their tokens.

    `positions` is None with one target per sequence (N,); if some sequences lack one, it holds the indices of the
    sequences that have one.
    """

    values: np.ndarray
    positions: np.ndarray | None


class DecoderTokens(NamedTuple):
    """The input ids (U,) of a decoder, one sequence per sequence of the batch, and the next token at each (U,)."""

    ids: np.ndarray
    next: np.ndarray
    layout: Layout


class Frames(NamedTuple):
    """Acoustic features (F, M), one sequence of frames per sequence of the batch."""

    features: np.ndarray
    layout: Layout


@dataclass(frozen=True)
class Packed:
    """Concatenated samples of one task.

    `ids` and `segments` are (T,).  `samples` (N, 3) identifies each sample: epoch, item, number within the item.
    `seed` is that of the training: what is drawn for a sample depends on both, see `generators`.
    `decoder_tokens` is set for tasks with a decoder.  For speech, `sounds` are N waveforms and `frames` their features.
    `weights` (N,) are the factors of the samples' losses, None if all are 1; they do not change the number of targets.
    `ranks` (T,) are those of the samples, None if they have none.
    `firsts` (R,) is the first sequence of each row, None if every row has one; the labels are those of rows.
    """

    ids: np.ndarray
    segments: np.ndarray
    layout: Layout
    labels: dict[str, Labels]
    samples: np.ndarray
    decoder_tokens: DecoderTokens | None = None
    sounds: tuple[np.ndarray, ...] = ()
    frames: Frames | None = None
    weights: np.ndarray | None = None
    firsts: np.ndarray | None = None
    ranks: np.ndarray | None = None
    seed: int = 0

    def generators(self, purpose: str) -> list[np.random.Generator]:
        """Return what draws for each sample: a function of the seed, the purpose and the sample's name."""
        return [seeded_rng.generator(self.seed, purpose, *name) for name in self.samples.tolist()]

    @property
    def targets(self) -> int:
        """The number of targets that the loss of this batch sums over."""
        decoded = 0 if self.decoder_tokens is None else len(self.decoder_tokens.next)
        return decoded + sum(len(labels.values) for labels in self.labels.values())

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays that a model reads, but for sounds: what `Uploads` sends to a GPU."""
        found = [self.ids, self.segments, self.layout.offsets, self.layout.positions]
        found += [array for labels in self.labels.values() for array in labels if array is not None]
        if self.decoder_tokens is not None:
            ids, following, layout = self.decoder_tokens
            found += [ids, following, layout.offsets, layout.positions]
        if self.frames is not None:
            found.append(self.frames.features)
        return found

    @property
    def padding(self) -> float:
        """The fraction of padding that a padded batch would have."""
        return 1.0 - self.layout.tokens / (self.layout.sequences * self.layout.longest)


def pack(samples: Sequence[Sample], names: np.ndarray | None = None, seed: int = 0) -> Packed:
    """Join samples into one packed batch; `names` (N, 3) are their ids (see Packed)."""
    layout = Layout.of_lengths([len(sample) for sample in samples])
    weights = np.array([sample.weight for sample in samples])
    firsts = [n for n, sample in enumerate(samples) if not sample.continues]
    return Packed(
        ids=np.concatenate([sample.ids for sample in samples]).astype(np.int64),
        segments=np.concatenate([sample.segments for sample in samples]).astype(np.int64),
        layout=layout,
        labels={key: _labels([samples[n].labels[key] for n in firsts]) for key in samples[0].labels},
        samples=np.zeros((len(samples), 3), np.int64) if names is None else names,
        seed=seed,
        decoder_tokens=_decoder_tokens([sample.decoder_ids for sample in samples if sample.decoder_ids is not None]),
        sounds=tuple(sample.sound() for sample in samples if sample.sound is not None),
        weights=None if (weights == 1).all() else weights,
        firsts=None if len(firsts) == len(samples) else np.array(firsts),
        ranks=None if samples[0].ranks is None else np.concatenate([sample.ranks for sample in samples]),
    )


def plan(lengths: Sequence[int], budget: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Group samples into batches of at most `budget` tokens: index arrays, in random order.

    Each sample is in exactly one batch.  A batch closes when the next sample would not fit; the last two batches are
    balanced, so that no step depends on a handful of samples.
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
    """Like `plan`, but sorted by length, longest first, so that a batch holds samples of similar length.

    A sample longer than the budget gets a batch of its own.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    budget = min(budget, int(sizes.sum()))  # which NumPy can hold
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
    """Split the samples of two batches into two of sizes as equal as the budget allows."""
    ends = np.cumsum(lengths[indices])
    cut = int(np.searchsorted(ends, ends[-1] / 2, side="right"))
    # At most half of the tokens are before the cut.  If those after it exceed the budget, move the next sample to the
    # first batch: it was in the first of the two original batches, so it fits.
    before = int(ends[cut - 1]) if cut else 0
    if ends[-1] - before > budget:
        cut += 1
    return [indices[:cut], indices[cut:]]


def _decoder_tokens(sequences: Sequence[np.ndarray]) -> DecoderTokens | None:
    if not sequences:
        return None
    inputs, targets = (np.concatenate([ids[part] for ids in sequences]) for part in (slice(-1), slice(1, None)))
    return DecoderTokens(
        inputs.astype(np.int64), targets.astype(np.int64), Layout.of_lengths([len(ids) - 1 for ids in sequences])
    )


def _labels(values: list[int | float | np.ndarray]) -> Labels:
    if np.ndim(values[0]) > 1:
        return _label_rows([np.asarray(each) for each in values])
    if np.ndim(values[0]):
        labels = np.concatenate(values).astype(np.int64)
    else:
        labels = np.asarray(values)
        if labels.dtype.kind == "f" or not (labels == IGNORE).any():
            return Labels(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64), None)
    positions = np.flatnonzero(labels != IGNORE)
    return Labels(labels[positions], positions)


def _label_rows(values: list[np.ndarray]) -> Labels:
    """Join targets of several numbers, the shorter ones filled with 0; those that are NaN are left out."""
    width = max(each.shape[1] for each in values)
    kept = np.concatenate([~np.isnan(each).all(1) for each in values])
    joined = np.concatenate([np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in values])
    return Labels(joined, None) if kept.all() else Labels(joined[kept], np.flatnonzero(kept))
