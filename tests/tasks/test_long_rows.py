"""Of a row that is far longer than a sample no more is tokenized than its beginning, whatever the kind of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.helpers import vocabulary

from ernie.data.labeled.row import Row
from tasks.downstream.base import MOST_COUNTED, FinetuneTask
from tasks.downstream.classify import Classify
from tasks.downstream.synthesize import Synthesize
from tasks.downstream.tag import Tag
from tasks.downstream.translate import Translate

LONG = "the film was good " * 60_000
WORD = "film+" * 200_000
TAG = Tag(max_len=16, labels=("O", "B-X"))


@pytest.mark.parametrize(
    ("task", "row"),
    [
        (Classify(max_len=16, labels=("a", "b")), {"text": LONG, "label": "a"}),
        (Translate(max_len=16), {"source": LONG, "target": LONG}),
        (Translate(max_len=16), {"source": WORD, "target": WORD}),
        (TAG, {"token": ["good", WORD], "tag": ["O", "B-X"]}),
    ],
    ids=["classify", "translate", "translate-a-word", "tag"],
)
def test_of_a_long_row_only_the_beginning_is_tokenized(
    task: FinetuneTask, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = vocabulary("the film was good")
    short = task.training_example(Row({name: _shortened(cell) for name, cell in row.items()}), tokenizer)
    sizes: list[int] = []
    encode = tokenizer._encode
    monkeypatch.setattr(tokenizer, "_encode", lambda text: sizes.append(len(text)) or encode(text))
    found = task.training_example(Row(row), tokenizer)
    assert max(sizes) < MOST_COUNTED
    for one, other in zip(found.samples, short.samples, strict=True):
        assert np.array_equal(one.ids, other.ids)
    assert found.cut >= short.cut


def test_a_voice_tokenizes_the_beginning_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = vocabulary("the film was good")
    found = Synthesize(max_len=16).text_example(Row({"text": LONG}), tokenizer)
    assert len(found.samples[0].ids) == 16
    assert 0 < found.cut < 100_000


def _shortened(cell: Any) -> Any:
    """A cell of which enough is left for a sample."""
    return [text[:20_000] for text in cell] if isinstance(cell, list) else cell[:20_000]
