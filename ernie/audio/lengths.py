"""How much an encoder gets of a sound, and how much a transcript needs of it: known without Paddle."""

from __future__ import annotations

import numpy as np

STEPS = (2, 2)  # from one frame to the next, of the convolutions before the encoder
STRIDE = 4  # frames for each vector


def vectors(frames: int) -> int:
    """How many vectors the encoder gets of so many frames."""
    for step in STEPS:
        frames = -(-frames // step)
    return frames


def needed(labels: np.ndarray) -> int:
    """How many vectors CTC needs for labels (L,): one each, and a blank between two that are alike."""
    return len(labels) + int((labels[1:] == labels[:-1]).sum())
