"""The formats of files of text: the one table of their names, suffixes, first bytes and readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from ernie.data import compressed
from ernie.data.raw import Dropped, RawDocument, ReadOptions, Unparsed
from ernie.data.read_json import read_json, read_jsonl
from ernie.data.read_lines import LineFile
from ernie.data.read_mediawiki import read_mediawiki
from ernie.data.read_rows import read_arrow, read_csv, read_parquet, read_tsv
from ernie.data.read_text import read_text
from ernie.data.read_web import read_html, read_warc
from ernie.errors import UserError

Reader = Callable[[str, LineFile, ReadOptions], Iterator[RawDocument | Dropped | Unparsed]]
_PROBED = 512  # bytes


class Format(NamedTuple):
    """A format of files.

    In a folder, files of a `rank` are read only where none of a lower rank is: .json and .html often describe others.
    `begins` are first bytes, in lower case, by which a stream is recognized.  `packs` says that the format compresses
    itself, so that such a file is never inside a .gz or the like.
    """

    suffixes: tuple[str, ...]
    read: Reader
    rank: int = 0
    begins: tuple[bytes, ...] = ()
    packs: bool = False


FORMATS = {
    "text": Format((".txt",), read_text),
    "jsonl": Format((".jsonl",), read_jsonl),
    "parquet": Format((".parquet",), read_parquet, begins=(b"par1",), packs=True),
    "arrow": Format((".arrow", ".feather"), read_arrow, 1, (b"arrow1", b"\xff\xff\xff\xff"), packs=True),
    "warc": Format((".warc", ".wet"), read_warc, 1, (b"warc/",)),
    "mediawiki": Format((".xml",), read_mediawiki, 1, (b"<mediawiki",)),
    "json": Format((".json",), read_json, 2),
    "csv": Format((".csv",), read_csv, 3),
    "tsv": Format((".tsv",), read_tsv, 3),
    "html": Format((".html", ".htm"), read_html, 3, (b"<!doctype html", b"<html")),
}
SUFFIXES = tuple(suffix for format in FORMATS.values() for suffix in format.suffixes)
_OTHER_NAMES = re.compile(r"wiki_\d+|part-(?:[mr]-)?\d+")  # of WikiExtractor's files, and Spark's and Hadoop's


def format_of_name(name: str) -> Format | None:
    """Return the format of a file by its name, with or without a folder; None if that says nothing."""
    plain = compressed.uncompressed_name(name).lower()
    found = next((each for each in FORMATS.values() if plain.endswith(each.suffixes)), None)
    if found is not None:
        return None if found.packs and plain != name.lower() else found
    return FORMATS["text"] if _OTHER_NAMES.fullmatch(PurePosixPath(plain).name) else None


def format_of_content(file: LineFile) -> Format:
    """Return the format of a file by how its content begins; text if that says nothing."""
    try:
        with file.binary() as content:
            begins = content.read(_PROBED).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except UserError:  # whoever reads it will say so
        begins = b""
    return next((each for each in FORMATS.values() if each.begins and begins.startswith(each.begins)), FORMATS["text"])


def lowest_ranked(names: list[str]) -> set[str]:
    """Return the names whose format has the lowest rank of all."""
    ranks = {name: format.rank for name in names if (format := format_of_name(name)) is not None}
    return {name for name, rank in ranks.items() if rank == min(ranks.values())}
