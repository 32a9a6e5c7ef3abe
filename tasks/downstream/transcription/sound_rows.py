"""The rows of a transcription: sounds, and what is said in them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ernie.audio.lengths import min_vectors, vector_count
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.blank import is_blank
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Example, encode_start
from tasks.downstream.transcription.settings import TranscribeSettings


def target(task: TranscribeSettings, row: Row) -> str:
    """Return the transcript of a row, with single spaces; empty where nothing is said."""
    text = " ".join(row.text(task.label).split())
    return "" if is_blank(text) else text


def example(task: TranscribeSettings, row: Row, tokenizer: Tokenizer) -> Example:
    """See `FinetuneTask.example`."""
    given = _whole_example(task, row)
    # Chunks with periodic positions have no maximum length.
    if task.encoder == "whole" or task.decoder == "global":
        _check_length(task, row, given, ", or with encoder: chunks and decoder: ctc or attention, for any length")
    return given


def training_example(task: TranscribeSettings, row: Row, tokenizer: Tokenizer) -> Example:
    """See `FinetuneTask.training_example`."""
    text = task.target(row)
    if not text:
        raise UserError(f"column '{task.label}': the transcript is empty; rows where nothing is said can be tested on")
    given = _whole_example(task, row)
    _check_length(task, row, given)
    ids = encode_start(tokenizer, text, given.tokens)
    if tokenizer.unk_id in ids:
        raise UserError(
            f"column '{task.label}': the vocabulary lacks characters of '{text}'; train a tokenizer on the "
            "transcripts, or leave them out"
        )
    (sample,) = given.samples
    if min_vectors(ids) > len(sample):
        raise UserError(
            f"column '{task.label}': {len(ids)} tokens need {min_vectors(ids)} vectors, and the sound gives "
            f"{len(sample)}; it is shorter than what is said in it"
        )
    return replace(given, samples=(replace(sample, decoder_ids=frame(tokenizer, ids)[0]),))


def evaluation_example(task: TranscribeSettings, row: Row, tokenizer: Tokenizer) -> Example:
    """See `EvaluationExamples.evaluation_example`."""
    given, text = task.example(row, tokenizer), task.target(row)
    ids, warnings = encode_start(tokenizer, text, given.tokens), list(given.warnings)
    if not text:
        warnings.append("an empty transcript, where each word that is written counts as inserted")
    if tokenizer.unk_id in ids:
        warnings.append("characters in a transcript that the vocabulary lacks, which count as errors")
    if min_vectors(ids) > len(given.samples[0]):
        warnings.append("a sound that is shorter than what its transcript says")
    return replace(given, warnings=tuple(warnings))


def _whole_example(task: TranscribeSettings, row: Row) -> Example:
    """Return the sample of a sound of any length."""
    wave = task.wave(row)
    count = vector_count(task.features.frames(len(wave.samples)))
    if not count:
        raise UserError(
            f"column '{task.audio}': the sound has {plural(len(wave.samples), 'sample')}, fewer than one window, "
            f"{task.features.window_samples}"
        )
    zeros = np.zeros(count, np.int64)
    sample = Sample(zeros, zeros, sound=partial(task.samples, row))
    warnings = tuple(f"sound that {remark}" for remark in wave.remarks)
    return Example((sample,), warnings=warnings)


def _check_length(task: TranscribeSettings, row: Row, given: Example, otherwise: str = "") -> None:
    """Raise UserError for a sound of more than `max_len` vectors; `otherwise` ends the advice."""
    if given.tokens > task.max_len:
        raise UserError(
            f"column '{task.audio}': the sound is {task.wave(row).seconds:.1f} s long, {given.tokens:,} vectors, "
            f"and max_len is {task.max_len}; cut the sound where nothing is said, or train with a larger "
            f"max_len{otherwise}"
        )
