"""BLEU and chrF by sacreBLEU (Post, 2018, arXiv 1804.08771): its tokenizers by language, and its signatures."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

from ernie.errors import Remark, UserError
from ernie.text.scripts import HAN_CHARACTER

# Names of sacreBLEU's tokenizers that need no download; `auto` chooses one by the script of the references.
BleuTokenizer = Literal["auto", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "none"]
Reference = str | Sequence[str]  # one translation of a text, or several

_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
# Thai, Lao, Tibetan, Burmese, Khmer, and smaller ones of their family.
_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf]")
_LEAST = 0.25  # of the characters: translations into Chinese or Thai may hold names and terms in Latin letters
_LEAST_KANA = 0.05  # of the Chinese characters and kana: Japanese text has some in nearly every phrase


def bleu(targets: Sequence[Reference], predictions: Sequence[str], tokenizer: BleuTokenizer = "auto") -> float:
    """Return corpus BLEU as a share of one.  Several references for a text are used together.

    With `auto` the tokenizer is 13a; zh for Chinese; char for scripts without spaces between words, such as Japanese
    and Thai.  Warns where no reference has four tokens, which makes it 0.  Raises UserError when sacreBLEU, or what the
    tokenizer needs, is not installed.
    """
    name = _chosen(tokenizer, targets)
    scorer, references = _scorer("bleu", name), _streams(targets)
    score = min(1.0, float(scorer.corpus_score(predictions, references).score / 100))  # 1 + 4e-16 for equal texts
    if not score and not _have_four_tokens(scorer, [text for target in targets for text in _several(target)]):
        warnings.warn(
            "bleu is 0 whatever is written: it counts runs of four tokens, and no reference has four (tokenizer "
            f"{name}); metrics: [chrf, bleu] also scores short texts, and chooses the checkpoint by chrf",
            Remark,
            stacklevel=2,
        )
    return score


def chrf(targets: Sequence[Reference], predictions: Sequence[str]) -> float:
    """Return corpus chrF2 (Popović, 2015) as a share of one, against the closest of several references."""
    return float(_scorer("chrf").corpus_score(predictions, _streams(targets)).score / 100)


def signature(metric: str, targets: Sequence[Reference], tokenizer: BleuTokenizer = "auto") -> str:
    """Return sacreBLEU's signature of `bleu` or `chrf` against these targets: what another paper needs to compare."""
    scorer = _scorer(metric, _chosen(tokenizer, targets) if metric == "bleu" else "")
    scorer.corpus_score([""] * len(targets), _streams(targets))  # it tells the number of references
    return str(scorer.get_signature())


def require_tokenizer(tokenizer: BleuTokenizer) -> None:
    """Raise UserError when BLEU cannot be computed with this tokenizer because a package is missing."""
    _scorer("bleu", "13a" if tokenizer == "auto" else tokenizer)


def tokenizer_for(texts: Sequence[str]) -> BleuTokenizer:
    """Return the tokenizer that suits the script of these texts."""
    joined = "".join(texts)
    han, kana, unspaced = (len(script.findall(joined)) for script in (HAN_CHARACTER, _KANA, _UNSPACED))
    if han + kana + unspaced <= _LEAST * len(joined):
        return "13a"
    return "zh" if han > unspaced and kana <= _LEAST_KANA * (han + kana) else "char"


def _have_four_tokens(scorer: Any, texts: Sequence[str]) -> bool:
    return bool(scorer.corpus_score(texts, [texts]).totals[3])


def _chosen(tokenizer: BleuTokenizer, targets: Sequence[Reference]) -> BleuTokenizer:
    if tokenizer != "auto":
        return tokenizer
    return tokenizer_for([text for given in targets for text in _several(given)])


def _several(target: Reference) -> Sequence[str]:
    return (target,) if isinstance(target, str) else target


def _streams(targets: Sequence[Reference]) -> list[tuple[str | None, ...]]:
    """Return the references as sacreBLEU takes them: the first of every text, then the second; None where missing."""
    return list(zip_longest(*map(_several, targets)))


def _scorer(metric: str, tokenizer: str = "") -> Any:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise UserError("bleu and chrf need sacrebleu: pip install 'ernie-continual[translation]'") from None
    if metric == "chrf":
        return CHRF()
    try:
        return BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError):  # the Japanese and Korean ones take further packages
        language = tokenizer[:2]
        raise UserError(
            f"bleu_tokenizer: {tokenizer} needs more of sacrebleu: pip install 'sacrebleu[{language}]'"
        ) from None
