"""JSON files that the library or another program wrote, perhaps edited or damaged since."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from ernie.errors import UserError

_LFS = b"version https://git-lfs.github.com/spec/"  # how a pointer begins, by the specification of Git LFS
MOST_BYTES = 64_000_000  # of a file that is read whole; published tokenizers have up to 35 MB
_NAMES: dict[type, str] = {
    **{str: "text", int: "a whole number", float: "a number", bool: "true or false"},
    **{list: "a list", dict: "an object", NoneType: "null"},
}
_MISSING = object()
_LARGEST = 2**63  # whole numbers are below it, as in NumPy's arrays


def read_json(path: Path, keys: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """Read a JSON object from the file `path` and check that it has `keys`, each with a value of its kind.

    A kind is a type of Python's, or a tuple of kinds of which one has to fit.  `[kind]` is a list, and `{str: kind}` an
    object with any keys.  A mapping from keys to kinds is an object with these keys and perhaps others.  A key that
    ends in a question mark may be missing.  A float may be a whole number or NaN.

    Raises UserError that ends with `remedy` if the file is missing, is not JSON, or is not such an object.
    """
    content = _load(path, remedy)
    check_kind(content, keys, path, remedy)
    return content


def check_kind(content: Any, kind: Any, place: object, remedy: str) -> None:
    """Raise UserError unless JSON content is of a kind (see `read_json`); it names the place and the key."""
    if wrong := _mismatch(content, kind):
        raise UserError(f"{place}: {wrong}. {remedy}")


@contextmanager
def parsing(place: object, remedy: str) -> Iterator[None]:
    """Raise UserError for content whose values are of the right kinds, and yet fit together in no way that is known.

    A file that is missing is such an error, too.
    """
    try:
        yield
    except UserError:  # a ValueError, too
        raise
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: there is no such file. {remedy}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UserError(f"{place}: holds what no run writes ({type(error).__name__}: {error}). {remedy}") from error


def _mismatch(value: Any, kind: Any, key: str = "") -> str:
    """Return what is wrong with a value, after the path of its key, or "" if it is of the kind."""
    about = f"{key}: " if key else ""
    if kind is _MISSING:
        return f"{about}this key is missing"
    if isinstance(kind, tuple):
        told = [_mismatch(value, each, key) for each in kind]
        closest = (one for one, each in zip(told, kind, strict=True) if _fits(value, each))
        return "" if "" in told else next(closest, f"{about}expected {' or '.join(dict.fromkeys(map(_named, kind)))}")
    if not _fits(value, kind):
        return f"{about}expected {_named(kind)}"
    parts = _parts(value, kind, key)
    return next((wrong for part, item, each in parts if (wrong := _mismatch(item, each, part))), "")


def _parts(value: Any, kind: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, value and kind of each item of a list or an object; the kind of a missing one is _MISSING."""
    if isinstance(kind, list):
        yield from ((f"{key}[{number}]", item, kind[0]) for number, item in enumerate(value))
    if not isinstance(kind, Mapping):
        return
    begin = f"{key}." if key else ""
    if str in kind:
        yield from ((f"{begin}{name}", item, kind[str]) for name, item in value.items())
        return
    for name, each in kind.items():
        plain = name.removesuffix("?")
        if plain in value:
            yield f"{begin}{plain}", value[plain], each
        elif plain == name:
            yield f"{begin}{name}", None, _MISSING


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, apart from its items."""
    if kind is float and type(value) is float:
        return not math.isinf(value)
    if kind in (int, float):
        return type(value) is int and abs(value) < _LARGEST  # not isinstance: bool is a subclass of int
    return type(value) is _type(kind)


def _type(kind: Any) -> type:
    return kind if isinstance(kind, type) else list if isinstance(kind, list) else dict


def _named(kind: Any) -> str:
    return _NAMES[_type(kind)]


def read_json_list(path: Path, remedy: str) -> list[Any]:
    """Read a JSON list from the file `path`; raises UserError as `read_json` does."""
    content = _load(path, remedy)
    if not isinstance(content, list):
        raise UserError(f"{path}: expected a list. {remedy}")
    return content


def _load(path: Path, remedy: str) -> Any:
    content = read_limited(path, remedy)
    try:
        return json.loads(content.decode("utf-8-sig"))  # some editors begin a file with a byte order mark
    except (ValueError, RecursionError):  # a number of more than 4,300 digits raises a plain ValueError
        raise UserError(f"{path}: is not JSON. {remedy}") from None


def read_limited(path: Path, remedy: str = "") -> bytes:
    """Read a file of at most 64 MB whole: a vocabulary, settings, a record.

    Raises UserError that ends with `remedy` for a file that cannot be read or is larger; see also `check_regular`.
    """
    check_regular(path)
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


def check_regular(path: Path) -> None:
    """Raise UserError for a device or a pipe, which may never end or begin, and for a Git LFS pointer."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: is a device or a pipe, expected a file")
    check_not_lfs_pointer(path)


def check_not_lfs_pointer(path: Path) -> None:
    """Raise UserError if a file is a Git LFS pointer, which stands for the real file until that is downloaded.

    What cannot be read passes, as whoever reads it says why, and so does a pipe, which can be read only once.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            begins = file.read(len(_LFS))
    except OSError:
        return
    if begins == _LFS:
        raise UserError(
            f"{path}: is a Git LFS pointer, not the file itself: run git lfs pull where it was cloned, or download it"
        )
