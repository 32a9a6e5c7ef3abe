"""Tasks with other values of some fields: those that a kept head was trained with, and those that change decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from reprlib import repr as shortened
from typing import Any, TypeVar

from ernie.config import differences, to_dict
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import FinetuneTask
from tasks.downstream.hooks import DecodingConditions, EncoderConditions, HeadConditions

Task = TypeVar("Task", bound=FinetuneTask)


def with_values_of(task: Task, before: FinetuneTask, names: Sequence[str], whose: str) -> Task:
    """Return a task with the values of these fields of a task before; `whose` names that one in messages.

    Raises UserError for a field of `task` that has another value and not its default.
    """
    values = {name: getattr(before, name) for name in names}
    for field in fields(task):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name in values and (own := getattr(task, field.name)) not in (default, values[field.name]):
            path, new = f"task.{field.name}", to_dict(values[field.name])
            unchanged = differences(to_dict(default), new, path)
            for key, (ours, theirs) in differences(to_dict(own), new, path).items():
                if unchanged.get(key) == (ours, theirs):  # a key that is not given
                    continue
                learned = f"{whose} has learned with {shortened(theirs)}"
                raise UserError(f"{key}: is {shortened(ours)}, and {learned}; leave the key out")
    return replace(task, **values)


def keeping_head_of(task: FinetuneTask, before: FinetuneTask, whose: str) -> FinetuneTask:
    """Return a task with what a kept head was trained with; `before` is the head's task, `whose` names it in messages.

    Raises UserError if the configuration has something else.
    """
    if isinstance(task, HeadConditions):
        return task.keeping_head_of(before, whose)
    return with_values_of(task, before, task.head_fields, whose)


def decoding_with(task: FinetuneTask, given: Mapping[str, Any], tokenizer: Tokenizer) -> FinetuneTask:
    """Return a task with other values of its `decoding_fields` and `column_fields`.

    Raises UserError for other fields, and for values that do not fit one another, the task or the tokenizer.
    """
    if isinstance(task, DecodingConditions):
        return task.decoding_with(given, tokenizer)
    return with_decoding(task, given, tokenizer)


def with_decoding(task: Task, given: Mapping[str, Any], tokenizer: Tokenizer) -> Task:
    """As `decoding_with`, without the conditions of the kind itself."""
    for name in given:
        changeable = (*task.decoding_fields, *task.column_fields)
        if name not in changeable:
            can = f"; {', '.join(changeable)} can" if changeable else ""
            raise UserError(f"{name}: cannot be changed after training{can}")
    changed = replace(task, **given)
    if isinstance(changed, EncoderConditions):
        changed.check_tokenizer(tokenizer)
    return changed
