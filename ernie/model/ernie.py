"""The public Python interface to pretrained encoders.

Legend: N sequences or texts, L padded length, T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from paddle import LazyGuard, Tensor, nn

from ernie.config import differences
from ernie.errors import UserError
from ernie.model.base_encoder import BaseEncoder
from ernie.model.config import EncoderConfig, check_memory
from ernie.model.fill_mask import Filled, fill_mask
from ernie.model.heads import MaskedTokenHead
from ernie.model.initialization import initialize_encoder
from ernie.model.padded import Ids, Padding, check_shapes, read_ids
from ernie.model.pretrained import CONFIG_FILE, TASK_FILE, model_folder
from ernie.model.published import hub
from ernie.model.published.load import load
from ernie.model.save import save
from ernie.model.sentence import Pooling
from ernie.model.sentence_embedding import Text, encode, encode_tokens
from ernie.model.weights import shapes


class Output(NamedTuple):
    """The model's output: a vector for each token (N, L, D), zero at padding, and one for each sequence (N, D).

    `hidden_states`, if requested, are the embeddings and then each layer's output, all (N, L, D).
    """

    last_hidden_state: Tensor
    pooler_output: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class ErnieModel(BaseEncoder):
    """Embedding, encoder and pooler, as in BERT and ERNIE.

    `ErnieModel.from_pretrained(folder)` loads a model.  Calling it takes padded batches as in other libraries;
    `encode_packed` takes batches without padding.  Internally all batches are packed.

    `tokenizer`, `masked_head`, which predicts masked tokens, and `sentence_config`, a sentence encoder's settings, are
    set if the folder has them, and None otherwise.  The head is not a sublayer: its parameters are not among the
    model's.

    `initialize=False` leaves the parameters without values, for callers that set all of them.  Raises UserError if
    `config` is not an EncoderConfig.
    """

    def __init__(self, config: EncoderConfig, *, initialize: bool = True):
        if not isinstance(config, EncoderConfig):
            expected = f"expected an EncoderConfig, found {config!r:.60}"
            raise UserError(f"ErnieModel: {expected}; ErnieModel.from_pretrained(path) loads a model")
        check_memory(config)
        super().__init__(config, initialize=initialize)
        if initialize:
            initialize_encoder(self)

    def forward(
        self,
        input_ids: Ids,
        token_type_ids: Ids | None = None,
        attention_mask: Ids | None = None,
        task_type_ids: Ids | None = None,
        output_hidden_states: bool = False,
    ) -> Output:
        """Encode a padded batch.  All arguments are (N, L): tensors, NumPy arrays or lists.

        `attention_mask` is 1 for tokens and 0 for padding, which may be anywhere: positions count only tokens, so that
        a sequence has the same vectors however it is padded.  Without it there is no padding.  Raises UserError for
        arguments of differing shapes and for sequences longer than the model's positions.
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
        pooling: Pooling | Sequence[Pooling] | None = None,
        max_len: int | None = None,
        batch_tokens: int = 2048,
        normalize: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Return a vector for each text, or pair of texts in a tuple: (N, D) float32, in the order of `texts`.

        A text may also be a list of its token ids, without special tokens.

        Arguments that are not given are those saved with the model, in `sentence_config`; else as said here.  `pooling`
        says how the last layer's vectors, special tokens included, become one.  "mean", the default, is their mean,
        "max" their maximum, "mean_sqrt_len" their sum over the root of their number, "weightedmean" their mean weighted
        by position.  "cls" is the vector of [CLS], "lasttoken" that of the last token, "pooler" the pooler's output.
        Several are put side by side.  A text without tokens is encoded as `[CLS] [SEP]`.  Texts of more than `max_len`
        tokens (default: the model's positions) are truncated, with one warning that says how many.  `normalize` scales
        all vectors to length 1.  `prompt` is put before each text; `prompt_name` names one of the model's.  Batches
        hold about `batch_tokens` tokens.  Runs without dropout and gradients, whatever mode the model is in.  Raises
        UserError for anything but texts, and when the model has no tokenizer.
        """
        return encode(self, texts, pooling, max_len, batch_tokens, normalize, prompt_name, prompt)

    def encode_tokens(
        self,
        texts: Iterable[Text],
        *,
        max_len: int | None = None,
        batch_tokens: int = 2048,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> list[np.ndarray]:
        """Return the last layer's vectors of each text's tokens, before any pooling: (n, D) float32 for n tokens.

        They include those of [CLS], [SEP] and the prompt.  Texts and arguments are those of `encode`, and so are the
        errors.
        """
        return encode_tokens(self, texts, max_len, batch_tokens, prompt_name, prompt)

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filled]]:
        """Return, for each [MASK] in the text, the `top` most probable tokens, best first, special tokens excluded.

        Each is (token, probability, text), where the text has this mask replaced by the token and keeps the others.
        Raises UserError when the text has no mask or too many tokens, and when the model has no tokenizer or masked
        head.
        """
        return fill_mask(self, text, top)

    def gradient_checkpointing_enable(self) -> None:
        """Recompute activations in the backward pass, for less memory and more time: see `Encoder.recompute`."""
        self.encoder.recompute = True

    def gradient_checkpointing_disable(self) -> None:
        """Store activations for the backward pass instead of recomputing them."""
        self.encoder.recompute = False

    @classmethod
    def from_pretrained(cls, path: str | Path) -> ErnieModel:
        """Load a model folder, a run folder (its newest model), a checkpoint or a published model, in evaluation mode.

        Published models are those of Hugging Face and PaddleNLP, the official ERNIE releases and BERT's original;
        warnings report weights that are missing or left out.  A name that is not a folder is looked up on the hub.
        `tokenizer` and `masked_head` are also loaded if present.  Raises UserError when there is no model or its
        weights do not fit.
        """
        return load(model_folder(hub.find(path)), cls)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration, weights, tokenizer and masked-token head into `folder`, which is created if needed.

        An existing model in the folder is replaced only once everything is written: a failure, such as a full disk,
        leaves it intact.  Other files in the folder stay.  Raises UserError when `folder` is a file, a run or a
        fine-tuned model, whose head would be left with another encoder.  Also raises it when the model no longer
        matches its configuration, and so could not be loaded.
        """
        self._check_shape()
        if (Path(folder) / TASK_FILE).is_file():
            raise UserError(f"{folder}: holds a fine-tuned model, and its head is its encoder's only; choose another")
        if (Path(folder) / "model" / CONFIG_FILE).is_file():
            raise UserError(f"{folder}: is the folder of a run, and its own model would be hidden; choose another")
        save(self, Path(folder))

    def _check_shape(self) -> None:
        """Raise UserError unless weights, head and tokenizer match the configuration."""
        reference = ErnieModel(self.config, initialize=False)
        pairs: list[tuple[nn.Layer, nn.Layer, str]] = [
            (reference, self, "give it one by dataclasses.replace(model.config, ...)")
        ]
        if self.masked_head is not None:
            with LazyGuard():
                pairs.append(
                    (MaskedTokenHead(reference), self.masked_head, "make model.masked_head anew, or set it to None")
                )
        for wanted, found, remedy in pairs:
            differing = differences(shapes(wanted), shapes(found))
            if differing:
                name, (old, new) = next(iter(differing.items()))
                mismatch = f"{name} is {new or 'lacking'}, and by its configuration {old or 'there is none'}"
                raise UserError(
                    f"the model has another shape than its configuration and could not be loaded: {mismatch}; {remedy}"
                )
        if self.tokenizer is not None and self.tokenizer.vocab_size > self.config.vocab_size:
            raise UserError(
                f"the model's tokenizer has {self.tokenizer.vocab_size:,} tokens, and the model only "
                f"{self.config.vocab_size:,}: they do not belong together"
            )
