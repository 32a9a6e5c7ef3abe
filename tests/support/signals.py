"""Plain signals of sound."""

from __future__ import annotations

import numpy as np


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


def tone(frequency: float, seconds: float = 0.5, rate: int = 8000) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)
