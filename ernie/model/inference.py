"""What all uses of a model share that do not train it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import paddle
from paddle import nn

from ernie.errors import NotFinite, UserError
from ernie.kernels.precision import to_numpy
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


_LOOKED_AT = 64  # values of each weight, by which models are told apart: to read all of them would take seconds
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


def identity(model: ErnieModel, head: nn.Layer) -> str:
    """What tells a model and its head from others: vocabulary, shape, and the first values of each of their weights."""
    known = (model.tokenizer.fingerprint if model.tokenizer else "", sorted(asdict(model.config).items()))
    digest = blake2b(repr(known).encode(), digest_size=16)
    for layer in (model, head):
        for name, value in layer.state_dict().items():
            first = to_numpy(value.reshape([-1])[:_LOOKED_AT])
            digest.update(f"{name} {value.shape}".encode() + first.tobytes())
    return digest.hexdigest()


def finite(logits: np.ndarray) -> np.ndarray:
    """The logits.  Raises NotFinite where one is no number or infinite; minus infinity rules an answer out."""
    if not (logits < np.inf).all():
        raise NotFinite("the model's outputs are not finite: its weights are damaged, or its training broke down")
    return logits
