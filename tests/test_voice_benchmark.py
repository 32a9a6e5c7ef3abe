"""The benchmark of voices: F0 of vowels, and how far two voices are apart."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from support.helpers import ROOT
from support.vowels import vowel

from ernie.audio.pitch import voicing

sys.path.insert(0, str(ROOT / "benchmarks"))

import outcomes
import synthesis
from record_files import MissingRecord, Records

RATE, HOP = synthesis.RATE, synthesis.HOP


def test_the_error_of_f0_is_in_cents_where_both_are_voiced() -> None:
    recorded = np.array([100.0, 100.0, 0.0, 100.0, 0.0])
    made = np.array([100 * 2 ** (50 / 1200), 130.0, 100.0, 0.0, 0.0])
    likeness = np.array([0.9, 0.8, 0.7, 0.3, 0.2])
    errors = synthesis.pitch_errors(np.array([[made, likeness], [recorded, likeness + 0.1]]))
    assert errors["cents of F0"] == pytest.approx((50 + 1200 * np.log2(1.3)) / 2)
    assert errors["F0 off by a fifth"] == 1 / 2
    assert errors["voiced in one only"] == 2 / 4
    assert synthesis.pitch_errors(np.zeros((2, 2, 3))) == {}
    unvoiced = synthesis.pitch_errors(np.array([[0 * made, likeness], [recorded, likeness + 0.1]]))
    assert unvoiced == {name: errors[name] for name in ("clearness", "clearness of the recordings")}
    assert errors["clearness"] == pytest.approx((0.9 + 0.8 + 0.3) / 3)
    assert errors["clearness of the recordings"] == pytest.approx((0.9 + 0.8 + 0.3) / 3 + 0.1)


def test_a_hoarse_voice_is_less_clear_than_the_recording() -> None:
    recorded = vowel(110.0, (700.0, 1200.0, 2500.0))
    hiss = np.random.default_rng(0).normal(0, 0.05, len(recorded))
    found = [np.stack(voicing(sound, RATE, HOP)) for sound in (recorded + hiss, recorded)]
    errors = synthesis.pitch_errors(np.stack(found))
    assert errors["clearness"] < errors["clearness of the recordings"] - 0.05


class Named:
    """A vocoder that says when it is asked."""

    def __init__(self, name: float, asked: list[float]):
        self.name, self.asked = name, asked

    def begin(self) -> None:
        return None

    def more(self, pasts: list[None], given: np.ndarray, noise: np.ndarray) -> tuple[list[None], np.ndarray]:
        self.asked.append(self.name)
        return pasts, np.full((1, given.shape[1]), self.name)


@pytest.mark.parametrize(("backwards", "order"), [(False, [1.0, 2.0]), (True, [2.0, 1.0])])
def test_vocoders_are_timed_in_either_order_and_their_sounds_keep_theirs(backwards: bool, order: list[float]) -> None:
    asked: list[float] = []
    vocoders: list[Any] = [Named(1.0, asked), Named(2.0, asked)]
    sounds, seconds = synthesis.in_turns(vocoders, [np.zeros((5, 3), np.float32)] * 2, backwards=backwards)
    assert asked == order
    assert [sound.tolist() for sound in sounds] == [[1.0] * 5, [2.0] * 5]
    assert (seconds > 0).all()


def test_spectrograms_show_the_recording_above_the_voices(tmp_path: Path) -> None:
    for arm in ("wavenet", "flow"):
        for name in ("made", "recorded"):
            (tmp_path / arm).mkdir(exist_ok=True)
            soundfile.write(tmp_path / arm / f"{name}.wav", vowel(110.0, (700.0,)), RATE)
    synthesis.draw({arm: tmp_path / arm for arm in ("wavenet", "flow")}, tmp_path / "spectrograms.png")
    synthesis.draw({}, tmp_path / "nothing.png")
    assert [file.name for file in tmp_path.glob("*.png")] == ["spectrograms.png"]


def test_what_was_set_for_more_steps_and_for_pulses_is_judged(tmp_path: Path) -> None:
    arms = {
        "middle-flow": (0.12, 0.7, 30.0),
        "middle-flow-longer": (0.07, 0.8, 30.0),
        "middle-flow-longer-long-windows": (0.07, 0.7, 30.0),
        "middle-flow-pulses": (0.11, 0.85, 15.0),
    }
    for arm, (wrong, clearness, cents) in arms.items():
        record = {"not understood": {"spoken": wrong}, "clearness": clearness, "cents of F0": cents}
        (tmp_path / f"{arm}-0.json").write_text(json.dumps(record), encoding="utf-8")
    assert outcomes.voice_longer(Records(tmp_path)) == ("7.0 %; +10.0 points", "met")
    assert outcomes.voice_windows(Records(tmp_path)) == ("-10.0 points; +0.0 %", "missed; met")
    assert outcomes.voice_pulses(Records(tmp_path)) == ("+15.0 points; 15 vs 30 cents; -1.0 %", "met")


@pytest.mark.parametrize(("wrong", "faster", "expected"), [(0.079, 20.0, "met"), (0.08, 24.0, "missed; met")])
def test_what_was_set_for_all_changes_together_is_judged_by_two_cores(
    tmp_path: Path, wrong: float, faster: float, expected: str
) -> None:
    record = {"not understood": {"spoken": wrong}, "times as fast": faster, "threads": 2}
    file = tmp_path / "middle-flow-together-0.json"
    file.write_text(json.dumps(record), encoding="utf-8")
    assert outcomes.voice_together(Records(tmp_path)) == (f"{100 * wrong:.1f} % at {faster:.1f} times", expected)
    file.write_text(json.dumps({**record, "threads": 1}), encoding="utf-8")
    with pytest.raises(MissingRecord, match="not measured on two cores"):
        outcomes.voice_together(Records(tmp_path))
