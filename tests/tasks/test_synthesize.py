"""Rows that a voice learns from: texts that are all there, and words as a dictionary writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toys import TOKENIZER, TOYS

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from finetune.prepare import prepare
from tasks.downstream.synthesize import Synthesize

TASK = TOYS["synthesize"].task
LONG = "red blue green red blue green red blue"  # with [CLS] and [SEP] one token more than the 9 that are read


def row(text: str) -> Row:
    return Row({**TOYS["synthesize"].rows(1)[0], "text": text})


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_sound_whose_text_is_cut_is_an_error_or_left_out(split: str) -> None:
    """All of the words are said in it, so what is learnt, or judged by, would not be the text."""
    assert not TASK.training_example(row(LONG.removesuffix(" blue")), TOKENIZER).cut
    rows = Split(split, [row("red blue"), row(LONG)])
    with pytest.raises(UserError, match=r"column 'text': the text has 10 tokens, and max_len is 9.*raise max_len"):
        prepare(TASK, rows, TOKENIZER)
    kept = prepare(TASK, rows, TOKENIZER, skip=True)
    assert [one["text"] for one in kept.rows] == ["red blue"]
    assert any("1 row left out, as 'faulty' asks" in remark for remark in kept.remarks)


def test_words_that_the_dictionary_lacks_stay_as_they_are_and_are_told(tmp_path: Path) -> None:
    (tmp_path / "words.dict").write_text("AZURE  blue\n", encoding="utf-8")
    assert isinstance(TASK, Synthesize)
    task = replace(TASK, dictionary=tmp_path / "words.dict")
    prepared = prepare(task, Split("train", [row("azure azure"), row("azure red")]), TOKENIZER)
    written = [TOKENIZER.decode(example.samples[0].ids) for example in prepared.examples]
    assert written == ["blue blue", "blue red"]
    (remark,) = prepared.remarks
    assert "1 row with words that the dictionary lacks, which stay as they are" in remark


def test_a_dictionary_that_cannot_be_read_is_told_by_its_key_before_any_row(tmp_path: Path) -> None:
    assert isinstance(TASK, Synthesize)
    with pytest.raises(UserError, match=r"^task\.dictionary: .*none\.dict: cannot be read as a dictionary"):
        replace(TASK, dictionary=tmp_path / "none.dict").check_tokenizer(TOKENIZER)
