"""One reading of all inputs by an engine: each part by a worker, and what it makes of it in the order of the text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar

from ernie.data.parts import Item, Part, PartReader, parts
from ernie.data.raw import ReadOptions
from ernie.data.read import Input
from ernie.data.remote import without_secrets
from ernie.errors import Remark, UserError
from pretrain.corpus.engine import Broadcast, Engine


class Known(Protocol):
    """What is known of consecutive items."""

    def after(self: K, count: int) -> K:
        """Return what is known of those that follow so many."""


R = TypeVar("R")
K = TypeVar("K", bound="Known")
# Makes something of a batch of items, with what is known of them.
Make = Callable[[Sequence[Item], K], R]

CHUNK = 1 << 20  # total size at which a batch of documents is complete


@dataclass(frozen=True)
class Done:
    """How far a reading is: complete parts, and the items of the current input in them."""

    parts: int = 0
    items: int = 0


@dataclass(frozen=True)
class Made(Generic[R]):
    """What a worker made of a part: a result for each batch of its `items`, of which `before` came earlier.

    `done` is how far the reading is then.
    """

    part: Part
    items: int
    before: int
    results: list[R]
    remarks: list[str]
    done: Done = Done()


def readings(
    inputs: Sequence[Input],
    options: ReadOptions,
    engine: Engine,
    make: Make[K, R],
    known: Callable[[int], K],
    done: Done = Done(),
) -> Iterator[Made[R]]:
    """Yield what workers make of the parts of the inputs, in order, but for those that are done.

    `known` returns what is known of the items of the part with a number.  Raises UserError for what cannot be read, and
    for an input whose pieces do not fit together.
    """
    work = partial(_work, engine.broadcast(_Work(make, options)))
    numbered = islice(enumerate(parts(inputs, options)), done.parts, None)
    jobs = ((part, known(number)) for number, part in numbered)
    for made in engine.map(work, jobs):
        at = 0 if made.part.begins_input else done.items
        if made.before != at:
            raise UserError(
                f"{without_secrets(made.part.inputs[0].name)}: has {made.before:,} documents as far as a place before "
                f"which another worker found {at:,}. Start again when nothing writes to it any more, or give a copy"
            )
        done = Done(done.parts + 1, made.before + made.items)
        for remark in made.remarks:
            warnings.warn(remark, Remark, stacklevel=2)
        yield replace(made, done=done)


class _Work(Generic[K, R]):
    def __init__(self, make: Make[K, R], options: ReadOptions):
        self._make = make
        self._reader = PartReader(options)
        self._chunk = CHUNK

    def __call__(self, part: Part, known: K) -> Made[R]:
        results: list[R] = []
        with _remarks() as remarks:
            before, items = self._reader(part)
            first = 0
            for batch in _batches(items, self._chunk):
                results.append(self._make(batch, known.after(first)))
                first += len(batch)
        return Made(_without_items(part), first, before, results, remarks)


def _work(work: Broadcast[_Work[K, R]], job: tuple[Part, K]) -> Made[R]:
    return work.value(*job)


def _without_items(part: Part) -> Part:
    return part if part.items is None else Part(part.first, part.inputs, part.end, items=(), before=part.before)


def _batches(items: Iterator[Item], most: int) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += item[1].size
        if size >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _remarks() -> Iterator[list[str]]:
    """Yield a list that at the end has the remarks made meanwhile, to be shown by another process."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Remark)
        yield found
    for warning in caught:
        if issubclass(warning.category, Remark):
            found.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
