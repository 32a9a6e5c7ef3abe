"""How a sentence encoder turns texts into vectors: the settings of its folder, in the format of sentence-transformers.

`modules.json` lists the modules: the encoder, a pooling, and layers on its result (Reimers and Gurevych, 2019, arXiv
1908.10084).  Each has a folder with its `config.json` and weights.  Files beside it hold the longest text and prompts.

Legend: N texts, D width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ernie.atomic import make_folder
from ernie.errors import UserError, nearest
from ernie.kernels.precision import is_batch_invariant

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken", "pooler"]
POOLINGS: tuple[str, ...] = get_args(Pooling)

MODULES_FILE = "modules.json"
LENGTH_FILE, PROMPTS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.safetensors"
# The key of each pooling in older settings, in the order in which several poolings are put side by side.
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "GELU": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
}


@dataclass(frozen=True)
class SentenceLayer:
    """A layer on the pooled vectors, of the kind Dense, LayerNorm or Normalize, with its settings and weights."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Apply the layer.  Raises UserError for vectors of another width than its weights."""
        if self.kind == "Normalize":
            return normalized(vectors_ND)
        weight = self.weights["linear.weight" if self.kind == "Dense" else "norm.weight"]
        if vectors_ND.shape[1] != weight.shape[-1]:
            raise UserError(
                f"pooling: the model's {self.kind} layer takes vectors of {weight.shape[-1]} numbers, and this pooling "
                f"gives {vectors_ND.shape[1]}"
            )
        if self.kind == "LayerNorm":
            centered_ND = vectors_ND - vectors_ND.mean(1, keepdims=True)
            scaled_ND = centered_ND / np.sqrt((centered_ND**2).mean(1, keepdims=True) + 1e-5)
            return scaled_ND * weight + self.weights["norm.bias"]
        activation = ACTIVATIONS[class_name(self.settings.get("activation_function", "Tanh"))]
        if is_batch_invariant() and len(vectors_ND):  # NumPy, too, chooses how to sum by the number of rows
            products_NE = np.stack([vector_D @ weight.T for vector_D in vectors_ND])
        else:
            products_NE = vectors_ND @ weight.T
        return activation(products_NE + self.weights.get("linear.bias", 0)).astype(np.float32)

    def equals(self, other: SentenceLayer) -> bool:
        """Whether both compute the same."""
        same = self.kind == other.kind and self.weights.keys() == other.weights.keys()
        return same and all(np.array_equal(self.weights[name], other.weights[name]) for name in self.weights)


@dataclass(frozen=True)
class SentenceConfig:
    """What `ErnieModel.encode` does unless told otherwise.

    `pooling` lists one or more poolings, whose vectors are put side by side; `layers` are applied to the result, in
    order.  `max_len` is the longest text in tokens.  `lowercase` lower-cases texts before the tokenizer.  A text is
    preceded by the prompt named `default_prompt`, if any; `include_prompt` says whether its tokens are pooled too.
    `unsupported` says what cannot be computed here, "" for nothing.
    """

    pooling: tuple[str, ...] = ("mean",)
    layers: tuple[SentenceLayer, ...] = ()
    max_len: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    similarity: str | None = None
    unsupported: str = ""

    @property
    def normalize(self) -> bool:
        """Whether the vectors have length 1."""
        return bool(self.layers) and self.layers[-1].kind == "Normalize"

    @property
    def summary(self) -> str:
        """What is done to texts and vectors, in a few words."""
        layers = [layer.kind for layer in self.layers]
        longest = [] if self.max_len is None else [f"texts of at most {self.max_len} tokens"]
        return ", then ".join([*longest, f"pooling {' and '.join(self.pooling)}", *layers])

    def prompt(self, name: str | None, given: str | None) -> str:
        """Return the text to put before each text: the `given` one, or the prompt called `name`, or the default.

        Raises UserError for a name that the model does not have.
        """
        name = self.default_prompt if name is None else name
        if given is not None or name is None:
            return given or ""
        if name not in self.prompts:
            has = nearest(name, self.prompts) or " It has none."
            raise UserError(f"prompt_name: the model has no prompt '{name}'.{has}")
        return self.prompts[name]

    def equals(self, other: SentenceConfig | None) -> bool:
        """Whether both give the same vectors."""
        if other is None or len(self.layers) != len(other.layers):
            return False
        names = ("pooling", "max_len", "lowercase", "default_prompt", "include_prompt")
        return (
            all(getattr(self, name) == getattr(other, name) for name in names)
            and dict(self.prompts) == dict(other.prompts)
            and all(one.equals(two) for one, two in zip(self.layers, other.layers, strict=True))
        )

    def write(self, folder: Path, width: int) -> None:
        """Write the settings into the folder of an encoder of this `width`, as sentence-transformers does."""
        kinds = ["Transformer", "Pooling", *(layer.kind for layer in self.layers)]
        paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
        for path in paths[1:]:
            make_folder(folder / path)
        _write_json(folder / paths[1] / CONFIG_FILE, self._pooling_settings(width))
        for path, layer in zip(paths[2:], self.layers, strict=True):
            _write_layer(layer, folder / path)
        _write_json(folder / LENGTH_FILE, {"max_seq_length": self.max_len, "do_lower_case": self.lowercase})
        prompts = {"prompts": dict(self.prompts), "default_prompt_name": self.default_prompt}
        _write_json(folder / PROMPTS_FILE, {**prompts, "similarity_fn_name": self.similarity})
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
        ]
        _write_json(folder / MODULES_FILE, modules)  # last: it marks a sentence encoder

    def _pooling_settings(self, width: int) -> dict[str, Any]:
        modes = {key: name in self.pooling for name, key in POOLING_KEYS.items()}
        return {"word_embedding_dimension": width, **modes, "include_prompt": self.include_prompt}


def check_pooling(pooling: str | Sequence[str]) -> tuple[str, ...]:
    """Return one pooling or several as a tuple.  Raises UserError for an unknown one."""
    several = (pooling,) if isinstance(pooling, str) or not isinstance(pooling, Sequence) else tuple(pooling)
    for name in several or (pooling,):
        if name not in POOLINGS:
            raise UserError(f"pooling: expected one of {', '.join(POOLINGS)}, found {name!r:.60}")
    return several


def normalized(vectors_ND: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; one of length 0 stays."""
    return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)


def class_name(name: Any) -> str:
    """Return the last part of a class's full name, which differs between versions in its modules."""
    return str(name).rpartition(".")[2]


def _write_layer(layer: SentenceLayer, folder: Path) -> None:
    from ernie.model.weights import save_arrays  # which needs Paddle

    if layer.kind != "Normalize":
        _write_json(folder / CONFIG_FILE, dict(layer.settings))
        values = {name: np.ascontiguousarray(array) for name, array in layer.weights.items()}
        save_arrays(values, folder / _WEIGHTS_FILE, {"format": "pt"})


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
