"""Paddle's files of weights (.pdparams), read without running what they hold."""

from __future__ import annotations

import _codecs
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.model.published.bfloat16 import widened
from ernie.model.published.pickles import SafeUnpickler, unpickle

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # what NumPy pickles its arrays with; its own name differs by version
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _codecs.encode,  # bytes, as Python 2's protocol writes them
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (tuple, bytes)},
}


def read_pdparams(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a `.pdparams` file by name.

    Raises UserError when the file is damaged or holds anything but weights.
    """
    with path.open("rb") as stream:
        found = unpickle(SafeUnpickler(stream, path, _KNOWN), path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected weights by name, found {type(found).__name__}")
    # Paddle 2.1 and later keep a tensor as (its variable's name, the array), some as the array alone.
    plain = {name: item[1] if isinstance(item, tuple) and len(item) == 2 else item for name, item in found.items()}
    arrays = {name: item for name, item in plain.items() if isinstance(item, np.ndarray) and item.dtype != object}
    # Paddle has no other word for bfloat16, and no weight is a number of 16 bits.
    return {name: widened(item) if item.dtype == np.uint16 else item for name, item in arrays.items()}
