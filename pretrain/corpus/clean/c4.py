"""`c4`: the rules of the Colossal Clean Crawled Corpus (Raffel et al., 2020, section 2.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ernie.config import check_least
from ernie.data.raw import RawDocument
from ernie.text.scripts import words_in
from ernie.text.sentences import detect_language, split_sentences
from pretrain.corpus.clean.base import ENDS, OTHER_ENDS, Filter, Rejected, filters, with_lines
from pretrain.corpus.language import is_thai

_ELLIPSES = ("...", "\u2026")
_BOILERPLATE = re.compile(
    r"javascript|terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies", re.IGNORECASE
)
_NOTES = re.compile(r"\[(?:\d+|edit|citation needed)\]")
_WORD = re.compile(r"\w")


@filters.register("c4")
@dataclass(frozen=True)
class C4(Filter):
    """Takes lines that are not text out of web pages, and drops pages of which too little remains.

    A line stays if it ends in a full stop, exclamation mark, question mark or quotation mark, and has at least
    `min_words` words.  Lines on JavaScript, cookies or terms of use are taken out, and marks of footnotes and `[edit]`
    from the others.  Marked headings stay.  A page is dropped if it has fewer than `min_sentences` sentences then,
    filler text (lorem ipsum), or a brace, which stands for code.  Marks of Chinese sentences and of some other scripts
    count as well.  Thai has none, nor spaces between words, so that neither are asked for there.  C4's list of
    offensive words is left out.
    """

    repairs = True
    min_words: int = 3
    min_sentences: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, min_words=0, min_sentences=0)

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document with the lines that remain, or why it is dropped."""
        if "{" in document.text:
            return Rejected("code", "a brace, as in code")
        if "lorem ipsum" in document.text.lower():
            return Rejected("filler text", "lorem ipsum")
        lines, thai = document.text.split("\n"), is_thai(document.text)
        kept = [line if i in document.headings else self._kept(line, thai) for i, line in enumerate(lines)]
        if thai:
            return with_lines(document, kept)
        language = detect_language(document.text)
        prose = [line for i, line in enumerate(kept) if line is not None and i not in document.headings]
        sentences = sum(max(len(split_sentences(line, language)), sum(map(line.count, OTHER_ENDS))) for line in prose)
        if sentences < self.min_sentences:
            return Rejected("too few sentences", f"{sentences} sentences in {len(prose)} of {len(lines)} lines")
        return with_lines(document, kept)

    def _kept(self, line: str, thai: bool) -> str | None:
        """Return the line without marks of notes, or None if it is taken out."""
        line = _NOTES.sub("", line) if "[" in line else line
        bare = line.rstrip()
        if not (thai or bare.endswith(ENDS)) or bare.endswith(_ELLIPSES) or _BOILERPLATE.search(line):
            return None
        words = sum(_WORD.search(word) is not None for word in words_in(line))
        return line if thai or words >= self.min_words else None
