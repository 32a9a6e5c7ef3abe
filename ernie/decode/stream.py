"""The streaming contract: input is pushed as it comes, output that is committed comes back and is never taken back.

A decoder holds no state of its own.  What it knows of some streams is a state, which nothing changes in place: one may
keep it, go on from it twice, put those of several together so that one batch serves all, and take single streams out.
A file keeps it too, for another process to go on from.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np

from ernie.errors import UserError
from ernie.report.words import plural


class State(Protocol):
    """What is known of some streams."""

    @property
    def streams(self) -> int:
        """How many."""

    def chosen(self: S, streams: Sequence[int]) -> S:
        """These streams only, in this order."""

    def with_others(self: S, others: Sequence[S]) -> S:
        """The streams of this state and those of others, in their order."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""

    @classmethod
    def of_arrays(cls: type[S], arrays: Mapping[str, np.ndarray]) -> S:
        """The state of which `arrays` gave these."""


_NAMES = "state.names"  # of a file's arrays: that of all others which belong there
# What NumPy, and a state that is made of arrays, may raise for a file that is none.
_DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    NotImplementedError,
    BadZipFile,
    zlib.error,
)

S = TypeVar("S", bound=State)
Made = TypeVar("Made", covariant=True)
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out")


class StreamDecoder(Protocol[S, In, Out]):
    """What turns input that comes in pieces into output that is committed."""

    def begin(self, streams: int = 1) -> S:
        """The state of streams of which nothing has come yet."""

    def push(self, state: S, pieces: Sequence[In]) -> tuple[S, list[Out]]:
        """More input, a piece for each stream; the output of each that is committed now.

        Raises UserError where there are more pieces than streams, or fewer.
        """

    def finish(self, state: S) -> tuple[S, list[Out]]:
        """The input of all streams is over; the rest of their output."""


class Stream(Generic[S, In, Out]):
    """One input, decoded as it comes in: `push` gives what is committed now, `finish` the rest.

    `state` may be kept and set again at any time.
    """

    def __init__(self, decoder: StreamDecoder[S, In, Out]):
        self._decoder = decoder
        self.state = decoder.begin()

    def push(self, piece: In) -> Out:
        """More of the input; more of the output."""
        self.state, (new,) = self._decoder.push(self.state, [piece])
        return new

    def finish(self) -> Out:
        """The rest of the output."""
        self.state, (new,) = self._decoder.finish(self.state)
        return new


def save_state(state: State, path: str | Path) -> None:
    """Write a state to a file, in NumPy's format .npz."""
    arrays = state.arrays()
    with Path(path).open("wb") as file:
        np.savez(file, **{_NAMES: np.array(sorted(arrays))}, **arrays)  # type: ignore[arg-type]


class Restoring(Protocol[Made]):
    """What makes a state of arrays: its class, or a chain of decoders."""

    def of_arrays(self, arrays: Mapping[str, np.ndarray]) -> Made:
        """The state of which `arrays` gave these."""


def load_state(kind: Restoring[Made], path: str | Path) -> Made:
    """Read a state of a kind that `save_state` wrote; the decoder it came from can go on from it.

    Raises UserError when the file is missing or damaged, lacks a part of the state, or holds another kind of state; a
    decoder of another model than the state's own raises it when it is to go on from it.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        lacking = sorted({*map(str, arrays.pop(_NAMES, ()))} - {*arrays})
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        return kind.of_arrays(arrays)
    except _DAMAGED as error:
        name = getattr(kind, "__name__", type(kind).__name__)
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UserError(f"{path}: holds no state of the kind {name} ({reason})") from None


def one_model(models: Iterable[str]) -> str:
    """What tells the model of all of these states from others, "" where none says it.  Raises UserError where they are
    of several models."""
    known = sorted({*models} - {""})
    if len(known) > 1:
        raise UserError("this state is of another model: only the model that a stream has begun with can go on with it")
    return "".join(known)


def of_each(state: State, pieces: Sequence[Made]) -> Sequence[Made]:
    """The pieces, one for each stream of a state.  Raises UserError where there are more of them, or fewer."""
    if isinstance(pieces, str) or len(pieces) != state.streams:
        found = f"the text {pieces!r:.40}" if isinstance(pieces, str) else str(len(pieces))
        raise UserError(f"expected a list of {plural(state.streams, 'piece')}, one for each stream, found {found}")
    return pieces


def text_of_each(state: State, pieces: Sequence[str]) -> Sequence[str]:
    """As `of_each`, of pieces of text.  Raises UserError where one is something else, too."""
    for piece in of_each(state, pieces):
        if not isinstance(piece, str):
            raise UserError(f"expected a piece of text for each stream, found {piece!r:.60}")
    return pieces


def under(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a part of a state, for the state's own `arrays`."""
    return {f"{name}/{key}": value for key, value in arrays.items()}


def part(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that `under` put under a name."""
    return {key.removeprefix(f"{name}/"): value for key, value in arrays.items() if key.startswith(f"{name}/")}
