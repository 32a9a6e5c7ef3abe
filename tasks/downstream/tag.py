"""Sequence labeling: a tag for each word, and the entities that the tags encode."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.config import check_least
from ernie.data.batch import Layout, Packed
from ernie.data.document import IGNORE, Sample
from ernie.data.labeled.row import Row, as_list, as_value, spelled
from ernie.errors import UserError, about
from ernie.formatting import plural
from ernie.text.scripts import HAN_CHARACTER, NO_SPACES
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import (
    Answer,
    Example,
    LabelScores,
    encode_start,
    finetune_task,
    rounded,
    softmax,
)
from tasks.downstream.calibration import Calibrated
from tasks.downstream.hooks import EvaluationExamples, ExportNotes, ScoresByLabel
from tasks.downstream.labels import check_labels, collected, found_in, index_of, is_number
from tasks.downstream.loss_settings import SoftLabels, WeightedClasses
from tasks.downstream.metrics import (
    entity_f1,
    entity_precision,
    entity_recall,
    entity_scores,
    tag_accuracy,
    tag_scores,
)
from tasks.downstream.soft_labels import as_distribution, probability
from tasks.downstream.windows import with_most_context
from tasks.downstream.word_splitting import Span, Splitting, split_words, splitting_of

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

OUTSIDE = "O"
_MARKS = ("B", "I", "E", "S", "M", "L", "U")
# How schemes mark a word of an entity, by whether it is its first and its last one.
_MARKS_OF = {(True, True): "SUBI", (True, False): "BI", (False, True): "ELIM", (False, False): "IM"}
_NO_SPACE = re.compile(f"[{NO_SPACES}]")


@dataclass(frozen=True)
class Words:
    """The words of a row; for raw text, also their spans in it.

    `windows` has the words of each sample, [first, behind the last]. `firsts` holds for each sample where the first
    tokens are of the words that it answers for.
    """

    words: list[str]
    text: str = ""
    spans: Sequence[Span] = ()
    firsts: Sequence[np.ndarray] = ()
    windows: Sequence[Span] = ()

    def located(self, entity: dict[str, Any], probabilities: np.ndarray) -> dict[str, Any]:
        """Return an entity with its score, the mean probability of its words' tags.

        In raw text `start` and `end` are characters, `text` is what stands there, and `words` are the numbers of its
        first word and of the one behind its last.
        """
        first, behind = entity["start"], entity["end"]
        score = rounded(probabilities[first:behind].mean())
        if not self.spans:
            return {**entity, "score": score}
        start, end = self.spans[first][0], self.spans[behind - 1][1]
        characters = {"start": start, "end": end, "text": self.text[start:end]}
        return {**entity, **characters, "score": score, "words": [first, behind]}


@finetune_task("tag")
@dataclass(frozen=True, kw_only=True)
class Tag(WeightedClasses, SoftLabels, Calibrated, EvaluationExamples, ScoresByLabel, ExportNotes):
    """A tag for each word of a row, predicted at the word's first token.

    `tokens` names a column with a list of words (or characters), or with text.  Text is split as the training rows
    were: by `splitting`, with `attached` words that keep a mark at an edge.  Both are learned from lists of words.

    `tags` names a column with a list of as many tags.  With `entities` they are O, and B-X and I-X for entities of type
    X, as in BIO. They may also be in IOB1, where B-X is used only right after another entity of the type.  Or they are
    in BIOES, BMES or BILOU, which mark last and single words, too.  With `entities: false` they are any names, such as
    parts of speech.

    `labels` are the tags to learn, in any of these schemes.  The default is those of the rows, in BIO, as the tags of
    answers are.  In place of a tag there may be a probability for each of these, {tag: probability}.

    A sentence longer than `max_len` is read in windows, so that every word gets its tag.  They have whole words and
    overlap by up to `stride` tokens.  A word is learned and answered once, in the window that has most of the sentence
    around it (Luoma and Pyysalo, 2020, "Exploring Cross-sentence Contexts for Named Entity Recognition with BERT",
    arXiv 2006.01563).
    """

    tokens: str = "token"
    tags: str = "tag"
    labels: tuple[str, ...] = ()
    entities: bool = True
    splitting: Splitting | None = None
    attached: tuple[str, ...] = ()
    stride: int = 0

    column_fields: ClassVar = ("tokens", "tags")
    known_metrics: ClassVar = {
        "f1": entity_f1,
        "precision": entity_precision,
        "recall": entity_recall,
        "accuracy": tag_accuracy,
    }
    default_metrics: ClassVar = 3
    per_token: ClassVar = True
    answer_fields: ClassVar = ("tags",)
    labels_belong_to: ClassVar = "word"
    judged_in_words: ClassVar = "of the most probable tag of a word"
    head_fields: ClassVar = ("labels", "splitting", "attached")
    decoding_fields: ClassVar = ("stride", "temperature")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        check_least(self, stride=0)
        if self.stride >= self.max_len - 2:
            raise UserError(
                f"stride: a window of max_len {self.max_len} has {self.max_len - 2} tokens of the sentence; expected "
                f"an overlap of fewer, found {self.stride}"
            )
        if self.entities:
            with about("labels"):
                as_bio(self.labels)
        if not self.entities and set(self.metrics) - {"accuracy"}:
            raise UserError("metrics: tags that spell no entities have only the metric accuracy")

    @property
    def scored_by(self) -> tuple[str, ...]:
        return super().scored_by if self.entities or self.metrics else ("accuracy",)

    def adapted_to(self, rows: Sequence[Row]) -> Tag:
        return self._split_as(rows)._labeled_as(rows).softened_by(rows).weighed_by(rows)

    def _split_as(self, rows: Sequence[Row]) -> Tag:
        """Return the task with the splitting of the rows, unless it is given or one of them is raw text."""
        sentences = [self._given_words(row) for row in rows]
        if self.splitting is not None or None in sentences:
            return self
        splitting, attached = splitting_of(words for words in sentences if words)
        return replace(self, splitting=splitting, attached=attached)

    def _labeled_as(self, rows: Sequence[Row]) -> Tag:
        if self.labels:
            return self
        found = found_in(rows, self._named_in)
        if self.entities:  # add the other tag of a type that occurs only with B, or only with I
            types = {tag[2:] for tag in found if tag != OUTSIDE}
            found = {OUTSIDE} | {f"{mark}-{kind}" for kind in types for mark in "BI"}
        return replace(self, labels=collected(found))

    def _soft(self, row: Row) -> list[dict[str, float] | None] | None:
        """Return for each word of a row the probabilities of its tags, if it has some; None if no word has."""
        items = [as_value(item) for item in as_list(row.cell(self.tags)) or ()]
        if not any(isinstance(item, Mapping) for item in items):
            return None
        found: list[dict[str, float] | None] = []
        for number, item in enumerate(items, 1):
            if isinstance(item, Mapping) and not item:
                raise UserError(f"column '{self.tags}': tag {number} has no probabilities")
            each = ((spelled(tag).strip(), value) for tag, value in item.items()) if isinstance(item, Mapping) else ()
            of_word = {
                tag: probability(value, f"column '{self.tags}': tag {number}: '{tag:.60}'") for tag, value in each
            }
            found.append(of_word or None)
        return found

    def has_soft_label(self, row: Row) -> bool:
        return self._soft(row) is not None

    def _named_in(self, row: Row) -> Iterable[str]:
        """Return the tags that a row names."""
        named = [tag for of_word in self._soft(row) or () for tag in of_word or ()]
        return [*self.target(row), *(as_bio([tag])[0] if self.entities else tag for tag in named)]

    def _given_tags(self, row: Row) -> list[str]:
        """Return the tag of each word of a row, or its most probable one: of equal ones, the first that is named."""
        soft = self._soft(row)
        if soft is None:
            return row.texts(self.tags, "tags")
        items = as_list(row.cell(self.tags)) or []
        words = [max(own, key=own.__getitem__) if own else item for own, item in zip(soft, items, strict=True)]
        return Row({self.tags: words}, row.place).texts(self.tags, "tags")

    def target(self, row: Row) -> list[str]:
        given = self._given_tags(row)
        tags = as_bio(given) if self.entities else given
        if self.labels:
            for tag in self._as_learned(tags):
                index_of(tag, self.labels)
        return tags

    def _as_learned(self, tags: Sequence[str]) -> Sequence[str]:
        """Return tags in the scheme of the labels."""
        return in_scheme(tags, self.labels) if self.entities else tags

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels

    def occurrences(self, row: Row) -> np.ndarray:
        tags = self._as_learned(self.target(row))
        found = np.eye(len(self.labels))[[index_of(tag, self.labels) for tag in tags]]
        for number, of_word in enumerate(self._soft(row) or ()) if self.soft_labels else ():
            if of_word is not None:
                with about(f"tag {number + 1}"):
                    found[number] = as_distribution(of_word, self.labels)
        return found

    def may_lack(self, name: str, absent: Container[str]) -> bool:
        """With `entities`, a tag such as I-X may be absent if others of the type X are not."""
        return self.entities and any(tag[2:] == name[2:] and tag not in absent for tag in self.labels if tag != OUTSIDE)

    def prediction(self, answer: Answer) -> list[str]:
        return answer["tags"]

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        example = self._example(self._words(row, tokenizer), None, tokenizer)
        if self.splitting == "segmented" and example.notes.text and HAN_CHARACTER.search(example.notes.text):
            warnings = (
                "Chinese text, which is split into characters though the training rows had words; give lists of words"
            )
            return replace(example, warnings=(warnings,))
        return example

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        words, tags = self._tagged(row, tokenizer)
        if self.soft_labels:
            return self._with_remark(self._example(words, self.occurrences(row), tokenizer), tags)
        learned = [self.labels.index(tag) for tag in self._as_learned(tags)]
        return self._with_remark(self._example(words, np.array(learned, np.int64), tokenizer), tags)

    def unlabeled_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        words = self._words(row, tokenizer)
        targets = np.eye(len(self.labels))[:1] if self.soft_labels else np.zeros(1, np.int64)
        return self._example(words, targets.repeat(len(words.words), 0), tokenizer)

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        words, tags = self._tagged(row, tokenizer)
        return self._with_remark(self._example(words, None, tokenizer), tags)

    def _with_remark(self, example: Example, tags: Sequence[str]) -> Example:
        """Return an example with a remark if there is an entity that no window holds whole."""
        spans: Sequence[Span] = example.notes.windows
        if len(spans) == 1 or not self.entities:
            return example
        found = [(entity["start"], entity["end"]) for entity in entities(example.notes.words, tags)]
        if all(any(start <= first and behind <= stop for start, stop in spans) for first, behind in found):
            return example
        return replace(example, warnings=(f"an entity that no window holds whole (task.stride {self.stride})",))

    def _tagged(self, row: Row, tokenizer: Tokenizer) -> tuple[Words, list[str]]:
        words, tags = self._words(row, tokenizer), self.target(row)
        if len(words.words) != len(tags):
            raise UserError(f"has {len(words.words)} words and {len(tags)} tags")
        return words, tags

    def _given_words(self, row: Row) -> list[str] | None:
        """Return the words of a row that is a list of words, also one spelled as text; None for raw text."""
        if not isinstance(row.get(self.tokens), str):
            with suppress(UserError):
                return row.texts(self.tokens, "words")
            return []  # reported when the row's example is made
        words = as_list(row[self.tokens])
        return words if words is not None and all(isinstance(word, str) for word in words) else None

    def _words(self, row: Row, tokenizer: Tokenizer) -> Words:
        if not isinstance(row.cell(self.tokens), str):
            return Words(row.texts(self.tokens, "words"))
        words, text = self._given_words(row), row.text(self.tokens)
        if words is not None:
            return Words(words)
        spans = split_words(text, self.splitting, self.attached, tokenizer)
        return Words([text[start:end] for start, end in spans], text, spans)

    def _example(self, given: Words, tags: np.ndarray | None, tokenizer: Tokenizer) -> Example:
        words = given.words
        limit = self.max_len - 2
        subwords = [encode_start(tokenizer, word, limit) for word in words]
        cut = sum(max(0, len(ids) - limit) for ids in subwords)  # the ends of words longer than a sample
        # A word that the normalizer removes becomes [UNK], so that later tags stay aligned.
        subwords = [ids[:limit] if len(ids) else np.array([tokenizer.unk_id]) for ids in subwords]
        lengths = [*map(len, subwords)]
        windows = _windows(lengths, limit, self.stride)
        begins = np.cumsum([0, *lengths])
        answered_in = with_most_context([(begins[start], begins[stop]) for start, stop in windows])[begins[:-1]]
        samples: list[Sample] = []
        firsts: list[np.ndarray] = []
        for number, (start, stop) in enumerate(windows):
            own = answered_in[start:stop] == number
            positions = (begins[start:stop] - begins[start])[own]
            ids = np.concatenate([np.empty(0, np.int64), *subwords[start:stop]])
            samples.append(_sample(tokenizer, ids, positions, None if tags is None else tags[start:stop][own]))
            firsts.append(positions + 1)
        return Example(tuple(samples), replace(given, firsts=firsts, windows=windows), cut, empty=not words)

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.tokens,)

    @property
    def reading(self) -> str:
        mended = "; an I tag that continues no entity of its type begins one" if self.entities else ""
        return f"A word's tag is that of the largest logit at the word's first token{mended}."

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import TokenHead

        return TokenHead(model.config, len(self.labels))

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, np.arange(layout.tokens))

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        import paddle

        labels = batch.labels["tag"]
        assert labels.positions is not None
        weights = None if batch.weights is None else batch.weights[batch.layout.sequences_of(labels.positions)]
        return self.class_loss(paddle.gather(logits, paddle.to_tensor(labels.positions)), labels.values, weights)

    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        given: Words = example.notes
        tags = [index_of(tag, self.labels) for tag in self._as_learned(self.target(row))]
        parts = [scores[positions] for scores, positions in zip(logits, given.firsts, strict=True)]
        return np.concatenate(parts), np.array(tags, np.int64)

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.soft_labels:
            each = [self.occurrences(row) for row in rows]
            divided = sum(int((own.max(1) < 1).sum()) for own in each)
            yield f"soft labels: {divided:,} of {plural(sum(map(len, each)), 'word')} are divided among several tags"
        yield from super().loss_notes(rows)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        given: Words = example.notes
        parts = [softmax(scores[positions]) for scores, positions in zip(logits, given.firsts, strict=True)]
        probabilities = np.concatenate([part.max(-1, initial=0) for part in parts])
        tags = [self.labels[index] for part in parts for index in part.argmax(-1)]
        if not self.entities:
            return {"tags": tags, "words": given.words}
        tags = as_bio(tags)
        found = [given.located(entity, probabilities) for entity in entities(given.words, tags)]
        return {"tags": tags, "entities": found, "words": given.words}

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        both = [self.target(row) for row in rows], [self.prediction(answer) for answer in answers]
        return entity_scores(*both) if self.entities else tag_scores(*both)


def _windows(lengths: Sequence[int], limit: int, stride: int) -> list[Span]:
    """Return the words [first, behind the last] of each window of a sentence, whose words have so many tokens.

    A window has as many words as fit into `limit` tokens.  It repeats as many of the one before as `stride` tokens hold
    and as leave room for the next word.
    """
    windows: list[Span] = []
    start = stop = size = 0
    while stop < len(lengths) or not windows:
        while stop < len(lengths) and size + lengths[stop] <= limit:
            size += lengths[stop]
            stop += 1
        windows.append((start, stop))
        while stop < len(lengths) and size > min(stride, limit - lengths[stop]):
            size -= lengths[start]
            start += 1
    return windows


def _sample(tokenizer: Tokenizer, ids: np.ndarray, positions: np.ndarray, tags: np.ndarray | None) -> Sample:
    """Make a sample of tokens with the tags of words, or probabilities of tags, at the positions where these begin."""
    if tags is None:
        return single(tokenizer, ids)
    if tags.ndim > 1:
        probabilities = np.full((len(ids) + 2, tags.shape[1]), np.nan)
        probabilities[positions + 1] = tags
        return single(tokenizer, ids, tag=probabilities)
    labels = np.full(len(ids), IGNORE, np.int64)
    labels[positions] = tags
    return single(tokenizer, ids, tag=labels)


def as_bio(tags: Sequence[str]) -> list[str]:
    """Convert BIO, IOB1, BIOES, BMES or BILOU tags to BIO.

    An entity begins at B-X, S-X and U-X, and at any tag after O, another type, or the last word of an entity (E-X, L-X,
    S-X, U-X).  Raises UserError for a tag of another form.
    """
    result, inside = [], ""  # the type of the entity that goes on, if any
    for tag in tags:
        if tag == OUTSIDE:
            result.append(tag)
            inside = ""
            continue
        mark, _, type_name = tag.partition("-")
        if mark not in _MARKS or not type_name:
            hint = "; numbers get their names by data.values" if is_number(tag) else ""
            raise UserError(
                f"tag '{tag}' is not O, B-TYPE or I-TYPE, nor E-, S-, M-, L- or U-TYPE; tags that spell no entities "
                f"need entities: false{hint}"
            )
        begins = mark in "BSU" or inside != type_name
        result.append(f"{'B' if begins else 'I'}-{type_name}")
        inside = "" if mark in "ESLU" else type_name
    return result


def in_scheme(tags: Sequence[str], labels: Collection[str]) -> list[str]:
    """Convert BIO tags to the scheme of `labels`, of those that `as_bio` converts; it may be BIO.

    A tag that is none of them in any scheme stays as it is.
    """
    result = []
    for tag, following in zip(tags, [*tags, OUTSIDE][1:], strict=True):
        mark, _, type_name = tag.partition("-")
        marks = _MARKS_OF[mark == "B", not following.startswith("I-")] if type_name else ""
        result.append(next((found for mark in marks if (found := f"{mark}-{type_name}") in labels), tag))
    return result


def entities(words: Sequence[str], tags: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entities of BIO tags: type, first word, past-last word, and text."""
    found: list[dict[str, Any]] = []
    for index, tag in enumerate(tags):
        if tag.startswith("B-"):
            found.append({"type": tag[2:], "start": index, "end": index + 1})
        elif tag.startswith("I-"):
            found[-1]["end"] = index + 1
    for entity in found:
        entity["text"] = joined(words[entity["start"] : entity["end"]])
    return found


def joined(words: Sequence[str]) -> str:
    """Join words with spaces, except between characters of Chinese and Japanese; Korean has spaces."""
    text = ""
    for word in words:
        text += word if not text or (_NO_SPACE.match(text[-1]) and _NO_SPACE.match(word)) else f" {word}"
    return text
