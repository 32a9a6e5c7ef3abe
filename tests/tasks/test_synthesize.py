"""Speech synthesis rows: texts that are not truncated, and words spelled by a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.helpers import perturbed, vocabulary
from support.toys import SYNTHESIZE, TOKENIZER, TOYS, tiny_encoder

from ernie.audio.features import FeatureConfig
from ernie.data.batch import Layout, Packed, pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.model import voice_loss
from ernie.model.voice import letters_of
from ernie.text.spoken_form import SpokenLanguage, has_digits, spoken_form
from ernie.text.tokenizer import Tokenizer
from finetune.prepare import prepare
from inference.task_model import TaskModel
from tasks.downstream.base import Example
from tasks.downstream.synthesize import Synthesize

TASK = TOYS["synthesize"].task
SPELLED = vocabulary("two red blue 2")
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


def test_the_tokens_of_a_very_long_text_are_not_stated_as_if_all_were_counted() -> None:
    with pytest.raises(UserError, match=r"column 'text': the text has at least [\d,]+ tokens, and max_len is 9"):
        TASK.evaluation_example(row("red blue " * 30_000), TOKENIZER)


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


def voice_losses(task: Synthesize, *, names: int = 1, training: bool = True) -> list[float]:
    """The losses of a row under so many names, from the same head and encoder output."""
    paddle.seed(3)
    model = TaskModel(tiny_encoder(), task)
    task.initialize(model.ernie, model.head)
    perturbed(model.head)
    (model.train if training else model.eval)()
    (sample,) = task.training_example(row("red blue"), TOKENIZER).samples
    hidden = paddle.to_tensor(np.random.default_rng(0).standard_normal((len(sample), 32)).astype(np.float32))
    losses = []
    for name in range(names):
        batch = task.augmented(pack([sample], np.array([[0, 0, name]])), training)
        paddle.seed(name)
        losses.append(float(task.head_loss(model.head, hidden, batch).total))
    return losses


def test_the_weights_of_a_flows_losses_are_those_of_the_configuration(tmp_path: Path) -> None:
    teacher = SYNTHESIZE.adapted_to([row("red blue")])
    TaskModel(tiny_encoder(), teacher).save(tmp_path)
    flow = replace(teacher, vocoder="flow", teacher=tmp_path)
    (divergence,), (spectra,), (apart,), (both,) = (
        voice_losses(replace(flow, spectral=spectral, log_std_penalty=weight))
        for spectral, weight in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (2.0, 3.0))
    )
    assert min(spectra - divergence, apart - divergence) > 1e-3
    assert both - divergence == pytest.approx(2 * (spectra - divergence) + 3 * (apart - divergence), rel=1e-3)


def test_each_step_of_a_sound_begins_a_segment_for_some_names(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SYNTHESIZE.adapted_to([row("red blue")])
    begun: list[int] = []
    conditioners = voice_loss.conditioners

    def noted(head, states, steps, segment, context):  # type: ignore[no-untyped-def]
        begun.append(int(segment.first[0]))
        assert begun[-1] + segment.steps <= max(segment.steps, int(steps[0]))
        return conditioners(head, states, steps, segment, context)

    monkeypatch.setattr(voice_loss, "conditioners", noted)
    voice_losses(task, names=150)
    (sample,) = task.training_example(row("red blue"), TOKENIZER).samples
    last = int(sample.labels["steps"]) - task.crop_steps
    assert last > 1
    assert set(begun) == set(range(last + 1))


def test_the_vocoder_learns_from_states_without_dropout_as_in_synthesis(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SYNTHESIZE.adapted_to([row("red blue")])
    found: list[np.ndarray] = []
    conditioners = voice_loss.conditioners

    def noted(head, states, *given):  # type: ignore[no-untyped-def]
        found.append(states.numpy())
        return conditioners(head, states, *given)

    monkeypatch.setattr(voice_loss, "conditioners", noted)
    for chosen in (task, replace(task, end_to_end=True)):
        for training in (True, False):
            voice_losses(chosen, training=training)
    clean, in_evaluation, end_to_end, end_to_end_in_evaluation = found
    np.testing.assert_array_equal(clean, in_evaluation)
    np.testing.assert_array_equal(in_evaluation, end_to_end_in_evaluation)
    assert np.abs(end_to_end - end_to_end_in_evaluation).max() > 0.01


def test_marks_of_a_word_s_beginning_or_middle_are_no_letters() -> None:
    tokenizer = vocabulary("red", "##ness", "\u2581blue")
    letters = dict(zip(tokenizer.tokens, letters_of(tokenizer), strict=True))
    assert (letters["red"], letters["##ness"], letters["\u2581blue"], letters["[SEP]"]) == (3, 4, 4, 0)


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


@dataclass(frozen=True, kw_only=True)
class Repeating(Synthesize):
    """A kind of one's own that says each text twice."""

    def text_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return super().text_example(Row({**row, "text": f"{row['text']} {row['text']}"}), tokenizer)


def test_a_kind_that_changes_how_texts_are_read_trains_and_speaks_with_it() -> None:
    own = Repeating(**{field.name: getattr(TASK, field.name) for field in fields(TASK)})
    for make in (own.example, own.training_example, own.evaluation_example):
        (sample,) = make(row("red blue"), TOKENIZER).samples
        assert TOKENIZER.decode(sample.ids[1:-1]) == "red blue red blue"


class TestWhatAVoiceCanSay:
    """Texts are compared with what the voice has learned from, and numbers can be read out."""

    @staticmethod
    def learned(*tokens: str) -> Synthesize:
        return replace(TOYS["synthesize"].task, learned=tokens, max_len=32)

    def test_the_tokens_of_the_training_texts_are_what_a_voice_has_learned(self) -> None:
        toy = TOYS["synthesize"]
        split = prepare(toy.task, Split("train", toy.rows(8, 0)), TOKENIZER)
        task = toy.task.having_read(split.examples, TOKENIZER)
        assert set(task.learned) == {word for row in split.rows for word in row["text"].split()}

    def test_a_text_of_other_tokens_is_refused(self) -> None:
        with pytest.raises(
            UserError, match=r"'who red' has parts that are in no text .* learned from \('who'\); write"
        ):
            self.learned("red", "blue").example(Row({"text": "who red"}), TOKENIZER)

    def test_a_few_other_tokens_are_noted(self) -> None:
        example = self.learned("red", "blue").example(Row({"text": "red blue " * 6 + "who"}), TOKENIZER)
        assert [remark for remark in example.warnings if "('who')" in remark]

    def test_marks_in_a_short_text_are_noted(self) -> None:
        example = self.learned("red", "blue").example(Row({"text": "red."}), TOKENIZER)
        assert [remark for remark in example.warnings if "('.')" in remark]

    def test_a_text_of_marks_alone_says_nothing(self) -> None:
        task = self.learned("red", ".", "?")
        assert task.text_example(Row({"text": ". . ?"}), TOKENIZER).empty
        assert not task.text_example(Row({"text": "red ?"}), TOKENIZER).empty

    def test_a_text_of_learned_tokens_is_not_remarked_on(self) -> None:
        assert not self.learned("red", "blue").example(Row({"text": "blue red"}), TOKENIZER).warnings

    def test_older_voices_that_do_not_know_what_they_learned_still_speak(self) -> None:
        assert not self.learned().example(Row({"text": "who red"}), TOKENIZER).warnings

    def test_digits_are_refused_with_the_way_out(self) -> None:
        with pytest.raises(UserError, match=r"'room 7' has characters .*; write them as words, or let --normalize en"):
            self.learned("red").example(Row({"text": "room 7"}), TOKENIZER)

    @pytest.mark.parametrize(
        ("language", "text", "spoken"),
        [
            ("en", "3.5 km", "three point five kilometers"),
            ("en", "Dr. Smith has $2.50", "doctor Smith has two point five dollars"),
            ("en", '5" and \\', None),
            ("zh", "共25元", "共二十五元"),
            ("zh", "3.5千米", "三点五千米"),
            ("none", "3.5 km", "3.5 km"),
        ],
    )
    def test_numbers_and_units_are_written_as_they_are_read_out(
        self, language: SpokenLanguage, text: str, spoken: str | None
    ) -> None:
        found = spoken_form(text, language)
        if spoken is None:
            assert not has_digits(found)
        else:
            assert found == spoken

    def test_a_normalized_text_is_what_is_tokenized(self) -> None:
        task = replace(self.learned(), text_normalization="en")
        plain, normalized = (
            task.text_example(Row({"text": text}), SPELLED).samples[0].ids.tolist() for text in ("two red", "2 red")
        )
        assert plain == normalized
