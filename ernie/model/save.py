"""Saving a model to its folder; the old model stays until the new one is completely written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ernie.atomic import make_folder, partial_folder, put, temporary_file
from ernie.model.base_encoder import BaseEncoder
from ernie.model.checksums import CHECKSUMS_FILE, write_checksums
from ernie.model.pretrained import CONFIG_FILE, MASKED_HEAD_FILE, TOKENIZER_FOLDER, WEIGHTS_FILE
from ernie.model.published.sentence_folder import remove_sentence_config
from ernie.model.sentence import MODULES_FILE
from ernie.model.weights import arrays, save_arrays


def save(model: BaseEncoder, folder: Path) -> None:
    """See `ErnieModel.save_pretrained`."""
    snapshot(model)(folder)


def snapshot(model: BaseEncoder) -> Callable[[Path], None]:
    """Copy the weights of a model; return a function that saves it to a folder with these, also while it is trained."""
    return partial(_save, model, _writers(model))


def _save(model: BaseEncoder, writers: Mapping[str, Callable[[Path], None]], folder: Path) -> None:
    make_folder(folder)
    partials = {name: temporary_file(folder / name) for name in writers}
    tokenizer, sentence = partial_folder(folder / TOKENIZER_FOLDER), partial_folder(folder / "sentence")
    try:
        for name, write in writers.items():
            write(partials[name])
        if model.tokenizer is not None:
            model.tokenizer.save(tokenizer)
        if model.sentence_config is not None and not model.sentence_config.unsupported:
            model.sentence_config.write(make_folder(sentence), model.config.hidden_size)
        names = [*writers, *_files(sentence, ""), *_files(tokenizer, f"{TOKENIZER_FOLDER}/")]
        (folder / CHECKSUMS_FILE).unlink(missing_ok=True)  # a kill before the end leaves a model that is not checked
        _move_sentence_config(folder, sentence)
        _move_into_place(folder, partials, tokenizer)
        write_checksums(folder, names)
    finally:
        for path in partials.values():
            path.unlink(missing_ok=True)
        for partial_place in (tokenizer, sentence):
            shutil.rmtree(partial_place, ignore_errors=True)


def _files(partial: Path, prefix: str) -> list[str]:
    """Return the names that the files in a partial folder will have in the model's."""
    return [prefix + file.relative_to(partial).as_posix() for file in sorted(partial.rglob("*")) if file.is_file()]


def _writers(model: BaseEncoder) -> dict[str, Callable[[Path], None]]:
    head = model.masked_head
    weights = {WEIGHTS_FILE: arrays(model)} | ({} if head is None else {MASKED_HEAD_FILE: head.stored()})
    return {**{name: partial(save_arrays, found) for name, found in weights.items()}, CONFIG_FILE: model.config.write}


def _move_sentence_config(folder: Path, partial: Path) -> None:
    """Move the settings of a sentence encoder into place, in place of those of an old model."""
    remove_sentence_config(folder)
    written = sorted(partial.iterdir(), key=lambda path: path.name == MODULES_FILE) if partial.is_dir() else []
    for path in written:
        if path.is_dir():
            put(path, folder / path.name)
        else:
            path.replace(folder / path.name)


def _move_into_place(folder: Path, partials: dict[str, Path], tokenizer: Path) -> None:
    """Move all files into place and remove leftovers of the old model; the configuration, which marks a model, last."""
    if tokenizer.is_dir():
        put(tokenizer, folder / TOKENIZER_FOLDER)
    else:
        shutil.rmtree(folder / TOKENIZER_FOLDER, ignore_errors=True)
    if MASKED_HEAD_FILE not in partials:
        (folder / MASKED_HEAD_FILE).unlink(missing_ok=True)
    for name, path in partials.items():
        path.replace(folder / name)
