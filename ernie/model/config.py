"""Encoder configuration and named presets."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from ernie.config import build, from_dict
from ernie.errors import UserError, nearest
from ernie.json_file import read_json
from ernie.runtime import total_memory

Activation = Literal["gelu", "relu"]

_MOST_WEIGHTS = 10**13  # 40 TB
_MAX_SIZE = 2**31 - 1  # the largest tensor dimension that Paddle supports


@dataclass(frozen=True)
class EncoderConfig:
    """Hyperparameters of an encoder; the defaults are those of BERT and ERNIE 2.0 base.

    `task_vocab_size` is the number of task embeddings, 0 for an encoder without them.  Sizes are in units, dropout in
    probabilities.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    intermediate_size: int = 3072
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    max_positions: int = 512
    segments: int = 2
    task_vocab_size: int = 16
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "layers", "heads", "intermediate_size", "max_positions", "segments"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.task_vocab_size < 0:
            raise UserError(f"task_vocab_size: expected at least 0, found {self.task_vocab_size}")
        for name in ("vocab_size", "hidden_size", "intermediate_size", "max_positions", "segments", "task_vocab_size"):
            if getattr(self, name) > _MAX_SIZE:
                raise UserError(f"{name}: expected at most {_MAX_SIZE}, found {getattr(self, name)}")
        if self.weights > _MOST_WEIGHTS:
            raise UserError(
                f"layers: {self.layers:,} of width {self.hidden_size:,}, with {self.vocab_size:,} tokens, are "
                f"{4 * self.weights // 10**12:,} TB of weights; expected at most {4 * _MOST_WEIGHTS // 10**12:,} TB"
            )
        if self.activation not in get_args(Activation):
            raise UserError(
                f"activation: expected one of {', '.join(get_args(Activation))}, found {self.activation!r:.60}"
            )
        if self.hidden_size % self.heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not divisible by heads {self.heads}: "
                f"{self.hidden_size} / {self.heads} = {self.hidden_size / self.heads:.2f}"
            )
        if self.layer_norm_epsilon <= 0 or self.initializer_range <= 0:
            raise UserError(
                f"layer_norm_epsilon and initializer_range: expected more than 0, found "
                f"{self.layer_norm_epsilon} and {self.initializer_range}"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}: expected a probability from 0 to below 1, found {getattr(self, name)}")

    @property
    def weights(self) -> int:
        """The number of weights in matrices: those of the layers and of the embeddings."""
        layer = self.hidden_size * (4 * self.hidden_size + 2 * self.intermediate_size)
        embedded = self.vocab_size + self.max_positions + self.segments + self.task_vocab_size
        return self.layers * layer + embedded * self.hidden_size

    @classmethod
    def preset(cls, name: str) -> EncoderConfig:
        """Return the preset called `name`, see PRESETS.  Raises UserError for an unknown name."""
        if name not in PRESETS:
            raise UserError(f"there is no encoder preset '{name}'.{nearest(name, PRESETS)}")
        return PRESETS[name]

    @classmethod
    def read(cls, path: Path) -> EncoderConfig:
        """Read a configuration written by `write`.  Raises UserError when the file is missing or damaged."""
        data = read_json(path, {}, f"Is {path.parent} the folder of a model? Then it is damaged.")
        return build(cls, from_dict(data, str(path)))

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def check_memory(config: EncoderConfig) -> None:
    """Raise UserError if the weights do not fit into the memory of this machine, before any is allocated."""
    memory = total_memory()
    if memory and 4 * config.weights > memory:
        raise UserError(
            f"layers: {config.layers:,} of width {config.hidden_size:,}, with {config.vocab_size:,} tokens, are "
            f"{4 * config.weights / 1e9:,.0f} GB of weights, and this machine has {memory / 1e9:,.0f} GB of memory"
        )


def _small(hidden_size: int, layers: int, heads: int) -> EncoderConfig:
    return EncoderConfig(
        hidden_size=hidden_size,
        layers=layers,
        heads=heads,
        intermediate_size=4 * hidden_size,
        layer_norm_epsilon=1e-5,
        # 0.02 suits 768 units.  Narrower layers need larger weights for outputs of the same scale; otherwise attention
        # starts out too uniform to learn.
        initializer_range=round(0.02 * math.sqrt(768 / hidden_size), 4),
    )


_BASE = EncoderConfig()
_LARGE = replace(_BASE, hidden_size=1024, layers=24, heads=16, intermediate_size=4096)

# Besides our own sizes: BERT's configurations and the released ones of ERNIE 2.0 (four segments, sixteen tasks) and of
# the Chinese ERNIE 1.0 (ReLU, 513 positions).
PRESETS: dict[str, EncoderConfig] = {
    "tiny": _small(128, 2, 2),
    "mini": _small(256, 4, 4),
    "small": _small(512, 4, 8),
    "base": replace(_BASE, layer_norm_epsilon=1e-5),
    "large": replace(_LARGE, layer_norm_epsilon=1e-5),
    "bert-base": replace(_BASE, task_vocab_size=0),
    "bert-large": replace(_LARGE, task_vocab_size=0),
    "ernie-2.0-base-en": replace(_BASE, segments=4, layer_norm_epsilon=1e-5),
    "ernie-2.0-large-en": replace(_LARGE, segments=4, layer_norm_epsilon=1e-5),
    "ernie-1.0-base-zh": replace(
        _BASE,
        vocab_size=18000,
        activation="relu",
        max_positions=513,
        task_vocab_size=0,
        layer_norm_epsilon=1e-5,
    ),
}
