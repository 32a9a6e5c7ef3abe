"""sentence-transformers itself reads what we write, and we what it writes, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

import inference
from ernie.model.ernie import ErnieModel
from ernie.model.published.convert import convert
from ernie.model.sentence import SentenceConfig, SentenceLayer
from inference.encoder import TextEncoder
from inference.task_model import TaskModel

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="sentence-transformers, which brings PyTorch, is not installed"
)

TEXTS = ["a blue film", "who was it ? " * 30, "anna was in paris, and paul in london .", "Great"]


def layers(width: int) -> tuple[SentenceLayer, ...]:
    """A dense layer and a normalization."""
    rng = np.random.default_rng(0)
    weights = {
        "linear.weight": rng.normal(0, 0.2, (8, width)).astype(np.float32),
        "linear.bias": rng.normal(size=8).astype(np.float32),
    }
    settings = {
        "in_features": width,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    return SentenceLayer("Dense", settings, weights), SentenceLayer("Normalize")


@pytest.mark.parametrize("pooling", [("mean",), ("cls",), ("max", "mean")])
def test_vectors_of_a_folder_that_we_wrote_are_ours(pooling: tuple[str, ...], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = tiny_encoder()
    prompts = {"query": "who : "}
    encoder.sentence_config = SentenceConfig(
        pooling, layers(32 * len(pooling)), max_len=24, lowercase=True, prompts=prompts, similarity="cosine"
    )
    encoder.save_pretrained(tmp_path / "ours")
    assert convert(tmp_path / "ours", tmp_path / "hf", "hf", ErnieModel).passed
    theirs = SentenceTransformer(str(tmp_path / "hf"), device="cpu")
    ours = ErnieModel.from_pretrained(tmp_path / "hf")
    for name in (None, "query"):
        found = theirs.encode(TEXTS, prompt_name=name)
        with pytest.warns(match="have more than 24 tokens"):
            np.testing.assert_allclose(found, ours.encode(TEXTS, prompt_name=name), rtol=0, atol=1e-5)


def test_vectors_of_a_folder_that_it_wrote_are_its_own(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizer

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(TOKENIZER.tokens), max_position_embeddings=32, **sizes)
    BertModel(config).save_pretrained(tmp_path / "bert")
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENIZER.tokens), encoding="utf-8")
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    transformer = models.Transformer(str(tmp_path / "bert"), max_seq_length=24)
    modules = [transformer, models.Pooling(32, "mean"), models.Dense(32, 8), models.Normalize()]
    theirs = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "who : "})
    theirs.save(str(tmp_path / "theirs"))
    ours = inference.load(tmp_path / "theirs", precision="fp32")
    assert isinstance(ours, TextEncoder)
    for name in (None, "query"):
        with pytest.warns(match="have more than 24 tokens"):
            found = ours.encode(TEXTS, prompt_name=name)
        np.testing.assert_allclose(found, theirs.encode(TEXTS, prompt_name=name), rtol=0, atol=1e-5)


def test_a_run_of_the_kind_embed_becomes_its_folder(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = TaskModel(tiny_encoder(), TOYS["embed"].task)
    model.task.initialize(model.ernie, model.head)  # type: ignore[attr-defined]
    model.save(tmp_path / "run")
    assert convert(tmp_path / "run", tmp_path / "hf", "hf", ErnieModel).passed
    ours = inference.load(tmp_path / "run", precision="fp32")
    assert isinstance(ours, TextEncoder)
    with pytest.warns(match="have more than 16 tokens"):
        found = ours.encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "hf")).encode(TEXTS), found, rtol=0, atol=1e-5)
