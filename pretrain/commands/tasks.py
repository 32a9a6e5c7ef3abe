"""List the registered pretraining tasks, or describe one.

The list has a line for each; a description tells the fields, which are keys of a run's YAML, and their defaults.

  ernie tasks
  ernie tasks sentence_distance
  ernie tasks --plugin my_lab.my_objective
"""

from __future__ import annotations

import argparse
import inspect
import sys

SUMMARY = "list the registered pretraining tasks, or describe one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("task", nargs="?", metavar="TASK", help="describe this task only")
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE",
        help="import a module that registers more tasks first (repeatable)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run it."""
    import tasks.objectives  # noqa: F401 - registers the tasks
    from ernie.registry import import_plugins
    from tasks.base import pretrain_tasks

    import_plugins(arguments.plugin)
    if arguments.task:
        print(_describe(arguments.task))
        return 0
    width = max(map(len, pretrain_tasks))
    for name in pretrain_tasks:
        first = (inspect.getdoc(pretrain_tasks[name]) or "").split("\n\n")[0]
        print(f"{name:<{width}}  {' '.join(first.split())}")
    print("\n'ernie tasks TASK' describes one with its fields.", file=sys.stderr)
    return 0


def _describe(name: str) -> str:
    """A task's name, documentation, and fields with their types and defaults."""
    import dataclasses
    import typing

    from tasks.base import pretrain_tasks

    task = pretrain_tasks[name]
    hints = typing.get_type_hints(task)
    lines = [name, *(f"  {line}".rstrip() for line in inspect.getdoc(task).splitlines()), ""]  # type: ignore[union-attr]
    for item in dataclasses.fields(task):
        kind = getattr(hints[item.name], "__name__", str(hints[item.name])).replace("typing.", "")
        kind = kind if hints[item.name] in (int, float, str, bool) else str(hints[item.name]).replace("typing.", "")
        lines.append(f"    {item.name}: {kind} = {item.default!r}")
    lines += [f"    metrics: {', '.join(task.metrics)}", f"    defined in {pretrain_tasks.place(name)}"]
    return "\n".join(lines)
