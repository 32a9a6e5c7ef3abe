"""Registries of named extensions, with the place that defined each, and hints for unknown names."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Generic, TypeVar, cast

from ernie.errors import UserError, nearest

T = TypeVar("T")
Item = TypeVar("Item")
_OWN = ("ernie", "tasks", "pretrain", "inference", "finetune")  # the library's packages
_LISTED = 10  # modules that a message lists


class Registry(Generic[T]):
    """Named items of one kind, for instance pretraining tasks.

    `kind` is the noun for an item in messages.  `group` is the entry-point group through which other distributions add
    theirs; those modules are imported at the first look-up.  `base` is the class that all items must subclass, if any.
    """

    def __init__(self, kind: str, group: str | None = None, base: type | None = None):
        self.kind = kind
        self._base = base
        self._group = group
        self._items: dict[str, T] = {}
        self._places: dict[str, str] = {}
        self._entry_points_loaded = group is None

    def register(self, name: str) -> Callable[[Item], Item]:
        """Return a decorator that registers an item as `name`.

        Raises UserError if `name` is not a valid name (as for a class decorated without one) or is taken, if the item
        is not a subclass of the base class, or if it lacks abstract methods.
        """
        if not isinstance(name, str) or not name or "." in name:  # a dot separates the keys of a configuration
            raise UserError(f"{self.kind}: expected a name to register it by, a text without a dot, found {name!r:.80}")

        def enter(item: Item) -> Item:
            place = _place(item)
            if self._base and not (isinstance(item, type) and issubclass(item, self._base)):
                raise UserError(f"{self.kind} '{name}' ({place}): expected a subclass of {self._base.__name__}")
            if lacking := sorted(getattr(item, "__abstractmethods__", ())):
                raise UserError(f"{self.kind} '{name}' ({place}) lacks {', '.join(lacking)}: it has to define them")
            if name in self._items and self._places[name] != place:
                raise UserError(f"{self.kind} '{name}' is registered twice: {self._places[name]}, {place}")
            self._items[name] = cast(T, item)  # the decorated class keeps its own type
            self._places[name] = place
            return item

        return enter

    def __getitem__(self, name: str) -> T:
        self._load_entry_points()
        if not isinstance(name, str) or name not in self._items:  # YAML may have any type here
            own = " For one of your own, list its module under `plugins`." if self._group else ""
            raise UserError(f"no {self.kind} is called '{name}'.{nearest(str(name), self._items)}{own}")
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(sorted(self._items))

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return name in self._items

    def name_of(self, item: T) -> str | None:
        """Return the name that `item` was registered under, or None."""
        return next((name for name, known in self._items.items() if known is item), None)

    def place(self, name: str) -> str:
        """Return the file and line of the item registered as `name`."""
        return self._places[name]

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        for point in metadata.entry_points(group=self._group or ""):
            try:
                point.load()
            except Exception as error:
                raise UserError(
                    f"the plug-in '{point.name}' of the group {self._group} ({point.value}) cannot be imported: {error}"
                ) from error


def import_plugins(modules: object, key: str = "plugins") -> None:
    """Import the modules that the user names under `key`, which register their items.

    Raises UserError if an import fails, and for modules that are programs or belong to Python.  Anything but a list is
    ignored here: the schema reports it, together with all other mistakes.
    """
    for name in map(str, modules if isinstance(modules, list | tuple) else ()):
        if name in sys.modules:
            continue
        if reason := _no_plugin(name):
            raise UserError(f"{key}: the module '{name}' {reason}, not a plug-in")
        try:
            importlib.import_module(name)
        except UserError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}. {_hint(name, error)}"
            raise UserError(f"{key}: the module '{name}' cannot be imported: {what}") from error


def import_asked(modules: object, asker: str, trusted: Sequence[str] | bool = ()) -> None:
    """Import the modules that a file asks for, `asker` in messages, if the user trusts them.

    A downloaded run may name any module, and importing it executes it.  Trusted are the library's own modules, those of
    installed entry points, those already imported, and `trusted`: names, or True for all.  Raises UserError for others.
    """
    names = list(map(str, modules if isinstance(modules, list | tuple) else ()))
    given = (trusted,) if isinstance(trusted, str) else trusted
    if strange := [] if given is True else _strange(names, given or ()):
        options = " ".join(f"--plugin {shlex.quote(name)}" for name in strange)
        raise UserError(
            f"{asker}: asks for code from outside the library: {', '.join(strange)}. Code can do whatever you can, so "
            f"none is imported without your word. If you trust it, give {options} (in Python trust_plugins={strange}, "
            f"in a configuration of your own plugins: [{', '.join(strange)}])"
        )
    import_plugins(names, asker)


def _strange(modules: Sequence[str], trusted: Collection[str]) -> list[str]:
    """Return the first few modules that are neither trusted, nor imported, nor the library's, nor of an entry point."""
    others = (
        name
        for name in modules
        if name not in sys.modules and name not in trusted and name.partition(".")[0] not in _OWN
    )
    if not (strange := list(others)):
        return []
    points = (point for distribution in metadata.distributions() for point in distribution.entry_points)
    installed = {point.module for point in points if point.group.startswith("ernie.")}
    return [name for name in strange if name not in installed][:_LISTED]


def _no_plugin(name: str) -> str:
    """Return why a module can never be a plug-in, "" if it can be one."""
    if name.rpartition(".")[2] == "__main__":
        return "is a program"
    return "is part of Python" if name.partition(".")[0] in sys.stdlib_module_names else ""


def _hint(module: str, error: Exception) -> str:
    """Return a hint on the cause of a failed import."""
    if module.endswith(".py") or "/" in module:
        meant = module.rpartition("/")[2].removesuffix(".py")
        return f"Give its name as an import does, not its file: '{meant}', with the file's folder on the Python path"
    if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
        return "Is its folder on the Python path (PYTHONPATH, or an installed package)?"
    if isinstance(error, SyntaxError):
        return f"See {error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if Path(frame.filename).stem == module.rpartition(".")[2]]
    return f"See {(own or frames)[-1].filename}:{(own or frames)[-1].lineno}"


def plugins_needed(modules: Sequence[str]) -> list[str]:
    """Return a line for a model card that names the modules of a `plugins:` list; none for an empty list."""
    if not modules:
        return []
    names = ", ".join(f"`{' '.join(name.replace('`', '').split())}`" for name in modules)
    what, each = ("plug-in", "it") if len(modules) == 1 else ("plug-ins", "each of them")
    place = "must be on the Python path (PYTHONPATH, or an installed package)"
    return [f"The {what} {names} {place}; commands import {each} only if `--plugin` names {each}."]


def plugin_sources(modules: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the source (of a package all files) of each imported module of a `plugins:` list."""
    digests = {}
    for name in modules:
        module = sys.modules[name]
        folders = [Path(folder) for folder in getattr(module, "__path__", ())]
        files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
        if not files and module.__file__ and Path(module.__file__).is_file():  # a module in an archive has no file
            files = [Path(module.__file__)]
        digest = hashlib.sha256()
        for file in files:
            digest.update(f"{file.name}\n".encode() + file.read_bytes())
        digests[name] = digest.hexdigest()
    return digests


def _place(item: object) -> str:
    try:
        file = inspect.getsourcefile(item)  # type: ignore[arg-type]
        line = inspect.getsourcelines(item)[1]  # type: ignore[arg-type]
    except (TypeError, OSError):
        return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', item)}"
    return f"{file}:{line}"
