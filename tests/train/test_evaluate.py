"""Measuring a layer: as it predicts, not as it learns, with intervals over the items that samples are made of."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from ernie.data.batch import Packed, pack
from ernie.data.document import IGNORE, Sample
from ernie.metrics import score
from ernie.model.losses import Loss, cross_entropy
from ernie.train.evaluate import evaluate

CLASSES = 3


class Guesser(nn.Layer):
    """Classes of tokens, where they are labeled, or of sequences."""

    def __init__(self) -> None:
        super().__init__()
        paddle.seed(1)
        self.table, self.dropout = nn.Embedding(30, CLASSES), nn.Dropout(0.5)

    def loss(self, batch: Packed) -> Loss:
        labels = batch.labels["label"]
        tokens = batch.layout.starts if labels.positions is None else labels.positions
        return cross_entropy(self.dropout(self.table(paddle.to_tensor(batch.ids[tokens]))), labels.values)


def batches(of_tokens: bool) -> tuple[list[Packed], np.ndarray, np.ndarray, np.ndarray]:
    """Four batches of samples of six items, and the token, label and item of each target, in their order."""
    rng = np.random.default_rng(0)
    found, targets = [], []
    for number in range(4):
        samples, names = [], []
        for k in range(5):
            ids, item = rng.integers(30, size=4), int(rng.integers(6))
            labels = np.where(rng.random(4) < 0.7, rng.integers(CLASSES, size=4), IGNORE)
            if not of_tokens:
                labels[0], labels[1:] = rng.integers(CLASSES), IGNORE
            samples.append(Sample(ids, np.zeros(4, np.int64), {"label": labels if of_tokens else int(labels[0])}))
            names.append((0, item, 5 * number + k))
            targets += [(i, label, item) for i, label in zip(ids, labels, strict=True) if label != IGNORE]
        found.append(pack(samples, np.array(names)))
    tokens, labels, items = np.array(targets).T
    return found, tokens, labels, items


@pytest.mark.parametrize("of_tokens", [True, False])
def test_scores_are_those_of_all_batches_together_over_items_and_without_dropout(of_tokens: bool) -> None:
    model = Guesser()
    model.train()
    given, tokens, labels, items = batches(of_tokens)
    logits = model.table.weight.numpy()[tokens].astype(np.float64)
    losses = np.logaddexp.reduce(logits, 1) - logits[np.arange(len(labels)), labels]
    found = evaluate(model, model.loss, given, ("perplexity", "accuracy"))
    assert list(found) == ["perplexity", "accuracy"]
    for name, own in found.items():
        expected = score(name, logits.argmax(1), labels, losses, items)
        assert (own.count, own.majority) == (len(labels), expected.majority)
        assert [own.value, own.low, own.high] == pytest.approx([expected.value, expected.low, expected.high], rel=1e-5)
        assert own.draws == pytest.approx(expected.draws, rel=1e-5)


def test_a_loss_that_tells_of_other_targets_than_its_batch_has_is_not_measured() -> None:
    model, (first, *_) = Guesser(), batches(of_tokens=True)[0]

    def of_two(batch: Packed) -> Loss:
        return cross_entropy(model.table(paddle.to_tensor([1, 2])), np.array([0, 1]))

    with pytest.raises(ValueError, match="the loss has 2 targets, but no labels of its batch have as many"):
        evaluate(model, of_two, [first], ("accuracy",))
