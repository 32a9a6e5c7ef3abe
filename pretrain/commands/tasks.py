"""List the registered pretraining tasks, or kinds of fine-tuning task, or describe one.

The list has one line per task; a description shows the fields, which are keys of a run's YAML, and their defaults.

  ernie tasks
  ernie tasks sentence_distance
  ernie tasks --downstream
  ernie tasks classify
  ernie tasks --plugin my_lab.my_task
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ernie.arguments import add_plugin

SUMMARY = "list the pretraining tasks, or kinds of fine-tuning task, or describe one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("task", nargs="?", metavar="TASK", help="describe this task only")
    parser.add_argument("--downstream", action="store_true", help="list the kinds of fine-tuning task")
    add_plugin(parser, "a module that registers more tasks")


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from ernie.errors import UserError, nearest
    from ernie.registry import Registry
    from tasks import pretraining  # noqa: F401 - they register the tasks
    from tasks.base import pretrain_tasks
    from tasks.downstream.base import finetune_tasks

    downstream = arguments.downstream or (arguments.task in finetune_tasks and arguments.task not in pretrain_tasks)
    if arguments.task and arguments.task not in (*pretrain_tasks, *finetune_tasks):
        known = nearest(arguments.task, finetune_tasks if downstream else [*pretrain_tasks, *finetune_tasks])
        raise UserError(
            f"no task is called '{arguments.task}'.{known} One of your own is found with --plugin and its module"
        )
    listed: Registry[Any] = finetune_tasks if downstream else pretrain_tasks
    if arguments.task:
        print(_describe(arguments.task, listed))
        return 0
    width = max(map(len, listed))
    for name in listed:
        first = (inspect.getdoc(listed[name]) or "").split("\n\n")[0]
        print(f"{name:<{width}}  {' '.join(first.split())}")
    print("\n'ernie tasks TASK' describes one with its fields.", file=sys.stderr)
    return 0


def _describe(name: str, listed: Any) -> str:
    """Return a task's name, documentation, and fields with their types and defaults."""
    import dataclasses
    import typing

    task = listed[name]
    hints = typing.get_type_hints(task)
    lines = [name, *(f"  {line}".rstrip() for line in documentation(task).splitlines()), ""]
    for item in dataclasses.fields(task):
        hint = hints[item.name]
        plain = isinstance(hint, type) and typing.get_origin(hint) is None
        kind = hint.__name__ if plain else str(hint).replace("typing.", "")
        make, required = item.default_factory, item.default is item.default_factory  # then both are MISSING
        default = make() if callable(make) else item.default
        shown = str(default) if isinstance(default, Path) else repr(default)
        lines.append(f"    {item.name}: {kind}" + (", required" if required else f" = {shown}"))
    lines += [*_metrics(task), f"    defined in {listed.place(name)}"]
    return "\n".join(lines)


def documentation(task: Any) -> str:
    """Return what a dataclass says of itself, and what the classes that it inherits fields from say of these."""
    return "\n\n".join([inspect.getdoc(task) or "", *_on_inherited_fields(task)])


def _on_inherited_fields(task: Any) -> Iterator[str]:
    """Yield the paragraphs on fields in the documentation of the classes that the task inherits them from."""
    for base in task.__mro__[1:]:
        names = vars(base).get("__annotations__", {})
        for paragraph in inspect.cleandoc(vars(base).get("__doc__") or "").split("\n\n"):
            if any(paragraph.startswith(f"`{name}`") for name in names):
                yield paragraph


def _metrics(task: Any) -> list[str]:
    """Return lines on a task's metrics; kinds of fine-tuning task also have metrics that are used on demand."""
    known = list(getattr(task, "known_metrics", {}))
    if not known:
        return [f"    metrics: {', '.join(task.metrics)}"]
    used, others = known[: task.default_metrics], known[task.default_metrics :]
    return [f"    metrics used unless named: {', '.join(used)}"] + (
        [f"    metrics on demand: {', '.join(others)}"] if others else []
    )
