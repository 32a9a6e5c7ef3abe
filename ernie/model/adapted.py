"""Encoders with an adapter: low-rank updates of a pretrained encoder that were learned and saved beside it.

LoRA: Hu et al., 2021, arXiv 2106.09685, section 4.1.  Any number of them share the weights of their base.

Legend: T packed tokens, D and E widths, r rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.json_file import read_json
from ernie.kernels.mask import Mask
from ernie.kernels.types import Adapted, LayerUpdates, LayerWeights, LowRank
from ernie.model.base_encoder import BaseEncoder
from ernie.model.cache import ExtendedCache, KeyValueCache
from ernie.model.encoder import Encoder
from ernie.model.ernie import ErnieModel
from ernie.model.heads import Pooler
from ernie.model.published.names import HUGGING_FACE
from ernie.model.weights import arrays, fingerprint, read_arrays, set_weights

ADAPTER_FOLDER = "adapter"  # in the folder of a model, if that was learned of the encoder
ADAPTER_WEIGHTS, ADAPTER_SETTINGS = "adapter_model.safetensors", "adapter_config.json"  # as the library PEFT names them
PEFT_PREFIX = "base_model.model."  # of names of weights in its files
POOLER = "pooler."
# The sublayers of an encoder layer that can be adapted, and the names of their weights in LayerWeights.
MATRICES = {"q": "q", "k": "k", "v": "v", "attention_out": "out", "inner": "inner", "outer": "outer"}
_COMPARED = 64  # numbers of each weight that show whether it has changed
_FINGERPRINTS: WeakKeyDictionary[BaseEncoder, tuple[tuple[Any, ...], str]] = WeakKeyDictionary()
_NOT_CACHED = "an encoder that shares the weights of its base does not compute token by token or in chunks"
_KEYS = {"r": (int,), "lora_alpha": (int, float), "base_fingerprint": (str,), "base_model_name_or_path": (str,)}


def base_fingerprint(ernie: BaseEncoder) -> str:
    """Return a fingerprint of what an adapter takes from an encoder: its tokenizer, all weights but the pooler's.

    It is computed again only if weights have changed since, so that many adapters of a base load quickly.
    """
    tokenizer = ernie.tokenizer.fingerprint if ernie.tokenizer else ""
    state = [(name, value) for name, value in ernie.state_dict().items() if not name.startswith(POOLER)]
    # Paddle's own optimizers do not change a weight's version: its first numbers tell of them.
    key = tokenizer, *((name, value.inplace_version, _begin(value)) for name, value in state)
    known = _FINGERPRINTS.get(ernie)
    if known is None or known[0] != key:
        shared = {name: values for name, values in arrays(ernie).items() if not name.startswith(POOLER)}
        known = _FINGERPRINTS[ernie] = (key, fingerprint(tokenizer, shared))
    return known[1]


def _begin(value: Tensor) -> bytes:
    first = value[0] if value.ndim > 1 else value
    return bytes(first[:_COMPARED].astype("float32").numpy().tobytes())


@dataclass(frozen=True)
class SavedAdapter:
    """What was learned of an encoder: updates of its layers' matrices, by their names in LayerWeights, and a pooler."""

    layers: LayerUpdates
    pooler: Mapping[str, np.ndarray]
    base: str
    fingerprint: str

    @classmethod
    def read(cls, folder: Path, layers: int) -> SavedAdapter:
        """Read an adapter, for an encoder of so many layers, from its folder.

        Raises UserError if the folder holds none, or one that is damaged.
        """
        damaged = f"{folder} is damaged; copy it again."
        settings = read_json(folder / ADAPTER_SETTINGS, _KEYS, damaged)
        file = folder / ADAPTER_WEIGHTS
        weights, table = read_arrays(file), HUGGING_FACE.of_encoder(layers, "")
        scale = settings["lora_alpha"] / settings["r"]

        def factor(module: str, part: str) -> np.ndarray | None:
            return weights.pop(f"{PEFT_PREFIX}{table[f'{module}.weight'].removesuffix('.weight')}.{part}.weight", None)

        found: list[dict[str, LowRank]] = []
        for number in range(layers):
            updates = {}
            for name, matrix in MATRICES.items():
                a, b = (factor(f"encoder.layers.{number}.{name}", part) for part in ("lora_A", "lora_B"))
                if a is None or b is None:
                    continue
                updates[matrix] = LowRank(np.ascontiguousarray(a.T), np.ascontiguousarray(scale * b.T))
            found.append(updates)
        pooler = {}
        for ours, theirs in table.items():
            if ours.startswith(POOLER) and (values := weights.pop(PEFT_PREFIX + theirs, None)) is not None:
                pooler[ours.removeprefix(POOLER)] = values.T if HUGGING_FACE.is_transposed(ours) else values
        if weights:
            raise UserError(f"{file}: has weights of no layer of this encoder, such as {next(iter(weights))}")
        return cls(LayerUpdates(found), pooler, settings["base_model_name_or_path"], settings["base_fingerprint"])

    def check_base(self, ernie: ErnieModel, place: Path) -> None:
        """Raise UserError if another encoder was adapted; `place` is where the adapter was read from."""
        if self.fingerprint != base_fingerprint(ernie):
            raise UserError(
                f"{place}: was learned on another encoder, which its run calls '{self.base}'; give that one as the base"
            )

    @paddle.no_grad()
    def merge(self, ernie: ErnieModel) -> None:
        """Put the updates and the pooler into the weights of an encoder."""
        for layer, updates in zip(ernie.encoder.layers, self.layers, strict=True):
            weights: LayerWeights = layer.weights()
            for name, (a, b) in updates.items():
                weight = getattr(weights, name)
                weight.set_value(paddle.addmm(weight, paddle.to_tensor(a), paddle.to_tensor(b)))
        set_weights(ernie.pooler, dict(self.pooler), "the adapter")


class AdaptedModel(ErnieModel):
    """An encoder with an adapter, for inference: it has a pooler of its own, and shares all other weights of its base.

    What it computes differs from an encoder with merged weights by rounding.  Raises UserError where its layers would
    have to be computed in another way than `encode_packed` does.
    """

    def __init__(self, base: ErnieModel, adapter: SavedAdapter):
        nn.Layer.__init__(self)
        self.base = base
        self.config, self.tokenizer, self.masked_head = base.config, base.tokenizer, base.masked_head
        self.sentence_config = base.sentence_config
        self.embedding, self.pooler = base.embedding, Pooler(base.config)
        self.encoder = _AdaptedLayers(base.encoder, adapter.layers)
        set_weights(self.pooler, dict(adapter.pooler), "the adapter")

    def updates_of(self, start: int, stop: int) -> Adapted:
        """Return the adapter's updates for these tokens of a batch that the base encodes."""
        return self.encoder.of(start, stop)


class _AdaptedLayers(Encoder):
    """The layers of an encoder, with updates for all tokens unless some are given."""

    def __init__(self, shared: Encoder, updates: LayerUpdates):
        nn.Layer.__init__(self)
        self.shared, self.updates, self.layers = shared, updates, shared.layers

    def forward(
        self,
        x_TD: Tensor,
        layout: Layout,
        states: list[Tensor] | None = None,
        needed: np.ndarray | None = None,
        mask: Mask | None = None,
        adapted: Sequence[Adapted] = (),
        between: Callable[[int, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """As `Encoder.forward`."""
        own = adapted or [self.of(0, layout.tokens)]
        found: Tensor = self.shared(x_TD, layout, states, needed, mask, own, between)
        return found

    def of(self, start: int, stop: int) -> Adapted:
        """Return the updates for these tokens."""
        return Adapted(start, stop, self.updates)

    def forward_cached(self, x_TD: Tensor, layout: Layout, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """Raise UserError."""
        raise UserError(_NOT_CACHED)

    def forward_chunks(
        self,
        x_TD: Tensor,
        layout: Layout,
        cache: KeyValueCache,
        chunk: int,
        before: int,
        between: Callable[[int, Tensor, ExtendedCache], Tensor] | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Raise UserError."""
        raise UserError(_NOT_CACHED)
