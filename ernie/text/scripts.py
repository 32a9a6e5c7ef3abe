"""Character ranges of scripts, for use in the brackets of a regular expression, and patterns made of them."""

import re

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"  # Chinese characters, in any language
NO_SPACES = f"\u3001-\u30ff\uff00-\uffef{HAN}"  # Chinese, Japanese, and their punctuation
HAN_CHARACTER = re.compile(f"[{HAN}]")
_WORD = re.compile(rf"[{NO_SPACES}]|[^\s{NO_SPACES}]+")


def words_in(text: str) -> list[str]:
    """Split a text into words; in scripts written without spaces, every letter and mark counts as one."""
    return _WORD.findall(text)
