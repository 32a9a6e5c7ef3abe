"""Layer outputs of a model for a fixed batch that covers all its positions, segments and tasks.

Legend: N sequences, L padded length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import paddle

from ernie.model.config import EncoderConfig
from ernie.model.inference import evaluating

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

States = Mapping[str, np.ndarray]  # a layer's name -> its output, (tokens, width) without padding
EMBEDDINGS, POOLER, MASKED, FILLED = "embeddings", "pooler", "masked tokens", "filled masks"
LOGITS = "logits"  # of a fine-tuned model's head


def layer_name(i: int) -> str:
    """Return the certificate's name of the layer with index `i`."""
    return f"layer {i + 1}"


@dataclass(frozen=True)
class Probe:
    """A padded batch: (N, L) ids, segments, tasks and mask."""

    ids: np.ndarray
    segments: np.ndarray
    tasks: np.ndarray
    mask: np.ndarray

    @classmethod
    def of(cls, config: EncoderConfig, padding: int) -> Probe:
        """Return a fixed batch: a sequence of the maximum length, a shorter one, and one of a single token.

        No token has the id `padding`, whose embedding in PaddleNLP's ERNIE is zero.
        """
        rng = np.random.default_rng(0)
        lengths = np.array([config.max_positions, (config.max_positions + 2) // 3, 1])
        shape = (len(lengths), config.max_positions)
        mask = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
        ids = rng.integers(config.vocab_size - 1, size=shape)
        ids = (ids + (ids >= padding)) * mask
        segments = rng.integers(config.segments, size=shape) * mask
        tasks = np.broadcast_to(np.arange(len(lengths))[:, None] % max(config.task_vocab_size, 1), shape) * mask
        return cls(ids, segments, tasks, mask)

    def tokens(self, values_NL: np.ndarray) -> np.ndarray:
        """Select the values at tokens: (N, L, ...) -> (tokens, ...), float32."""
        return np.asarray(values_NL, np.float32)[self.mask.astype(bool)]


def states_of(model: ErnieModel, probe: Probe) -> dict[str, np.ndarray]:
    """Compute the layers' outputs of our model, with those of its masked-token head also for the head's own task."""
    with evaluating(model):
        output = model(probe.ids, probe.segments, probe.mask, probe.tasks, output_hidden_states=True)
        assert output.hidden_states is not None
        hidden = [probe.tokens(state.numpy()) for state in output.hidden_states]
        states = {EMBEDDINGS: hidden[0], **{layer_name(i): state for i, state in enumerate(hidden[1:])}}
        states[POOLER] = output.pooler_output.numpy()
        if model.masked_head is not None:
            positions = np.arange(len(hidden[-1]))
            states[MASKED] = model.masked_head(paddle.to_tensor(hidden[-1]), positions).numpy()
            tasks = np.full_like(probe.tasks, model.masked_head.task_id)
            last = probe.tokens(model(probe.ids, probe.segments, probe.mask, tasks).last_hidden_state.numpy())
            states[FILLED] = model.masked_head(paddle.to_tensor(last), positions).numpy()
    return states
