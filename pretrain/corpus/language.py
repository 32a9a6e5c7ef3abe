"""The language of a document, which decides how its sentences are split and what marks its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ernie.errors import UserError, nearest
from ernie.text.scripts import NO_SPACES
from ernie.text.sentences import LANGUAGES, detect_language, detect_script

OTHER = "other"  # stands for all languages without segmenters of their own
_READ = 4_000  # characters that a language is identified by, from the beginning
_LEAST_PROBABILITY = 0.65  # below it a text may as well be English
_SAMPLED = 2_000  # characters, taken from all of a document
_SPACELESS = re.compile(f"[{NO_SPACES}]")
_LETTER = re.compile(r"[^\W\d_]")


def document_language(text: str, otherwise: str) -> str:
    """Return the language of a document, by characters at equal distances; `otherwise` for one without letters."""
    sampled = text[:: len(text) // _SAMPLED + 1]
    if not _LETTER.search(sampled):
        return otherwise
    return detect_script(sampled)


def has_spaces(text: str) -> bool:
    """Whether spaces separate the words of a text: not if it is in Chinese, Japanese or Thai."""
    return text.isascii() or (detect_language(text) != "zh" and not is_thai(text))


def is_thai(text: str) -> bool:
    """Whether a text is in Thai, in which no marks end sentences."""
    return not text.isascii() and document_language(text, "en") == "th"


def paragraph_language(paragraph: str, document: str) -> str:
    """Return the language whose rules split a paragraph: that of its document, unless it is all in another one."""
    if document in ("en", "th"):
        return detect_script(paragraph)
    return document if _SPACELESS.search(paragraph) else detect_script(paragraph)


@lru_cache(maxsize=4)  # several filters ask for the language of the same text
def identified_language(text: str, otherwise: str) -> str:
    """Return the language of a document as `document_language` does, but tell those apart that share a script.

    Others than LANGUAGES have codes of ISO 639-1, such as "de".  A text that is likely to be in none is English.
    """
    found = document_language(text, otherwise)
    if found != "en" or not _LETTER.search(text):
        return found
    code, probability = identify(text)
    return code if probability >= _LEAST_PROBABILITY and code not in LANGUAGES else "en"


def segmented_as(language: str) -> str:
    """Return the language whose segmenters mark text in any language: itself, or OTHER."""
    return language if language in LANGUAGES else OTHER


def split_as(language: str) -> str:
    """Return the language whose rules split text in any language: itself, or English."""
    return language if language in LANGUAGES else "en"


def identify(text: str) -> tuple[str, float]:
    """Return the most probable language of a text by the package py3langid, and its probability."""
    code, probability = _identifier().classify(text[:_READ])
    return str(code), float(probability)


def identifiable() -> list[str]:
    """Return the codes of the languages that `identify` knows."""
    return sorted(map(str, _identifier().nb_classes))


def check_identifiable(key: str, languages: Sequence[str]) -> None:
    """Raise UserError with the key for the first code that `identify` does not know."""
    known = identifiable()
    if unknown := [name for name in languages if name not in known]:
        hint = " Codes have two letters, such as de." if len(unknown[0]) != 2 else nearest(unknown[0], known)
        raise UserError(f"{key}: '{unknown[0]}' is no language that is recognized.{hint}")


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
