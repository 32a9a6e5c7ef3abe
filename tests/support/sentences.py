"""Folders of sentence encoders, written as sentence-transformers does, without any code of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Module = tuple[str, Mapping[str, Any], Mapping[str, np.ndarray]]  # kind, settings, weights
NORMALIZE: Module = ("Normalize", {}, {})
_KEYS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def pooling(*modes: str, width: int = 16, **settings: Any) -> Module:
    chosen = {f"pooling_mode_{key}": key in modes for key in _KEYS}
    return "Pooling", {"word_embedding_dimension": width, **chosen, **settings}, {}


def dense(rows: int, columns: int, activation: str = "torch.nn.modules.activation.Tanh", seed: int = 0) -> Module:
    rng = np.random.default_rng(seed)
    weights = {"linear.weight": rng.normal(size=(rows, columns)), "linear.bias": rng.normal(size=rows)}
    settings = {"in_features": columns, "out_features": rows, "bias": True, "activation_function": activation}
    return "Dense", settings, {name: values.astype(np.float32) for name, values in weights.items()}


def write_modules(folder: Path, modules: Sequence[Module], *, encoder: str = "", **settings: Any) -> None:
    """Write `modules.json`, each module's folder, and `sentence_bert_config.json` with the settings."""
    kinds = ["Transformer", *(kind for kind, _, _ in modules)]
    paths = [encoder, *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], 1))]
    for path, (_, config, weights) in zip(paths[1:], modules, strict=True):
        (folder / path).mkdir()
        if config:
            (folder / path / "config.json").write_text(json.dumps(config))
        if weights:
            save_file(dict(weights), folder / path / "model.safetensors")
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": False, **settings}))


def write_prompts(folder: Path, prompts: Mapping[str, str], default: str | None) -> None:
    data = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(data))
