"""MkDocs hook: reference pages from code.

A mark such as `<!-- schema: pretrain -->` is replaced when the site is built.

| mark | is replaced by |
|---|---|
| `<!-- commands -->` | every command with its arguments, as its parser has them |
| `<!-- schema: NAME -->` | every key of a configuration, from the dataclass under that name in `ernie.schemas` |
| `<!-- registered: NAME -->` | every item of a registry with its keys: `pretraining`, `finetuning`, ... |
| `<!-- routes -->` | every route of a server with its messages, from its description in OpenAPI |
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from ernie.cli import command_parser, commands
from ernie.config import to_dict
from ernie.registry import Registry
from ernie.text.segment.base import Segmenter, segmenters
from pretrain.commands.tasks import documentation
from pretrain.corpus.clean.base import Filter, filters
from serving.app import all_protocols
from serving.heartbeat import Heartbeat
from serving.metrics import Metrics
from serving.protocols.description import default, document, kind
from serving.service import Service
from tasks.base import PretrainTask, pretrain_tasks
from tasks.downstream.base import FinetuneTask, finetune_tasks

_MARK = re.compile(r"^<!-- (commands|schema|registered|routes)(?:: ([a-z-]+))? -->$", re.MULTILINE)
_SCALARS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path", Any: "anything"}
_PAGES = {
    PretrainTask: "[pretraining task](pretraining-tasks.md)",
    FinetuneTask: "[kind of task](kinds.md)",
    Segmenter: "[segmenter](segmenters.md)",
    Filter: "[filter](filters.md)",
}
_REGISTRIES: dict[str, Registry[Any]] = {
    "pretraining": pretrain_tasks,
    "finetuning": finetune_tasks,
    "segmenters": segmenters,
    "filters": filters,
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of a page."""
    return _MARK.sub(lambda mark: "\n\n".join(_MADE[mark[1]](*filter(None, [mark[2]]))), markdown)


def all_commands() -> Iterator[str]:
    """Yield the sections of the commands."""
    for name, point in commands().items():
        module = import_module(point.value)
        parser = command_parser(name, module)
        yield f"## ernie {name}"
        yield _as_markdown(module.__doc__ or module.SUMMARY)
        yield f"```text\n{parser.format_usage().strip()}\n```"
        rows = [
            [", ".join(map(_code, action.option_strings)) or _code(_value(action)), _help(parser, action)]
            for action in parser._actions
            if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        yield _table(["argument", "is"], rows)


def schema(name: str) -> Iterator[str]:
    """Yield the sections of a configuration's mappings, from the outermost inwards."""
    (point,) = (point for point in metadata.entry_points(group="ernie.schemas") if point.name == name)
    yield from _mapping(point.load(), "", 2, {})


def registered(name: str) -> Iterator[str]:
    """Yield the sections of a registry's items, and of the mappings below them."""
    for item in _REGISTRIES[name]:
        yield f"## {item}"
        yield from _mapping(_REGISTRIES[name][item], "", 3, {})


def routes() -> Iterator[str]:
    """Yield the sections of a server's protocols with their routes, and the messages of all."""
    service = Service()
    described = document(all_protocols(service, Metrics(service, Heartbeat())), service)
    for tag in described["tags"]:
        yield f"### {tag['name']}"
        rows = []
        for path, by_method in described["paths"].items():
            for method, operation in by_method.items():
                if tag["name"] in operation["tags"]:
                    rows.append([_code(f"{method.upper()} {path}"), operation["summary"], *_messages(operation)])
        yield _table(["route", "is", "takes", "returns"], rows)
    for name, schema in described["components"]["schemas"].items():
        yield f"### {name.removeprefix('serving.protocols.')}"
        yield schema.get("description", "")
        fields = [[_code(field), kind(of), _code(default(field, schema))] for field, of in schema["properties"].items()]
        yield _table(["field", "type", "default"], fields)


def _messages(operation: dict[str, Any]) -> list[str]:
    """Return the names of what a route takes and returns."""
    holders = (operation.get("requestBody"), operation["responses"]["200"])
    found = [(holder or {}).get("content", {}).get("application/json") for holder in holders]
    return [kind(content["schema"]) if content else "" for content in found]


_MADE: dict[str, Callable[..., Iterator[str]]] = {
    "commands": all_commands,
    "schema": schema,
    "registered": registered,
    "routes": routes,
}


def _mapping(kind: Any, path: str, level: int, told: dict[Any, str]) -> Iterator[str]:
    """Yield what a dataclass says, its keys, and the sections of the dataclasses among their types.

    `told` are those that have a section already, and its heading.
    """
    hints = typing.get_type_hints(kind)
    yield documentation(kind)
    rows = [
        [
            _code(item.name),
            _type(hints[item.name]),
            _default(item),
            ", ".join(map(_code, item.metadata.get("formerly", ()))),
        ]
        for item in dataclasses.fields(kind)
        if item.init
    ]
    former = any(row[3] for row in rows)
    yield _table(["key", "type", "default", *(["formerly"] if former else [])], [row[: 3 + former] for row in rows])
    for item in dataclasses.fields(kind):
        for below in _dataclasses(hints[item.name]):
            key = f"{path}{item.name}"
            yield f"{'#' * level} {key}"
            if below in told:
                yield f"The keys are those of `{told[below]}`."
            else:
                told[below] = key
                yield from _mapping(below, f"{key}.", level, told)


def _dataclasses(hint: Any) -> Iterator[Any]:
    """Yield the dataclasses of a type that are one schema: tasks and segmenters have pages of their own."""
    if dataclasses.is_dataclass(hint) and not hasattr(hint, "variant"):
        yield hint
    for part in typing.get_args(hint):
        yield from _dataclasses(part)


def _type(hint: Any) -> str:
    """Say in words what a key takes."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "null"
    if origin is typing.Literal:
        return " or ".join(_code(str(part)) for part in parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_type, parts)))
    if origin is tuple and parts[1:] != (Ellipsis,):
        return f"list: {', '.join(map(_type, parts))}"
    if origin in (list, tuple):
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"mapping: name to {_type(parts[1])}"
    return _PAGES.get(hint) or _SCALARS.get(hint, "mapping")


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
        return "required"
    value = item.default_factory() if callable(item.default_factory) else item.default
    if dataclasses.is_dataclass(value):
        return "see below"
    return _code(json.dumps(to_dict(value), ensure_ascii=False))


def _value(action: argparse.Action) -> str:
    return str(action.metavar or action.dest)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    expanded = _plain((action.help or "") % {**vars(action), "prog": parser.prog})
    takes = " or ".join(map(_code, map(str, action.choices))) if action.choices else _code(_value(action))
    return f"{takes}: {expanded}" if action.option_strings and action.nargs != 0 else expanded


def _plain(text: str) -> str:
    """Return a sentence in which only back quotes are Markdown."""
    parts = text.split("`")
    return "`".join(
        part if n % 2 else re.sub(r"([\\[\]*_|])", r"\\\1", html.escape(part)) for n, part in enumerate(parts)
    )


def _as_markdown(text: str) -> str:
    """Return a module's documentation with its examples, which are indented or begin with the command, as code."""
    parts = []
    for is_code, lines in groupby(inspect.cleandoc(text).splitlines(), lambda line: line.startswith(("  ", "ernie "))):
        joined = "\n".join(lines)
        parts.append(f"\n```text\n{inspect.cleandoc(joined)}\n```\n" if is_code else joined)
    return "\n".join(parts)


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in row)} |" for row in lines)
