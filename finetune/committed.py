"""Which words of a text that grows token by token are sure: what is handed out is never taken back."""

from __future__ import annotations

import re

_NO_SPACES = r"\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"  # Chinese, Japanese, and their punctuation
_OPEN = re.compile(rf"[^\s{_NO_SPACES}]+$")  # a last word, to which more letters may still be added


def has_no_spaces(letter: str) -> bool:
    """Whether a letter belongs to a script that does not part words by spaces."""
    return re.match(f"[{_NO_SPACES}]", letter) is not None


def newly_sure(given: str, text: str, done: bool) -> str:
    """What follows `given`, which was handed out, in the sure part of a text: all of it once it is `done`."""
    sure = text if done else _OPEN.sub("", text).rstrip()
    # A decoder may close up to a word what comes before it: what was handed out stays.
    return sure.removeprefix(given) if sure.startswith(given) else sure[len(given) :]
