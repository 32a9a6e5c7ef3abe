"""Heads of fine-tuned models in the formats of other libraries: which class has which kind of head, and its names.

A head is described by the content of a model's task file: its kind, labels and further fields.  One table serves both
directions.  All these heads are one linear layer, on the pooler's output or on every token's vector.

Legend: D width, C outputs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.formatting import plural
from ernie.model.checksums import write_checksums
from ernie.model.pretrained import HEAD_FILE, TASK_FILE
from ernie.model.published.formats import Kind, class_names, detect_format, read_object, read_settings, read_weights
from ernie.model.published.names import WRAPPERS
from ernie.terminal import one_line
from ernie.text.tokenizer import SETTINGS_FILE

OWN_KEY = "finetune_task"  # in config.json: the fields of our task, which other libraries keep and ignore
WEIGHT, BIAS = "out.weight", "out.bias"  # as this library calls a head's parameters
_CLASS = re.compile(r"(?:Bert|Ernie)(For\w+)")
_ENTITY_TAG = re.compile(r"O|[BIESMLU]-.+")


@dataclass(frozen=True)
class HeadFormat:
    """A kind of head elsewhere: the class's name without the network's, the layer's name, and transformers' type.

    `per_token` heads take every token's vector, others the pooler's output.  `labels` are those that the kind implies,
    None if its task lists them.
    """

    suffix: str
    layer: Mapping[Kind, str]
    problem: str = ""
    per_token: bool = False
    labels: tuple[str, ...] | None = None


def _called(hugging_face: str, paddlenlp: str = "classifier") -> dict[Kind, str]:
    return {"hf": hugging_face, "paddlenlp": paddlenlp}


_SEQUENCE, _CLASSIFIER = "ForSequenceClassification", _called("classifier")
HEADS: dict[str, HeadFormat] = {
    "classify": HeadFormat(_SEQUENCE, _CLASSIFIER, "single_label_classification"),
    "multilabel": HeadFormat(_SEQUENCE, _CLASSIFIER, "multi_label_classification"),
    "regress": HeadFormat(_SEQUENCE, _CLASSIFIER, "regression", labels=("value",)),
    "rank": HeadFormat(_SEQUENCE, _CLASSIFIER, "single_label_classification", labels=("0", "1")),
    "tag": HeadFormat("ForTokenClassification", _CLASSIFIER, per_token=True),
    "extract": HeadFormat("ForQuestionAnswering", _called("qa_outputs"), per_token=True, labels=("start", "end")),
    "choose": HeadFormat("ForMultipleChoice", _CLASSIFIER, labels=("score",)),
}


_SUFFIXES = frozenset(head.suffix for head in HEADS.values())


@dataclass(frozen=True)
class TaskHead:
    """A fine-tuned model's head: the content of its task file, and its weights with our names, matrices (D, C)."""

    data: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]

    @property
    def kind(self) -> str:
        return one_line(str(self.data["task"].get("kind")), 60)

    @property
    def format(self) -> HeadFormat | None:
        """How other libraries have this head; None if they have none such."""
        return HEADS.get(self.kind) if self.weights.keys() == {WEIGHT, BIAS} else None

    @property
    def labels(self) -> tuple[str, ...]:
        fixed = None if self.format is None else self.format.labels
        return tuple(self.data["task"].get("labels", ())) if fixed is None else fixed

    @property
    def misfit(self) -> str:
        """What is wrong about a head that no kind of ours can be given, "" if nothing."""
        if self.format is None:
            return ""
        outputs, labels = len(self.weights[BIAS]), self.labels
        if outputs != len(labels):
            has = f"it has {plural(outputs, 'output')}, and"
            if self.format.labels is not None:
                return f"{has} a model of the kind {self.kind} has {len(labels)}"
            return f"{has} the settings name {plural(len(labels), 'label')}; write the right id2label there"
        if len(set(labels)) < len(labels):
            return (
                f"the label '{one_line(Counter(labels).most_common(1)[0][0], 60)}' stands twice; give each another name"
            )
        if outputs == 1 and self.kind in ("classify", "tag"):
            return f"it has one output, and a model of the kind {self.kind} chooses among at least two labels"
        return ""

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Apply the linear layer, (n, D) -> (n, C)."""
        return vectors @ self.weights[WEIGHT] + self.weights[BIAS]

    def for_other_libraries(self) -> TaskHead:
        """Return the head with outputs that need no scale: those of `regress` become the values themselves."""
        mean, deviation = self.data["task"].get("scale") or (0.0, 1.0)
        if self.kind != "regress" or (mean, deviation) == (0.0, 1.0):
            return self
        weights = {WEIGHT: self.weights[WEIGHT] * np.float32(deviation)}
        weights[BIAS] = (self.weights[BIAS].astype(np.float64) * deviation + mean).astype(np.float32)
        return replace(self, weights=weights, data={**self.data, "task": {**self.data["task"], "scale": [0.0, 1.0]}})

    def settings(self) -> dict[str, Any]:
        """Return what the head adds to the `config.json` of its encoder."""
        assert self.format is not None
        labels = dict(enumerate(self.labels))
        fields = {name: value for name, value in self.data["task"].items() if name != "labels"}
        return {
            **({"problem_type": self.format.problem} if self.format.problem else {}),
            "id2label": {str(i): label for i, label in labels.items()},
            "label2id": {label: i for i, label in labels.items()},
            OWN_KEY: fields,
        }

    def renamed(self, to: Kind) -> dict[str, np.ndarray]:
        """Return the weights with the names and the orientation of another format."""
        assert self.format is not None
        layer, matrix = self.format.layer[to], self.weights[WEIGHT]
        oriented = np.ascontiguousarray(matrix.T if to == "hf" else matrix)
        return {f"{layer}.weight": oriented, f"{layer}.bias": self.weights[BIAS]}

    def write(self, folder: Path) -> None:
        """Write the head into the folder of one of our models, which then is a fine-tuned one."""
        from ernie.model.weights import save_arrays

        save_arrays(dict(self.weights), folder / HEAD_FILE)
        text = json.dumps(self.data, indent=2, ensure_ascii=False)
        (folder / TASK_FILE).write_text(text + "\n", encoding="utf-8")
        write_checksums(folder, [HEAD_FILE, TASK_FILE])


def read_task_head(folder: Path, positions: int | None = None) -> TaskHead | None:
    """Read the head of a fine-tuned model, ours or another library's; None if there is none that can be read.

    `positions` are those of its encoder, see `published_task`.
    """
    from ernie.model.weights import read_arrays  # which needs Paddle

    if (folder / TASK_FILE).is_file():
        keys = {"task": (dict,), "module": (str,), "task_id": (int,)}
        data = read_object(folder / TASK_FILE, keys)
        return TaskHead(data, read_arrays(folder / HEAD_FILE))
    found = published_task(folder, positions)
    return None if found is None else TaskHead(found[0], read_published_head(folder, str(found[0]["task"]["kind"])))


def read_published_head(folder: Path, kind: str) -> dict[str, np.ndarray]:
    """Read the weights of another library's head of our `kind`, with our names and orientation.

    Raises UserError if the file lacks them.
    """
    file, weights = read_weights(folder)
    names = head_weights(folder, kind, weights)
    if names is None:
        layer = HEADS[kind].layer[_other(folder)]
        raise UserError(f"{file}: lacks the head's weights {layer}.weight and {layer}.bias")
    matrix, bias = (np.asarray(weights[name], np.float32) for name in names)
    oriented = matrix.T if _other(folder) == "hf" else matrix
    return {WEIGHT: np.ascontiguousarray(oriented), BIAS: bias}


def head_weights(folder: Path, kind: str, weights: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of the weights of a head of our `kind` in a file; None if it lacks them."""
    layer = re.escape(HEADS[kind].layer[_other(folder)])
    pattern = re.compile(rf"(?:{WRAPPERS})*{layer}\.(weight|bias)")
    found = {match[1]: name for name in weights if (match := pattern.fullmatch(name))}
    return (found["weight"], found["bias"]) if found.keys() == {"weight", "bias"} else None


def published_task(folder: Path, positions: int | None = None) -> tuple[dict[str, Any], list[str]] | None:
    """Return the task file's content for another library's fine-tuned model, and notes; None if it is no such model.

    Only its settings are read, not the weights, which may have fewer `positions` than the settings say.
    """
    if detect_format(folder) not in ("hf", "paddlenlp"):
        return None
    path, settings = read_settings(folder, _other(folder))
    if (suffix := _class_of_head(settings)[1]) == "":
        return None
    labels = _labels(settings, path)
    own = settings.get(OWN_KEY)
    fields: dict[str, Any] = own if isinstance(own, dict) and _suffix_of(own.get("kind")) == suffix else {}
    kind = fields.get("kind") or _kind(suffix, settings, len(labels))
    notes: list[str] = []
    if not fields:
        fields, notes = _fields(kind, _longest(settings, folder, positions)), _activation_notes(settings)
    if HEADS[kind].labels is None:
        fields = {**fields, "labels": labels}
    if kind == "tag" and not all(map(_ENTITY_TAG.fullmatch, labels)):
        fields = {**fields, "entities": False}
    data = {"task": {"kind": kind, **fields}, "module": f"tasks.downstream.{kind}", "task_id": 0}
    return data, notes


def head_notes(folder: Path) -> list[str]:
    """Return notes on the head of another library's fine-tuned model, one sentence each."""
    found = None if (folder / TASK_FILE).is_file() else published_task(folder)
    return [] if found is None else found[1]


def foreign_head(folder: Path) -> str:
    """Return the class of another library's model whose head, if any, is of none of our kinds; "" for other folders."""
    kind = detect_format(folder)
    names = class_names(read_settings(folder, kind)[1]) if kind in ("hf", "paddlenlp") else []
    return names[0] if names and published_task(folder) is None else ""


def head_class(folder: Path, kind: Kind) -> str:
    """Return the class of another library's fine-tuned model, "" if it is none that can be read."""
    if kind not in ("hf", "paddlenlp") or published_task(folder) is None:
        return ""
    return _class_of_head(read_settings(folder, kind)[1])[0]


def same_heads(one: TaskHead | None, other: TaskHead | None) -> bool:
    """Whether two heads have the same kind, labels and weights, bit for bit."""
    if one is None or other is None:
        return one is other
    same = (one.kind, one.labels, one.weights.keys()) == (other.kind, other.labels, other.weights.keys())
    return same and all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)


def _other(folder: Path) -> Kind:
    return "paddlenlp" if detect_format(folder) == "paddlenlp" else "hf"


def _class_of_head(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the class with a head that we know, and its name without the network's; both are "" if there is none."""
    matches = ((name, match[1]) for name in class_names(settings) if (match := _CLASS.fullmatch(name)))
    return next(((name, suffix) for name, suffix in matches if suffix in _SUFFIXES), ("", ""))


def _suffix_of(kind: Any) -> str | None:
    return HEADS[kind].suffix if isinstance(kind, str) and kind in HEADS else None


def _kind(suffix: str, settings: Mapping[str, Any], outputs: int) -> str:
    """Return our kind for a class of another library."""
    problem = settings.get("problem_type") or ("regression" if outputs == 1 else "single_label_classification")
    kinds = [name for name, head in HEADS.items() if head.suffix == suffix]
    matching = [name for name in kinds if HEADS[name].problem == problem]
    return (matching if suffix == _SEQUENCE and matching else kinds)[0]


def _labels(settings: Mapping[str, Any], path: Path) -> list[str]:
    """Return the labels in the order of the outputs; those of the frameworks if the settings name none."""
    by_id = _by_id(settings)
    if by_id:
        labels = [by_id.get(str(i)) for i in range(len(by_id))]
        if not all(isinstance(label, str | int) for label in labels):
            raise UserError(f"{path}: id2label: expected a label for each of the numbers 0 to {len(by_id) - 1}")
        return [str(label) for label in labels]
    count = next((settings[key] for key in ("num_labels", "num_classes") if key in settings), 2)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 1_000_000:
        raise UserError(f"{path}: num_labels: expected the number of labels, found {count!r:.60}")
    return [f"LABEL_{i}" for i in range(count)]


def _by_id(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels by number, from id2label, which may be a list, or else from label2id."""
    given, numbers = settings.get("id2label"), settings.get("label2id")
    if isinstance(given, list):
        given = dict(enumerate(given))
    if not given and isinstance(numbers, dict):
        given = {str(number): label for label, number in numbers.items()}
    return {str(number): label for number, label in given.items()} if isinstance(given, dict) else {}


def _fields(kind: str, longest: int) -> dict[str, Any]:
    """Return the fields of a task that another library has learned."""
    if kind == "regress":
        return {"max_len": longest, "scale": [0.0, 1.0]}
    if kind == "extract":
        longest = min(longest, 384)
        return {"max_len": longest, "stride": min(128, longest // 4), "max_question": min(64, longest // 4)}
    return {"max_len": longest}


def _longest(settings: Mapping[str, Any], folder: Path, positions: int | None) -> int:
    """Return the longest row in tokens: that of the tokenizer or, if it has none, of the model."""
    tokenizer = folder / SETTINGS_FILE
    given = read_object(tokenizer).get("model_max_length") if tokenizer.is_file() else None
    configured = settings.get("max_position_embeddings", 512)
    sizes = [
        size
        for size in (given, configured, positions)
        if isinstance(size, int) and not isinstance(size, bool) and size >= 8
    ]
    return min([*sizes, 1 << 20])


def _activation_notes(settings: Mapping[str, Any]) -> list[str]:
    """Return a note if the outputs of a cross-encoder go through a function that we do not apply."""
    nested = settings.get("sentence_transformers")
    function = settings.get("sbert_ce_default_activation_function")
    function = function or (nested.get("activation_fn") if isinstance(nested, dict) else None)
    if not isinstance(function, str) or function.endswith("Identity"):
        return []
    name = one_line(function.rpartition(".")[2], 60)
    return [f"its outputs go through {name} there; here they are as the head computes them"]


def unwritten(head: TaskHead, to: str) -> str:
    """Return a note on a head that another format cannot hold."""
    many = plural(sum(int(array.size) for array in head.weights.values()), "number")
    return f"its head of the kind {head.kind} ({many}) is not written: the format {to} has no class for it"
