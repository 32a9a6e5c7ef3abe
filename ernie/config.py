"""Configuration: a frozen dataclass is the schema, YAML is the file format.

`build` validates a tree (see ernie/yaml_tree.py) against a dataclass and collects all mistakes before it
raises, so that users can fix a file in one go.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ernie.errors import UserError, nearest
from ernie.renames import key_path, renamed
from ernie.yaml_tree import NOT_SHOWN, ConfigError, Value, described, dump_plain, from_dict, read

__all__ = [
    "ConfigError",
    "Value",
    "build",
    "build_fields",
    "check_least",
    "check_most",
    "check_seed",
    "differences",
    "dump",
    "from_dict",
    "load",
    "place_of",
    "read",
    "to_dict",
]

C = TypeVar("C")


def build(schema: type[C], tree: Value, *, saved: bool = False) -> C:
    """Validate `tree` against the dataclass `schema` and create an instance.  Raises ConfigError with all mistakes.

    Former names of keys are mistakes (see ernie.renames), unless the library itself has `saved` the tree.

    A field's type may be a scalar, Literal, Path, list, tuple, dict with string keys, a union of these, or another
    dataclass.  It may also be a class with a classmethod `variant(key, given)`, which may raise UserError.  That method
    returns the dataclass to use for the mapping `given` under `key`, and the keys of it that this consumes.  If a
    `__post_init__` raises ValueError, which UserError is, its message is reported under the key of the object.
    """
    tree, renames = renamed(schema, tree)
    mistakes = [] if saved else [f"{rename.where}: {key_path(rename.path)}: {rename}" for rename in renames]
    config = _build(schema, tree, "", mistakes)
    if mistakes:
        raise ConfigError(mistakes)
    return config


def build_fields(schema: type[Any], tree: Value, path: str) -> dict[str, Any]:
    """Validate the values of some of a dataclass's fields, without creating an instance.

    `path` is the key of the tree.  Raises ConfigError with all mistakes.
    """
    if not isinstance(tree.data, dict):
        raise ConfigError([f"{tree.where}: {path}: expected a mapping of keys, found {described(tree)}"])
    tree, renames = renamed(schema, tree, exact=True)
    mistakes = [f"{rename.where}: {path}.{key_path(rename.path)}: {rename}" for rename in renames]
    hints = typing.get_type_hints(schema)
    fields = {field.name for field in dataclasses.fields(schema) if field.init}
    found: dict[str, Any] = {}
    for key, item in tree.data.items():
        if key in fields:
            found[key] = _build(hints[key], item, _join(path, key), mistakes)
        else:
            mistakes.append(_unknown(key, item, path, fields))
    if mistakes:
        raise ConfigError(mistakes)
    return found


MOST_LAYERS = 1000  # of any network, several times those of the deepest published ones


def check_least(config: object, **least: float) -> None:
    """Raise UserError for the first field of a configuration that is below its minimum."""
    for name, value in least.items():
        if getattr(config, name) < value:
            raise UserError(f"{name}: expected at least {value}, found {getattr(config, name)}")


def check_most(config: object, **most: int) -> None:
    """Raise UserError for the first field of a configuration that is above its maximum."""
    for name, value in most.items():
        if getattr(config, name) > value:
            raise UserError(f"{name}: expected at most {value:,}, found {getattr(config, name):,}")


def check_seed(seed: int) -> None:
    """Raise UserError for a seed outside the range of the random generators."""
    if not 0 <= seed < 2**32:
        raise UserError(f"seed: expected a number from 0 to {2**32 - 1:,}, found {seed:,}")


def load(schema: type[C], path: str | Path, overrides: Sequence[str] = ()) -> C:
    """Read a configuration file and build the configuration."""
    return build(schema, read(path, overrides))


def to_dict(config: Any) -> Any:
    """Convert a configuration to plain data for YAML or JSON, with all defaults written out."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        data = {field.name: to_dict(getattr(config, field.name)) for field in dataclasses.fields(config)}
        name = getattr(config, "variant_name", None)
        return {getattr(config, "variant_key", "task"): name, **data} if name else data
    if isinstance(config, dict):
        return {str(key): to_dict(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_dict(value) for value in config]
    return str(config) if isinstance(config, Path) else config


def dump(config: Any) -> str:
    """Dump a configuration as YAML that `load` reads back unchanged."""
    return dump_plain(to_dict(config))


def differences(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return key path -> (old, new) wherever two plain trees differ; a missing key counts as None."""
    if isinstance(old, dict) and isinstance(new, dict):
        changes: dict[str, tuple[Any, Any]] = {}
        for key in [*old, *(key for key in new if key not in old)]:
            changes.update(differences(old.get(key), new.get(key), f"{path}.{key}" if path else key))
        return changes
    return {} if old == new else {path: (old, new)}


def _build(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    """Build a value of type `kind`; on a mistake, append it to `mistakes` and return None."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value.plain()
    if origin in (typing.Union, types.UnionType):
        return _build_union(args, value, path, mistakes)
    if origin is typing.Literal:
        if value.data in args and type(value.data) in {type(arg) for arg in args}:
            return value.data
        return _mistake(value, path, f"expected one of {', '.join(map(str, args))}", mistakes)
    if origin in (list, tuple):
        return _build_sequence(origin, args, value, path, mistakes)
    if origin is dict:
        if value.data is None:
            return {}  # an empty key, as for a dataclass; lets a file remove a mapping that it includes
        if not isinstance(value.data, dict):
            return _mistake(value, path, "expected a mapping", mistakes)
        shown = {key: _shown(path, key, item) for key, item in value.data.items()}
        if hasattr(args[1], "variant"):
            return {key: _build_variant(args[1], item, key, shown[key], mistakes) for key, item in value.data.items()}
        return {key: _build_item(args[1], item, shown[key], mistakes) for key, item in value.data.items()}
    if hasattr(kind, "variant"):
        return _build_variant(kind, value, path.rpartition(".")[2], path, mistakes)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, path, mistakes)
    return _build_scalar(kind, value, path, mistakes)


def _build_dataclass(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    if value.data is None:
        value = Value({}, value.where)  # `train:` with nothing under it means all defaults
    if not isinstance(value.data, dict):
        return _mistake(value, path, "expected a mapping of keys", mistakes)
    before = len(mistakes)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key, item in value.data.items():
        if key not in fields:
            mistakes.append(_unknown(key, item, path, fields))
    arguments = {}
    for name, field in fields.items():
        if name in value.data:
            arguments[name] = _build(hints[name], value.data[name], _join(path, name), mistakes)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            mistakes.append(f"{value.where}: {_join(path, name)}: this key is required")
    if len(mistakes) > before:
        return None
    try:
        return kind(**arguments)
    except ValueError as error:
        # By convention the message starts with the key it is about, which may be lines below that of the mapping.
        where = _place(value, str(error).partition(":")[0])
        mistakes.append(f"{where}: {path + ': ' if path else ''}{error}")
        return None


def _place(value: Value, key_path: str) -> str:
    """Return the location of the key `a.b` under a value, or of the innermost mapping around it."""
    for key in key_path.split("."):
        if not isinstance(value.data, dict) or key not in value.data:
            break
        value = value.data[key]
    return value.where


def place_of(tree: Value, message: str) -> str:
    """Return where the key stands that a message begins with, "" if it begins with none.

    A key of a task may be named without `task.` before it.  A single word is a key only if its value is no mapping: it
    may as well be the name of a folder or of a split.
    """
    found = re.match(r"(\w+(?:\.[\w-]+)*)(?:\[\d+\])?: ", message)
    keys = found[1].split(".") if found else []
    task = tree.data.get("task") if isinstance(tree.data, dict) else None
    for parent in (tree, task):
        value = parent.data.get(keys[0]) if parent and keys and isinstance(parent.data, dict) else None
        if value is not None and (len(keys) > 1 or not isinstance(value.data, dict)):
            return _place(value, ".".join(keys[1:]))
    return ""


def _build_variant(kind: Any, value: Value, key: str, path: str, mistakes: list[str]) -> Any:
    given = value.data if value.data is not None else {}
    if not isinstance(given, dict):
        return _mistake(value, path, "expected a mapping of keys", mistakes)
    try:
        chosen, consumed = kind.variant(key, Value(given, value.where).plain())
    except UserError as error:
        what = f"names nothing known; it is {NOT_SHOWN}" if value.foreign else str(error)
        mistakes.append(f"{_place(value, str(error).partition(':')[0])}: {path}: {what}")
        return None
    rest = {key: item for key, item in given.items() if key not in consumed}
    return _build_dataclass(chosen, Value(rest, value.where), path, mistakes)


def _build_union(args: tuple[Any, ...], value: Value, path: str, mistakes: list[str]) -> Any:
    if value.data is None and type(None) in args:
        return None
    attempts: list[list[str]] = []
    inside: list[str] = []  # what is wrong in a mapping where one is expected
    for arg in args:
        if arg is not type(None):
            own: list[str] = []
            built = _build(arg, value, path, own)
            if not own:
                return built
            attempts.append(own)
            if isinstance(value.data, dict) and typing.get_origin(arg) is dict:
                inside = own
    mistakes.extend(inside or (attempts[-1] if len(attempts) == 1 else [_expected(args, value, path)]))
    return None


def _build_sequence(origin: Any, args: tuple[Any, ...], value: Value, path: str, mistakes: list[str]) -> Any:
    if not isinstance(value.data, list):
        return _mistake(value, path, "expected a list", mistakes)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(value.data) != len(args):
            return _mistake(value, path, f"expected a list of {len(args)} values", mistakes)
        kinds = list(args)
    else:
        kinds = [args[0]] * len(value.data)
    items = [
        _build_item(kind, item, f"{path}[{i}]", mistakes)
        for i, (kind, item) in enumerate(zip(kinds, value.data, strict=True))
    ]
    return origin(items)


def _build_item(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    """Build an item of a list or a mapping.  If items are strings, such as labels, 0 and true keep their spelling."""
    if kind is str and isinstance(value.data, (bool, int, float)):
        return value.written or json.dumps(value.data)
    return _build(kind, value, path, mistakes)


def _build_scalar(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    data = value.data
    if kind is Path and isinstance(data, str):
        return Path(data)
    if kind is bool and isinstance(data, bool):
        return data
    if kind is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if kind is int and isinstance(data, float) and data.is_integer() and abs(data) < 2**53:
        return int(data)  # 1e5, as rates are written
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        finite = abs(data) <= sys.float_info.max  # of whole numbers, too, which may be larger
        return float(data) if finite else _mistake(value, path, "expected a finite number", mistakes)
    if kind is str and isinstance(data, str):
        return data
    return _mistake(value, path, f"expected {_NAMES.get(kind, kind)}", mistakes)


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def _expected(args: tuple[Any, ...], value: Value, path: str) -> str:
    names: list[str] = []
    for arg in args:
        base = typing.get_origin(arg) or arg
        if base is typing.Literal:
            names += map(str, typing.get_args(arg))
            continue
        names.append(
            {list: "a list", tuple: "a list", dict: "a mapping", type(None): "null"}.get(
                base, _NAMES.get(arg, str(arg))
            )
        )
    return f"{value.where}: {path}: expected {' or '.join(names)}, found {described(value)}"


def _mistake(value: Value, path: str, expected: str, mistakes: list[str]) -> None:
    mistakes.append(f"{value.where}: {path + ': ' if path else ''}{expected}, found {described(value)}")


def _unknown(key: str, item: Value, path: str, known: Iterable[str]) -> str:
    """Return the mistake of a key that a dataclass lacks."""
    what = f"unknown key, {NOT_SHOWN}" if item.foreign else "unknown key"
    return f"{item.where}: {_shown(path, key, item)}: {what}.{nearest(key, known)}"


def _shown(path: str, key: str, item: Value) -> str:
    """Return the path of any key that a file may hold."""
    return _join(path, "..." if item.foreign else key)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
