"""`url`: pages are dropped by their addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple
from urllib.parse import SplitResult, unquote

import numpy as np

from ernie.data.raw import RawDocument
from ernie.data.read_lines import LineFile
from ernie.data.remote import place, without_secrets
from ernie.errors import UserError
from ernie.text.scripts import NO_SPACES
from pretrain.corpus.clean.base import Filter, Rejected, filters
from pretrain.corpus.hosts import host_of, split

_WORD = re.compile(r"[^\W_]+")
_NO_SPACES = re.compile(f"[{NO_SPACES}]")
_COMMENT = re.compile(r"(^|\s)#.*")
_NOWHERE = re.compile(r"(0\.0\.0\.0|127\.0\.0\.1|::1?)\s+")  # before the hosts of a list in the form of /etc/hosts


class _Blocked(NamedTuple):
    """Hashes (n,), ascending, of blocked hosts and addresses, and the largest number of folders in such an address."""

    hashes: np.ndarray
    folders: int


@filters.register("url")
@dataclass(frozen=True)
class Url(Filter):
    """Drops pages from blocked hosts and addresses, and those with one of some words in their address.

    `block` lists hosts, with all below them (`example.com` stands for `shop.example.com`, too), and addresses with all
    that begins with their folders (`example.com/shop`); one with a query stands for itself alone.  `files` hold the
    same, one a line, also as in /etc/hosts; what follows a # does not count.  `words` are compared with the words of
    the whole address, in any case; words of scripts without spaces are found anywhere.  Documents without an address
    are kept.  Source: RefinedWeb (Penedo et al., 2023, arXiv 2306.01116, appendix G.1).
    """

    block: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.block or self.files or self.words):
            raise UserError("block, files, words: expected at least one of them, or nothing would be dropped")
        for word in self.words:
            if _WORD.findall(word) != [word]:
                raise UserError(f"words: '{word}' is not one word of letters and digits")

    def prepare(self) -> None:
        """Read the files."""
        assert self._blocked

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or what of its address is blocked."""
        if not document.url:
            return document
        hashes, folders = self._blocked
        for entry in _entries(document.url, folders):
            at = int(np.searchsorted(hashes, code := np.uint64(_hash(entry))))
            if at < len(hashes) and hashes[at] == code:
                return Rejected("blocked", f"{without_secrets(document.url):.200} is in {entry}")
        if self.words and (word := self._word_in(unquote(document.url).lower())):
            return Rejected("word in address", f"{without_secrets(document.url):.200} has '{word}'")
        return document

    def _word_in(self, url: str) -> str:
        """Return the first of the words that is in an address, "" if none is."""
        present = frozenset(_WORD.findall(url))
        wanted = map(str.lower, self.words)
        return next((word for word in wanted if word in present or (_NO_SPACES.search(word) and word in url)), "")

    @cached_property
    def _blocked(self) -> _Blocked:
        entries = chain(_given(self.block), *map(_read, self.files))
        folders = 0

        def codes() -> Iterator[int]:
            nonlocal folders
            for entry in entries:
                folders = max(folders, entry.count("/"))
                yield _hash(entry)

        # A list may have millions of lines, of which only the hashes are kept.
        hashes = np.sort(np.fromiter(codes(), np.uint64))
        return _Blocked(hashes, folders)


def _given(block: list[str]) -> Iterator[str]:
    for text in block:
        if not (entry := _entry(text)):
            raise UserError(f"block: expected a host such as example.com, or an address, found '{text:.60}'")
        yield entry


def _read(file: str) -> Iterator[str]:
    """Yield what a file blocks.  Raises UserError for one with no host or address, and for a line that is no such."""
    found = 0
    for line in LineFile(place(file)):
        if line.text is None:
            raise UserError(f"files: {file}:{line.number}: {line.problem}")
        text = _NOWHERE.sub("", _COMMENT.sub("", line.text).strip())
        if not text or "." not in text:  # such as the localhost of /etc/hosts, which no page is from
            continue
        if not (entry := _entry(text)):
            raise UserError(
                f"files: {file}:{line.number}: expected a host such as example.com, or an address, found '{text:.60}'"
            )
        found += 1
        yield entry
    if not found:
        raise UserError(f"files: {file}: blocks nothing; expected a host or an address on each line")


def _entry(text: str) -> str:
    """Return a host, or a host with folders and a query, as they are compared; "" for what is none."""
    parts = split(text.removeprefix("*.").removeprefix("."))
    if parts is None or re.search(r"\s", text):
        return ""
    return "/".join([host_of(parts.geturl()), *_folders(parts)]) + _rest(parts)


def _folders(parts: SplitResult) -> list[str]:
    return [unquote(part) for part in parts.path.split("/") if part]


def _rest(parts: SplitResult) -> str:
    """Return the query and the fragment of an address."""
    return (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")


def _entries(url: str, folders: int) -> Iterator[str]:
    """Yield what would block an address: its host and those above it, each alone and with the first folders.

    Of hosts above it those with one label are left out, such as com.
    """
    parts = split(url)
    if parts is None:
        return
    labels, path = host_of(url).split("."), _folders(parts)
    first, rest = path[:folders], _rest(parts)
    for i in range(len(labels) - 1):
        above = ".".join(labels[i:])
        for count in range(len(first) + 1):
            yield "/".join([above, *first[:count]])
        if rest and len(path) <= folders:
            yield "/".join([above, *path]) + rest


def _hash(entry: str) -> int:
    """Return 64 bits: of a list of millions of hosts it blocks another one by chance once in 10^12 times."""
    return int.from_bytes(hashlib.blake2b(entry.encode(errors="replace"), digest_size=8).digest(), "little")
