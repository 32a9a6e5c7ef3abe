"""Layer weights as arrays and safetensors files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from ernie.errors import NotFinite, UserError
from ernie.json_file import check_regular
from ernie.model.published.formats import read_safetensors


def arrays(layer: nn.Layer) -> dict[str, np.ndarray]:
    """Return the layer's parameters by name, as NumPy arrays; bfloat16, which NumPy lacks, as float32."""
    return {name: np.ascontiguousarray(_without_bfloat16(value).numpy()) for name, value in layer.state_dict().items()}


def fingerprint(described: str, weights: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a description and of all values of weights, by name."""
    digest = hashlib.sha256(described.encode())
    for name, values in sorted(weights.items()):
        digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()


def shapes(layer: nn.Layer) -> dict[str, list[int]]:
    """Return the shapes of the layer's parameters by name."""
    return {name: list(value.shape) for name, value in layer.state_dict().items()}


def _without_bfloat16(value: Tensor) -> Tensor:
    return value.astype("float32") if value.dtype == paddle.bfloat16 else value


def save_weights(layer: nn.Layer, path: Path) -> None:
    """Write a layer's parameters as safetensors."""
    save_arrays(arrays(layer), path)


def save_arrays(values: dict[str, np.ndarray], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file with the permissions that the user's umask grants.

    Raises NotFinite, and writes nothing, when a value is NaN or infinite: such weights are never worth keeping.
    """
    check_finite(values)
    save_file(values, path, metadata)
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)  # safetensors creates files readable by their owner only


def check_finite(values: dict[str, np.ndarray]) -> None:
    """Raise NotFinite, naming the first array that holds NaN or infinity."""
    for name, array in values.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise NotFinite(f"'{name}' holds values that are not finite (NaN or infinity), so it is not saved")


def load_weights(layer: nn.Layer, path: Path) -> None:
    """Read a layer's parameters; every name and shape must match.  Raises UserError, naming what does not."""
    set_weights(layer, read_arrays(path), str(path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file, with bfloat16 converted to float32.  Raises UserError when it is missing or damaged."""
    check_regular(path)
    try:
        tensors = load_file(path)
        # NumPy has no bfloat16 of its own, but has one once somebody has imported ml_dtypes.
        has_bfloat16 = any(values.dtype.name == "bfloat16" for values in tensors.values())
        return read_safetensors(path) if has_bfloat16 else tensors
    except TypeError:
        return read_safetensors(path)
    except FileNotFoundError:  # safetensors also raises this for a file without read permission
        reason = "may not be read" if path.exists() else "there is no such file"
        raise UserError(f"{path}: {reason}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: is damaged ({error}); take another checkpoint") from None


class StoredArray:
    """An array in a safetensors file.  `array[...]` reads all of it, a slice no more than that slice."""

    def __init__(self, file: Any, name: str):
        self._file, self._name = file, name
        self._slices = file.get_slice(name)
        self.shape = tuple(self._slices.get_shape())

    def __getitem__(self, index: Any) -> np.ndarray:
        found: np.ndarray = self._file.get_tensor(self._name) if index is Ellipsis else self._slices[index]
        return found


class StoredArrays(Mapping[str, StoredArray]):
    """The arrays of a safetensors file by name, of which nothing is read before it is asked for.

    Raises UserError if the file is missing or damaged.  bfloat16, which NumPy lacks, cannot be read.
    """

    def __init__(self, path: Path):
        check_regular(path)
        try:
            self._file: Any = safe_open(path, "numpy")
        except FileNotFoundError:
            raise UserError(f"{path}: there is no such file") from None
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: is damaged ({error}); take another checkpoint") from None
        self._names = frozenset(self._file.keys())

    def __getitem__(self, name: str) -> StoredArray:
        if name not in self._names:
            raise KeyError(name)
        return StoredArray(self._file, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


def set_weights(layer: nn.Layer, values: dict[str, np.ndarray], origin: str) -> None:
    """Set a layer's parameters from arrays, which are cast to the parameters' dtype.

    `origin` names the source of the arrays in error messages.  Raises UserError, naming what does not fit.
    """
    own = layer.state_dict()
    check_names(own, values, origin)
    for name, parameter in own.items():
        if list(parameter.shape) != list(values[name].shape):
            hint = " (the vocabularies differ)" if name.endswith("token.weight") else ""
            raise UserError(
                f"{origin}: {name} has the shape {list(values[name].shape)}, the model {list(parameter.shape)}{hint}"
            )
        if not np.issubdtype(values[name].dtype, np.floating):
            raise UserError(f"{origin}: {name} is of type {values[name].dtype}; expected floating-point numbers")
        set_weight(parameter, values[name])


def check_names(own: Collection[str], given: Collection[str], origin: str) -> None:
    """Raise UserError unless the `given` names, which come from `origin`, are those of a layer's own parameters."""
    missing, extra = sorted(set(own) - set(given)), sorted(set(given) - set(own))
    if missing or extra:
        lists = [f"lacks {', '.join(missing[:5])}"] * bool(missing) + [f"also has {', '.join(extra[:5])}"] * bool(extra)
        raise UserError(f"{origin}: does not fit this model: it {' and '.join(lists)}")


def set_weight(parameter: Tensor, values: np.ndarray) -> None:
    """Set a parameter from an array of its shape, which is cast to the parameter's dtype."""
    parameter.set_value(paddle.to_tensor(values, dtype=parameter.dtype))
