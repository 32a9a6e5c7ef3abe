"""Examples that the configuration of a server names for a model."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from support.served import predictor, served, service_of
from support.trained import trained

from ernie.errors import UserError
from inference.recognizer import SpeechRecognizer
from serving.examples import read_examples
from serving.models import serve_model

RATE = 8000


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    """A table of two sounds."""
    for name, pitch in (("low", 0.1), ("high", 0.4)):
        soundfile.write(tmp_path / f"{name}.wav", 0.5 * np.sin(pitch * np.arange(RATE)), RATE)
    (tmp_path / "rows.tsv").write_text("audio\ttext\nlow.wav\tred\nhigh.wav\tblue\n", encoding="utf-8")
    return tmp_path / "rows.tsv"


def test_rows_and_their_sounds_are_given_to_whoever_asks(spoken: Path) -> None:
    face = SpeechRecognizer(trained("streaming").model)
    examples = read_examples([str(spoken)], face)
    service = service_of({"films": predictor("classify")})
    service.put(serve_model("heard", "heard", face, 1 << 14, examples=examples))
    with served(service) as address, httpx.Client(base_url=address) as client:
        counts = {model["name"]: model["examples"] for model in client.get("/models").json()["models"]}
        assert counts == {"films": 0, "heard": 2}
        assert client.get("/models/films/examples").json() == {"examples": []}
        found = client.get("/models/heard/examples").json()["examples"]
        assert found == [{"cells": {"text": text}, "sound": True} for text in ("red", "blue")]
        samples, rate = soundfile.read(BytesIO(client.get("/models/heard/examples/1").content))
        assert rate == RATE
        np.testing.assert_allclose(samples, 0.5 * np.sin(0.4 * np.arange(RATE)), atol=1e-3)
        for path in ("heard/examples/2", "heard/examples/-1", "heard/examples/x", "films/examples/0"):
            assert client.get(f"/models/{path}").status_code == 404


def test_cells_of_any_kind_become_json(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "choices": ["b", "c"], "score": NaN}\n', encoding="utf-8")
    (example,) = read_examples([str(tmp_path / "rows.jsonl")], predictor("classify"))
    assert example.cells == {"text": "a", "choices": ["b", "c"], "score": None}
    assert example.sound is None


def test_a_slice_limits_the_rows_and_too_many_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("text\n" * 51, encoding="utf-8")
    assert len(read_examples([f"{file}[:3]"], predictor("classify"))) == 3
    with pytest.raises(UserError, match=re.escape(f"{file}: found 51 rows, expected at most 50, as in {file}[:5]")):
        read_examples([str(file)], predictor("classify"))


def test_a_sound_that_cannot_be_read_is_an_error_with_its_line(spoken: Path) -> None:
    (spoken.parent / "high.wav").write_bytes(b"nothing")
    with pytest.raises(UserError, match=re.escape(f"{spoken}:3")):
        read_examples([str(spoken)], SpeechRecognizer(trained("streaming").model))
