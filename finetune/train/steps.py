"""The steps of a fine-tuning, planned before it begins: the rows of each, and after which the dev split is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ernie.data import seeded_rng
from ernie.data.batch import Packed, pack, plan, plan_by_length
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.formatting import plural
from finetune.config import TrainConfig
from tasks.downstream.base import Example, FinetuneTask, WindowedTask
from tasks.downstream.hooks import ComparesRows

_MOST_VISITS = 4_000_000_000  # rows times epochs: their numbers are planned before training


class Step(NamedTuple):
    """One step: its row indices, its epoch, the epochs completed after it, and whether the dev split is scored then."""

    rows: np.ndarray
    epoch: int
    epochs: float
    scored: bool


class Samples(NamedTuple):
    """The samples of a micro-batch, their names (N, 3): epoch, row, number within the row, and the training's seed."""

    samples: list[Sample]
    names: np.ndarray
    seed: int = 0

    def without_sounds(self) -> Samples:
        """Return the same for a process that does not compute them."""
        return self._replace(samples=[replace(each, sound=None) for each in self.samples])

    def packed(self) -> Packed:
        """Return the batch, whose sounds are read now."""
        return pack(self.samples, self.names, self.seed)


def planned_steps(examples: Sequence[Example], config: TrainConfig, seed: int) -> list[Step]:
    """Return all steps of a fine-tuning: every row once per epoch, in an order determined by (seed, epoch)."""
    if (visits := config.epochs * len(examples)) > _MOST_VISITS:
        raise UserError(
            f"train.epochs: {config.epochs:,} of {plural(len(examples), 'row')} are {visits:,} rows to plan; expected "
            f"at most {_MOST_VISITS:,}"
        )
    steps = []
    for epoch in range(config.epochs):
        rows = _epoch_batches(examples, config, seed, epoch)
        # Evaluations are evenly spaced; the last step of training always has one.
        due = {max(1, round(len(rows) * k / config.evaluations)) for k in range(1, config.evaluations + 1)}
        if epoch + 1 == config.epochs:
            due.add(len(rows))
        steps += [Step(chosen, epoch, epoch + n / len(rows), n in due) for n, chosen in enumerate(rows, 1)]
    return steps


def _epoch_batches(examples: Sequence[Example], config: TrainConfig, seed: int, epoch: int) -> list[np.ndarray]:
    rng = seeded_rng.generator(seed, "finetune", epoch)
    lengths = [example.tokens for example in examples]
    sorted_now = config.shortest_first and epoch == 0
    if config.batch_tokens and sorted_now:
        return plan_by_length(lengths, config.batch_tokens)[::-1]
    if config.batch_tokens:
        return plan(np.minimum(lengths, config.batch_tokens).tolist(), config.batch_tokens, rng)
    shuffled = np.argsort(lengths, kind="stable") if sorted_now else rng.permutation(len(examples))
    return [shuffled[first : first + config.batch] for first in range(0, len(shuffled), config.batch)]


def split_steps(task: FinetuneTask, examples: Sequence[Example], steps: Sequence[Step], config: TrainConfig) -> str:
    """Return a remark on rows that do not fit into a micro-batch as they should; "" if there are none.

    These are rows that are compared with each other and are in several micro-batches, and rows with windows of more
    tokens than a micro-batch.
    """
    budget = config.micro_batch_tokens
    sizes = np.array([example.tokens for example in examples])
    if isinstance(task, WindowedTask) and task.windows is not None and (longest := int(sizes.max(initial=0))) > budget:
        return (
            f"train.micro_batch_tokens: the windows of a row have up to {longest:,} tokens, which are computed at once "
            f"though it is {budget:,}; task.windows.most bounds them, and so memory"
        )
    if config.grad_cache or not isinstance(task, ComparesRows) or not task.compares_rows:
        return ""
    most = max((int(sizes[step.rows].sum()) for step in steps), default=0)
    if most <= budget:
        return ""
    return (
        f"train.micro_batch_tokens: a step has up to {most:,} tokens, and {budget:,} are computed at a time: the "
        "negatives of a row are the texts of its micro-batch, not of its step; train.grad_cache: true compares all"
    )


def micro_batches(
    examples: Sequence[Example],
    sizes: Sequence[int],
    step: Step,
    budget: int,
    replicas: int = 1,
    passes: int = 1,
    seed: int = 0,
) -> Iterator[Samples]:
    """Yield the rows of a step as micro-batches of at most `budget` tokens, grouped by length.

    `sizes` are the `OwnBatches.computed_tokens` of the examples.  There is at least one micro-batch for each of the
    `replicas` that share them, if there are enough rows.  With several `passes` all its samples come so many times.
    """
    lengths = [sizes[i] for i in step.rows]
    budget = max(1, min(budget // passes, sum(lengths) // replicas))
    for chosen in plan_by_length(lengths, budget):
        rows = step.rows[chosen].tolist()
        samples = [sample for i in rows for sample in examples[i].samples]
        names = [(step.epoch, i, k) for i in rows for k in range(len(examples[i].samples))]
        yield Samples(samples * passes, np.array(names * passes), seed)
