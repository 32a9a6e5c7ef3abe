"""Rewrites the former names of keys in YAML files.

Only the keys themselves are replaced in a file's text: comments, order, quotes and layout stay as they are.  Nothing is
written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from ernie.config import build
from ernie.errors import UserError
from ernie.registry import import_plugins
from ernie.renames import Rename, key_path, renamed
from ernie.yaml_tree import ConfigError, Value, parse, read_files

GROUP = "ernie.schemas"  # of entry points, each of the dataclass of a kind of configuration
_SUFFIXES = (".yaml", ".yml")
_KeyPath = tuple[str | int, ...]
_Renames = dict[_KeyPath, Rename]


@dataclass(frozen=True)
class Migration:
    """What changes in a file: its new text, and a line for each key, none if nothing changes."""

    file: Path
    text: str
    lines: tuple[str, ...]


def configurations(places: Iterable[Path]) -> list[Path]:
    """Return the files among `places`, and all YAML files in the folders among them.

    Raises UserError for a place that is neither, and for a folder without YAML files.
    """
    files: list[Path] = []
    for place in places:
        inside = sorted(file for file in place.glob("*") if file.suffix in _SUFFIXES) if place.is_dir() else [place]
        if not inside:
            raise UserError(f"{place}: there is no YAML file in this folder")
        files += inside
    for file in files:
        if not file.is_file():
            raise UserError(f"{file}: {'is a device or a pipe' if file.exists() else 'there is no such file'}")
    return list(dict.fromkeys(files))


def migrations(files: Sequence[Path]) -> tuple[list[Migration], list[Path]]:
    """Return what changes in each file, and which files they include that have former names, too.

    A part of a configuration may mean something only where it is included: what the other `files` say about it counts,
    too.  Raises UserError for a file that cannot be read, or in which a key cannot be renamed.
    """
    schemas = {point.name: point.load() for point in metadata.entry_points(group=GROUP)}
    found: dict[Path, _Renames] = {}
    unclear: dict[Path, Sequence[str]] = {}
    for file in files:
        kinds = _kinds(file, schemas)
        readings = list(kinds.values())
        if any(_names(reading) != _names(readings[0]) for reading in readings):
            unclear[file.resolve()] = list(kinds)
        else:
            _add(readings[0], found)
    for path, names in unclear.items():
        if path not in found:
            raise UserError(
                f"{path}: may be a part of a configuration for {' or '.join(names)}, whose keys were renamed "
                "differently; name a file that includes it, too"
            )
    named = {file.resolve() for file in files}
    others = [path for path, renames in found.items() if renames and path not in named]
    return [_migration(file, found[file.resolve()]) for file in files], sorted(others)


def _kinds(file: Path, schemas: Mapping[str, Any]) -> dict[str, dict[Path, _Renames]]:
    """Return the renames in a file and all that it includes, by the name of each schema that fits it best."""
    readings: dict[str, tuple[int, dict[Path, _Renames]]] = {}
    errors: list[ConfigError] = []
    for name, schema in schemas.items():
        try:
            merged, own = read_files(file, part=name)
        except ConfigError as error:  # perhaps it includes a file that comes with the library for another command
            errors.append(error)
            continue
        import_plugins(merged.get("plugins"))
        whole = renamed(schema, merged)[0]
        renames = {
            path: {rename.path: rename for rename in renamed(schema, tree, whole)[1]} for path, tree in own.items()
        }
        readings[name] = _unknown_keys(schema, whole), renames
    if not readings:
        raise errors[0]
    fewest = min(unknown for unknown, _ in readings.values())
    return {name: renames for name, (unknown, renames) in readings.items() if unknown == fewest}


def _unknown_keys(schema: Any, tree: Value) -> int:
    try:
        build(schema, tree)
    except ConfigError as error:
        return sum(": unknown key" in mistake for mistake in error.mistakes)
    return 0


def _names(reading: dict[Path, _Renames]) -> dict[Path, dict[_KeyPath, _KeyPath]]:
    return {path: {key: rename.new for key, rename in renames.items()} for path, renames in reading.items()}


def _add(reading: dict[Path, _Renames], found: dict[Path, _Renames]) -> None:
    """Add what one file says about itself and its includes to what others say about them."""
    for path, renames in reading.items():
        known = found.setdefault(path, {})
        for key, rename in renames.items():
            if key in known and known[key].new != rename.new:
                new = f"{key_path(known[key].new)} in one of the files that include it, and {key_path(rename.new)}"
                raise UserError(f"{rename.where}: {key_path(key)}: is called {new} in another; give each its own")
            known[key] = rename


def _migration(file: Path, renames: _Renames) -> Migration:
    text = file.read_bytes().decode("utf-8")
    edits: dict[int, tuple[int, str]] = {}
    for rename in renames.values():
        place = f"{file}:{_line(rename)}: {key_path(rename.path)}"
        if rename.twice:
            raise UserError(f"{place}: its new name {key_path(rename.new)} stands there, too; keep one of them")
        start, end = _span(text, rename.path)
        quote = text[start] if text[start] in "'\"" else ""
        if text[start:end] != f"{quote}{rename.path[-1]}{quote}":
            raise UserError(f"{place}: is written as {text[start:end]:.60}; rename it to {rename.new[-1]} by hand")
        edits[start] = end, f"{quote}{rename.new[-1]}{quote}"
    new = text
    for start, (end, name) in sorted(edits.items(), reverse=True):
        new = new[:start] + name + new[end:]
    if parse(new, str(file)).plain() != _applied(parse(text, str(file)).plain(), (), renames):
        raise UserError(
            f"{file}: an alias (*) repeats keys where their former names are right; write them out there, and try again"
        )
    in_order = sorted(renames.values(), key=_line)
    lines = [f"{file}:{_line(rename)}: {key_path(rename.path)} -> {key_path(rename.new)}" for rename in in_order]
    return Migration(file, new, tuple(lines))


def _line(rename: Rename) -> int:
    return int(rename.where.rpartition(":")[2])


def _span(text: str, path: _KeyPath) -> tuple[int, int]:
    """Return where the key at a path begins and ends in the text of a YAML file."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    *above, last = path
    for part in above:
        if isinstance(part, int):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    key = next(key for key, _ in node.value if key.value == last)
    return key.start_mark.index, key.end_mark.index


def _applied(data: Any, path: _KeyPath, renames: _Renames) -> Any:
    """Return plain data with its keys renamed."""
    if isinstance(data, dict):
        new = {}
        for key, value in data.items():
            rename = renames.get((*path, key))
            new[rename.new[-1] if rename else key] = _applied(value, (*path, key), renames)
        return new
    if isinstance(data, list):
        return [_applied(item, (*path, at), renames) for at, item in enumerate(data)]
    return data
