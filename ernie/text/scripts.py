"""Which characters are of a script: ranges, to stand between the brackets of a regular expression, and one such."""

import re

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"  # Chinese characters, wherever they are used
NO_SPACES = f"\u3001-\u30ff\uff00-\uffef{HAN}"  # Chinese, Japanese, and their punctuation
HAN_CHARACTER = re.compile(f"[{HAN}]")
_WORD = re.compile(rf"[{NO_SPACES}]|[^\s{NO_SPACES}]+")


def words_in(text: str) -> list[str]:
    """The words of a text, and each letter and mark of scripts that do not part words by spaces."""
    return _WORD.findall(text)
