"""Where the sounds in a file are, when its headers are wrong or it holds several.

A recorder that is killed, or writes to a pipe, leaves sizes in the header that are too small, and decoders stop where
the header says.  Files that were put together with `cat` hold several sounds, and decoders stop after the first.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

# The first bytes of sound files: WAV in four forms, W64, FLAC, OGG, MP3 with a tag, AIFF, AU, CAF and NIST SPHERE.
SOUND_FILES = tuple(b"RIFF RIFX RF64 BW64 riff fLaC OggS ID3 FORM .snd caff NIST_1A".split())
_MOST_CHUNKS = 10_000  # in a file: more are no header but an attack
_TAIL = 1 << 16  # bytes at the end of a file in which tags after samples of unknown size are looked for
_PADDING = 4096  # bytes of zeros, or less than a chunk's header, that may follow a sound without being part of it
_BLOCK = 1 << 20  # bytes that are searched at a time
_W64 = b"\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"  # what follows the name of a chunk in Sony's Wave64
# Chunks that are known to follow the samples, whatever their size says.
_TRAILING = tuple(
    name.encode()
    for name in (
        *("LIST", "id3 ", "bext", "cue ", "smpl", "fact", "PEAK", "iXML", "afsp", "_PMX", "INFO", "PAD ", "JUNK"),
        *("ID3 ", "NAME", "AUTH", "ANNO", "(c) ", "MARK", "INST", "COMT", "COMM", "info", "strg"),
    )
)
_NAME = re.compile(rb"[ -~]{4}")
_FLAC = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")  # with the header of its first block, which is always 34 bytes long
_SPHERE = re.compile(rb"(sample_count|sample_n_bytes|channel_count) -i (\d{1,18})\b")
_OGG_PAGE = re.compile(b"OggS")
# How uncompressed sounds begin, which are looked for behind a header that is wrong.
_HEADER = re.compile(
    rb"(?:RIFF|RIFX|RF64|BW64).{4}WAVE|FORM.{4}AIF[FC]|caff\0\x01\0\0desc|riff\x2e\x91\xcf\x11|\.snd\0\0\0[\x18-\xff]"
    rb"|NIST_1A\n",
    re.DOTALL,
)
# Those and the ones of compressed sounds but for MP3, which are looked for behind compressed ones.
_BEGINNING = re.compile(b"|".join((_HEADER.pattern, _FLAC.pattern, rb"OggS\0[\2\3]\0{8}")), re.DOTALL)
# Words that these patterns begin with, which are found much faster than the patterns.
_PLAIN = (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM", b"caff", b"riff", b".snd", b"NIST_1A")
_FIRST_WORDS = {_HEADER: _PLAIN, _BEGINNING: (*_PLAIN, b"fLaC", b"OggS")}
_MP3 = re.compile(rb"\xff[\xe2-\xff].{2}(?:.{9}|.{17}|.{32})(?:Xing|Info)\x00\x00\x00", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A sound in a file: its bytes from `begin` to `end`, of which `patches` replace some, {place in the file: bytes}.

    It `is_longer` than its header says, or `is_cut`: the header says more than there is.  `frames` is the number of
    samples that the header of a FLAC file says, 0 if it says none; the patches remove it.
    """

    begin: int
    end: int
    patches: tuple[tuple[int, bytes], ...] = ()
    is_longer: bool = False
    is_cut: bool = False
    frames: int = 0


def parts(file: BinaryIO) -> list[Part]:
    """Return the sounds in a file that can seek, in order; at least one, which may be anything."""
    found: list[Part] = []
    begin, end = 0, file.seek(0, io.SEEK_END)
    while begin < end or not found:
        part = _first_part(file, begin, end)
        found.append(part)
        begin = part.end if part.end > begin and _begins_sound(file, part.end) else end
    return found


class PartFile(io.RawIOBase):
    """A part of a file, patched, as a file of its own; closing it leaves the other open."""

    def __init__(self, file: BinaryIO, part: Part):
        self._file, self._part, self._place = file, part, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._part.end - self._part.begin}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, into) -> int:  # type: ignore[no-untyped-def]  # any writable buffer
        first = self._part.begin + self._place
        data = bytearray(_read(self._file, first, max(0, min(len(into), self._part.end - first))))
        for place, patch in self._part.patches:
            start, stop = max(first, place), min(first + len(data), place + len(patch))
            if start < stop:
                data[start - first : stop - first] = patch[start - place : stop - place]
        memoryview(into).cast("B")[: len(data)] = data
        self._place += len(data)
        return len(data)


def _first_part(file: BinaryIO, begin: int, end: int) -> Part:
    magic = _read(file, begin, 16)
    if magic.startswith(b"OggS"):
        return _ogg(file, begin, end)
    if magic.startswith(b"fLaC"):
        return _flac(file, begin, end)
    if magic.startswith((b".snd", b"dns.")):
        return _au(file, begin, end)
    for layout in _LAYOUTS:
        if magic.startswith(layout.magic):
            return layout.part(file, begin, end)
    if magic.startswith(b"NIST_1A"):
        return _nist(file, begin, end)
    if magic.startswith(b"ID3") and _begins_sound(file, after := _after_tag(magic, begin)) and after < end:
        return _first_part(file, after, end)
    if magic.startswith(b"ID3") or magic[:1] == b"\xff":
        return _mp3(file, begin, end)
    return Part(begin, end)


def _after_tag(head: bytes, begin: int) -> int:
    """Return where an ID3 tag ends whose first ten bytes begin `head`: its size has seven bits a byte."""
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return begin + 10 + size


@dataclass(frozen=True)
class _Layout:
    """A container of chunks: a name, a size, which counts `counted` bytes of this header, and the content.

    The first one begins at `first`.  The samples are in the chunk `data`; a size of at least `unknown` says that the
    program which wrote it did not know.
    """

    magic: bytes
    data: bytes = b"data"
    first: int = 12
    size: str = "<I"
    counted: int = 0
    align: int = 2
    unknown: int = 0x7FFF0000

    @property
    def header(self) -> int:
        """The number of bytes before a chunk's content."""
        return (16 if self.magic.startswith(b"riff") else 4) + struct.calcsize(self.size)

    def part(self, file: BinaryIO, begin: int, end: int) -> Part:
        """Return the first sound in the bytes from `begin` to `end`, and correct what its header says of its size."""
        others: dict[int, str] = {}  # places of sizes that change with that of the samples
        wide = None
        for name, place, size in self._chunks(file, begin + self.first, end):
            if name == b"ds64":  # the sizes of RF64, of which the samples' is the second
                others[place + 8] = "<Q"
                (wide,) = struct.unpack("<Q", _read(file, place + 8, 8).ljust(8, b"\0"))
            if name == b"COMM" and self.data == b"SSND":
                others[place + 2] = "frames"
            if name == self.data:
                if wide is not None and size == 0xFFFFFFFF:
                    return self._measured(file, begin, place, end, wide, others, _WIDE)
                return self._measured(file, begin, place, end, size, others, self.unknown)
        return Part(begin, end)

    def _measured(
        self, file: BinaryIO, begin: int, place: int, end: int, size: int, others: dict[int, str], unknown: int
    ) -> Part:
        """Return the part whose samples begin at `place` and take `size` bytes, as its header says."""
        is_cut = is_longer = False
        size = max(size, 0) if self.counted else size
        if size < 0 or size >= unknown:
            stop = self._before_tags(file, place, end)
        elif place + size > end:
            stop, is_cut = end, True
        else:
            stop, is_right = self._after(file, place + size, end)
            if is_right:
                return Part(begin, stop)
            stop, is_longer = self._before_tags(file, place + size, end), True
        following = next(_found(file, _HEADER, place, stop, 16), stop)
        if following < stop:
            stop, is_longer = following, is_longer and following > place + size
            is_cut = following < place + size < unknown
        patches = self._sizes(file, place, stop - place, others)
        if self.counted:  # W64, which is refused if the size of all is less than that of the samples
            patches.append((begin + 16, struct.pack(self.size, stop - begin)))
        return Part(begin, stop, tuple(patches), is_longer=is_longer, is_cut=is_cut)

    def _chunks(self, file: BinaryIO, place: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the name, place and size of the content of each chunk from `place` on."""
        for _ in range(_MOST_CHUNKS):
            head = _read(file, place, self.header) if place < end else b""
            if len(head) < self.header:
                return
            (size,) = struct.unpack(self.size, head[-struct.calcsize(self.size) :])
            size -= self.counted
            yield head[:4], place + self.header, size
            if size < 0:
                return
            place += self.header + size + -size % self.align

    def _after(self, file: BinaryIO, place: int, end: int) -> tuple[int, bool]:
        """Return where a sound ends whose samples end at `place`, and whether no more of them follow."""
        for start in dict.fromkeys((place, place + -place % self.align)):
            stop, is_known = start, False
            for _ in range(_MOST_CHUNKS):
                if _begins_sound(file, stop):
                    return stop, True
                if _is_padding(file, stop, end) or _read(file, stop, 3) in (b"TAG", b"ID3"):
                    return end, True
                name, content, size = next(self._chunks(file, stop, end), (b"", 0, -1))
                is_known = is_known or name in _TRAILING
                if not _NAME.fullmatch(name) or not 0 <= size <= end + 1 - content:
                    break
                stop = content + size + -size % self.align
            if is_known:
                return end, True
        return end, False

    def _before_tags(self, file: BinaryIO, place: int, end: int) -> int:
        """Return where the chunks begin that end the file, which is at most `_TAIL` before it; else `end`."""
        first = max(place, end - _TAIL)
        tail = _read(file, first, end - first)
        for match in re.finditer(b"|".join(map(re.escape, _TRAILING)), tail):
            last = first + match.start()
            stop = last
            for name, content, size in self._chunks(file, last, end):
                if name not in _TRAILING or size < 0:
                    break
                stop = content + size
            if stop in (end, end - 1):
                return last
        return end

    def _sizes(self, file: BinaryIO, place: int, size: int, others: dict[int, str]) -> list[tuple[int, bytes]]:
        """Return the patches for samples of `size` bytes at `place`."""
        width = struct.calcsize(self.size)
        most = (1 << (8 * width - 1)) - 1 if self.size.endswith("q") else (1 << 8 * width) - 1
        patches = [(place - width, struct.pack(self.size, min(size + self.counted, most)))]
        for where, kind in others.items():
            if kind == "frames":  # of AIFF: too many are as many as there are
                patches.append((where, struct.pack(">I", 0x7FFFFFFF)))
            else:
                patches.append((where, struct.pack(kind, size)))
        return patches


_WIDE = 1 << 62
_LAYOUTS = (
    _Layout(b"RIFF"),
    _Layout(b"RIFX", size=">I"),
    _Layout(b"RF64"),
    _Layout(b"riff", first=40, size="<Q", counted=24, align=8, unknown=_WIDE),
    _Layout(b"FORM", data=b"SSND", size=">I"),
    _Layout(b"caff", first=8, size=">q", align=1, unknown=_WIDE),
)


def _au(file: BinaryIO, begin: int, end: int) -> Part:
    """AU: the place and the size of the samples, which nothing may follow."""
    head = _read(file, begin, 12)
    if len(head) < 12:
        return Part(begin, end)
    order = ">" if head.startswith(b".snd") else "<"
    place, size = struct.unpack(f"{order}II", head[4:])
    stop = begin + place + size
    if size < 0x7FFF0000 and _begins_sound(file, stop):
        return Part(begin, stop)
    end = next(_found(file, _HEADER, begin + 12, end, 16), end)
    if size >= 0x7FFF0000 or (stop <= end and _is_padding(file, stop, end)):
        return Part(begin, end)
    patch = struct.pack(f"{order}I", min(max(0, end - begin - place), 0xFFFFFFFF))
    return Part(begin, end, ((begin + 8, patch),), is_longer=stop < end, is_cut=stop > end)


def _nist(file: BinaryIO, begin: int, end: int) -> Part:
    """NIST SPHERE: the samples that its header of text counts."""
    head = _read(file, begin, 4096)
    counts = {name: int(count) for name, count in _SPHERE.findall(head)}
    if not {b"sample_count", b"sample_n_bytes"} <= counts.keys() or not head[8:16].strip().isdigit():
        return Part(begin, end)
    samples = counts[b"sample_count"] * counts[b"sample_n_bytes"] * counts.get(b"channel_count", 1)
    stop = begin + int(head[8:16]) + samples
    if stop < end and _begins_sound(file, stop):
        return Part(begin, stop)
    return Part(begin, end, is_longer=stop < end and not _is_padding(file, stop, end), is_cut=stop > end)


def _flac(file: BinaryIO, begin: int, end: int) -> Part:
    """FLAC: up to the next header, without its number of samples, at which decoders stop."""
    stop = next(_found(file, _BEGINNING, begin + 4, end, 64), end)
    head = bytearray(_read(file, begin + 21, 5))
    if len(head) < 5:
        return Part(begin, stop)
    frames = int.from_bytes(head, "big") & ((1 << 36) - 1)
    return Part(begin, stop, ((begin + 21, bytes([head[0] & 0xF0, 0, 0, 0, 0])),), frames=frames)


def _mp3(file: BinaryIO, begin: int, end: int) -> Part:
    """MP3: up to the second frame that tells how many follow, for decoders stop after that number."""
    found = _found(file, _MP3, begin, end, 64)
    next(found, None)
    return Part(begin, min(next(found, end), next(_found(file, _BEGINNING, begin + 4, end, 64), end)))


def _ogg(file: BinaryIO, begin: int, end: int) -> Part:
    """OGG: up to the first page of another chain of streams, which comes after the pages of this one."""
    place, has_content, is_over = begin, False, False
    while place < end:
        head = _read(file, place, 27)
        if not head.startswith(b"OggS"):
            place = next(_found(file, _OGG_PAGE, place, end, 4), end)
            continue
        if len(head) < 27:
            break
        starts, ends = bool(head[5] & 2), bool(head[5] & 4)
        if starts and has_content:
            return Part(begin, place, is_cut=not is_over)
        stop = place + 27 + head[26] + sum(_read(file, place + 27, head[26]))
        following = stop
        if stop != end and _read(file, stop, 4) != b"OggS":  # damage, or something else after the sound
            if _begins_sound(file, stop):
                return Part(begin, stop, is_cut=not (is_over or ends))
            following = next(_found(file, _OGG_PAGE, place + 4, end, 4), end)
        if following == stop or stop < following == end:
            is_over = is_over or ends
        has_content, place = has_content or not starts, following
    return Part(begin, end, is_cut=not is_over)


def _found(file: BinaryIO, pattern: re.Pattern[bytes], place: int, end: int, most: int) -> Iterator[int]:
    """Yield the places where a pattern of at most `most` bytes begins."""
    while place < end:
        block = _read(file, place, min(_BLOCK + most, end - place))
        last = min(len(block), _BLOCK)
        yield from (place + start for start in _places(block, pattern) if start < last)
        place += _BLOCK


def _places(block: bytes, pattern: re.Pattern[bytes]) -> Iterator[int]:
    words = _FIRST_WORDS.get(pattern)
    if words is None:
        yield from (match.start() for match in pattern.finditer(block))
        return
    found = (match.start() for word in words for match in re.finditer(re.escape(word), block))
    yield from sorted(start for start in found if pattern.match(block, start))


def _is_padding(file: BinaryIO, place: int, end: int) -> bool:
    """Return whether what follows is too little to be more sound: less than a chunk's header, or some zeros."""
    left = end - place
    return left < 8 or (left <= _PADDING and not _read(file, place, left).strip(b"\0"))


def _begins_sound(file: BinaryIO, place: int) -> bool:
    """Return whether another sound file begins here, and not only a tag."""
    head = _read(file, place, 64)
    return (head.startswith(SOUND_FILES) and not head.startswith(b"ID3")) or _MP3.match(head) is not None


def _read(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)
