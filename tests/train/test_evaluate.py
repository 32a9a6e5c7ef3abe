"""Evaluating a layer: without dropout, with confidence intervals over the items that samples are made from."""

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


class Classifier(nn.Layer):
    """Classifies tokens where they are labeled, otherwise sequences."""

    def __init__(self) -> None:
        super().__init__()
        paddle.seed(1)
        self.table, self.dropout = nn.Embedding(30, CLASSES), nn.Dropout(0.5)

    def loss(self, batch: Packed) -> Loss:
        labels = batch.labels["label"]
        tokens = batch.layout.starts if labels.positions is None else labels.positions
        return cross_entropy(self.dropout(self.table(paddle.to_tensor(batch.ids[tokens]))), labels.values)


def batches(token_labels: bool) -> tuple[list[Packed], np.ndarray, np.ndarray, np.ndarray]:
    """Return four batches of samples of six items, and the token, label and item of each target, in order."""
    rng = np.random.default_rng(0)
    packed, targets = [], []
    for number in range(4):
        samples, names = [], []
        for k in range(5):
            ids, item = rng.integers(30, size=4), int(rng.integers(6))
            labels = np.where(rng.random(4) < 0.7, rng.integers(CLASSES, size=4), IGNORE)
            if not token_labels:
                labels[0], labels[1:] = rng.integers(CLASSES), IGNORE
            samples.append(Sample(ids, np.zeros(4, np.int64), {"label": labels if token_labels else int(labels[0])}))
            names.append((0, item, 5 * number + k))
            targets += [(i, label, item) for i, label in zip(ids, labels, strict=True) if label != IGNORE]
        packed.append(pack(samples, np.array(names)))
    tokens, labels, items = np.array(targets).T
    return packed, tokens, labels, items


@pytest.mark.parametrize("token_labels", [True, False])
def test_scores_pool_all_batches_over_items_without_dropout(token_labels: bool) -> None:
    model = Classifier()
    model.train()
    packed, tokens, labels, items = batches(token_labels)
    logits = model.table.weight.numpy()[tokens].astype(np.float64)
    losses = np.logaddexp.reduce(logits, 1) - logits[np.arange(len(labels)), labels]
    scores = evaluate(model, model.loss, packed, ("perplexity", "accuracy"))
    assert list(scores) == ["perplexity", "accuracy"]
    for name, actual in scores.items():
        expected = score(name, logits.argmax(1), labels, losses, items)
        assert (actual.count, actual.majority) == (len(labels), expected.majority)
        assert [actual.value, actual.low, actual.high] == pytest.approx(
            [expected.value, expected.low, expected.high], rel=1e-5
        )
        assert actual.draws == pytest.approx(expected.draws, rel=1e-5)


def test_a_loss_with_a_target_count_other_than_that_of_its_batch_is_rejected() -> None:
    model, (first, *_) = Classifier(), batches(token_labels=True)[0]

    def loss_of_two_targets(batch: Packed) -> Loss:
        return cross_entropy(model.table(paddle.to_tensor([1, 2])), np.array([0, 1]))

    with pytest.raises(ValueError, match="the loss has 2 targets, but no labels of its batch have as many"):
        evaluate(model, loss_of_two_targets, [first], ("accuracy",))
