"""What all uses of a model share that do not train it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import paddle
from paddle import nn

from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


@contextmanager
def evaluating(model: nn.Layer) -> Iterator[None]:
    """Without dropout and gradients for a while; afterwards each layer is in the mode it was in."""
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.eval()
    try:
        with paddle.no_grad():
            yield
    finally:
        for layer, training in modes:
            layer.training = training


def tokenizer_of(model: ErnieModel) -> Tokenizer:
    """The model's tokenizer.  Raises UserError when it has none."""
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer; model.tokenizer = ErnieTokenizer.from_pretrained(path) gives one")
    return model.tokenizer
