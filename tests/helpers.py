"""What several tests need: a plain tokenizer, small documents, installed distributions made on the spot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Flag, Mark
from ernie.text.tokenizer import Encoding, Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNIT = re.compile(r"[一-鿿]|\w+|[^\w\s]")


class Words(Tokenizer):
    """Each word, punctuation mark and Chinese character of a given list is a token; everything else is [UNK]."""

    kind: ClassVar[str] = "words"
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, words: Iterable[str], lowercase: bool = True):
        self.lowercase = lowercase
        found = dict.fromkeys(unit for word in words for unit in self.split(word))
        self._tokens = [*SPECIAL, *found]
        self._ids = {token: i for i, token in enumerate(self._tokens)}

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    def split(self, text: str) -> list[str]:
        return _UNIT.findall(text.lower() if self.lowercase else text)

    def pieces(self, unit: str) -> list[int]:
        return [self._ids.get(unit, self.unk_id)]

    def encode(self, text: str) -> Encoding:
        ids = [self._ids.get(unit, self.unk_id) for unit in self.split(text)]
        return Encoding(np.array(ids, np.int64), np.zeros((len(ids), 2), np.int64))

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._tokens[i] for i in ids)

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def numbered(size: int = 1000) -> Words:
    """A tokenizer whose ordinary tokens are w5, w6, ...: the number is the id."""
    return Words(f"w{i}" for i in range(len(SPECIAL), size))


def document(lengths: Sequence[int], *, seed: int = 0, vocab_size: int = 1000, marks: Sequence[int] = ()) -> Document:
    """A document of random ordinary tokens with sentences of these lengths; flags such as a corpus has."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return Document(
        index=seed,
        ids=rng.integers(len(SPECIAL), vocab_size, size=n),
        flags=random_flags(n, rng),
        ends=np.cumsum(lengths, dtype=np.int64),
        marks=np.array([*marks, *[0] * (len(lengths) - len(marks))], np.uint8),
    )


def random_flags(n: int, rng: np.random.Generator) -> np.ndarray:
    """Words of one to three tokens, some of them cased, capitalized, in phrases or in entities."""
    flags = np.zeros(n, np.uint8)
    flags[rng.random(n) < 0.2] |= Flag.CONTINUES_WORD
    flags[:1] &= ~np.uint8(Flag.CONTINUES_WORD)
    cased = rng.random(n) < 0.8
    flags[cased] |= Flag.CASED
    flags[cased & (rng.random(n) < 0.2)] |= Flag.CAPITALIZED
    for begins, continues in (
        (Flag.BEGINS_PHRASE, Flag.CONTINUES_PHRASE),
        (Flag.BEGINS_ENTITY, Flag.CONTINUES_ENTITY),
    ):
        for start in np.flatnonzero(rng.random(n) < 0.1):
            flags[start] = (flags[start] & ~np.uint8(continues)) | begins
            inside = flags[start + 1 : start + int(rng.integers(1, 4))]
            inside |= np.uint8(continues)
    return flags


def written(
    tokenizer: Tokenizer, sentences: Sequence[str], *, index: int = 0, marks: Sequence[int] | None = None
) -> Document:
    """A document of these sentences, its words flagged as the corpus builder flags them.

    A sentence that begins with "# " is a heading, with "= " the title; the others begin no paragraph unless `marks`
    say so.
    """
    found = [Mark.HEADING if s.startswith("# ") else Mark.TITLE if s.startswith("= ") else 0 for s in sentences]
    runs = [tokenizer.encode(s.removeprefix("# ").removeprefix("= ")).ids for s in sentences]
    units = [unit for s in sentences for unit in _UNIT.findall(s.removeprefix("# ").removeprefix("= "))]
    flags = [
        (Flag.CASED if unit.lower() != unit.upper() else 0) | (Flag.CAPITALIZED if unit[0].isupper() else 0)
        for unit in units
    ]
    return Document(
        index=index,
        ids=np.concatenate([np.empty(0, np.int64), *runs]),
        flags=np.array(flags, np.uint8),
        ends=np.cumsum([len(run) for run in runs], dtype=np.int64),
        marks=np.array(found if marks is None else marks, np.uint8),
    )


def install(folder: Path, name: str, group: str, points: dict[str, str]) -> None:
    """Make a distribution with these entry points that is found when `folder` is on the Python path."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(f"{key} = {value}" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")


def python(*arguments: str, cwd: Path = ROOT, path: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run a fresh Python with the project, and before it `path`, on its path."""
    joined = os.pathsep.join(str(entry) for entry in [*path, ROOT])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": joined},
    )
