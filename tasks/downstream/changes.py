"""Tasks with other values of some fields: those of a kept head, those that change decoding, those of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from reprlib import repr as shortened
from typing import Any, TypeVar

from ernie.config import differences, to_dict
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import LOSS_SETTINGS, FinetuneTask, LogitsTask
from tasks.downstream.hooks import DecodingConditions, EncoderConditions, HeadConditions

Task = TypeVar("Task", bound=FinetuneTask)


def with_values_of(task: Task, before: FinetuneTask, names: Sequence[str], whose: str) -> Task:
    """Return a task with the values of these fields of a task before; `whose` names that one in messages.

    Raises UserError for a field of `task` that has another value and not its default.
    """
    values = {name: getattr(before, name) for name in names}
    for field in fields(task):
        default = _default(field)
        if field.name in values and (own := getattr(task, field.name)) not in (default, values[field.name]):
            path, new = f"task.{field.name}", to_dict(values[field.name])
            unchanged = differences(to_dict(default), new, path)
            for key, (ours, theirs) in differences(to_dict(own), new, path).items():
                if unchanged.get(key) == (ours, theirs):  # a key that is not given
                    continue
                learned = f"{whose} has learned with {shortened(theirs)}"
                raise UserError(f"{key}: is {shortened(ours)}, and {learned}; leave the key out")
    return replace(task, **values)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def keeping_head_of(task: FinetuneTask, before: FinetuneTask, whose: str) -> FinetuneTask:
    """Return a task with what a kept head was trained with; `before` is the head's task, `whose` names it in messages.

    Raises UserError if the configuration has something else.
    """
    if isinstance(task, HeadConditions):
        return task.keeping_head_of(before, whose)
    return with_values_of(task, before, task.head_fields, whose)


def common_task(tasks: Mapping[str, FinetuneTask]) -> tuple[LogitsTask, list[str]]:
    """Return the task of an ensemble, and the `decoding_fields` in which its members differ, which get their defaults.

    `tasks` are those of the members, by names for messages.  The first one says what the loss, the metrics and the
    columns are.  Raises UserError for a kind without logits, and for members that differ in anything else.
    """
    (first, common), *others = tasks.items()
    if not isinstance(common, LogitsTask):
        raise UserError(
            f"{first}: a model of the kind {common.variant_name} has no logits, of which an ensemble is made"
        )
    free = {*LOSS_SETTINGS, "mean_weight", "metrics", *common.column_fields}
    defaults: dict[str, Any] = {}
    for other, task in others:
        if type(task) is not type(common):
            raise UserError(
                f"{other}: is of the kind {task.variant_name}, and {first} of the kind {common.variant_name}"
            )
        for field in fields(common):
            own, theirs = getattr(task, field.name), getattr(common, field.name)
            if own == theirs or field.name in free:
                continue
            if field.name not in common.decoding_fields:
                raise UserError(
                    f"{other}: its {field.name} is {shortened(to_dict(own))}, and that of {first} "
                    f"{shortened(to_dict(theirs))}; models of an ensemble have the same"
                )
            defaults[field.name] = _default(field)
    return replace(common, **defaults), [*defaults]


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
