"""N-grams counted by sorting equal those counted one by one."""

from __future__ import annotations

import math
import pickle
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.segment.ngrams import BREAK, LONGEST, Table, Text, entropies

# Sentences of the symbols 1 to 3, and BREAK.
SENTENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=6)


def make(sentences: list[list[int]]) -> Text:
    return Text(
        np.array([symbol for sentence in sentences for symbol in sentence]), np.cumsum([0, *map(len, sentences)])[:-1]
    )


def grams(sentences: list[list[int]], n: int) -> list[tuple[tuple[int, ...], object, object]]:
    """Each n-gram with its neighbors; an edge or a BREAK is unequal to any other neighbor."""
    found = []
    for sentence in sentences:
        for i in range(len(sentence) - n + 1):
            gram = tuple(sentence[i : i + n])
            before = sentence[i - 1] if i else BREAK
            after = sentence[i + n] if i + n < len(sentence) else BREAK
            if BREAK not in gram:
                found.append((gram, before or object(), after or object()))
    return found


def rows(table: Table) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in np.column_stack([table.part(i, i + 1) for i in range(table.n)])]


@pytest.mark.parametrize("n", range(1, LONGEST + 1))
@given(sentences=SENTENCES, least=st.integers(1, 3))
def test_a_table_holds_the_ngrams_that_occur_often_enough(n: int, sentences: list[list[int]], least: int) -> None:
    table = Table.count(make(sentences), n, least)
    expected = Counter(gram for gram, _, _ in grams(sentences, n))
    assert dict(zip(rows(table), table.counts.tolist(), strict=True)) == {
        gram: count for gram, count in expected.items() if count >= least
    }


@pytest.mark.parametrize("n", range(1, LONGEST + 1))
@given(sentences=SENTENCES)
def test_entropies_are_those_of_the_neighbors(n: int, sentences: list[list[int]]) -> None:
    text = make(sentences)
    table = Table.count(text, n, 1)
    sides: list[dict] = [defaultdict(Counter), defaultdict(Counter)]
    for gram, *neighbors in grams(sentences, n):
        for side, neighbor in zip(sides, neighbors, strict=True):
            side[gram][neighbor] += 1
    for found, side in zip(entropies(text, table), sides, strict=True):
        for gram, value in zip(rows(table), found.tolist(), strict=True):
            total = side[gram].total()
            expected = -sum(count / total * math.log(count / total) for count in side[gram].values())
            assert value == pytest.approx(expected, abs=1e-9)


@given(sentences=SENTENCES, others=SENTENCES)
def test_a_table_finds_its_ngrams_and_no_others(sentences: list[list[int]], others: list[list[int]]) -> None:
    table = pickle.loads(pickle.dumps(Table.count(make(sentences), 2, 1)))
    text = make(others)
    found = table.find(text.keys(text.at(2), 2))
    known = rows(table)
    assert [known[i] if i >= 0 else None for i in found] == [
        gram if gram in known else None for gram, _, _ in grams(others, 2)
    ]
