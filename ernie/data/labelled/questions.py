"""Questions on passages: files in SQuAD's layout and in that of CMRC 2018.

A row has id, context, question and answers {text: [...], answer_start: [...]}, as such data sets have on the hub.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from ernie.data.labelled.row import Fault, Row
from ernie.data.raw import Place
from ernie.errors import UserError, about


def read_questions(file: str, content: Any) -> Iterator[Row | Fault]:
    """A row a question, numbered from 1.  Raises UserError where there is something else than passages."""
    with about(file):
        for number, (context, question) in enumerate(_questions(content), 1):
            yield _squad(context, question, Place(file, number))


def is_questions(content: Any) -> bool:
    """Whether a JSON document has one of the layouts."""
    if isinstance(content, Mapping):
        return isinstance(content.get("data"), list)
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "qas" in content[0]


def _questions(content: Any) -> Iterator[tuple[Any, Any]]:
    articles = content["data"] if isinstance(content, Mapping) else [{"paragraphs": content}]
    for article in articles:
        for paragraph in _listed(article, "paragraphs"):
            for question in _listed(paragraph, "qas"):
                yield paragraph.get("context", paragraph.get("context_text")), question


def _listed(parent: Any, name: str) -> list[Any]:
    found = parent.get(name) if isinstance(parent, Mapping) else None
    if not isinstance(found, list):
        raise UserError(f"expected questions on passages, with a list under '{name}', found {reprlib.repr(parent)}")
    return found


def _squad(context: Any, question: Any, place: Place) -> Row | Fault:
    if not isinstance(context, str) or not isinstance(question, Mapping):
        return Fault(place, f"question {place.line}: expected a question with a context of text")
    text = question.get("question", question.get("query_text"))
    if not isinstance(text, str):
        return Fault(place, f"question {place.line}: there is no text under 'question'")
    texts, starts = [], []
    for answer in question.get("answers") or []:
        given = answer if isinstance(answer, Mapping) else {"text": answer}
        found = given.get("text")
        if not isinstance(found, str):
            return Fault(place, f"question {place.line}: an answer has no text")
        texts.append(found)
        start = given.get("answer_start")
        # CMRC's own layout names no place: the first occurrence is meant.
        starts.append(start if isinstance(start, int) and start >= 0 else context.find(found))
    name = question.get("id", question.get("query_id", str(place.line)))
    answers = {"text": texts, "answer_start": starts}
    return Row({"id": str(name), "context": context, "question": text, "answers": answers}, place)


def load_json(text: str) -> Any:
    """A JSON document, or None."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None
