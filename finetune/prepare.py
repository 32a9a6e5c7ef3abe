"""Turn rows into examples, once per run, and report everything that is wrong or unusual about them."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as shortened
from typing import Any, TypeVar

import numpy as np

from ernie.data.document import Sample
from ernie.data.labeled.read import Split, raise_faults, read_split
from ernie.data.labeled.row import Fault, Row, spelled
from ernie.errors import Remark, UserError, about, nearest
from ernie.formatting import percent, plural
from ernie.text.coverage import MANY_STRIPPED, count_stripped
from ernie.text.tokenizer import Tokenizer
from finetune.config import DataConfig, TeacherConfig
from finetune.label_remarks import label_remarks, labels_of
from tasks.downstream.base import (
    MOST_COUNTED,
    Example,
    FinetuneTask,
    LogitsTask,
    answer_columns,
    is_labeled,
    truncation_note,
)
from tasks.downstream.calling import calling
from tasks.downstream.hooks import (
    ComparesRows,
    DerivesFromExamples,
    DerivesFromRows,
    EvaluationExamples,
    SplitRemarks,
    check_hooks,
)
from tasks.downstream.labels import UnknownLabel
from tasks.downstream.loss_settings import SoftLabels, WeightedClasses, WeightedRows

T = TypeVar("T")
R = TypeVar("R")
NEEDED = ("train", "dev")
_PROBED = 1000  # training rows whose segments are checked
_SEEN = 0.05  # share of rows: some short texts are common
_UNKNOWN = 0.2  # share of tokens: a text with as many is unreadable
_PROGRESS_INTERVAL = 15.0  # seconds of reading between progress messages
_VARIABLE_PARTS = re.compile(r"'[^']*'|\d+")  # the parts that differ between messages about the same fault


@dataclass(frozen=True)
class Prepared:
    """A split ready for the model: its rows, their examples, and remarks about anything unusual in them."""

    name: str
    rows: list[Row]
    examples: list[Example]
    labeled: bool
    remarks: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        """The number of tokens in all its samples."""
        return sum(example.tokens for example in self.examples)

    def part(self, chosen: Iterable[int]) -> Prepared:
        """Return some of its rows, by their numbers, without remarks."""
        numbers = list(chosen)
        rows, examples = [self.rows[i] for i in numbers], [self.examples[i] for i in numbers]
        return Prepared(self.name, rows, examples, self.labeled)


def prepare_all(
    task: FinetuneTask,
    data: DataConfig,
    tokenizer: Tokenizer,
    say: Callable[[str], None] | None = None,
    needed: Sequence[str] = NEEDED,
) -> tuple[FinetuneTask, dict[str, Prepared]]:
    """Prepare all splits of the data; return the task, completed from the training rows, and the splits by name.

    `say` receives progress messages if this takes long.  Raises UserError when a split that is `needed` is missing or
    has no labels, and for the unusable rows of all splits.
    """
    check_hooks(task)
    for name in needed:
        if name not in data.splits():
            raise UserError(f"data.{name}: fine-tuning needs a labeled {name} split; say here where its rows are")
    splits = read_splits(data)
    for name in NEEDED:
        if name in splits:
            _check_labeled(task, splits[name])
    labels_from_train = not getattr(task, "labels", True)
    with calling(task, "adapted_to"):
        task = task.adapted_to(splits["train"].rows) if isinstance(task, DerivesFromRows) else task
    prepared = _map_splits(
        splits,
        lambda name, split: prepare(
            task,
            split,
            tokenizer,
            say,
            skip=data.options(name).faulty == "skip",
            labels_from_train=labels_from_train,
        ),
    )
    with calling(task, "having_read"):
        if isinstance(task, DerivesFromExamples):
            task = task.having_read(prepared["train"].examples, tokenizer)
    if labels_from_train:
        prepared["train"].remarks.extend(label_remarks(task, prepared["train"].rows))
    if data.options("train").columns and labels_from_train:
        prepared["train"].remarks.extend(_header_like_labels(task, prepared["train"]))
    for name, other in prepared.items():
        if name != "train" and other.labeled:
            other.remarks.extend(_unseen_labels(task, prepared["train"], other))
            if isinstance(task, LogitsTask):  # others may read sound, of which the tokens tell nothing
                other.remarks.extend(seen_texts(task, prepared["train"], other, tokenizer.unk_id))
    return task, prepared


def read_splits(data: DataConfig) -> dict[str, Split]:
    """Read the rows of all splits.  Raises UserError that lists the unusable rows of all of them."""
    splits = _map_splits(data.splits(), lambda name, sources: _read_split(data, name, sources))
    columns = {column for split in splits.values() for row in split.rows for column in row}
    for name in splits:
        options = data.options(name)
        where = f"data.per_split.{name}" if name in data.per_split else "data"
        for key in ("join", "values", "skip"):
            for column in getattr(options, key):
                if column not in columns:
                    raise UserError(f"{where}.{key}: no row has a column '{column}'.{nearest(column, columns)}")
    _note_idle_values(data, splits)
    return splits


def _note_idle_values(data: DataConfig, splits: Mapping[str, Split]) -> None:
    """Warn of `values` that have replaced no cell of any split, as those for 1 where the cells are 1.0."""
    for column, replacements in data.values.items():
        cells = [row[column] for split in splits.values() for row in split.rows if column in row]
        if cells and not any(_holds(cell, {*replacements.values()}) for cell in cells):
            keys = ", ".join([*replacements][:5])
            warnings.warn(
                f"data.values.{column}: nothing is replaced: no cell is {keys}; one is {shortened(cells[0])}",
                Remark,
                stacklevel=3,
            )


def _holds(cell: Any, wanted: Container[str]) -> bool:
    return any(_holds(item, wanted) for item in cell) if isinstance(cell, list) else spelled(cell) in wanted


def _read_split(data: DataConfig, name: str, sources: Sequence[str]) -> Split:
    try:
        return read_split(name, sources, data.options(name))
    except UserError as error:
        lacking = any(f"there is no column '{column}'" in str(error) for column in data.rename.values())
        if name in data.per_split or not lacking:
            raise
        raise UserError(
            f"{error}\n(data.rename holds for every split; if the files of {name} have other columns, "
            f"data.per_split.{name} says how they are read)"
        ) from None


def _map_splits(items: Mapping[str, T], make: Callable[[str, T], R]) -> dict[str, R]:
    """Apply `make` to each split.  Raises UserError that lists the errors of all of them."""
    made: dict[str, R] = {}
    messages: list[str] = []
    for name, item in items.items():
        try:
            made[name] = make(name, item)
        except UserError as error:
            way = ", for instance by --set data.test=[]" if name == "test" else ""
            hint = "" if name in NEEDED else f"\n(a run can do without the split {name}: take it out){way}"
            messages.append(f"{error}{hint}")
    if messages:
        raise UserError("\n".join(messages))
    return made


def _compares_passes(task: FinetuneTask) -> bool:
    """Whether training rows need no targets."""
    return isinstance(task, ComparesRows) and task.compares_passes


def _check_labeled(task: FinetuneTask, split: Split) -> None:
    if is_labeled(task, split.rows) or (split.name == "train" and _compares_passes(task)):
        return
    column, verb = "', '".join(answer_columns(task)), "learn from" if split.name == "train" else "judge by"
    if any(name in row for row in split.rows for name in answer_columns(task)):
        raise UserError(f"data.{split.name}: no row has anything in the column '{column}' to {verb}")
    if split.rows[0].keys() == {"text"}:
        raise UserError(
            f"data.{split.name}: there is no column '{column}' to {verb}; {split.rows[0].place.file} was read as plain "
            "lines of text. If it is something else, say so with data.format: tsv, csv, jsonl or conll"
        )
    raise UserError(
        f"data.{split.name}: there is no column '{column}' to {verb}; the columns are {', '.join(split.rows[0])}. "
        f"Name it with task.{task.answer_fields[0]}, or with data.columns where no line of the file names them"
    )


def prepare(
    task: FinetuneTask,
    split: Split,
    tokenizer: Tokenizer,
    say: Callable[[str], None] | None = None,
    *,
    skip: bool = False,
    labels_from_train: bool = False,
) -> Prepared:
    """Make the examples of a split, with labels if its rows have them; `say` receives progress messages.

    With `skip` unusable rows are left out and reported in the remarks, as long as some rows are usable.  Otherwise
    raises UserError that lists them; also raises it when the rows as a whole are implausible
    (`SplitRemarks.check_examples`).  With `labels_from_train` its message says how to declare labels that train lacks.
    """
    labeled = is_labeled(task, split.rows) and not (split.name == "train" and _compares_passes(task))
    make: Callable[..., Example] = task.example
    if split.name == "unlabeled":
        labeled, make = False, _unlabeled(task)
    elif split.name == "train" and (labeled or _compares_passes(task)):
        make = task.training_example
    elif labeled and isinstance(task, EvaluationExamples):
        make = task.evaluation_example
    examples: list[Example] = []
    usable: list[Row] = []
    faults: list[Fault] = []
    hint = ""
    started = last_message = time.monotonic()
    for number, row in enumerate(split.rows):
        if say is not None and (now := time.monotonic()) - last_message > _PROGRESS_INTERVAL:
            last_message, left = now, (now - started) * (len(split.rows) - number) / max(1, number)
            say(f"{split.name}: {number:,} of {plural(len(split.rows), 'row')} read, {left / 60:.1f} minutes left")
        try:
            if labeled:
                with calling(task, "target", row.place):
                    task.target(row)
            with calling(task, make.__name__, row.place):
                example = make(row, tokenizer)
            if isinstance(task, WeightedRows) and split.name == "train":
                example = task.weighted(row, example)
            if split.name == "unlabeled":  # a weight of 0: the loss of labels does not count
                example = replace(example, samples=tuple(replace(each, weight=0.0) for each in example.samples))
            examples.append(example)
            usable.append(row)
        except UserError as error:
            faults.append(Fault(row.place, str(error)))
            if labels_from_train and isinstance(error, UnknownLabel):
                hint = "\n(the labels are those that train has; the key task.labels can name others, too)"
    if faults and (not skip or not usable):
        try:
            raise_faults(faults)
        except UserError as error:
            raise UserError(f"{error}{hint}") from None
    split = replace(split, rows=usable)
    unusual: list[str] = []
    if isinstance(task, SplitRemarks):
        with about(f"data.{split.name}"):
            task.check_examples(examples, tokenizer)
        unusual = [*task.remarks_on(usable), *task.remarks_on_texts(usable, tokenizer)] if labeled else []
    remarks = [*_fault_remarks(split, faults), *_split_remarks(task, split, examples, tokenizer)]
    if labeled:
        remarks += [f"{split.name}: {remark}" for remark in unusual] + _contradictions(task, split)
    return Prepared(split.name, usable, examples, labeled, remarks)


def _unlabeled(task: FinetuneTask) -> Callable[..., Example]:
    """Return what makes the samples of rows without labels.  Raises UserError for kinds that cannot learn from them."""
    if not isinstance(task, LogitsTask) or not isinstance(task, WeightedRows):
        raise UserError(
            f"data.unlabeled: a model of the kind {task.variant_name} cannot learn from rows without labels"
        )
    return task.unlabeled_example


def _fault_remarks(split: Split, faults: Sequence[Fault]) -> list[str]:
    """Return a remark for each kind of fault; faults that differ only in numbers and quoted words are of one kind."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(_VARIABLE_PARTS.sub("", fault.reason), []).append(fault)
    return [
        f"{split.name}: {plural(len(found), 'row')} left out, as 'faulty' asks, the first at {found[0]}"
        for found in kinds.values()
    ]


def _split_remarks(task: FinetuneTask, split: Split, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
    remarks = []
    if split.skipped:
        remarks.append(f"{split.name}: {plural(split.skipped, 'row')} skipped, as 'skip' or 'faulty' asks")
    for column in split.unlabeled:
        remarks.append(f"{split.name}: every row has '{column}' empty, so that none is skipped for it as 'skip' asks")
    cut = [i for i, example in enumerate(examples) if example.cut]
    if cut:
        cells = (row.get(column) for row in (split.rows[i] for i in cut) for column in _columns(task, row))
        least = "at least " if any(len(part) > MOST_COUNTED for cell in cells for part in _strings(cell)) else ""
        rows_cut = "every row" if len(cut) == len(examples) else f"{len(cut):,} of {plural(len(examples), 'row')}"
        remarks.append(
            f"{split.name}: {rows_cut} cut to {truncation_note(task)}, the first at {split.rows[cut[0]].place}; "
            f"{least}{plural(sum(examples[i].cut for i in cut), 'token')} not seen"
        )
    counts = [int(np.diff([*example.firsts, len(example.samples)]).max()) for example in examples if example.samples]
    if counts := [count for count in counts if count > 1]:
        remarks.append(
            f"{split.name}: {len(counts):,} of {plural(len(examples), 'row')} longer than max_len {task.max_len} and "
            f"read in windows, {sum(counts) / len(counts):.1f} on average and up to {max(counts):,}"
        )
    empty = [i for i, example in enumerate(examples) if example.empty]
    if empty:
        remarks.append(
            f"{split.name}: {plural(len(empty), 'row')} with a text without any token, the first at "
            f"{split.rows[empty[0]].place}; kept as they are"
        )
    remarks += _unknown_remarks(split, examples, tokenizer) + _stripped_remarks(task, split, tokenizer)
    for what in dict.fromkeys(what for example in examples for what in example.warnings):
        places = [row.place for row, example in zip(split.rows, examples, strict=True) if what in example.warnings]
        remarks.append(f"{split.name}: {plural(len(places), 'row')} with {what}, the first at {places[0]}")
    return remarks


def _contradictions(task: FinetuneTask, split: Split) -> list[str]:
    """Return a remark if rows have exactly the same text and different labels."""
    if not isinstance(task, LogitsTask) or not task.one_answer:
        return []
    labels: dict[tuple[object, ...], tuple[Row, object]] = {}  # the first row of each text, and its label
    differ: list[tuple[Row, Row]] = []
    for row in split.rows:
        cells = (row.get(column) for column in task.texts)
        text = tuple(cell if isinstance(cell, str) else repr(cell) for cell in cells)
        label = np.asarray(task.target(row)).tolist()
        first, expected = labels.setdefault(text, (row, label))
        if label != expected:
            differ.append((first, row))
    if not differ:
        return []
    one, other = differ[0]
    return [
        f"{split.name}: {plural(len(differ), 'row')} with exactly the text of an earlier row and a different label, "
        f"the first at {other.place}, with that of {one.place}"
    ]


def _header_like_labels(task: FinetuneTask, train: Prepared) -> list[str]:
    """Return a remark for each label that occurs only on the first line of a file: it may be a column name."""
    return [
        f"train: label '{label}' occurs only at {places[0]}, the first line of its file: if that line names the "
        "columns, leave 'columns' out"
        for label, places in _label_places(task, train).items()
        if len(places) == 1 and places[0].endswith(":1")
    ]


def seen_texts(task: LogitsTask, train: Prepared, other: Prepared, unknown: int) -> list[str]:
    """Return a remark if more rows of a split than chance explains have the very text of a row of train."""
    known = set(_texts(task, train, unknown))
    seen = [row for row, text in zip(other.rows, _texts(task, other, unknown), strict=True) if text in known]
    if len(seen) <= _SEEN * len(other):
        return []
    return [
        f"{other.name}: {len(seen):,} of {plural(len(other), 'row')} have the text of a row of train, the first at "
        f"{seen[0].place}; scores on them say nothing about new text"
    ]


def _texts(task: LogitsTask, split: Prepared, unknown: int) -> Iterator[tuple[object, ...]]:
    """Yield what identifies the text of each row: its tokens and, where some are unknown, its cells as well.

    Texts that differ only in case or spaces have the same tokens, and different rare characters the same token.
    """
    for row, example in zip(split.rows, split.examples, strict=True):
        ids = [sample.ids for sample in example.samples]
        cells = [repr(row.get(column)) for column in task.texts] if any(unknown in part for part in ids) else []
        yield b"|".join(part.tobytes() for part in ids), *cells


def _unknown_remarks(split: Split, examples: Sequence[Example], tokenizer: Tokenizer) -> list[str]:
    """Return a remark if many of the tokens of a split's texts are the one for unknown text."""
    special = np.fromiter(tokenizer.special_ids - {tokenizer.unk_id}, np.int64)

    def count(example: Example) -> tuple[int, int]:
        parts = [ids for sample in example.samples for ids in _token_ids(sample)]
        ids = np.concatenate([np.empty(0, np.int64), *parts])
        return int((ids == tokenizer.unk_id).sum()), len(ids) - int(np.isin(ids, special).sum())

    what = "of the tokens are [UNK], which the model's vocabulary lacks"
    return _many(split, map(count, examples), _UNKNOWN, what, "; is the model for this language?")


def _stripped_remarks(task: FinetuneTask, split: Split, tokenizer: Tokenizer) -> list[str]:
    """Return a remark if many characters of a split's texts lose a mark that is part of a letter."""

    def count(row: Row) -> tuple[int, int]:
        text = "".join(part for column in _columns(task, row) for part in _strings(row.get(column)))
        return count_stripped(tokenizer, text), len(text)

    what = "of the characters lose a mark that is part of a letter, as か is not が"
    why = "; the model's vocabulary strips accents, and one that does not keeps them"
    return _many(split, map(count, split.rows), MANY_STRIPPED, what, why)


def _many(split: Split, counts: Iterable[tuple[int, int]], most: float, what: str, why: str) -> list[str]:
    """Return a remark if more than the share `most` is `what`; `counts` has what and all of each row."""
    found, totals = np.array(list(counts), np.int64).reshape(-1, 2).T
    if found.sum() <= most * totals.sum():
        return []
    first = split.rows[int(np.argmax(found > 0))].place
    return [f"{split.name}: {percent(found.sum() / totals.sum())} {what}, the first at {first}{why}"]


def _columns(task: FinetuneTask, row: Row) -> Iterable[str]:
    """Return the columns of a row that a task reads, or all if that is not known."""
    return task.texts if isinstance(task, LogitsTask) else row


def _strings(cell: object) -> list[str]:
    """Return a cell that is text, or the texts of a list."""
    return [part for part in (cell if isinstance(cell, list) else [cell]) if isinstance(part, str)]


def _token_ids(sample: Sample) -> Iterator[np.ndarray]:
    """Yield the tokens of a sample's text, and of the text to be generated."""
    if sample.sound is None or np.any(sample.ids):  # not zeros that stand for sound
        yield np.asarray(sample.ids)
    if sample.decoder_ids is not None:
        yield np.asarray(sample.decoder_ids)


def _unseen_labels(task: FinetuneTask, train: Prepared, other: Prepared) -> list[str]:
    """Return a remark for each label of a split that does not occur in the training rows."""
    if not hasattr(task, "labels"):
        return []
    known = set(_label_places(task, train))
    if isinstance(task, WeightedClasses) and isinstance(task, SoftLabels) and task.soft_labels:
        # Labels that are never the most probable, too.
        counts = sum(task.occurrences(row).sum(0) for row in train.rows)
        known |= {name for name, count in zip(task.class_names, counts, strict=True) if count}
    remarks = []
    for label, places in _label_places(task, other).items():
        if label not in known:
            remarks.append(
                f"{other.name}: label '{label}' ({plural(len(places), 'row')}, the first at {places[0]}) "
                "does not occur in train: it cannot be learned"
            )
    return remarks


def _label_places(task: FinetuneTask, split: Prepared) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in split.rows:
        for label in dict.fromkeys(labels_of(task, row)):
            found.setdefault(label, []).append(str(row.place))
    return found


def check_segments(train: Prepared, segments: int, model: str, key: str = "model") -> None:
    """Raise UserError if rows are pairs, and the encoder `model` has only one of its `segments` embeddings."""
    samples = (sample for example in train.examples[:_PROBED] for sample in example.samples)
    needed = 1 + max((int(sample.segments.max(initial=0)) for sample in samples), default=0)
    if needed > segments:
        raise UserError(
            f"{key}: {model} has {plural(segments, 'segment embedding')}, and the rows of this task, which are of "
            f"several texts, need {needed}"
        )


def training_rows(splits: Mapping[str, Prepared]) -> Prepared:
    """Return the rows that a model is trained on: those of train, and those without labels."""
    train, more = splits["train"], splits.get("unlabeled")
    if more is None:
        return train
    return Prepared(train.name, train.rows + more.rows, train.examples + more.examples, train.labeled)


def loss_notes(task: FinetuneTask, train: Prepared, teacher: TeacherConfig | None = None) -> list[str]:
    """Return what the settings of the loss make of the training rows, a line each, for settings in use."""
    notes = list(task.loss_notes(train.rows)) if isinstance(task, WeightedRows) else []
    return notes if teacher is None else [*notes, f"teacher: {teacher.model}; {teacher.summary}"]


def describe(split: Prepared) -> str:
    """Return one line about a split: rows, tokens, longest sample."""
    samples = [len(sample) for example in split.examples for sample in example.samples]
    windows = f" in {plural(len(samples), 'sample')}" if len(samples) != len(split) else ""
    labels = "" if split.labeled else ", without labels"
    rows, tokens = plural(len(split), "row"), plural(split.tokens, "token")
    return f"{split.name}: {rows}{windows}, {tokens}, longest {max(samples)}{labels}"
