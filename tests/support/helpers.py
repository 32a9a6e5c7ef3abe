"""Helpers of several tests: plain vocabularies, small documents, fake installed distributions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from support import forked

from ernie.data.document import Document, Flag, Mark
from ernie.text.tokenizer import Tokenizer
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

ROOT = Path(__file__).resolve().parents[2]
# Where programs that tests start find the library and the modules of `support`.
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
SPECIAL = len(SPECIAL_TOKENS)


def vocabulary(text: str, *pieces: str, lowercase: bool = True) -> WordPiece:
    """A tokenizer that knows the words, punctuation marks and Chinese characters of `text`, and further `pieces`."""
    units = WordPiece(SPECIAL_TOKENS).split(text.lower() if lowercase else text)
    return WordPiece([*SPECIAL_TOKENS, *dict.fromkeys([*units, *pieces])], lowercase)


def perturbed(layer: nn.Layer, seed: int = 0) -> None:
    """Add noise to all weights of a layer, also to those that are zero at initialization."""
    rng = np.random.default_rng(seed)
    with paddle.no_grad():
        for weight in layer.parameters():
            noise = 0.2 * rng.standard_normal(weight.shape)
            paddle.assign(weight + paddle.to_tensor(noise.astype(np.float32)), weight)


def numbered(size: int = 1000) -> WordPiece:
    """A tokenizer whose ordinary tokens are w5, w6, ...: the number is the id."""
    return WordPiece([*SPECIAL_TOKENS, *(f"w{i}" for i in range(SPECIAL, size))])


def document(lengths: Sequence[int], *, seed: int = 0, vocab_size: int = 1000, marks: Sequence[int] = ()) -> Document:
    """A document of random ordinary tokens with sentences of these lengths and random flags."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return Document(
        index=seed,
        ids=rng.integers(SPECIAL, vocab_size, size=n),
        flags=random_flags(n, rng),
        ends=np.cumsum(lengths, dtype=np.int64),
        marks=np.array([*marks, *[0] * (len(lengths) - len(marks))], np.uint8),
    )


def random_flags(n: int, rng: np.random.Generator) -> np.ndarray:
    """Flags of words of one or more tokens, some of them cased, capitalized, in phrases or in entities."""
    continues = rng.random(n) < 0.2
    continues[:1] = False
    cased = rng.random(n) < 0.8
    flags = Flag.CONTINUES_WORD * continues + Flag.CASED * cased + Flag.CAPITALIZED * (cased & (rng.random(n) < 0.2))
    for begins, inside in (
        (Flag.BEGINS_PHRASE, Flag.CONTINUES_PHRASE),
        (Flag.BEGINS_ENTITY, Flag.CONTINUES_ENTITY),
    ):
        start, length = 0, 0
        while (start := start + length + int(rng.integers(1, 12))) < n:
            length = int(rng.integers(1, 5))
            flags[start] += begins
            flags[start + 1 : start + length] += inside
    return flags.astype(np.uint8)


def document_from(
    tokenizer: Tokenizer, sentences: Sequence[str], *, index: int = 0, marks: Sequence[int] | None = None
) -> Document:
    """A document of these sentences, its words flagged as the corpus builder flags them.

    A sentence that begins with "# " is a heading, with "= " the title; `marks` replaces these marks.
    """
    detected = [Mark.HEADING if s.startswith("# ") else Mark.TITLE if s.startswith("= ") else 0 for s in sentences]
    ids: list[int] = []
    flags: list[int] = []
    ends = []
    for sentence in sentences:
        for unit in tokenizer.split(sentence.removeprefix("# ").removeprefix("= ")):
            pieces = tokenizer.pieces(unit)
            cased = Flag.CASED * (unit.lower() != unit.upper()) | Flag.CAPITALIZED * unit[0].isupper()
            ids += pieces
            flags += [cased | Flag.CONTINUES_WORD * (i > 0) for i in range(len(pieces))]
        ends.append(len(ids))
    return Document(
        index=index,
        ids=np.array(ids, np.int64),
        flags=np.array(flags, np.uint8),
        ends=np.array(ends, np.int64),
        marks=np.array(detected if marks is None else marks, np.uint8),
    )


OPENINGS = ("However, ", "Therefore, ", "Moreover, ", "For example, ", "Finally, ", "In other words, ", "Instead, ")
NOUNS = "river forest city bridge engine letter garden mountain teacher painter winter market Paris Anna London".split()
VERBS = "sees builds crosses finds paints remembers follows describes".split()


def articles(number: int = 12, seed: int = 0) -> tuple[WordPiece, list[Document]]:
    """Articles with a title, headings, names and connectives, enough for every task to learn from."""
    rng = np.random.default_rng(seed)
    openings = (*OPENINGS, "Indeed, ")
    tokenizer = vocabulary(" ".join(("The", "a", ".", *openings, *NOUNS, *VERBS)))

    def sentence() -> str:
        opening = str(rng.choice(openings)) if rng.random() < 0.4 else ""
        subject, object_, verb = rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(VERBS)
        return f"{opening}The {subject} {verb} a {object_}" + f" a {rng.choice(NOUNS)}" * int(rng.integers(3)) + "."

    documents = []
    for index in range(number):
        sections = [
            [f"# The {rng.choice(NOUNS)}", *(sentence() for _ in range(rng.integers(3, 12)))]
            for _ in range(rng.integers(1, 4))
        ]
        lines = [f"= {rng.choice(NOUNS)} {rng.choice(NOUNS)}", *(line for section in sections for line in section)]
        documents.append(document_from(tokenizer, lines, index=index))
    return tokenizer, documents


def install(folder: Path, name: str, group: str, points: dict[str, str]) -> None:
    """Write the metadata of a distribution with these entry points; `folder` has to be put on the Python path."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(f"{key} = {value}" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")


def python(
    *arguments: str, cwd: Path = ROOT, path: Sequence[Path] = (), fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run Python with `path` and then the project on its path.

    A module or a file runs in a fork, unless it is to be `fresh`.
    """
    joined = os.pathsep.join(str(entry) for entry in [*path, ROOT])
    return subprocess.run(
        [*forked.python(fresh=fresh or not (arguments[0] == "-m" or arguments[0].endswith(".py"))), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": joined},
    )
