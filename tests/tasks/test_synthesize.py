"""Speech synthesis rows: texts that are not truncated, and words spelled by a dictionary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys import SYNTHESIZE, TOKENIZER, TOYS

from ernie.audio.features import FeatureConfig
from ernie.data.batch import Layout, Packed
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from finetune.prepare import prepare
from tasks.downstream.synthesize import Synthesize

TASK = TOYS["synthesize"].task
LONG = "red blue green red blue green red blue"  # with [CLS] and [SEP] one token above the max_len of 9


def row(text: str) -> Row:
    return Row({**TOYS["synthesize"].rows(1)[0], "text": text})


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_row_with_truncated_text_raises_an_error_or_is_skipped(split: str) -> None:
    """The audio contains all of the words, so training or evaluation on truncated text would be wrong."""
    assert not TASK.training_example(row(LONG.removesuffix(" blue")), TOKENIZER).cut
    rows = Split(split, [row("red blue"), row(LONG)])
    with pytest.raises(UserError, match=r"column 'text': the text has 10 tokens, and max_len is 9.*raise max_len"):
        prepare(TASK, rows, TOKENIZER)
    kept = prepare(TASK, rows, TOKENIZER, skip=True)
    assert [kept_row["text"] for kept_row in kept.rows] == ["red blue"]
    assert any("1 row left out, as 'faulty' asks" in remark for remark in kept.remarks)


@pytest.mark.parametrize("frame", [0, 3, 9])
def test_a_frame_is_centered_on_the_samples_generated_from_it(frame: int) -> None:
    features = FeatureConfig(window=0.025, hop=0.01, bins=20, normalize="none")
    hop = features.hop_samples
    sound = np.zeros(10 * hop, np.float32)
    sound[frame * hop + hop // 2] = 1.0  # a click in the middle
    nothing = np.zeros(1, np.int64)
    batch = Packed(nothing, nothing, Layout.of_lengths([1]), {}, np.zeros((1, 3), np.int64), sounds=(sound,))
    frames = replace(SYNTHESIZE, features=features).augmented(batch, training=True).frames
    assert frames is not None
    assert int(frames.features.sum(1).argmax()) == frame


def test_words_missing_from_the_dictionary_are_kept_and_reported(tmp_path: Path) -> None:
    (tmp_path / "words.dict").write_text("AZURE  blue\n", encoding="utf-8")
    assert isinstance(TASK, Synthesize)
    task = replace(TASK, dictionary=tmp_path / "words.dict")
    prepared = prepare(task, Split("train", [row("azure azure"), row("azure red")]), TOKENIZER)
    texts = [TOKENIZER.decode(example.samples[0].ids) for example in prepared.examples]
    assert texts == ["blue blue", "blue red"]
    (remark,) = prepared.remarks
    assert "1 row with words that the dictionary lacks, which stay as they are" in remark


def test_an_unreadable_dictionary_is_reported_by_its_key_before_any_row(tmp_path: Path) -> None:
    assert isinstance(TASK, Synthesize)
    with pytest.raises(UserError, match=r"^task\.dictionary: .*none\.dict: cannot be read as a dictionary"):
        replace(TASK, dictionary=tmp_path / "none.dict").check_tokenizer(TOKENIZER)
