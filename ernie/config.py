"""Configuration: a frozen dataclass is the schema, YAML is how it is written down.

Reading has two halves.  `read` turns a file, its `include:` files and the `--set` overrides into a tree in which
every value knows the line it came from.  `build` checks such a tree against a dataclass and collects all mistakes
before it raises, so that a user mends a file once.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ernie.errors import UserError, nearest

C = TypeVar("C")


class ConfigError(UserError):
    """All mistakes of a configuration, one a line, each with file, line and key."""

    def __init__(self, mistakes: list[str]):
        super().__init__(mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


@dataclass(frozen=True)
class Value:
    """One value of a YAML tree, with the place it was written.  `data` is a scalar, list[Value] or dict[str, Value]."""

    data: Any
    where: str

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data

    def get(self, key: str) -> Any:
        """The plain value under `key` of a mapping, or None."""
        found = self.data.get(key) if isinstance(self.data, dict) else None
        return None if found is None else found.plain()


# ---------------------------------------------------------------------------------------------- reading


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: `yes` and `on` are words, `5e-5` is a number.  PyYAML's own rules are those of 1.1."""


_Loader.yaml_implicit_resolvers = {}
_SCALARS = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        re.compile(r"^(?:[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"),
        "-+0123456789.",
    ),
)


class _Dumper(yaml.SafeDumper):
    """Quotes whatever YAML 1.1 or this module's own rules would read as something else than text."""


for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))
# PyYAML's own rule reads a leading zero as octal.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def read(path: str | Path | None, overrides: typing.Sequence[str] = ()) -> Value:
    """Read a YAML file (None: an empty one) with its includes and the overrides `a.b=value`.

    `include:` names a file or a list of files, relative to the file that includes them; local keys win, mappings
    merge.  Raises ConfigError for a missing file, bad YAML, a duplicate key or a cycle of includes.
    """
    tree = Value({}, "command line") if path is None else _read(Path(path), ())
    for override in overrides:
        tree = _override(tree, override)
    return tree


def from_dict(data: dict[str, Any], where: str = "<dict>") -> Value:
    """A tree of Values from plain Python data, every value placed at `where`."""
    if isinstance(data, dict):
        return Value({str(key): from_dict(value, where) for key, value in data.items()}, where)
    if isinstance(data, (list, tuple)):
        return Value([from_dict(value, where) for value in data], where)
    return Value(data, where)


def _read(path: Path, including: tuple[Path, ...]) -> Value:
    resolved = path.resolve()
    if resolved in including:
        chain = " -> ".join(str(step) for step in (*including, resolved))
        raise ConfigError([f"{path}: include: the files include each other in a circle: {chain}"])
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a folder, expected a YAML file"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    tree = _parse(text, str(path))
    if not isinstance(tree.data, dict):
        raise ConfigError([f"{tree.where}: expected a mapping of keys, found {_found(tree)}"])
    include = tree.data.pop("include", None)
    if include is None:
        return tree
    names = include.plain()
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError([f"{include.where}: include: expected a file name or a list of them"])
    base = Value({}, str(path))
    for name in names:
        target = path.parent / name
        if not target.is_file():
            raise ConfigError([f"{include.where}: include: there is no file {target}"])
        base = _merge(base, _read(target, (*including, resolved)))
    return _merge(base, tree)


def _parse(text: str, name: str) -> Value:
    mistakes: list[str] = []
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Value({}, f"{name}:1")
        value = _convert(loader, node, name, "", mistakes)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{name}:{line}: holds the control character U+{error.character:04X}"]) from None
    except RecursionError:
        raise ConfigError([f"{name}: is nested too deeply, or an alias stands inside its own anchor"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError([f"{name}:{line}: is not valid YAML: {problem}"]) from None
    if mistakes:
        raise ConfigError(mistakes)
    return value


def _convert(loader: _Loader, node: yaml.Node, name: str, key_path: str, mistakes: list[str]) -> Value:
    where = f"{name}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            path = f"{key_path}.{key}" if key_path else key
            place = f"{name}:{key_node.start_mark.line + 1}"
            value = Value(_convert(loader, value_node, name, path, mistakes).data, place)
            if mapping.setdefault(key, value) is not value:
                mistakes.append(f"{place}: {path}: this key stands twice (first at {mapping[key].where})")
        return Value(mapping, where)
    if isinstance(node, yaml.SequenceNode):
        items = [_convert(loader, item, name, f"{key_path}[{i}]", mistakes) for i, item in enumerate(node.value)]
        return Value(items, where)
    try:
        return Value(loader.construct_object(node), where)
    except (yaml.YAMLError, ValueError) as error:
        mistakes.append(f"{where}: {key_path}: cannot be read as a value: {error}")
        return Value(None, where)


def _merge(base: Value, over: Value) -> Value:
    if isinstance(base.data, dict) and isinstance(over.data, dict):
        merged = dict(base.data)
        for key, value in over.data.items():
            merged[key] = _merge(merged[key], value) if key in merged else value
        return Value(merged, over.where)
    return over


def _override(tree: Value, override: str) -> Value:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError([f"--set {override}: expected key=value, for instance --set train.lr=5e-5"])
    where = f"--set {key.strip()}"
    parsed = _parse(text, where)
    value = Value(parsed.data if text.strip() else None, where)
    for part in reversed(key.strip().split(".")):
        value = Value({part: value}, where)
    return _merge(tree, value)


# --------------------------------------------------------------------------------------------- building


def build(schema: type[C], tree: Value) -> C:
    """Check `tree` against the dataclass `schema` and make it.  Raises ConfigError with all mistakes at once.

    A field's type may be a scalar, Literal, Path, list, tuple, dict with string keys, a union of these, another
    dataclass, or a class with a classmethod `variant(key, given)` that returns the dataclass to use for the mapping
    `given` found under `key` (and may raise UserError).  A `__post_init__` that raises UserError has its message
    reported under the key of the object it checks.
    """
    mistakes: list[str] = []
    made = _build(schema, tree, "", mistakes)
    if mistakes:
        raise ConfigError(mistakes)
    return made


def load(schema: type[C], path: str | Path, overrides: typing.Sequence[str] = ()) -> C:
    """`read` and `build` in one."""
    return build(schema, read(path, overrides))


def to_dict(config: Any) -> Any:
    """A configuration as plain data: what YAML or JSON can hold, defaults written out."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        data = {field.name: to_dict(getattr(config, field.name)) for field in dataclasses.fields(config)}
        name = getattr(config, "variant_name", None)
        return {"task": name, **data} if name else data
    if isinstance(config, dict):
        return {str(key): to_dict(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_dict(value) for value in config]
    return str(config) if isinstance(config, Path) else config


def dump(config: Any) -> str:
    """A configuration as YAML that `load` reads back as its equal."""
    return yaml.dump(to_dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def differences(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Key path -> (old, new) wherever two plain trees differ; a key that one side lacks counts as None there."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in [*old, *(key for key in new if key not in old)]:
            found.update(differences(old.get(key), new.get(key), f"{path}.{key}" if path else key))
        return found
    return {} if old == new else {path: (old, new)}


def _build(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    """One value of type `kind`; on a mistake, note it and return None."""
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
        if not isinstance(value.data, dict):
            return _mistake(value, path, "expected a mapping", mistakes)
        return {key: _build(args[1], item, _join(path, key), mistakes) for key, item in value.data.items()}
    if hasattr(kind, "variant"):
        return _build_variant(kind, value, path, mistakes)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, path, mistakes)
    return _build_scalar(kind, value, path, mistakes)


def _build_dataclass(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    if value.data is None:
        value = Value({}, value.where)  # `train:` with nothing under it means all the defaults
    if not isinstance(value.data, dict):
        return _mistake(value, path, "expected a mapping of keys", mistakes)
    before = len(mistakes)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key, item in value.data.items():
        if key not in fields:
            mistakes.append(f"{item.where}: {_join(path, key)}: unknown key.{nearest(key, fields)}")
    given = {}
    for name, field in fields.items():
        if name in value.data:
            given[name] = _build(hints[name], value.data[name], _join(path, name), mistakes)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            mistakes.append(f"{value.where}: {_join(path, name)}: this key is required")
    if len(mistakes) > before:
        return None
    try:
        return kind(**given)
    except UserError as error:
        # By custom the message begins with the key it is about, which may stand lines below the mapping's own.
        where = _place(value, str(error).partition(":")[0])
        mistakes.append(f"{where}: {path + ': ' if path else ''}{error}")
        return None


def _place(value: Value, key_path: str) -> str:
    """Where the key `a.b` under a value was written, or the innermost mapping around it."""
    for key in key_path.split("."):
        if not isinstance(value.data, dict) or key not in value.data:
            break
        value = value.data[key]
    return value.where


def _build_variant(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    given = value.data if value.data is not None else {}
    if not isinstance(given, dict):
        return _mistake(value, path, "expected a mapping of keys", mistakes)
    try:
        chosen, consumed = kind.variant(path.rpartition(".")[2], Value(given, value.where).plain())
    except UserError as error:
        mistakes.append(f"{value.where}: {path}: {error}")
        return None
    rest = {key: item for key, item in given.items() if key not in consumed}
    return _build_dataclass(chosen, Value(rest, value.where), path, mistakes)


def _build_union(args: tuple[Any, ...], value: Value, path: str, mistakes: list[str]) -> Any:
    if value.data is None and type(None) in args:
        return None
    attempts: list[list[str]] = []
    for arg in args:
        if arg is not type(None):
            noted: list[str] = []
            made = _build(arg, value, path, noted)
            if not noted:
                return made
            attempts.append(noted)
    mistakes.extend(attempts[-1] if len(attempts) == 1 else [_expected(args, value, path)])
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
        _build(kind, item, f"{path}[{i}]", mistakes)
        for i, (kind, item) in enumerate(zip(kinds, value.data, strict=True))
    ]
    return origin(items)


def _build_scalar(kind: Any, value: Value, path: str, mistakes: list[str]) -> Any:
    data = value.data
    if kind is Path and isinstance(data, str):
        return Path(data)
    if kind is bool and isinstance(data, bool):
        return data
    if kind is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data) if math.isfinite(data) else _mistake(value, path, "expected a finite number", mistakes)
    if kind is str and isinstance(data, str):
        return data
    return _mistake(value, path, f"expected {_NAMES.get(kind, kind)}", mistakes)


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def _expected(args: tuple[Any, ...], value: Value, path: str) -> str:
    names = []
    for arg in args:
        base = typing.get_origin(arg) or arg
        names.append({list: "a list", dict: "a mapping", type(None): "null"}.get(base, _NAMES.get(arg, str(arg))))
    return f"{value.where}: {path}: expected {' or '.join(names)}, found {_found(value)}"


def _mistake(value: Value, path: str, expected: str, mistakes: list[str]) -> None:
    mistakes.append(f"{value.where}: {path + ': ' if path else ''}{expected}, found {_found(value)}")


def _found(value: Value) -> str:
    if isinstance(value.data, dict):
        return "a mapping"
    if isinstance(value.data, list):
        return "a list"
    if value.data is None:
        return "nothing"
    if isinstance(value.data, bool):
        return f"{str(value.data).lower()} (quote it if you mean the word)"
    return f"'{value.data}'" if isinstance(value.data, str) else str(value.data)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
