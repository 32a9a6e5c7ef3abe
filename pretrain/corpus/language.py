"""The language of a document, which decides how its sentences are split and what marks its words."""

from __future__ import annotations

import re

from ernie.text.scripts import NO_SPACES
from ernie.text.sentences import detect_script

_SAMPLED = 2_000  # characters, taken from all of a document
_SPACELESS = re.compile(f"[{NO_SPACES}]")
_LETTER = re.compile(r"[^\W\d_]")


def document_language(text: str, otherwise: str) -> str:
    """Return the language of a document, by characters at equal distances; `otherwise` for one without letters."""
    sampled = text[:: len(text) // _SAMPLED + 1]
    if not _LETTER.search(sampled):
        return otherwise
    return detect_script(sampled)


def paragraph_language(paragraph: str, document: str) -> str:
    """Return the language whose rules split a paragraph: that of its document, unless it is all in another one."""
    if document in ("en", "th"):
        return detect_script(paragraph)
    return document if _SPACELESS.search(paragraph) else detect_script(paragraph)
