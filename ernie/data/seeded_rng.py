"""Keyed permutations and random generators: shuffling as a pure function, with no state to save.

All randomness in the data pipeline comes from here, keyed by (seed, task, epoch, item), so that neither the number of
workers nor an interruption can change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

_ROUNDS = 6


def key(*parts: int | str) -> int:
    """Return a 128-bit key that depends on every part and on their order."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(*parts: int | str) -> np.random.Generator:
    """Return the random generator of these parts (Philox, counter-based: different keys give independent streams)."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def permute(positions: np.ndarray, size: int, key: int) -> np.ndarray:
    """Return the items at `positions` of a random permutation of range(size), in memory independent of `size`.

    Uses a Feistel network over the next even number of bits with cycle walking for values outside the range (Black and
    Rogaway, 2002, "Ciphers with Arbitrary Finite Domains").  Bijective for every key.
    """
    return _walk(positions, size, _round_keys(key), _feistel)


def positions_of(items: np.ndarray, size: int, key: int) -> np.ndarray:
    """Return the positions of `items` in the permutation that `permute` gives for this size and key."""
    return _walk(items, size, _round_keys(key)[::-1], _feistel_back)


def _walk(values: np.ndarray, size: int, round_keys: np.ndarray, cipher: Callable[..., np.ndarray]) -> np.ndarray:
    values = np.asarray(values, dtype=np.uint64)
    if size <= 1:
        return values.astype(np.int64)
    half = np.uint64(((size - 1).bit_length() + 1) // 2)
    result = cipher(values, half, round_keys)
    outside = result >= size
    while outside.any():
        result[outside] = cipher(result[outside], half, round_keys)
        outside = result >= size
    return result.astype(np.int64)


def _round_keys(key: int) -> np.ndarray:
    state = np.random.Philox(key=key).random_raw(_ROUNDS)
    return np.asarray(state, dtype=np.uint64)


def _feistel(values: np.ndarray, half: np.uint64, round_keys: np.ndarray) -> np.ndarray:
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & low_mask
    for round_key in round_keys:
        left, right = right, left ^ (_mix(right ^ round_key) & low_mask)
    return (left << half) | right


def _feistel_back(values: np.ndarray, half: np.uint64, round_keys: np.ndarray) -> np.ndarray:
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & low_mask
    for round_key in round_keys:
        left, right = right ^ (_mix(left ^ round_key) & low_mask), left
    return (left << half) | right


def _mix(x: np.ndarray) -> np.ndarray:
    """A 64-bit finalizer (Steele et al., 2014, "Fast splittable pseudorandom number generators")."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
