"""Lists of labels, from a configuration or from the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ernie.data.labeled.read import raise_faults
from ernie.data.labeled.row import Fault, Row, is_empty
from ernie.errors import UserError, nearest

# What data sets and tables write where a row has no label, such as -1 beside numbers from 0.
_PLACEHOLDERS = frozenset(
    "- -- — – _ * ? ?? n/a n.a. na <na> #n/a nan nat none <none> null nil unlabeled unlabelled unknown undefined "
    "missing unk <unk> [unk] pad <pad> [pad] 未标注 未知 无标签 缺失".split()
)
_LARGEST = 1e15  # its square, as in a squared error, is far from what float32 cannot hold
NO_LABEL = "rows without one can be left out by `skip`, with '' for this column"


class UnknownLabel(UserError):
    """A label that is not one of the task's."""


def check_labels(labels: Sequence[str], fewest: int = 2) -> None:
    """Raise UserError for labels that are given and fewer than `fewest`, 1 or 2, or not all different."""
    if len(set(labels)) < len(labels):
        raise UserError(f"labels: '{next(label for label in labels if labels.count(label) > 1)}' stands twice")
    if 0 < len(labels) < fewest:
        raise UserError(f"labels: expected at least two, found {labels[0]}")


def check_label_columns(label: str | tuple[str, ...], labels: Sequence[str], each: str) -> None:
    """Raise UserError for columns of labels that are not several, or not one for each label; `each` is what one has."""
    if isinstance(label, str):
        return
    if len({*label}) < max(2, len(label)):
        raise UserError(f"label: expected one column, or several different ones with {each} each")
    if len(labels) not in (0, len(label)):
        raise UserError(f"labels: expected one for each of the {len(label)} columns, found {len(labels)}")


def index_of(label: str, labels: Sequence[str]) -> int:
    """Return the index of a label.  Raises UnknownLabel for an unknown one, UserError for an empty one."""
    if label in labels:
        return labels.index(label)
    if not label:
        raise UserError(f"there is no label; {NO_LABEL}")
    shown = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
    hint = nearest(label, labels) if len(labels) > 10 else ""
    if is_placeholder(label, labels):
        hint = "; if it stands for no label, data.skip leaves such rows out, and data.values can make it ''."
    raise UnknownLabel(
        f"label '{label:.60}' is not one of {shown}{hint if hint.startswith(';') else '.' + hint}".removesuffix(".")
    )


def label_in(row: Row, column: str) -> str:
    """Return the label in a column, without surrounding white space.  Raises UserError for an empty cell."""
    cell = row.cell(column)
    if is_empty(cell):
        found = "there is no label" if isinstance(cell, str) else f"column '{column}': expected text, found nothing"
        raise UserError(f"{found}; {NO_LABEL}")
    return row.text(column).strip()


def number_in(row: Row, column: str) -> float:
    """Return the number in a column.  Raises UserError if it is none, not finite, or too large to learn from."""
    text = row.text(column).strip()
    try:
        number = math.nan if "_" in text else float(text)  # Python reads 1_000
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"column '{column}': expected a number, found '{text:.60}'")
    if abs(number) > _LARGEST:
        raise UserError(f"column '{column}': {text:.60} is too large to learn from, at most {_LARGEST:g}")
    return number


def is_number(label: str) -> bool:
    """Return whether a label is an integer."""
    return label.removeprefix("-").isdecimal()


def is_placeholder(label: str, labels: Iterable[str]) -> bool:
    """Whether a label, among all labels, looks like a mark of rows without one.  A number below 0, such as -1 or -100,
    does if it is the only one below 0, but not beside its opposite alone.
    """
    if not (is_number(label) and label.startswith("-")):
        return label.strip().lower() in _PLACEHOLDERS
    others = {other for other in labels if other != label}
    below = any(is_number(other) and other.startswith("-") for other in others)
    return others != {label[1:]} and not below


def found_in(rows: Sequence[Row], labels_of: Callable[[Row], Iterable[str]]) -> set[str]:
    """Return all labels of the rows whose labels can be read.  Other rows have errors of their own later.  Raises
    UserError with their places if no labels can be read.
    """
    found: set[str] = set()
    faults: list[Fault] = []
    for row in rows:
        try:
            found.update(labels_of(row))
        except UserError as error:
            faults.append(Fault(row.place, str(error)))
    if not found:
        raise_faults(faults)
    return found


def collected(found: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted, as numbers if all of them are.  Raises UserError for fewer than two.

    Empty cells are skipped, and so become errors of their rows.
    """
    distinct = {label for label in found if label.strip()}
    if len(distinct) < 2:
        raise UserError(
            f"labels: expected at least two different ones, the rows have {', '.join(distinct) or 'none'}; is that "
            "the right column? The key task.labels can name labels that the rows lack"
        )
    numbers = all(map(is_number, distinct))
    return tuple(sorted(distinct, key=(lambda label: (int(label), label)) if numbers else None))
