"""Configuration files as trees in which every value has the file and line it came from.

YAML with the scalars of version 1.2, `include:` files, and the overrides of `--set`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ernie.builtin_configs import find_config, names, shipped
from ernie.errors import UserError, nearest
from ernie.json_file import check_not_lfs_pointer


class ConfigError(UserError):
    """All mistakes in a configuration, one per line, each with file, line and key."""

    def __init__(self, mistakes: list[str]):
        super().__init__(mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


@dataclass(frozen=True)
class Value:
    """A node of a YAML tree with its location.  `data` is a scalar, list[Value] or dict[str, Value].

    `written` is the source text of a scalar, "" if it does not come from a file.  `foreign` says that it comes from a
    file outside the configuration's folder: messages do not show it, as a stranger's link may lead to any file.
    """

    data: Any
    where: str
    written: str = ""
    foreign: bool = False

    def plain(self) -> Any:
        """Return the value as plain data, without locations."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data

    def as_foreign(self) -> Value:
        """Return the value, and all in it, as of a file outside the configuration's folder."""
        data = self.data
        if isinstance(data, dict):
            data = {key: value.as_foreign() for key, value in data.items()}
        elif isinstance(data, list):
            data = [value.as_foreign() for value in data]
        return replace(self, data=data, foreign=True)

    def get(self, key: str) -> Any:
        """Return the plain value under `key` of a mapping, or None."""
        value = self.data.get(key) if isinstance(self.data, dict) else None
        return None if value is None else value.plain()


class _Loader(yaml.SafeLoader):
    """A loader with YAML 1.2's scalars, not PyYAML's of 1.1: `yes` and `on` are strings, `5e-5` is a number.

    It counts values, those of an alias as often as it stands: a few nested aliases can stand for billions of values.
    """

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self._name, self._values = name, 0

    def count(self) -> None:
        """Count a value.  Raises ConfigError if there are too many."""
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ConfigError([f"{self._name}: has more than {_MOST_VALUES:,} values, aliases written out"])


NOT_SHOWN = "not shown, as its file lies outside the configuration's folder"
_MOST_VALUES, _MOST_BYTES, _DEEPEST = 100_000, 4 << 20, 100
_SUFFIXES = (".yaml", ".yml", ".json")  # of files that may be included
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
    """A dumper that quotes any string which YAML 1.1 or this module's rules would not read as a string."""


for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))
# PyYAML's own rule reads a leading zero as octal.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def read(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    part: str = "",
) -> Value:
    """Read a YAML file (None: an empty one) with its includes, the command line's `options` and `overrides`.

    `options` are plain values by key, which take precedence over the file's; overrides, `a.b=value`, over both.
    `include:` names a file or a list of files, relative to the file that includes them; local keys take precedence, and
    mappings are merged.  If `part` is given, a folder of the shipped configurations, `path` and includes may also be
    names of these (see ernie.builtin_configs), over which files of that name take precedence.  What a file outside
    the folder of `path` holds, perhaps behind a link, is `foreign`.  Raises ConfigError for a missing file, bad YAML,
    a duplicate key or a cycle of includes.
    """
    tree = Value({}, "command line")
    if path is not None:
        file = find_config(path, part)
        tree = _read(file, (), part, file.parent.resolve())
    for name, value in (options or {}).items():
        tree = _merge(tree, from_dict({name: value}, f"--{name.replace('_', '-')}"))
    for override in overrides:
        tree = _override(tree, override)
    return tree


def read_files(path: str | Path, part: str = "") -> tuple[Value, dict[Path, Value]]:
    """Read a YAML file as `read` does; also return each file's own keys, of it and all that it includes, by path."""
    file, files = find_config(path, part), dict[Path, Value]()
    return _read(file, (), part, file.parent.resolve(), files), files


def from_dict(data: dict[str, Any], where: str = "<dict>") -> Value:
    """Convert plain Python data to a tree of Values, all with the location `where`."""
    if isinstance(data, dict):
        return Value({str(key): from_dict(value, where) for key, value in data.items()}, where)
    if isinstance(data, (list, tuple)):
        return Value([from_dict(value, where) for value in data], where)
    return Value(data, where)


def _read(
    path: Path, including: tuple[Path, ...], part: str, home: Path, files: dict[Path, Value] | None = None
) -> Value:
    """Read a file with its includes; what lies outside the folder `home` is foreign.

    Each file's own keys are added to `files`.
    """
    resolved = path.resolve()
    if resolved in including:
        chain = " -> ".join(str(step) for step in (*including, resolved))
        raise ConfigError([f"{path}: include: the files include each other in a circle: {chain}"])
    try:
        text = _text(path)
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a folder, expected a YAML file"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    foreign = not _is_pipe(path) and not resolved.is_relative_to(home)
    tree = _parse_foreign(text, str(path)) if foreign else parse(text, str(path))
    if not isinstance(tree.data, dict):  # its content is not shown: it may be any file that a stranger's link leads to
        what = "a list" if isinstance(tree.data, list) else "a single value"
        raise ConfigError([f"{tree.where}: expected a mapping of keys, found {what}"])
    include = tree.data.pop("include", None)
    if files is not None:
        files[resolved] = tree
    if include is None:
        return tree
    included = include.plain()
    if isinstance(included, str):
        included = [included]
    if not isinstance(included, list) or not all(isinstance(name, str) for name in included):
        raise ConfigError([f"{include.where}: include: expected a file name or a list of them"])
    base = Value({}, str(path))
    for name in included:
        found = _included(name, path.parent, include, part)
        its_home = found.parent.resolve() if shipped(name, part) == found else home
        base = _merge(base, _read(found, (*including, resolved), part, its_home, files))
    return _merge(base, tree)


def _included(name: str, folder: Path, include: Value, part: str) -> Path:
    """Return the file that a file in `folder` includes by its name.  Raises ConfigError if there is none."""
    target, ours = folder / name, shipped(name, part)
    what = f"a file whose name is {NOT_SHOWN}" if include.foreign else str(name)
    if target.is_file():
        if ours is None and target.suffix.lower() not in _SUFFIXES:
            raise ConfigError([f"{include.where}: include: {what} is no YAML file: its name does not end in .yaml"])
        return target
    if ours is None:
        hint = nearest(name, names(part)) if part and not name.endswith(".yaml") else ""
        what = what if include.foreign else f"{target}{hint and '.'}{hint}"
        raise ConfigError([f"{include.where}: include: there is no file {what}"])
    return ours


def _text(path: Path) -> str:
    """Read a file of limited size; a device or an endless pipe would never end."""
    if path.exists() and not path.is_file() and not path.is_dir() and not _is_pipe(path):
        raise ConfigError([f"{path}: is a device or a pipe, expected a YAML file"])
    check_not_lfs_pointer(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ConfigError([f"{path}: has more than {_MOST_BYTES >> 20} MiB; expected a configuration"])
    return content.decode("utf-8")


def _is_pipe(path: Path) -> bool:
    """Whether a path is standard input, or that of a shell's <(...)."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/")) or str(path) == "/dev/stdin"


def _parse_foreign(text: str, name: str) -> Value:
    """Parse a file whose content messages do not show."""
    try:
        return parse(text, name).as_foreign()
    except ConfigError as error:
        places = [re.match(rf"{re.escape(name)}(:\d+)?", mistake) for mistake in error.mistakes]
        lines = [place[0] if place else name for place in places]
        raise ConfigError(
            [f"{place}: cannot be read as a configuration; its content is {NOT_SHOWN}" for place in lines]
        ) from None


def parse(text: str, name: str) -> Value:
    """Parse the text of a YAML file called `name`, without its includes.  Raises ConfigError for bad YAML."""
    mistakes: list[str] = []
    try:
        _check_size(text, name)
        loader = _Loader(text, name)
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
        # What is not closed is noticed at the end of the file, perhaps on a line after the last.
        line = min(mark.line + 1, max(1, len(text.splitlines()))) if mark else 1
        problem = getattr(error, "problem", None) or str(error)
        if problem.startswith("but found another document"):
            problem = "a second document begins here; expected one"
        if "escape" in problem:
            problem += " (in double quotes \\ begins an escape: write a path in single quotes, or with /)"
        raise ConfigError([f"{name}:{line}: is not valid YAML: {problem}"]) from None
    if mistakes:
        raise ConfigError(mistakes)
    return value


def _check_size(text: str, name: str) -> None:
    """Raise ConfigError for too many values, before PyYAML makes them: libyaml counts them a hundred times as fast."""
    count = 0
    try:
        for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            count += isinstance(event, yaml.NodeEvent)
            if count > _MOST_VALUES:
                raise ConfigError([f"{name}: has more than {_MOST_VALUES:,} values"])
    except (yaml.YAMLError, RecursionError):
        pass  # reported, with its line, by who reads the values


def _convert(loader: _Loader, node: yaml.Node, name: str, key_path: str, mistakes: list[str], depth: int = 0) -> Value:
    where = f"{name}:{node.start_mark.line + 1}"
    loader.count()
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Value] = {}
        for key_node, value_node in node.value:
            place = f"{name}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):  # such as the {{name}} of an unfilled template
                at = f"{place}: {key_path}" if key_path else place
                mistakes.append(f"{at}: expected a word as a key, found a mapping or a list")
                continue
            key = str(key_node.value)
            path = f"{key_path}.{key}" if key_path else key
            value = replace(_convert(loader, value_node, name, path, mistakes, depth + 1), where=place)
            if mapping.setdefault(key, value) is not value:
                mistakes.append(f"{place}: {path}: this key stands twice (first at {mapping[key].where})")
        return Value(mapping, where)
    if isinstance(node, yaml.SequenceNode):
        items = [
            _convert(loader, item, name, f"{key_path}[{i}]", mistakes, depth + 1) for i, item in enumerate(node.value)
        ]
        return Value(items, where)
    try:
        return Value(loader.construct_object(node), where, str(node.value))
    except (yaml.YAMLError, ValueError, KeyError) as error:
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
        raise ConfigError([f"--set {override}: expected key=value, for instance --set train.lr.peak=5e-5"])
    where = "--set"  # messages give the key after it
    # A mark by itself, such as a delimiter, is meant as one; in YAML it would begin something else, or be nothing.
    given = text.strip()
    is_mark = len(given) == 1 and not given.isalnum() and given != "~"
    parsed = Value(given, where) if is_mark else parse(text, f"--set {key.strip()}")
    value = Value(parsed.data if given else None, where)
    for part in reversed(key.strip().split(".")):
        value = Value({part: value}, where)
    return _merge(tree, value)


def dump_plain(data: Any) -> str:
    """Dump plain data as YAML that `read` reads back unchanged."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def described(value: Value) -> str:
    """Describe a value for an error message."""
    if isinstance(value.data, dict):
        return "a mapping"
    if isinstance(value.data, list):
        return "a list"
    if value.data is None:
        return "nothing"
    if value.foreign:
        return f"something that is {NOT_SHOWN}"
    if isinstance(value.data, bool):
        return f"{str(value.data).lower()} (quote it if you mean the word)"
    return f"'{value.data:.60}'" if isinstance(value.data, str) else str(value.data)
