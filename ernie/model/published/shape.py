"""Conversion between a published encoder's settings and an EncoderConfig.

Where settings and weights disagree about a size, the weights take precedence: settings are often copied from another
model, and omit values for which their framework has a default.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.published.formats import Kind, class_names

PADDLENLP_ERNIE_EPSILON = 1e-12  # hard-coded there; settings are ignored
# The frameworks' defaults.
_EPSILON: dict[Kind, float] = {"hf": 1e-12, "paddlenlp": 1e-12, "ernie-official": 1e-5, "bert-tf": 1e-12}
# Our name of a size -> its names in the settings, and the weight and axis that determine it.
_SIZES = {
    "vocab_size": (("vocab_size",), "embedding.token.weight", 0),
    "hidden_size": (("hidden_size",), "embedding.token.weight", 1),
    "max_positions": (("max_position_embeddings",), "embedding.position.weight", 0),
    "segments": (("sent_type_vocab_size", "type_vocab_size"), "embedding.segment.weight", 0),
    "intermediate_size": (("intermediate_size",), "encoder.layers.0.inner.weight", 1),
}
_APPROXIMATE = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu.approximate")
# A class of transformers or PaddleNLP: its network, and what it is for.
_CLASS = re.compile(r"(?:TF|Flax)?(\w+?)(?:Model|Encoder|LMHeadModel|Pre[tT]rain\w*|For[A-Z]\w*)")
_FOREIGN = frozenset(
    "albert bart bigbird camembert convbert deberta debertav2 distilbert electra erniecode erniectm erniedoc erniegen "
    "erniegram ernielayout erniem ernievil flaubert fnet funnel gpt jinabert longformer luke megatronbert mobilebert "
    "modernbert mpnet nezha nomicbert nystromformer ppminilm rembert roberta roformer squeezebert t5 tinybert xlm "
    "xlmroberta xlnet".split()
)
_UNSUPPORTED = {
    "is_decoder": (False, "a decoder attends only to the tokens before each token"),
    "add_cross_attention": (False, "it attends to a second encoder"),
    "position_embedding_type": ("absolute", "it adds relative positions in attention"),
}


def shape_of(
    settings: Mapping[str, Any], ours: Mapping[str, np.ndarray], kind: Kind, path: Path
) -> tuple[EncoderConfig, list[str]]:
    """Return the configuration, and a note for each size that the settings, read from `path`, get wrong.

    `ours` are the weights with our names and orientation.  Raises UserError for invalid settings or weights.
    """
    sizes, notes = {}, []
    for name, (keys, weight, axis) in _SIZES.items():
        if ours[weight].ndim != 2:
            raise UserError(f"{path.parent}: {weight} has the shape {list(ours[weight].shape)}, expected a matrix")
        sizes[name] = ours[weight].shape[axis]
        configured = next((settings[key] for key in keys if settings.get(key)), None)
        if configured is not None and configured != sizes[name]:
            notes.append(f"{path.name} says {name} {configured}, the weights have {sizes[name]}: the weights count")
    task = ours.get("embedding.task.weight")
    epsilon, epsilon_notes = _epsilon(settings, kind, path)
    layers, heads = layers_of(settings, path), _positive_int(settings, "num_attention_heads", path)
    activation = _activation(settings, path)
    try:
        config = EncoderConfig(
            **sizes,
            layers=layers,
            heads=heads,
            activation=activation,
            dropout=_float(settings, "hidden_dropout_prob", 0.1, path),
            attention_dropout=_float(settings, "attention_probs_dropout_prob", 0.1, path),
            task_vocab_size=0 if task is None else task.shape[0],
            layer_norm_epsilon=epsilon,
            initializer_range=_float(settings, "initializer_range", 0.02, path),
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config, notes + epsilon_notes


def layers_of(settings: Mapping[str, Any], path: Path) -> int:
    """Return the number of layers.  Raises UserError when the settings lack it."""
    return _positive_int(settings, "num_hidden_layers", path)


def wants_tasks(settings: Mapping[str, Any], kind: Kind) -> bool:
    """Whether the source's own framework uses the task embeddings, if the weights have them."""
    return bool(settings.get("use_task_id", kind == "ernie-official"))


def _positive_int(settings: Mapping[str, Any], key: str, path: Path) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        found = "nothing" if value is None else f"{value!r:.60}"
        raise UserError(f"{path}: {key}: expected a whole number above 0, found {found}")
    return value


def _float(settings: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    value = settings.get(key, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max:
        raise UserError(f"{path}: {key}: expected a finite number, found {value!r:.60}")
    return float(value)


def _activation(settings: Mapping[str, Any], path: Path) -> Any:
    name = settings.get("hidden_act", "gelu")
    if name not in ("gelu", "relu"):
        hint = " (the tanh approximation of GELU)" if name in _APPROXIMATE else ""
        raise UserError(
            f"{path}: hidden_act is {name}{hint}; this library's encoder computes gelu and relu, and the outputs would "
            "differ. If you know that the model works with gelu, write that there"
        )
    return name


def _epsilon(settings: Mapping[str, Any], kind: Kind, path: Path) -> tuple[float, list[str]]:
    configured = settings.get("layer_norm_eps")
    if kind == "paddlenlp" and is_paddlenlp_ernie(settings):
        fixed = PADDLENLP_ERNIE_EPSILON
        note = f"{path.name} says layer_norm_eps {configured}, but PaddleNLP runs ERNIE with {fixed}: so do we"
        return fixed, [note] if configured not in (None, fixed) else []
    return _EPSILON[kind] if configured is None else _float(settings, "layer_norm_eps", 0.0, path), []


def is_paddlenlp_ernie(settings: Mapping[str, Any]) -> bool:
    """Whether PaddleNLP uses its ERNIE classes for these settings, rather than BERT's."""
    names = [str(settings.get("model_type")), *class_names(settings)]
    return not any(name.lower().startswith("bert") for name in names)


def _foreign_classes(settings: Mapping[str, Any]) -> list[str]:
    """Return the classes of other networks than BERT and ERNIE.

    Where a model_type or another class says what the network is, a class of an unknown name, such as a user's own, is
    none of another.  PaddleNLP's older settings have no model_type.
    """
    matches = {name: _CLASS.fullmatch(name) for name in class_names(settings)}
    families = {name: match[1].lower() for name, match in matches.items() if match}
    known = "model_type" in settings or any(family in ("bert", "ernie") for family in families.values())
    others = {name: family for name, family in families.items() if family not in ("bert", "ernie")}
    return [name for name, family in others.items() if not known or family in _FOREIGN]


def check_supported(settings: Mapping[str, Any], path: Path) -> None:
    """Raise UserError for settings of networks other than BERT's and ERNIE's encoders."""
    model_type = settings.get("model_type", "bert")
    if model_type not in ("bert", "ernie"):
        raise UserError(f"{path}: model_type is {model_type}; encoders of the types bert and ernie can be read")
    if foreign := _foreign_classes(settings):
        raise UserError(
            f"{path}: is of the class {foreign[0]}, whose network is another one; encoders of the types bert and ernie "
            "can be read"
        )
    for key, (expected, why) in _UNSUPPORTED.items():
        if settings.get(key, expected) != expected:
            raise UserError(f"{path}: {key} is {settings[key]}: {why}, which this library's encoder does not")
    emb_size = settings.get("emb_size")
    if emb_size and emb_size != settings.get("hidden_size"):
        raise UserError(f"{path}: emb_size is {emb_size}, hidden_size {settings.get('hidden_size')}: they must agree")


def settings_for(config: EncoderConfig, to: Kind, suffix: str, padding: int) -> dict[str, Any]:
    """Return the `config.json` of an encoder for Hugging Face or PaddleNLP.

    `suffix` is the class's name without the network's, `padding` the padding token's id.

    The model is a BERT, which all versions support, unless it has task embeddings, which only ERNIE supports.
    PaddleNLP uses a LayerNorm epsilon of 1e-12 for ERNIE whatever the settings say, and that of the settings for BERT.
    """
    family = "Ernie" if config.task_vocab_size else "Bert"
    if to == "paddlenlp" and config.layer_norm_epsilon == PADDLENLP_ERNIE_EPSILON:
        family = "Ernie"
    settings = {
        "architectures": [f"{family}{suffix}"],
        "model_type": family.lower(),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_epsilon,
        "position_embedding_type": "absolute",
        "pad_token_id": padding,
    }
    if family == "Ernie":
        settings |= {"use_task_id": bool(config.task_vocab_size), "task_type_vocab_size": config.task_vocab_size}
    return settings
