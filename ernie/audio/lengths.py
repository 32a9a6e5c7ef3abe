"""Lengths of encoder inputs, and the lengths that transcripts need; known without Paddle."""

from __future__ import annotations

import numpy as np

STEPS = (2, 2)  # the strides of the convolutions before the encoder
STRIDE = 4  # frames per vector


def vector_count(frames: int) -> int:
    """Return how many vectors the encoder gets for a number of frames."""
    for step in STEPS:
        frames = -(-frames // step)
    return frames


def min_vectors(labels: np.ndarray) -> int:
    """Return how many vectors CTC needs for labels (L,): one each, and a blank between equal neighbors."""
    return len(labels) + int((labels[1:] == labels[:-1]).sum())
