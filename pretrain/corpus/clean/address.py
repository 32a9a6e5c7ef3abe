"""`url`: pages are dropped by their addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from ernie.data.raw import RawDocument
from ernie.data.read_lines import LineFile
from ernie.data.remote import place
from ernie.errors import UserError
from pretrain.corpus.clean.base import Filter, Rejected, filters
from pretrain.corpus.hosts import host_of

_WORDS = re.compile(r"[^\W_]+")


class _Blocked(NamedTuple):
    """Hashes (n,), ascending, of blocked hosts and addresses, and the largest number of folders in such an address."""

    hashes: np.ndarray
    folders: int


@filters.register("url")
@dataclass(frozen=True)
class Url(Filter):
    """Drops pages from blocked hosts and addresses, and those with one of some words in their address.

    `block` lists hosts, with all below them (`example.com` stands for `shop.example.com`, too), and addresses with all
    that begins with their folders (`example.com/shop`).  `files` hold the same, one a line; what follows a # does not
    count.  `words` are compared with the words of the whole address, in any case.  Documents without an address are
    kept.  Source: RefinedWeb (Penedo et al., 2023, arXiv 2306.01116, appendix G.1).
    """

    block: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not (self.block or self.files or self.words):
            raise UserError("block, files, words: expected at least one of them, or nothing would be dropped")
        for word in self.words:
            if _WORDS.findall(word) != [word]:
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
            at = int(np.searchsorted(hashes, code := _hash(entry)))
            if at < len(hashes) and hashes[at] == code:
                return Rejected("blocked", f"{document.url:.200} is in {entry}")
        if self._words and (found := self._words.intersection(_WORDS.findall(document.url.lower()))):
            return Rejected("word in address", f"{document.url:.200} has '{min(found)}'")
        return document

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(map(str.lower, self.words))

    @cached_property
    def _blocked(self) -> _Blocked:
        entries = {_entry(text, "block") for text in self.block}
        for file in self.files:
            before = len(entries)
            entries.update(_read(file))
            if len(entries) == before:
                raise UserError(f"files: {file}: blocks nothing; expected a host or an address on each line")
        found = np.sort(np.array([*map(_hash, entries)], np.uint64))
        return _Blocked(found, max((entry.count("/") for entry in entries), default=0))


def _read(file: str) -> Iterator[str]:
    for line in LineFile(place(file)):
        if line.text is None:
            raise UserError(f"files: {file}:{line.number}: {line.problem}")
        if text := line.text.partition("#")[0].strip():
            yield _entry(text, f"files: {file}:{line.number}")


def _entry(text: str, where: str) -> str:
    """Return a host, or a host and folders, as they are compared."""
    host, parts = host_of(text.removeprefix("*.").removeprefix(".")), _folders(text)
    if not host or re.search(r"\s", text):
        raise UserError(f"{where}: expected a host such as example.com, or an address, found '{text:.60}'")
    return "/".join([host, *parts])


def _folders(url: str) -> list[str]:
    return [part for part in urlsplit(url if "//" in url else f"//{url}").path.split("/") if part]


def _entries(url: str, folders: int) -> Iterator[str]:
    """Yield what would block an address: its host and those above it, each alone and with the first folders."""
    if not (host := host_of(url)):
        return
    parts, labels = _folders(url)[:folders], host.split(".")
    for i in range(len(labels)):
        above = ".".join(labels[i:])
        for count in range(len(parts) + 1):
            yield "/".join([above, *parts[:count]])


def _hash(entry: str) -> np.uint64:
    """Return 64 bits: of a list of millions of hosts it blocks another one by chance once in 10^12 times."""
    return np.uint64(int.from_bytes(hashlib.blake2b(entry.encode(errors="replace"), digest_size=8).digest(), "little"))
