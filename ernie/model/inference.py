"""Helpers shared by all uses of a model for inference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import blake2b
from threading import Lock

import numpy as np
import paddle
from paddle import nn

from ernie.errors import NotFinite, UserError
from ernie.kernels.precision import to_numpy
from ernie.model.base_encoder import BaseEncoder
from ernie.text.tokenizer import Tokenizer

_FINGERPRINT_VALUES = 64  # of each weight: to hash all values would take seconds
# Layers in evaluation: the number of users, possibly in different threads, and the mode before the first one.
_IN_USE: dict[nn.Layer, tuple[int, bool]] = {}
_LOCK = Lock()
NOT_FINITE = "the model's outputs are not finite: its weights are damaged, or its training broke down"
_FOR_INFERENCE = "_for_inference"  # the mark of layers that stay in evaluation mode


def for_inference(model: nn.Layer) -> None:
    """Put a model into evaluation mode for good: `evaluating` then has no mode to set, and takes no lock.

    `model.train()` undoes it.
    """
    model.eval()
    for layer in model.sublayers(include_self=True):
        object.__setattr__(layer, _FOR_INFERENCE, True)


@contextmanager
def evaluating(model: nn.Layer) -> Iterator[None]:
    """Disable dropout and gradients within the context, then restore each layer's mode."""
    if getattr(model, _FOR_INFERENCE, False) and not model.training:
        with paddle.no_grad():
            yield
        return
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


def tokenizer_of(model: BaseEncoder) -> Tokenizer:
    """Return the model's tokenizer.  Raises UserError when it has none."""
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer; model.tokenizer = ErnieTokenizer.from_pretrained(path) gives one")
    return model.tokenizer


def identity(model: BaseEncoder, head: nn.Layer) -> str:
    """Return a fingerprint of a model and its head: vocabulary, configuration and the first values of each weight."""
    description = (model.tokenizer.fingerprint if model.tokenizer else "", sorted(asdict(model.config).items()))
    digest = blake2b(repr(description).encode(), digest_size=16)
    for layer in (model, head):
        for name, value in layer.state_dict().items():
            first = to_numpy(value.reshape([-1])[:_FINGERPRINT_VALUES])
            digest.update(f"{name} {value.shape}".encode() + first.tobytes())
    return digest.hexdigest()


def finite(logits: np.ndarray) -> np.ndarray:
    """Return the logits.  Raises NotFinite for NaN and plus infinity; minus infinity excludes an answer."""
    if not (logits < np.inf).all():
        raise NotFinite(NOT_FINITE)
    return logits
