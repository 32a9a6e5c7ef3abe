"""Which sound a row is about: its file, the part of it, the channel; and the features that older runs keep."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toys import SYNTHESIZE, TOKENIZER, TOYS

from ernie.audio.augment import AugmentConfig
from ernie.audio.features import FeatureConfig
from ernie.config import to_dict
from ernie.data.batch import pack
from ernie.data.labeled.read import Split, read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.data.raw import Place
from ernie.errors import UserError
from finetune.prepare import prepare
from tasks.downstream.changes import keeping_head_of
from tasks.downstream.saved import read_task, write_task
from tasks.downstream.sound import SoundTask

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
TASK = TOYS["transcribe"].task
assert isinstance(TASK, SoundTask)


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, round(8000 * seconds))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sound of four seconds in several formats."""
    place = tmp_path_factory.mktemp("sounds")
    for name in ("a.wav", "a.flac", "a.ogg"):
        soundfile.write(place / name, noise(4.0), 8000)
    return place


def heard(folder: Path, cells: dict[str, Any], task: Any = TASK) -> np.ndarray:
    return task.wave(Row(cells, Place(str(folder / "rows.tsv"), 3))).samples


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_row_may_be_about_a_part_of_a_sound(folder: Path, name: str, wrapped: bool) -> None:
    cell = {"bytes": (folder / name).read_bytes()} if wrapped else name
    whole = heard(folder, {"audio": cell})
    for cells, first, last in (
        ({"offset": 1.5, "duration": 0.25}, 12_000, 14_000),
        ({"offset": "1.5", "duration": "0.25"}, 12_000, 14_000),  # as text, as in a .tsv file
        ({"offset": 3.5}, 28_000, 32_000),
        ({"duration": 0.5}, 0, 4_000),
        ({"offset": 3.9, "duration": 0.12}, 31_200, 32_000),  # durations are rounded
        ({"offset": "", "duration": None}, 0, 32_000),
    ):
        np.testing.assert_array_equal(heard(folder, {"audio": cell, **cells}), whole[first:last])


def test_samples_in_a_row_have_parts_too(folder: Path) -> None:
    array = {"array": noise(4.0), "sampling_rate": 8000}
    found = heard(folder, {"audio": array, "offset": 1, "duration": 0.5})
    np.testing.assert_array_equal(found, noise(4.0)[8000:12_000].astype(np.float32))
    with pytest.raises(UserError, match=r"column 'audio': has 4\.000 s, and offset 5 s"):
        heard(folder, {"audio": array, "offset": 5})


def test_segments_may_have_begins_and_ends_under_any_name(folder: Path) -> None:
    task = replace(TASK, offset="start", end="stop", duration="")
    cells = {"audio": "a.wav", "start": 1.0, "stop": 1.5, "duration": 99}
    np.testing.assert_array_equal(heard(folder, cells, task), heard(folder, {"audio": "a.wav"})[8000:12_000])
    assert len(heard(folder, {**cells, "stop": -1}, task)) == 24_000  # to the end, as in Kaldi
    for wrong, message in (
        ({"stop": 0.5}, r"column 'stop': the end, 0\.5 s, is not after the offset, 1 s"),
        ({"stop": "inf"}, "column 'stop': expected seconds from 0 on, or -1 for the end, found inf"),
        ({"start": -2}, "column 'start': expected seconds from 0 on, found -2"),
    ):
        with pytest.raises(UserError, match=message):
            heard(folder, cells | wrong, task)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            {"offset": 3.5, "duration": 1},
            r"a\.wav: has 4\.000 s, and offset 3\.5 s and duration 1 s lie beyond its end",
        ),
        ({"offset": 4}, r"a\.wav: has 4\.000 s, and offset 4 s lies beyond"),
        ({"duration": 4000}, r"duration 4000 s lie beyond its end; .* name others, or none, in task\.offset"),
        ({"offset": -1}, "column 'offset': expected seconds from 0 on, found -1"),
        ({"offset": True}, "column 'offset': expected seconds, found True"),
        (
            {"duration": 0},
            "column 'duration': expected more than 0 seconds, found 0; an empty cell is all up to the end",
        ),
        ({"duration": "-1"}, "column 'duration': expected more than 0 seconds, found -1; an empty cell is all"),
        ({"offset": "nan"}, "column 'offset': expected seconds from 0 on, found nan"),
        ({"duration": "00:03"}, r"column 'duration': expected seconds, found '00:03'; .* task\.duration"),
    ],
)
def test_parts_that_a_sound_does_not_have_are_refused(folder: Path, cells: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        heard(folder, {"audio": "a.wav", **cells})


def test_a_wrong_segment_is_named_with_its_file_and_line(folder: Path) -> None:
    (folder / "rows.tsv").write_text("audio\toffset\tduration\ttext\na.wav\t0\t0.3\tblue\na.wav\t3.8\t0.5\tblue\n")
    split = read_split("train", [str(folder / "rows.tsv")], RowOptions())
    task = replace(TASK, max_len=200)
    with pytest.raises(UserError, match=r"rows\.tsv:3: .*a\.wav: has 4\.000 s, and offset 3\.8 s and duration 0\.5 s"):
        prepare(task, split, TOKENIZER)
    prepared = prepare(task, Split("train", split.rows[:1]), TOKENIZER)
    (sample,) = prepared.examples[0].samples
    assert sample.sound is not None
    assert len(sample.sound()) == 2400


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_duration_that_ends_before_its_sound_is_reported_unless_the_row_has_an_offset(
    folder: Path, wrapped: bool
) -> None:
    cell = {"array": noise(4.0), "sampling_rate": 8000} if wrapped else str(folder / "a.flac")
    odd = "goes on after the duration that its row says, and was read up to there"
    for cells, expected in (
        ({"duration": 3.5}, (odd,)),  # perhaps of another file, or rounded down
        ({"duration": 3.95}, ()),
        ({"duration": 3.5, "offset": 0}, ()),
        ({}, ()),
    ):
        assert TASK.wave(Row({"audio": cell, **cells})).remarks == expected


@pytest.mark.parametrize(
    ("cells", "columns", "settings"),
    [
        ({"start": 0.5, "duration": 1}, "column start,", "task.offset=start"),  # as Lhotse has it
        ({"begin_time": "0.5", "end_time": "1.5"}, "columns begin_time and end_time,", "task.end=end_time"),
        ({"onset": 0.5, "offset": 1.5}, "columns onset and offset,", "task.offset=onset and task.end=offset"),
        ({"tmin": 0.5, "tmax": 1.5}, "columns tmin and tmax,", "task.offset=tmin and task.end=tmax"),
    ],
)
def test_begins_under_other_names_are_reported(folder: Path, cells: dict, columns: str, settings: str) -> None:
    (remark,) = TASK.remarks_on([Row({"audio": str(folder / "a.wav"), "text": "blue", **cells})])
    assert columns in remark
    assert settings in remark
    told: Any = replace(TASK, **dict(re.findall(r"task\.(\w+)=(\w+)", settings)))
    assert not told.remarks_on([Row({"audio": str(folder / "a.wav"), "text": "blue", **cells})])


def test_columns_that_look_like_segments_and_are_not_read_are_reported(folder: Path) -> None:
    row = Row({"audio": "a.wav", "text": "blue", "start": 1, "end": 2}, Place(str(folder / "rows.tsv"), 2))
    task = replace(TASK, max_len=200)
    remarks = prepare(task, Split("train", [row]), TOKENIZER).remarks
    assert any("the columns start and end, first at" in line and "task.end=end" in line for line in remarks)
    told = replace(task, offset="start", end="end")
    assert not prepare(told, Split("train", [row]), TOKENIZER).remarks


def test_one_channel_may_be_read(tmp_path: Path) -> None:
    left, right = noise(1.0, 1), noise(1.0, 2)
    soundfile.write(tmp_path / "both.wav", np.stack([left, right], 1), 8000, "FLOAT")
    row: dict[str, Any] = {"audio": "both.wav", "side": "right"}
    row |= {"number": 2.0, "text_number": "1.0"}  # numbers as pandas writes a column in which some are missing
    for channel, expected in (
        *(("left", left), ("right", right), (2, right), ("1", left), ("side", right), ("Left", left)),
        *(("number", right), ("text_number", left)),
    ):
        wave = replace(TASK, channel=channel).wave(Row(row, Place(str(tmp_path / "rows.tsv"), 2)))
        np.testing.assert_allclose(wave.samples, expected, atol=1e-6)
        assert wave.remarks == (f"is channel {1 if expected is left else 2} of 2",)
    np.testing.assert_allclose(heard(tmp_path, row), (left + right) / 2, atol=1e-6)
    for channel, message in (
        (3, "has 2 channels, and channel 3 was asked for"),
        (0, "channel: expected mix, left, right, or a number from 1 on, found '0'"),
        ("seite", "channel: 'seite' is neither mix, left, right nor a number, and the rows have no such column"),
        ("audio", r"column 'audio': expected mix, left, right, or a number from 1 on, found 'both\.wav'"),
    ):
        with pytest.raises(UserError, match=message):
            heard(tmp_path, row, replace(TASK, channel=channel))


def test_channels_that_cancel_or_differ_are_reported(tmp_path: Path) -> None:
    a, b = noise(1.0, 1), noise(1.0, 2)
    for channels, remark in (
        ((a, -a), "has channels that cancel each other out; choose one, such as channel: left"),
        ((a, b), "has channels that differ strongly; choose one, such as channel: left, unless all matter"),
        ((a, 0 * a), "has channels that differ strongly; choose one, such as channel: left, unless all matter"),
        ((a, a + 0.2 * b), None),
    ):
        soundfile.write(tmp_path / "both.wav", np.stack(channels, 1), 8000, "FLOAT")
        wave = TASK.wave(Row({"audio": str(tmp_path / "both.wav")}))
        assert wave.remarks[1:2] == (() if remark is None else (remark,))


def test_names_may_be_urls_percent_encoded_at_home_or_have_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my sounds").mkdir()
    soundfile.write(tmp_path / "my sounds" / "é 1.wav", noise(0.5), 8000)
    soundfile.write(tmp_path / "100%25.wav", noise(0.25), 8000)
    for name in (
        "~/my sounds/é 1.wav",
        (tmp_path / "my sounds" / "é 1.wav").as_uri(),
        "file://localhost" + (tmp_path / "my sounds" / "é 1.wav").as_uri().removeprefix("file://"),
        "my%20sounds/%C3%A9%201.wav",
        " my sounds/é 1.wav ",
        "my sounds\\é 1.wav",
    ):
        assert len(heard(tmp_path, {"audio": name})) == 4000, name
        assert TASK.file_fingerprint(Row({"audio": name}, Place(str(tmp_path / "rows.tsv"), 1))) != b""
    assert len(heard(tmp_path, {"audio": "100%25.wav"})) == 2000  # the name as it is comes first
    with pytest.raises(UserError, match=r"/no\.wav: there is no such file"):
        heard(tmp_path, {"audio": "file:///no.wav"})
    with pytest.raises(UserError, match=r"cat a\.wav \|: is a command, as in lists of Kaldi"):
        heard(tmp_path, {"audio": "cat a.wav |"})
    with pytest.raises(UserError, match=r"https://a\.org/b\.wav: is a URL, and only files are read; download it"):
        heard(tmp_path, {"audio": "https://a.org/b.wav"})


def test_rows_do_not_name_pipes_or_devices(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.wav")
    for name, message in (("pipe.wav", "is a pipe, and a file is expected"), ("/dev/zero", "is a device")):
        with pytest.raises(UserError, match=message):
            heard(tmp_path, {"audio": name})
        assert TASK.file_fingerprint(Row({"audio": str(tmp_path / name)})) == b""


def test_models_that_were_saved_before_keep_their_features(tmp_path: Path) -> None:
    task = replace(TASK, features=FeatureConfig(bins=20, normalize="streaming"))
    write_task(tmp_path, task, 0)
    assert read_task(tmp_path)[0] == task
    saved = json.loads((tmp_path / "task.json").read_text())
    for key in ("normalize_seconds", "remove_dc_offset"):
        del saved["task"]["features"][key]
    (tmp_path / "task.json").write_text(json.dumps(saved))
    before = read_task(tmp_path)[0]
    assert before.features == replace(task.features, normalize_seconds=0.0, remove_dc_offset=False)
    assert before.adapted_to(TOYS["transcribe"].rows(3)) == before  # it needs no statistics
    # A run that goes on from it with the same settings takes them from there.
    assert keeping_head_of(replace(task, max_len=99), before, "the head").features == before.features
    own = replace(task, features=replace(task.features, bins=30))
    with pytest.raises(UserError, match=r"^task\.features\.bins: is 30, and the head has learned with 20"):
        keeping_head_of(own, before, "the head")


def test_saved_configurations_keep_their_features_too(tmp_path: Path) -> None:
    from finetune.config import load

    (tmp_path / "config.yaml").write_text(
        "task: {kind: transcribe, features: {bins: 20}}\ndata: {train: a.tsv, dev: b.tsv}\n"
    )
    for saved in (False, True):
        features = load(tmp_path / "config.yaml", saved=saved).task.features
        assert features.remove_dc_offset is not saved
        assert features.normalize_seconds == (0.0 if saved else 10.0)


@pytest.mark.parametrize("normalize", ["global", "streaming"])
def test_statistics_of_the_training_sounds_are_taken_for_streaming_too(normalize: str) -> None:
    task = replace(TASK, features=FeatureConfig(bins=20, normalize=normalize))
    adapted = task.adapted_to(TOYS["transcribe"].rows(5))
    assert len(adapted.mean) == len(adapted.deviation) == 20
    (sample,) = adapted.training_example(TOYS["transcribe"].rows(1)[0], TOKENIZER).samples
    assert np.isfinite(adapted.augmented(pack([sample]), training=False).frames.features).all()


def test_volume_is_changed_in_training_the_same_way_in_every_run() -> None:
    features = FeatureConfig(bins=20, normalize="none")
    plain, loud = (
        replace(TASK, features=features, augment=AugmentConfig(volume=volume)) for volume in ((0, 0), (12, 12))
    )
    samples = [plain.training_example(row, TOKENIZER).samples[0] for row in TOYS["transcribe"].rows(3)]
    batches = [pack(samples, np.array([(epoch, i, 0) for i in range(3)])) for epoch in (0, 1)]
    before = plain.augmented(batches[0], training=True).frames.features
    after = loud.augmented(batches[0], training=True).frames.features
    assert np.median(after - before) == pytest.approx(np.log(10) * 1.2, abs=1e-3)
    np.testing.assert_array_equal(
        loud.augmented(batches[0], training=False).frames.features,
        plain.augmented(batches[0], training=False).frames.features,
    )
    drawn = replace(plain, augment=AugmentConfig(volume=(-20, 6)))
    first, second = (drawn.augmented(batch, training=True).frames.features for batch in batches)
    np.testing.assert_array_equal(first, drawn.augmented(batches[0], training=True).frames.features)
    assert (first != second).any()


def test_every_augmentation_changes_the_training_and_nothing_else() -> None:
    features = FeatureConfig(bins=20, normalize="none")
    plain = replace(TASK, features=features)
    samples = [plain.training_example(row, TOKENIZER).samples[0] for row in TOYS["transcribe"].rows(3)]
    batch = pack(samples, np.array([(0, i, 0) for i in range(3)]))
    before = plain.augmented(batch, training=True).frames.features
    for setting in (
        {"pitch": 0.2},
        {"vocal_tract": 0.2},
        {"room": (0.2, 0.4)},
        {"noise": (5, 30)},
        {"volume": (-20, 6)},
    ):
        task = replace(plain, augment=AugmentConfig(**setting))
        after = task.augmented(batch, training=True).frames.features
        assert after.shape == before.shape and np.abs(after - before).max() > 0.1, setting
        np.testing.assert_array_equal(after, task.augmented(batch, training=True).frames.features)
        np.testing.assert_array_equal(task.augmented(batch, training=False).frames.features, before)


def test_voices_take_their_features_from_a_teacher_that_is_older(tmp_path: Path) -> None:
    write_task(tmp_path, SYNTHESIZE, 0)
    saved = json.loads((tmp_path / "task.json").read_text())
    for key in ("normalize_seconds", "remove_dc_offset"):
        del saved["task"]["features"][key]
    (tmp_path / "task.json").write_text(json.dumps(saved))
    flow = replace(SYNTHESIZE, vocoder="flow", teacher=tmp_path)
    adapted = flow.adapted_to([])
    assert adapted.features == replace(SYNTHESIZE.features, normalize_seconds=0.0, remove_dc_offset=False)
    assert to_dict(adapted)["features"]["bins"] == 20
