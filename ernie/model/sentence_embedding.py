"""Text embeddings: one vector for each text.  Legend: T packed tokens, N sequences, D width, n tokens of a text."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout, pack, plan_by_length
from ernie.data.document import Sample
from ernie.errors import NotFinite, Remark, UserError, check_count, check_iterable
from ernie.kernels.precision import to_numpy
from ernie.model.base_encoder import BaseEncoder
from ernie.model.inference import NOT_FINITE, evaluating, tokenizer_of
from ernie.model.sentence import Pooling, SentenceConfig, check_pooling, normalized
from ernie.outcome import Note, Outcome
from ernie.text.frame import frame, truncated_lengths
from ernie.text.surrogates import require_encodable
from ernie.text.tokenizer import Tokenizer

Text = str | tuple[str, str] | Sequence[int]  # a text, a pair of texts, or the token ids of a text


def encode(
    model: BaseEncoder,
    texts: Iterable[Text],
    pooling: Pooling | Sequence[Pooling] | None,
    max_len: int | None,
    batch_tokens: int,
    normalize: bool | None,
    prompt_name: str | None,
    prompt: str | None,
) -> np.ndarray:
    """See `ErnieModel.encode`."""
    encoding = Encoding.of(model, pooling, max_len, batch_tokens, normalize, prompt_name, prompt)
    vectors_ND = encoding.vectors(_samples(encoding, texts))
    for row in np.flatnonzero(~_are_finite(vectors_ND)):
        raise _not_finite(int(row))
    return vectors_ND


def encode_tokens(
    model: BaseEncoder,
    texts: Iterable[Text],
    max_len: int | None,
    batch_tokens: int,
    prompt_name: str | None,
    prompt: str | None,
) -> list[np.ndarray]:
    """See `ErnieModel.encode_tokens`."""
    encoding = Encoding.of_tokens(model, max_len, batch_tokens, prompt_name, prompt)
    return [outcome.get() for outcome in encoding.token_outcomes(_samples(encoding, texts))]


def _samples(encoding: Encoding, texts: Iterable[Text]) -> list[Sample]:
    """Return the samples of texts, with one warning if some were cut.  Raises the error of a text."""
    prepared = encoding.samples(texts)
    samples = [outcome.get() for outcome in prepared]
    if cut := sum(len(outcome.notes) for outcome in prepared):
        many = f"{cut} of {len(samples)} texts have {encoding.more}"
        # Points at the caller of the method of ErnieModel.
        warnings.warn(f"encode: {many}; their ends were cut off", Remark, stacklevel=4)
    return samples


def encode_each(
    model: BaseEncoder,
    texts: Iterable[Text],
    pooling: Pooling | Sequence[Pooling] | None = None,
    max_len: int | None = None,
    batch_tokens: int = 2048,
    normalize: bool | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> list[Outcome[np.ndarray]]:
    """Return the outcome of each text: its vector (D,), or the error that it alone has, and a note if it was cut.

    The arguments are those of `ErnieModel.encode`.  Raises UserError for settings that do not fit the model.
    """
    encoding = Encoding.of(model, pooling, max_len, batch_tokens, normalize, prompt_name, prompt)
    prepared = encoding.samples(texts)
    rows = [row for row, outcome in enumerate(prepared) if outcome.error is None]
    found: list[Outcome[np.ndarray]] = [Outcome(error=outcome.error) for outcome in prepared]
    vectors = encoding.vector_outcomes([prepared[row].get() for row in rows], rows)
    for row, vector in zip(rows, vectors, strict=True):
        found[row] = replace(vector, notes=prepared[row].notes)
    return found


def _are_finite(vectors_ND: np.ndarray) -> np.ndarray:
    """Return which vectors are finite, (N,)."""
    return np.logical_and.reduce(np.isfinite(vectors_ND), axis=1)


def _not_finite(row: int) -> NotFinite:
    return NotFinite(f"text {row}: {NOT_FINITE}", row=row)


def _pool(model: BaseEncoder, hidden_TD: Tensor, layout: Layout, pooling: str, skip: int) -> Tensor:
    """Pool the tokens of each sequence except the first `skip`: (T, D) -> (N, D)."""
    if pooling == "pooler":
        return model.pooler(hidden_TD, layout)
    if pooling in ("cls", "lasttoken"):
        chosen = layout.starts if pooling == "cls" else layout.starts + layout.lengths - 1
        return paddle.gather(hidden_TD, paddle.to_tensor(chosen))
    sequence_T = np.repeat(np.arange(layout.sequences), layout.lengths)
    kept = np.flatnonzero(layout.positions >= np.minimum(skip, layout.lengths - 1)[sequence_T])
    hidden_TD, sequence_T = paddle.gather(hidden_TD, paddle.to_tensor(kept)), sequence_T[kept]
    segments = paddle.to_tensor(sequence_T)
    if pooling == "max":
        return paddle.geometric.segment_max(hidden_TD, segments)
    if pooling == "mean":
        return paddle.geometric.segment_mean(hidden_TD, segments)
    weights_T = _token_weights(pooling, sequence_T, layout.positions[kept])
    weighted_TD = hidden_TD * paddle.to_tensor(weights_T[:, None]).astype(hidden_TD.dtype)
    return paddle.geometric.segment_sum(weighted_TD, segments)


class SentenceHead(nn.Layer):
    """A pooling of each sequence's tokens, without weights, (T, D) -> (N, D) float32."""

    def __init__(self, model: BaseEncoder, pooling: str):
        super().__init__()
        self._model = (model,)  # in a tuple: not to be registered again
        self._pooling = pooling

    def forward(self, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return _pool(self._model[0], hidden_TD.astype("float32"), layout, self._pooling, 0)


def _token_weights(pooling: str, sequence_T: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    """Return the weight of each token in its sequence's sum."""
    if pooling == "mean_sqrt_len":
        return (1 / np.sqrt(np.bincount(sequence_T)))[sequence_T].astype(np.float32)
    # SGPT (Muennighoff, 2022, arXiv 2202.08904, section 3.1): later tokens count more.
    weights_T = positions_T + 1.0
    return (weights_T / np.bincount(sequence_T, weights_T)[sequence_T]).astype(np.float32)


def _max_length(positions: int, saved: int | None, given: int | None) -> int:
    if given is None:
        return min(saved or positions, positions)
    check_count("max_len", given, 3)
    if given > positions:
        raise UserError(f"max_len: expected at most the model's {positions} positions, found {given}")
    return given


@dataclass(frozen=True, eq=False)
class Encoding:
    """How texts become vectors, (D,) each: with a `prompt` before each, cut to `max_len` tokens, and then pooled.

    `more` is what a text that is too long has, in words.
    """

    model: BaseEncoder
    tokenizer: Tokenizer
    config: SentenceConfig
    poolings: Sequence[str]
    max_len: int
    more: str
    batch_tokens: int
    normalize: bool
    prompt: str

    @classmethod
    def of(
        cls,
        model: BaseEncoder,
        pooling: Pooling | Sequence[Pooling] | None,
        max_len: int | None,
        batch_tokens: int,
        normalize: bool | None,
        prompt_name: str | None,
        prompt: str | None,
    ) -> Encoding:
        """Resolve the arguments of `ErnieModel.encode`.  Raises UserError for those that do not fit the model."""
        config = model.sentence_config or SentenceConfig()
        if config.unsupported and pooling is None:
            raise UserError(
                f"encode: the vectors of this model for sentences cannot be computed here: {config.unsupported}. "
                "pooling='mean' and the like give its encoder's own"
            )
        poolings = config.pooling if pooling is None else check_pooling(pooling)
        check_count("batch_tokens", batch_tokens, 1)
        tokenizer, text_before = tokenizer_of(model), config.prompt(prompt_name, prompt)
        longest = _max_length(model.config.max_positions, config.max_len, max_len)
        why = " (the length saved with the model)" if max_len is None and config.max_len else ""
        return cls(
            model,
            tokenizer,
            config,
            poolings,
            longest,
            f"more than {longest} tokens{why}",
            batch_tokens,
            config.normalize if normalize is None else normalize,
            text_before,
        )

    @classmethod
    def of_tokens(
        cls,
        model: BaseEncoder,
        max_len: int | None,
        batch_tokens: int,
        prompt_name: str | None,
        prompt: str | None,
    ) -> Encoding:
        """Resolve the arguments of `ErnieModel.encode_tokens`.  Raises UserError for those that do not fit."""
        unused: Pooling = "mean"
        return cls.of(model, unused, max_len, batch_tokens, False, prompt_name, prompt)

    def token_outcomes(self, samples: Sequence[Sample], rows: Sequence[int] | None = None) -> list[Outcome[np.ndarray]]:
        """Return the outcome of each sample of n tokens: their vectors (n, D), or an error if they are not finite."""
        outcomes: list[Outcome[np.ndarray]] = [Outcome()] * len(samples)
        with evaluating(self.model):
            for indices in plan_by_length([len(sample) for sample in samples], self.batch_tokens):
                batch = pack([samples[i] for i in indices])
                hidden_TD = to_numpy(self.model.encode_packed(batch))
                for i, vectors_nD in zip(indices, np.split(hidden_TD, batch.layout.offsets[1:-1]), strict=True):
                    row = i if rows is None else rows[i]
                    is_finite = np.isfinite(vectors_nD).all()
                    outcomes[i] = Outcome(vectors_nD.copy()) if is_finite else Outcome(error=_not_finite(row))
        return outcomes

    def vectors(self, samples: Sequence[Sample]) -> np.ndarray:
        """Return the vectors of samples, (N, D)."""
        model, config = self.model, self.config
        # [CLS] is left out of the pooling together with the prompt.
        skip = 0 if config.include_prompt or not self.prompt else 1 + len(self.tokenizer.ids(self.prompt))
        vectors_ND = np.empty((len(samples), model.config.hidden_size * len(self.poolings)), np.float32)
        with evaluating(model):
            for indices in plan_by_length([len(sample) for sample in samples], self.batch_tokens):
                batch = pack([samples[i] for i in indices])
                hidden_TD = model.encode_packed(batch)
                vectors_ND[indices] = np.concatenate(
                    [to_numpy(_pool(model, hidden_TD, batch.layout, name, skip)) for name in self.poolings], axis=1
                )
        for layer in config.layers[:-1] if config.normalize else config.layers:
            vectors_ND = layer(vectors_ND)
        return normalized(vectors_ND) if self.normalize else vectors_ND

    def vector_outcomes(
        self, samples: Sequence[Sample], rows: Sequence[int] | None = None
    ) -> list[Outcome[np.ndarray]]:
        """Return the outcome of each sample: its vector (D,), or an error that names its row if it is not finite."""
        vectors_ND = self.vectors(samples)
        are_finite = _are_finite(vectors_ND)
        named = range(len(samples)) if rows is None else rows
        return [
            Outcome(vector_D) if is_finite else Outcome(error=_not_finite(row))
            for row, vector_D, is_finite in zip(named, vectors_ND, are_finite, strict=True)
        ]

    def samples(self, texts: Iterable[Text]) -> list[Outcome[Sample]]:
        """Return the outcome of each text: its sample, or its error, and a note if it was cut."""
        check_iterable(texts, "texts")
        return [self.sample(text, row) for row, text in enumerate([texts] if isinstance(texts, str) else texts)]

    def sample(self, text: Text, row: int = 0) -> Outcome[Sample]:
        """Return the outcome of one text, whose `row` messages name."""
        try:
            first, second = self._ids(text)
        except UserError as error:
            return Outcome(error=UserError(f"text {row}: {error}", row=row))
        lengths = truncated_lengths(len(first), None if second is None else len(second), self.max_len)
        is_cut = lengths[0] < len(first) or (second is not None and lengths[1] < len(second))
        second = None if second is None else second[: lengths[1]]
        cut = Note(f"has {self.more}; its end was cut off", row=row)
        return Outcome(Sample(*frame(self.tokenizer, first[: lengths[0]], second)), notes=(cut,) if is_cut else ())

    def _ids(self, text: Text) -> tuple[np.ndarray, np.ndarray | None]:
        if isinstance(text, str):
            return self._encode(self.prompt + text), None
        if isinstance(text, tuple | list) and text:
            if all(type(item) is int for item in text[: self.max_len + 1]):  # the others would be cut off
                return self._checked_ids(cast(Sequence[int], text[: self.max_len + 1])), None
            if len(text) == 2 and all(isinstance(side, str) for side in text):
                first, second = cast(Sequence[str], text)
                return self._encode(self.prompt + first), self._encode(second)
        raise UserError(f"expected a text, a pair of texts or token ids, found {text!r:.60}")

    def _checked_ids(self, given: Sequence[int]) -> np.ndarray:
        """Return the tokens of the prompt, and those given: they are a text's own, without special tokens around it."""
        size = self.tokenizer.vocab_size
        if outside := [i for i in given if not 0 <= i < size]:
            raise UserError(f"{outside[0]} is no token id: the vocabulary has {size:,} tokens, numbered from 0")
        before = self._encode(self.prompt) if self.prompt else np.empty(0, np.int64)
        return np.concatenate([before, np.array(given, np.int64)])

    def _encode(self, text: str) -> np.ndarray:
        text = require_encodable(text)
        return self.tokenizer.ids(text.lower() if self.config.lowercase else text, self.max_len)
