"""Where sentences end in Thai text, by the package pythainlp, which brings its model along.

Source: the segmenter crfcut of PyThaiNLP (Phatthiyaphaibun et al., 2023), a conditional random field over words.
"""

from __future__ import annotations

from collections.abc import Iterator

from ernie.text.sentence_marks import SPACE, skip


def thai_ends(text: str) -> Iterator[int]:
    """Yield where the sentences of a text end, after the white space that follows them."""
    if not text.strip():
        return
    from pythainlp.tokenize import sent_tokenize

    at = 0
    for sentence in sent_tokenize(text, engine="crfcut"):
        written = sentence.strip()
        if not written:
            continue
        at = skip(SPACE, text, text.index(written, at) + len(written))
        if at < len(text):
            yield at
