"""Labels as one 0 or 1 for each of them ("multi-hot"), told from lists of the labels that apply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ernie.data.labeled.row import spelled
from ernie.errors import UserError

# One 0 or 1 for each label, with something other than the separator between them, or nothing.
_HOT_TEXT = re.compile(r"[01]([^\d.-]?)[01](?:\1[01])*")
_VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def hot_values(items: Sequence[Any]) -> list[int] | None:
    """Return 0 or 1 for each item, which may also be true or false, and text; None if there is any other."""
    values = [_VALUES.get(spelled(item).strip().lower()) for item in items]
    return None if None in values else [int(value or 0) for value in values]


def are_multi_hot(lists: Sequence[Sequence[Any]], names: Sequence[str] = ()) -> bool:
    """Return whether lists, those of all rows of a column, have one 0 or 1 for each label.

    They do if they hold fractions or truth values, or if all are of 0 and 1, and of one length (of two or more) or with
    a number twice.  All others name the labels that apply: [0, 2] are the labels 0 and 2.  `names` are the labels, if
    they are known.  Raises UserError for lists that can be read either way.
    """
    longer = [items for items in lists if len(items) > 1]
    if lists and not longer and _has_fractions(lists[0]):
        raise UserError(f"{list(lists[0])} has one value, for one label; for that there is the kind classify")
    if any(map(_is_surely_hot, longer)):
        return True
    values = [hot_values(items) for items in lists]
    if not longer or None in values:
        return False
    if any(len({*found}) < len(found) for found in values if found):
        return True
    if len({len(items) for items in lists}) > 1:
        return False
    if {"0", "1"} <= {*names}:
        raise UserError(
            f"{list(longer[0])} may be the labels 0 and 1, or one 0 or 1 for each of two labels; say which by the key "
            "task.multi_hot: false or true"
        )
    return True


def _is_surely_hot(items: Sequence[Any]) -> bool:
    """Whether a list holds fractions or truth values, of which no label has its name."""
    if _has_fractions(items):
        return True
    return hot_values(items) is not None and not all(spelled(item).strip() in ("0", "1") for item in items)


def _has_fractions(items: Sequence[Any]) -> bool:
    return any(isinstance(item, (bool, float)) for item in items)


def check_separator(lists: Sequence[Sequence[str]]) -> None:
    """Raise UserError if every row has one text such as "1 0 1" or "101": one 0 or 1 for each label, not separated."""
    texts = [items[0] for items in lists if len(items) == 1]
    found = _HOT_TEXT.fullmatch(texts[0]) if texts else None
    alike = found and len({*map(len, texts)}) == 1 and all(map(_HOT_TEXT.fullmatch, texts))
    if not found or not alike or len(texts) < len(lists):
        return
    if found[1]:
        raise UserError(
            f"'{texts[0]}' has one 0 or 1 for each label, with '{found[1]}' between them; set task.separator to that"
        )
    if any(text.startswith("0") for text in texts):  # as no number does
        raise UserError(f"'{texts[0]}' has one 0 or 1 for each label; put commas between them")


def check_named_once(items: Sequence[Any]) -> None:
    """Raise UserError for a list of labels that has a 0 or a 1 twice, and so may be meant as one for each label."""
    if hot_values(items) is not None and len({spelled(item) for item in items}) < len(items):
        raise UserError(
            f"{list(items)} names a label twice; one 0 or 1 for each label is understood if every row has as many"
        )


def check_not_two_names(lists: Sequence[Sequence[str]]) -> None:
    """Raise UserError for lists of one length with two names in all, one of them repeated: as "no", "yes", "no"."""
    names = sorted({name for items in lists for name in items})
    repeated = any(len({*items}) < len(items) for items in lists)
    if len(names) == 2 and repeated and len({len(items) for items in lists}) == 1:
        raise UserError(
            f"every row has {len(lists[0])} values, '{names[0]}' or '{names[1]}', as if one for each label; "
            "data.values can make one of them 0 and the other 1, which is understood"
        )
