"""Writing models in the formats of other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import paddle

from ernie.atomic import make_folder
from ernie.model.checksums import write_checksums
from ernie.model.config import EncoderConfig
from ernie.model.pretrained import WEIGHTS_FILE
from ernie.model.published import names
from ernie.model.published.load import without_pooler
from ernie.model.published.names import HEAD, Names
from ernie.model.published.shape import PADDLENLP_ERNIE_EPSILON, settings_for
from ernie.model.published.task_head import TaskHead
from ernie.model.weights import arrays, check_finite, save_arrays
from ernie.text.added import ADDED_FILE
from ernie.text.tokenizer import SETTINGS_FILE
from ernie.text.wordpiece import SPECIAL_KEYS, WordPiece

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

Target = Literal["ernie", "hf", "paddlenlp"]


def write(
    model: ErnieModel, folder: Path, to: Target, *, pooler: bool = True, task_head: TaskHead | None = None
) -> list[str]:
    """Write configuration, weights and tokenizer into `folder`, which is created if needed.

    Without `pooler` it is left out, as that of a source without one is random.  `task_head` is the head of a fine-tuned
    model.  Returns a note, one sentence each, for everything that the target format cannot represent.
    """
    own = arrays(model) if pooler else without_pooler(arrays(model))
    if to == "ernie":
        model.save_pretrained(folder)
        if not pooler:
            save_arrays(own, folder / WEIGHTS_FILE)
            write_checksums(folder, [WEIGHTS_FILE])
        if task_head is not None:
            task_head.write(folder)
        return []
    make_folder(folder)
    settings = settings_for(model.config, to, _class_suffix(model, task_head), padding_id(model))
    settings |= {} if task_head is None else task_head.settings()
    _write_json(folder / "config.json", settings)
    prefix = "" if settings["architectures"][0].endswith("Model") else f"{settings['model_type']}."
    head_weights = {} if task_head is None else task_head.renamed(to)
    if to == "hf":
        weights = rename_weights(model, own, names.HUGGING_FACE, prefix) | head_weights
        # transformers requires this metadata, which says that the tensors are in PyTorch's layout.
        save_arrays(weights, folder / "model.safetensors", {"format": "pt"})
    else:
        weights = rename_weights(model, own, names.PADDLENLP, prefix) | head_weights
        check_finite(weights)
        tensors = {name: paddle.to_tensor(values) for name, values in weights.items()}
        paddle.save(tensors, str(folder / "model_state.pdparams"))
    notes = [*_epsilon_notes(model.config, settings, to), *_write_tokenizer(model, folder, settings, to)]
    if model.sentence_config is not None and not model.sentence_config.unsupported:
        model.sentence_config.write(folder, model.config.hidden_size)
    return notes


def _class_suffix(model: ErnieModel, task_head: TaskHead | None) -> str:
    if task_head is None:
        return "Model" if model.masked_head is None else "ForMaskedLM"
    assert task_head.format is not None
    return task_head.format.suffix


def padding_id(model: ErnieModel) -> int:
    """Return the model's padding token id; without a tokenizer 0, the formats' default."""
    return 0 if model.tokenizer is None else model.tokenizer.pad_id


def _epsilon_notes(config: EncoderConfig, settings: dict[str, Any], to: Target) -> list[str]:
    epsilon = config.layer_norm_epsilon
    if to != "paddlenlp" or settings["model_type"] != "ernie" or epsilon == PADDLENLP_ERNIE_EPSILON:
        return []
    return [
        "PaddleNLP runs ERNIE, and only that has task embeddings, with a LayerNorm epsilon of "
        f"{PADDLENLP_ERNIE_EPSILON}; this model's is {epsilon}. --task N writes it for one task, as a BERT with the "
        "right one"
    ]


def rename_weights(model: ErnieModel, own: dict[str, np.ndarray], table: Names, prefix: str) -> dict[str, np.ndarray]:
    """Return a model's `own` weights, and those of its head, with a format's names and orientation.

    Encoder names get the `prefix`, as in published checkpoints with a head.
    """
    if model.masked_head is not None:
        own = own | {HEAD + name: values for name, values in arrays(model.masked_head).items()}
    theirs = table.of_encoder(model.config.layers, prefix) | table.of_head()
    weights = {theirs[name]: np.ascontiguousarray(v.T if table.is_transposed(name) else v) for name, v in own.items()}
    if model.masked_head is not None:
        weights |= {name: own[table.copies[name]] for name in table.written}
    return weights


def write_for_auto_classes(model: ErnieModel, folder: Path, task_head: TaskHead | None) -> None:
    """Write what the Auto classes of transformers read beside weights of another format: settings and tokenizer."""
    settings = settings_for(model.config, "hf", _class_suffix(model, task_head), padding_id(model))
    settings |= {} if task_head is None else task_head.settings()
    _write_json(folder / "config.json", settings)
    if isinstance(model.tokenizer, WordPiece):
        _write_tokenizer(model, folder, settings, "hf")


def _write_tokenizer(model: ErnieModel, folder: Path, settings: dict[str, Any], to: Target) -> list[str]:
    tokenizer = model.tokenizer
    if tokenizer is None:
        return []
    if not isinstance(tokenizer, WordPiece):
        tokenizer.save(folder / "tokenizer")
        return ["BERT and ERNIE have no SentencePiece tokenizer there; this one is in tokenizer/, as this library's"]
    tokenizer.write_files(folder)
    markers = [token.content for token in tokenizer.added.values() if token.special]
    family = "Bert" if "ernie" != settings["model_type"] or to == "hf" else "Ernie"
    tokenizer_settings = {
        "tokenizer_class": f"{family}Tokenizer",
        "do_lower_case": tokenizer.lowercase,
        "model_max_length": settings["max_position_embeddings"],
        **dict(zip(SPECIAL_KEYS, tokenizer.special, strict=True)),
        **tokenizer.settings,
        # The name in older versions and in PaddleNLP.
        **({"additional_special_tokens": markers} if markers else {}),
    }
    _write_json(folder / SETTINGS_FILE, tokenizer_settings)
    if tokenizer.appended:
        _write_json(folder / ADDED_FILE, tokenizer.appended)
    return []


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
