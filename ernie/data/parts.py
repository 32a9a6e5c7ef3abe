"""Parts of the inputs, each of which one worker reads at a time: some whole inputs, or a piece of a large one.

Which document is in which part depends on the inputs alone.  A piece begins where the one before has ended, so that all
documents are read once, in order, whoever reads which part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ernie.data import compressed
from ernie.data.formats import format_of_name
from ernie.data.raw import Dropped, RawDocument, ReadOptions, Unparsed
from ernie.data.read import Input, parsed, read_unparsed

PART = 1 << 22  # bytes of text in a part, about: what is made of tiny documents may take ten times as much
_RATIO = 4  # of text to bytes on the disk, where a file is compressed
_OVERHEAD = 1 << 12  # bytes that an input counts for besides its text, since opening it takes time, too

Item = tuple[int, RawDocument | Dropped]  # with the number of the input that it comes from


@dataclass(frozen=True)
class Part:
    """The inputs from number `first` on, or piece `piece` of the `pieces` of a single one.

    What no worker can read comes with its `items`, of which `before` of the same input are in earlier parts.  `end` is
    the number of bytes of all inputs as far as the end of this part.
    """

    first: int
    inputs: tuple[Input, ...]
    end: int
    piece: int = 0
    pieces: int = 1
    items: tuple[RawDocument | Dropped | Unparsed, ...] | None = None
    before: int = 0

    @property
    def begins_input(self) -> bool:
        """Whether nothing of its first input is in an earlier part."""
        return self.piece == 0 and self.before == 0


def parts(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Part]:
    """Yield the parts of all inputs, in order.

    Streams, and inputs whose size is unknown, are read by whoever asks for the parts: they cannot be read in pieces.
    """
    whole: list[Input] = []
    size = end = 0
    for number, source in enumerate(inputs):
        here, text = source.is_stream or source.size is None, _text(source)
        if whole and (here or size + text > PART):
            yield Part(number - len(whole), tuple(whole), end)
            whole, size = [], 0
        if here:
            yield from _read_here(number, source, options, end)
        elif (pieces := -(-text // PART)) > 1:
            ends = (end + (source.size or 0) * (piece + 1) // pieces for piece in range(pieces))
            yield from (Part(number, (source,), at, piece, pieces) for piece, at in enumerate(ends))
        else:
            whole.append(source)
            size += text
        end += source.size or 0
    if whole:
        yield Part(len(inputs) - len(whole), tuple(whole), end)


def _text(source: Input) -> int:
    """Return about how many bytes of text an input holds."""
    form = format_of_name(source.name)
    packed = compressed.uncompressed_name(source.name) != source.name or (form is not None and form.packs)
    return _OVERHEAD + (source.size or 0) * (_RATIO if packed else 1)


def _read_here(number: int, source: Input, options: ReadOptions, end: int) -> Iterator[Part]:
    items: list[RawDocument | Dropped | Unparsed] = []
    at = size = before = 0

    def note(bytes_read: int) -> None:
        nonlocal at
        at = bytes_read

    for item in read_unparsed(source, options, note):
        items.append(item)
        size += item.size
        if size >= PART:
            yield Part(number, (source,), end + at, items=tuple(items), before=before)
            before += len(items)
            items, size = [], 0
    yield Part(number, (source,), end + (source.size or at), items=tuple(items), before=before)


class PartReader:
    """Reads parts.  An input that is read in pieces stays open, so that the next piece is read on from there."""

    def __init__(self, options: ReadOptions):
        self._options = options
        self._opened: _Opened | None = None

    def __getstate__(self) -> dict[str, ReadOptions | None]:
        return {**vars(self), "_opened": None}

    def __call__(self, part: Part) -> tuple[int, Iterator[Item]]:
        """Return how many items of the first input are in earlier parts, and what this part holds.

        Raises UserError for what cannot be read, as `read_input` does.
        """
        if part.items is not None:
            return part.before, ((part.first, parsed(item, self._options)) for item in part.items)
        if part.pieces == 1:
            return 0, self._whole(part)
        opened, self._opened = self._opened, None  # it is of no use after an error
        if opened is None or not opened.leads_to(part):
            opened = _Opened(part, self._options)
        before = opened.skip_to(part.piece)
        return before, self._piece(part, opened)

    def _whole(self, part: Part) -> Iterator[Item]:
        for number, source in enumerate(part.inputs, part.first):
            for item in read_unparsed(source, self._options):
                yield number, parsed(item, self._options)

    def _piece(self, part: Part, opened: _Opened) -> Iterator[Item]:
        for item in opened.items(part.piece):
            yield part.first, parsed(item, self._options)
        self._opened = opened


class _Opened:
    """An input that is read in pieces, as far as it has been read."""

    def __init__(self, part: Part, options: ReadOptions):
        self._source, self._pieces = part.inputs[0], part.pieces
        self._at = 0
        self._piece = 0  # that of the next item
        self._number = 0  # of items before the next one
        self._items = read_unparsed(self._source, options, self._note)
        self._item = self._next()

    def leads_to(self, part: Part) -> bool:
        """Whether a part begins at, or after, what is read next."""
        return (self._source, self._pieces) == (part.inputs[0], part.pieces) and self._piece <= part.piece

    def skip_to(self, piece: int) -> int:
        """Leave out what is in earlier pieces; return how many items these have."""
        for _ in self._while(lambda: self._piece < piece):
            pass
        return self._number

    def items(self, piece: int) -> Iterator[RawDocument | Dropped | Unparsed]:
        """Yield the items of a piece.  After the last one, the file is known to be whole and unchanged."""
        return self._while(lambda: self._piece == piece)

    def _while(self, condition: Callable[[], bool]) -> Iterator[RawDocument | Dropped | Unparsed]:
        while self._item is not None and condition():
            yield self._item
            self._number += 1
            self._item = self._next()

    def _note(self, bytes_read: int) -> None:
        self._at = max(self._at, bytes_read)

    def _next(self) -> RawDocument | Dropped | Unparsed | None:
        item = next(self._items, None)
        size = self._source.size or 1
        self._piece = min(self._pieces - 1, self._at * self._pieces // size)
        return item
