"""How good answers are: measures of classification, regression, ranking and tagging, from scikit-learn, SciPy, seqeval,
sacreBLEU.

Each takes what is right and what was answered, one item a row, and returns a number; higher is better unless its name
is in ernie.metrics.LOWER_IS_BETTER.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from unicodedata import category, normalize

import numpy as np

from ernie.audio.features import FeatureConfig, features
from ernie.audio.wave import Wave
from ernie.errors import UserError
from ernie.text.scripts import NO_SPACES

_CEPSTRA = 12  # coefficients that the distortion of speech is measured by

Tags = Sequence[Sequence[str]]
Ranked = Sequence[tuple[str, int]]  # the group and whether the text is relevant
# Texts of one query with equal scores, the best first: how many texts stand before them, how many they are, and how
# many of them are relevant.
Ties = list[tuple[int, int, int]]


def accuracy(right: Sequence[int], given: Sequence[int]) -> float:
    """The share of answers that are right."""
    return float(np.mean(np.asarray(right) == np.asarray(given)))


def f1(right: Sequence[int], given: Sequence[int]) -> float:
    """F1 of the second of two classes."""
    from sklearn.metrics import f1_score

    return float(f1_score(right, given, labels=[1], average="micro", zero_division=0))


def macro_f1(right: Sequence[int], given: Sequence[int]) -> float:
    """The mean of each class's F1, over the classes that are right somewhere or were answered."""
    from sklearn.metrics import f1_score

    return float(f1_score(right, given, average="macro", zero_division=0))


def matthews(right: Sequence[int], given: Sequence[int]) -> float:
    """Matthews' correlation coefficient; 0 when all answers are the same."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(right, given))


def pearson(right: Sequence[float], given: Sequence[float]) -> float:
    """Pearson's correlation; 0 when it is not defined because one side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, right, given)


def spearman(right: Sequence[float], given: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 when it is not defined because one side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, right, given)


def mean_squared_error(right: Sequence[float], given: Sequence[float]) -> float:
    """The mean squared difference; lower is better."""
    return float(np.mean((np.asarray(right) - np.asarray(given)) ** 2))


def set_micro_f1(right: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> float:
    """F1 over all labels of all rows together."""
    return _set_f1(right, given, "micro")


def set_macro_f1(right: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> float:
    """The mean of each label's F1, 0 for one that is neither right nor answered anywhere."""
    return _set_f1(right, given, "macro")


def exact_sets(right: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> float:
    """The share of rows all of whose labels are right."""
    return float(np.mean((np.stack(right) == np.stack(given)).all(axis=1)))


def entity_f1(right: Tags, given: Tags) -> float:
    """F1 of entities: type, first and last word must be right (as in the CoNLL-2003 shared task)."""
    from seqeval.metrics import f1_score

    return _entities(f1_score, right, given)


def entity_precision(right: Tags, given: Tags) -> float:
    """The share of the entities answered that are right."""
    from seqeval.metrics import precision_score

    return _entities(precision_score, right, given)


def entity_recall(right: Tags, given: Tags) -> float:
    """The share of the entities that were found."""
    from seqeval.metrics import recall_score

    return _entities(recall_score, right, given)


def tag_accuracy(right: Tags, given: Tags) -> float:
    """The share of the words with the right tag."""
    pairs = [pair for row in zip(right, given, strict=True) for pair in zip(*row, strict=True)]
    return float(np.mean([a == b for a, b in pairs])) if pairs else 0.0


def mean_reciprocal_rank(right: Ranked, given: Sequence[float]) -> float:
    """The mean over queries of 1 / the rank of the first relevant text.

    Of texts with equal scores each order counts alike, so that the order of the rows says nothing (McSherry & Najork,
    2008, "Computing information retrieval performance measures efficiently in the presence of tied scores").
    """

    def reciprocal(ties: Ties) -> float:
        before, size, relevant = next(tie for tie in ties if tie[2])
        orders = math.comb(size, relevant)
        places = range(size - relevant + 1)  # of the first relevant text among its equals
        return sum(math.comb(size - 1 - place, relevant - 1) / orders / (before + place + 1) for place in places)

    return _mean_over_queries(right, given, reciprocal)


def mean_average_precision(right: Ranked, given: Sequence[float]) -> float:
    """The mean over queries of the average, over the relevant texts, of the precision down to their ranks.

    Equal scores as for `mean_reciprocal_rank`.
    """

    def average(ties: Ties) -> float:
        total, found = 0.0, 0
        for before, size, relevant in ties:
            places = np.arange(size)
            # One relevant text stands at each place equally often, the others spread evenly over the rest.
            others = (relevant - 1) * places / max(size - 1, 1)
            total += relevant * float(np.mean((found + 1 + others) / (before + places + 1)))
            found += relevant
        return total / found

    return _mean_over_queries(right, given, average)


def ranked_f1(right: Ranked, given: Sequence[float]) -> float:
    """F1 of the relevant texts, those being answered whose score is at least 0.5."""
    return f1([grade for _, grade in right], [int(score >= 0.5) for score in given])


def ranked_accuracy(right: Ranked, given: Sequence[float]) -> float:
    """The share of rows judged right, a score of at least 0.5 meaning relevant."""
    return accuracy([grade for _, grade in right], [int(score >= 0.5) for score in given])


def _correlation(measure: Callable[..., tuple[float, float]], right: Sequence[float], given: Sequence[float]) -> float:
    if len(right) < 2 or np.ptp(right) == 0 or np.ptp(given) == 0:
        return 0.0
    return float(measure(right, given)[0])


def _set_f1(right: Sequence[np.ndarray], given: Sequence[np.ndarray], average: str) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(np.stack(right), np.stack(given), average=average, zero_division=0))


def _entities(measure: Callable[..., float], right: Tags, given: Tags) -> float:
    with warnings.catch_warnings():  # no entity on one side: 0, which is what it says
        warnings.simplefilter("ignore")
        return float(measure([list(row) for row in right], [list(row) for row in given], zero_division=0))


def _mean_over_queries(right: Ranked, given: Sequence[float], value: Callable[[Ties], float]) -> float:
    """The mean of a value over the queries that have a relevant text."""
    queries: dict[str, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (query, grade), score in zip(right, given, strict=True):
        queries[query][score].append(grade)
    values = []
    for scores in queries.values():
        ties: Ties = []
        for score in sorted(scores, reverse=True):
            before = sum(size for _, size, _ in ties)
            ties.append((before, len(scores[score]), sum(scores[score])))
        if any(relevant for _, _, relevant in ties):
            values.append(value(ties))
    return float(np.mean(values)) if values else 0.0


# Marks that hold a word or an abbreviation together (don't, twenty-one, u.s.), and all others.
_INSIDE = re.compile(r"(?<=\w)\s*['’-]\s*(?=\w)|(?<=\b\w)\s*\.\s*(?=\w\b)")
_APART = re.compile(r"(?<!\w)[^\w\s]|[^\w\s](?!\w)|[^\w\s'’.-]|(?<!\b\w)\.|\.(?!\w\b)|_")
_OF_LETTERS = ("M", "Cf")  # categories of accents and vowel signs, and of what joins letters: no marks of their own
_BARE = re.compile(f"[{NO_SPACES}]")
_BESIDE = re.compile(f" (?=[{NO_SPACES}])|(?<=[{NO_SPACES}]) ")


def bleu(right: Sequence[str], given: Sequence[str]) -> float:
    """BLEU of the corpus by sacreBLEU (Post, 2018, arXiv 1804.08771), as a share.

    Words are those of its tokenizer 13a, or zh where the translations are Chinese.
    """
    scorer = _sacrebleu()
    return float(scorer.corpus_bleu(given, [right], tokenize="zh" if _is_chinese(right) else "13a").score / 100)


def chrf(right: Sequence[str], given: Sequence[str]) -> float:
    """chrF2 of the corpus by sacreBLEU (Popović, 2015), as a share."""
    return float(_sacrebleu().corpus_chrf(given, [right]).score / 100)


def wer(right: Sequence[str], given: Sequence[str]) -> float:
    """The word error rate: words put in, left out and replaced, for each word that is right, by jiwer.

    Capitals count as small letters: nobody hears them.  A letter of a script without spaces is a word, and so is a mark
    that does not hold a word together as apostrophes do, however a vocabulary spaces them; an accent or vowel sign is
    none, however it is encoded.
    """
    return float(_jiwer().wer(*([_BARE.sub(r" \g<0> ", one) for one in _heard(texts)] for texts in (right, given))))


def cer(right: Sequence[str], given: Sequence[str]) -> float:
    """The character error rate: as the word error rate, of characters, by jiwer."""
    return float(_jiwer().cer(_heard(right), _heard(given)))


def _heard(texts: Sequence[str]) -> list[str]:
    """Texts in small letters, with the spaces that all spellings of them have."""
    found = []
    for text in texts:
        text = _INSIDE.sub(lambda mark: mark.group().strip(), normalize("NFC", text.lower()))
        found.append(_BESIDE.sub("", " ".join(_APART.sub(_parted, text).split())))
    return found


def _parted(mark: re.Match[str]) -> str:
    return mark.group() if category(mark.group()).startswith(_OF_LETTERS) else f" {mark.group()} "


def mcd(right: Sequence[Wave], given: Sequence[Wave]) -> float:
    """The mel-cepstral distortion in decibels, where each frame is compared with the one that it goes best with.

    Kubichek, 1993, of twelve coefficients, loudness left out; frames are aligned by dynamic time warping.
    """
    return float(np.mean([_distortion(one, other) for one, other in zip(right, given, strict=True)]))


def _distortion(right: Wave, given: Wave) -> float:
    found = [_cepstra(wave) for wave in (right, given)]
    apart = np.sqrt(2 * ((found[0][:, None] - found[1][None]) ** 2).sum(-1)) * 10 / math.log(10)
    return _along(apart)


def _cepstra(wave: Wave) -> np.ndarray:
    """The mel cepstra (frames, 12) of a sound, which is made as long as one window at least."""
    from scipy.fft import dct

    config = FeatureConfig(rate=wave.rate, bins=24, normalize="none")
    samples = np.pad(wave.samples, (0, max(0, config.window_samples - len(wave.samples))))
    amplitudes = features(config, samples) / 2  # logarithms of powers
    return dct(amplitudes, type=2, norm="ortho", axis=1)[:, 1 : 1 + _CEPSTRA]


def _along(costs: np.ndarray) -> float:
    """The mean cost on the way from one corner to the other, a step on either axis or on both at a time, that costs
    least in sum."""
    rows, columns = costs.shape
    # Corner to corner by diagonals, from each of which the next two come: of cell (i, j), counted from 1, the entry i.
    outside = np.full(rows + 1, np.inf)
    begun, nothing = outside.copy(), np.zeros(rows + 1)
    begun[0] = 0
    last_but_one, last = (begun, nothing), (outside, nothing)  # the sums, and how many cells are in each
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        # Of equal sums the first counts: a step on both axes, then on the first, then on the second.
        ways = ((last_but_one, i - 1), (last, i - 1), (last, i))
        sums, lengths = (np.stack([held[part][at] for held, at in ways]) for part in (0, 1))
        best = sums.argmin(0), np.arange(len(i))
        total, length = outside.copy(), nothing.copy()
        total[i], length[i] = sums[best] + costs[i - 1, diagonal - i - 1], lengths[best] + 1
        last_but_one, last = last, (total, length)
    return float(last[0][-1] / last[1][-1])


def _jiwer() -> Any:
    try:
        import jiwer
    except ImportError:
        raise UserError("wer and cer need jiwer: pip install 'ernie-continual[speech]'") from None
    return jiwer


def _is_chinese(texts: Sequence[str]) -> bool:
    joined = "".join(texts)
    return sum("\u4e00" <= character <= "\u9fff" for character in joined) > len(joined) / 4


def _sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError:
        raise UserError("bleu and chrf need sacrebleu: pip install 'ernie-continual[translation]'") from None
    return sacrebleu
