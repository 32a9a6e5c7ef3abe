"""Micro-batches: the rows of a step are split by the number of tokens that are computed for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.toys import TOKENIZER, TOYS

from ernie.data.batch import Packed
from finetune.train.steps import Step, micro_batches
from tasks.downstream.translate import Translate

TASK = TOYS["translate"].task
EXAMPLES = [TASK.training_example(row, TOKENIZER) for row in TOYS["translate"].rows(60)]
ALL = Step(np.arange(60), 0, 1.0, True)


def test_what_is_drawn_for_a_row_depends_on_the_seed_and_not_on_the_rows_beside_it() -> None:
    def drawn(seed: int, budget: int) -> dict[int, float]:
        sizes = [example.tokens for example in EXAMPLES]
        batches = [samples.packed() for samples in micro_batches(EXAMPLES, sizes, ALL, budget, seed=seed)]
        return {
            row: rng.random()
            for batch in batches
            for row, rng in zip(batch.samples[:, 1].tolist(), batch.generators("any"), strict=True)
        }

    assert drawn(0, 64) == drawn(0, 10**6)
    assert not {*drawn(0, 64).values()} & {*drawn(1, 64).values()}


def computed(task: Translate, batch: Packed) -> int:
    """The number of encoder tokens and decoder tokens of a batch."""
    assert batch.decoder_tokens is not None
    return task.encoder_input(batch)[0].layout.tokens + batch.decoder_tokens.layout.tokens


@pytest.mark.parametrize("catch_up", [0.0, 0.3, -0.5])
@pytest.mark.parametrize("encoder", ["causal", "prefixes"])
@pytest.mark.parametrize("k", [1, 3, (2, 1)])
def test_micro_batch_sizes_count_every_encoded_prefix(encoder: str, k: int | tuple[int, ...], catch_up: float) -> None:
    assert isinstance(TASK, Translate)
    task = replace(TASK, encoder=encoder, wait_k=k, catch_up=catch_up)
    sizes = [task.computed_tokens(example) for example in EXAMPLES]
    found = [samples.packed() for samples in micro_batches(EXAMPLES, sizes, ALL, 64)]
    assert sorted(row for batch in found for row in batch.samples[:, 1]) == list(range(60))
    assert max(computed(task, batch) for batch in found) <= 64
    first = Step(np.arange(1), 0, 1.0, True)
    each = [next(micro_batches([example], [1], first, 64)).packed() for example in EXAMPLES]
    exact = [computed(task, batch) for batch in each]
    # With several distances each row samples one, so the size is an upper bound: that of the most expensive.
    assert sizes == exact if isinstance(k, int) else all(np.array(exact) <= sizes)
