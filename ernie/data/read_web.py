"""Documents of web pages: HTML files, and the records of web archives (WARC, and WET, which holds their text)."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

from ernie.data.compressed import Damaged
from ernie.data.raw import Dropped, Place, RawDocument, ReadOptions, Unparsed
from ernie.data.read_lines import MAX_LINE, NOT_UTF8, LineFile, read_some
from ernie.data.read_rows import laid_out
from ernie.errors import DamagedFile, UserError

_HTML = ("text/html", "application/xhtml+xml")
_FAULT = "damaged record"


def read_html(name: str, file: LineFile, options: ReadOptions) -> Iterator[Dropped | Unparsed]:
    """Yield the main text of an HTML file, without menus, comments and tables.

    Raises UserError without trafilatura, the library that finds it.
    """
    place = Place(name, 1)
    needed("trafilatura", name)
    with file.binary() as content:
        page = content.read(MAX_LINE + 1)
    yield _too_long(place) if len(page) > MAX_LINE else _unparsed(page, place, options)


def read_warc(name: str, file: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped | Unparsed]:
    """Yield a document for each record that holds a page (HTML or text) or a page's text; its place counts records.

    Requests and metadata are no documents and left out.  Pages of another kind, and answers that are errors, are
    dropped.  Raises UserError without warcio, and for what is no archive or breaks off.
    """
    iterator = needed("warcio.archiveiterator", name).ArchiveIterator
    number = faults = 0
    with file.binary() as content:
        try:
            records = iterator(Sequential(content))
            for number, record in enumerate(_quietly(records), 1):
                place = Place(name, number)
                if records.err_count > faults:
                    faults = records.err_count
                    yield Dropped(place, _FAULT, "the record before was longer than its Content-Length says")
                document = _record(record, place, options)
                if record.raw_stream.read(1) == b"" and getattr(record.raw_stream, "limit", 0) > 0:
                    raise DamagedFile(f"{name}: breaks off in record {number:,}. Fetch it again")
                if document is not None:
                    yield document
        except (UserError, Damaged, OSError, MemoryError):
            raise
        except Exception as error:  # warcio's own, and those of its code on headers that nothing checks
            what = f"after record {number:,}" if number else "and is no web archive"
            kind = DamagedFile if number else UserError
            raise kind(f"{name}: cannot be read {what}: {' '.join(str(error).split())}") from None


def _quietly(records: Iterator[Any]) -> Iterator[Any]:
    """Yield records without what warcio prints of faults, which are counted here."""
    while True:
        with redirect_stderr(io.StringIO()):
            record = next(records, None)
        if record is None:
            return
        yield record


class Sequential:
    """A file that is only read, which warcio does not take for one that it has to unpack."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._at = 0
        self._error: Damaged | None = None

    def read(self, size: int) -> bytes:
        """Return as many bytes, fewer only at the end or before an error, which the next call raises."""
        pieces: list[bytes] = []
        while size > 0 and self._error is None:
            try:
                pieces.append(read_some(self._file, size))
            except Damaged as error:
                self._error = error
            else:
                if not pieces[-1]:
                    break
                size -= len(pieces[-1])
        content = b"".join(pieces)
        if self._error is not None and not content:
            raise self._error
        self._at += len(content)
        return content

    def tell(self) -> int:
        return self._at


def _record(record: Any, place: Place, options: ReadOptions) -> RawDocument | Dropped | Unparsed | None:
    if not record.rec_type:
        return Dropped(place, _FAULT, "the record has no WARC-Type")
    if record.rec_type not in ("response", "resource", "conversion"):
        return None
    url = (record.rec_headers.get_header("WARC-Target-URI") or "").strip(" <>")
    where = url or "the record"
    header = record.content_type or ""
    if record.http_headers is not None:
        status = record.http_headers.get_statuscode()
        if status != "200":
            return Dropped(place, "HTTP status", f"{where:.200} was answered with status {status}", by_kind=True)
        header = record.http_headers.get_header("Content-Type") or ""
    kind = header.partition(";")[0].strip().lower()
    if kind not in _HTML and kind != "text/plain":
        return Dropped(
            place, "no page", f"{where:.200} is {kind or 'of no stated kind'}, not HTML or text", by_kind=True
        )
    try:
        content = _content(record, place.file)
    except _UnknownEncoding as error:
        return Dropped(place, "unknown encoding", f"{where:.200} is encoded as {error}, which is not read")
    except UserError:
        raise
    except Exception as error:  # of whatever unpacks it
        return Dropped(place, _FAULT, f"{where:.200} cannot be unpacked: {error}")
    if len(content) > MAX_LINE:
        return _too_long(place)
    if kind in _HTML:
        needed("trafilatura", place.file)
        return _unparsed(content, place, options, url)
    try:
        return laid_out(RawDocument(place, _decoded(content, header), url=url), False, options)
    except UnicodeError:
        named = header.partition("charset=")[2]
        what = f"in UTF-8, nor in the set of its header, {named:.40}" if named else "in UTF-8, and names no other set"
        return Dropped(place, NOT_UTF8, f"{where:.200} is not {what}")


class _UnknownEncoding(Exception):
    """The content of a record is packed in a way that nothing here reads."""


def _content(record: Any, name: str) -> bytes:
    """Return what a record holds, unpacked, at most a byte more than a page may have."""
    headers = record.http_headers
    encoding = (headers.get_header("Content-Encoding") or "" if headers is not None else "").strip().lower()
    if encoding in _UNKNOWN:
        raise _UnknownEncoding(encoding)
    if encoding == "x-gzip":
        headers.replace_header("Content-Encoding", "gzip")
    if encoding not in _UNPACKED:
        return bytes(record.content_stream().read(MAX_LINE + 1))
    module, unpack = _UNPACKED[encoding]
    library = needed(module, name)
    headers.remove_header("Content-Encoding")  # warcio would unpack Brotli in a way that newer packages do not have
    packed = bytes(record.content_stream().read(MAX_LINE + 1))
    try:
        return unpack(library, packed)
    except Exception:
        if _is_text(packed):  # some crawlers unpack a page and keep its header
            return packed
        raise


def _unpack_brotli(library: Any, packed: bytes) -> bytes:
    unpacker = library.Decompressor()
    found = bytes(unpacker.process(packed, output_buffer_limit=MAX_LINE + 1))
    while len(found) <= MAX_LINE and not unpacker.is_finished():
        if not (more := bytes(unpacker.process(b"", output_buffer_limit=MAX_LINE + 1 - len(found)))):
            raise ValueError("the packed content breaks off")
        found += more
    return found


def _unpack_zstandard(library: Any, packed: bytes) -> bytes:
    reader = library.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    return bytes(reader.read(MAX_LINE + 1))


_UNPACKED: dict[str, tuple[str, Callable[[Any, bytes], bytes]]] = {
    "br": ("brotli", _unpack_brotli),
    "zstd": ("zstandard", _unpack_zstandard),
}
_UNKNOWN = ("compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip", "aes128gcm")


def _is_text(content: bytes) -> bool:
    try:
        return bool(content) and "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _decoded(content: bytes, header: str) -> str:
    """Return the text of a content: in UTF-8, or in the character set that its header names.

    Names stand for what browsers take them for (WHATWG, "Encoding").  Raises UnicodeDecodeError if neither fits.
    """
    found = re.search(r"charset=[\"']?([\w.:-]+)", header, re.IGNORECASE)
    codec = _codec(found[1]) if found else None
    if codec and codec.startswith(("utf-16", "utf-32", "iso2022", "hz")):  # whose bytes may look like UTF-8
        return content.decode(codec)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if codec is None:
            raise
    return content.decode(codec)


def _codec(name: str) -> str | None:
    """Return Python's name of a character set, None for what is none."""
    name = name.lower().removeprefix("x-")
    try:
        codec = codecs.lookup(_LABELS.get(name, name)).name
    except LookupError:
        return None
    return None if codec in _NO_SETS else _LABELS.get(codec, codec)


_LABELS = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"},
    **{"euc_kr": "cp949", "sjis": "cp932", "iso8859-9": "cp1254", "big5": "big5hkscs"},
}
# Codecs of Python that are no character sets of pages.
_NO_SETS = frozenset(
    "undefined unicode-escape raw-unicode-escape idna punycode utf-7 mbcs oem rot13 base64 hex".split()
)


def _unparsed(page: bytes, place: Place, options: ReadOptions, url: str = "") -> Unparsed:
    return Unparsed(place, len(page), partial(_page, page, place, options, url))


def _page(page: bytes, place: Place, options: ReadOptions, url: str) -> RawDocument | Dropped:
    trafilatura = needed("trafilatura", place.file)
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # what it complains of is dropped and counted here
    try:
        found = trafilatura.bare_extraction(page, include_comments=False, include_tables=False, with_metadata=False)
        text, tree = (found.text or "" if found else ""), trafilatura.load_html(page)
    except (RecursionError, ValueError, TypeError, AttributeError, LookupError) as error:  # pages have every fault
        return Dropped(place, "wrong HTML", f"the page cannot be parsed: {type(error).__name__}: {error}")
    if not text.strip():
        return Dropped(place, "no main text", "the page holds no text besides menus, lists of links and the like")
    title = " ".join((tree.findtext(".//title") or "").split()) if tree is not None else ""
    return laid_out(RawDocument(place, text, title if options.titles else "", url=url), False, options)


def _too_long(place: Place) -> Dropped:
    return Dropped(place, "page too long", f"the page is longer than {MAX_LINE >> 20} MB")


def needed(module: str, name: str) -> Any:
    """Import a module of the extra `web`.  Raises UserError that says how to install it, or what it lacks itself."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        is_there = (error.name or "").partition(".")[0] != package
        lacks = f", which cannot be imported ({' '.join(str(error).split())})" if is_there else ""
        raise UserError(f"{name}: needs {package} to be read{lacks}: pip install 'ernie-continual[web]'") from None
