"""An encoder for one of its tasks, as a BERT: what every framework can compute."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ernie.errors import UserError
from ernie.model.heads import MaskedTokenHead
from ernie.model.weights import arrays, set_weights

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


def folded(model: ErnieModel, task: int) -> ErnieModel:
    """A model without task embeddings that computes what `model` does for one task.

    The task's embedding is added to each segment's, which is the same sum.  Raises UserError when the model has no
    such task.
    """
    config = model.config
    if not 0 <= task < config.task_vocab_size:
        has = f"the tasks 0 to {config.task_vocab_size - 1}" if config.task_vocab_size else "no task embeddings"
        raise UserError(f"--task {task}: the model has {has}")
    weights = arrays(model)
    weights["embedding.segment.weight"] += weights.pop("embedding.task.weight")[task]
    plain = type(model)(replace(config, task_vocab_size=0), drawn=False)
    set_weights(plain, weights, "the model")
    plain.tokenizer = model.tokenizer
    if model.masked_head is not None:
        plain.masked_head = MaskedTokenHead(plain)
        set_weights(plain.masked_head, arrays(model.masked_head), "the model's masked-token head")
        plain.masked_head.eval()
    plain.eval()
    return plain
