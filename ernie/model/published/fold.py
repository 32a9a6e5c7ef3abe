"""Folding a task embedding into the weights: an encoder for one task becomes a BERT, which every framework can run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.model.weights import arrays, set_weights

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


def check_task(config: EncoderConfig, task: int) -> None:
    """Raise UserError unless a model has this task embedding."""
    if not 0 <= task < config.task_vocab_size:
        has = f"the tasks 0 to {config.task_vocab_size - 1}" if config.task_vocab_size else "no task embeddings"
        raise UserError(f"--task {task}: the model has {has}")


def fold_task(model: ErnieModel, task: int) -> ErnieModel:
    """Return a model without task embeddings whose outputs are those of `model` for one task.

    The task embedding is added to each segment embedding, which gives the same sum.  Raises UserError when the model
    has no such task.
    """
    config = model.config
    check_task(config, task)
    weights = arrays(model)
    weights["embedding.segment.weight"] += weights.pop("embedding.task.weight")[task]
    result = type(model)(replace(config, task_vocab_size=0), initialize=False)
    set_weights(result, weights, "the model")
    result.tokenizer, result.sentence_config = model.tokenizer, model.sentence_config
    if model.masked_head is not None:
        result.masked_head = MaskedTokenHead(result)
        set_weights(result.masked_head, arrays(model.masked_head), "the model's masked-token head")
        result.masked_head.eval()
    result.eval()
    return result
