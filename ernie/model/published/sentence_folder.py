"""Reading the settings of a sentence encoder's folder, see `ernie.model.sentence`."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.json_file import read_json_list
from ernie.model.published.formats import read_object, read_weights
from ernie.model.sentence import (
    ACTIVATIONS,
    CONFIG_FILE,
    LENGTH_FILE,
    MODULES_FILE,
    POOLING_KEYS,
    PROMPTS_FILE,
    SentenceConfig,
    SentenceLayer,
    class_name,
)
from ernie.text.tokenizer import SETTINGS_FILE

_MODULE_FOLDER = re.compile(r"(\d+)_([A-Za-z]+)")
_LONGEST_NAME = 200  # characters of a folder's name
_NO_LIMIT = 1 << 31  # tokenizers without a limit are saved with one of 10^30


def encoder_path(root: Path) -> str | None:
    """Return the path of the encoder in the folder of a sentence encoder: "" for the folder itself, None if unknown."""
    if not (root / MODULES_FILE).is_file():
        return None
    kind, path = _listed_modules(root / MODULES_FILE)[0]
    return path if kind == "Transformer" else None


def module_paths(root: Path) -> list[str]:
    """Return the folders of the modules that are listed in the folder of a sentence encoder."""
    listed = _listed_modules(root / MODULES_FILE) if (root / MODULES_FILE).is_file() else []
    return [path for _, path in listed if path]


def remove_sentence_config(folder: Path) -> None:
    """Remove the list of modules and their folders, before another model is written into the folder."""
    for path, _ in _module_folders(folder):
        if path.name in module_paths(folder):
            shutil.rmtree(path)
    (folder / MODULES_FILE).unlink(missing_ok=True)


def read_sentence_config(folder: Path, positions: int, width: int) -> tuple[SentenceConfig | None, list[str]]:
    """Read the settings that belong to the encoder in `folder`, None if it is no sentence encoder, and notes on them.

    Raises UserError when a file is damaged.
    """
    root = _root(folder)
    modules, notes = _modules(root)
    if not modules:
        return None, []
    config, unsupported = _Reader(root, width).read(modules)
    max_len = _max_len(root, folder)
    if max_len is not None and max_len > positions:
        notes.append(f"{LENGTH_FILE} says max_seq_length {max_len}, the model has {positions} positions: those count")
    if max_len is not None and max_len >= positions:
        max_len = None  # no limit of its own: a tokenizer without one is written with the number of positions
    config = {**config, "max_len": max_len, **_prompts(root)}
    if unsupported:
        notes.append(f"its vectors for sentences cannot be computed here: {unsupported}; `encode` needs a pooling")
    return SentenceConfig(**config, unsupported=unsupported), notes


def _root(folder: Path) -> Path:
    """Return the folder with the list of modules, one of which the encoder in `folder` may be."""
    above = folder.parent
    inside = not (folder / MODULES_FILE).is_file() and (above / MODULES_FILE).is_file()
    return above if inside and encoder_path(above) == folder.name else folder


def _modules(root: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the kinds and paths of a folder's modules, and notes."""
    if (root / MODULES_FILE).is_file():
        return _listed_modules(root / MODULES_FILE), []
    found = [(int(match[1]), match[2], path.name) for path, match in _module_folders(root)]
    if not any(kind == "Pooling" for _, kind, _ in found):
        return [], []
    listed = [("Transformer", ""), *((kind, path) for _, kind, path in sorted(found) if kind != "Transformer")]
    names = ", ".join(path for _, path in listed[1:])
    return listed, [f"has no {MODULES_FILE}; its folders {names} are taken for the modules of a sentence encoder"]


def _module_folders(root: Path) -> list[tuple[Path, re.Match[str]]]:
    return [
        (path, match) for path in root.iterdir() if path.is_dir() and (match := _MODULE_FOLDER.fullmatch(path.name))
    ]


def _listed_modules(path: Path) -> list[tuple[str, str]]:
    listed = read_json_list(path, "The folder is damaged; fetch it again.")
    for module in listed:
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            raise UserError(f"{path}: expected modules, each with its type and path; the folder is damaged")
        # Only folders of this folder: the list is untrusted.
        if Path(module["path"]).name != module["path"] or len(module["path"]) > _LONGEST_NAME:
            raise UserError(f"{path}: the path '{module['path']:.60}' is not in the folder")
    paths = Counter(module["path"] for module in listed if module["path"])
    if paths and (most := paths.most_common(1)[0])[1] > 1:
        raise UserError(f"{path}: lists the module '{most[0]:.60}' twice; the folder is damaged")
    if not listed:
        raise UserError(f"{path}: lists no modules; the folder is damaged")
    return [(class_name(module["type"]), module["path"]) for module in listed]


@dataclass
class _Reader:
    """Reads the modules after the encoder."""

    root: Path
    width: int

    def read(self, modules: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], str]:
        """Return values for a SentenceConfig, and what cannot be computed ("" if nothing)."""
        (first, _), *others = modules
        if first != "Transformer":
            return {}, f"its first module is a {first}"
        values: dict[str, Any] = {}
        layers: list[SentenceLayer] = []
        for kind, path in others:
            settings = self._settings(path)
            if kind == "Pooling" and not values:
                values, problem = self._pooling(settings, path)
            elif kind in ("Dense", "LayerNorm", "Normalize") and values:
                layer, problem = self._layer(kind, settings, path)
                layers.append(layer)
            else:
                problem = "" if kind == "Dropout" else f"it has the module {kind} at {path or 'its root'}"
            if problem:
                return {}, problem
        if not values:
            return {}, "it has no pooling"
        return {**values, "layers": tuple(layers)}, ""

    def _settings(self, path: str) -> dict[str, Any]:
        file = self.root / path / CONFIG_FILE
        return read_object(file) if path and file.is_file() else {}

    def _pooling(self, settings: Mapping[str, Any], path: str) -> tuple[dict[str, Any], str]:
        named = settings.get("pooling_mode")  # newer settings name one or several
        if named is None:
            names = [name for name, key in POOLING_KEYS.items() if settings.get(key)]
            unknown = [
                key
                for key, value in settings.items()
                if key.startswith("pooling_mode") and value and key not in POOLING_KEYS.values()
            ]
        else:
            names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
            unknown = [name for name in names if name not in POOLING_KEYS]
        if unknown or not names:
            return {}, f"the pooling of {path} is {', '.join(map(str, unknown)) or 'none'}"
        size = settings.get("word_embedding_dimension", settings.get("embedding_dimension", self.width))
        if size != self.width:
            raise UserError(f"{self.root / path / CONFIG_FILE}: is for vectors of {size} numbers, not {self.width}")
        ordered = tuple(name for name in POOLING_KEYS if name in names)
        return {"pooling": ordered, "include_prompt": settings.get("include_prompt", True) is not False}, ""

    def _layer(self, kind: str, settings: Mapping[str, Any], path: str) -> tuple[SentenceLayer, str]:
        if kind == "Normalize":
            return SentenceLayer(kind), ""
        file, weights = read_weights(self.root / path)
        layer = SentenceLayer(kind, settings, {name: np.asarray(v, np.float32) for name, v in weights.items()})
        needed = {"linear.weight": 2} if kind == "Dense" else {"norm.weight": 1, "norm.bias": 1}
        for name, axes in needed.items():
            if name not in layer.weights or layer.weights[name].ndim != axes:
                raise UserError(f"{file}: lacks {name}, or it has another shape; the folder is damaged")
        other = set(layer.weights) - {"linear.weight", "linear.bias", "norm.weight", "norm.bias"}
        activation = class_name(settings.get("activation_function", "Tanh"))
        names = [settings.get(f"module_{side}_name", "sentence_embedding") for side in ("input", "output")]
        if other or activation not in ACTIVATIONS or set(names) - {"sentence_embedding", None}:
            return layer, f"the {kind} layer at {path} is of an unknown form"
        return layer, ""


def _max_len(root: Path, folder: Path) -> int | None:
    """Return the longest text in tokens; None if no file says so."""
    for place in (root, folder):
        for file in sorted(place.glob("sentence_*_config.json")):
            value = read_object(file, {"max_seq_length?": (int, NoneType)}).get("max_seq_length")
            if value is not None:
                return _at_least(value, file)
    settings = folder / SETTINGS_FILE
    value = read_object(settings).get("model_max_length") if settings.is_file() else None
    return _at_least(value, settings) if isinstance(value, int) and 0 < value < _NO_LIMIT else None


def _at_least(value: int, file: Path) -> int:
    if value < 3:
        raise UserError(f"{file}: texts of {value} tokens have no room for anything but [CLS] and [SEP]")
    return value


def _prompts(root: Path) -> dict[str, Any]:
    """Return the values that the files beside the list of modules hold: prompts and lower-casing."""
    values: dict[str, Any] = {}
    for file in sorted(root.glob("sentence_*_config.json")):
        values["lowercase"] = read_object(file).get("do_lower_case") is True
    path = root / PROMPTS_FILE
    if not path.is_file():
        return values
    settings = read_object(path)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    texts = isinstance(prompts, dict) and all(isinstance(text, str) for text in prompts.values())
    if not texts or (default is not None and (not isinstance(default, str) or default not in prompts)):
        raise UserError(f"{path}: prompts: expected texts by name, and default_prompt_name among the names")
    similarity = settings.get("similarity_fn_name")
    values["similarity"] = similarity if isinstance(similarity, str) else None
    return {**values, "prompts": prompts, "default_prompt": default}
