"""Reader for Paddle's weight files (.pdparams) that does not execute pickled code."""

from __future__ import annotations

import _codecs
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.model.published.bfloat16 import bfloat16_to_float32
from ernie.model.published.pickles import SafeUnpickler, unpickle

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # the function in pickles of NumPy arrays; its module depends on the version
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _codecs.encode,  # bytes, as pickled by Python 2's protocol
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (tuple, bytes)},
}


def read_pdparams(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a `.pdparams` file by name.

    Raises UserError when the file is damaged or holds anything but weights.
    """
    with path.open("rb") as stream:
        content = unpickle(SafeUnpickler(stream, path, _KNOWN), path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected weights by name, found {type(content).__name__}")
    # Paddle 2.1 and later store a tensor as (variable name, array), or sometimes as the array alone.
    items = {name: item[1] if isinstance(item, tuple) and len(item) == 2 else item for name, item in content.items()}
    arrays = {name: item for name, item in items.items() if isinstance(item, np.ndarray) and item.dtype != object}
    # Paddle stores bfloat16 as uint16, which no weight is otherwise.
    return {name: bfloat16_to_float32(item) if item.dtype == np.uint16 else item for name, item in arrays.items()}
