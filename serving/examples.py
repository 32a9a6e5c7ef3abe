"""Examples of a model's input, which the page offers to whoever tries it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from ernie.audio.wave import Wave
from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError, about
from inference.answer_writer import as_json
from inference.face import Face
from tasks.downstream.transcribe import Transcribe

_MOST = 50
_MOST_BYTES = 20_000_000  # of all sounds


@dataclass(frozen=True)
class Example:
    """A row: its texts, numbers and lists by column, and its sound as a WAV file if the model hears."""

    cells: dict[str, Any]
    sound: bytes | None = None


def read_examples(sources: Sequence[str], face: Face) -> list[Example]:
    """Return the rows of files that are named as those of a fine-tuning run, such as `dev.tsv[:5]`.

    Raises UserError if they cannot be read, if one of their sounds cannot, and if there are more than 50 rows or 20 MB.
    """
    if not sources:
        return []
    rows = read_split("examples", sources, RowOptions()).rows
    if len(rows) > _MOST:
        raise UserError(
            f"{', '.join(sources)}: found {len(rows)} rows, expected at most {_MOST}, as in {sources[0]}[:5]"
        )
    task = getattr(face.model, "task", None)
    examples = [_heard(task, row) if isinstance(task, Transcribe) else Example(_plain(row)) for row in rows]
    size = sum(len(example.sound or b"") for example in examples)
    if size > _MOST_BYTES:
        raise UserError(f"{', '.join(sources)}: expected at most {_MOST_BYTES:,} bytes of sound, found {size:,}")
    return examples


def _heard(task: Transcribe, row: Row) -> Example:
    with about(str(row.place)):
        wave = task.wave(row)
    return Example(_plain({column: cell for column, cell in row.items() if column != task.audio}), _as_wav(wave))


def _plain(cells: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(as_json(dict(cells))))


def _as_wav(wave: Wave) -> bytes:
    import soundfile

    file = BytesIO()
    soundfile.write(file, wave.samples, wave.rate, format="WAV", subtype="PCM_16")
    return file.getvalue()
