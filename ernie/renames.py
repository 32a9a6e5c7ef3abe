"""Keys of configurations that were renamed.  A field declares its former names; everything else follows from that.

A file of a user with a former name is refused with the new one, and `ernie migrate` rewrites it.  What the library
itself has written, such as the folders of runs, is read as if it had the new names.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ernie.errors import UserError
from ernie.yaml_tree import Value

_FORMERLY = "formerly"


def formerly(*names: str) -> Mapping[str, Any]:
    """Return the `metadata` of a dataclass's field that was called `names` before."""
    return {_FORMERLY: names}


@dataclass(frozen=True)
class Rename:
    """A key with a former name: its `path` as it stands in the file, the path of its new name, and where it stands."""

    path: tuple[str | int, ...]
    new: tuple[str | int, ...]
    where: str
    twice: bool = False  # the new name is there, too

    def __str__(self) -> str:
        file = self.where.rpartition(":")[0]
        hint = f": `ernie migrate {file}` rewrites it" if file and Path(file).is_file() else ""
        also = ", and stands there, too" if self.twice else hint
        return f"was renamed to {key_path(self.new)}{also}"


def renamed(
    schema: Any, tree: Value, context: Value | None = None, *, exact: bool = False
) -> tuple[Value, list[Rename]]:
    """Return a tree of a dataclass `schema` with the new names of all keys, and what was renamed.

    If `exact`, it is of the schema itself, and not of the variant of it that its keys name.

    `context` says which kinds of tasks the tree has, if it is only one of several files: all of them merged, with new
    names.  Where a former name and the new one both stand, the new one counts.
    """
    found: list[Rename] = []
    rename = _renamed_fields if exact else _renamed
    return rename(schema, tree, context or tree, (), (), found), found


def key_path(path: tuple[str | int, ...]) -> str:
    """Return a path as messages show it, such as `schedule.stages[0].masking`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def add_renamed_flag(parser: argparse.ArgumentParser, former: str, new: str) -> None:
    """Add the former name of a command's flag, which is refused with the new one and not in the help."""

    class Refuse(argparse.Action):
        def __call__(self, *_: object) -> None:
            raise UserError(f"{former}: was renamed to {new}")

    parser.add_argument(former, nargs="?", action=Refuse, help=argparse.SUPPRESS)


def _renamed(
    kind: Any,
    value: Value,
    context: Value | None,
    path: tuple[str | int, ...],
    new_path: tuple[str | int, ...],
    found: list[Rename],
) -> Value:
    origin, args, data = typing.get_origin(kind), typing.get_args(kind), value.data
    if origin in (typing.Union, types.UnionType):
        for arg in args:  # of which only the one that fits does something
            value = _renamed(arg, value, context, path, new_path, found)
    elif origin in (list, tuple) and isinstance(data, list):
        kinds = args if origin is tuple and args[1:] != (Ellipsis,) else args[:1] * len(data)
        items = [
            _renamed(each, item, None, (*path, at), (*new_path, at), found)
            for at, (each, item) in enumerate(zip(kinds, data, strict=False))
        ]
        return replace(value, data=[*items, *data[len(items) :]])
    elif origin is dict and isinstance(data, dict):
        items_by_key = {
            key: _renamed(args[1], item, _child(context, key), (*path, key), (*new_path, key), found)
            for key, item in data.items()
        }
        return replace(value, data=items_by_key)
    elif isinstance(data, dict):
        schema = _variant(kind, path, context or value) if hasattr(kind, "variant") else kind
        if dataclasses.is_dataclass(schema):
            return _renamed_fields(schema, value, context, path, new_path, found)
    return value


def _renamed_fields(
    schema: Any,
    value: Value,
    context: Value | None,
    path: tuple[str | int, ...],
    new_path: tuple[str | int, ...],
    found: list[Rename],
) -> Value:
    hints = typing.get_type_hints(schema)
    names = {old: field.name for field in dataclasses.fields(schema) for old in field.metadata.get(_FORMERLY, ())}
    data: dict[str, Value] = {}
    for key, item in value.data.items():
        new = names.get(key, key)
        if new in hints:
            item = _renamed(hints[new], item, _child(context, new), (*path, key), (*new_path, new), found)
        if new != key:
            found.append(Rename((*path, key), (*new_path, new), item.where, twice=new in value.data))
        if new == key or new not in value.data:
            data[new] = item
    return replace(value, data=data)


def _variant(kind: Any, path: tuple[str | int, ...], context: Value) -> Any:
    """Return the dataclass of a mapping whose kind it names itself; None if it names none that is known."""
    given = context.plain()
    try:
        return kind.variant(str(path[-1]) if path else "", given if isinstance(given, dict) else {})[0]
    except UserError:
        return None


def _child(context: Value | None, key: str) -> Value | None:
    return context.data.get(key) if context is not None and isinstance(context.data, dict) else None
