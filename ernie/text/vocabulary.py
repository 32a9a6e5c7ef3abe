"""Checks of vocabulary files that find mistakes before they cost a training run."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from ernie.text.load import load_tokenizer, special_names
from ernie.text.tokenizer import SETTINGS_FILE
from ernie.text.wordpiece import VOCABULARY_FILE, WordPiece, read_vocabulary


def check_vocabulary(path: Path) -> list[str]:
    """Return the problems of a WordPiece `vocab.txt` (or its folder), one message each.

    Reports duplicates with both lines, missing special tokens, empty entries, white space, and entries that the
    tokenizer's own normalization makes unreachable.  Other tokenizers are checked for duplicates only.  Raises
    UserError when the file cannot be read.
    """
    if path.is_dir() and (path / VOCABULARY_FILE).is_file():
        path = path / VOCABULARY_FILE
    if path.is_dir() or path.suffix in (".model", ".json"):
        return _repeated(path, load_tokenizer(path).tokens, "entry")
    tokens = read_vocabulary(path)
    missing = [token for token in special_names(path.parent, tokens) if token not in tokens]
    findings = [f"{path}: lacks {', '.join(missing)}"] if missing else []
    findings += _repeated(path, tokens, "line")
    for line, token in enumerate(tokens, 1):
        problem = _problem(token)
        if problem:
            findings.append(f"{path}:{line}: {problem}")
    return findings if missing else findings + _unreachable(path, tokens)


def _repeated(path: Path, tokens: list[str], word: str) -> list[str]:
    first: dict[str, int] = {}
    findings = []
    for number, token in enumerate(tokens, 1):
        if token in first:
            findings.append(
                f"{path}:{number}: '{token}' appears twice, first in {word} {first[token]}; only the id of the last "
                "one is ever used, and dropping either would shift every id after it"
            )
        first.setdefault(token, number)
    return findings


def _problem(token: str) -> str | None:
    if not token:
        return "is empty"
    if token != token.strip():
        return f"'{token}' begins or ends with white space"
    if unicodedata.normalize("NFC", token) != token:
        return f"'{token}' is not in Unicode's normal form NFC"
    return None


def _unreachable(path: Path, tokens: list[str]) -> list[str]:
    """Report entries that no text can produce: one message for those with capitals, one for all others."""
    tokenizer = load_tokenizer(path)
    assert isinstance(tokenizer, WordPiece)
    whole = {*tokenizer.special, *(token.content for token in tokenizer.added.values())}
    bracketed = {token for token in tokens if token.startswith("[") and token.endswith("]")}
    ordinary = [token for token in tokens if token and token not in whole | bracketed]
    unreachable = [token for token in ordinary if not tokenizer.can_produce(token)]
    capitals = [token for token in unreachable if tokenizer.lowercase and token != token.lower()]
    others = sorted(set(unreachable).difference(capitals))
    findings = []
    if capitals:
        findings.append(
            f"{path}: {len(capitals)} of {len(tokens)} entries hold capitals ({_examples(capitals)}) that this "
            'tokenizer, which lower-cases, can never produce. If the vocabulary is cased, write {"do_lower_case": '
            f"false}} into {path.with_name(SETTINGS_FILE)}."
        )
    if others:
        findings.append(
            f"{path}: {len(others)} of {len(tokens)} entries can never be produced ({_examples(others)}): text is cut "
            "at punctuation and Chinese characters, cleaned, and stripped of accents where it is lower-cased"
        )
    return findings


def _examples(tokens: list[str]) -> str:
    return ", ".join(f"'{token}'" for token in tokens[:5])
