"""What a folder of a published checkpoint holds: which format it is, its settings, and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from ernie.errors import UserError
from ernie.model.published.bfloat16 import widened
from ernie.model.published.fluid import read_fluid
from ernie.model.published.pdparams import read_pdparams
from ernie.model.published.tensor_bundle import read_tensor_bundle
from ernie.model.published.torch_file import read_torch
from ernie.saved import read_json

Kind = Literal["ernie", "hf", "paddlenlp", "ernie-official", "bert-tf"]
Weights = Mapping[str, np.ndarray]

_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_TORCH = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_PADDLE = "model_state.pdparams"
_BUNDLE = "bert_model.ckpt"
_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (8, 4, 2, 1)},
}
# The first file of each row is there: this is the file with the settings.
_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "hf": ("config.json",),
    "paddlenlp": ("config.json", "model_config.json"),
    "ernie-official": ("ernie_config.json",),
    "bert-tf": ("bert_config.json",),
}


def recognise(folder: Path) -> Kind | None:
    """The format of a checkpoint folder, by the files in it; None when it is none that we know."""

    def has(*names: str) -> bool:
        return any((folder / name).exists() for name in names)

    if has("ernie_config.json") and has("params", "saved_weights.pdparams"):
        return "ernie-official"
    if has("bert_config.json") and has(f"{_BUNDLE}.index"):
        return "bert-tf"
    if has("config.json") and {"layers", "heads"} <= set(read_object(folder / "config.json")):
        return "ernie"
    if has("config.json") and has(*_SAFETENSORS):
        return _owner_of_safetensors(folder)
    if has("config.json", "model_config.json") and has(_PADDLE):
        return "paddlenlp"
    return "hf" if has("config.json") and has(*_TORCH) else None


def expected_files() -> str:
    """For messages: the files that the known formats consist of."""
    return (
        "config.json with model.safetensors or pytorch_model.bin (Hugging Face), config.json or model_config.json with "
        "model_state.pdparams (PaddleNLP), ernie_config.json with params/ or saved_weights.pdparams (the official "
        "releases), or bert_config.json with bert_model.ckpt.index (BERT's original)"
    )


def read_settings(folder: Path, kind: Kind) -> tuple[Path, dict[str, Any]]:
    """The settings of a checkpoint and the file they stand in.  Raises UserError when it is damaged."""
    path = next(folder / name for name in _SETTINGS[kind] if (folder / name).is_file())
    settings = read_object(path)
    nested = settings.get("init_args")  # PaddleNLP before 2.5: the encoder's settings inside those of a head
    if isinstance(nested, list) and nested and isinstance(nested[0], dict):
        settings = {**settings, **nested[0]}
    return path, settings


def read_weights(folder: Path, kind: Kind) -> tuple[Path, Weights]:
    """The weights of a checkpoint by their own names, and the file or folder they stand in."""
    readers: dict[str, Callable[[Path], Weights]] = {
        "params": read_fluid,
        "saved_weights.pdparams": read_pdparams,
        f"{_BUNDLE}.index": read_tensor_bundle,
        _SAFETENSORS[0]: read_safetensors,
        _SAFETENSORS[1]: lambda path: _read_parts(path, read_safetensors),
        _PADDLE: read_pdparams,
        _TORCH[0]: read_torch,
        _TORCH[1]: lambda path: _read_parts(path, read_torch),
    }
    path = next(folder / name for name in readers if (folder / name).exists())
    return path, readers[path.name](path)


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a published folder.  Raises UserError when it is damaged."""
    return read_json(path, {}, "The folder is damaged; fetch it again.")


def _owner_of_safetensors(folder: Path) -> Kind:
    """Whose safetensors file it is, told by the names in it: PaddleNLP's and Hugging Face's are called the same."""
    index = folder / _SAFETENSORS[1]
    names = list(_weight_map(index)) if index.is_file() else _safetensors_names(folder / _SAFETENSORS[0])
    return "paddlenlp" if any(".self_attn.q_proj." in name for name in names) else "hf"


def _safetensors_names(path: Path) -> list[str]:
    try:
        with safe_open(path, "np") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: is damaged ({error}); fetch it again") from None


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file; bfloat16 comes as float32.  Raises UserError when it is damaged."""
    try:
        found = deserialize(path.read_bytes())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: is damaged ({error}); fetch it again") from None
    weights = {}
    for name, info in found:
        if info["dtype"] not in _TYPES:
            raise UserError(f"{path}: {name} is of type {info['dtype']}; expected one of {', '.join(_TYPES)}")
        values = np.frombuffer(info["data"], _TYPES[info["dtype"]]).reshape(info["shape"])
        weights[name] = widened(values) if info["dtype"] == "BF16" else values
    return weights


def _weight_map(index: Path) -> dict[str, str]:
    parts = read_object(index).get("weight_map")
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
        raise UserError(f"{index}: expected a weight_map: which weight is in which file")
    return parts


def _read_parts(index: Path, read: Callable[[Path], Weights]) -> Weights:
    """A checkpoint in several files: the index says which weight is in which."""
    parts = _weight_map(index)
    weights: dict[str, np.ndarray] = {}
    for name in sorted(set(parts.values())):
        # Only files of this folder: an index is a stranger's.
        if Path(name).name != name or not (index.parent / name).is_file():
            raise UserError(f"{index}: names the file '{name}', which is not beside it; the folder is incomplete")
        weights.update(read(index.parent / name))
    missing = sorted(set(parts) - set(weights))
    if missing:
        raise UserError(f"{index}: {missing[0]} is in none of its files; the folder is damaged")
    return weights
