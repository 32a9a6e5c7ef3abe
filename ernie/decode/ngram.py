"""A language model of n-grams: learnt from sequences of tokens, kept in ARPA files as other tools have them.

Interpolated Kneser-Ney smoothing (Kneser and Ney, 1995; Chen and Goodman, 1999, section 4.1.6) with one discount an
order.  A token is whatever a sequence is made of: words, pieces of words, characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from ernie.errors import UserError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
_UNKNOWN = "<UNK>"  # as some tools write it
Gram = tuple[str, ...]
_SPACE = re.compile(r"[ \t\r\n]+")
_LINE = re.compile(r"\r\n?|\n")
_GZIP = b"\x1f\x8b"
_NEVER = -99.0  # what ARPA files say for a logarithm of zero
_ROUNDED = 1e-3  # how far above zero a tool may have rounded a logarithm
_LOG10 = math.log(10)


class NgramModel:
    """Probabilities of tokens after up to `order` - 1 others, backing off to shorter histories.

    `grams` has for each n-gram the natural logarithms of its probability and of its back-off weight.
    """

    def __init__(self, order: int, grams: dict[Gram, tuple[float, float]]):
        self.order, self.grams = order, grams
        self._lowest = grams.get((UNKNOWN,), (_NEVER * _LOG10, 0.0))[0]

    @classmethod
    def learn(cls, sequences: Iterable[Sequence[str]], order: int = 3) -> NgramModel:
        """Learn from sequences of tokens.

        Raises UserError for an order below 1, where there is no token, and for <s> and </s> among them.
        """
        if order < 1:
            raise UserError(f"order: expected at least 1, found {order}")
        framed = [(BEGIN, *sequence, END) for sequence in sequences if len(sequence)]
        if mark := {BEGIN, END} & {token for sequence in framed for token in sequence[1:-1]}:
            raise UserError(f"a sequence has {min(mark)} inside: beginnings and ends are put around each; take it out")
        if not framed:
            raise UserError("there is no text to learn a language model from")
        return cls(order, _smoothed(_counts(framed, order), order))

    def score(self, history: Sequence[str], token: str) -> float:
        """The natural logarithm of the probability of a token after the last ones of a history.

        Tokens that it does not know are <unk> wherever they stand; as the next one they have its probability together.
        """
        last = [*history[max(0, len(history) - self.order + 1) :], token]
        gram = tuple(one if (one,) in self.grams else UNKNOWN for one in last)
        weight = 0.0
        while gram not in self.grams:
            if len(gram) == 1:
                return weight + self._lowest
            weight += self.grams.get(gram[:-1], (0.0, 0.0))[1]
            gram = gram[1:]
        return weight + self.grams[gram][0]

    def total(self, sequence: Sequence[str]) -> float:
        """The natural logarithm of the probability of a whole sequence and its end."""
        framed = (BEGIN, *sequence, END)
        return sum(self.score(framed[:n], framed[n]) for n in range(1, len(framed)))

    def save(self, path: str | Path) -> None:
        """Write an ARPA file.  Raises UserError for tokens that it cannot hold, and where it cannot be written."""
        spaced = next((token for (token, *_) in self.grams if not token or _SPACE.search(token)), None)
        if spaced is not None:
            raise UserError(
                f"a token is {spaced!r}, and white space parts the tokens of an ARPA file; write another character for "
                "it, such as \u2581"
            )
        by_order = [sorted(gram for gram in self.grams if len(gram) == n) for n in range(1, self.order + 1)]
        lines = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(by_order, 1))]
        for n, grams in enumerate(by_order, 1):
            lines += ["", f"\\{n}-grams:"]
            for gram in grams:
                probability, weight = (f"{max(_NEVER, value / _LOG10):.7g}" for value in self.grams[gram])
                lines.append("\t".join([probability, " ".join(gram), *([weight] if n < self.order else [])]))
        try:
            Path(path).write_text("\n".join([*lines, "", "\\end\\", ""]), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> NgramModel:
        """Read an ARPA file.  Raises UserError with its first line that is not understood."""
        try:
            content = Path(path).read_bytes()
            if content.startswith(_GZIP):
                raise UserError(f"{path}: is compressed; unpack it, as gunzip does")
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from None
        grams: dict[Gram, tuple[float, float]] = {}
        expected: dict[int, int] = {}
        begun, n = False, 0
        # Other spaces than these, such as one that does not break, are letters of tokens.
        for number, line in enumerate(_LINE.split(text), 1):
            line = line.strip(" \t")
            if line == "\\end\\":
                break
            begun = begun or line.endswith("\\data\\")
            try:
                if begun and line.startswith("ngram "):  # before \data\ there may be anything
                    length, count = line.removeprefix("ngram ").split("=")
                    expected[int(length)] = int(count)
                elif line.startswith("\\") and line.endswith("-grams:"):
                    n = int(line[1:].removesuffix("-grams:"))
                elif line and not line.startswith("\\") and n:
                    fields = _SPACE.split(line)
                    gram = tuple(UNKNOWN if token == _UNKNOWN else token for token in fields[1 : n + 1])
                    if not n + 1 <= len(fields) <= n + 2:
                        raise ValueError
                    told, weight = float(fields[0]), float(fields[n + 1]) if len(fields) > n + 1 else 0.0
                    if not (told <= _ROUNDED and abs(weight) < math.inf):  # also where one is not a number
                        raise ValueError
                    grams[gram] = (max(told, _NEVER) * _LOG10, weight * _LOG10)
            except ValueError:
                raise UserError(f"{path}:{number}: expected a line of an ARPA file, found '{line[:60]}'") from None
        for order, told in expected.items():
            if sum(len(gram) == order for gram in grams) != told:
                raise UserError(f"{path}: says that it has {told:,} {order}-grams, and has others; is it whole?")
        if not expected:
            raise UserError(f"{path}: is no ARPA file: no line says how many n-grams there are")
        return cls(max(expected), grams)


def _counts(framed: Sequence[Gram], order: int) -> list[Counter[Gram]]:
    """How often each n-gram of each order counts: the highest as often as it is there, the others once for each token
    that is seen before them (those that begin a sequence, which nothing is before, as often as they are there)."""
    plain: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for sequence in framed:
        for n, counter in enumerate(plain, 1):
            counter.update(sequence[i : i + n] for i in range(len(sequence) - n + 1))
    found = [Counter(plain[0])] if order == 1 else []
    for lower, higher in pairwise(plain):
        seen = Counter(gram[1:] for gram in higher)
        found.append(Counter({gram: seen[gram] if gram[0] != BEGIN else count for gram, count in lower.items()}))
    if order > 1:
        found.append(plain[-1])
    found[0].pop((BEGIN,), None)  # it is never predicted
    return found


def _smoothed(counts: list[Counter[Gram]], order: int) -> dict[Gram, tuple[float, float]]:
    words = [gram[0] for gram in counts[0]]
    uniform = 1 / len({*words, UNKNOWN})
    probabilities: dict[Gram, float] = {}
    weights: dict[Gram, float] = {}
    for n, counter in enumerate(counts, 1):
        discount = _discount(counter)
        sums: dict[Gram, int] = defaultdict(int)
        kinds: dict[Gram, int] = defaultdict(int)
        for gram, count in counter.items():
            sums[gram[:-1]] += count
            kinds[gram[:-1]] += 1
        for history, total in sums.items():
            weights[history] = discount * kinds[history] / total
        for gram, count in counter.items():
            lower = uniform if n == 1 else probabilities[gram[1:]]
            probabilities[gram] = max(count - discount, 0) / sums[gram[:-1]] + weights[gram[:-1]] * lower
    probabilities.setdefault((UNKNOWN,), weights[()] * uniform)
    probabilities[BEGIN,] = 0.0
    return {
        gram: (_log(probability), _log(weights.get(gram, 1.0)) if len(gram) < order else 0.0)
        for gram, probability in probabilities.items()
    }


def _discount(counter: Counter[Gram]) -> float:
    """Ney's estimate from how many n-grams count once and twice; a half where it cannot be made."""
    once, twice = (sum(count == n for count in counter.values()) for n in (1, 2))
    return once / (once + 2 * twice) if once and twice else 0.5


def _log(number: float) -> float:
    return math.log(number) if number > 0 else _NEVER * _LOG10
