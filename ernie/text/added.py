"""Tokens that were added to a vocabulary, such as entity markers: a text that holds one keeps it whole.

They are those of the `tokenizers` library, with its flags.  The model's own special tokens are never among them: a text
that happens to say [MASK] has no mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Engine

from ernie.json_file import read_json

ADDED_FILE, SPECIAL_FILE = "added_tokens.json", "special_tokens_map.json"
# The names of a model's own special tokens, which no text stands for.
SPECIAL_NAMES = frozenset("[PAD] [UNK] [CLS] [SEP] [MASK] <pad> <unk> <cls> <s> <sep> </s> <mask>".split())
_DAMAGED = "The tokenizer's folder is damaged; fetch it again."


@dataclass(frozen=True)
class Added:
    """An added token and where it matches; `special` ones are not predicted, as they are no part of a sentence.

    `lstrip` and `rstrip` take the white space before and after it into the token.  A `single_word` matches no part of a
    word.  A `normalized` token matches in the normalized text, for instance also in capitals.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


class Cut(NamedTuple):
    """A part of a text that is one added token, with its id, or has none, with the id None."""

    text: str
    id: int | None


_Entry = tuple[Added, int | None] | None


class AddedTokens:
    """Finds added tokens, given by id, in texts; `normalizer` is the tokenizer's."""

    def __init__(self, tokens: Mapping[int, Added], normalizer: normalizers.Normalizer):
        # The library finds them, so that every flag means what it does there; all other text is one unknown token.
        self._ids = list(tokens)
        self._engine = Engine(models.WordLevel({"": 0}, unk_token=""))
        self._engine.normalizer = normalizer
        add(self._engine, tokens)
        exact = all(not token.normalized for token in tokens.values())
        self._possible = re.compile("|".join(re.escape(token.content) for token in tokens.values()) if exact else "")

    def cut(self, text: str) -> Iterator[Cut]:
        """Cut a text into added tokens and the parts between them, without what the normalizer drops at their ends."""
        if not self._possible.search(text):
            yield Cut(text, None)
            return
        encoding = self._engine.encode(text, add_special_tokens=False)
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            yield Cut(text[start:stop], self._ids[number - 1] if number else None)


def add(engine: Engine, tokens: Mapping[int, Added]) -> None:
    """Add tokens to an engine of the library."""
    engine.add_tokens([AddedToken(**asdict(token)) for token in tokens.values()])


def read_added(folder: Path, settings: Mapping[str, Any], listed: Any = None) -> dict[str, tuple[Added, int | None]]:
    """Return the added tokens of a folder by their text, each with its id if a file says it.

    `settings` are those of tokenizer_config.json, `listed` are the `added_tokens` of a tokenizer.json.  The first file
    that describes a token wins.
    """
    entries = _by_id(settings.get("added_tokens_decoder"))
    entries += [_parse(entry, entry.get("id"), False) for entry in _list(listed) if isinstance(entry, dict)]
    for source in (settings, _read(folder / SPECIAL_FILE)):
        entries += [_parse(entry, None, True) for entry in _extra(source)]
    entries += [_parse(text, number, False) for text, number in _read(folder / ADDED_FILE).items()]
    found: dict[str, tuple[Added, int | None]] = {}
    for added, number in filter(None, entries):
        first, known = found.get(added.content, (added, None))
        found[added.content] = first, number if known is None else known
    return found


def read_special(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a model's own special tokens by key, such as `mask_token`, that the files of a folder say."""
    found = {}
    for key, entry in {**_read(folder / SPECIAL_FILE), **settings}.items():
        added, _ = _parse(entry, None, True) or (None, None)
        if added is not None and key.endswith("_token"):
            found[key] = added.content
    return found


def _by_id(entries: Any) -> list[_Entry]:
    items = entries.items() if isinstance(entries, dict) else ()
    return [_parse(entry, int(number), False) for number, entry in items if str(number).isdecimal()]


def _extra(source: Mapping[str, Any]) -> list[Any]:
    """Return the special tokens that are listed besides the model's own, under the names of several versions."""
    entries: list[Any] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = source.get(key)
        entries += list(value.values()) if isinstance(value, dict) else _list(value)
    return entries


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, {}, _DAMAGED) if path.is_file() else {}


def _parse(entry: Any, number: Any, special: bool) -> _Entry:
    """Return the token of an entry, a text or an object, and its id; None for what is neither, and for an empty text.

    `special` is the default of the flag of that name.
    """
    described = {"content": entry} if isinstance(entry, str) else entry
    if not isinstance(described, dict) or not isinstance(described.get("content"), str) or not described["content"]:
        return None
    special = described.get("special", special) is True
    flags = {name: described.get(name) is True for name in ("single_word", "lstrip", "rstrip")}
    # The library's default: only what is not special is looked for in the normalized text.
    normalized = described.get("normalized", not special) is True
    added = Added(described["content"], **flags, normalized=normalized, special=special)
    return added, number if type(number) is int else None


def describe(tokens: Mapping[int, Added]) -> dict[str, dict[str, Any]]:
    """Return the `added_tokens_decoder` of tokens by id."""
    return {str(number): asdict(token) for number, token in tokens.items()}


def place_added(
    found: Mapping[str, tuple[Added, int | None]], tokens: Sequence[str], most: int | None
) -> tuple[list[str], dict[int, Added], list[str]]:
    """Return a vocabulary with the added tokens that continue it, the added tokens by id, and those left out.

    Left out are those whose id is not the next one, or not below `most`, the size of the model's vocabulary, and those
    that have another id within the vocabulary.
    """
    vocabulary, ids = list(tokens), {token: i for i, token in enumerate(tokens)}
    chosen: dict[int, Added] = {}
    left_out: list[str] = []
    for text, (added, number) in sorted(found.items(), key=lambda item: -1 if item[1][1] is None else item[1][1]):
        if text in SPECIAL_NAMES:
            continue
        if text not in ids and number == len(vocabulary) and (most is None or number < most):
            ids[text] = number
            vocabulary.append(text)
        if text in ids and number in (None, ids[text]):
            chosen[ids[text]] = added
        else:
            left_out.append(text)
    return vocabulary, dict(sorted(chosen.items())), left_out
