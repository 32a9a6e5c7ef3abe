"""What all uses of a model share that do not train it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import paddle
from paddle import nn

from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


# The layers that somebody evaluates: how many do, in threads of their own perhaps, and the mode before the first.
_IN_USE: dict[nn.Layer, tuple[int, bool]] = {}
_LOCK = Lock()


@contextmanager
def evaluating(model: nn.Layer) -> Iterator[None]:
    """Without dropout and gradients for a while; afterwards each layer is in the mode it was in."""
    layers = model.sublayers(include_self=True)
    with _LOCK:
        for layer in layers:
            users, mode = _IN_USE.get(layer, (0, layer.training))
            _IN_USE[layer] = users + 1, mode
            layer.training = False
    try:
        with paddle.no_grad():
            yield
    finally:
        with _LOCK:
            for layer in layers:
                users, mode = _IN_USE.pop(layer)
                if users > 1:
                    _IN_USE[layer] = users - 1, mode
                else:
                    layer.training = mode


def tokenizer_of(model: ErnieModel) -> Tokenizer:
    """The model's tokenizer.  Raises UserError when it has none."""
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer; model.tokenizer = ErnieTokenizer.from_pretrained(path) gives one")
    return model.tokenizer
