"""The pretrained encoder as Python users meet it.

Legend: N sequences or texts, L padded length, T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paddle import LazyGuard, Tensor, nn

from ernie.config import differences
from ernie.data.batch import Packed
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.model.beginning import begin
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import Encoder
from ernie.model.fill_mask import Filled, fill_mask
from ernie.model.heads import MaskedTokenHead, Pooler
from ernie.model.padded import Ids, Padding, check_shapes, read_ids
from ernie.model.pretrained import (
    CONFIG_FILE,
    MASKED_HEAD_FILE,
    TASK_FILE,
    TOKENIZER_FOLDER,
    WEIGHTS_FILE,
    model_folder,
)
from ernie.model.published import hub
from ernie.model.published.folder import recognise
from ernie.model.published.load import load
from ernie.model.save import save
from ernie.model.vectors import Pooling, Text, encode
from ernie.model.weights import load_weights, shapes
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import Tokenizer


class Output(NamedTuple):
    """What the model returns: a vector for each token (N, L, D), zeros at padding, and one a sequence (N, D).

    `hidden_states`, if asked for, are the embeddings and then each layer's output, all (N, L, D).
    """

    last_hidden_state: Tensor
    pooler_output: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class ErnieModel(nn.Layer):
    """Embedding, encoder and pooler, as in BERT and ERNIE.

    `ErnieModel.from_pretrained(folder)` loads one; calling it takes padded batches as in other libraries;
    `encode_packed` takes batches without padding.  Inside there is only the packed path.

    `tokenizer` and `masked_head`, which predicts masked tokens, are there where the folder has them.  The head is no
    part of the encoder: its parameters are not among the model's.

    `drawn=False` leaves the parameters without values, for one who sets all of them.  Raises UserError for what is no
    configuration.
    """

    def __init__(self, config: EncoderConfig, *, drawn: bool = True):
        if not isinstance(config, EncoderConfig):
            said = f"expected an EncoderConfig, found {config!r:.60}"
            raise UserError(f"ErnieModel: {said}; ErnieModel.from_pretrained(path) loads a model")
        super().__init__()
        self.config = config
        with nullcontext() if drawn else LazyGuard():
            self.embedding = TextEmbedding(config)
            self.encoder = Encoder(config)
            self.pooler = Pooler(config)
        self.tokenizer: Tokenizer | None = None
        self.masked_head: MaskedTokenHead | None = None
        if drawn:
            begin(self)
        else:
            for parameter in self.parameters():  # how to draw them cannot be sent to a process that is spawned
                parameter._init_func = parameter._init_op_creator = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "masked_head":  # Paddle would register it, also behind a property
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _to_impl(self, *given: Any, **named: Any) -> ErnieModel:
        """What is behind `to`, `float` and their like: the head, which is no sublayer, goes with the model."""
        if self.masked_head is not None:
            self.masked_head._to_impl(*given, **{**named, "include_sublayers": True})
        return super()._to_impl(*given, **named)

    def encode_packed(
        self, batch: Packed, task_id: int = 0, needed: np.ndarray | None = None, mask: Mask | None = None
    ) -> Tensor:
        """Encode a packed batch, (T, D).

        `needed`, in ascending order, are the tokens whose vectors are wanted, all if left out; those of others are
        zero, and the last layer does not compute them.  `mask` says which tokens of its sequence each token sees, all
        if left out.
        """
        layout = batch.layout
        x_TD = self.embedding(batch.ids, batch.segments, layout.positions, task_id)
        return self.encoder(x_TD, layout, needed=needed, mask=mask)

    def forward(
        self,
        input_ids: Ids,
        token_type_ids: Ids | None = None,
        attention_mask: Ids | None = None,
        task_type_ids: Ids | None = None,
        output_hidden_states: bool = False,
    ) -> Output:
        """Encode a padded batch.  All arguments are (N, L): tensors, NumPy arrays or lists.

        `attention_mask` is 1 for tokens and 0 for padding, which may stand anywhere: positions count tokens, so that
        a sequence has the same vectors however it is padded.  Left out, everything counts as a token.  Raises UserError
        for arguments of another shape and for sequences the model has no positions for.
        """
        given = {"token_type_ids": token_type_ids, "attention_mask": attention_mask, "task_type_ids": task_type_ids}
        ids = read_ids("input_ids", input_ids)
        others = {name: None if values is None else read_ids(name, values) for name, values in given.items()}
        padding = Padding.of(check_shapes(ids, **others), others["attention_mask"])
        layout = padding.layout
        if layout.longest > self.config.max_positions:
            raise UserError(
                f"a sequence is {layout.longest} tokens long, this model has {self.config.max_positions} positions"
            )
        segments_T, tasks_T = padding.pack(others["token_type_ids"]), padding.pack(others["task_type_ids"])
        x_TD = self.embedding(padding.pack(ids), segments_T, layout.positions, tasks_T)
        states = [x_TD] if output_hidden_states else None
        hidden_TD = self.encoder(x_TD, layout, states)
        padded = None if states is None else tuple(padding.spread(state_TD) for state_TD in states)
        return Output(padding.spread(hidden_TD), self.pooler(hidden_TD, layout), padded)

    def encode(
        self,
        texts: Iterable[Text],
        *,
        pooling: Pooling = "mean",
        max_len: int | None = None,
        batch_tokens: int = 2048,
        normalize: bool = False,
    ) -> np.ndarray:
        """A vector for each text, or pair of texts in a tuple: (N, D) float32, in the order of `texts`.

        `pooling` takes the mean of the last layer's vectors, special tokens included, or that of [CLS], or the
        pooler's output.  A text without tokens is the bare frame, [CLS] [SEP].  Texts of more than `max_len` tokens
        (left out, the model's positions) are cut, with one warning that says how many.  `normalize` gives all vectors
        the length 1.  Batches hold about `batch_tokens` tokens.  Runs without dropout and gradients, whatever mode
        the model is in.  Raises UserError for what is no text, and when the model has no tokenizer.
        """
        return encode(self, texts, pooling, max_len, batch_tokens, normalize)

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filled]]:
        """For each [MASK] in the text, its `top` likeliest ordinary tokens, best first.

        Each is (token, probability, text): the text has the token in this mask's place, other masks stay.  Raises
        UserError when the text has no mask or too many tokens, and when the model has no tokenizer or masked head.
        """
        return fill_mask(self, text, top)

    def gradient_checkpointing_enable(self) -> None:
        """Train in less memory and more time, with the same gradients: see `Encoder.recompute`."""
        self.encoder.recompute = True

    def gradient_checkpointing_disable(self) -> None:
        """Keep what the backward pass needs instead of computing it again."""
        self.encoder.recompute = False

    @classmethod
    def from_pretrained(cls, path: str | Path) -> ErnieModel:
        """Load a model folder, a run folder (its newest model), a checkpoint, or a published model; for inference.

        Published ones are those of Hugging Face and PaddleNLP, the official ERNIE releases and BERT's original; what
        they lack, and what of them has no place here, is said in warnings.  A name that is no folder is looked for on
        the hub.  `tokenizer` and `masked_head` are loaded too where there are any.  Raises UserError when there is no
        model or its weights do not fit it.
        """
        folder = model_folder(hub.find(path))
        if recognise(folder) != "ernie":
            return load(folder, cls)
        model = cls(EncoderConfig.read(folder / CONFIG_FILE), drawn=False)
        load_weights(model, folder / WEIGHTS_FILE)
        if (folder / MASKED_HEAD_FILE).is_file():
            model.masked_head = MaskedTokenHead.read(model, folder / MASKED_HEAD_FILE)
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
        """Write configuration, weights, tokenizer and masked-token head into `folder`, which is made if need be.

        The model that was there, if any, is replaced when all is written: a failure on the way, for want of room say,
        leaves it.  What else is in the folder stays.  Raises UserError where there is a file of that name, a run, or a
        fine-tuned model, whose head would be left with another encoder, and when the model has been changed and its
        configuration has not, so that it could not be loaded.
        """
        self._check_shape()
        if (Path(folder) / TASK_FILE).is_file():
            raise UserError(f"{folder}: holds a fine-tuned model, and its head is its encoder's only; choose another")
        if (Path(folder) / "model" / CONFIG_FILE).is_file():
            raise UserError(f"{folder}: is the folder of a run, and its own model would be hidden; choose another")
        save(self, Path(folder))

    def _check_shape(self) -> None:
        """Raise UserError unless weights, head and tokenizer are those that the configuration says."""
        said = ErnieModel(self.config, drawn=False)
        pairs: list[tuple[nn.Layer, nn.Layer, str]] = [
            (said, self, "give it one by dataclasses.replace(model.config, ...)")
        ]
        if self.masked_head is not None:
            with LazyGuard():
                pairs.append(
                    (MaskedTokenHead(said), self.masked_head, "make model.masked_head anew, or set it to None")
                )
        for wanted, found, way_out in pairs:
            differing = differences(shapes(wanted), shapes(found))
            if differing:
                name, (old, new) = next(iter(differing.items()))
                told = f"{name} is {new or 'lacking'}, and by its configuration {old or 'there is none'}"
                raise UserError(
                    f"the model has another shape than its configuration and could not be loaded: {told}; {way_out}"
                )
        if self.tokenizer is not None and self.tokenizer.vocab_size > self.config.vocab_size:
            raise UserError(
                f"the model's tokenizer has {self.tokenizer.vocab_size:,} tokens, and the model only "
                f"{self.config.vocab_size:,}: they do not belong together"
            )
