"""The small interpreter of `make interpreter`: its language, its data, and its configurations."""

from __future__ import annotations

import importlib
import random
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.helpers import ROOT

from ernie.cli import main

FOLDER = ROOT / "examples" / "interpreter"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The example's main module, which makes little data in an empty folder."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("interpreter")
    for name, counts in (
        ("SPOKEN", {"train": 16, "dev": 2, "test": 2}),
        ("WRITTEN", {"train": 48, "dev": 4, "test": 4}),
        ("VOICED", {"train": 8, "dev": 1}),
    ):
        monkeypatch.setattr(module, name, counts)
    shutil.copytree(FOLDER, tmp_path / "examples" / "interpreter")
    monkeypatch.setattr(module, "HERE", Path("examples/interpreter"))
    monkeypatch.chdir(tmp_path)
    return module


def grammar(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("grammar")


@pytest.mark.parametrize("seed", [0, 1])
def test_german_articles_and_adjectives_have_their_endings(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    language, rng = grammar(monkeypatch), random.Random(seed)
    found = {(*language.noun_phrase(rng, accusative), accusative) for _ in range(4000) for accusative in (False, True)}
    for english, german, accusative in (
        ("the new garden", "der neue garten", False),
        ("the new garden", "den neuen garten", True),
        ("a new garden", "ein neuer garten", False),
        ("a new garden", "einen neuen garten", True),
        ("the red door", "die rote tür", True),
        ("a red door", "eine rote tür", True),
        ("the new book", "das neue buch", True),
        ("a new book", "ein neues buch", True),
        ("a bridge", "eine brücke", True),
    ):
        same = {own for own in found if own[0] == english and own[2] == accusative}
        assert same == {(english, german, accusative)}


def test_the_same_seed_makes_the_same_sentences_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    language = grammar(monkeypatch)
    found = language.sentences(3000, 0)
    assert found == language.sentences(3000, 0)
    assert len(set(found)) == 3000
    assert found != language.sentences(3000, 1)
    assert len({word for pair in found for word in pair.english.split()}) <= 60


def test_the_configurations_fit_the_data_which_is_made_once(example: ModuleType) -> None:
    example.make_data()
    made = (example.HOME / "spoken" / "train-0.wav").read_bytes()
    for name in ("recognizer", "translator", "voice"):
        assert main(["check", f"examples/interpreter/{name}.yaml"]) == 0
    example.make_data()
    assert (example.HOME / "spoken" / "train-0.wav").read_bytes() == made


def test_nobody_who_speaks_in_training_speaks_in_a_test(example: ModuleType) -> None:
    voices = importlib.import_module("voices")
    assert not set(voices.TIMBRES) & set(voices.HELD_OUT)
    synthesizer, rng = voices.Synthesizer(), np.random.default_rng(0)
    for name in (*voices.TIMBRES, *voices.HELD_OUT):
        sound = synthesizer.speak("good morning", voices.Voice(f"en+{name}" if name else "en"))
        assert len(sound) > voices.RATE / 4
        assert np.abs(voices.recorded([sound], rng)).max() > 0.02


@pytest.mark.slow
def test_it_trains_all_models_and_tells_how_good_they_are(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[list[str]] = []
    monkeypatch.setattr(example, "ernie", lambda words: served.append(list(words)) or 0)
    with pytest.raises(SystemExit, match="0"):
        example.main()
    assert served == [["serve", "examples/interpreter/serve.yaml", "--open"]]
    told = capsys.readouterr().out
    assert "the translator has a BLEU of" in told
    assert "of 2 spoken sentences" in told
