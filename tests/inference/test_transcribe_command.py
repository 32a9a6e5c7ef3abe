"""Speech recognition of files and of live audio."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.kenlm_files import NEVER_BLUE, write_kenlm
from support.toys import COLORS, TOKENIZER, TOYS, tiny_encoder, tones

from ernie.audio.convert import resample
from ernie.audio.features import FeatureConfig
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.cli import main
from ernie.data.labeled.read import Split, read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.data.raw import Place
from ernie.decode import recognizer
from ernie.decode.chain import Chain
from ernie.decode.ctc import Hypothesis, stable_length
from ernie.decode.fusion import WordFusion
from ernie.decode.ngram import NgramModel
from ernie.decode.stream import Stream, load_state, save_state
from ernie.errors import NotFinite, Remark, UserError
from ernie.text.wordpiece import WordPiece
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from inference.captions import CaptionWriter
from inference.commands.transcribe_sound import from_files, from_samples
from inference.recognizer import SpeechRecognizer, SpeechRecognizerState
from inference.task_model import TaskModel
from tasks.downstream import sound
from tasks.downstream.metrics import wer
from tasks.downstream.scoring import score_answers

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("jiwer")
WORDS = ("blue", "red", "green")
SLOW = pytest.mark.slow  # trains a decoder beside CTC, for a minute or more


def trained_recognizer(decoder: str = "ctc") -> TaskModel:
    """A tiny model trained to recognize three tones, in chunks of two vectors."""
    return _trained(decoder)  # a cache of this function would have another model for a decoder that is named


@cache
def _trained(decoder: str) -> TaskModel:
    features = FeatureConfig(bins=20, normalize="global")
    task = replace(
        TOYS["transcribe"].task, max_len=60, features=features, encoder="chunks", chunk_size=2, left_chunks=4, layers=1
    )
    if decoder == "recurrent":
        task = replace(task, recurrent=RecurrentConfig(layers=2, units=32, ahead=1))
    elif decoder == "abstractions":
        task = replace(task, decoder="attention", abstractions=3)
    else:
        task = replace(task, decoder=decoder)
    pauses = 0.3 if decoder == "ctc" else 0.0
    rows = sentences(320, 0, pauses)
    task = task.adapted_to(rows)
    train, dev = (
        prepare(task, Split(*split), TOKENIZER) for split in (("train", rows), ("dev", sentences(40, 1, pauses)))
    )
    model, _ = finetune(
        tiny_encoder(),
        task,
        train,
        dev,
        TrainConfig(epochs=10 if decoder in ("ctc", "recurrent") else 25, batch=16, lr=LRScheduleConfig(peak=4e-3)),
    )
    return model


def sentences(count: int, seed: int, pauses: float) -> list[Row]:
    """Rows of two to four words, whose number and order cannot be guessed; after this share of words is a pause."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = [str(word) for word in rng.choice(WORDS, rng.integers(2, 5))]
        seconds = [float(rng.uniform(0, 0.4)) if rng.random() < pauses else 0.0 for _ in words]
        rows.append(Row({"audio": sound_of(words, seconds, rng), "text": " ".join(words)}))
    return rows


def sound_of(words: Sequence[str], pauses: Sequence[float], rng: np.random.Generator) -> dict[str, Any]:
    """A tone for each word, each followed by so many seconds of noise that is as quiet as what is below the tones."""
    pieces = []
    for word, pause in zip(words, pauses, strict=True):
        pieces += [tones([word], rng)["array"], rng.normal(0, 0.01, round(8000 * pause)).round(4).tolist()]
    return {"array": [sample for piece in pieces for sample in piece], "sampling_rate": 8000}


def speech(words: tuple[str, ...] = WORDS, seed: int = 5) -> np.ndarray:
    return np.array(tones(words, np.random.default_rng(seed))["array"], np.float32)


def test_a_file_becomes_one_line_with_the_time_of_each_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    out, log = io.StringIO(), io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "a.wav")], True, out, log)
    cells = out.getvalue().split()
    assert tuple(cells[1::2]) == WORDS
    times = [float(cell) for cell in cells[::2]]
    assert times == sorted(times)
    assert all(abs(time - 0.1 * n) <= 0.1 for n, time in enumerate(times))
    assert re.search(r"0\.3 s of sound in .* real-time factor \d", log.getvalue())


def test_a_long_file_is_read_in_pieces_with_the_same_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "a.wav", speech((*WORDS, *reversed(WORDS))), 8000)
    whole, in_pieces = io.StringIO(), io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "a.wav")], True, whole, None)
    monkeypatch.setattr(recognizer, "_PIECE", 0.1)
    from_files(trained_recognizer(), [str(tmp_path / "a.wav")], True, in_pieces, None)
    assert in_pieces.getvalue() == whole.getvalue() != "\n"


def test_the_files_after_one_that_cannot_be_transcribed_are_transcribed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("text.wav", "tiny.wav", "a.wav")]
    files[0].write_text("no sound")
    soundfile.write(files[1], speech()[:50], 8000)
    soundfile.write(files[2], speech(), 8000)
    out = io.StringIO()
    with (
        pytest.warns(Remark, match=r"tiny\.wav: the sound has 50 samples, fewer than one window"),
        pytest.raises(
            UserError, match=r"^2 files could not be transcribed; the first: .*text\.wav: cannot be read as s"
        ),
    ):
        from_files(trained_recognizer(), list(map(str, files)), False, out, None)
    assert out.getvalue() == "\n\nblue red green\n"
    with pytest.raises(UserError, match=r"is a folder; give its files, such as .*/\*\.wav$"):
        from_files(trained_recognizer(), [str(files[2]), str(tmp_path)], False, out, None)


def test_another_sampling_rate_is_resampled_and_reported(tmp_path: Path) -> None:
    from scipy.signal import resample_poly

    soundfile.write(tmp_path / "b.wav", resample_poly(speech(), 2, 1), 16000)
    out, log = io.StringIO(), io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "b.wav")], False, out, log)
    assert out.getvalue() == "blue red green\n"
    assert "the sound was resampled from 16,000 to 8,000" in log.getvalue()


@pytest.mark.parametrize(
    "decoder", ["ctc", *(pytest.param(name, marks=SLOW) for name in ("attention", "abstractions")), "recurrent"]
)
@pytest.mark.parametrize("size", [62, 333, 100_000])
def test_live_audio_is_transcribed_as_it_arrives(size: int, decoder: str) -> None:
    data, out = (32767 * speech()).astype("<i2").tobytes(), io.StringIO()
    source = io.BufferedReader(Slow(data, size))  # type: ignore[arg-type]
    from_samples(trained_recognizer(decoder), source, False, out, None)
    assert out.getvalue() == "blue red green\n"


@pytest.mark.parametrize("size", [2, 333, 100_000])
def test_live_audio_gets_the_same_times_as_a_file(tmp_path: Path, size: int) -> None:
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    from_file, out = io.StringIO(), io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "a.wav")], True, from_file, None)
    data = (32767 * speech()).astype("<i2").tobytes()
    from_samples(trained_recognizer(), io.BufferedReader(Slow(data, size)), True, out, None)  # type: ignore[arg-type]
    assert out.getvalue() == from_file.getvalue()
    assert re.fullmatch(r"\d\.\d\d blue  \d\.\d\d red  \d\.\d\d green\n", out.getvalue())


def test_words_begin_and_end_where_they_were_put_in_the_sound() -> None:
    words, model = (*WORDS, *WORDS), trained_recognizer()
    (answer,) = model.predict([{"audio": {"array": speech(words), "sampling_rate": 8000}}])
    assert answer["transcript"] == " ".join(words)
    # Each tone lasts 0.1 s, and is quiet for the first and the last sixth of it.
    assert answer["seconds"] == pytest.approx([0.1 * n for n in range(6)], abs=0.035)
    assert answer["ends"] == pytest.approx([0.1 * n for n in range(1, 7)], abs=0.035)


def test_a_model_is_less_confident_of_words_that_another_speaker_says_something_else_during() -> None:
    alone, other = speech(WORDS * 4), speech((*WORDS[1:], *WORDS[:1]) * 4)
    rows = [{"audio": {"array": own, "sampling_rate": 8000}} for own in (alone, alone + 0.7 * other)]
    clear, disturbed = (answer["confidences"] for answer in trained_recognizer().predict(rows))
    assert all(0 < confidence <= 1 for confidence in (*clear, *disturbed))
    assert np.mean(disturbed) < np.mean(clear) - 0.1


LINES = 5


@cache
def with_pauses() -> np.ndarray:
    """Lines of three words, with 0.4 s between them; as samples of 16 bits that files and microphones give alike."""
    pauses = [0.4 if n % 3 == 2 else 0.0 for n in range(3 * LINES)]
    sound = np.array(sound_of(WORDS * LINES, pauses, np.random.default_rng(5))["array"])
    return (32767 * sound).astype("<i2")


def ending_lines() -> TaskModel:
    model = copy(trained_recognizer())
    model.task = replace(model.task, pause=0.2)
    return model


@pytest.mark.parametrize("size", [62, 333, 100_000])
@pytest.mark.parametrize("times", [False, True])
def test_lines_end_after_pauses_live_and_in_a_file_and_no_word_is_lost(tmp_path: Path, size: int, times: bool) -> None:
    soundfile.write(tmp_path / "a.wav", with_pauses(), 8000)
    whole, from_file, live = io.StringIO(), io.StringIO(), io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "a.wav")], times, whole, None)
    from_files(ending_lines(), [str(tmp_path / "a.wav")], times, from_file, None)
    source = io.BufferedReader(Slow(with_pauses().tobytes(), size))  # type: ignore[arg-type]
    from_samples(ending_lines(), source, times, live, None)
    assert live.getvalue() == from_file.getvalue()
    assert from_file.getvalue().split() == whole.getvalue().split()
    said = re.sub(r"[\d.]+ ", "", from_file.getvalue()) if times else from_file.getvalue()
    assert [line.split() for line in said.splitlines()] == [[*WORDS]] * LINES


@pytest.mark.parametrize("kind", ["srt", "vtt", "jsonl"])
def test_captions_and_json_lines_of_live_audio_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    soundfile.write(tmp_path / "a.wav", with_pauses(), 8000)
    from_file, live = io.StringIO(), io.StringIO()
    from_files(ending_lines(), [str(tmp_path / "a.wav")], False, from_file, None, CaptionWriter(kind, from_file))
    source = io.BytesIO(with_pauses().tobytes())
    from_samples(ending_lines(), source, False, live, None, captions=CaptionWriter(kind, live))
    if kind != "jsonl":
        assert live.getvalue() == from_file.getvalue()
        assert live.getvalue().startswith({"srt": "1\n00:00:00,0", "vtt": "WEBVTT\n\n00:00:00.0"}[kind])
        return
    records = [json.loads(line) for line in from_file.getvalue().splitlines()]
    assert all(record.pop("file") == str(tmp_path / "a.wav") for record in records)
    assert [json.loads(line) for line in live.getvalue().splitlines()] == records
    assert [record["text"] for record in records] == [" ".join(WORDS)] * LINES
    words = [word for record in records for word in record["words"]]
    assert [word["word"] for word in words] == [*WORDS] * LINES
    begins = [0.1 * n + 0.4 * (n // 3) for n in range(3 * LINES)]
    assert [word["begin"] for word in words] == pytest.approx(begins, abs=0.06)
    assert all(record["begin"] < record["end"] and 0 < record["confidence"] <= 1 for record in records)


@pytest.mark.parametrize(
    ("sound", "note"),
    [(np.zeros(8000), "silent"), (np.sign(speech()), "clipped"), (speech(), "")],
)
def test_silent_or_clipped_live_audio_is_noted(sound: np.ndarray, note: str) -> None:
    data, log = (32767 * sound).astype("<i2").tobytes(), io.StringIO()
    from_samples(trained_recognizer(), io.BytesIO(data), False, io.StringIO(), log)
    notes = [line for line in log.getvalue().splitlines() if line.startswith("note:")]
    assert notes == ([f"note: standard input: the sound is {note}"] if note else [])


@SLOW
def test_a_global_decoder_transcribes_files_but_does_not_stream(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    out = io.StringIO()
    from_files(trained_recognizer("global"), [str(tmp_path / "a.wav")], True, out, None)
    cells = out.getvalue().split()
    assert tuple(cells[1::2]) == WORDS
    assert all(abs(float(time) - 0.1 * n) <= 0.1 for n, time in enumerate(cells[::2]))
    by_both, same = deepcopy(trained_recognizer("global")), io.StringIO()
    by_both.task = replace(by_both.task, beam=4)
    from_files(by_both, [str(tmp_path / "a.wav")], True, same, None)
    assert same.getvalue() == out.getvalue()
    with pytest.raises(UserError, match="decoder: global looks at whole sounds"):
        SpeechRecognizer(trained_recognizer("global")).begin()


class Slow(io.RawIOBase):
    """Bytes that come a few at a time."""

    def __init__(self, data: bytes, size: int):
        self._data, self._size = data, size

    def readable(self) -> bool:
        return True

    def readinto(self, into) -> int:
        size = min(self._size, len(into), len(self._data))
        into[:size], self._data = self._data[:size], self._data[size:]
        return size


def test_words_come_before_the_sound_ends_and_a_stream_can_be_saved_to_a_file(tmp_path: Path) -> None:
    samples = speech((*WORDS, *WORDS[::-1][1:]))
    stream = Stream(SpeechRecognizer(trained_recognizer()))
    early = stream.push(samples[:2800])
    assert early.split()[:1] == ["blue"]
    save_state(stream.state, tmp_path / "kept.npz")
    late = stream.push(samples[2800:]) + stream.finish()
    other = Stream(SpeechRecognizer(trained_recognizer()))
    other.state = load_state(SpeechRecognizerState, tmp_path / "kept.npz")
    assert other.push(samples[2800:]) + other.finish() == late


def test_the_command_transcribes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained_recognizer().save(tmp_path / "model")
    for name, words in (("a.wav", WORDS), ("b.flac", WORDS[::-1])):
        soundfile.write(tmp_path / name, speech(words), 8000)
    files = [str(tmp_path / name) for name in ("a.wav", "b.flac")]
    assert main(["transcribe", str(tmp_path / "model"), *files]) == 0
    printed = capsys.readouterr()
    assert printed.out == "blue red green\ngreen red blue\n"
    assert printed.err.count("real-time factor") == 2


def test_a_changed_recording_under_the_same_name_changes_the_fingerprint(tmp_path: Path) -> None:
    task, row = trained_recognizer().task, Row({"audio": str(tmp_path / "a.wav")})
    assert task.file_fingerprint(row) == b""  # the missing file is reported when it is read
    soundfile.write(tmp_path / "a.wav", samples := speech(), 8000)
    before = task.file_fingerprint(row)
    assert task.file_fingerprint(row) == before
    samples[len(samples) // 2] += 0.1  # same length, and unchanged at both ends
    soundfile.write(tmp_path / "a.wav", samples, 8000)
    assert task.file_fingerprint(row) != before
    # The samples are part of the row.
    assert task.file_fingerprint(Row({"audio": {"bytes": b"RIFF", "path": "a.wav"}})) == b""


def test_a_missing_file_is_reported_before_any_is_transcribed(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    out = io.StringIO()
    with pytest.raises(UserError, match=r"away\.wav: there is no such file"):
        from_files(trained_recognizer(), [str(tmp_path / name) for name in ("a.wav", "away.wav")], False, out, None)
    assert out.getvalue() == ""


def test_a_list_of_files_is_transcribed_line_by_line(tmp_path: Path) -> None:
    from inference.rows import input_rows

    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    (tmp_path / "files.txt").write_text("a.wav\na.wav\n")
    rows = input_rows(str(tmp_path / "files.txt"), RowOptions(), trained_recognizer().task)
    assert [answer["transcript"] for answer in trained_recognizer().predict(rows)] == ["blue red green"] * 2


def test_audio_data_sets_are_read_from_disk_or_from_parquet_with_bytes_or_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    named = datasets.Dataset.from_dict({"audio": [str(tmp_path / "a.wav")], "text": ["blue red green"]})
    audio = named.cast_column("audio", datasets.Audio())
    audio.to_parquet(tmp_path / "names.parquet")
    audio.save_to_disk(str(tmp_path / "saved"))
    embedded = audio.cast_column("audio", datasets.Audio(decode=False)).map(
        lambda row: {"audio": {"bytes": (tmp_path / "a.wav").read_bytes(), "path": "a.wav"}}
    )
    embedded.to_parquet(tmp_path / "bytes.parquet")
    monkeypatch.chdir(tmp_path)
    for source in ("saved", "names.parquet", "bytes.parquet"):
        if source == "bytes.parquet":
            (tmp_path / "a.wav").unlink()
        (answer,) = trained_recognizer().predict(read_split("test", [source], RowOptions()).rows)
        assert answer["transcript"] == "blue red green", source
    row = read_split("test", ["bytes.parquet"], RowOptions()).rows[0]
    row["audio"]["bytes"] = b"no sound"
    with pytest.raises(UserError, match=r"^a\.wav: cannot be read as sound"):
        trained_recognizer().task.example(row, TOKENIZER)


def test_samples_in_a_cell_are_used_and_their_source_file_is_not_read(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(WORDS[::-1]), 8000)
    for path in ("gone.wav", str(tmp_path / "a.wav")):
        row = Row({"audio": {"path": path, "array": speech(), "sampling_rate": 8000}})
        np.testing.assert_array_equal(trained_recognizer().task.wave(row).samples, speech())
        assert trained_recognizer().task.file_fingerprint(row) == b""
    row = Row({"audio": {"path": str(tmp_path / "a.wav"), "array": None}})
    assert len(trained_recognizer().task.wave(row).samples) == len(speech())
    assert trained_recognizer().task.file_fingerprint(row) != b""


def test_a_cell_may_hold_a_path_object(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    task, text = trained_recognizer().task, Row({"audio": str(tmp_path / "a.wav")})
    for cell in (tmp_path / "a.wav", {"path": tmp_path / "a.wav"}):
        np.testing.assert_array_equal(task.wave(Row({"audio": cell})).samples, task.wave(text).samples)
        assert task.file_fingerprint(Row({"audio": cell})) == task.file_fingerprint(text)


def test_normalization_statistics_of_many_sounds_come_from_a_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, task = np.random.default_rng(0), replace(TOYS["transcribe"].task, features=FeatureConfig(bins=20))
    rows = [
        Row({"audio": {"array": loudness * rng.standard_normal(2000), "sampling_rate": 8000}, "text": "red"})
        for loudness in np.linspace(0.01, 0.1, 7)
    ]
    full = task.adapted_to(rows)
    monkeypatch.setattr(sound, "_SAMPLE", 2)
    assert task.adapted_to(rows).mean in {task.adapted_to([rows[i], rows[j]]).mean for j in range(7) for i in range(j)}
    assert task.adapted_to(rows).mean != full.mean


@pytest.mark.parametrize("count", [99, 100, 101])
def test_that_subset_does_not_depend_on_how_rows_alternate(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "_SAMPLE", 50)
    rng, task = np.random.default_rng(0), replace(TOYS["transcribe"].task, features=FeatureConfig(bins=20))
    two = [0.01 * rng.standard_normal(400), 0.1 * rng.standard_normal(400)]  # 20 dB apart, 4.6 in log power
    rows = [Row({"audio": {"array": two[i % 2], "sampling_rate": 8000}, "text": "red"}) for i in range(count)]
    found, all_rows = np.array(task.adapted_to(rows).mean), np.array(task.adapted_to(rows[:50]).mean)
    assert np.abs(found - all_rows).max() < 1


def test_prepared_training_examples_read_audio_lazily(
    tmp_path: Path,
) -> None:
    soundfile.write(tmp_path / "long.wav", np.tile(speech(), 8), 8000)
    row = Row({"audio": str(tmp_path / "long.wav"), "text": "blue red green"})
    task = replace(TOYS["transcribe"].task, max_len=512)
    (sample,) = task.training_example(row, TOKENIZER).samples
    assert len(pickle.dumps(sample)) < 5000 + 16 * len(sample)
    assert sample.sound is not None
    np.testing.assert_array_equal(sample.sound(), task.wave(row).samples)


def test_input_that_cannot_be_transcribed_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained_recognizer().save(tmp_path / "model")
    (tmp_path / "no.wav").write_text("no sound")
    assert main(["transcribe", str(tmp_path / "model"), str(tmp_path / "no.wav"), "--quiet"]) == 2
    assert "no.wav: cannot be read as sound" in capsys.readouterr().err
    assert main(["transcribe", str(tmp_path / "model"), "-", "x.wav"]) == 2
    assert "standard input is one sound" in capsys.readouterr().err


@SLOW
@pytest.mark.parametrize("decoder", ["attention", "abstractions"])
def test_an_attention_decoder_reads_the_sound_beyond_the_ctc_output(decoder: str) -> None:
    model = trained_recognizer(decoder)
    rows = TOYS["transcribe"].rows(30, 9)
    references = [row["text"] for row in rows]
    assert wer(references, [answer["transcript"] for answer in model.predict(rows)]) < 0.15
    keys = model.head.writer.decoder.layers[0].source_k
    before = keys.weight.numpy()
    keys.weight.set_value(np.zeros_like(before))  # attention is uniform over a segment
    values = model.head.writer.decoder.layers[0].source_v
    kept = values.weight.numpy()
    values.weight.set_value(np.zeros_like(kept))  # and reads nothing
    blind = wer(references, [answer["transcript"] for answer in model.predict(rows)])
    keys.weight.set_value(before)
    values.weight.set_value(kept)
    assert blind > 0.3


def test_slow_reading_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    split = Split("train", TOYS["transcribe"].rows(4, 0))
    prepare(TOYS["transcribe"].task, split, TOKENIZER, messages.append)
    assert messages == []
    monkeypatch.setattr("finetune.prepare._PROGRESS_INTERVAL", -1.0)
    prepare(TOYS["transcribe"].task, split, TOKENIZER, messages.append)
    assert [line.partition(",")[0] for line in messages] == [f"train: {n} of 4 rows read" for n in range(4)]


def test_a_model_of_whole_recordings_does_not_stream() -> None:
    model = TaskModel(trained_recognizer().ernie, TOYS["transcribe"].task)
    with pytest.raises(UserError, match=r"whole recordings only.*task\.encoder: chunks"):
        SpeechRecognizer(model).begin()


@pytest.mark.parametrize(
    ("decoder", "name"),
    [("ctc", "out.weight"), *(pytest.param("attention", name, marks=SLOW) for name in ("out.weight", "writer.bias"))],
)
def test_nan_weights_raise_an_error_instead_of_an_empty_transcript(decoder: str, name: str) -> None:
    model = deepcopy(trained_recognizer(decoder))
    weight = dict(model.head.named_parameters())[name]
    weight.set_value(np.full(weight.shape, np.nan, np.float32))
    with pytest.raises(NotFinite, match="weights are damaged"):
        list(model.predict([{"audio": tones(WORDS, np.random.default_rng(5))}]))
    stream = Stream(SpeechRecognizer(model))
    with pytest.raises(NotFinite, match="weights are damaged"):
        stream.push(speech())
        stream.finish()


def test_push_requires_one_piece_of_sound_per_stream() -> None:
    recognizer = SpeechRecognizer(trained_recognizer())
    with pytest.raises(UserError, match="expected a list of 1 piece, one for each stream, found 2"):
        recognizer.push(recognizer.begin(), [speech(), speech()])


def test_a_state_of_another_decoder_is_refused() -> None:
    recognizer = SpeechRecognizer(trained_recognizer())
    chain = Chain(recognizer)
    with pytest.raises(UserError, match=r"expected a SpeechRecognizerState, which begin\(\) .*, found ChainState"):
        recognizer.push(chain.begin(), [speech()])
    with pytest.raises(UserError, match=r"expected a ChainState, which begin\(\) .*, found SpeechRecognizerState"):
        chain.finish(recognizer.begin())
    with pytest.raises(UserError, match="this state is of a chain of 1, and this one has 2"):
        Chain(recognizer, recognizer).push(chain.begin(), [speech()])


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match="of the kind classify"):
        SpeechRecognizer(TaskModel(trained_recognizer().ernie, TOYS["classify"].task))


@pytest.mark.parametrize(
    ("cell", "text", "message"),
    [
        ({"array": [0.1] * 100, "sampling_rate": 8000}, "blue", "has 100 samples, fewer than one window, 200"),
        ({"array": [0.1] * 80_000, "sampling_rate": 8000}, "blue", "cut the sound where nothing is said, or"),
        ({"array": [0.1] * 400, "sampling_rate": 8000}, "blue red", "2 tokens need 2 vectors, and the sound gives 1"),
        ({"array": [0.1] * 2400, "sampling_rate": 8000}, "purple", "the vocabulary lacks characters of 'purple'"),
        ({"array": [], "sampling_rate": 8000}, "blue", "holds no samples"),
        ({"array": "x", "sampling_rate": 8000}, "blue", "array: expected numbers"),
        ({"array": [0.1]}, "blue", "'array' and 'sampling_rate'"),
        ("missing.wav", "blue", "missing.wav: there is no such file"),
        ("what was said " * 400, "blue", "what was said : there is no such file"),
        (["a.wav"], "blue", "column 'audio': expected text, found ['a.wav']"),
        ({"array": [0.1] * 2400, "sampling_rate": 8000}, " ", "the transcript is empty"),
    ],
)
def test_rows_that_cannot_be_trained_on_raise_an_error(cell, text: str, message: str) -> None:

    with pytest.raises(UserError, match=re.escape(message)):
        TOYS["transcribe"].task.training_example(Row({"audio": cell, "text": text}), TOKENIZER)


def test_silent_rows_with_an_empty_transcript_count_as_what_is_written_there() -> None:
    task = TOYS["transcribe"].task
    rows = [*TOYS["transcribe"].rows(3, 0), Row({"audio": {"array": [0.0] * 2400, "sampling_rate": 8000}, "text": " "})]
    split = prepare(task, Split("test", rows), TOKENIZER, skip=True)
    assert len(split) == 4
    assert any("1 row with an empty transcript, where each word that is written counts" in it for it in split.remarks)
    said = [row["text"] for row in rows[:3]]
    words = sum(len(text.split()) for text in said)
    for last, errors in (("", 0), ("blue red", 2)):
        answers = [{"transcript": text} for text in (*said, last)]
        assert score_answers(task, split.rows, answers)["wer"] == pytest.approx(errors / words)
    assert score_answers(task, split.rows, [{"transcript": ""}] * 4) == {"wer": 1, "cer": 1}


def test_rates_can_ignore_punctuation_and_count_case() -> None:
    task, row = TOYS["transcribe"].task, Row({"text": "Well, 'so'"})
    assert score_answers(task, [row], [{"transcript": "well so"}])["wer"] == pytest.approx(2 / 3)
    changed = task.decoding_with({"scoring": replace(task.scoring, punctuation=False)}, TOKENIZER)
    assert score_answers(changed, [row], [{"transcript": "well so"}])["wer"] == 0
    changed = replace(task, metrics=("deletions", "wer"))
    assert score_answers(changed, [row], [{"transcript": "so"}]) == {"deletions": 2 / 3, "wer": 1}
    changed = replace(task, scoring=replace(task.scoring, punctuation=False, case=True))
    assert score_answers(changed, [row], [{"transcript": "well so"}])["wer"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("beam", [1, 3])
def test_special_tokens_are_never_predicted(beam: int) -> None:
    model = deepcopy(trained_recognizer())
    model.task = replace(model.task, beam=beam)
    bias = model.head.out.bias
    special = [TOKENIZER.unk_id, TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.mask_id]
    raised = np.zeros(bias.shape, np.float32)
    raised[special] = 99
    paddle.assign(bias + paddle.to_tensor(raised), bias)
    (answer,) = model.predict([{"audio": tones(WORDS, np.random.default_rng(5))}])
    assert answer["transcript"] == " ".join(WORDS)
    stream = Stream(SpeechRecognizer(model))
    assert stream.push(speech()) + stream.finish() == " ".join(WORDS)
    assert not {spike.token for spike in stream.state.tokens.stream_states[0].spikes} & {*special}


def test_beam_search_agrees_with_greedy_on_clear_sound_and_a_language_model_can_overrule_it(
    tmp_path: Path,
) -> None:
    model = trained_recognizer()
    row = {"audio": tones(WORDS, np.random.default_rng(1))}
    (greedy,) = model.predict([row])
    (beam,) = with_task_changes(model, beam=8).predict([row])
    assert beam["transcript"] == greedy["transcript"] == "blue red green"
    NgramModel.learn([["red", "green"]] * 50, 2).save(tmp_path / "never-blue.arpa")
    (overruled,) = with_task_changes(model, beam=8, language_model=tmp_path / "never-blue.arpa", alpha=20.0).predict(
        [row]
    )
    assert "blue" not in overruled["transcript"]


def test_live_audio_may_have_another_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (resample(speech(), 8000, 16000) * 32767).astype("<i2").tobytes()
    out, log = io.StringIO(), io.StringIO()
    source = io.BufferedReader(Slow(data, 333))  # type: ignore[arg-type]
    from_samples(trained_recognizer(), source, False, out, log, rate=16000)
    assert out.getvalue() == "blue red green\n"
    assert f"standard input: {len(speech()) / 8000:.1f} s of sound" in log.getvalue()
    for words, message in (
        (["a.wav", "--sample-rate", "8000"], "--sample-rate: files say"),
        (["-", "--sample-rate", "0"], "--sample-rate: expect"),
        (["-", "--rate", "8000"], "--rate: was renamed to --sample-rate"),
        (["a.wav", "--language", "a.arpa"], "--language: was renamed to --language-model"),
    ):
        assert main(["transcribe", str(tmp_path), *words]) == 2
        assert message in capsys.readouterr().err


@SLOW
def test_a_language_model_can_overrule_attention_to_segments(tmp_path: Path) -> None:
    model = trained_recognizer("attention")
    row = {"audio": tones(WORDS, np.random.default_rng(1))}
    (beam,) = with_task_changes(model, beam=4).predict([row])
    assert beam["transcript"] == "blue red green"
    NgramModel.learn([["red", "green"]] * 50, 2).save(tmp_path / "never-blue.arpa")
    changed = with_task_changes(model, beam=4, language_model=tmp_path / "never-blue.arpa", alpha=20.0)
    (overruled,) = changed.predict([row])
    assert "blue" not in overruled["transcript"]
    assert "red" in overruled["transcript"]
    stream = Stream(SpeechRecognizer(changed))
    assert stream.push(speech()) + stream.finish() == overruled["transcript"]


def test_files_are_transcribed_with_the_search_that_the_command_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained_recognizer().save(tmp_path / "model")
    soundfile.write(tmp_path / "a.wav", speech(), 8000)
    NgramModel.learn([["red", "green"]] * 50, 2).save(tmp_path / "never-blue.arpa")
    command = ["transcribe", str(tmp_path / "model"), str(tmp_path / "a.wav"), "--quiet"]
    language = ["--language-model", str(tmp_path / "never-blue.arpa"), "--alpha", "20"]
    assert main([*command, "--beam", "8", *language]) == 0
    overruled = capsys.readouterr().out
    assert "blue" not in overruled
    assert "green" in overruled
    for words, message in (
        (language, "language_model: it ranks hypotheses; keep several"),
        (["--alpha", "1"], "alpha and beta rank hypotheses; keep several"),
        (["--beam", "8", "--alpha", "1"], "alpha weights a language model, and there is none"),
        (["--beam", "0"], "beam: expected at least 1, found 0"),
        (["--beam", "8", "--language-model", "none.arpa"], "none.arpa: cannot be read: No such file or directory"),
    ):
        assert main([*command, *words]) == 2
        assert message in capsys.readouterr().err


def test_rows_that_cannot_be_recognized_in_full_are_counted_when_they_are_scored() -> None:
    task = TOYS["transcribe"].task
    sounds = {
        "long": {"array": [0.1] * 2400, "sampling_rate": 8000},
        "short": {"array": [0.1] * 400, "sampling_rate": 8000},
    }
    rows = [{"audio": sounds["long"], "text": "purple"}, {"audio": sounds["short"], "text": "blue red"}]
    prepared = prepare(task, Split("dev", list(map(Row, rows))), TOKENIZER)
    remarks = "\n".join(prepared.remarks)
    assert "dev: 1 row with characters in a transcript that the vocabulary lacks, which count as errors" in remarks
    assert "dev: 1 row with a sound that is shorter than what its transcript says" in remarks


def with_task_changes(model: TaskModel, **changes) -> TaskModel:
    changed = TaskModel(model.ernie, replace(model.task, **changes))
    changed.head = model.head
    return changed


def test_a_language_model_is_saved_with_its_model(tmp_path: Path) -> None:
    NgramModel.learn([["red", "green"]] * 50, 2).save(tmp_path / "never-blue.arpa")
    model = with_task_changes(trained_recognizer(), beam=8, language_model=tmp_path / "never-blue.arpa", alpha=20.0)
    row = {"audio": tones(WORDS, np.random.default_rng(1))}
    before = list(model.predict([row]))
    model.save(tmp_path / "model")
    (tmp_path / "never-blue.arpa").unlink()
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    again = TaskModel.load(tmp_path / "elsewhere", precision="fp32")
    assert list(again.predict([row])) == before
    again.save(tmp_path / "elsewhere")  # onto itself
    assert list(TaskModel.load(tmp_path / "elsewhere", precision="fp32").predict([row])) == before


def test_a_binary_file_of_kenlm_ranks_as_the_arpa_file_does_in_streams_and_saved_with_the_model(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    NgramModel.learn(NEVER_BLUE, 2).save(tmp_path / "never-blue.arpa")
    write_kenlm("never-blue", tmp_path / "never-blue.bin")
    row, answers = {"audio": tones(WORDS, np.random.default_rng(1))}, {}
    for kind in ("arpa", "bin"):
        model = with_task_changes(
            trained_recognizer(),
            beam=8,
            n_best=4,
            language_model=tmp_path / f"never-blue.{kind}",
            alpha=20.0,
            beta=20.0,
        )
        (answers[kind],) = model.predict([row])
    scores = {kind: [each.pop("score") for each in answer["alternatives"]] for kind, answer in answers.items()}
    assert answers["bin"] == answers["arpa"]
    assert scores["bin"] == pytest.approx(scores["arpa"], abs=1e-3)
    assert "blue" not in answers["bin"]["transcript"]
    stream = Stream(SpeechRecognizer(model))
    assert stream.push(speech()) + stream.finish() == answers["bin"]["transcript"]
    model.save(tmp_path / "model")
    (tmp_path / "never-blue.bin").unlink()
    (again,) = TaskModel.load(tmp_path / "model", precision="fp32").predict([row])
    assert again["transcript"] == answers["bin"]["transcript"]
    with_default = with_task_changes(model, language_model=tmp_path / "model" / "never-blue.bin", beta=None)
    assert with_default.task.beam_search(TOKENIZER, TOKENIZER.pad_id).scorers


def test_a_kenlm_file_without_its_words_needs_beta_before_training(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    task = replace(TOYS["transcribe"].task, beam=4, language_model=write_kenlm("unlisted", tmp_path / "words.bin"))
    with pytest.raises(UserError, match="has no list of its words"):
        task.check_tokenizer(TOKENIZER)
    replace(task, beta=1.0).check_tokenizer(TOKENIZER)


def test_the_language_model_scores_a_whole_transcript_however_often_its_beginning_was_set_aside(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    learned = [[str(word) for word in rng.choice(WORDS, rng.integers(1, 9))] for _ in range(60)]
    NgramModel.learn(learned, 3).save(tmp_path / "words.arpa")
    model = NgramModel.load(tmp_path / "words.arpa")
    text, blank = [str(word) for word in rng.choice(WORDS, 40)], 0
    task = replace(TOYS["transcribe"].task, beam=4, language_model=tmp_path / "words.arpa", alpha=0.7, beta=0.3)
    beam = replace(
        task.beam_search(TOKENIZER, blank), width=1
    )  # a single hypothesis, all of which is set aside but its end
    scores = np.full((2 * len(text), len(TOKENIZER.tokens)), -30.0)  # each word at one vector, then a blank
    scores[np.arange(0, len(scores), 2), [TOKENIZER.tokens.index(word) for word in text]] = 30
    scores[1::2, blank] = 30
    hypotheses: tuple[Hypothesis, ...] = (Hypothesis(),)
    dropped = 0
    for first in range(0, len(scores), 10):
        hypotheses = beam.extend(hypotheses, scores[first : first + 10], first)
        hypotheses, more = beam.trim(hypotheses, stable_length(hypotheses))
        dropped += more
    assert dropped > 30
    best = beam.best(hypotheses)
    found = best.lm_score + beam.end_bonus(best.tokens)
    assert found == pytest.approx(0.7 * model.total(text) + 0.3 * len(text), rel=1e-9)


def test_a_language_model_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file, row = tmp_path / "model.arpa", {"audio": tones(WORDS, np.random.default_rng(1))}
    model = with_task_changes(trained_recognizer(), beam=8, language_model=file, alpha=20.0)
    for words, has_blue in ((["red", "green"], False), (["blue", "red", "green"], True)):
        NgramModel.learn([words] * 50, 2).save(file)
        (answer,) = model.predict([row])
        assert ("blue" in answer["transcript"]) == has_blue


def test_a_language_model_without_a_beam_is_refused() -> None:
    with pytest.raises(UserError, match="language_model: it ranks hypotheses"):
        replace(TOYS["transcribe"].task, language_model="model.arpa")


def test_in_chunks_only_the_attention_context_must_fit_the_encoders_positions() -> None:
    whole = replace(TOYS["transcribe"].task, max_len=400, features=FeatureConfig())
    with pytest.raises(UserError, match=r"^task\.max_len: 400 tokens, but mine has 80 positions$"):
        whole.check_positions(80, "mine")
    chunks = replace(whole, encoder="chunks", chunk_size=8, left_chunks=4)
    chunks.check_positions(80, "mine")
    with pytest.raises(
        UserError, match=r"^task\.chunk_size: chunks of 8 vectors and 4 before them take 80 positions, .* 79$"
    ):
        chunks.check_positions(79, "mine")
    with pytest.raises(UserError, match=r"^task\.history: 41 tokens take 82 positions, .* mine has 80$"):
        replace(chunks, decoder="attention", history=41).check_positions(80, "mine")
    for task in (whole, chunks):  # as many tokens as vectors, and the start token
        replace(task, decoder="global", max_len=79).check_positions(80, "mine")
        with pytest.raises(UserError, match=r"^task\.max_len: with decoder: global .* at most 79 are possible$"):
            replace(task, decoder="global", max_len=80).check_positions(80, "mine")


@pytest.mark.parametrize("decoder", ["ctc", pytest.param("attention", marks=SLOW)])
def test_a_stream_keeps_no_more_tokens_however_long_it_lasts(decoder: str) -> None:
    stream, samples = Stream(SpeechRecognizer(trained_recognizer(decoder))), speech(WORDS * 100)
    text, kept = "", []
    for first in range(0, len(samples), 4000):
        text += stream.push(samples[first : first + 4000])
        kept.append(len(stream.state.tokens.stream_states[0].spikes))
    text += stream.finish()
    assert len(text.split()) > 200
    assert max(kept) < 150


@SLOW
def test_in_training_positions_begin_anywhere_so_that_they_do_not_tell_how_long_a_sound_is() -> None:
    """Those of the encoder's vectors and of the attention decoder's tokens; in evaluation they begin at 0."""
    from ernie.data.batch import pack

    model, toy = deepcopy(trained_recognizer("attention")), TOYS["transcribe"]
    model.eval()
    task, ernie, head = model.task, model.ernie, model.head
    (sample,) = task.training_example(toy.rows(1)[0], TOKENIZER).samples
    batches = [task.augmented(pack([sample], np.array([(epoch, 0, 0)])), training=False) for epoch in range(8)]
    evaluated = {task.encode(ernie, head, batch, 0).numpy().tobytes() for batch in batches}
    hidden_TD = task.encode(ernie, head, batches[0], 0)
    losses = {float(task.head_loss(head, hidden_TD, batch).total) for batch in batches}
    head.training, head.frontend.dropout = True, 0.0
    trained = {task.encode(ernie, head, batch, 0).numpy().tobytes() for batch in batches}
    assert len(evaluated) == 1
    assert min(len(trained), len(losses)) > 3


def test_abstractions_without_segments_are_refused() -> None:
    with pytest.raises(UserError, match=r"abstractions: they are made of segments, which decoder: attention reads"):
        replace(TOYS["transcribe"].task, abstractions=4)


def test_speed_augmentation_leaves_enough_vectors_for_the_transcript() -> None:
    from ernie.audio.augment import AugmentConfig
    from ernie.data.batch import pack

    toy = TOYS["transcribe"]
    task = replace(toy.task, augment=AugmentConfig(speed=0.4))
    # 0.2 s give five vectors, just enough for three tokens with two blanks between them.
    tight = {"array": tones(("red",) * 2, np.random.default_rng(0))["array"], "sampling_rate": 8000}
    (sample,) = task.training_example(Row({"audio": tight, "text": "red red red"}), TOKENIZER).samples
    for epoch in range(20):
        augmented = task.augmented(pack([sample], np.array([(epoch, 0, 0)])), training=True)
        assert 5 <= augmented.layout.tokens <= task.max_len


@pytest.mark.parametrize("layout", ["{pipeline: 2}", "{tensor: 2, sequence: true}"])
def test_parallelism_that_speech_does_not_support_is_named(tmp_path: Path, layout: str) -> None:
    from finetune.config import load

    (tmp_path / "task.yaml").write_text(
        f"task: {{kind: transcribe}}\ndata: {{train: a.tsv, dev: b.tsv}}\nparallel: {layout}\n"
    )
    with pytest.raises(UserError, match=r"parallel: the speech front end and the vocoder are outside the encoder"):
        load(tmp_path / "task.yaml")


def test_chunks_cannot_be_normalized_by_future_frames() -> None:
    with pytest.raises(UserError, match=r"features\.normalize"):
        replace(TOYS["transcribe"].task, encoder="chunks")


def test_when_no_sound_can_be_read_the_errors_of_the_rows_are_reported() -> None:
    task = replace(TOYS["transcribe"].task, features=FeatureConfig(bins=20))
    for cells, message in (
        ({"audio": "wav/no.wav"}, r"rows\.tsv:2: wav/no\.wav: there is no such file \(1 more row alike\)$"),
        ({"audio": " "}, r"rows\.tsv:2: column 'audio': the name of the sound file is empty"),
        ({"file": "a.wav", "sounds": 1}, r"rows\.tsv:2: there is no column 'audio'"),
        ({"audio": {"array": [0.1] * 9, "sampling_rate": 8000}}, "no sound is as long as one window, 0.025 s"),
    ):
        with pytest.raises(UserError, match=message):
            task.adapted_to([Row(cells, Place("rows.tsv", n)) for n in (2, 3)])


def test_statistics_do_not_depend_on_the_order_of_the_rows() -> None:
    toy = TOYS["transcribe"]
    task, rows = replace(toy.task, features=FeatureConfig(bins=20)), toy.rows(20)
    adapted = task.adapted_to(rows)
    assert adapted == task.adapted_to(rows[::-1])
    assert len(adapted.mean) == 20


def test_augmentation_differs_between_epochs_and_repeats_between_runs() -> None:
    from ernie.audio.augment import AugmentConfig
    from ernie.data.batch import pack

    toy = TOYS["transcribe"]
    task = replace(toy.task, augment=AugmentConfig(speed=0.1, time_masks=1, time_width=5, freq_masks=1, freq_width=4))
    samples = [task.training_example(row, TOKENIZER).samples[0] for row in toy.rows(3)]
    epochs = [pack(samples, np.array([(epoch, i, 0) for i in range(3)])) for epoch in (0, 1)]
    first, second = (task.augmented(batch, training=True).frames.features for batch in epochs)
    again = task.augmented(epochs[0], training=True).frames.features
    np.testing.assert_array_equal(first, again)
    assert first.shape != second.shape or (first != second).any()
    evaluated = task.augmented(epochs[0], training=False).frames.features
    np.testing.assert_array_equal(evaluated, task.augmented(epochs[1], training=False).frames.features)


def test_masks_fill_unnormalized_features_with_their_mean() -> None:
    from ernie.audio.augment import AugmentConfig
    from ernie.data.batch import pack

    toy = TOYS["transcribe"]
    task = replace(toy.task, features=FeatureConfig(bins=20, normalize="none"))
    batch = pack([task.training_example(toy.rows(1)[0], TOKENIZER).samples[0]], np.array([(0, 0, 0)]))
    plain_FM = task.augmented(batch, training=True).frames.features
    assert plain_FM.mean() < -1  # zero would be loud
    task = replace(task, augment=AugmentConfig(time_masks=1, time_width=9, freq_masks=1, freq_width=6))
    masked_FM = task.augmented(batch, training=True).frames.features
    changed = masked_FM != plain_FM
    assert changed.any()
    mean_FM = np.broadcast_to(plain_FM.mean(0), plain_FM.shape)
    np.testing.assert_allclose(masked_FM[changed], mean_FM[changed], rtol=1e-5)


assert set(WORDS) == set(COLORS)


def test_the_transcript_so_far_is_written_on_ctrl_c() -> None:
    class Interrupted(io.RawIOBase):
        """Sound, and then Ctrl-C."""

        def __init__(self) -> None:
            self._pieces = [(32767 * speech()).astype("<i2").tobytes()]

        def read1(self, size: int) -> bytes:
            if not self._pieces:
                raise KeyboardInterrupt
            return self._pieces.pop()

    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        from_samples(trained_recognizer(), Interrupted(), False, out, None)  # type: ignore[arg-type]
    assert out.getvalue() == "blue red green\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [(b"", "holds no samples"), (b"x", "holds no samples"), (b"RIFF....WAVEfmt ", "is a sound file")],
)
def test_input_that_is_not_raw_samples_is_an_error_and_nothing_is_written(given: bytes, message: str) -> None:
    out = io.StringIO()
    with pytest.raises(UserError, match=f"standard input: {message}"):
        from_samples(trained_recognizer(), io.BytesIO(given), False, out, None)
    assert out.getvalue() == ""


def test_word_times_are_right_when_the_hop_is_not_a_whole_number_of_samples() -> None:
    """A hop of 10.06 ms is rounded to 80 samples at 8,000 per second."""
    task = trained_recognizer().task
    odd = replace(task, features=replace(task.features, hop=0.01006))
    assert odd.vector_seconds == 4 * 80 / 8000


def test_a_language_model_of_other_tokens_is_refused_before_training(tmp_path: Path) -> None:
    NgramModel.learn([["BLUE", "RED"]] * 5, 2).save(tmp_path / "foreign.arpa")
    NgramModel.learn([["blue"]] * 5, 2).save(tmp_path / "few.arpa")
    task = replace(TOYS["transcribe"].task, beam=4)
    with pytest.raises(UserError, match=r"foreign\.arpa knows none of the vocabulary's tokens, such as"):
        replace(task, language_model=tmp_path / "foreign.arpa").check_tokenizer(TOKENIZER)
    with pytest.raises(UserError, match=r"none\.arpa: cannot be read"):
        replace(task, language_model=tmp_path / "none.arpa").check_tokenizer(TOKENIZER)
    with pytest.warns(Remark, match=r"few\.arpa knows 1 of the vocabulary's"):
        replace(task, language_model=tmp_path / "few.arpa").check_tokenizer(TOKENIZER)


def test_a_model_of_words_is_told_from_one_of_tokens_and_compared_with_the_vocabulary(tmp_path: Path) -> None:
    texts = [["blue", "red"], ["green", "blue"]] * 5
    NgramModel.learn(texts, 2).save(tmp_path / "tokens.arpa")
    NgramModel.learn([*texts, ["reddish", "purple", "pink"]], 2).save(tmp_path / "words.arpa")
    task = replace(TOYS["transcribe"].task, beam=4, language_model=tmp_path / "words.arpa")
    with pytest.warns(
        Remark, match=r"of 6 words of .*words\.arpa that were tried, the vocabulary writes \d differently"
    ):
        task.check_tokenizer(TOKENIZER)
    (fusion,) = task.beam_search(TOKENIZER, TOKENIZER.pad_id).scorers
    assert isinstance(fusion, WordFusion)
    tokens = replace(task, language_model=tmp_path / "tokens.arpa")
    beam = tokens.beam_search(TOKENIZER, TOKENIZER.pad_id)
    assert not beam.scorers
    assert beam.beta == pytest.approx(0.5 * NgramModel.load(tmp_path / "tokens.arpa").entropy())
    assert replace(tokens, beta=0.0).beam_search(TOKENIZER, TOKENIZER.pad_id).beta == 0
    assert replace(tokens, language_model_unit="words").beam_search(TOKENIZER, TOKENIZER.pad_id).scorers
    rows = [Row({"text": "blue violet red Green"})]
    assert replace(tokens, language_model_unit="words").remarks_on_texts(rows, TOKENIZER) == [
        f"1 of 4 words of the transcripts are unknown to {tmp_path / 'tokens.arpa'}, such as 'violet'"
    ]
    assert replace(tokens, language_model_unit="words").remarks_on_texts([Row({"text": "blue red"})], TOKENIZER) == []


@pytest.mark.parametrize("marked", [False, True])
def test_words_are_not_called_unknown_where_the_vocabulary_and_the_language_model_are_of_characters(
    tmp_path: Path, marked: bool
) -> None:
    texts = ["red blue", "a green deed"]
    letters = sorted({letter for text in texts for letter in text if letter != " "})
    marks = ["##" + letter for letter in letters]
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *marks])
    task = replace(TOYS["transcribe"].task, beam=4, language_model=tmp_path / "letters.arpa")
    learned = [[tokenizer.tokens[i] for i in tokenizer.encode(text).ids] for text in texts]
    NgramModel.learn(learned if marked else [*map(list, letters)], 2).save(tmp_path / "letters.arpa")
    rows = [Row({"text": text}) for text in texts]
    lacking = f"12 of 17 tokens of the transcripts are unknown to {tmp_path / 'letters.arpa'}, such as '##e'"
    assert task.remarks_on_texts(rows, tokenizer) == ([] if marked else [lacking])
    NgramModel.learn([text.split() for text in texts], 2).save(tmp_path / "words.arpa")
    words = replace(task, language_model=tmp_path / "words.arpa")
    assert words.remarks_on_texts(rows, tokenizer) == []
    words.check_tokenizer(tokenizer)


def test_words_of_chinese_in_a_language_model_are_refused_as_each_character_is_one(tmp_path: Path) -> None:
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天去北京"])
    task = replace(TOYS["transcribe"].task, beam=4, language_model=tmp_path / "words.arpa")
    NgramModel.learn([["今天", "北京"]], 2).save(tmp_path / "words.arpa")
    with pytest.raises(UserError, match="each character of '今天' is a word: learn it from characters"):
        task.check_tokenizer(tokenizer)
    NgramModel.learn([["今", "天", "去", "北", "京", "ok"]], 2).save(tmp_path / "words.arpa")
    replace(task, language_model_unit="words").check_tokenizer(tokenizer)


def test_hot_words_and_alternatives_need_a_beam_and_words_that_can_be_written(tmp_path: Path) -> None:
    task = TOYS["transcribe"].task
    (tmp_path / "hot.txt").write_text("red\n\nblue green\n")
    with pytest.raises(UserError, match="hot_words: they rank hypotheses; keep several"):
        replace(task, hot_words=tmp_path / "hot.txt")
    with pytest.raises(UserError, match="n_best: expected 1 to 4, as many as beam keeps, found 5"):
        replace(task, beam=4, n_best=5)
    hot = replace(task, beam=4, hot_words=tmp_path / "hot.txt", hot_weight=1.5)
    hot.check_tokenizer(TOKENIZER)
    (scorer,) = hot.beam_search(TOKENIZER, TOKENIZER.pad_id).scorers
    assert scorer.extend(scorer.begin, int(TOKENIZER.encode("red").ids[0]))[0] == 1.5
    (tmp_path / "hot.txt").write_text("red\nпурпурный\n")
    with pytest.raises(UserError, match=r"hot\.txt:2: the vocabulary lacks characters of"):
        hot.check_tokenizer(TOKENIZER)
    (tmp_path / "hot.txt").write_text("\n")
    with pytest.raises(UserError, match=r"hot\.txt: holds no word"):
        hot.check_tokenizer(TOKENIZER)


def test_what_finds_transcripts_can_be_changed_after_training(tmp_path: Path) -> None:
    (tmp_path / "hot.txt").write_text("red\n")
    task = replace(TOYS["transcribe"].task, encoder="chunks", features=FeatureConfig(bins=20))
    changes = {
        "beam": 4,
        "hot_words": tmp_path / "hot.txt",
        "hot_weight": 1.0,
        "unknown": -3.0,
        "language_model_unit": "words",
    }
    assert task.decoding_with({**changes, "n_best": 2}, TOKENIZER).n_best == 2
    assert task.decoding_with({"pause": 0.5, "longest_line": 9.0}, TOKENIZER).pause == 0.5


def test_alternatives_are_ranked_and_the_first_is_the_transcript(tmp_path: Path) -> None:
    model, row = copy(trained_recognizer()), {"audio": {"array": speech(), "sampling_rate": 8000}}
    (tmp_path / "hot.txt").write_text("red red\n")
    model.task = replace(model.task, beam=6, n_best=3)
    (answer,) = model.predict([row])
    alternatives = answer["alternatives"]
    assert alternatives[0]["transcript"] == answer["transcript"]
    assert len({each["transcript"] for each in alternatives}) == 3
    assert [each["score"] for each in alternatives] == sorted((each["score"] for each in alternatives), reverse=True)
    model.task = replace(model.task, hot_words=tmp_path / "hot.txt", hot_weight=100.0)
    (preferred,) = model.predict([row])
    assert "red red" in preferred["transcript"]


def test_a_file_longer_than_the_training_samples_is_transcribed_in_chunks(tmp_path: Path) -> None:
    words = WORDS * 80
    soundfile.write(tmp_path / "long.wav", speech(words), 8000)
    out = io.StringIO()
    from_files(trained_recognizer(), [str(tmp_path / "long.wav")], False, out, None)
    assert wer([" ".join(words)], [out.getvalue().strip()]) < 0.1
    whole = replace(trained_recognizer().task, encoder="whole", features=FeatureConfig(bins=20))
    with pytest.raises(UserError, match="max_len is"):
        whole.example(Row({"audio": str(tmp_path / "long.wav")}), TOKENIZER)


def test_incomplete_statistics_and_integer_samples_are_refused() -> None:
    with pytest.raises(UserError, match="mean and deviation: give both"):
        replace(TOYS["transcribe"].task, mean=(0.0,) * 20, deviation=())
    with pytest.raises(UserError, match="divide them by 32,768"):
        Stream(SpeechRecognizer(trained_recognizer())).push((32767 * speech()).astype(np.int16))
