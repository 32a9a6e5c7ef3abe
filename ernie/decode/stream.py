"""The streaming contract: input is pushed as it arrives; output is returned once committed, and never revised.

Decoders are stateless.  All they need about some streams is in a state, which is never changed in place: it may be
kept, continued twice, batched with the states of other streams, split into single streams, and saved to a file for
another process to continue.
"""

from __future__ import annotations

import math
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import numpy as np
from numpy.lib import format as npy_format

from ernie.atomic import replacing
from ernie.errors import Remark, UserError, about
from ernie.formatting import plural
from ernie.outcome import Note, Outcome
from ernie.text.surrogates import require_encodable


class State(Protocol):
    """The state of some streams."""

    @property
    def streams(self) -> int:
        """The number of streams."""

    def select(self: S, streams: Sequence[int]) -> S:
        """Return the state of these streams only, in this order."""

    def concat(self: S, others: Sequence[S]) -> S:
        """Concatenate the streams of this state and of others, in order."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""

    @classmethod
    def from_arrays(cls: type[S], arrays: Mapping[str, np.ndarray]) -> S:
        """Restore a state from its `arrays`."""


_NAMES = "state.names"  # the key of the array that lists the names of all others
# What NumPy and `from_arrays` may raise for a file that holds no valid state.
_DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    NotImplementedError,
    BadZipFile,
    RecursionError,
    zlib.error,
)

S = TypeVar("S", bound=State)
T_co = TypeVar("T_co", covariant=True)
In = TypeVar("In")
Out = TypeVar("Out")


class StreamDecoder(ABC, Generic[S, In, Out]):
    """Turns input that comes in pieces into committed output.

    `push` and `finish` compute all that the input allows.  Servers call `accept` and `end`, which compute nothing with
    the network, and `step`, which does a bounded amount of work for all streams together.  However the calls are
    mixed, and whatever streams are beside it, a stream has the same output.
    """

    @abstractmethod
    def begin(self, streams: int = 1) -> S:
        """Return the state of streams before any input."""

    @abstractmethod
    def accept(self, state: S, pieces: Sequence[In | None]) -> tuple[S, list[UserError | None]]:
        """Take more input, one piece for each stream or None; it is computed by later steps.

        A piece that cannot be taken, for instance because the stream is over, gives an error for its stream, which
        stays as it was.  Raises UserError if there are more or fewer pieces than streams, and for a state of another
        model.
        """

    @abstractmethod
    def end(self, state: S, streams: Sequence[bool] | None = None) -> S:
        """End the input of the streams for which this is true, by default of all."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What `change` may change of a stream, by name, with the values that it begins with."""
        return {}

    def change(self, state: S, changes: Sequence[Mapping[str, Any] | None]) -> S:
        """Change the `settings` of streams from their next step on; for a stream without a change there is None.

        Raises UserError for settings that the decoder does not have, and for values that do not fit.
        """
        for values in check_pieces(state, changes):
            for name in values or ():
                raise UserError(f"{name}: there is no such setting of this stream")
        return state

    @abstractmethod
    def pending(self, state: S) -> list[bool]:
        """Return which streams a step advances: without further input, the others have nothing to compute."""

    def has_room(self, state: S) -> list[bool]:
        """Return which streams have so little left to compute that a server may give them more input.

        Then its streams stay small, however much input waits.
        """
        return [not waits for waits in self.pending(state)]

    def missing(self, state: S) -> list[int]:
        """Return at least how many characters or samples each stream lacks before it has something to compute.

        A server may let less input than that wait, and give it all at once.
        """
        return [1] * state.streams

    def step(self, state: S, most: int | None = 1) -> tuple[S, list[Outcome[Out]]]:
        """Advance all pending streams together, by a bounded step; return the output of each that it commits.

        A stream takes at most `most` blocks of its input, whose size depends on the decoder; None stands for as many
        as memory allows.  A stream that fails, for instance because its outputs are not finite, has an error in its
        outcome and is over.  The outcome of a stream that is not pending is empty output.
        """
        with self.context():
            return self.advance(state, most)

    @abstractmethod
    def advance(self, state: S, most: int | None) -> tuple[S, list[Outcome[Out]]]:
        """Do as `step`, for a caller that has entered `context`, perhaps for many steps."""

    @abstractmethod
    def joined(self, outputs: Sequence[Out]) -> Out:
        """Return consecutive outputs of a stream, perhaps none, as one."""

    def context(self) -> AbstractContextManager[object]:
        """Return the context in which steps are computed."""
        return nullcontext()

    def push(self, state: S, pieces: Sequence[In]) -> tuple[S, list[Out]]:
        """Take more input, one piece for each stream; return the output of each that is committed by now.

        Notes are shown as warnings (Remark).  Raises UserError as `accept` does, and the error of the first stream that
        fails: the caller still has the old state.
        """
        state, errors = self.accept(state, pieces)
        if any(piece is None for piece in pieces):
            raise UserError("expected a piece for each stream, found None, which only accept() takes")
        for error in errors:
            if error is not None:
                raise error
        return self._run(state)

    def finish(self, state: S) -> tuple[S, list[Out]]:
        """End all streams; return the rest of their output.  Raises as `push` does."""
        return self._run(self.end(state))

    def _show(self, notes: Sequence[Note], level: int = 4) -> None:
        """Show notes as warnings (Remark) of the caller's caller's caller, who called push or finish.

        Of the notes with the same topic only the first is shown.
        """
        shown: set[str] = vars(self).setdefault("_shown_topics", set())
        for note in notes:
            if note.topic is None or note.topic not in shown:
                warnings.warn(str(note), Remark, stacklevel=level)
                shown.update([note.topic] if note.topic else [])

    def _run(self, state: S) -> tuple[S, list[Out]]:
        outputs: list[list[Out]] = [[] for _ in range(state.streams)]
        going_on = any(self.pending(state))
        with self.context() if going_on else nullcontext():
            while going_on:
                state, outcomes = self.advance(state, None)
                for own, outcome in zip(outputs, outcomes, strict=True):
                    self._show(outcome.notes)
                    own.append(outcome.get())
                going_on = any(self.pending(state))
        return state, [self.joined(own) for own in outputs]


class Stream(Generic[S, In, Out]):
    """A single stream: `push` returns what is committed by now, `finish` the rest.

    `state` may be kept and set again at any time.
    """

    def __init__(self, decoder: StreamDecoder[S, In, Out]):
        check_decoder(decoder)
        self._decoder = decoder
        self.state = decoder.begin()

    def push(self, piece: In) -> Out:
        """Take more of the input; return more of the output."""
        self.state, (new,) = self._decoder.push(self.state, [piece])
        return new

    def finish(self) -> Out:
        """Return the rest of the output."""
        self.state, (new,) = self._decoder.finish(self.state)
        return new


class Savable(Protocol):
    """What can be saved: a state, or something with states in it."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all of it as arrays by name."""


def save_state(state: Savable, path: str | Path) -> None:
    """Write a state to an .npz file; an older one there is replaced once the new one is complete.

    Raises UserError when there is no such folder.
    """
    path, arrays = Path(path), state.arrays()
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}")
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, **{_NAMES: np.array(sorted(arrays))}, **arrays)  # type: ignore[arg-type]


class Restorable(Protocol[T_co]):
    """Restores states from arrays: a state class, or a chain of decoders."""

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> T_co:
        """Restore a state from its `arrays`."""


def restorable(decoder: Any) -> Restorable[Any]:
    """Return what restores the states of a decoder: their class, or the decoder if it does so itself.

    Raises UserError for what is no decoder.
    """
    found: Any = decoder
    if not hasattr(decoder, "from_arrays"):
        check_decoder(decoder)
        found = type(decoder.begin())
    return found


def load_state(decoder: Any, path: str | Path) -> Any:
    """Read a state that `save_state` wrote; `decoder` can continue it.  The class of its states will do, too.

    Raises UserError when the file is missing or damaged, lacks a part of the state, or holds another kind of state; a
    decoder of another model raises it when it is to continue the state.
    """
    kind = restorable(decoder)
    if not Path(path).exists():
        raise UserError(f"{path}: there is no such file")
    if Path(path).is_file() and not is_zipfile(path):
        raise UserError(f"{path}: is no file that save_state wrote, or was damaged since")
    with about(path), _reading(kind):
        arrays = _read_arrays(Path(path))
        if missing := sorted({*map(str, arrays.pop(_NAMES, ()))} - {*arrays}):
            raise ValueError(f"it lacks {', '.join(missing)}")
        return kind.from_arrays(arrays)


def state_from(decoder: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return a state from its arrays.  Raises UserError for those of another kind, or of another version."""
    kind = restorable(decoder)
    with _reading(kind):
        return kind.from_arrays(arrays)


@contextmanager
def _reading(kind: Any) -> Iterator[None]:
    """Raise UserError for whatever shows that something is no state of this kind."""
    try:
        yield
    except UserError:
        raise
    except _DAMAGED as error:
        name = getattr(kind, "__name__", type(kind).__name__)
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UserError(f"holds no state of the kind {name} ({reason})") from None


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an .npz file whose arrays, which nothing compresses, are together no larger than the file.

    Raises ValueError for any other: what it asks for may be far larger than what was sent.
    """
    with ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != ZIP_STORED for member in members):
            raise ValueError("its arrays are compressed")
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("its arrays are larger than the file")
        return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}


def _array(content: bytes) -> np.ndarray:
    """Return the array in an .npy file's content.  Raises ValueError if its header asks for more than there is."""
    file = BytesIO(content)
    version = npy_format.read_magic(file)
    header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = header(file)
    if math.prod(shape) * max(dtype.itemsize, 1) > len(content):
        raise ValueError(f"an array of {list(shape)} is larger than its part of the file")
    file.seek(0)
    array: np.ndarray = np.load(file, allow_pickle=False)
    return array


def check_decoder(decoder: object) -> None:
    """Raise UserError for anything but a decoder, such as the path of one."""
    if isinstance(decoder, type) or not callable(getattr(decoder, "begin", None)):
        raise UserError(f"expected a decoder, such as TextTranslator.load(RUN), found {decoder!r:.60}")


def check_state(state: object, kind: type[Any]) -> None:
    """Raise UserError for anything but a state of this kind, as `begin` of its decoder returns it."""
    if not isinstance(state, kind):
        found = type(state).__name__
        raise UserError(f"expected a {kind.__name__}, which begin() of the same decoder returns, found {found}")


def flags(state: State, streams: Sequence[bool] | None) -> Sequence[bool]:
    """Return a flag for each stream of a state, by default true.  Raises UserError if there are more or fewer."""
    if streams is None:
        return [True] * state.streams
    if len(streams) != state.streams:
        raise UserError(f"expected a flag for each of {plural(state.streams, 'stream')}, found {len(streams)}")
    return streams


def check_streams(streams: int) -> None:
    """Raise UserError unless it is a number of streams."""
    if not isinstance(streams, (int, np.integer)) or streams < 1:
        raise UserError(f"streams: expected a number, at least 1, found {streams!r:.60}")


def check_pieces(state: State, pieces: Sequence[T_co]) -> Sequence[T_co]:
    """Return the pieces, one for each stream of a state.  Raises UserError if there are more or fewer."""
    if isinstance(pieces, str) or len(pieces) != state.streams:
        found = f"the text {pieces!r:.40}" if isinstance(pieces, str) else str(len(pieces))
        raise UserError(f"expected a list of {plural(state.streams, 'piece')}, one for each stream, found {found}")
    return pieces


def check_more_text(piece: str, ended: bool) -> None:
    """Raise UserError for anything but a string that can be encoded, and for text after the end of a stream."""
    check_text(piece)
    if piece and ended:
        raise UserError("the text of this stream is over; begin another one")


def check_text(piece: str) -> None:
    """Raise UserError for anything but a string that can be encoded."""
    if not isinstance(piece, str):
        raise UserError(f"expected a piece of text for each stream, found {piece!r:.60}")
    require_encodable(piece)
