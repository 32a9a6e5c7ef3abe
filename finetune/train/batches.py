"""The micro-batches of coming steps, as the model gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import c_bool
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from ernie.data.batch import Packed
from ernie.data.workers import Workers
from finetune.train.steps import Samples
from tasks.downstream.base import FinetuneTask
from tasks.downstream.hooks import ReadsSounds

if TYPE_CHECKING:  # it loads Paddle, which would cost each worker seconds and memory
    from ernie.parallel.mesh import Mesh

_ADVICE = "The same command goes on; fewer `workers` take less."
_Parts = Sequence[tuple[Samples, bool]]  # the micro-batches of a step, and whether each is one's own


class Batches:
    """Makes batches in so many `workers`, processes that are ahead of the steps; with 0 when a step asks for them.

    Of the processes of `mesh` each has the sounds of its own micro-batches only, or of all where it has none.
    """

    def __init__(self, task: FinetuneTask, mesh: Mesh, workers: int):
        self._mesh, self._reads_sounds = mesh, isinstance(task, ReadsSounds)
        # Without a lock, which a worker that is killed might hold.
        self._is_over: c_bool | None = None
        self._make: Callable[[_Parts], list[Packed]] = partial(_made, task)
        if not workers:
            self._workers = Workers(0, _ADVICE)
            return
        self._is_over = get_context("spawn").RawValue(c_bool, False)
        self._make = _made_in_worker
        self._workers = Workers(workers, _ADVICE, partial(_begin, task, self._is_over))

    def of(self, steps: Iterable[Sequence[Samples]]) -> Iterator[list[Packed]]:
        """Yield the micro-batches of each step, given their samples.

        Raises UserError where a sound cannot be read, and if a worker is killed.
        """
        return self._workers.map(self._make, map(self._with_own, steps))

    def close(self) -> None:
        """End the workers, after at most a micro-batch; what they have made ahead is dropped."""
        if self._is_over is not None:
            self._is_over.value = True
        self._workers.close()

    def _with_own(self, step: Sequence[Samples]) -> _Parts:
        if not self._reads_sounds:  # a batch of text costs next to nothing
            return [(each, True) for each in step]
        numbers = range(len(step))
        own = self._mesh.shard(numbers) or numbers
        return [(each, True) if number in own else (each.without_sounds(), False) for number, each in enumerate(step)]


def _made(task: FinetuneTask, step: _Parts) -> list[Packed]:
    return [_packed(task, *part) for part in step]


def _packed(task: FinetuneTask, samples: Samples, is_own: bool) -> Packed:
    batch = samples.packed()
    return task.augmented(batch, training=True) if is_own and isinstance(task, ReadsSounds) else batch


_given: list[tuple[FinetuneTask, c_bool]] = []  # a worker's task, and whether its batches are wanted no more


def _begin(task: FinetuneTask, is_over: c_bool) -> None:
    _given.append((task, is_over))


def _made_in_worker(step: _Parts) -> list[Packed]:
    [(task, is_over)] = _given
    return [_packed(task, *part) for part in step if not is_over.value]
