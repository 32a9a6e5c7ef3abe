"""The short examples run in any folder, without a model and with one; the quickstart has its own test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import forked
from support.helpers import ROOT
from support.toys import tones
from support.trained import trained

from ernie import ErnieModel
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

EXAMPLES = {
    "embeddings": "Send bytes to the socket.",
    "fill_mask": "a list of numbers.",
    "plain_loop": "Read the text of the file.  files",
}


def run(name: str, cwd: Path, *arguments: str, given: str = "") -> str:
    command = [*forked.python(), str(ROOT / "examples" / f"{name}.py"), *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=given,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_without_a_model_reports_that_it_is_untrained(name: str, tmp_path: Path) -> None:
    output = run(name, tmp_path)
    assert "untrained" in output
    assert EXAMPLES[name] in output


@pytest.mark.parametrize("name", ["embeddings", "fill_mask"])
def test_an_example_uses_the_given_model(name: str, tmp_path: Path) -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, "return", "the", "of", "a", "list", "numbers", ".", "only"])
    model = ErnieModel(EncoderConfig(tokenizer.vocab_size, 16, 1, 2, 32))
    model.tokenizer, model.masked_head = tokenizer, MaskedTokenHead(model)
    model.masked_head.initialize_bias(np.where(np.arange(tokenizer.vocab_size) == tokenizer.vocab_size - 1, 1.0, 1e-6))
    model.save_pretrained(tmp_path / "mine")
    output = run(name, tmp_path, "mine")
    assert "untrained" not in output
    assert EXAMPLES[name] in output
    assert name != "fill_mask" or "Return the only of a list" in output


def saved(kind: str, folder: Path) -> Path:
    trained(kind).model.save(folder)
    return folder


def test_the_translation_example_follows_its_input_word_by_word(tmp_path: Path) -> None:
    output = run("translation", tmp_path, str(saved("translate", tmp_path / "run")), given="blue red green\n")
    lines = [line.split() for line in output.splitlines()]
    assert [line[0] for line in lines[:3]] == ["blue", "red", "green"]
    words = [word for line in (lines[0][1:], lines[1][1:], lines[2][1:], lines[3]) for word in line]
    assert words == ["blau", "rot", "gruen"]
    assert words[0] in lines[1] + lines[2]  # before the input is over


def test_the_speech_example_hears_a_file_piece_by_piece(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    sound = tones(["blue", "red", "green", "blue"], np.random.default_rng(3))
    soundfile.write(tmp_path / "said.wav", np.array(sound["array"]), sound["sampling_rate"])
    output = run("speech", tmp_path, str(saved("streaming", tmp_path / "run")), "said.wav")
    lines = output.splitlines()
    assert len(lines) > 2
    words = [word for line in lines for word in line.split()[1:] if word != "s"]
    assert words == ["blue", "red", "green", "blue"]


def test_the_threads_example_answers_each_row_but_a_faulty_one(tmp_path: Path) -> None:
    rows = [{"text": "a blue film"}, {"other": 1}, *[{"text": "the green film"}] * 20]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    output = run("many_threads", tmp_path, str(saved("classify", tmp_path / "run")), "rows.jsonl").splitlines()
    answers = [json.loads(line)["label"] for line in output if line.startswith("{")]
    assert answers == ["blue", *["green"] * 20]
    assert [line for line in output if line.startswith("error")] == output[1:2]


@pytest.mark.parametrize("name", ["translation", "speech"])
def test_an_example_names_the_kind_that_it_needs(name: str, tmp_path: Path) -> None:
    command = [*forked.python(), str(ROOT / "examples" / f"{name}.py"), str(saved("classify", tmp_path / "run")), "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, input="")
    assert done.returncode == 1
    assert "is asked to predict; expected one of the kind" in done.stderr
