"""The answers of a transcription: how a model's output becomes text with times, of whole sounds and of streams.

Legend: T vectors, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.audio.features import FeatureStream
from ernie.decode.ctc import Ranked, Spike, greedy
from ernie.decode.edges import placed
from ernie.decode.timed_words import in_lines, timed_words
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, rounded
from tasks.downstream.transcription.settings import TranscribeSettings

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.decode.recognizer import Pauses, Recognized, TokenRecognizer
    from ernie.decode.truncated_attention import SegmentDecoder
    from ernie.model.ernie import ErnieModel


def answer_of(task: TranscribeSettings, recognized: Recognized, decode: Callable[[Sequence[int]], str]) -> Answer:
    """Return the answer with what was recognized: the transcript, and the times and confidences of its words."""
    text, words = timed_words(recognized.spikes, recognized.end, in_lines(decode))
    answer: Answer = {
        "transcript": text.strip(),
        "seconds": [task.seconds(word.begin) for word in words],
        "ends": [task.seconds(word.end) for word in words],
        "confidences": [rounded(word.confidence) for word in words],
    }
    if task.n_best > 1:
        scores: dict[str, float] = {}  # the highest: several hypotheses may write the same text
        for tokens, score in recognized.alternatives:
            scores.setdefault(decode(tokens).strip(), score)
        ranked = list(scores.items())[: task.n_best]
        answer["alternatives"] = [{"transcript": other, "score": rounded(score)} for other, score in ranked]
    return answer


def recognizer(task: TranscribeSettings, ernie: ErnieModel, head: Any) -> TokenRecognizer:
    """Return a recognizer of sound streams, in the chunks of training.

    Raises UserError for a model that attends to whole sounds.
    """
    from ernie.decode.recognizer import TokenRecognizer
    from ernie.model.inference import tokenizer_of

    if task.decoder == "global":
        raise UserError(
            "decoder: global looks at whole sounds; to transcribe while one speaks, fine-tune with task.decoder: "
            "ctc or attention"
        )
    tokenizer = tokenizer_of(ernie)
    return TokenRecognizer(
        ernie,
        head,
        task.features,
        task.statistics,
        chunk=task.chunk_size,
        before=task.left_chunks,
        decoder=_segment_decoder(task, head, tokenizer),
        beam=task.beam_search(tokenizer, head.blank) if task.beam > 1 and task.decoder == "ctc" else None,
        never=_excluded_from_ctc(tokenizer),
        pauses=_pauses(task),
    )


def recognize_whole(
    task: TranscribeSettings, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int
) -> list[Recognized]:
    """Return what is said in each sound, by a model that reads whole sounds."""
    from ernie.data.batch import pack
    from ernie.decode.recognizer import Recognized
    from ernie.kernels.precision import to_numpy
    from ernie.model.inference import finite, tokenizer_of

    tokenizer = tokenizer_of(ernie)
    decode = _token_decoder(task, tokenizer, head)
    batch = task.augmented(pack([example.samples[0] for example in examples]), training=False)
    hidden_TD = task.encode(ernie, head, batch, task_id)
    logits_TV = finite(to_numpy(head(hidden_TD)))
    logits_TV[:, _excluded_from_ctc(tokenizer)] = -np.inf
    assert batch.frames is not None
    sounds = np.split(batch.frames.features, batch.frames.layout.offsets[1:-1])
    loudness, recognized = FeatureStream(task.features, task.statistics).loudness, []
    for frames_FM, (start, stop) in zip(sounds, pairwise(batch.layout.offsets.tolist()), strict=True):
        spikes, alternatives = decode(logits_TV[start:stop], hidden_TD[start:stop])
        spikes, end = placed(spikes, loudness(frames_FM))
        recognized.append(Recognized(spikes, end, alternatives))
    return recognized


def _token_decoder(
    task: TranscribeSettings, tokenizer: Tokenizer, head: Any
) -> Callable[[np.ndarray, Tensor], tuple[list[Spike], Ranked]]:
    """Return a function from scores (T, V) and vectors (T, D) to the decoded tokens, and others by a beam."""
    from ernie.decode.global_attention import UtteranceDecoder

    by_segments, blank = _segment_decoder(task, head, tokenizer), head.blank
    if task.decoder == "global":
        special = special_tokens(tokenizer)
        return UtteranceDecoder(head.writer, blank, *special, task.beam, task.beam_ctc_weight, task.n_best).decode
    beam = task.beam_search(tokenizer, blank)

    def decode(scores_TV: np.ndarray, hidden_TD: Tensor) -> tuple[list[Spike], Ranked]:
        if task.beam > 1 and by_segments is None:
            return beam.recognize(scores_TV)
        spikes = greedy(scores_TV, blank)
        if by_segments is not None:
            spikes = by_segments.decode(hidden_TD, [spike.vector for spike in spikes])
        return spikes, []

    return decode


def _segment_decoder(task: TranscribeSettings, head: Any, tokenizer: Tokenizer) -> SegmentDecoder | None:
    """Return the decoder of segments; None for other decoders."""
    from ernie.decode.truncated_attention import SegmentDecoder

    if task.decoder != "attention":
        return None
    beam = task.beam_search(tokenizer, head.blank) if task.beam > 1 else None
    return SegmentDecoder(head, task.segmentation, *special_tokens(tokenizer), beam)


def _pauses(task: TranscribeSettings) -> Pauses | None:
    """Return the pauses at which lines end, in vectors; None for none."""
    from ernie.decode.recognizer import Pauses

    if not task.pause:
        return None
    return Pauses(*(max(1, round(seconds / task.vector_seconds)) for seconds in (task.pause, task.longest_line)))


def special_tokens(tokenizer: Tokenizer) -> tuple[int, int, tuple[int, ...]]:
    """Return the token that a decoder begins with, the one it ends with, and those it never generates."""
    return tokenizer.cls_id, tokenizer.sep_id, (tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id)


def _excluded_from_ctc(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that CTC never predicts: no training transcript contains them."""
    begin, end, others = special_tokens(tokenizer)
    return [token for token in (begin, end, *others) if token != tokenizer.pad_id]  # the blank, which CTC does predict
