"""An n-gram language model: estimated from sequences of tokens, stored in the common ARPA format.

Interpolated Kneser-Ney smoothing (Kneser and Ney, 1995; Chen and Goodman, 1999, section 4.1.6) with one discount for
each order.  A token is whatever a sequence consists of: words, subwords, characters.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from ernie.data.compressed import Damaged, compression_of, unpacked
from ernie.errors import UserError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
_UNKNOWN = "<UNK>"  # the spelling of some tools
Gram = tuple[str, ...]
_SPACE = re.compile(r"[ \t\r\n]+")
_LINE = re.compile(r"\r\n?|\n")
_LOG_ZERO = -99.0  # the logarithm of zero in ARPA files
_TOLERANCE = 1e-3  # how far above zero a tool may have rounded a logarithm
_LOG10 = math.log(10)
_MADE_UP = 2000  # tokens of the texts that the entropy of a model is estimated on


class NgramModel:
    """Probabilities of tokens given up to `order` - 1 preceding ones, backing off to shorter histories.

    `grams` maps each n-gram to the natural logarithms of its probability and of its back-off weight.
    """

    def __init__(self, order: int, grams: dict[Gram, tuple[float, float]]):
        self.order, self.grams = order, grams
        self._lowest = grams.get((UNKNOWN,), (_LOG_ZERO * _LOG10, 0.0))[0]

    @classmethod
    def learn(cls, sequences: Iterable[Sequence[str]], order: int = 3) -> NgramModel:
        """Estimate a model from sequences of tokens.

        Raises UserError for an order below 1, if there is no token, and for <s> and </s> inside a sequence.
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
        """Return the natural logarithm of the probability of a token after a history.

        Unknown tokens count as <unk> everywhere; as the next token, all of them together have its probability.
        """
        window = [*history[max(0, len(history) - self.order + 1) :], token]
        gram = tuple(each if (each,) in self.grams else UNKNOWN for each in window)
        weight = 0.0
        while gram not in self.grams:
            if len(gram) == 1:
                return weight + self._lowest
            weight += self.grams.get(gram[:-1], (0.0, 0.0))[1]
            gram = gram[1:]
        return weight + self.grams[gram][0]

    def knows(self, token: str) -> bool:
        """Whether it has the token."""
        return (token,) in self.grams

    @cached_property
    def words(self) -> list[str]:
        """Its tokens but for marks, in order."""
        return sorted(gram[0] for gram in self.grams if len(gram) == 1 and gram[0] not in (BEGIN, END, UNKNOWN))

    def entropy(self) -> float:
        """Return how many nats the model takes to predict a token, on texts that it makes up (always the same ones).

        Ends of texts are not counted.
        """
        return self._entropy

    @cached_property
    def _entropy(self) -> float:
        rng, nats, history, nexts = random.Random(0), [], [BEGIN], self._continuations()
        for _ in range(_MADE_UP):
            context = tuple(history[max(0, len(history) - self.order + 1) :])
            token = _draw(nexts, context, rng)
            if token == END:
                history = [BEGIN]
                continue
            nats.append(-self.score(context, token))
            history.append(token)
        return sum(nats) / len(nats) if nats else 0.0

    def _continuations(self) -> dict[Gram, tuple[list[str], list[float]]]:
        """Return what may follow each history, with its probabilities."""
        found: dict[Gram, tuple[list[str], list[float]]] = defaultdict(lambda: ([], []))
        for gram, (log_probability, _) in self.grams.items():
            if gram[-1] not in (BEGIN, UNKNOWN):
                tokens, probabilities = found[gram[:-1]]
                tokens.append(gram[-1])
                probabilities.append(math.exp(log_probability))
        return found

    def total(self, sequence: Sequence[str]) -> float:
        """Return the natural logarithm of the probability of a sequence and its end."""
        framed = (BEGIN, *sequence, END)
        return sum(self.score(framed[max(0, n - self.order + 1) : n], framed[n]) for n in range(1, len(framed)))

    def save(self, path: str | Path) -> None:
        """Write an ARPA file.  Raises UserError for tokens that it cannot hold, and if it cannot be written."""
        spaced = next((token for (token, *_) in self.grams if not token or _SPACE.search(token)), None)
        if spaced is not None:
            raise UserError(
                f"a token is {spaced!r}, and white space separates the tokens of an ARPA file; write another character "
                "for it, such as \u2581"
            )
        by_order = [sorted(gram for gram in self.grams if len(gram) == n) for n in range(1, self.order + 1)]
        lines = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(by_order, 1))]
        for n, grams in enumerate(by_order, 1):
            lines += ["", f"\\{n}-grams:"]
            for gram in grams:
                probability, weight = (f"{max(_LOG_ZERO, value / _LOG10):.7g}" for value in self.grams[gram])
                lines.append("\t".join([probability, " ".join(gram), *([weight] if n < self.order else [])]))
        try:
            Path(path).write_text("\n".join([*lines, "", "\\end\\", ""]), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> NgramModel:
        """Read an ARPA file, plain or compressed.  Raises UserError with the first line that cannot be parsed."""
        try:
            content = Path(path).read_bytes()  # of a pipe, too, which cannot seek
            text = unpacked(Path(path), BytesIO(content), compression_of(content)).read().decode("utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 text: {error}") from None
        except Damaged as error:
            raise UserError(f"{path}: {error.args[0]}; fetch it again") from None
        grams: dict[Gram, tuple[float, float]] = {}
        expected: dict[int, int] = {}
        in_data, n = False, 0
        # Other white space, such as a no-break space, is part of a token.
        for number, line in enumerate(_LINE.split(text), 1):
            line = line.strip(" \t")
            if line == "\\end\\":
                break
            in_data = in_data or line.endswith("\\data\\")
            try:
                if in_data and line.startswith("ngram "):  # anything may precede \data\
                    length, number_of_grams = line.removeprefix("ngram ").split("=")
                    expected[int(length)] = int(number_of_grams)
                elif line.startswith("\\") and line.endswith("-grams:"):
                    n = int(line[1:].removesuffix("-grams:"))
                elif line and not line.startswith("\\") and n:
                    fields = line.replace("\t", " ").split(" ")
                    if "" in fields:
                        fields = _SPACE.split(line)
                    gram = tuple(fields[1 : n + 1])
                    if _UNKNOWN in gram:
                        gram = tuple(UNKNOWN if token == _UNKNOWN else token for token in gram)
                    if not n + 1 <= len(fields) <= n + 2:
                        raise ValueError
                    log_probability, weight = float(fields[0]), float(fields[n + 1]) if len(fields) > n + 1 else 0.0
                    if not (log_probability <= _TOLERANCE and abs(weight) < math.inf):  # also for NaN
                        raise ValueError
                    grams[gram] = (max(log_probability, _LOG_ZERO) * _LOG10, weight * _LOG10)
            except ValueError:
                raise UserError(f"{path}:{number}: expected a line of an ARPA file, found '{line[:60]}'") from None
        counts = Counter(map(len, grams))
        for order, count in expected.items():
            if counts[order] != count:
                raise UserError(f"{path}: says that it has {count:,} {order}-grams, and has others; is it whole?")
        if not expected:
            raise UserError(f"{path}: is no ARPA file: no line says how many n-grams there are")
        return cls(max(expected), grams)


def _draw(nexts: dict[Gram, tuple[list[str], list[float]]], context: Gram, rng: random.Random) -> str:
    """Return a random next token; the history is shortened as often as the model backs off."""
    while True:
        tokens, probabilities = nexts.get(context, ([], []))
        if tokens and (not context or rng.random() < sum(probabilities)):
            return rng.choices(tokens, probabilities)[0]
        if not context:
            return END
        context = context[1:]


def _counts(framed: Sequence[Gram], order: int) -> list[Counter[Gram]]:
    """Return the counts of the n-grams of each order.

    The highest order has plain counts.  Lower ones count the distinct tokens that precede an n-gram, except for those
    that begin a sequence, which keep plain counts since nothing precedes them.
    """
    plain: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for sequence in framed:
        for n, counter in enumerate(plain, 1):
            counter.update(sequence[i : i + n] for i in range(len(sequence) - n + 1))
    counts = [Counter(plain[0])] if order == 1 else []
    for lower, higher in pairwise(plain):
        preceding = Counter(gram[1:] for gram in higher)
        counts.append(Counter({gram: preceding[gram] if gram[0] != BEGIN else count for gram, count in lower.items()}))
    if order > 1:
        counts.append(plain[-1])
    counts[0].pop((BEGIN,), None)  # it is never predicted
    return counts


def _smoothed(counts: list[Counter[Gram]], order: int) -> dict[Gram, tuple[float, float]]:
    words = [gram[0] for gram in counts[0]]
    uniform = 1 / len({*words, UNKNOWN})
    probabilities: dict[Gram, float] = {}
    weights: dict[Gram, float] = {}
    for n, counter in enumerate(counts, 1):
        discount = _discount(counter)
        sums: dict[Gram, int] = defaultdict(int)
        types: dict[Gram, int] = defaultdict(int)
        for gram, count in counter.items():
            sums[gram[:-1]] += count
            types[gram[:-1]] += 1
        for history, total in sums.items():
            weights[history] = discount * types[history] / total
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
    """Return Ney's estimate from the numbers of n-grams with counts one and two; 0.5 if one of them is zero."""
    once, twice = (sum(count == n for count in counter.values()) for n in (1, 2))
    return once / (once + 2 * twice) if once and twice else 0.5


def _log(number: float) -> float:
    return math.log(number) if number > 0 else _LOG_ZERO * _LOG10
