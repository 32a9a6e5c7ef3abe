"""Loading of tokenizers of any kind from a folder or file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ernie.errors import Remark, UserError, about
from ernie.formatting import plural
from ernie.json_file import read_json
from ernie.text.added import place_added, read_added, read_special
from ernie.text.engine_file import ENGINE_FILE, EngineFile, read_engine_file
from ernie.text.subword import MODEL_FILE, SentencePiece
from ernie.text.tokenizer import SETTINGS_FILE, Tokenizer
from ernie.text.wordpiece import (
    SPECIAL_KEYS,
    SPECIAL_TOKENS,
    VOCABULARY_FILE,
    WordPiece,
    is_uncased,
    read_vocabulary,
    without_end_spaces,
)

_SHOWN = 3  # tokens that a note names


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a folder, a `vocab.txt`, a SentencePiece `.model` file or a `tokenizer.json`.

    A folder may be one that `Tokenizer.save` wrote, or that of a published checkpoint.  How a WordPiece vocabulary
    reads text is said by `do_lower_case`, `strip_accents`, `tokenize_chinese_chars`, the special and the added tokens
    of the folder's tokenizer_config.json, then by its tokenizer.json; a vocabulary without capitals lower-cases
    otherwise.
    Warns of what is read in another way than the folder's own library would.  Raises UserError, naming the files it
    looked for, if there is no tokenizer.
    """
    tokenizer, notes = read_tokenizer_files(Path(path))
    for note in notes:
        warnings.warn(f"{path}: {note}", Remark, stacklevel=2)
    return tokenizer


def read_tokenizer_files(path: Path, most: int | None = None) -> tuple[Tokenizer, list[str]]:
    """Load a tokenizer as `load_tokenizer` does; return it, and its notes, one sentence each.

    `most` is how many tokens the model has embeddings for, which limits the added tokens.
    """
    file = _find(path) if path.is_dir() else path
    if not file.exists():
        raise UserError(f"{path}: there is no such tokenizer folder or file. Make one with 'ernie tokenizer train'.")
    if file.suffix == ".model":
        model = SentencePiece.read(file)
        added = read_added(file.parent, _read_settings(file.parent)) if path.is_dir() else {}
        return model, _left_out([token for token in added if token not in set(model.tokens)])
    settings = _settings(file.parent)
    tokens, engine, notes = _vocabulary(file, most, path.is_dir())
    special, special_notes = _special(file.parent, settings, engine, tokens)
    added = read_added(file.parent, settings, engine and engine.added)
    added = {token: entry for token, entry in added.items() if token not in special}
    reading = _reading(settings, engine, [token for token in tokens if token not in added])
    vocabulary, chosen, left_out = place_added(added, tokens, most)
    with about(file):
        notes = [*notes, *special_notes, *_left_out(left_out)]
        return WordPiece(vocabulary, *reading, chosen, len(tokens), special), notes


def special_names(folder: Path, tokens: Sequence[str]) -> list[str]:
    """Return the names of the special tokens of the vocabulary in a folder, in the order of SPECIAL_TOKENS."""
    return _special(folder, _read_settings(folder), None, tokens)[0]


def _special(
    folder: Path, settings: dict[str, Any], engine: EngineFile | None, tokens: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of a model's own special tokens, and a note on each that the vocabulary lacks."""
    known, names, notes = {*tokens}, [], []
    named = {**({"unk_token": engine.unknown} if engine else {}), **read_special(folder, settings)}
    for key, usual in zip(SPECIAL_KEYS, SPECIAL_TOKENS, strict=True):
        name = named.get(key)
        names.append(name if name in known else usual)
        if isinstance(name, str) and name not in (usual, *known):
            notes.append(f"its {key} is {name}, which the vocabulary lacks; {usual} stands for it")
    return names, notes


def _reading(settings: dict[str, Any], engine: EngineFile | None, tokens: Sequence[str]) -> tuple[bool, Any, bool]:
    """Return whether a WordPiece tokenizer lower-cases, strips accents, and takes Chinese characters apart."""
    lowercase, chinese = settings.get("do_lower_case"), settings.get("tokenize_chinese_chars")
    if lowercase is None:
        lowercase = is_uncased(tokens) if engine is None else engine.lowercase
    if chinese is None:
        chinese = engine is None or engine.tokenize_chinese_chars
    return lowercase, settings.get("strip_accents", engine and engine.strip_accents), chinese


def _vocabulary(file: Path, most: int | None, compare: bool) -> tuple[list[str], EngineFile | None, list[str]]:
    """Return the vocabulary in a file, the contents of the tokenizer.json that belongs to it, and notes.

    `compare` says whether a vocab.txt is compared with the tokenizer.json beside it, and the better one is returned.
    """
    if file.name == ENGINE_FILE:
        engine = read_engine_file(file)
        return engine.tokens, engine, []
    tokens = without_end_spaces(read_vocabulary(file))
    beside = file.with_name(ENGINE_FILE)
    if not compare or not beside.is_file():
        return tokens, None, []
    try:
        engine = read_engine_file(beside)
        difference = _difference(tokens, engine.ids)
        if difference is None:
            return tokens, engine, []
        theirs = engine.tokens
    except UserError as error:
        return tokens, None, [f"its {ENGINE_FILE} is not used, but its {file.name} ({error})"]
    disagree = f"its {file.name} and {ENGINE_FILE} disagree: {difference}"
    if most is not None and len(theirs) > most >= len(tokens):
        return tokens, engine, [f"{disagree}; {file.name} is used, as the other has more tokens than the model"]
    return theirs, engine, [f"{disagree}; {ENGINE_FILE} is used, as by transformers"]


def _difference(tokens: Sequence[str], theirs: dict[str, int]) -> str | None:
    """Say how a vocabulary and the ids in a tokenizer.json differ; None if each token has the same id in both."""
    ours = {token: i for i, token in enumerate(tokens)}
    theirs = {token.rstrip(" ") or token: number for token, number in theirs.items()}
    if "" not in ours:  # blank lines at the end of a vocabulary
        theirs.pop("", None)
    if ours == theirs:
        return None
    for name, more in ((ENGINE_FILE, theirs.keys() - ours.keys()), (VOCABULARY_FILE, ours.keys() - theirs.keys())):
        if more:
            return f"only {name} has {_named(sorted(more, key=(theirs | ours).__getitem__))}"
    token = next(token for token, number in ours.items() if theirs[token] != number)
    return f"'{token}' has the id {ours[token]} in one and {theirs[token]} in the other"


def _named(tokens: Sequence[str]) -> str:
    more = f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else ""
    return ", ".join(f"'{token}'" for token in tokens[:_SHOWN]) + more


def _left_out(tokens: Sequence[str]) -> list[str]:
    if not tokens:
        return []
    shown = ", ".join(tokens[:_SHOWN]) + (", ..." if len(tokens) > _SHOWN else "")
    return [f"its tokenizer has {plural(len(tokens), 'more token')} ({shown}), which ours does not know"]


def _find(folder: Path) -> Path:
    """Return the vocabulary or model file in a folder or, if it has neither, the `tokenizers` library's file.

    If it has both, as when one tokenizer was saved over another, it is the file of the last one.
    """
    found = [folder / name for name in (VOCABULARY_FILE, MODEL_FILE) if (folder / name).is_file()]
    if len(found) == 2 and _read_settings(folder).get("kind") == SentencePiece.kind:
        return found[1]
    if found:
        return found[0]
    models = sorted(folder.glob("*.model"))
    if len(models) == 1:
        return models[0]
    if (folder / ENGINE_FILE).is_file():
        return folder / ENGINE_FILE
    names = f"neither a {VOCABULARY_FILE} nor one .model file nor a {ENGINE_FILE}"
    raise UserError(f"{folder}: holds no tokenizer: there is {names} in it")


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return {}
    return read_json(path, {}, "The tokenizer's folder is damaged; fetch it or train it again.")


def _settings(folder: Path) -> dict[str, Any]:
    path, settings = folder / SETTINGS_FILE, _read_settings(folder)
    for key, default in (("do_lower_case", True), ("strip_accents", None), ("tokenize_chinese_chars", True)):
        if key in settings and not isinstance(settings[key], (bool, type(default))):
            expected = "true or false" if default is not None else "true, false or null"
            raise UserError(f"{path}: {key}: expected {expected}")
    if settings.get("word_tokenizer_type", "basic") != "basic":
        raise UserError(
            f"{path}: word_tokenizer_type: text is split into words as BERT's is; no other setting is supported"
        )
    return settings
