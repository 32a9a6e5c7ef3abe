"""The rows of a speech synthesis: texts, and how they sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from ernie.audio.wave import Wave
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about
from ernie.text.pronounce import all_pronounceable, read_dictionary, to_phonemes
from ernie.text.spoken_form import has_digits, is_unspoken, spoken_form
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import MOST_COUNTED, Example, encode_start
from tasks.downstream.synthesis.settings import SynthesizeSettings

Task = TypeVar("Task", bound=SynthesizeSettings)

_MOST_UNLEARNED = 0.1  # of a text's tokens: the voice says the others, and something like them in their place
_DIGITS = 4  # of the means over all rows


def with_means(task: Task, rows: Sequence[Row]) -> Task:
    """Return the task with the pace and the loudness of the training rows, unless they are given."""
    if task.pace and task.loudness:
        return task
    letters = samples = 0
    power = 0.0
    for row in rows:
        try:
            wave, text = task.wave(row), spoken_text(task, row)
        except UserError:
            continue
        letters += len("".join(text.split()))
        samples += len(wave.samples)
        power += float((wave.samples.astype(np.float64) ** 2).sum())
    if not letters or not power:
        return task
    pace, loudness = letters * task.step_samples / samples, math.sqrt(power / samples)
    return replace(task, pace=task.pace or _rounded(pace), loudness=task.loudness or _rounded(loudness))


def with_learned(task: Task, examples: Sequence[Example], tokenizer: Tokenizer) -> Task:
    """Return the task with the tokens that occur in the training rows, unless they are given."""
    if task.learned:
        return task
    ids = {int(i) for example in examples for sample in example.samples for i in sample.ids}
    return replace(task, learned=tuple(tokenizer.tokens[i] for i in sorted(ids - tokenizer.special_ids)))


def example(task: SynthesizeSettings, row: Row, given: Example, tokenizer: Tokenizer) -> Example:
    """See `FinetuneTask.example`; `given` is the sample of the text."""
    with about(f"column '{task.text}'"):
        warnings = check_sayable(task, row.text(task.text), given, tokenizer)
    return replace(given, warnings=(*given.warnings, *warnings))


def training_example(task: SynthesizeSettings, row: Row, given: Example, tokenizer: Tokenizer) -> Example:
    """See `FinetuneTask.training_example`; `given` is the example for evaluation."""
    wave = task.wave(row)
    (sample,) = given.samples
    if tokenizer.unk_id in sample.ids:
        raise UserError(
            f"column '{task.text}': the vocabulary lacks characters of '{spoken_text(task, row)}'; train a "
            "tokenizer on the texts, as they are or as the dictionary writes them"
        )
    if wave.seconds > task.longest:
        raise UserError(
            f"column '{task.audio}': the sound is {wave.seconds:.1f} s long, and longest is {task.longest:g}; "
            "raise it, or cut the sound where nothing is said"
        )
    sample = replace(sample, sound=partial(task.samples, row), labels={"steps": _steps(task, wave)})
    warnings = [f"sound that {remark}" for remark in wave.remarks]
    spoken = spoken_form(row.text(task.text), task.text_normalization)
    if task.dictionary and not all_pronounceable(spoken, read_dictionary(task.dictionary)):
        warnings.append("words that the dictionary lacks, which stay as they are")
    if task.text_normalization == "none" and has_digits(row.text(task.text)):
        warnings.append("digits in a text, which task.text_normalization would write as words")
    return replace(given, samples=(sample,), warnings=tuple(warnings))


def evaluation_example(task: SynthesizeSettings, row: Row, given: Example, tokenizer: Tokenizer) -> Example:
    """See `EvaluationExamples.evaluation_example`; `given` is the sample of the text."""
    if given.empty:
        raise UserError(f"column '{task.text}': there is nothing in the text that could be said")
    if given.cut:
        raise UserError(
            f"column '{task.text}': the text has {token_count(task, row, given)} tokens, and max_len is "
            f"{task.max_len}: the sound would say words that the text lacks; raise max_len, or split text and sound"
        )
    if tokenizer.unk_id in given.samples[0].ids:
        given = replace(given, warnings=("characters in a text that the vocabulary lacks, which are not spoken",))
    return given


def text_example(task: SynthesizeSettings, row: Row, tokenizer: Tokenizer) -> Example:
    """Return the sample of a text, whether the voice can say all of it or not."""
    text = spoken_text(task, row)
    ids = encode_start(tokenizer, text, task.max_len)
    cut, silent = max(0, len(ids) + 2 - task.max_len), is_unspoken("".join(text.split()))
    return Example((single(tokenizer, ids[: task.max_len - 2]),), cut=cut, empty=silent or not len(ids))


def token_count(task: SynthesizeSettings, row: Row, example: Example) -> str:
    """Return how many tokens the text of a row has, in words: of a very long one not all are counted."""
    least = "at least " if len(spoken_text(task, row)) > MOST_COUNTED else ""
    return f"{least}{example.tokens + example.cut:,}"


def check_sayable(task: SynthesizeSettings, text: str, example: Example, tokenizer: Tokenizer) -> list[str]:
    """Return what a voice may say badly in a text, in words that follow "has ".

    Raises UserError for characters that the vocabulary lacks.  Also raises it where more than a tenth of the tokens,
    mere marks not counted, are others than the voice has learned: it would say noise.
    """
    (sample,) = example.samples
    advice = "write them as words"
    if task.text_normalization == "none" and has_digits(text):
        advice += ", or let --normalize en (of `ernie speak`; task.text_normalization elsewhere) do so"
    if tokenizer.unk_id in sample.ids:
        raise UserError(f"'{text:.60}' has characters that this voice has not learned; {advice}")
    ids = [int(i) for i in sample.ids if i not in tokenizer.special_ids]
    known = set(task.learned)
    unlearned = [i for i in ids if tokenizer.tokens[i] not in known] if known else []
    if not unlearned:
        return []
    named = ", ".join(f"'{token}'" for token in dict.fromkeys(tokenizer.tokens[i] for i in unlearned))
    # A voice that was trained on texts without marks may be given a full stop: at worst it sounds odd.
    lost = [i for i in unlearned if not is_unspoken(tokenizer.decode([i]))]
    if len(lost) > _MOST_UNLEARNED * len(ids):
        raise UserError(
            f"'{text:.60}' has parts that are in no text this voice has learned from ({named:.60}); {advice}"
        )
    return [f"parts that are in no text this voice has learned from ({named:.60})"]


def spoken_text(task: SynthesizeSettings, row: Row) -> str:
    """Return the text of a row in the words, or the phonemes, that are said."""
    text = spoken_form(row.text(task.text), task.text_normalization)
    return to_phonemes(text, read_dictionary(task.dictionary)) if task.dictionary else text


def _steps(task: SynthesizeSettings, wave: Wave) -> int:
    return task.padded_length(len(wave.samples)) // task.step_samples


def _rounded(value: float) -> float:
    """Round to a few digits, so that the order of the rows does not matter."""
    return float(f"{value:.{_DIGITS}g}")
