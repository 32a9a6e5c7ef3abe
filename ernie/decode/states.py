"""States of streams: dataclasses whose fields alone say how they are split, concatenated, saved and restored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from paddle import Tensor, to_tensor

from ernie.decode.former_states import upgraded
from ernie.errors import UserError
from ernie.kernels.precision import to_numpy

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1  # of saved states; those without one are of versions of the library that wrote none
_VERSION, FIELDS = "state.version", "state.fields"  # keys of the version, and of all that is no array, as JSON
T = TypeVar("T")
_PLAIN = {bool: bool, int: int, float: (int, float), str: str}


class BatchState:
    """The state of N streams, a frozen dataclass.

    Its tuples have an entry for each stream, which may be a dataclass itself.  Its other parts, such as a key-value
    cache or the state of another decoder, are split and concatenated by themselves, as are those in a tuple of states.
    A string is something that all streams share: the field `model` identifies the model that the state belongs to.
    All fields are saved under their names: arrays by themselves, the rest together as JSON.
    """

    @property
    def streams(self) -> int:
        """The number of streams."""
        return next(iter(_counts(self).values()))

    def select(self, streams: Sequence[int]) -> Self:
        """Return the state of these streams only, in this order; one may occur several times."""
        return replace(self, **{name: _selected(value, streams) for name, value in _fields(self).items()})  # type: ignore[type-var]

    def concat(self, others: Sequence[Self]) -> Self:
        """Concatenate the streams of this state and of others, in order.

        Raises UserError for states of different models or settings.
        """
        every = [_fields(state) for state in (self, *others)]
        return replace(self, **{name: _concatenated([own[name] for own in every], name) for name in every[0]})  # type: ignore[type-var]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        return arrays_of(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Restore a state from its `arrays`.  Raises as `restore` does."""
        return restore(cls, arrays)


def arrays_of(state: Any) -> dict[str, np.ndarray]:
    """Return a dataclass, a state or a part of one, as arrays by name."""
    arrays: dict[str, np.ndarray] = {}
    plain = {name: _flattened(value, name, arrays) for name, value in _fields(state).items()}
    return {_VERSION: np.array(VERSION), FIELDS: np.array(json.dumps(plain)), **arrays}


def restore(kind: type[T], arrays: Mapping[str, np.ndarray], **known: Any) -> T:
    """Restore a dataclass from the result of `arrays_of`; fields that are `known` are not read.

    Raises UserError for a state of another version, and ValueError, TypeError or LookupError for what is no state.
    """
    if _VERSION not in arrays:
        plain, arrays = upgraded(arrays)
    elif (version := int(arrays[_VERSION])) != VERSION:
        raise UserError(
            f"a state of version {version}, which another version of the library wrote; this one reads {VERSION} and "
            "those without a version"
        )
    else:
        plain = json.loads(str(arrays[FIELDS]))
    state: T = _restored(kind, plain, "", arrays, known)
    return state


def common_model(models: Iterable[str]) -> str:
    """Return the model identity that these states share, "" if none has one.  Raises UserError if they differ."""
    identities = sorted({*models} - {""})
    if len(identities) > 1:
        raise UserError("this state is of another model: only the model that began a stream can continue it")
    return "".join(identities)


def _common(settings: Iterable[str], name: str) -> str:
    found = sorted({*settings} - {""})
    if len(found) > 1:
        raise UserError(f"these states differ in their {name} ({'; '.join(found)}): their streams cannot be joined")
    return "".join(found)


def with_prefix(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Prefix the names of a part's arrays, for the `arrays` of the whole state."""
    return {f"{name}/{key}": value for key, value in arrays.items()}


def strip_prefix(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays that `with_prefix` put under a name, with their own names."""
    return {key.removeprefix(f"{name}/"): value for key, value in arrays.items() if key.startswith(f"{name}/")}


def _fields(state: Any) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _are_states(value: Any) -> bool:
    """Whether a value is a tuple of states, each of all streams, such as that of a chain of decoders."""
    return isinstance(value, tuple) and bool(value) and all(hasattr(item, "select") for item in value)


def _selected(value: Any, streams: Sequence[int]) -> Any:
    if _are_states(value):
        return tuple(part.select(streams) for part in value)
    if isinstance(value, tuple):
        return tuple(value[n] for n in streams)
    return value if isinstance(value, str) else value.select(streams)


def _concatenated(values: Sequence[Any], name: str) -> Any:
    first, *others = values
    if _are_states(first):
        if len({len(value) for value in values}) > 1:
            raise UserError("these states are of chains of different lengths")
        return tuple(_concatenated(parts, name) for parts in zip(*values, strict=True))
    if isinstance(first, tuple):
        return tuple(item for value in values for item in value)
    if isinstance(first, str):
        return common_model(values) if name == "model" else _common(values, name)
    return first.concat(others) if hasattr(first, "concat") else type(first).joined(values)


def _counts(state: BatchState) -> dict[str, int]:
    """Return the number of streams that each field has."""
    parts = {name: value[0] if _are_states(value) else value for name, value in _fields(state).items()}
    return {name: _count(part) for name, part in parts.items() if not isinstance(part, str)}


def _count(part: Any) -> int:
    if isinstance(part, tuple):
        return len(part)
    return part.layout.sequences if hasattr(part, "layout") else part.streams


def _saves_itself(kind: Any) -> bool:
    return hasattr(kind, "from_arrays") and not issubclass(kind, BatchState)


def _flattened(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as plain data for JSON, with None in place of its arrays, which are added to `arrays`."""
    if isinstance(value, (np.ndarray, Tensor)):
        arrays[path] = to_numpy(value) if isinstance(value, Tensor) else value
        return None
    if _saves_itself(type(value)):
        arrays.update(with_prefix(path, value.arrays()))
        return None
    if is_dataclass(value):
        return {name: _flattened(own, f"{path}/{name}", arrays) for name, own in _fields(value).items()}
    if _are_states(value):  # each with its own JSON: its class need not be known here
        for number, part in enumerate(value):
            arrays.update(with_prefix(f"{path}/{number}", part.arrays()))
        return None
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        return [_flattened(own, f"{path}/{name}", arrays) for name, own in zip(names, value, strict=True)]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{path}: {type(value)} cannot be saved"
    return value


def _restored(hint: Any, data: Any, path: str, arrays: Mapping[str, np.ndarray], known: Mapping[str, Any] = {}) -> Any:
    """Return what `_flattened` took apart, of a type.  Raises ValueError, TypeError or KeyError for anything else."""
    if get_origin(hint) in (Union, UnionType):
        (kind,) = (each for each in get_args(hint) if each is not NoneType)
        absent = data is None and not any(key == path or key.startswith(f"{path}/") for key in arrays)
        return None if absent else _restored(kind, data, path, arrays)
    if hint is np.ndarray:
        return arrays[path]
    if hint is Tensor:
        return to_tensor(arrays[path])
    if hint is Any:
        return _as_tuples(data)
    if get_origin(hint) is tuple:
        return tuple(_restored_items(get_args(hint), _checked(data, list, path), path, arrays))
    if _saves_itself(hint):
        return hint.from_arrays(strip_prefix(path, arrays))
    if is_dataclass(hint):
        return _restored_fields(hint, _checked(data, dict, path), path, arrays, known)
    if hasattr(hint, "_fields"):
        hints = _hints(hint)
        own = zip(hints.items(), _checked(data, list, path), strict=False)
        return hint(*(_restored(kind, value, f"{path}/{name}", arrays) for (name, kind), value in own))
    value = _checked(data, _PLAIN[hint], path)
    return hint(value)


def _restored_items(kinds: tuple[Any, ...], data: Any, path: str, arrays: Mapping[str, np.ndarray]) -> list[Any]:
    each = [kinds[0]] * len(data) if len(kinds) == 2 and kinds[1] is ... else kinds
    pairs = enumerate(zip(each, data, strict=True))
    return [_restored(kind, value, f"{path}/{number}", arrays) for number, (kind, value) in pairs]


def _restored_fields(
    kind: Any, data: dict[str, Any], path: str, arrays: Mapping[str, np.ndarray], known: Mapping[str, Any]
) -> Any:
    hints, start = _hints(kind), f"{path}/" if path else ""
    if unknown := sorted({*data} - {*hints}):
        raise ValueError(f"it has the unknown part {start}{unknown[0]}")
    read = {
        name: _restored(hints[name], value, f"{start}{name}", arrays)
        for name, value in data.items()
        if name not in known
    }
    state = kind(**read, **known)
    if isinstance(state, BatchState) and len({*_counts(state).values()}) > 1:
        counts = (f"{count} of '{start}{name}'" for name, count in _counts(state).items())
        raise ValueError(f"its parts have different numbers of streams: {', '.join(counts)}")
    return state


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(data: Any, kind: Any, path: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{path}: {data!r:.60} is not what a state has there")
    return data


def _as_tuples(value: Any) -> Any:
    """Return plain data with tuples in place of lists, which JSON makes of them."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
