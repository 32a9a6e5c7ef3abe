"""Incremental tokenization: the token ids of the whole text, each emitted once later text can no longer change it."""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import category, normalize

from ernie.text.blank import is_blank
from ernie.text.scripts import NO_SPACES
from ernie.text.subword import SPACE
from ernie.text.tokenizer import Tokenizer

INITIAL_HELD = " "  # the held text at the start of a stream
END = "\n"  # stands for the end of a line among its words
# One of each class of characters that may extend a unit: letters, digits, marks, an accent.
_EXTENSIONS = "\u4e00\u3002\u30a2\uff11\uff21a1\u3099"
_TAIL = 16  # characters, enough for at least one that is neither an accent nor dropped by the tokenizer


class StableTokens(NamedTuple):
    """The `ids` of tokens that later text cannot change, and the text that is `held` because it may still change.

    `held` begins with the last character of the text already tokenized, as context.  A unit that may grow is held as a
    whole, although its first tokens may have been returned: `stable_tokens` returns only what follows them.
    """

    ids: list[int]
    held: str


def has_no_spaces(letter: str) -> bool:
    """Whether a character belongs to a script written without spaces between words."""
    return re.match(f"[{NO_SPACES}]", letter) is not None


def is_space(letter: str) -> bool:
    """Whether a character separates words: tokenizers drop all other control characters, which separate none."""
    return letter in "\t\n\r" or category(letter).startswith("Z")


def without_end(text: str) -> str:
    """Return a text without spaces at its end; `str.rstrip` would also take characters that tokenizers keep."""
    end = len(text)
    while end and is_space(text[end - 1]):
        end -= 1
    return text[:end]


def without_start(text: str) -> str:
    """Return a text without spaces at its start."""
    return without_end(text[::-1])[::-1]


class Cut(NamedTuple):
    """How far a text that arrives has been cut into words: the beginning of a word, and what its line has had.

    A line that is `begun` has had any character, and `has_visible` says whether one of them was visible.
    """

    piece: str = ""
    begun: bool = False
    has_visible: bool = False


def cut_words(cut: Cut, text: str) -> tuple[Cut, list[str]]:
    """Return the words that are complete after more text, with END at the end of each line.

    A character of a script without spaces also ends the word before it; a word after a space starts with one.
    Invisible characters do not make a word until the line has had a visible one: a line may hold nothing else.
    """
    (piece, begun, has_visible), words = cut, list[str]()
    for letter in text:
        begun = letter != "\n"
        has_visible = has_visible or not is_blank(letter)
        if has_no_spaces(letter):
            words.append(piece + letter)
            piece = ""
            continue
        if not is_space(letter):
            piece += letter
            continue
        piece = without_end(piece)
        if has_visible and piece:
            words.append(piece)
            piece = ""
        piece += " "
        if letter == "\n":
            words.append(END)
            piece, has_visible = "", False
    return Cut(piece, begun, has_visible), words


def last_words(cut: Cut) -> list[str]:
    """Return what is left when a text is over: its last word, and END if its last line lacks one."""
    word = [cut.piece] if without_end(cut.piece) and cut.has_visible else []
    return [*word, END] if cut.begun else word


def stable_tokens(tokenizer: Tokenizer, held: str, piece: str, ended: bool = False) -> StableTokens:
    """Return the tokens that become stable with the next piece of a text; pieces end at word boundaries.

    `held` is the text held back so far.  Pieces are joined by a space, except next to a letter of a script without
    spaces, where only a space in the piece itself counts.  Many vocabularies treat a run of letters of such a script as
    one unit, which may still grow: of its tokens, those are returned that no continuation can change.  `ended` says
    that no text follows.
    """
    # The first character precedes the held text: it shows the tokenizer whether a word begins after it.
    before = "" if is_space(held[0]) else held[0]
    if piece and all(map(is_space, piece)):
        return StableTokens([], without_end(held) + " ")
    joined = is_space(held[-1]) or has_no_spaces(held[-1]) or has_no_spaces(piece[:1] or " ")
    text = held + piece if joined else f"{held} {piece}"
    if tokenizer.split("a a")[0].endswith(SPACE):
        return _before_last_unit(tokenizer, text, ended)
    units, old = tokenizer.split(text), tokenizer.split(before)
    if units[: len(old)] != old:  # the text extends a unit already emitted: keep its tokens and start a new unit
        return stable_tokens(tokenizer, INITIAL_HELD + without_start(text[len(before) :]), "", ended)
    new = units[len(old) :]
    if not new:
        return StableTokens([], held)
    told = len(_settled(tokenizer, tokenizer.split(held)[len(old) :])) if without_end(held[1:]) else 0
    spans_spaces = len(tokenizer.split("a a")) == 1  # a vocabulary with pieces of several words
    grows = not ended and (spans_spaces or (has_no_spaces(text[-1]) and _may_grow(tokenizer, new[-1])))
    if not grows:
        space = " " * is_space(text[-1])
        return StableTokens(_ids(tokenizer, new)[told:], _last_letter(tokenizer, text) + space)
    # Hold the original text, not the tokenizer's normalized form, in which a unit may vanish.
    count, size = _last_written(tokenizer, new)
    ids = _ids(tokenizer, new[:-count]) + _settled(tokenizer, new[-count:])
    if count == len(new):
        return StableTokens(ids[told:], text)
    start = int(tokenizer.encode(text).offsets[-size][0])
    start = len(text) - len(without_start(text[start:]))
    space = " " * _ends_a_word(tokenizer, text[:start])
    return StableTokens(ids[told:], _last_letter(tokenizer, without_end(text[:start])) + space + text[start:])


def _before_last_unit(tokenizer: Tokenizer, text: str, ended: bool) -> StableTokens:
    """Return the tokens of a text but for its last unit, for a vocabulary that marks the ends of words.

    The mark of a last unit stands after it only until it grows.  What precedes a unit does not change it.
    """
    units = tokenizer.split(text)
    if ended:
        return StableTokens(_ids(tokenizer, units), INITIAL_HELD)
    count, size = _last_written(tokenizer, units)
    if count == len(units):
        return StableTokens([], text)
    start = int(tokenizer.encode(text).offsets[-size][0])
    return StableTokens(_ids(tokenizer, units[:-count]), INITIAL_HELD + text[start:])


def _last_written(tokenizer: Tokenizer, units: list[str]) -> tuple[int, int]:
    """Return how many units there are from the last one with tokens on, or how many in all, and that one's tokens."""
    count, size = 0, 0
    while not size and count < len(units):
        count += 1
        size = len(tokenizer.pieces(units[-count])) if count < len(units) else 0
    return count, size


def _settled(tokenizer: Tokenizer, units: list[str]) -> list[int]:
    """Return the tokens of a held text that no continuation can change: those of its first unit."""
    return tokenizer.settled_pieces(units[0]) if len(units) == 1 else []


def _ends_a_word(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text ends with a space or what the tokenizer reads as one, such as a zero-width space."""
    gap = ""
    while text and category(text[-1])[0] in "CZ":
        text, gap = text[:-1], text[-1] + gap
    *others, last = tokenizer.split(f"a{gap}a")
    return bool(others) and last == tokenizer.split("a a")[-1]


def _may_grow(tokenizer: Tokenizer, unit: str) -> bool:
    """Whether letters or marks that follow a unit may become part of it."""
    (own,) = tokenizer.surface([unit])
    return not own or any(len(tokenizer.split(_last_letter(tokenizer, own) + more)) == 1 for more in _EXTENSIONS)


def _last_letter(tokenizer: Tokenizer, text: str) -> str:
    """Return the last character that the tokenizer keeps, composed with its accents if they merge into it."""
    kept = [letter for letter in without_end(text[-_TAIL:]) if is_space(letter) or tokenizer.split(letter)]
    while kept and is_space(kept[-1]):  # before characters that the tokenizer drops
        kept.pop()
    if not kept:
        return INITIAL_HELD
    accents = 0
    while accents < len(kept) and category(kept[-1 - accents]).startswith("M"):
        accents += 1
    if accents < len(kept) and not is_space(kept[-1 - accents]):
        accented = "".join(kept[-1 - accents :])
        if len(tokenizer.split(accented)) == 1:
            composed = normalize("NFKC", accented)
            return composed if len(composed) == 1 else kept[-1 - accents]
    return kept[-1]


def _ids(tokenizer: Tokenizer, units: list[str]) -> list[int]:
    return [i for unit in units for i in tokenizer.pieces(unit)]
