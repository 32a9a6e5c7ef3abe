"""Texts that are spoken: into files, as samples, as they come in."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import COLOURS, TOKENIZER, TOYS, tiny_encoder

from ernie.audio.voice import VoiceConfig
from ernie.cli import main
from ernie.config import dump
from ernie.data.batch import pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.decode.stream import Stream, load_state, save_state
from ernie.errors import Remark, UserError
from ernie.model.voice_loss import frame_loss
from ernie.model.weights import arrays, set_weights
from ernie.train.settings import RateConfig
from finetune.config import DataConfig, FinetuneConfig, TrainConfig
from finetune.loop import _set_dropout, finetune
from finetune.model import FinetunedModel
from finetune.prepare import prepare
from finetune.say import into_file, into_stream
from finetune.speaker import TextSpeaker, TextSpeakerState, _complete_sentences
from tasks.downstream.synthesize import Synthesize

soundfile = pytest.importorskip("soundfile")


@cache
def learnt() -> FinetunedModel:
    """A tiny voice that has learnt to say colours as tones."""
    toy = TOYS["synthesize"]
    train, dev = (
        prepare(toy.task, Split(n, toy.rows(*rows)), TOKENIZER) for n, *rows in (("train", 640, 0), ("dev", 2, 1))
    )
    settings = TrainConfig(epochs=10, batch=16, evaluations=0, rate=RateConfig(peak=4e-3))
    return finetune(tiny_encoder(), toy.task, train, dev, settings)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice")
    learnt().save(folder / "model")
    return folder


def heard(samples: np.ndarray) -> list[str]:
    """The colour whose tone is the loudest, in each half."""
    tones = [500 * (1 + 2 * n) for n in range(len(COLOURS))]
    found = []
    for half in np.array_split(samples, 2):
        spectrum = np.abs(np.fft.rfft(half))
        at = np.fft.rfftfreq(len(half), 1 / 8000)
        found.append(COLOURS[int(np.argmax([spectrum[np.abs(at - tone) < 150].max() for tone in tones]))])
    return found


@pytest.mark.parametrize("text", ["red blue", "green red", "blue green"])
def test_a_voice_says_what_the_text_says(text: str) -> None:
    sound = np.concatenate(list(TextSpeaker(learnt()).speak(text)))
    assert len(sound) == pytest.approx(800, abs=160)
    assert heard(sound) == text.split()


def test_a_file_is_written_and_the_speed_is_told(tmp_path: Path) -> None:
    told = io.StringIO()
    into_file(TextSpeaker(learnt()), ["red blue"], tmp_path / "a.wav", told)
    samples, rate = soundfile.read(tmp_path / "a.wav")
    assert rate == 8000
    assert heard(samples) == ["red", "blue"]
    assert re.search(r"0\.1 s of sound in .* real-time factor \d.*the first of it after", told.getvalue())


def test_samples_go_out_with_sixteen_bits() -> None:
    out = io.BytesIO()
    into_stream(TextSpeaker(learnt()), ["red blue", "", "green red"], out, None)
    samples = np.frombuffer(out.getvalue(), "<i2") / 32767
    each = [np.concatenate(list(TextSpeaker(learnt()).speak(text))) for text in ("red blue", "green red")]
    np.testing.assert_allclose(samples, np.concatenate(each), atol=1e-4)


def test_the_command_speaks_texts_and_lines(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["speak", str(run), "red blue", "--output", str(tmp_path / "a.wav"), "--quiet"]) == 0
    (tmp_path / "lines.txt").write_text("red blue\n")
    with (tmp_path / "lines.txt").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert main(["speak", str(run), "-", "--output", str(tmp_path / "b.wav"), "--quiet"]) == 0
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pink"], "'pink' has characters that this voice has not learned"),
        ([" "], "there is nothing in the text that could be said"),
        (["red " * 20], "has 22 tokens, and the voice was trained on at most 9"),
        (["red", "-"], "standard input is one text"),
        (["red", "--vocoder", "flow"], "this voice has no flow"),
    ],
)
def test_what_cannot_be_said_is_told_and_nothing_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    (tmp_path / "a.wav").write_bytes(b"something else")
    assert main(["speak", str(run), *words, "--output", str(tmp_path / "a.wav")]) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "a.wav").read_bytes() == b"something else"


@pytest.mark.parametrize(
    ("name", "told"), [("none/a.wav", "there is no folder"), ("a.sound", "cannot be written as sound")]
)
def test_a_file_that_cannot_be_written_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    assert main(["speak", str(run), "red", "--output", str(tmp_path / name)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, 3, ["red"]])
def test_what_is_no_text_is_a_sentence(text: object) -> None:
    speaker = TextSpeaker(FinetunedModel(tiny_encoder(), TOYS["synthesize"].task))
    with pytest.raises(UserError, match="expected a text, found"):
        list(speaker.speak(text))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected a piece of text for each stream, found"):
        Stream(speaker).push(text)  # type: ignore[arg-type]


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match="of the kind classify; only those of the kind synthesize can speak"):
        TextSpeaker(FinetunedModel(tiny_encoder(), TOYS["classify"].task))


def test_words_are_said_as_the_dictionary_writes_them_and_the_model_takes_it_along(tmp_path: Path) -> None:
    (tmp_path / "words.dict").write_text("AZURE  blue\nSKY  blue red\n", encoding="utf-8")
    voice = FinetunedModel(learnt().ernie, replace(learnt().task, dictionary=tmp_path / "words.dict"))
    voice.head = learnt().head
    voice.save(tmp_path / "model")
    (tmp_path / "words.dict").unlink()
    for asked, said in (("azure red", "blue red"), ("Sky", "blue red")):
        sound = np.concatenate(list(TextSpeaker.load(tmp_path).speak(asked)))
        np.testing.assert_array_equal(sound, np.concatenate(list(TextSpeaker(learnt()).speak(said))))


# ----------------------------------------------------------------------------------------- the streaming contract


def test_a_sentence_is_spoken_as_soon_as_it_is_whole() -> None:
    stream = Stream(TextSpeaker(Dotted(learnt())))
    assert len(stream.push("red ")) == 0
    assert len(stream.push("blue. Gr")) == 0  # what follows says whether a full stop ends a sentence
    first = stream.push("een ")
    np.testing.assert_array_equal(first, np.concatenate(list(TextSpeaker(learnt()).speak("red blue"))))
    rest = np.concatenate([stream.push("red"), stream.finish()])
    np.testing.assert_array_equal(rest, np.concatenate(list(TextSpeaker(learnt()).speak("green red"))))


def test_a_full_stop_inside_a_sentence_does_not_end_it() -> None:
    said = "It costs 3.5 dollars, says Dr. Smith."
    assert _complete_sentences("", f"{said} The") == ([], f"{said} The")  # the word that follows may still go on
    assert _complete_sentences("", f"{said} Then he") == ([said], "Then he")


SPOKEN = [
    "How many? ",
    "12. ",
    "He left at once. ",
    "\n",
    "Mr. Smith ",
    "你好世界，你好。",
    "再见世界。",
    "e.g. this ",
    "... ",
    "Why not?!",
]


@given(st.lists(st.sampled_from(SPOKEN), min_size=1, max_size=8).map("".join), st.data())
@settings(max_examples=200, deadline=None)
def test_sentences_are_the_same_in_whatever_pieces_the_text_comes(text: str, data: st.DataObject) -> None:
    at_once, rest = _complete_sentences("", text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    found, before = [], ""
    for piece in (text[i:j] for i, j in pairwise([0, *cuts, len(text)])):
        more, before = _complete_sentences(before, piece)
        found += more
    assert (found, before) == (at_once, rest)
    assert re.sub(r"\s", "", "".join([*found, before])) == re.sub(r"\s", "", text)


def test_states_are_merged_split_and_kept(tmp_path: Path) -> None:
    speaker = TextSpeaker(Dotted(learnt()))
    state, _ = speaker.push(speaker.begin(2), ["red ", "green "])
    one, other = state.chosen([0]), state.chosen([1])
    save_state(other.with_others([one]), tmp_path / "state.npz")
    both = load_state(TextSpeakerState, tmp_path / "state.npz")
    assert (both, both.texts) == (replace(state, texts=both.texts), ("green ", "red "))
    _, sounds = speaker.push(both, ["red.\n", "blue.\n"])
    for sound, text in zip(sounds, ("green red", "red blue"), strict=True):
        np.testing.assert_array_equal(sound, np.concatenate(list(TextSpeaker(learnt()).speak(text))))


def test_the_state_of_another_voice_is_a_sentence(tmp_path: Path) -> None:
    speaker, stranger = TextSpeaker(learnt()), TextSpeaker(FinetunedModel(tiny_encoder(), learnt().task))
    state, _ = speaker.push(speaker.begin(), ["red "])
    save_state(state, tmp_path / "kept.npz")
    kept = load_state(TextSpeakerState, tmp_path / "kept.npz")
    others = (
        lambda: stranger.push(kept, ["blue"]),
        lambda: stranger.finish(kept),
        lambda: stranger.begin().with_others([kept]),
    )
    for go_on in others:
        with pytest.raises(UserError, match="this state is of another model"):
            go_on()
    of_before = TextSpeakerState.of_arrays({"texts": np.array(["red "])})  # when no state said which voice it is of
    for own in (kept.chosen([0]), of_before):
        np.testing.assert_array_equal(speaker.finish(own)[1][0], np.concatenate(list(speaker.speak("red"))))


def test_every_stream_wants_its_piece_of_text() -> None:
    speaker = TextSpeaker(learnt())
    with pytest.raises(UserError, match="expected a list of 2 pieces, one for each stream, found 1"):
        speaker.push(speaker.begin(2), ["red "])


def test_a_stream_leaves_out_what_cannot_be_spoken_says_so_and_goes_on() -> None:
    stream = Stream(TextSpeaker(learnt()))
    with pytest.warns(Remark, match="left out: 'pink' has characters that this voice has not learned"):
        first = stream.push("red\npink\ngreen\n")
    rest = np.concatenate([stream.push("blue"), stream.finish()])
    alone = [np.concatenate(list(TextSpeaker(learnt()).speak(word))) for word in ("red", "green", "blue")]
    np.testing.assert_array_equal(np.concatenate([first, rest]), np.concatenate(alone))


class Dotted(FinetunedModel):
    """The voice, for texts with full stops, which it has not learnt: it does not say them."""

    def __init__(self, model: FinetunedModel):
        super().__init__(model.ernie, model.task)
        self.head = model.head
        self.task = Undotted(**vars(model.task))
        self.eval()


class Undotted(Synthesize):
    def example(self, row, tokenizer):  # type: ignore[no-untyped-def]
        return super().example(Row({"text": row["text"].replace(".", "")}), tokenizer)


# --------------------------------------------------------------------------------------------- the flow's teacher


def test_a_flow_learns_alone_from_the_voice_that_it_is_given(run: Path) -> None:
    toy = TOYS["synthesize"]
    bare = replace(toy.task, vocoder="flow", teacher=run, mean=(), deviation=(), pace=0.0, loudness=0.0)
    task = bare.adapted_to(toy.rows(3))
    assert task == replace(
        bare, **{name: getattr(toy.task, name) for name in ("mean", "deviation", "pace", "loudness")}
    )
    train, dev = (
        prepare(task, Split(n, toy.rows(*rows)), TOKENIZER) for n, *rows in (("train", 320, 0), ("dev", 2, 1))
    )
    settings = TrainConfig(epochs=4, batch=16, dropout=0.0, rate=RateConfig(peak=4e-3))
    model, evaluations = finetune(tiny_encoder(), task, train, dev, settings)
    assert evaluations[-1].loss < evaluations[0].loss / 2
    assert arrays(model.ernie).keys() == arrays(learnt().ernie).keys()
    for name, value in arrays(learnt().ernie).items():
        np.testing.assert_array_equal(arrays(model.ernie)[name], value)
    for name, value in arrays(learnt().head).items():
        np.testing.assert_array_equal(arrays(model.head)[name], value)
    one, other = (np.concatenate(list(TextSpeaker(m, "wavenet").speak("red blue"))) for m in (model, learnt()))
    np.testing.assert_array_equal(one, other)


def test_a_flow_is_told_by_its_teacher_what_that_tells_where_it_speaks(run: Path) -> None:
    toy = TOYS["synthesize"]
    task = replace(toy.task, vocoder="flow", teacher=run)
    model = FinetunedModel(tiny_encoder(), task)
    task.initialize(model.ernie, model.head)
    _set_dropout(model, 0.3)
    samples = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(4)]
    batch = pack(samples, np.array([(0, n, 0) for n in range(4)]))
    model.train()
    learning = model.loss(batch).total
    learning.backward()
    assert model.head.flow.networks[0].first.weight.grad is not None
    assert model.training and model.head.decoder.training and model.ernie.training
    model.eval()
    assert model.loss(batch).total.item() == learning.item()


def _gradients(end_to_end: bool, sound: bool) -> dict[str, np.ndarray]:
    """The gradients that a voice learns by, of the samples or without them; empty ones are left out."""
    toy = TOYS["synthesize"]
    task = replace(toy.task, end_to_end=end_to_end)
    samples = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(4)]
    batch = task.augmented(pack(samples, np.array([(0, n, 0) for n in range(4)])), training=True)
    model = FinetunedModel(tiny_encoder(), task)
    set_weights(model.ernie, arrays(learnt().ernie), "the voice")
    set_weights(model.head, arrays(learnt().head), "the voice")
    model.eval()
    hidden_TD = task.encode(model.ernie, model.head, batch, model.task_id)
    if sound:
        task.head_loss(model.head, hidden_TD, batch).total.backward()
    else:
        told, text, frames_NFM, steps = task.teacher_forced(model.head, hidden_TD, batch)
        frame_loss(told, text, frames_NFM, steps).backward()
    return {name: value.grad.numpy() for name, value in model.named_parameters() if value.grad is not None}


def test_only_end_to_end_the_decoder_and_the_encoder_learn_from_the_samples() -> None:
    apart, whole, frames = _gradients(False, True), _gradients(True, True), _gradients(False, False)
    vocoder = {name for name in apart if name not in frames}
    others = set(frames)
    assert set(apart) == set(whole) == vocoder | others
    for name in vocoder:
        np.testing.assert_allclose(apart[name], whole[name], rtol=1e-5, atol=1e-7)
    for name in others:
        np.testing.assert_allclose(apart[name], frames[name], rtol=1e-5, atol=1e-7)
    # What is clipped by itself is what learns from the samples alone.
    assert vocoder == {name for name in apart if name.startswith(("head.bridge.", "head.wavenet."))}
    assert TOYS["synthesize"].task.clipped_apart == ("bridge", "wavenet")
    assert not replace(TOYS["synthesize"].task, end_to_end=True).clipped_apart
    # Nothing lies behind the states that tell frames and the end, so these learn alike.
    differ = {name for name in others if np.abs(whole[name] - frames[name]).max() > 1e-3 * np.abs(frames[name]).max()}
    assert {name for name in others if "decoder.frames" in name or "decoder.last" in name}.isdisjoint(differ)
    assert any(name.startswith("head.decoder.behind") for name in differ)
    assert any(name.startswith("ernie") for name in differ)


def test_a_stretch_that_is_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(UserError, match=r"crop: 0\.01 s are less than one window of 0\.05 s"):
        Synthesize(crop=0.01, voice=VoiceConfig(reduction=1))


def test_a_flow_without_a_voice_to_learn_from_is_refused() -> None:
    with pytest.raises(UserError, match="teacher: a flow learns from a run"):
        Synthesize(vocoder="flow")
    with pytest.raises(UserError, match="teacher: a flow learns from a run"):
        Synthesize(teacher=Path("runs/voice"))


def test_a_teacher_that_does_not_fit_is_told(run: Path, tmp_path: Path) -> None:
    task = TOYS["synthesize"].task
    assert isinstance(task, Synthesize)
    other = replace(task.voice, reduction=4)
    with pytest.raises(UserError, match="a voice of another shape; only `flows` and `flow` may differ"):
        replace(task, vocoder="flow", teacher=run, voice=other).adapted_to([])
    with pytest.raises(UserError, match="holds no fine-tuned model"):
        replace(task, vocoder="flow", teacher=tmp_path).adapted_to([])
    FinetunedModel(tiny_encoder(), TOYS["classify"].task).save(tmp_path / "other" / "model")
    with pytest.raises(UserError, match="is no run of the kind synthesize whose vocoder is wavenet"):
        replace(task, vocoder="flow", teacher=tmp_path / "other").adapted_to([])


def test_a_seed_below_zero_is_a_sentence() -> None:
    with pytest.raises(UserError, match="seed: expected at least 0"):
        TextSpeaker(learnt(), seed=-1)


def test_a_voice_is_learnt_from_parquet_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    told = [json.loads(line) for line in (tmp_path / "run" / "trials" / "seed=0" / "dev.jsonl").open()]
    assert [record["right"] for record in told] == [{"path": "0.wav"}, {"path": "1.wav"}]
