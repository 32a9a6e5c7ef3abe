"""A published checkpoint as a model of this library."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ernie.errors import Remark, UserError
from ernie.model.heads import MaskedTokenHead
from ernie.model.published import names
from ernie.model.published.folder import Kind, Weights, expected_files, read_settings, read_weights, recognise
from ernie.model.published.names import HEAD, Names
from ernie.model.published.shape import check_supported, layers_of, shape_of, wants_tasks
from ernie.model.published.vocabulary import read_tokenizer
from ernie.model.weights import arrays, set_weights

if TYPE_CHECKING:  # it imports this module
    from ernie.model.ernie import ErnieModel

TABLES: dict[Kind, tuple[Names, ...]] = {
    "hf": (names.HUGGING_FACE,),
    "paddlenlp": (names.PADDLENLP,),
    "ernie-official": (names.OFFICIAL, names.OFFICIAL_DYNAMIC),
    "bert-tf": (names.TENSORFLOW,),
}
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
_OPTIONAL = ("embedding.task.weight", *_POOLER)
_MANY = 12


@dataclass(frozen=True)
class Reading:
    """A model that was read, the format it was in, and a sentence for everything a user should know about it.

    `pooler` is False when the source has none: the model's own is as it was drawn.
    """

    model: ErnieModel
    kind: Kind
    notes: tuple[str, ...] = ()
    pooler: bool = True


def load(folder: Path, model_class: type[ErnieModel]) -> ErnieModel:
    """Load a published checkpoint; what it lacks, and what of it is left out, is said in warnings.

    Raises UserError when the folder is in no known format, or its weights are not those of such an encoder.
    """
    reading = read(folder, model_class)
    for note in reading.notes:
        warnings.warn(f"{folder}: {note}", Remark, stacklevel=3)  # where the user calls ErnieModel.from_pretrained
    return reading.model


def read(folder: Path, model_class: type[ErnieModel]) -> Reading:
    """Read a checkpoint of any known format, ours among them; raises as `load` does."""
    kind = recognise(folder)
    if kind is None:
        raise UserError(f"{folder}: holds no checkpoint. Expected {expected_files()}")
    if kind == "ernie":
        return Reading(model_class.from_pretrained(folder), kind)
    path, settings = read_settings(folder, kind)
    check_supported(settings, path)
    file, weights = read_weights(folder, kind)
    table, prefix = _table(kind, weights, file)
    spelled = table.spell(weights)
    wanted = table.of_encoder(layers_of(settings, path), prefix) | table.of_head()
    if not wants_tasks(settings, kind):
        wanted.pop("embedding.task.weight", None)
    found = {name: spelled[theirs] for name, theirs in wanted.items() if theirs in spelled}
    _check_types({name: weights[name] for name in found.values()}, file)
    ours = {name: _converted(weights[theirs], table.turns(name)) for name, theirs in found.items()}
    _check_complete(wanted, ours, file)
    config, notes = shape_of(settings, ours, kind, path)
    unused = [name for spelling, name in spelled.items() if spelling not in {*wanted.values(), *table.copies}]
    notes += _unused(unused) + _missing(wanted, ours, settings.get("task_type_vocab_size"))
    given = {name: array for name, array in ours.items() if not name.startswith(HEAD)}
    pooler = _has_pooler(ours)
    model = model_class(config, drawn=not pooler)
    set_weights(model, given if pooler else {**arrays(model), **given}, str(file))
    notes += _set_head(model, ours, wanted, _untied(table, spelled, weights, ours), str(file))
    model.tokenizer, said = read_tokenizer(folder, config.vocab_size)
    model.eval()
    return Reading(model, kind, (*notes, *said), pooler)


def _table(kind: Kind, weights: Weights, file: Path) -> tuple[Names, str]:
    for table in TABLES[kind]:
        prefix = table.prefix(weights)
        if prefix is not None:
            return table, prefix
    some = ", ".join(list(weights)[:3]) or "nothing"
    raise UserError(f"{file}: holds no token embeddings of a BERT or ERNIE encoder; it holds {some}, ...")


def _converted(values: np.ndarray, turned: bool) -> np.ndarray:
    return np.ascontiguousarray(values.T if turned else values, dtype=np.float32)


def _check_types(weights: Weights, file: Path) -> None:
    """Raise UserError for whole numbers, such as those that a quantized model has instead of its weights."""
    for name, values in weights.items():
        if not np.issubdtype(values.dtype, np.floating):
            raise UserError(
                f"{file}: {name} is of type {values.dtype}; expected floating-point numbers, as of a model that is not "
                "quantized"
            )


def _check_complete(wanted: Mapping[str, str], ours: Mapping[str, np.ndarray], file: Path) -> None:
    missing = [
        theirs
        for name, theirs in wanted.items()
        if name not in ours and name not in _OPTIONAL and not name.startswith(HEAD)
    ]
    if missing:
        raise UserError(f"{file}: lacks {condensed(missing)}")


def _missing(wanted: Mapping[str, str], ours: Mapping[str, np.ndarray], tasks: int | None) -> list[str]:
    notes = []
    if not _has_pooler(ours):
        notes.append("has no pooler; the model's own is untrained")
    if tasks and "embedding.task.weight" not in ours:
        notes.append("has no task embeddings, though its settings speak of them; the model has none")
    return notes


def _has_pooler(ours: Mapping[str, np.ndarray]) -> bool:
    return all(name in ours for name in _POOLER)


def _unused(left: list[str]) -> list[str]:
    left = [name for name in left if not name.endswith("position_ids")]  # no weights: the numbers 0, 1, 2, ...
    return [f"there is no place for {condensed(sorted(left))}"] if left else []


def _untied(table: Names, spelled: Mapping[str, str], weights: Weights, ours: Mapping[str, np.ndarray]) -> list[str]:
    """What should be a copy of the token table, or of the head's bias, and differs from it."""
    present = [(spelled[name], mine) for name, mine in table.copies.items() if name in spelled and mine in ours]
    return [name for name, mine in present if not np.array_equal(_converted(weights[name], False), ours[mine])]


def _set_head(
    model: ErnieModel, ours: Mapping[str, np.ndarray], wanted: Mapping[str, str], untied: list[str], origin: str
) -> list[str]:
    """Give the model its masked-token head, where all of it is there."""
    given = {name.removeprefix(HEAD): array for name, array in ours.items() if name.startswith(HEAD)}
    missing = [theirs for name, theirs in wanted.items() if name.startswith(HEAD) and name not in ours]
    if not given:
        return []
    if missing:
        return [f"its masked-token head is left out: it lacks {condensed(missing)}"]
    if untied:
        return [f"its masked-token head is left out: {', '.join(untied)} is not tied to the token embeddings"]
    head = MaskedTokenHead(model)
    set_weights(head, given, origin)
    head.eval()
    model.masked_head = head
    return []


def condensed(weights: Iterable[str]) -> str:
    """The names; where there are many, those that differ only in numbers are written once, with * for the number."""
    listed = list(weights)
    if len(listed) <= _MANY:
        return ", ".join(listed)
    counts = Counter(re.sub(r"\d+", "*", name) for name in listed)
    return ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in counts.items())
