"""The pretrained encoder as Python users meet it.  Legend: N sequences, L padded length, T packed tokens, D width."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout, Packed
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import Encoder
from ernie.model.heads import MaskedTokenHead, Pooler
from ernie.model.weights import initialize, load_weights, save_weights
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import Tokenizer

CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FOLDER = "config.json", "model.safetensors", "tokenizer"


class Output(NamedTuple):
    """What the model returns: a vector for each token (N, L, D), zeros at padding, and one a sequence (N, D)."""

    last_hidden_state: Tensor
    pooler_output: Tensor


class ErnieModel(nn.Layer):
    """Embedding, encoder and pooler, as in BERT and ERNIE.

    `ErnieModel.from_pretrained(folder)` loads one; calling it takes padded batches as in other libraries;
    `encode_packed` takes batches without padding.  Inside there is only the packed path.

    `tokenizer` and `masked_head`, which predicts masked tokens, are there where the folder has them.  The head is no
    part of the encoder: its parameters are not among the model's.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.embedding = TextEmbedding(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)
        self.tokenizer: Tokenizer | None = None
        self.masked_head: MaskedTokenHead | None = None
        initialize(self, config.initializer_range)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "masked_head":  # Paddle would register it, also behind a property
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def encode_packed(self, batch: Packed, task_id: int = 0) -> Tensor:
        """Encode a packed batch, (T, D)."""
        layout = batch.layout
        x_TD = self.embedding(
            paddle.to_tensor(batch.ids),
            paddle.to_tensor(batch.segments),
            paddle.to_tensor(layout.positions),
            paddle.to_tensor([task_id]),
        )
        return self.encoder(x_TD, layout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        task_type_ids: Tensor | None = None,
    ) -> Output:
        """Encode a padded batch.  All arguments are (N, L).

        `attention_mask` is 1 for tokens and 0 for padding, which must follow the tokens; left out, everything counts
        as a token.  Raises UserError for arguments of another shape and for sequences the model has no positions for.
        """
        _check_shapes(
            input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask, task_type_ids=task_type_ids
        )
        N, L = input_ids.shape
        if L > self.config.max_positions:
            raise UserError(f"the batch is {L} tokens long, this model has {self.config.max_positions} positions")
        layout = Layout.of_lengths(_lengths(attention_mask, N, L))
        index = paddle.to_tensor(np.repeat(np.arange(N) * L, layout.lengths) + layout.positions)

        def packed(x: Tensor | None) -> Tensor:
            return paddle.zeros([layout.tokens], "int64") if x is None else paddle.gather(x.reshape([-1]), index)

        positions = paddle.to_tensor(layout.positions)
        x_TD = self.embedding(packed(input_ids), packed(token_type_ids), positions, packed(task_type_ids))
        hidden_TD = self.encoder(x_TD, layout)
        padded = paddle.scatter_nd(index.unsqueeze(-1), hidden_TD, [N * L, self.config.hidden_size])
        return Output(padded.reshape([N, L, -1]), self.pooler(hidden_TD, layout))

    @classmethod
    def from_pretrained(cls, path: str | Path) -> ErnieModel:
        """Load a model folder, a run folder (its newest model), or a checkpoint; ready for inference.

        The tokenizer is loaded too, as `.tokenizer`, where there is one.  Raises UserError when the folder is no model
        or its weights do not fit its configuration.
        """
        folder = _model_folder(Path(path))
        model = cls(EncoderConfig.read(folder / CONFIG_FILE))
        load_weights(model, folder / WEIGHTS_FILE)
        if (folder / TOKENIZER_FOLDER).is_dir():
            model.tokenizer = load_tokenizer(folder / TOKENIZER_FOLDER)
            if model.tokenizer.vocab_size > model.config.vocab_size:
                raise UserError(
                    f"{folder}: the tokenizer has {model.tokenizer.vocab_size} tokens, the model only "
                    f"{model.config.vocab_size}: they do not belong together"
                )
        model.eval()
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration, weights and tokenizer into `folder`, which is made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write(folder / CONFIG_FILE)
        save_weights(self, folder / WEIGHTS_FILE)
        if self.tokenizer is not None:
            shutil.rmtree(folder / TOKENIZER_FOLDER, ignore_errors=True)
            self.tokenizer.save(folder / TOKENIZER_FOLDER)


def _model_folder(path: Path) -> Path:
    """The folder with the weights: `path` itself, or its `model`, where a run and a checkpoint keep theirs."""
    for folder in (path, path / "model"):
        if (folder / CONFIG_FILE).is_file():
            return folder
    if not path.exists():
        raise UserError(f"{path}: there is no such folder")
    raise UserError(f"{path}: holds no model: there is neither {CONFIG_FILE} nor model/{CONFIG_FILE} in it")


def _check_shapes(input_ids: Tensor, **others: Tensor | None) -> None:
    shape = list(input_ids.shape)
    if len(shape) != 2 or 0 in shape:
        raise UserError(f"input_ids has the shape {shape}, expected a batch of sequences: [N, L]")
    for name, other in others.items():
        if other is not None and list(other.shape) != shape:
            raise UserError(f"{name} has the shape {list(other.shape)}, expected that of input_ids, {shape}")


def _lengths(attention_mask: Tensor | None, N: int, L: int) -> np.ndarray:
    if attention_mask is None:
        return np.full(N, L)
    mask = np.asarray(attention_mask.numpy()) != 0
    lengths = mask.sum(axis=1)
    if not (mask == (np.arange(L) < lengths[:, None])).all():
        raise UserError("attention_mask: padding must follow the tokens, not stand before or among them")
    if (lengths == 0).any():
        raise UserError(f"attention_mask: sequence {int(np.argmin(lengths))} has no tokens")
    return lengths
