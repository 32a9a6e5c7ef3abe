"""Speech synthesis: to files, as samples on a stream, and from text as it arrives."""

from __future__ import annotations

import io
import json
import re
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import COLORS, TOKENIZER, TOYS, tiny_encoder
from support.trained import trained
from support.vowels import vowel

from ernie.audio.features import FeatureConfig
from ernie.audio.pitch import pitch_of_frames
from ernie.audio.voice import VoiceConfig
from ernie.cli import main
from ernie.config import dump
from ernie.data.batch import pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.read_lines import Line
from ernie.decode.stream import Stream, load_state, save_state
from ernie.errors import NotFinite, Remark, UserError
from ernie.kernels.cpu.library import library
from ernie.model.voice_loss import frame_loss
from ernie.model.weights import arrays, set_weights
from ernie.text.utterances import utterances
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import DataConfig, FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.training import set_dropout
from inference.commands.speak_lines import into_file, into_stream
from inference.speaker import TextSpeaker, TextSpeakerState
from inference.task_model import TaskModel
from tasks.downstream.synthesis.answers import spoken
from tasks.downstream.synthesis.loss import teacher_forced
from tasks.downstream.synthesize import Synthesize

soundfile = pytest.importorskip("soundfile")
needs_kernels = pytest.mark.skipif(library() is None, reason="only the kernels in C++ promise the same last bits")


def trained_voice() -> TaskModel:
    """A tiny voice trained to say colors as tones."""
    return trained("synthesize").model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice")
    trained_voice().save(folder / "model")
    return folder


def heard_colors(samples: np.ndarray) -> list[str]:
    """The color whose tone is the loudest, in each half."""
    tones = [500 * (1 + 2 * n) for n in range(len(COLORS))]
    found = []
    for half in np.array_split(samples, 2):
        spectrum = np.abs(np.fft.rfft(half))
        at = np.fft.rfftfreq(len(half), 1 / 8000)
        found.append(COLORS[int(np.argmax([spectrum[np.abs(at - tone) < 150].max() for tone in tones]))])
    return found


@pytest.mark.parametrize("text", ["red blue", "green red", "blue green"])
def test_a_voice_says_the_colors_of_the_text(text: str) -> None:
    # A tiny voice slips now and then: which seeds do depends on the processor's last bits.
    sounds = [np.concatenate(list(TextSpeaker(trained_voice(), seed=seed).speak(text))) for seed in range(7)]
    assert all(len(sound) == pytest.approx(800, abs=160) for sound in sounds)
    assert sum(heard_colors(sound) == text.split() for sound in sounds) > 3


@pytest.mark.parametrize("name", ["decoder.last.bias", "decoder.frames.bias", "wavenet.out.bias"])
def test_nan_weights_raise_an_error_instead_of_a_noise(name: str) -> None:
    model = deepcopy(trained_voice())
    weight = dict(model.head.named_parameters())[name]
    weight.set_value(np.full(weight.shape, np.nan, np.float32))
    with pytest.raises(NotFinite, match="weights are damaged"):
        list(model.predict(["red"]))


def test_a_file_is_written_and_the_speed_is_reported(tmp_path: Path) -> None:
    log = io.StringIO()
    into_file(TextSpeaker(trained_voice()), [Line(1, "red blue")], tmp_path / "a.wav", log)
    samples, rate = soundfile.read(tmp_path / "a.wav")
    assert rate == 8000
    np.testing.assert_allclose(samples, np.concatenate(list(TextSpeaker(trained_voice()).speak("red blue"))), atol=1e-4)
    assert re.search(r"0\.1 s of sound in .* real-time factor \d.*the first of it after", log.getvalue())


def test_samples_are_written_as_16_bit_integers() -> None:
    out = io.BytesIO()
    lines = [Line(1, "red blue"), Line(2, ""), Line(3, "green red")]
    into_stream(TextSpeaker(trained_voice()), lines, out, None)
    samples = np.frombuffer(out.getvalue(), "<i2") / 32767
    each = [np.concatenate(list(TextSpeaker(trained_voice()).speak(text))) for text in ("red blue", "green red")]
    np.testing.assert_allclose(samples, np.concatenate(each), atol=1e-4)


def test_a_line_that_cannot_be_spoken_does_not_lose_the_lines_after_it() -> None:
    out = io.BytesIO()
    lines = [Line(1, "pink"), Line(2, "red blue"), Line(3, None, problem="is not UTF-8"), Line(4, "green red")]
    message = "2 lines could not be spoken; the first: line 1: 'pink' has characters that this voice has not learned"
    with pytest.warns(Remark, match="line [13]: ") as notes, pytest.raises(UserError, match=f"^{message}"):
        into_stream(TextSpeaker(trained_voice()), lines, out, None)
    assert len(notes) == 2
    spoken = io.BytesIO()
    into_stream(TextSpeaker(trained_voice()), [lines[1], lines[3]], spoken, None)
    assert out.getvalue() == spoken.getvalue()


def test_the_command_speaks_texts_and_lines(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["speak", str(run), "red blue", "--output", str(tmp_path / "a.wav"), "--quiet"]) == 0
    (tmp_path / "lines.txt").write_text("red blue\n")
    with (tmp_path / "lines.txt").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert main(["speak", str(run), "-", "--output", str(tmp_path / "b.wav"), "--quiet"]) == 0
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pink"], "'pink' has characters that this voice has not learned"),
        (["red", "pink"], "'pink' has characters that this voice has not learned"),
        ([" "], "there is nothing in the text that could be said"),
        (["red " * 20 + "pink"], "has characters that this voice has not learned"),
        (["red", "-"], "standard input is one text"),
        (["red", "--vocoder", "flow"], "this voice has no flow"),
    ],
)
def test_text_that_cannot_be_spoken_is_an_error_and_nothing_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "a.wav").write_bytes(b"something else")
    assert main(["speak", str(run), *words, "--output", str(tmp_path / "a.wav")]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "a.wav").read_bytes() == b"something else"


@pytest.mark.parametrize(
    ("name", "message"),
    [("none/a.wav", "there is no folder"), ("a.sound", "its ending names no format of sound"), ("", "is a folder")],
)
def test_an_unwritable_output_file_is_reported(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    assert main(["speak", str(run), "red", "--output", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_a_full_disk_is_reported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    assert main(["speak", str(run), "red blue green", "--output", str(tmp_path / name)]) == 2
    assert f"{name}: cannot be written as sound: " in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, 3, ["red"]])
def test_input_that_is_not_text_is_an_error(text: object) -> None:
    speaker = TextSpeaker(TaskModel(tiny_encoder(), TOYS["synthesize"].task))
    with pytest.raises(UserError, match="expected a text, found"):
        list(speaker.speak(text))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"expected a piece (of text )?for each stream, found"):
        Stream(speaker).push(text)  # type: ignore[arg-type]


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match="of the kind classify; only those of the kind synthesize can speak"):
        TextSpeaker(TaskModel(tiny_encoder(), TOYS["classify"].task))


def test_words_are_pronounced_by_the_dictionary_which_is_saved_with_the_model(tmp_path: Path) -> None:
    (tmp_path / "words.dict").write_text("AZURE  blue\nSKY  blue red\n", encoding="utf-8")
    voice = TaskModel(trained_voice().ernie, replace(trained_voice().task, dictionary=tmp_path / "words.dict"))
    voice.head = trained_voice().head
    voice.save(tmp_path / "model")
    (tmp_path / "words.dict").unlink()
    for text, pronounced_as in (("azure red", "blue red"), ("Sky", "blue red")):
        sound = np.concatenate(list(TextSpeaker.load(tmp_path, precision="fp32").speak(text)))
        np.testing.assert_array_equal(sound, np.concatenate(list(TextSpeaker(trained_voice()).speak(pronounced_as))))


# ----------------------------------------------------------------------------------------- the streaming contract


def test_a_sentence_is_spoken_as_soon_as_it_is_complete() -> None:
    stream = Stream(TextSpeaker(Dotted(trained_voice())))
    assert len(stream.push("red ")) == 0
    assert len(stream.push("blue. Gr")) == 0  # the next word decides whether the full stop ends a sentence
    first = stream.push("een ")
    np.testing.assert_array_equal(first, np.concatenate(list(TextSpeaker(trained_voice()).speak("red blue"))))
    rest = np.concatenate([stream.push("red"), stream.finish()])
    np.testing.assert_array_equal(rest, np.concatenate(list(TextSpeaker(trained_voice()).speak("green red"))))


def test_text_without_capitals_or_marks_is_spoken_in_parts_that_the_voice_can_speak() -> None:
    speaker = TextSpeaker(trained_voice())
    colors = ["red", "green", "blue"] * 12  # several times as long as any text that the voice was trained on
    stream = Stream(speaker)
    early = [stream.push(f"{color} ") for color in colors]
    assert any(len(samples) for samples in early)
    sound = np.concatenate([*early, stream.finish()])
    parts = utterances(" ".join(colors), lambda text: len(text.split()) <= 7)  # and two special tokens
    assert len(parts) > 4
    wanted = np.concatenate([*chain.from_iterable(map(speaker.speak, parts))])
    np.testing.assert_array_equal(sound, wanted)
    np.testing.assert_array_equal(np.concatenate(list(speaker.speak(" ".join(colors)))), wanted)


def test_a_word_without_an_end_does_not_grow() -> None:
    speaker = TextSpeaker(trained_voice())
    state, _ = speaker.accept(speaker.begin(), ["red" * 500])
    assert sum(map(len, (*state.texts, *state.queues[0]))) == 1500
    assert len(state.texts[0]) < 300


@needs_kernels
def test_states_are_split_merged_and_saved(tmp_path: Path) -> None:
    speaker = TextSpeaker(Dotted(trained_voice()))
    state, _ = speaker.push(speaker.begin(2), ["red ", "green "])
    first, second = state.select([0]), state.select([1])
    save_state(second.concat([first]), tmp_path / "state.npz")
    both = load_state(TextSpeakerState, tmp_path / "state.npz")
    assert (both, both.texts) == (replace(state, texts=both.texts), ("green ", "red "))
    _, sounds = speaker.push(both, ["red.\n", "blue.\n"])
    for sound, text in zip(sounds, ("green red", "red blue"), strict=True):
        np.testing.assert_array_equal(sound, np.concatenate(list(TextSpeaker(trained_voice()).speak(text))))


def test_the_state_of_another_voice_is_refused(tmp_path: Path) -> None:
    speaker, other_speaker = (
        TextSpeaker(trained_voice()),
        TextSpeaker(TaskModel(tiny_encoder(), trained_voice().task)),
    )
    state, _ = speaker.push(speaker.begin(), ["red "])
    save_state(state, tmp_path / "kept.npz")
    kept = load_state(TextSpeakerState, tmp_path / "kept.npz")
    attempts = (
        lambda: other_speaker.push(kept, ["blue"]),
        lambda: other_speaker.finish(kept),
        lambda: other_speaker.begin().concat([kept]),
    )
    for resume in attempts:
        with pytest.raises(UserError, match="this state is of another model"):
            resume()
    unmarked = TextSpeakerState.from_arrays({"texts": np.array(["red "])})  # older states do not name their voice
    for own_state in (kept.select([0]), unmarked):
        np.testing.assert_array_equal(speaker.finish(own_state)[1][0], np.concatenate(list(speaker.speak("red"))))


def test_a_stream_that_is_over_takes_no_more_text(tmp_path: Path) -> None:
    speaker = TextSpeaker(trained_voice())
    state, _ = speaker.finish(speaker.push(speaker.begin(), ["red "])[0])
    save_state(state, tmp_path / "kept.npz")
    for over in (state, load_state(speaker, tmp_path / "kept.npz")):
        assert speaker.push(over, [""])[1][0].size == 0
        for others in (over, speaker.begin().concat([over]).select([1])):
            with pytest.raises(UserError, match="the text of this stream is over; begin another one"):
                speaker.push(others, ["blue"])


def test_push_requires_one_piece_of_text_per_stream() -> None:
    speaker = TextSpeaker(trained_voice())
    with pytest.raises(UserError, match="expected a list of 2 pieces, one for each stream, found 1"):
        speaker.push(speaker.begin(2), ["red "])


def test_a_stream_skips_unspeakable_text_with_a_remark_and_continues() -> None:
    stream = Stream(TextSpeaker(trained_voice()))
    with pytest.warns(Remark, match="left out: 'pink' has characters that this voice has not learned"):
        first = stream.push("red\npink\ngreen\n")
    rest = np.concatenate([stream.push("blue"), stream.finish()])
    alone = [np.concatenate(list(TextSpeaker(trained_voice()).speak(word))) for word in ("red", "green", "blue")]
    np.testing.assert_array_equal(np.concatenate([first, rest]), np.concatenate(alone))


SENTENCES = (
    "Red blue. ",
    "Green red. ",
    "Blue green\n",
    "Pink. ",
    "Red green blue red green blue red green blue. ",
    "blue ",
)


@needs_kernels
@pytest.mark.filterwarnings("ignore:left out")
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_streams_joined_split_and_saved_at_any_point_sound_as_alone(data: st.DataObject) -> None:
    """Whatever is pushed when, and whatever streams are beside it: the same bit for bit, and as `speak` says it."""
    speaker = TextSpeaker(Dotted(trained_voice(), InStretches))
    texts = data.draw(st.lists(st.lists(st.sampled_from(SENTENCES), max_size=3).map("".join), min_size=1, max_size=4))
    rest, order, sounds = list(texts), list(range(len(texts))), [np.zeros(0, np.float32)] * len(texts)
    state = speaker.begin(len(texts))
    while any(rest) or any(speaker.pending(state)):
        for n, position in enumerate(order):
            size = data.draw(st.sampled_from([0, 3, 20, 100])) if rest[position] else 0
            pieces = [rest[position][:size] if m == n and size else None for m in range(len(order))]
            state, errors = speaker.accept(state, pieces)
            assert not any(errors)
            rest[position] = rest[position][size:]
        state = speaker.end(state, [not rest[position] for position in order])
        if data.draw(st.booleans()):
            moved = data.draw(st.permutations(range(len(order))))
            parts = [state.select([n]) for n in moved]
            state, order = parts[0].concat(parts[1:]), [order[n] for n in moved]
        if data.draw(st.booleans()):
            state = TextSpeakerState.from_arrays(state.arrays())
        state, outcomes = speaker.step(state)
        for position, outcome in zip(order, outcomes, strict=True):
            sounds[position] = np.concatenate([sounds[position], outcome.get()])
    for text, sound in zip(texts, sounds, strict=True):
        alone = Stream(speaker)
        np.testing.assert_array_equal(sound, np.concatenate([alone.push(text), alone.finish()]))
        if text and not speaker.problem(text):
            np.testing.assert_array_equal(sound, np.concatenate(list(speaker.speak(text))))


def test_the_next_utterance_of_a_stream_begins_in_the_step_after_the_last_one() -> None:
    speaker = TextSpeaker(Dotted(trained_voice(), InStretches))
    state, _ = speaker.accept(speaker.begin(), ["red blue\ngreen\n"])
    lengths = []
    while any(speaker.pending(state)):
        state, (outcome,) = speaker.step(state)
        lengths.append(len(outcome.get()))
    assert 0 not in lengths
    alone = [[len(piece) for piece in speaker.speak(text)] for text in ("red blue", "green")]
    assert lengths == alone[0] + alone[1]
    assert len(alone[0]) > 1


@needs_kernels
def test_a_state_in_the_middle_of_a_word_is_continued_by_another_speaker(tmp_path: Path) -> None:
    first, second = TextSpeaker(Dotted(trained_voice(), InStretches)), TextSpeaker(trained_voice())
    state, _ = first.accept(first.begin(), ["red blue green\n"])
    state, (begun,) = first.step(state)
    save_state(state, tmp_path / "state.npz")
    state, rest = second.finish(load_state(second, tmp_path / "state.npz"))
    assert 0 < len(begun.get()) < len(rest[0])
    wanted = np.concatenate(list(second.speak("red blue green")))
    np.testing.assert_array_equal(np.concatenate([begun.get(), *rest]), wanted)
    with pytest.raises(UserError, match="begun with the vocoder wavenet, seed 0, and this speaker has wavenet, seed 1"):
        TextSpeaker(trained_voice(), seed=1).step(load_state(second, tmp_path / "state.npz"))


@needs_kernels
def test_a_stream_that_is_not_finite_is_over_and_harms_no_other() -> None:
    model = deepcopy(trained_voice())
    with paddle.no_grad():
        model.ernie.embedding.token.weight[TOKENIZER.tokens.index("green")] = float("nan")
    speaker = TextSpeaker(model)
    state, _ = speaker.accept(speaker.begin(3), ["red blue\n", "green\nred\n", "blue\n"])
    state, outcomes = speaker.step(state)
    first, (_, rest) = [own.value for own in outcomes], speaker.finish(state.select([0, 2]))
    for own, more, text in ((first[0], rest[0], "red blue"), (first[2], rest[1], "blue")):
        np.testing.assert_array_equal(np.concatenate([own, more]), np.concatenate(list(speaker.speak(text))))
    assert isinstance(outcomes[1].error, NotFinite)
    assert outcomes[1].error.stream == 1
    assert speaker.pending(state) == [True, False, True]
    _, errors = speaker.accept(state, ["red\n", "red\n", None])
    assert errors[0] is errors[2] is None
    assert "the text of this stream is over" in str(errors[1])


def test_an_unspeakable_piece_is_an_error_of_its_stream_and_a_sentence_a_note() -> None:
    speaker = TextSpeaker(trained_voice())
    state, errors = speaker.accept(speaker.begin(2), [3, "pink\nred\n"])  # type: ignore[list-item]
    assert "expected a piece of text for each stream, found 3" in str(errors[0])
    assert errors[0] is not None and errors[0].stream == 0
    assert errors[1] is None
    assert state.select([0]) == speaker.begin()
    after, (nothing, outcome) = speaker.step(state)
    assert nothing.get().size == 0
    found = [outcome.get(), speaker.finish(after)[1][1]]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(list(speaker.speak("red"))))
    (note,) = outcome.notes
    assert (note.stream, note.text[:16]) == (1, "left out: 'pink'")


class Dotted(TaskModel):
    """The voice, for texts with full stops, which it was not trained on: it skips them."""

    def __init__(self, model: TaskModel, kind: type[Synthesize] | None = None):
        super().__init__(model.ernie, model.task)
        self.head = model.head
        self.task = (kind or Undotted)(**vars(model.task))
        self.eval()


class Undotted(Synthesize):
    def text_example(self, row, tokenizer):  # type: ignore[no-untyped-def]
        return super().text_example(Row({"text": row["text"].replace(".", "")}), tokenizer)


class InStretches(Undotted):
    """It makes stretches of three steps, a few of each utterance."""

    def synthesizer(self, *given, **options):  # type: ignore[no-untyped-def]
        return super().synthesizer(*given, **options | {"chunk": 3})


# ------------------------------------------------------------------------------------ without a learned vocoder


@needs_kernels
def test_every_voice_can_speak_by_it_in_a_stream_as_at_once() -> None:
    speaker = TextSpeaker(trained_voice(), "griffin_lim")
    each = [np.concatenate(list(speaker.speak(text))) for text in ("red blue", "green")]
    state, _ = speaker.accept(speaker.begin(2), ["red blue\n", "green\n"])
    state, found = speaker.end(state), [np.zeros(0, np.float32)] * 2
    while any(speaker.pending(state)):
        state, outcomes = speaker.step(state)
        found = [np.concatenate([own, outcome.get()]) for own, outcome in zip(found, outcomes, strict=True)]
    for own, alone in zip(found, each, strict=True):
        np.testing.assert_array_equal(own, alone)
        assert np.abs(own).max() > 0.01


def test_a_voice_without_a_learned_vocoder_is_its_decoder_alone(tmp_path: Path) -> None:
    toy = TOYS["synthesize"]
    task = replace(toy.task, vocoder="griffin_lim")
    train, dev = (prepare(task, Split(n, toy.rows(*rows)), TOKENIZER) for n, *rows in (("train", 60, 0), ("dev", 1, 1)))
    settings = TrainConfig(epochs=3, batch=10, lr=LRScheduleConfig(peak=4e-3), evaluations=1)
    model, evaluations = finetune(tiny_encoder(), task, train, dev, settings)
    assert evaluations[-1].loss < evaluations[0].loss
    assert all(name.startswith("decoder.") for name in arrays(model.head))
    model.save(tmp_path)
    again = TextSpeaker(TaskModel.load(tmp_path, precision="fp32"))
    np.testing.assert_array_equal(
        np.concatenate(list(again.speak("red"))), np.concatenate(list(TextSpeaker(model).speak("red")))
    )
    with pytest.raises(UserError, match="this voice has no wavenet"):
        TextSpeaker(model, "wavenet")


# --------------------------------------------------------------------------------------------- the flow's teacher


def test_training_a_flow_leaves_the_teachers_weights_unchanged(run: Path) -> None:
    toy = TOYS["synthesize"]
    bare = replace(toy.task, vocoder="flow", teacher=run, mean=(), deviation=(), pace=0.0, loudness=0.0)
    task = bare.adapted_to(toy.rows(3))
    assert task == replace(
        bare, **{name: getattr(toy.task, name) for name in ("mean", "deviation", "pace", "loudness")}
    )
    train, dev = (
        prepare(task, Split(n, toy.rows(*rows)), TOKENIZER) for n, *rows in (("train", 320, 0), ("dev", 2, 1))
    )
    settings = TrainConfig(epochs=4, batch=16, dropout=0.0, lr=LRScheduleConfig(peak=4e-3))
    model, evaluations = finetune(tiny_encoder(), task, train, dev, settings)
    assert evaluations[-1].loss < evaluations[0].loss / 2
    assert arrays(model.ernie).keys() == arrays(trained_voice().ernie).keys()
    for name, value in arrays(trained_voice().ernie).items():
        np.testing.assert_array_equal(arrays(model.ernie)[name], value)
    for name, value in arrays(trained_voice().head).items():
        np.testing.assert_array_equal(arrays(model.head)[name], value)
    student, teacher = (
        np.concatenate(list(TextSpeaker(m, "wavenet").speak("red blue"))) for m in (model, trained_voice())
    )
    np.testing.assert_array_equal(student, teacher)


def test_a_flows_teacher_runs_without_dropout_during_training(run: Path) -> None:
    toy = TOYS["synthesize"]
    task = replace(toy.task, vocoder="flow", teacher=run)
    model = TrainingModel(tiny_encoder(), task)
    task.initialize(model.ernie, model.head)
    set_dropout(model, 0.3)
    samples = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(4)]
    batch = task.augmented(pack(samples, np.array([(0, n, 0) for n in range(4)])), training=True)
    model.train()
    training_loss = model.loss(batch).total
    training_loss.backward()
    assert model.head.flow.networks[0].first.weight.grad is not None
    assert model.training and model.head.decoder.training and model.ernie.training
    model.eval()
    assert model.loss(batch).total.item() == training_loss.item()


def _gradients(end_to_end: bool, sound: bool) -> dict[str, np.ndarray]:
    """The gradients of the loss on the samples, or of the frame loss alone; parameters without one are left out."""
    toy = TOYS["synthesize"]
    task = replace(toy.task, end_to_end=end_to_end)
    samples = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(4)]
    batch = task.augmented(pack(samples, np.array([(0, n, 0) for n in range(4)])), training=True)
    model = TrainingModel(tiny_encoder(), task)
    set_weights(model.ernie, arrays(trained_voice().ernie), "the voice")
    set_weights(model.head, arrays(trained_voice().head), "the voice")
    model.eval()
    hidden_TD = task.encode(model.ernie, model.head, batch, model.task_id)
    if sound:
        task.head_loss(model.head, hidden_TD, batch).total.backward()
    else:
        prediction, text, frames_NFM, steps = teacher_forced(task, model.head, hidden_TD, batch)
        frame_loss(prediction, text, frames_NFM, steps).backward()
    return {name: value.grad.numpy() for name, value in model.named_parameters() if value.grad is not None}


def test_the_decoder_and_the_encoder_learn_from_the_samples_only_end_to_end() -> None:
    separate, end_to_end, frames = _gradients(False, True), _gradients(True, True), _gradients(False, False)
    vocoder = {name for name in separate if name not in frames}
    others = set(frames)
    assert set(separate) == set(end_to_end) == vocoder | others
    for name in vocoder:
        np.testing.assert_allclose(separate[name], end_to_end[name], rtol=1e-5, atol=1e-7)
    for name in others:
        np.testing.assert_allclose(separate[name], frames[name], rtol=1e-5, atol=1e-7)
    # The parameters that are clipped separately are those trained by the samples alone.
    assert vocoder == {name for name in separate if name.startswith(("head.bridge.", "head.wavenet."))}
    assert TOYS["synthesize"].task.separate_clip_groups == ("bridge", "wavenet")
    assert not replace(TOYS["synthesize"].task, end_to_end=True).separate_clip_groups
    # The outputs for frames and for the end do not feed the vocoder, so their gradients are equal.
    differ = {
        name for name in others if np.abs(end_to_end[name] - frames[name]).max() > 1e-3 * np.abs(frames[name]).max()
    }
    assert {name for name in others if "decoder.frames" in name or "decoder.last" in name}.isdisjoint(differ)
    assert any(name.startswith("head.decoder.behind") for name in differ)
    assert any(name.startswith("ernie") for name in differ)


def test_a_crop_shorter_than_a_window_or_longer_than_a_recording_is_refused() -> None:
    with pytest.raises(UserError, match=r"crop: 100 s are more than any recording has, 10 s"):
        Synthesize(crop=100)
    with pytest.raises(UserError, match=r"crop: 0\.01 s are less than one window of 0\.05 s"):
        Synthesize(crop=0.01, voice=VoiceConfig(reduction=1))


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.6])
def test_windows_of_spectra_that_are_longer_than_a_segment_or_of_no_samples_are_refused(seconds: float) -> None:
    with pytest.raises(UserError, match=r"spectral_windows: expected from .* s, four samples, to 0\.5 s, a segment"):
        Synthesize(vocoder="flow", teacher=Path("voice"), crop=0.5, spectral_windows=(0.01, seconds))
    with pytest.raises(UserError, match="spectral_windows: with spectral: 0 no spectra are compared"):
        Synthesize(vocoder="flow", teacher=Path("voice"), spectral=0, spectral_windows=(0.01,))
    with pytest.raises(UserError, match="spectral_windows: compare the spectra of a flow"):
        Synthesize(crop=0.5, spectral_windows=(0.01,))


def test_a_flow_with_pulses_learns_the_pitch_and_speaks_the_same_in_stretches(run: Path, tmp_path: Path) -> None:
    toy = TOYS["synthesize"]
    assert isinstance(toy.task, Synthesize)
    voice = replace(toy.task.voice, pulses=True)
    task = replace(toy.task, vocoder="flow", teacher=run, voice=voice).adapted_to(toy.rows(3))
    train, dev = (
        prepare(task, Split(n, toy.rows(*rows)), TOKENIZER) for n, *rows in (("train", 160, 0), ("dev", 2, 1))
    )
    settings = TrainConfig(epochs=4, batch=16, dropout=0.0, lr=LRScheduleConfig(peak=4e-3))
    model, evaluations = finetune(tiny_encoder(), task, train, dev, settings)
    assert evaluations[-1].loss < evaluations[0].loss
    for name, value in arrays(trained_voice().head).items():
        np.testing.assert_array_equal(arrays(model.head)[name], value)
    model.save(tmp_path)
    again = TaskModel.load(tmp_path)
    ids = task.text_example(Row({"text": "red blue"}), TOKENIZER).samples[0].ids
    short, long = (
        spoken(task.synthesizer(own.ernie, own.head, own.task_id, chunk=chunk), [ids])[0]
        for own, chunk in ((model, 1), (again, 9))
    )
    np.testing.assert_array_equal(short, long)


@paddle.no_grad()
def test_in_training_pulses_are_where_the_recording_has_a_voice(run: Path) -> None:
    """Counted from the first sample that the flow makes, however much noise it is given before."""
    features = FeatureConfig(window=0.02, hop=0.01, bins=20, normalize="none")
    silence, hop = np.zeros(1600, np.float32), 80
    sound = np.concatenate([silence, vowel(110.0, (500.0, 1500.0), 0.3), silence])
    task = replace(TOYS["synthesize"].task, features=features, mean=(), deviation=(), crop=0.7, loudness=0.1)
    task = replace(task, vocoder="flow", teacher=run, voice=replace(task.voice, pulses=True))
    model = TrainingModel(tiny_encoder(), task)
    audio = {"array": sound.tolist(), "sampling_rate": 8000}
    (sample,) = task.training_example(Row({"text": "red blue", "audio": audio}), TOKENIZER).samples
    batch = task.augmented(pack([sample], np.array([(0, 0, 0)])), training=True)
    given: list[np.ndarray] = []
    model.head.flow.register_forward_pre_hook(lambda layer, inputs: given.append(inputs[1].numpy()))
    model.loss(batch)
    ((pulsed,),) = [each[:, :, -2:].any(axis=-1) for each in given]
    context = len(pulsed) - len(batch.sounds[0])
    assert not pulsed[:context].any()
    f0 = pitch_of_frames(batch.sounds[0], 8000, hop)
    assert 20 < (f0 > 0).sum() < 45
    np.testing.assert_array_equal(pulsed[context:], np.repeat(f0 > 0, hop))


def test_the_gradients_of_the_pitch_are_clipped_apart_from_those_of_the_flow(run: Path) -> None:
    flow = replace(TOYS["synthesize"].task, vocoder="flow", teacher=run)
    assert not flow.separate_clip_groups
    assert replace(flow, voice=replace(flow.voice, pulses=True)).separate_clip_groups == ("pitch",)


def test_pulses_are_refused_without_a_flow() -> None:
    with pytest.raises(UserError, match=r"voice\.pulses: are given to a flow; give vocoder: flow"):
        Synthesize(voice=VoiceConfig(pulses=True))


def test_a_flow_without_a_teacher_is_refused() -> None:
    with pytest.raises(UserError, match="teacher: a flow learns from a run"):
        Synthesize(vocoder="flow")
    with pytest.raises(UserError, match="teacher: a flow learns from a run"):
        Synthesize(teacher=Path("runs/voice"))


def test_an_incompatible_teacher_is_refused(run: Path, tmp_path: Path) -> None:
    task = TOYS["synthesize"].task
    assert isinstance(task, Synthesize)
    other = replace(task.voice, reduction=4)
    with pytest.raises(
        UserError, match=r"task\.voice\.reduction: is 4, and the teacher, .* learned with .*; give it that value"
    ):
        replace(task, vocoder="flow", teacher=run, voice=other).adapted_to([])
    with pytest.raises(UserError, match="holds no fine-tuned model"):
        replace(task, vocoder="flow", teacher=tmp_path).adapted_to([])
    TaskModel(tiny_encoder(), TOYS["classify"].task).save(tmp_path / "other" / "model")
    with pytest.raises(UserError, match="is no run of the kind synthesize whose vocoder is wavenet"):
        replace(task, vocoder="flow", teacher=tmp_path / "other").adapted_to([])


def test_a_kept_head_has_the_same_vocoder_and_features(run: Path) -> None:
    task = TOYS["synthesize"].task
    flow = replace(task, vocoder="flow", teacher=run)
    with pytest.raises(UserError, match="is flow, and its head has learned with wavenet; leave head: keep out"):
        flow.keeping_head_of(task, "its head")
    with pytest.raises(UserError, match="is wavenet, and its head has learned with flow; go on from the run that"):
        task.keeping_head_of(flow, "its head")
    finer = replace(task, features=replace(task.features, bins=9), mean=(), deviation=())
    with pytest.raises(
        UserError, match=r"^task\.features\.bins: is 9, and its head has learned with \d+; leave the key"
    ):
        finer.keeping_head_of(task, "its head")


def test_a_negative_seed_and_an_unknown_vocoder_are_refused() -> None:
    with pytest.raises(UserError, match="seed: expected a number from 0 to"):
        TextSpeaker(trained_voice(), seed=-1)
    with pytest.raises(UserError, match="vocoder: expected wavenet, flow, griffin_lim, found 'WaveNet'"):
        TextSpeaker(trained_voice(), "WaveNet")


def test_no_row_is_answered_with_the_sound_of_something_else() -> None:
    assert [answer["audio"]["array"] for answer in trained_voice().predict([{"text": " "}])] == [[]]
    with pytest.raises(UserError, match=r"column 'text': 'ж' has characters that this voice has not learned"):
        list(trained_voice().predict([{"text": "ж"}]))


def test_a_voice_can_be_trained_on_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    tiny_encoder().save_pretrained(tmp_path / "encoder")
    rows = []
    for number, row in enumerate(TOYS["synthesize"].rows(16, 0)):
        soundfile.write(tmp_path / "a.wav", np.array(row["audio"]["array"], np.float32), row["audio"]["sampling_rate"])
        sound = {"bytes": (tmp_path / "a.wav").read_bytes(), "path": f"{number}.wav"}
        rows.append({**row, "audio": sound})
    pandas.DataFrame(rows).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "voice.yaml").write_text(
        dump(
            FinetuneConfig(task=TOYS["synthesize"].task, data=DataConfig(train="rows.parquet", dev="rows.parquet[:2]"))
        )
    )
    words = ["--model", "encoder", "--output", "run", "--quiet", "--set", "train.epochs=1"]
    assert main(["finetune", "voice.yaml", *words]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "trials" / "seed=0" / "dev.jsonl").open()]
    assert [record["right"] for record in records] == [{"path": "0.wav"}, {"path": "1.wav"}]
