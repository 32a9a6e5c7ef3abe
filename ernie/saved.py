"""JSON files that the library or another program wrote, perhaps edited or damaged since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from ernie.errors import UserError

_LFS = b"version https://git-lfs.github.com/spec/"  # how a pointer begins, by the specification of Git LFS
MOST_BYTES = 64_000_000  # of a file that is read whole; published tokenizers have up to 35 MB
_NAMES = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "an object", NoneType: "null"}


def read_json(path: Path, keys: Mapping[str, tuple[type, ...]], remedy: str) -> dict[str, Any]:
    """Read a JSON object from the file `path` and check that it has `keys`, each with a value of one of its types.

    Raises UserError that ends with `remedy` if the file is missing, is not JSON, or is not such an object.
    """
    content = _load(path, remedy)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected an object. {remedy}")
    for key, types in keys.items():
        if key not in content:
            raise UserError(f"{path}: {key}: this key is missing. {remedy}")
        if type(content[key]) not in types:  # not isinstance: bool is a subclass of int
            expected = " or ".join(_NAMES[kind] for kind in types)
            raise UserError(f"{path}: {key}: expected {expected}. {remedy}")
    return content


def read_json_list(path: Path, remedy: str) -> list[Any]:
    """Read a JSON list from the file `path`; raises UserError as `read_json` does."""
    content = _load(path, remedy)
    if not isinstance(content, list):
        raise UserError(f"{path}: expected a list. {remedy}")
    return content


def _load(path: Path, remedy: str) -> Any:
    content = read_limited(path, remedy)
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):  # a number of more than 4,300 digits raises a plain ValueError
        raise UserError(f"{path}: is not JSON. {remedy}") from None


def read_limited(path: Path, remedy: str = "") -> bytes:
    """Read a file of at most 64 MB whole: a vocabulary, settings, a record.

    Raises UserError that ends with `remedy` for a file that cannot be read or is larger, and for a Git LFS pointer.
    """
    check_not_lfs_pointer(path)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}{remedy and f'. {remedy}'}") from None
    if len(content) > MOST_BYTES:
        size = f"{MOST_BYTES // 10**6} MB"
        raise UserError(
            f"{path}: is larger than {size}, the most that is read of such a file{remedy and f'. {remedy}'}"
        )
    return content


def check_not_lfs_pointer(path: Path) -> None:
    """Raise UserError if a file is a Git LFS pointer, which stands for the real file until that is downloaded.

    A file that cannot be read passes: whoever reads it says why.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(_LFS))
    except OSError:
        return
    if begins == _LFS:
        raise UserError(
            f"{path}: is a Git LFS pointer, not the file itself: run git lfs pull where it was cloned, or download it"
        )
