"""The dropout masks of the kernels, generated independently in NumPy.

Philox 4x32 with seven rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle

ATTENTION, AFTER_ATTENTION, AFTER_FEED_FORWARD, STANDALONE = 1, 2, 3, 0  # the sites of dropout in a layer


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> list[np.ndarray]:
    """Four words for each counter of four words."""
    low32 = np.uint64(0xFFFFFFFF)
    c = [np.asarray(word, np.uint64) for word in counter]
    for round_ in range(7):
        k0 = np.uint64(key[0] + round_ * 0x9E3779B9) & low32
        k1 = np.uint64(key[1] + round_ * 0xBB67AE85) & low32
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(second >> np.uint64(32)) ^ c[1] ^ k0, second & low32, (first >> np.uint64(32)) ^ c[3] ^ k1, first & low32]
    return c


def dropout_mask(probability: float, seed: int, site: int, rows: int, columns: int, plane: int = 0) -> np.ndarray:
    """The factors of dropout, (rows, columns): 0, or 1 / (1 - probability)."""
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    counter = (column // 64 * 16 + column % 16, row, np.full_like(row, plane), np.full_like(row, site))
    words = np.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32)))
    word = np.take_along_axis(words, (column % 64 // 16)[None], 0)[0]
    return (word >= np.uint64(int(np.float32(probability) * 2.0**32))) / (1 - np.float64(np.float32(probability)))


def seeded_mask(paddle_seed: int) -> partial[np.ndarray]:
    """Seed Paddle, and return `dropout_mask` with the seed that the next kernel will draw."""
    paddle.seed(paddle_seed)
    seed = int(paddle.framework.core.default_cpu_generator().random())
    paddle.seed(paddle_seed)
    return partial(dropout_mask, seed=seed)
