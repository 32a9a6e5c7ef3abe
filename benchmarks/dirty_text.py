"""Text dirtied on purpose, so that there is something to clean; the same seed gives the same text.

`articles` are the clean documents.  `dirtied` puts faults into some of them and other documents between them:
  boilerplate      menus and cookie notices around three articles in ten
  personal data    e-mail addresses, telephone numbers and public IP addresses in two of ten
  mojibake         one in ten, its quotation marks curly, decoded with the wrong encoding
  copies           one exact copy, and one with 2 % of the words changed, of fifteen articles in a hundred each
  other languages  a document in Czech, German, French or Chinese for two articles in ten
  repetition       a document of spam for one in ten
About four in ten of the documents that result are no articles.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from ernie.data.raw import RawDocument
from ernie.data.read import read_documents

ARTICLES = "pretrain_en_wikipedia_more"
CAPTIONS = 40  # make a document in another language
CHANGED = 0.02  # of the words of a near copy
KEPT = 200  # articles in memory, of which copies are made
_PIECES = re.compile(r"\s+|\S+")
_MENU = ("Home", "About us", "Log in", "Sign up", "Contact", "Share on social media", "Next page", "Subscribe")
_NOTICES = (
    "This site uses cookies to give you the best experience. Accept all.",
    "Read our terms of use and our privacy policy before you go on.",
    "Please enable JavaScript to see this page.",
)
_SPAM = ("cheap watches online", "best price guaranteed", "click here now", "free delivery today", "win a prize")
_CONTACTS = (
    "Write to {name}.{number}@mail.example.de for more.",
    "Call 212-555-{number} in the evening.",
    "The server is at 8.8.{byte}.{byte}.",
)
_NAMES = ("anna.weber", "john.smith", "maria.silva", "peter.novak")


def articles(data: Path, megabytes: float) -> Iterator[str]:
    """Yield the texts of the articles in DATA, as many as there are in so many MB."""
    left = megabytes * 1e6
    for item in read_documents([data / ARTICLES]):
        if left <= 0:
            return
        if isinstance(item, RawDocument):
            left -= len(item.text.encode())
            yield item.text


def foreign(data: Path) -> list[str]:
    """The documents in other languages in DATA: captions of pictures, 40 in a document, and Chinese news."""
    found = [item.text for item in read_documents([data / "pretrain_zh_sogou_news"]) if isinstance(item, RawDocument)]
    for language in ("cs", "de", "fr"):
        with gzip.open(data / "mt_multi30k_task1" / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
            while some := [line.strip() for line in islice(lines, CAPTIONS)]:
                found.append("\n".join(" ".join(some[first : first + 5]) for first in range(0, len(some), 5)))
    return found


def dirtied(texts: Iterable[str], others: Sequence[str], seed: int) -> Iterator[tuple[str, str]]:
    """Yield the texts, some with faults, and further documents between them, each with what is wrong with it."""
    rng = np.random.default_rng(seed)
    kept: list[str] = []
    for text in texts:
        faults = []
        for name, share, spoil in FAULTS:
            if rng.random() < share:
                text = spoil(text, rng)
                faults.append(name)
        yield ", ".join(faults), text
        if len(kept) < KEPT:
            kept.append(text)
        else:
            kept[rng.integers(KEPT)] = text
        for name, share in (("exact copy", 0.15), ("near copy", 0.15), ("other language", 0.2), ("repetition", 0.1)):
            if rng.random() < share:
                yield name, _further(name, kept, others, rng)


def _further(name: str, kept: Sequence[str], others: Sequence[str], rng: np.random.Generator) -> str:
    if name == "other language":
        return others[int(rng.integers(len(others)))]
    if name == "repetition":
        phrases = [_SPAM[i] for i in rng.integers(len(_SPAM), size=3)]
        return " ".join(phrases * int(rng.integers(20, 60))) + "."
    text = kept[int(rng.integers(len(kept)))]
    return text if name == "exact copy" else changed(text, CHANGED, rng)


def changed(text: str, share: float, rng: np.random.Generator, passage: bool = False) -> str:
    """A text with a share of its words replaced by others of it: words anywhere, or those of one `passage`."""
    pieces = _PIECES.findall(text)
    at = np.array([i for i, piece in enumerate(pieces) if not piece.isspace()])
    count = round(share * len(at))
    if passage:
        first = int(rng.integers(len(at) - count + 1))
        replaced = at[first : first + count]
    else:
        replaced = rng.choice(at, count, replace=False)
    words = [pieces[i] for i in rng.choice(at, count)]
    for i, word in zip(replaced.tolist(), words, strict=True):
        pieces[i] = word
    return "".join(pieces)


def with_boilerplate(text: str, rng: np.random.Generator) -> str:
    """A text between a menu and a notice, as on a page."""
    menu = [_MENU[i] for i in rng.permutation(len(_MENU))[:5].tolist()]
    return "\n".join([*menu, text, _NOTICES[rng.integers(len(_NOTICES))], "Copyright 2014"])


def with_contacts(text: str, rng: np.random.Generator) -> str:
    """A text with personal data at the end of one paragraph in three."""
    lines = text.split("\n")
    for i in range(0, len(lines), 3):
        contact = _CONTACTS[rng.integers(len(_CONTACTS))]
        name, number = _NAMES[rng.integers(len(_NAMES))], rng.integers(1000, 9999)
        lines[i] += " " + contact.format(name=name, number=number, byte=rng.integers(1, 255))
    return "\n".join(lines)


def mojibake(text: str, rng: np.random.Generator) -> str:
    """A text with curly quotation marks, in UTF-8 read as Windows-1252."""
    curly = re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", text.replace("'", "\u2019"))
    return "".join(_misread(byte) for byte in curly.encode())


def _misread(byte: int) -> str:
    one = bytes([byte])
    try:
        return one.decode("cp1252")
    except UnicodeDecodeError:  # a byte that this encoding leaves free
        return one.decode("latin-1")


FAULTS = (("personal data", 0.2, with_contacts), ("boilerplate", 0.3, with_boilerplate), ("mojibake", 0.1, mojibake))


def write_rows(folder: Path, documents: Iterable[tuple[str, str]], files: int = 8) -> dict[str, int]:
    """Write documents to files of JSON lines in turns; return how many of each kind there are."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds: Counter[str] = Counter()
    outputs = [(folder / f"part-{number}.jsonl").open("w", encoding="utf-8") for number in range(files)]
    for number, (kind, text) in enumerate(documents):
        kinds[kind or "clean"] += 1
        row = {"id": str(number), "source": "dirtied", "text": text}
        outputs[number % files].write(json.dumps(row, ensure_ascii=False) + "\n")
    for output in outputs:
        output.close()
    return dict(kinds)
