"""Folders of published checkpoints: detecting the format, reading settings and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer, check_regular, read_json
from ernie.model.published.arrays import bfloat16_to_float32
from ernie.model.published.fluid import read_fluid
from ernie.model.published.pdparams import read_pdparams
from ernie.model.published.tensor_bundle import read_tensor_bundle
from ernie.model.published.torch_file import read_torch

Kind = Literal["ernie", "hf", "paddlenlp", "ernie-official", "bert-tf"]
Weights = Mapping[str, np.ndarray]

_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_TORCH = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_PADDLE = "model_state.pdparams"
_BUNDLE = "bert_model.ckpt"
_OUTER = "head_class"  # our key for the class around the encoder's in PaddleNLP's older settings
_LONGEST_NAME = 200  # characters of a class's name
_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (8, 4, 2, 1)},
}
# The file with the settings: the first of each row that exists.
_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "hf": ("config.json",),
    "paddlenlp": ("config.json", "model_config.json"),
    "ernie-official": ("ernie_config.json",),
    "bert-tf": ("bert_config.json",),
}


def detect_format(folder: Path) -> Kind | None:
    """Detect the format of a checkpoint folder from its files; None if it is unknown."""

    def has(*names: str) -> bool:
        return any((folder / name).exists() for name in names)

    if has("ernie_config.json") and has("params", "saved_weights.pdparams"):
        return "ernie-official"
    if has("bert_config.json") and has(f"{_BUNDLE}.index"):
        return "bert-tf"
    if has("config.json") and {"layers", "heads"} <= set(read_object(folder / "config.json")):
        return "ernie"
    if has("config.json") and has(*_SAFETENSORS):
        return _safetensors_format(folder)
    if has("config.json", "model_config.json") and has(_PADDLE):
        return "paddlenlp"
    return "hf" if has("config.json") and has(*_TORCH) else None


def expected_files() -> str:
    """Describe the files of the known formats, for error messages."""
    return (
        "config.json with model.safetensors or pytorch_model.bin (Hugging Face), config.json or model_config.json with "
        "model_state.pdparams (PaddleNLP), ernie_config.json with params/ or saved_weights.pdparams (the official "
        "releases), or bert_config.json with bert_model.ckpt.index (BERT's original)"
    )


def read_settings(folder: Path, kind: Kind) -> tuple[Path, dict[str, Any]]:
    """Read the settings of a checkpoint; return their file and the settings.  Raises UserError when it is damaged."""
    path = next(folder / name for name in _SETTINGS[kind] if (folder / name).exists())
    settings = read_object(path)
    nested = settings.get("init_args")  # PaddleNLP before 2.5 nests the encoder's settings in those of a head
    if isinstance(nested, list) and nested and isinstance(nested[0], dict):
        settings = {**settings, **nested[0], _OUTER: settings.get("init_class")}
    return path, settings


def class_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the classes that the settings name: transformers' `architectures`, PaddleNLP's `init_class`.

    A text that is longer than any name of a class is left out.
    """
    classes = settings.get("architectures")
    named = [settings.get("init_class"), settings.get(_OUTER), *(classes if isinstance(classes, list) else [classes])]
    return [name for name in named if isinstance(name, str) and len(name) <= _LONGEST_NAME]


def read_weights(folder: Path) -> tuple[Path, Weights]:
    """Read the weights of a checkpoint; return their file or folder, and the weights by their original names."""
    readers: dict[str, Callable[[Path], Weights]] = {
        "params": read_fluid,
        "saved_weights.pdparams": read_pdparams,
        f"{_BUNDLE}.index": read_tensor_bundle,
        _SAFETENSORS[0]: read_safetensors,
        _SAFETENSORS[1]: lambda path: _read_shards(path, read_safetensors),
        _PADDLE: read_pdparams,
        _TORCH[0]: read_torch,
        _TORCH[1]: lambda path: _read_shards(path, read_torch),
    }
    path = weights_file(folder)
    try:
        return path, readers[path.name](path)
    except MemoryError:
        raise UserError(f"{path}: there is not enough memory to read it") from None


def weights_file(folder: Path) -> Path:
    """Return the file, or the folder, with the weights of a checkpoint: the first of those that exist.

    Raises UserError if there is none.
    """
    names = ("params", "saved_weights.pdparams", f"{_BUNDLE}.index", *_SAFETENSORS, _PADDLE, *_TORCH)
    found = next((folder / name for name in names if (folder / name).exists()), None)
    if found is None:
        raise UserError(f"{folder}: holds no weights (no {_SAFETENSORS[0]} or {_TORCH[0]}); fetch it again")
    check_regular(found)
    return found


def read_object(path: Path, keys: Mapping[str, tuple[type, ...]] | None = None) -> dict[str, Any]:
    """Read the object in a JSON file of a folder, see `read_json`.  Raises UserError when it is damaged."""
    return read_json(path, keys or {}, "The folder is damaged; fetch it again.")


def _safetensors_format(folder: Path) -> Kind:
    """Tell PaddleNLP's safetensors files from Hugging Face's, which have the same file name, by their weight names."""
    whole = folder / _SAFETENSORS[0]  # counts if both are there, as in transformers
    names = _safetensors_names(whole) if whole.is_file() else list(_weight_map(folder / _SAFETENSORS[1]))
    return "paddlenlp" if any(".self_attn.q_proj." in name for name in names) else "hf"


def _safetensors_names(path: Path) -> list[str]:
    check_not_lfs_pointer(path)
    try:
        with safe_open(path, "np") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: is damaged ({error}); fetch it again") from None


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file, with bfloat16 converted to float32.  Raises UserError when it is damaged."""
    check_not_lfs_pointer(path)
    try:
        tensors = deserialize(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: is damaged ({error}); fetch it again") from None
    weights = {}
    for name, info in tensors:
        if info["dtype"] not in _TYPES:
            raise UserError(f"{path}: {name} is of type {info['dtype']}; expected one of {', '.join(_TYPES)}")
        values = np.frombuffer(info["data"], _TYPES[info["dtype"]]).reshape(info["shape"])
        weights[name] = bfloat16_to_float32(values) if info["dtype"] == "BF16" else values
    return weights


def _weight_map(index: Path) -> dict[str, str]:
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise UserError(f"{index}: expected a weight_map: which weight is in which file")
    return shards


def _read_shards(index: Path, read: Callable[[Path], Weights]) -> Weights:
    """Read a sharded checkpoint, whose index maps each weight to its file."""
    shards = _weight_map(index)
    weights: dict[str, np.ndarray] = {}
    for name in sorted(set(shards.values())):
        # Only files of this folder: the index is untrusted.
        if Path(name).name != name or not (index.parent / name).is_file():
            raise UserError(f"{index}: names the file '{name}', which is not beside it; the folder is incomplete")
        weights.update(read(index.parent / name))
    missing = sorted(set(shards) - set(weights))
    if missing:
        raise UserError(f"{index}: {missing[0]} is in none of its files; the folder is damaged")
    return weights
