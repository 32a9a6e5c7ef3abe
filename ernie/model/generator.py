"""Replaced-token detection: a small generator that replaces masked tokens, and the classifier of all tokens.

ELECTRA (Clark et al., 2020, arXiv 2003.10555), section 3.

Legend: T packed tokens, P labeled tokens, M masked tokens, D width, G width of the generator, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Labels, Layout, Packed
from ernie.errors import UserError
from ernie.kernels.linear import linear
from ernie.kernels.upload import on_device
from ernie.model.base_encoder import BaseEncoder
from ernie.model.config import EncoderConfig
from ernie.model.encoder import EncoderLayer
from ernie.model.heads import MaskedTokenHead


class Generator(nn.Layer):
    """A masked language model of a fraction of an encoder's width, which fills masked tokens with its own samples.

    It has as many layers as the encoder, and reads the encoder's embeddings through a projection (ELECTRA, section
    3.2): tokens, positions and segments are shared.  `fraction` is rounded to whole attention heads, at least one.
    Under tensor parallelism every process has all of it.
    """

    def __init__(self, model: BaseEncoder, fraction: float):
        super().__init__()
        config = narrowed(model.config, fraction)
        self.project = nn.Linear(model.config.hidden_size, config.hidden_size)
        self.layers = nn.LayerList([WholeLayer(config) for _ in range(config.layers)])
        self.words = MaskedTokenHead(model, config.hidden_size)
        self.config = config

    def fill(
        self, embedded_TD: Tensor, layout: Layout, chosen: np.ndarray, originals: np.ndarray, draws: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """Return the summed loss of predicting the `originals` (M,) at `chosen` (M,), and a sample for each of them.

        `embedded_TD` are the embeddings of the masked text, `draws` (M,) numbers from 0 to 1 that decide the samples.
        """
        x_TG = linear(embedded_TD, self.project.weight, self.project.bias)
        for number, layer in enumerate(self.layers, 1):
            x_TG = layer(x_TG, layout, chosen if number == len(self.layers) else None)
        return self.words.loss_and_samples(x_TG, chosen, originals, draws)


class WholeLayer(EncoderLayer):
    """An encoder layer that tensor parallelism does not split."""


class ReplacedTokenHead(nn.Layer):
    """Tells whether a token is the original or a generator's, (T, D) -> (P, 2), and holds the generator.

    As in ELECTRA, a dense layer with the encoder's activation stands before the output.  `fraction` is that of the
    generator's width.  Raises UserError if the model has no tokenizer, which says what [MASK] is.
    """

    def __init__(self, model: BaseEncoder, fraction: float):
        super().__init__()
        if model.tokenizer is None:
            raise UserError("a generator needs the model's tokenizer, which says what [MASK] is: set model.tokenizer")
        self._mask_id = model.tokenizer.mask_id
        self._activation = model.config.activation
        self.generator = Generator(model, fraction)
        self.transform = nn.Linear(model.config.hidden_size, model.config.hidden_size)
        self.out = nn.Linear(model.config.hidden_size, 2)

    def replaced(
        self, batch: Packed, embed: Callable[[Packed], Tensor], mask_replace_prob: float
    ) -> tuple[Packed, Tensor]:
        """Return the batch with the tokens labeled 1 replaced, relabeled, and the generator's mean loss.

        The new label is 1 where a token differs from the original: a sample that hits it counts as original, as in the
        paper's section 3.1.  Of the tokens to replace, `mask_replace_prob` are hidden from the generator, and the rest
        are shown.  `embed` returns the embeddings (T, D) of a batch.  What is drawn for a sample depends on its name
        alone: neither a resumed run, nor the layout of processes, nor the rest of the batch changes it.
        """
        labels = batch.labels["label"]
        assert labels.positions is not None, "labels of tokens have positions"
        chosen = labels.positions[labels.values == 1]
        hides, draws = _chances(batch, chosen)
        hidden = chosen[hides < mask_replace_prob]
        embedded_TD = embed(replace(batch, ids=_with(batch.ids, hidden, self._mask_id)))
        total, drawn = self.generator.fill(embedded_TD, batch.layout, chosen, batch.ids[chosen], draws)
        ids = _with(batch.ids, chosen, drawn)
        differs = Labels((ids != batch.ids)[labels.positions].astype(np.int64), labels.positions)
        return replace(batch, ids=ids, labels={"label": differs}), total / max(1, len(chosen))

    def forward(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        x_PD = paddle.gather(hidden_TD, on_device(positions))
        x_PD = linear(x_PD, self.transform.weight, self.transform.bias, self._activation)
        return linear(x_PD, self.out.weight, self.out.bias)


def narrowed(config: EncoderConfig, fraction: float) -> EncoderConfig:
    """Return the shape of a generator of about this fraction of the width, in whole heads of the same width."""
    heads = max(1, round(fraction * config.heads))
    return replace(
        config,
        heads=heads,
        hidden_size=heads * config.hidden_size // config.heads,
        intermediate_size=max(1, heads * config.intermediate_size // config.heads),
    )


def _chances(batch: Packed, chosen: np.ndarray) -> np.ndarray:
    """Draw two numbers from 0 to 1 for each of the `chosen` tokens (M,), (2, M), by the names of their samples."""
    counts = np.bincount(batch.layout.sequences_of(chosen), minlength=batch.layout.sequences)
    each = zip(batch.generators("replaced tokens"), counts.tolist(), strict=True)
    drawn = [rng.random((2, count)) for rng, count in each]
    return np.concatenate(drawn, axis=1)


def _with(ids: np.ndarray, at: np.ndarray, values: np.ndarray | int) -> np.ndarray:
    changed = ids.copy()
    changed[at] = values
    return changed
