"""What can be wrong with a vocabulary file, found before it costs a training run."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from ernie.text.load import load_tokenizer
from ernie.text.subword import SentencePiece
from ernie.text.wordpiece import SPECIAL_TOKENS, VOCABULARY_FILE, read_vocabulary


def check_vocabulary(path: Path) -> list[str]:
    """The findings on a WordPiece `vocab.txt` (or its folder) or a SentencePiece model, one sentence each.

    Reports duplicates with both lines, missing special tokens, empty entries, white space, and entries that the
    tokenizer's own normalization makes unreachable.  Raises UserError when the file cannot be read.
    """
    if path.is_dir() and (path / VOCABULARY_FILE).is_file():
        path = path / VOCABULARY_FILE
    if path.is_dir() or path.suffix == ".model":
        tokenizer = load_tokenizer(path)
        assert isinstance(tokenizer, SentencePiece)
        return _repeated(path, tokenizer.tokens, "entry")
    tokens = read_vocabulary(path)
    missing = [token for token in SPECIAL_TOKENS if token not in tokens]
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
                f"{path}:{number}: '{token}' stands twice, first in {word} {first[token]}; only the id of the last "
                "one is ever used, and dropping either would shift every id behind it"
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
    """Entries with capitals in a vocabulary that lower-cases: no text can reach them."""
    lowercase = load_tokenizer(path).lowercase
    if not lowercase:
        return []
    odd = [token for token in tokens if token not in SPECIAL_TOKENS and not token.startswith("[unused")]
    capitals = [token for token in odd if token != token.lower()]
    if not capitals:
        return []
    examples = ", ".join(f"'{token}'" for token in capitals[:5])
    return [
        f"{path}: {len(capitals)} of {len(tokens)} entries hold capitals ({examples}) that this tokenizer, which "
        'lower-cases, can never produce. If the vocabulary is cased, write {"do_lower_case": false} into '
        f"{path.with_name('tokenizer_config.json')}."
    ]
