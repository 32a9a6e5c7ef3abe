"""Evaluation metrics of all kinds of task, many from scikit-learn, SciPy, seqeval, sacreBLEU and jiwer.

Each takes the targets and the predictions, one item for each row, and returns a number; higher is better unless its
name is in ernie.metrics.LOWER_IS_BETTER.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unicodedata import category, normalize

import numpy as np

from ernie.audio.features import FeatureConfig, features
from ernie.audio.wave import Wave
from ernie.errors import UserError
from ernie.text.scripts import NO_SPACES
from ernie.text.spoken_form import is_unspoken

_SAME = 1e-9  # cosines that differ by less are the same
_CEPSTRA = 12  # coefficients used for the mel-cepstral distortion

Tags = Sequence[Sequence[str]]
Ranked = Sequence[tuple[str, int]]  # the group and whether the text is relevant
Pair = tuple[str, str, float | None]  # a text, the one that belongs to it, and a score of how alike they are
Vectors = tuple[np.ndarray, np.ndarray]  # (D,) each: of a text and of its pair
# Groups of a query's texts with equal scores, the best first: how many texts rank before the group, its size, and how
# many of its texts are relevant.
Ties = list[tuple[int, int, int]]


def accuracy(targets: Sequence[int], predictions: Sequence[int]) -> float:
    """Return the share of correct predictions."""
    return float(np.mean(np.asarray(targets) == np.asarray(predictions)))


def f1(targets: Sequence[int], predictions: Sequence[int]) -> float:
    """Return F1 of the second of two classes."""
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predictions, labels=[1], average="micro", zero_division=0))


def macro_f1(targets: Sequence[int], predictions: Sequence[int]) -> float:
    """Return the mean of each class's F1, over the classes among the targets or the predictions."""
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predictions, average="macro", zero_division=0))


def label_scores(
    targets: Sequence[int] | np.ndarray, predictions: Sequence[int] | np.ndarray, labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and the number of targets of each label.

    Targets and predictions are indices of labels, or rows of 0 and 1 that tell which labels apply.
    """
    from sklearn.metrics import precision_recall_fscore_support

    indices = range(len(labels))
    scores = precision_recall_fscore_support(targets, predictions, labels=indices, zero_division=0)
    return _by_label(labels, *scores)


def tag_scores(targets: Tags, predictions: Tags) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and the number of words of each tag that occurs."""
    right, answered = ([tag for row in rows for tag in row] for rows in (targets, predictions))
    labels = sorted({*right, *answered})
    index = {tag: n for n, tag in enumerate(labels)}
    return label_scores([index[tag] for tag in right], [index[tag] for tag in answered], labels) if labels else {}


def entity_scores(targets: Tags, predictions: Tags) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and the number of entities of each type that occurs."""
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    types = sorted({tag[2:] for rows in (targets, predictions) for row in rows for tag in row if tag != "O"})
    if not types:
        return {}
    with warnings.catch_warnings():  # seqeval warns of a type that only one side has
        warnings.simplefilter("ignore")
        both = ([list(row) for row in rows] for rows in (targets, predictions))
        return _by_label(types, *precision_recall_fscore_support(*both, average=None, zero_division=0))


def _by_label(labels: Sequence[str], *columns: Sequence[float]) -> dict[str, dict[str, float]]:
    """Name the columns that scikit-learn and seqeval return."""
    return {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "targets": int(n)}
        for label, p, r, f, n in zip(labels, *columns, strict=True)
    }


def matthews(targets: Sequence[int], predictions: Sequence[int]) -> float:
    """Return Matthews' correlation coefficient; 0 if all targets or all predictions are the same."""
    from sklearn.metrics import matthews_corrcoef

    if len({*targets}) < 2 or len({*predictions}) < 2:
        return 0.0  # without sklearn's warning
    return float(matthews_corrcoef(targets, predictions))


def pearson(targets: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Pearson's correlation; 0 if it is undefined because one side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, targets, predictions)


def spearman(targets: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Spearman's rank correlation; 0 if it is undefined because one side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, targets, predictions)


def mean_squared_error(targets: Sequence[float], predictions: Sequence[float]) -> float:
    """Return the mean squared difference; lower is better."""
    return float(np.mean((np.asarray(targets) - np.asarray(predictions)) ** 2))


def set_micro_f1(targets: Sequence[np.ndarray], predictions: Sequence[np.ndarray]) -> float:
    """Return F1 over all labels of all rows together."""
    return _set_f1(targets, predictions, "micro")


def set_macro_f1(targets: Sequence[np.ndarray], predictions: Sequence[np.ndarray]) -> float:
    """Return the mean of each label's F1, 0 for one that is neither a target nor predicted anywhere."""
    return _set_f1(targets, predictions, "macro")


def exact_sets(targets: Sequence[np.ndarray], predictions: Sequence[np.ndarray]) -> float:
    """Return the share of rows whose labels are all correct."""
    return float(np.mean((np.stack(targets) == np.stack(predictions)).all(axis=1)))


def entity_f1(targets: Tags, predictions: Tags) -> float:
    """Return F1 of entities: type, first and last word must match (as in the CoNLL-2003 shared task)."""
    from seqeval.metrics import f1_score

    return _entities(f1_score, targets, predictions)


def entity_precision(targets: Tags, predictions: Tags) -> float:
    """Return the share of the predicted entities that are correct."""
    from seqeval.metrics import precision_score

    return _entities(precision_score, targets, predictions)


def entity_recall(targets: Tags, predictions: Tags) -> float:
    """Return the share of the target entities that were found."""
    from seqeval.metrics import recall_score

    return _entities(recall_score, targets, predictions)


def tag_accuracy(targets: Tags, predictions: Tags) -> float:
    """Return the share of words with the correct tag."""
    pairs = [pair for row in zip(targets, predictions, strict=True) for pair in zip(*row, strict=True)]
    return float(np.mean([a == b for a, b in pairs])) if pairs else 0.0


def mean_reciprocal_rank(targets: Ranked, predictions: Sequence[float]) -> float:
    """Return the mean over queries of 1 / the rank of the first relevant text.

    Ties are averaged over all orders, so that the order of the rows does not matter (McSherry and Najork, 2008,
    "Computing information retrieval performance measures efficiently in the presence of tied scores").
    """

    def reciprocal(ties: Ties) -> float:
        before, size, relevant = next(tie for tie in ties if tie[2])
        orders = math.comb(size, relevant)
        positions = range(size - relevant + 1)  # positions of the first relevant text in its group of ties
        return sum(
            math.comb(size - 1 - position, relevant - 1) / orders / (before + position + 1) for position in positions
        )

    return _mean_over_queries(targets, predictions, reciprocal)


def mean_average_precision(targets: Ranked, predictions: Sequence[float]) -> float:
    """Return the mean over queries of the average, over the relevant texts, of the precision down to their ranks.

    Ties are handled as in `mean_reciprocal_rank`.
    """

    def average(ties: Ties) -> float:
        total, found = 0.0, 0
        for before, size, relevant in ties:
            positions = np.arange(size)
            # Each position holds a given relevant text equally often, with the others spread evenly over the rest.
            others = (relevant - 1) * positions / max(size - 1, 1)
            total += relevant * float(np.mean((found + 1 + others) / (before + positions + 1)))
            found += relevant
        return total / found

    return _mean_over_queries(targets, predictions, average)


def ranked_f1(targets: Ranked, predictions: Sequence[float]) -> float:
    """Return F1 of the relevant texts; a score of at least 0.5 predicts relevance."""
    return f1([grade for _, grade in targets], [int(score >= 0.5) for score in predictions])


def ranked_accuracy(targets: Ranked, predictions: Sequence[float]) -> float:
    """Return the share of correct rows; a score of at least 0.5 predicts relevance."""
    return accuracy([grade for _, grade in targets], [int(score >= 0.5) for score in predictions])


def cosine_spearman(targets: Sequence[Pair], predictions: Sequence[Vectors]) -> float:
    """Return Spearman's correlation of the pairs' scores and the cosines of their vectors."""
    cosines = [float(_unit(one) @ _unit(other)) for one, other in predictions]
    # Rounded: cosines that differ in the last digits of a float are ties.
    return spearman([score or 0.0 for *_, score in targets], np.round(cosines, 6).tolist())


def partner_recall(targets: Sequence[Pair], predictions: Sequence[Vectors]) -> float:
    """Return the share of texts whose own pair is the nearest of all pairs: recall at 1.  See `_partner_ranks`."""
    return float(np.mean(_partner_ranks(targets, predictions) == 1))


def partner_reciprocal_rank(targets: Sequence[Pair], predictions: Sequence[Vectors]) -> float:
    """Return the mean of 1 / the rank of a text's own pair among all pairs.  See `_partner_ranks`."""
    return float(np.mean(1 / _partner_ranks(targets, predictions)))


def _partner_ranks(targets: Sequence[Pair], predictions: Sequence[Vectors]) -> np.ndarray:
    """Return the rank of each text's own pair among the different pairs of all rows, by cosine.

    A pair as near as the own one counts as nearer.  Further pairs of the same text are left out.  Of rows with scores
    those with the highest score have pairs to be found.
    """
    highest = max((score for *_, score in targets if score is not None), default=None)
    rows = [row for row, (*_, score) in enumerate(targets) if score == highest]
    columns: dict[str, int] = {}
    candidates = []
    for (_, pair, _), (_, vector_D) in zip(targets, predictions, strict=True):
        if pair not in columns:
            columns[pair] = len(columns)
            candidates.append(_unit(vector_D))
    partners: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        partners[targets[row][0]].append(columns[targets[row][1]])
    candidates_MD, ranks = np.stack(candidates), []
    for row in rows:
        text_D, own_D = map(_unit, predictions[row])
        cosines_M = candidates_MD @ text_D
        cosines_M[partners[targets[row][0]]] = -np.inf
        ranks.append(1 + int((cosines_M >= text_D @ own_D - _SAME).sum()))
    return np.array(ranks)


def _unit(vector_D: np.ndarray) -> np.ndarray:
    return vector_D / max(float(np.linalg.norm(vector_D)), 1e-12)


def _correlation(
    measure: Callable[..., tuple[float, float]], targets: Sequence[float], predictions: Sequence[float]
) -> float:
    if len(targets) < 2 or np.ptp(targets) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return float(measure(targets, predictions)[0])


def _set_f1(targets: Sequence[np.ndarray], predictions: Sequence[np.ndarray], average: str) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(np.stack(targets), np.stack(predictions), average=average, zero_division=0))


def _entities(measure: Callable[..., float], targets: Tags, predictions: Tags) -> float:
    with warnings.catch_warnings():  # seqeval warns and returns 0 if one side has no entity
        warnings.simplefilter("ignore")
        return float(measure([list(row) for row in targets], [list(row) for row in predictions], zero_division=0))


def _mean_over_queries(targets: Ranked, predictions: Sequence[float], value: Callable[[Ties], float]) -> float:
    """Return the mean of a value over the queries that have a relevant text."""
    queries: dict[str, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (query, grade), score in zip(targets, predictions, strict=True):
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


# Apostrophes of contractions and elisions (don't, ma'am, l'eau, qu'il), but not of the boys' toys.
_INSIDE = re.compile(
    r"(?<=\w)\s*'\s*(?=(?:s|t|d|m|n|am|ll|re|ve)\b)|(?:(?<=\b[cdjlmnostvyz])|(?<=\bqu))\s*'\s*(?=\w)", re.I
)
_LETTER_APOSTROPHE = "\u02bc"  # a letter to regular expressions
_QUOTED_N = re.compile(r"\s*'\s*(n)\s*'\s*", re.I)  # as in rock 'n' roll, where n is no contraction
_QUOTATION_MARKS = ("'", '"')
_ALIKE = {"'": "‘’‛", '"': "“”„‟", "-": "\u2010\u2011"}  # marks that sound alike: curves are inaudible
_PLAIN = str.maketrans({mark: plain for plain, marks in _ALIKE.items() for mark in marks})
_WIDE = re.compile("[\uff01-\uffee]+")  # full-width letters, digits and marks, and half-width kana
_NUMBER_MARK = re.compile(r"(\d+)(\s*[.,']\s*)(?=(\d+))")
_GROUPED = re.compile(r"(?<![\d.,'])\d{1,3}(?:[,']\d{3})+(?!\d)")  # the digits of 1,000
_BETWEEN = re.compile(r"(?<=\w)\s*-\s*(?=\w)|(?<=\b[^\W\d])\s*\.\s*(?=[^\W\d]\b)")  # marks of twenty-one and u.s.
_MARK = re.compile(r"[^\w\s]|_")
_OF_LETTERS = ("M", "Cf")  # Unicode categories of combining marks and joiners, which belong to letters
_UNSPACED = re.compile(f"[{NO_SPACES}]")
_SPACE_BESIDE = re.compile(f" (?=[{NO_SPACES}])|(?<=[{NO_SPACES}]) ")


def wer(targets: Sequence[str], predictions: Sequence[str], *, case: bool = False, punctuation: bool = True) -> float:
    """Return the word error rate by jiwer: words inserted, deleted and substituted, divided by the target words.

    Without `case`, capitals do not count, as they are inaudible.  Without `punctuation`, marks do not count, except for
    those that are spoken, such as % and a decimal point, and 1,000 is the word 1000 (as in Whisper's normalizer).
    Full-width characters are the same as others.  A hyphen between words, or a period between initials, is the same as
    a space.  A character of a script without spaces is a word, and so is any mark but the apostrophe of a contraction,
    however the vocabulary spaces them.  Quotation marks belong to the words that they enclose.  Accents and vowel signs
    are part of a word, however encoded.  An empty target counts the words of its prediction as inserted.  Raises
    UserError if all targets are empty.
    """
    return _error_rate(_jiwer().wer, *_in_words(targets, predictions, case, punctuation))


def substitutions(
    targets: Sequence[str], predictions: Sequence[str], *, case: bool = False, punctuation: bool = True
) -> float:
    """Return how many words are written in place of others, divided by the target words: a part of `wer`."""
    return _error_rate(partial(_edits, "substitutions"), *_in_words(targets, predictions, case, punctuation))


def deletions(
    targets: Sequence[str], predictions: Sequence[str], *, case: bool = False, punctuation: bool = True
) -> float:
    """Return how many words are said and not written, divided by the target words: a part of `wer`."""
    return _error_rate(partial(_edits, "deletions"), *_in_words(targets, predictions, case, punctuation))


def insertions(
    targets: Sequence[str], predictions: Sequence[str], *, case: bool = False, punctuation: bool = True
) -> float:
    """Return how many words are written and not said, divided by the target words: a part of `wer`."""
    return _error_rate(partial(_edits, "insertions"), *_in_words(targets, predictions, case, punctuation))


def _edits(kind: str, targets: list[str], predictions: list[str]) -> float:
    """Return the number of edits of a kind, divided by the target words."""
    found = _jiwer().process_words(targets, predictions)
    return float(getattr(found, kind) / (found.hits + found.substitutions + found.deletions))


def cer(targets: Sequence[str], predictions: Sequence[str], *, case: bool = False, punctuation: bool = True) -> float:
    """Return the character error rate by jiwer: as the word error rate, for characters."""
    return _error_rate(_jiwer().cer, *_normalized(targets, predictions, case, punctuation))


def _error_rate(measure: Callable[[list[str], list[str]], float], targets: list[str], predictions: list[str]) -> float:
    if not any(targets):
        raise UserError(
            "every transcript is empty, and an error rate divides by the length of the transcripts; add rows in which "
            "something is said"
        )
    return float(measure(targets, predictions))


def _in_words(
    targets: Sequence[str], predictions: Sequence[str], case: bool, punctuation: bool
) -> tuple[list[str], list[str]]:
    """Normalize texts, with spaces between all words."""
    said, written = _normalized(targets, predictions, case, punctuation)
    return _apart(said), _apart(written)


def _apart(texts: Sequence[str]) -> list[str]:
    """Put spaces around the characters of scripts that have none."""
    return [_UNSPACED.sub(r" \g<0> ", text) for text in texts]


def _normalized(
    targets: Sequence[str], predictions: Sequence[str], case: bool, punctuation: bool
) -> tuple[list[str], list[str]]:
    """Normalize the spacing of texts and of their marks, and remove what does not count."""
    said = [_normal_form(text, case, punctuation) for text in targets]
    pairs = zip(predictions, said, strict=True)
    return said, [_normal_form(text, case, punctuation, target) for text, target in pairs]


def _normal_form(text: str, case: bool, punctuation: bool, said: str | None = None) -> str:
    """Normalize a target, or a prediction of which `said` is the normalized target."""
    text = _WIDE.sub(lambda wide: normalize("NFKC", wide.group()), text)
    text = normalize("NFC", text if case else text.lower()).translate(_PLAIN)
    if not punctuation:
        text = _NUMBER_MARK.sub(lambda number: _spaced_mark(number, said), text)
        text = _GROUPED.sub(lambda number: re.sub("[,']", "", number.group()), text)
    quoted = rf" {_LETTER_APOSTROPHE}\1{_LETTER_APOSTROPHE} "
    text = _BETWEEN.sub(" ", _INSIDE.sub(_LETTER_APOSTROPHE, _QUOTED_N.sub(quoted, text)))
    words = _MARK.sub(_separate, text).split()
    if punctuation:
        words = _with_quotes(words)
    else:
        words = [word.strip(_LETTER_APOSTROPHE) for n, word in enumerate(words) if _is_spoken(words, n)]
    return _SPACE_BESIDE.sub("", " ".join(words))


def _spaced_mark(number: re.Match[str], said: str | None) -> str:
    """Return digits with the mark after them, if it belongs to a number, or else with a space.

    A target has no space within a number.  A vocabulary writes "3. 5" for both 3.5 and "3. 5": what was said decides.
    """
    left, mark, right = number.groups()
    if mark == mark.strip():
        return number.group()
    apart = said is None or re.search(rf"(?<!\d){left} {right}(?!\d)", said)
    return f"{left} " if apart else left + mark.strip()


def _separate(mark: re.Match[str]) -> str:
    return mark.group() if category(mark.group()).startswith(_OF_LETTERS) else f" {mark.group()} "


def _is_spoken(words: Sequence[str], n: int) -> bool:
    """Whether a word is more than marks; the point of a decimal number is spoken, too."""
    if words[n] == "." and 0 < n < len(words) - 1:
        return words[n - 1][-1].isdigit() and words[n + 1][0].isdigit()
    return not is_unspoken(words[n])


def _with_quotes(words: Sequence[str]) -> list[str]:
    """Join quotation marks, which open and close in turn, to the words that they enclose.

    The last one of an odd number encloses nothing, and is a word of its own.
    """
    joined = list(words)
    for mark in _QUOTATION_MARKS:
        places = [n for n, word in enumerate(words) if word == mark]
        for opening, closing in zip(places[::2], places[1::2], strict=False):
            if closing - opening > 1:
                joined[opening + 1] = mark + joined[opening + 1]
                joined[closing - 1] += mark
                joined[opening] = joined[closing] = ""
    return [word for word in joined if word]


def mcd(targets: Sequence[Wave], predictions: Sequence[Wave]) -> float:
    """Return the mel-cepstral distortion in decibels, over frames aligned by dynamic time warping.

    Kubichek, 1993, with twelve coefficients, without the one of loudness.  The sum along the path is divided by the
    number of the target's frames: divided by the path's, it would fall the longer a prediction goes on.
    """
    return float(np.mean([_distortion(*pair) for pair in zip(targets, predictions, strict=True)]))


def _distortion(target: Wave, prediction: Wave) -> float:
    cepstra = [_cepstra(wave) for wave in (target, prediction)]
    distances = np.sqrt(2 * ((cepstra[0][:, None] - cepstra[1][None]) ** 2).sum(-1)) * 10 / math.log(10)
    return _warped_sum(distances) / len(distances)


def _cepstra(wave: Wave) -> np.ndarray:
    """Return the mel cepstra (frames, 12) of a sound, padded to at least one window."""
    from scipy.fft import dct

    config = FeatureConfig(sample_rate=wave.rate, bins=24, normalize="none", remove_dc_offset=False)
    samples = np.pad(wave.samples, (0, max(0, config.window_samples - len(wave.samples))))
    amplitudes = features(config, samples) / 2  # from log power to log amplitude
    return dct(amplitudes, type=2, norm="ortho", axis=1)[:, 1 : 1 + _CEPSTRA]


def _warped_sum(costs: np.ndarray) -> float:
    """Return the smallest sum of costs along a path from corner to corner (dynamic time warping).

    A step goes along either axis, or both.
    """
    rows, columns = costs.shape
    # By anti-diagonals, each computed from the two before; entry i of a diagonal is the cell (i, j), counted from 1.
    last_but_one, last = np.full((2, rows + 1), np.inf)
    last_but_one[0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        total = np.full(rows + 1, np.inf)
        before = np.minimum(last_but_one[i - 1], np.minimum(last[i - 1], last[i]))
        total[i] = before + costs[i - 1, diagonal - i - 1]
        last_but_one, last = last, total
    return float(last[-1])


def _jiwer() -> Any:
    try:
        import jiwer
    except ImportError:
        raise UserError("wer and cer need jiwer: pip install 'ernie-continual[speech]'") from None
    return jiwer
