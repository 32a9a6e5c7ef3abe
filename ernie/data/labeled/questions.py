"""Extractive question answering files in the layouts of SQuAD and CMRC 2018.

A row has id, context, question and answers {text: [...], answer_start: [...]}, like such data sets on the hub.  A
question without an entry for its answers has no `answers` column.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from ernie.data.labeled.row import Fault, Row, as_value
from ernie.data.raw import Place
from ernie.errors import UserError, about


def read_questions(file: str, content: Any) -> Iterator[Row | Fault]:
    """Yield one row per question, numbered from 1.  Raises UserError for anything but passages with questions."""
    with about(file):
        for number, (context, question) in enumerate(_questions(content), 1):
            yield _row(context, question, Place(file, number))


def is_questions(content: Any) -> bool:
    """Whether a JSON document has one of these layouts."""
    if isinstance(content, Mapping):
        return isinstance(content.get("data"), list)
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "qas" in content[0]


def _questions(content: Any) -> Iterator[tuple[Any, Any]]:
    articles = content["data"] if isinstance(content, Mapping) else [{"paragraphs": content}]
    for article in articles:
        for paragraph in _list_under(article, "paragraphs"):
            for question in _list_under(paragraph, "qas"):
                yield paragraph.get("context", paragraph.get("context_text")), question


def _list_under(parent: Any, name: str) -> list[Any]:
    value = parent.get(name) if isinstance(parent, Mapping) else None
    if not isinstance(value, list):
        raise UserError(f"expected questions on passages, with a list under '{name}', found {reprlib.repr(parent)}")
    return value


def _row(context: Any, question: Any, place: Place) -> Row | Fault:
    if not isinstance(context, str) or not isinstance(question, Mapping):
        return Fault(place, f"question {place.line}: expected a question with a context of text")
    text = question.get("question", question.get("query_text"))
    if not isinstance(text, str):
        return Fault(place, f"question {place.line}: there is no text under 'question'")
    name = question.get("id", question.get("query_id", str(place.line)))
    row = Row({"id": str(name), "context": context, "question": text}, place)
    if question.get("answers") is not None:
        try:
            row["answers"] = _answers(question["answers"], context)
        except UserError as error:
            return Fault(place, f"question {place.line}: {error}")
        if question.get("is_impossible") is True and any(text.strip() for text in row["answers"]["text"]):
            return Fault(place, f"question {place.line}: has is_impossible: true, and an answer")
    return row


def _answers(value: Any, context: str) -> dict[str, list[Any]]:
    """Normalize the answers of a file to the layout of a row."""
    with about("answers"):
        found = read_answers(value)
    # CMRC's own layout has no offsets: the first occurrence is meant.
    starts = [context.find(text) if start is None or start < 0 else start for text, start in found]
    return {"text": [text for text, _ in found], "answer_start": starts}


def read_answers(value: Any) -> list[tuple[str, int | None]]:
    """Return the text of each accepted answer, and its start offset if it is given.

    `value` is a list of texts or of objects {text: ..., answer_start: ...} or, as on the hub, an object with a list of
    texts and one of start offsets.  A text may spell either, as in a CSV file.  Raises UserError for anything else.
    """
    value = as_value(value)
    if isinstance(value, Mapping):
        parts: list[Any] = [value.get("text"), value.get("answer_start") or []]
        if not all(isinstance(part, list) for part in parts) or (parts[1] and len(parts[0]) != len(parts[1])):
            raise UserError(
                "expected {text: [...], answer_start: [...]}, a list of texts and one of as many places, found "
                f"{reprlib.repr(value)}"
            )
        value = [{"text": text, "answer_start": start} for text, start in zip_longest(*parts)]
    if not isinstance(value, list):
        raise UserError(
            f"expected {{text: [...], answer_start: [...]}} or a list of such answers, found {reprlib.repr(value)}"
        )
    answers: list[tuple[str, int | None]] = []
    for answer in value:
        fields = answer if isinstance(answer, Mapping) else {"text": answer}
        text, start = fields.get("text"), fields.get("answer_start")
        if not isinstance(text, str):
            raise UserError("an answer has no text")
        if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
            raise UserError(f"answer_start: expected the number of a character, found {start!r}")
        answers.append((text, start))
    return answers


def load_json(text: str) -> Any:
    """Parse a JSON document; None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # huge numbers raise ValueError, not JSONDecodeError
        return None
