"""Rows that a voice learns from: texts that are all there, and words as a dictionary writes them."""

from __future__ import annotations

import pytest
from toys import TOKENIZER, TOYS

from ernie.data.labelled.read import Split
from ernie.data.labelled.row import Row
from ernie.errors import UserError
from finetune.prepare import prepare

TASK = TOYS["synthesize"].task
LONG = "red blue green red blue green red blue"  # with [CLS] and [SEP] one token more than the 9 that are read


def row(text: str) -> Row:
    return Row({**TOYS["synthesize"].rows(1)[0], "text": text})


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_sound_whose_text_is_cut_is_an_error_or_left_out(split: str) -> None:
    """All of the words are said in it, so what is learnt, or judged by, would not be the text."""
    assert not TASK.labelled(row(LONG.removesuffix(" blue")), TOKENIZER).cut
    rows = Split(split, [row("red blue"), row(LONG)])
    with pytest.raises(UserError, match=r"column 'text': the text has 10 tokens, and max_len is 9.*raise max_len"):
        prepare(TASK, rows, TOKENIZER)
    kept = prepare(TASK, rows, TOKENIZER, skip=True)
    assert [one["text"] for one in kept.rows] == ["red blue"]
    assert any("1 row left out, as 'faulty' asks" in remark for remark in kept.remarks)
