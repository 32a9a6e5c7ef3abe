"""The micro-batches of coming steps, as the model gets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ernie.data.batch import Packed
from ernie.data.workers import Workers
from ernie.parallel.mesh import Mesh
from finetune.train.steps import Samples
from tasks.downstream.base import FinetuneTask
from tasks.downstream.hooks import ReadsSounds

_ADVICE = "The same command goes on; fewer `workers` take less."


class Batches:
    """Makes batches in so many `workers`, processes that are ahead of the steps; with 0 when a step asks for them.

    Of the processes of `mesh` each has the sounds of its own micro-batches only, or of all where it has none.
    """

    def __init__(self, task: FinetuneTask, mesh: Mesh, workers: int):
        self._task, self._mesh = task, mesh
        self._workers = Workers(workers, _ADVICE)

    def of(self, steps: Iterable[Sequence[Samples]]) -> Iterator[list[Packed]]:
        """Yield the micro-batches of each step, given their samples.

        Raises UserError where a sound cannot be read, and if a worker is killed.
        """
        return self._workers.map(partial(_made, self._task), map(self._with_own, steps))

    def close(self) -> None:
        """End the workers; what they have made ahead is dropped."""
        self._workers.close()

    def _with_own(self, step: Sequence[Samples]) -> list[tuple[Samples, bool]]:
        numbers = range(len(step))
        own = self._mesh.shard(numbers) or numbers
        return [(samples, number in own) for number, samples in enumerate(step)]


def _made(task: FinetuneTask, step: Sequence[tuple[Samples, bool]]) -> list[Packed]:
    if not isinstance(task, ReadsSounds):
        return [samples.packed() for samples, _ in step]
    return [
        task.augmented(samples.packed(), training=True) if is_own else samples.packed(with_sounds=False)
        for samples, is_own in step
    ]
