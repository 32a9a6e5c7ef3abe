"""Loading checkpoints, published or this library's own, as models of this library."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ernie.errors import Remark, UserError, about
from ernie.formatting import plural
from ernie.model.base_encoder import BaseEncoder
from ernie.model.checksums import check_model
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.model.pretrained import CONFIG_FILE, MASKED_HEAD_FILE, TOKENIZER_FOLDER, WEIGHTS_FILE
from ernie.model.published import names
from ernie.model.published.arrays import GROWTH
from ernie.model.published.formats import Kind, Weights, detect_format, expected_files, read_settings, read_weights
from ernie.model.published.names import HEAD, Names
from ernie.model.published.sentence_folder import read_sentence_config
from ernie.model.published.shape import check_supported, layers_of, shape_of, wants_tasks
from ernie.model.published.task_head import head_weights, published_task
from ernie.model.published.vocabulary import check_tokenizer_files, read_tokenizer
from ernie.model.weights import arrays, read_arrays, set_weights, shapes
from ernie.text.load import load_tokenizer

Model = TypeVar("Model", bound=BaseEncoder)

TABLES: dict[Kind, tuple[Names, ...]] = {
    "hf": (names.HUGGING_FACE,),
    "paddlenlp": (names.PADDLENLP,),
    "ernie-official": (names.OFFICIAL, names.OFFICIAL_DYNAMIC),
    "bert-tf": (names.TENSORFLOW,),
}
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
NO_POOLER = "has no pooler; the model's own is untrained"
_OPTIONAL = ("embedding.task.weight", *_POOLER)
_MAX_LISTED = 12
_OTHER_WEIGHTS = frozenset(".bin .ckpt .gguf .h5 .msgpack .onnx .pdparams .pt .pth .safetensors".split())
_LAYER = re.compile(r"layers?[._](\d+)[._/]")  # the number of a layer in all formats


@dataclass(frozen=True)
class LoadedCheckpoint(Generic[Model]):
    """A loaded model, its original format, and notes about missing, unused or unusual parts, one sentence each.

    `pooler` is False when the source has none: the model's own is then randomly initialized.  `head_note` says that a
    head beside the encoder was not loaded, "" if there is none.
    """

    model: Model
    kind: Kind
    notes: tuple[str, ...] = ()
    pooler: bool = True
    head_note: str = ""


def load(folder: Path, model_class: type[Model]) -> Model:
    """Load a checkpoint of any known format; warnings report missing and unused weights.

    Raises UserError when the folder's format is unknown, or its weights are not those of a BERT or ERNIE encoder.
    """
    reading = read(folder, model_class)
    for note in filter(None, (*reading.notes, reading.head_note)):
        warnings.warn(f"{folder}: {note}", Remark, stacklevel=3)  # points at the caller of ErnieModel.from_pretrained
    return reading.model


def read(folder: Path, model_class: type[Model]) -> LoadedCheckpoint[Model]:
    """Read a checkpoint of any known format, including this library's; raises as `load` does."""
    kind = detect_format(folder)
    if kind is None:
        raise UserError(f"{folder}: holds no checkpoint{_other_weights(folder)}. Expected {expected_files()}")
    if kind == "ernie":
        return _read_own(folder, model_class)
    path, settings = read_settings(folder, kind)
    check_supported(settings, path)
    file, weights = read_weights(folder)
    _check_layers(layers_of(settings, path), weights, path)
    table, prefix, original_names = _table(kind, weights, file)
    wanted = table.of_encoder(layers_of(settings, path), prefix) | table.of_head()
    if not wants_tasks(settings, kind):
        wanted.pop("embedding.task.weight", None)
    tied = {mine: copy for copy, mine in table.copies.items() if copy in original_names}  # stored under another name
    spelled = {name: theirs if theirs in original_names else tied.get(name, theirs) for name, theirs in wanted.items()}
    found = {name: original_names[theirs] for name, theirs in spelled.items() if theirs in original_names}
    _check_types({name: weights[name] for name in found.values()}, file)
    ours = {name: _convert(weights[theirs], table.is_transposed(name)) for name, theirs in found.items()}
    _check_complete(wanted, ours, file)
    config, notes = shape_of(settings, ours, kind, path)
    task = published_task(folder)
    head = None if task is None else head_weights(folder, task[0]["task"]["kind"], weights)
    known = {*wanted.values(), *table.copies}
    unused = [name for now, name in original_names.items() if now not in known and name not in (head or ())]
    tasks = settings.get("task_type_vocab_size") if settings.get("use_task_id", True) else None
    notes += _unused(unused, config.layers) + _missing(ours, tasks)
    encoder_weights = {name: array for name, array in ours.items() if not name.startswith(HEAD)}
    pooler = _has_pooler(ours)
    model = model_class(config, initialize=not pooler)
    for name, expected in shapes(model).items():
        if name in ours and list(ours[name].shape) != expected:
            theirs = weights[found[name]]
            order = -1 if theirs.shape != ours[name].shape else 1
            raise UserError(
                f"{file}: {found[name]} has the shape {list(theirs.shape)}, expected {expected[::order]} by its "
                "embeddings and settings"
            )
    set_weights(model, encoder_weights if pooler else {**arrays(model), **encoder_weights}, str(file))
    notes += _set_head(model, ours, wanted, _untied(table, original_names, weights, ours), str(file))
    model.tokenizer, tokenizer_notes = read_tokenizer(folder, config.vocab_size)
    model.sentence_config, sentence_notes = read_sentence_config(folder, config.max_positions, config.hidden_size)
    model.eval()
    head_note = (
        "" if head is None else f"its head ({', '.join(head)}) is no part of the encoder; TaskModel.load reads it"
    )
    return LoadedCheckpoint(model, kind, (*notes, *tokenizer_notes, *sentence_notes), pooler, head_note)


def _other_weights(folder: Path) -> str:
    """Name the files of a folder that seem to hold weights under a name that is not read, "" if there is none."""
    found = sorted(path.name for path in folder.glob("*") if path.suffix in _OTHER_WEIGHTS)
    return f" under a name that is read, but {summarize_names(found)}" if found else ""


def _read_own(folder: Path, model_class: type[Model]) -> LoadedCheckpoint[Model]:
    """Read a model of this library."""
    weights = read_arrays(folder / WEIGHTS_FILE)
    pooler = any(name in weights for name in _POOLER)  # a model converted from one without has none
    config = EncoderConfig.read(folder / CONFIG_FILE)
    _check_layers(config.layers, weights, folder / CONFIG_FILE)
    _check_size(config, weights, folder / CONFIG_FILE)
    model = model_class(config, initialize=not pooler)
    set_weights(model, weights if pooler else {**arrays(model), **weights}, str(folder / WEIGHTS_FILE))
    if (folder / MASKED_HEAD_FILE).is_file():
        model.masked_head = MaskedTokenHead.read(model, folder / MASKED_HEAD_FILE)
    if (folder / TOKENIZER_FOLDER).is_dir():
        check_tokenizer_files(folder / TOKENIZER_FOLDER, config.vocab_size)
        model.tokenizer = load_tokenizer(folder / TOKENIZER_FOLDER)
        if model.tokenizer.vocab_size > model.config.vocab_size:
            raise UserError(
                f"{folder}: the tokenizer has {model.tokenizer.vocab_size} tokens, the model only "
                f"{model.config.vocab_size}: they do not belong together"
            )
    model.sentence_config, notes = read_sentence_config(folder, config.max_positions, config.hidden_size)
    model.eval()
    check_model(folder)  # last: the readers above say better what is wrong in a file
    return LoadedCheckpoint(model, "ernie", (*(() if pooler else (NO_POOLER,)), *notes), pooler)


def _check_layers(layers: int, weights: Weights, path: Path) -> None:
    """Raise UserError if the settings have more layers than there are weights, before any layer is made."""
    if layers > len(weights):
        raise UserError(f"{path}: has {layers:,} layers, and there are only {plural(len(weights), 'weight')}")


def _check_size(config: EncoderConfig, weights: Weights, path: Path) -> None:
    """Raise UserError if a model would be far larger than its weights, before any memory is allocated for it."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_positions + config.segments + config.task_vocab_size
    expected = rows * width + config.layers * (4 * width + 2 * inner) * width
    found = sum(values.size for values in weights.values())
    if expected > GROWTH * found + (1 << 20):
        raise UserError(f"{path}: is for a model of {expected:,} weights, and there are only {found:,}")


def _table(kind: Kind, weights: Weights, file: Path) -> tuple[Names, str, dict[str, str]]:
    """Return a format's names, the prefix of its encoder's, and the names in the file by their current spelling."""
    for table in TABLES[kind]:
        with about(file):
            bare = table.without_wrapper(weights)
        original_names = {name: bare[spelled] for name, spelled in table.normalize_spelling(bare).items()}
        prefix = table.prefix(original_names)
        if prefix is not None:
            return table, prefix, original_names
    examples = ", ".join(list(weights)[:3]) or "nothing"
    raise UserError(f"{file}: holds no token embeddings of a BERT or ERNIE encoder; it holds {examples}, ...")


def _convert(values: np.ndarray, transposed: bool) -> np.ndarray:
    with np.errstate(over="ignore"):  # they become infinity, which `check_finite` reports
        return np.ascontiguousarray(values.T if transposed else values, dtype=np.float32)


def _check_types(weights: Weights, file: Path) -> None:
    """Raise UserError for integer weights, as in quantized models."""
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
        raise UserError(f"{file}: lacks {summarize_names(missing)}")


def _missing(ours: Mapping[str, np.ndarray], tasks: int | None) -> list[str]:
    notes = []
    if not _has_pooler(ours):
        notes.append(NO_POOLER)
    if tasks and "embedding.task.weight" not in ours:
        notes.append("has no task embeddings, though its settings speak of them; the model has none")
    return notes


def _has_pooler(ours: Mapping[str, np.ndarray]) -> bool:
    return all(name in ours for name in _POOLER)


def without_pooler(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights with this library's names without the pooler's."""
    return {name: values for name, values in weights.items() if name not in _POOLER}


def _unused(unused: list[str], layers: int) -> list[str]:
    """Return notes on the weights that the model lacks, and on those of layers beyond the settings' number."""
    unused = [name for name in unused if not name.endswith("position_ids")]  # not weights, but the numbers 0, 1, 2, ...
    beyond = {name: int(found[1]) for name in unused if (found := _LAYER.search(name)) and int(found[1]) >= layers}
    notes = []
    if beyond:
        notes.append(
            f"its settings say {plural(layers, 'layer')}, the weights have {max(beyond.values()) + 1}: the "
            f"others are left out"
        )
    others = sorted(set(unused) - set(beyond))
    return notes + ([f"there is no place for {summarize_names(others)}"] if others else [])


def _untied(
    table: Names, original_names: Mapping[str, str], weights: Weights, ours: Mapping[str, np.ndarray]
) -> list[str]:
    """Say which weights should be copies of the token embeddings or of the head's bias, but differ from them."""
    present = [
        (original_names[name], mine) for name, mine in table.copies.items() if name in original_names and mine in ours
    ]
    differ = [(name, mine) for name, mine in present if not np.array_equal(_convert(weights[name], False), ours[mine])]
    kinds = {
        name: "the head's other bias" if mine.startswith(HEAD) else "the token embeddings" for name, mine in differ
    }
    return [f"{name} differs from {other}" for name, other in kinds.items()]


def _set_head(
    model: BaseEncoder, ours: Mapping[str, np.ndarray], wanted: Mapping[str, str], untied: list[str], origin: str
) -> list[str]:
    """Set the model's masked-token head if it is complete and tied; return notes otherwise."""
    head_weights = {name.removeprefix(HEAD): array for name, array in ours.items() if name.startswith(HEAD)}
    missing = [theirs for name, theirs in wanted.items() if name.startswith(HEAD) and name not in ours]
    if not head_weights:
        return []
    if missing:
        return [f"its masked-token head is left out: it lacks {summarize_names(missing)}"]
    if untied:
        why = f"{' and '.join(untied)}, which this library's head shares"
        return [f"its masked-token head is left out: {why}. The encoder is whole; only fill_mask needs that head"]
    head = MaskedTokenHead(model)
    set_weights(head, head_weights, origin)
    head.eval()
    model.masked_head = head
    return []


def summarize_names(weights: Iterable[str]) -> str:
    """List names; of many names, those that differ only in numbers are merged, with * for the number."""
    items = list(weights)
    if len(items) <= _MAX_LISTED:
        return ", ".join(items)
    counts = Counter(re.sub(r"\d+", "*", name) for name in items)
    return ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in counts.items())
