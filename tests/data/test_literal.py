"""Lists and objects that a table has as text."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.data.labeled.literal import NotLiteral, read_literal
from ernie.data.labeled.row import Row, RowOptions, as_list

ITEMS = st.lists(
    st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.floats(-10, 10)), max_size=5
)


@given(ITEMS)
def test_what_python_and_json_write_is_read_back(items: list[Any]) -> None:
    assert read_literal(repr(items)) == items
    assert read_literal(json.dumps(items)) == read_literal(json.dumps(items, ensure_ascii=False)) == items
    assert read_literal(repr({"text": items, "n": [items]})) == {"text": items, "n": [items]}


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5))
def test_arrays_of_text_are_read_back_and_their_items_stay_apart(items: list[str]) -> None:
    array = np.array(items, object)
    assert read_literal(str(array)) == read_literal(repr(array)) == items


@given(st.lists(st.integers(-99, 99), max_size=30))
def test_arrays_of_numbers_are_read_back(items: list[int]) -> None:
    assert read_literal(str(np.array(items))) == read_literal(str(np.array(items, float))) == items
    assert read_literal(repr(np.array(items, np.int8))) == items


NO_LISTS = [
    "",
    "a",
    "1",
    "'a'",
    "[a]",
    "[a, b]",
    "['a'",
    "['a']]",
    "['a'] b",
    "[1] see",
    "[__import__('os')]",
    "[1,,2]",
]
NO_LISTS += ["['a' + 'b']", "[" * 50 + "]" * 50, "{'a': 1, 2}", "[,]", "f('a')", "array('a", "[...]", "(see below)"]


@pytest.mark.parametrize("text", NO_LISTS)
def test_any_other_text_is_no_list(text: str) -> None:
    with pytest.raises(NotLiteral):
        read_literal(text)


@given(st.text("[](){}'\",:\\ ab1.=\n", max_size=20))
def test_any_text_is_a_list_an_object_or_neither(text: str) -> None:
    with contextlib.suppress(NotLiteral):
        assert isinstance(read_literal(text), (list, dict))


@pytest.mark.parametrize(
    "text",
    [
        "[u'a', u\"b\"]",
        "[b'a', b'b']",
        "Index(['a', 'b'], dtype='object')",
        "torch.tensor(['a', 'b'])",
        "deque(['a','b'])",
    ],
)
def test_lists_of_older_pythons_and_other_types_are_read(text: str) -> None:
    assert as_list(text) == ["a", "b"]
    assert as_list(f"x {text}") is as_list("index(['a', 'b']") is as_list("fun(['a'])") is None


def test_a_cell_is_a_list_in_any_of_its_forms() -> None:
    forms: list[Any] = [["a", "b"], ("a", "b"), np.array(["a", "b"]), "['a', 'b']"]
    assert [as_list(form) for form in forms] == [["a", "b"]] * 4
    assert [as_list(cell) for cell in ("a, b", 3, None, {"a": 1}, "{'a': 1}")] == [None] * 5
    assert Row({"tags": "['O', 'B-X']"}).texts("tags") == ["O", "B-X"]


def test_lists_as_text_are_joined_and_their_items_replaced() -> None:
    row = RowOptions(join={"words": "-"}, values={"tags": {"0": "O"}}).adapt(
        Row({"words": "['a', 'b']", "tags": "[0, 1]", "text": "[0]"})
    )
    assert row == {"words": "a-b", "tags": ["O", 1], "text": "[0]"}
