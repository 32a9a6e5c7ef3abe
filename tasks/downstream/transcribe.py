"""Transcription of speech by connectionist temporal classification (CTC), optionally with an attention decoder.

Graves et al., 2006; Amodei et al., 2016, "Deep Speech 2" (arXiv 1512.02595).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.audio.augment import AugmentConfig, change_volume, mask_spectrum, perturb_speed
from ernie.audio.features import FeatureStream, features
from ernie.audio.lengths import STRIDE, min_vectors, vector_count
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.config import MOST_LAYERS, check_least, check_most
from ernie.data import seeded_rng
from ernie.data.batch import Frames, Layout, Packed
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.decode.ctc import Ranked, Spike, greedy
from ernie.decode.edges import placed
from ernie.decode.language import RankedDecoding
from ernie.decode.segmentation import Segmentation
from ernie.decode.words import in_lines, timed_words
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.renames import formerly
from ernie.text.blank import is_blank
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import (
    Answer,
    Example,
    Metric,
    check_max_len,
    encode_start,
    finetune_task,
    rounded,
)
from tasks.downstream.changes import with_decoding
from tasks.downstream.hooks import DecodingConditions, EvaluationExamples, MetricSettings, OwnPositions, SizedHead
from tasks.downstream.metrics import cer, wer
from tasks.downstream.sound import SoundTask

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.recognizer import Pauses, Recognized, TokenRecognizer
    from ernie.decode.truncated_attention import SegmentDecoder
    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@dataclass(frozen=True, kw_only=True)
class ScoringConfig:
    """What counts in word and character error rates: `case`, and `punctuation`, see `metrics.wer`."""

    case: bool = False
    punctuation: bool = True


@finetune_task("transcribe")
@dataclass(frozen=True, kw_only=True)
class Transcribe(
    SoundTask, RankedDecoding, EvaluationExamples, OwnPositions, SizedHead, DecodingConditions, MetricSettings
):
    """The transcript, in the column `label`, of the audio in the column `audio`.

    The encoder reads at most `max_len` vectors, one per four feature frames.  `augment` configures the augmentation of
    the training sounds, sampled anew in every epoch.  `encoder` says what a vector sees of its sound: the `whole`, or
    `chunks`, its own chunk of `chunk_size` vectors and `left_chunks` before it, for streaming recognition.  With
    `recurrent`, layers of gated units, whose state covers all chunks before, replace the encoder's.  With `n_best`
    answers have so many alternatives of a whole sound.  With `decoder: attention` CTC only cuts the sound into
    segments, and a decoder of `layers` generates the tokens of each (SMLTA, see `ernie.decode.truncated_attention`),
    seeing `look_back` vectors before a segment and `look_ahead` after it; none is longer than `longest`.  It sees the
    last `history` tokens, segment ends included, and each segment is encoded with the `abstractions` of so many tokens
    before it, if any (SMLTA2).  `decoder: global` attends to the whole sound once it is over.  `ctc_weight` is the
    weight of CTC in the loss.  `scoring` says what counts in the error rates.  In streaming recognition a line of text
    ends after `pause` seconds in which nothing is said, 0 for never; once a line has lasted `longest_line` seconds,
    after a quarter of that.
    """

    label: str = "text"
    max_len: int = 512
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    encoder: Literal["whole", "chunks"] = "whole"
    chunk_size: int = field(default=8, metadata=formerly("chunk"))
    left_chunks: int = field(default=4, metadata=formerly("before"))
    recurrent: RecurrentConfig | None = None
    n_best: int = 1
    decoder: Literal["ctc", "attention", "global"] = "ctc"
    layers: int = 2
    look_back: int = 8
    look_ahead: int = 3
    longest: int = 50
    history: int = 4
    abstractions: int = 0
    ctc_weight: float = field(default=0.5, metadata=formerly("ctc_share"))
    pause: float = 0.0
    longest_line: float = 20.0
    scoring: ScoringConfig = field(default_factory=ScoringConfig)

    face: ClassVar = "transcribe"
    known_metrics: ClassVar = {"wer": wer, "cer": cer}
    default_metrics: ClassVar = 2
    files: ClassVar = ("language_model", "hot_words")
    head_fields: ClassVar = (*SoundTask.head_fields, "recurrent", "decoder", "layers", "abstractions")
    decoding_fields: ClassVar = (
        *(
            "beam",
            "language_model",
            "language_model_unit",
            "alpha",
            "beta",
            "unknown",
            "hot_words",
            "hot_weight",
            "n_best",
        ),
        *("pause", "longest_line", "scoring", "channel"),
    )
    column_fields: ClassVar = ("audio", "label")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ranking()
        check_least(self, chunk_size=1, left_chunks=0, layers=1, look_back=0, look_ahead=0, longest=1, history=1)
        check_least(self, abstractions=0)
        check_most(self, layers=MOST_LAYERS)
        if self.encoder == "chunks" and self.features.normalize == "utterance":
            raise UserError(
                "features.normalize: an utterance's mean is known at its end only, and chunks are processed before it; "
                "choose global, streaming or none"
            )
        if not 0 < self.ctc_weight < 1:
            raise UserError(f"ctc_weight: expected a number between 0 and 1, found {self.ctc_weight:g}")
        if not 1 <= self.n_best <= self.beam:
            raise UserError(f"n_best: expected 1 to {self.beam}, as many as beam keeps, found {self.n_best}")
        if self.n_best > 1 and (self.decoder != "ctc" or self.pause):
            raise UserError("n_best: alternatives are of whole sounds by decoder: ctc, without pause")
        for name in ("pause", "longest_line"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: expected a number of seconds, found {getattr(self, name):g}")
        if self.pause and not self.hears_chunks:
            raise UserError(
                "pause: lines end at pauses where a model hears chunks: encoder: chunks, decoder: ctc or attention"
            )
        if self.decoder == "global" and self.beam > 1:
            raise UserError("beam: decoder: global keeps one hypothesis; choose decoder: ctc or attention, or beam: 1")
        if self.abstractions and self.decoder != "attention":
            raise UserError("abstractions: they are made of segments, which decoder: attention reads")

    def decoding_with(self, given: Mapping[str, Any], tokenizer: Tokenizer) -> Transcribe:
        if given.get("beam") == 1 and "language_model" not in given:
            given = {"hot_words": None, "n_best": 1, **given, "language_model": None}  # which rank several hypotheses
        changed = with_decoding(self, given, tokenizer)
        if changed.beam == 1 and given.keys() & {"alpha", "beta"}:
            raise UserError("alpha and beta rank hypotheses; keep several, such as beam: 16")
        if changed.language_model is None and "alpha" in given:
            raise UserError("alpha weights a language model, and there is none")
        return changed

    @property
    def period(self) -> int | None:
        """The number of vectors after which positions start again, if sound is processed in chunks.

        Twice the attention span: no two vectors that see each other have the same position.
        """
        return 2 * (self.left_chunks + 1) * self.chunk_size if self.encoder == "chunks" else None

    @property
    def vector_seconds(self) -> float:
        """The time between two vectors in seconds."""
        return STRIDE * self.features.hop_samples / self.features.sample_rate

    def seconds(self, frame: int) -> float:
        """Return the time of the middle of a frame in a sound, in seconds."""
        samples = frame * self.features.hop_samples + self.features.window_samples / 2
        return round(samples / self.features.sample_rate, 3)

    @property
    def token_window(self) -> int | None:
        """The number of preceding tokens that the decoder sees: `history` for segments, None for all."""
        return self.history if self.decoder == "attention" else None

    def check_positions(self, positions: int, encoder: str) -> None:
        if self.period is None:
            check_max_len(self, positions, encoder)
        elif self.period > positions:
            raise UserError(
                f"task.chunk_size: chunks of {self.chunk_size} vectors and {self.left_chunks} before them take "
                f"{self.period} positions, twice as many as are seen, and {encoder} has {positions}"
            )
        if self.token_window is not None and 2 * self.token_window > positions:
            raise UserError(
                f"task.history: {self.token_window} tokens take {2 * self.token_window} positions, twice as many as "
                f"are remembered, and {encoder} has {positions}"
            )
        if self.decoder == "global" and self.max_len >= positions:
            raise UserError(
                f"task.max_len: with decoder: global as many tokens are written, and a mark before them takes a "
                f"position; {encoder} has {positions}, so that at most {positions - 1} are possible"
            )

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        begin, end, others = _special_tokens(tokenizer)
        self.check_files(tokenizer, (begin, end, *others))

    def remarks_on_texts(self, rows: Sequence[Row], tokenizer: Tokenizer) -> list[str]:
        return self.remarks_on_language([self.target(row) for row in rows], tokenizer)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self._whole_example(row)
        # Chunks with periodic positions have no maximum length.
        if self.encoder == "whole" or self.decoder == "global":
            self._check_length(row, given, ", or with encoder: chunks and decoder: ctc or attention, for any length")
        return given

    def _whole_example(self, row: Row) -> Example:
        """Return the sample of a sound of any length."""
        wave = self.wave(row)
        count = vector_count(self.features.frames(len(wave.samples)))
        if not count:
            raise UserError(
                f"column '{self.audio}': the sound has {plural(len(wave.samples), 'sample')}, fewer than one window, "
                f"{self.features.window_samples}"
            )
        zeros = np.zeros(count, np.int64)
        sample = Sample(zeros, zeros, sound=partial(self.samples, row))
        warnings = tuple(f"sound that {remark}" for remark in wave.remarks)
        return Example((sample,), warnings=warnings)

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        if not self.target(row):
            raise UserError(
                f"column '{self.label}': the transcript is empty; rows where nothing is said can be tested on"
            )
        given = self._whole_example(row)
        self._check_length(row, given)
        ids = encode_start(tokenizer, self.target(row), given.tokens)
        if tokenizer.unk_id in ids:
            raise UserError(
                f"column '{self.label}': the vocabulary lacks characters of '{self.target(row)}'; train a tokenizer on "
                "the transcripts, or leave them out"
            )
        (sample,) = given.samples
        if min_vectors(ids) > len(sample):
            raise UserError(
                f"column '{self.label}': {len(ids)} tokens need {min_vectors(ids)} vectors, and the sound gives "
                f"{len(sample)}; it is shorter than what is said in it"
            )
        return replace(given, samples=(replace(sample, decoder_ids=frame(tokenizer, ids)[0]),))

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given, target = self.example(row, tokenizer), self.target(row)
        ids, warnings = encode_start(tokenizer, target, given.tokens), list(given.warnings)
        if not target:
            warnings.append("an empty transcript, where each word that is written counts as inserted")
        if tokenizer.unk_id in ids:
            warnings.append("characters in a transcript that the vocabulary lacks, which count as errors")
        if min_vectors(ids) > len(given.samples[0]):
            warnings.append("a sound that is shorter than what its transcript says")
        return replace(given, warnings=tuple(warnings))

    def _check_length(self, row: Row, given: Example, otherwise: str = "") -> None:
        """Raise UserError for a sound of more than `max_len` vectors; `otherwise` ends the advice."""
        if given.tokens > self.max_len:
            raise UserError(
                f"column '{self.audio}': the sound is {self.wave(row).seconds:.1f} s long, {given.tokens:,} vectors, "
                f"and max_len is {self.max_len}; cut the sound where nothing is said, or train with a larger "
                f"max_len{otherwise}"
            )

    def target(self, row: Row) -> str:
        text = " ".join(row.text(self.label).split())
        return "" if is_blank(text) else text

    def metric(self, name: str) -> Metric:
        measure: Callable[..., float] = self.known_metrics[name]
        return partial(measure, case=self.scoring.case, punctuation=self.scoring.punctuation)

    def prediction(self, answer: Answer) -> str:
        return answer["transcript"]

    def least_weights(self, width: int) -> int:
        written = 0 if self.decoder == "ctc" else 8 * width**2 * self.layers
        return written + (0 if self.recurrent is None else self.recurrent.least_weights)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.inference import tokenizer_of
        from ernie.model.recurrent_encoder import RecurrentEncoder
        from ernie.model.speech import SpeechHead

        layers = 0 if self.decoder == "ctc" else self.layers
        recurrent = None
        if self.recurrent is not None:
            chunk = self.chunk_size if self.encoder == "chunks" else None
            recurrent = RecurrentEncoder(model.config.hidden_size, self.recurrent, chunk)
        blank = tokenizer_of(model).pad_id
        width = self.features.features
        return SpeechHead(model, width, blank, self.period, layers, self.token_window, recurrent, self.abstractions)

    def augmented(self, batch: Packed, training: bool) -> Packed:
        """Return the batch with its features; in training each sound is augmented, seeded by its name and epoch."""
        features_FM = []
        sounds = list(batch.sounds)
        generators = [seeded_rng.generator(0, "sound", *name.tolist()) for name in batch.samples]
        if training:
            triples = zip(sounds, _labels(batch), generators, strict=True)
            sounds = [self._perturbed(sound, labels, rng) for sound, labels, rng in triples]
        for sound, rng in zip(sounds, generators, strict=True):
            sound_FM = features(self.features, sound, self.statistics)
            if training:
                mean = sound_FM.mean(0) if self.features.normalize == "none" else 0.0
                sound_FM = mask_spectrum(sound_FM, self.augment, rng, mean)
            features_FM.append(sound_FM)
        frames = Frames(np.concatenate(features_FM), Layout.of_lengths([len(own_FM) for own_FM in features_FM]))
        return replace(
            batch, frames=frames, layout=Layout.of_lengths([vector_count(len(own_FM)) for own_FM in features_FM])
        )

    def _perturbed(self, sound: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Perturb the volume of a sound, and its speed unless it would become too short for its labels, or too long."""
        changed = perturb_speed(sound, self.features.sample_rate, self.augment, rng)
        count = vector_count(self.features.frames(len(changed)))
        kept = changed if min_vectors(labels) <= count <= self.max_len else sound
        return change_volume(kept, self.augment, rng)

    def mask(self, layout: Layout) -> Mask | None:
        """Return the attention mask of the encoder."""
        from ernie.kernels.mask import Mask

        return Mask.chunk(layout, self.chunk_size, self.left_chunks) if self.encoder == "chunks" else None

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        period = head.frontend.period if head.training else None
        x_TD, layout = head.frontend(batch.frames, _shifts(batch, period) if period else 0)
        if head.recurrent is not None:
            return head.recurrent(x_TD, layout)
        return ernie.encoder(x_TD, layout, mask=self.mask(layout))

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.speech import ctc_loss

        labels = _labels(batch)
        label_layout = Layout.of_lengths([len(own) for own in labels])
        ctc = ctc_loss(head(hidden_TD), batch.layout, np.concatenate(labels), label_layout, head.blank)
        ctc = replace(ctc, count=batch.targets)  # with the end of each sound
        if self.decoder == "ctc":
            return ctc
        from ernie.decode.global_attention import global_attention_loss
        from ernie.decode.truncated_attention import attention_loss

        assert batch.decoder_tokens is not None
        if self.decoder == "global":
            attention = global_attention_loss(head.writer, hidden_TD, batch.layout, batch.decoder_tokens)
            return self._with_attention(ctc, attention)
        begin, end = batch.decoder_tokens.ids[0], batch.decoder_tokens.next[batch.decoder_tokens.layout.offsets[1] - 1]
        shifts = _shifts(batch, 2 * self.history)
        attention = attention_loss(
            head, hidden_TD, batch.layout, labels, self.segmentation, int(begin), int(end), shifts
        )
        return self._with_attention(ctc, attention)

    def _with_attention(self, ctc: Loss, attention: Loss) -> Loss:
        return replace(ctc, total=self.ctc_weight * ctc.total + (1 - self.ctc_weight) * attention.total)

    @property
    def segmentation(self) -> Segmentation:
        """The segmentation of the sound for the attention decoder."""
        return Segmentation(self.look_back, self.look_ahead, self.longest)

    def segment_decoder(self, head: Any, tokenizer: Tokenizer) -> SegmentDecoder | None:
        """Return the decoder of segments; None for other decoders."""
        from ernie.decode.truncated_attention import SegmentDecoder

        if self.decoder != "attention":
            return None
        beam = self.beam_search(tokenizer, head.blank) if self.beam > 1 else None
        return SegmentDecoder(head, self.segmentation, *_special_tokens(tokenizer), beam)

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.data.batch import pack
        from ernie.model.inference import tokenizer_of

        tokenizer, answers = tokenizer_of(ernie), []
        if self.hears_chunks:
            # As streams are: another order of the same sums would change a word now and then.
            sounds = pack([example.samples[0] for example in examples]).sounds
            recognized = self.recognizer(ernie, head).recognize(sounds)
        else:
            recognized = self._recognize_whole(ernie, head, examples, task_id)
        for own in recognized:
            answers.append(self.answer_of(own, tokenizer.decode))
        return answers

    def answer_of(self, recognized: Recognized, decode: Callable[[Sequence[int]], str]) -> Answer:
        """Return the answer with what was recognized: the transcript, and the times and confidences of its words."""
        text, words = timed_words(recognized.spikes, recognized.end, in_lines(decode))
        answer: Answer = {
            "transcript": text.strip(),
            "seconds": [self.seconds(word.begin) for word in words],
            "ends": [self.seconds(word.end) for word in words],
            "confidences": [rounded(word.confidence) for word in words],
        }
        if self.n_best > 1:
            scores: dict[str, float] = {}  # the highest: several hypotheses may write the same text
            for tokens, score in recognized.alternatives:
                scores.setdefault(decode(tokens).strip(), score)
            ranked = list(scores.items())[: self.n_best]
            answer["alternatives"] = [{"transcript": other, "score": rounded(score)} for other, score in ranked]
        return answer

    @property
    def hears_chunks(self) -> bool:
        """Whether a model of this task can transcribe while the speaker is still talking."""
        return self.encoder == "chunks" and self.decoder != "global"

    def _recognize_whole(
        self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int
    ) -> list[Recognized]:
        """Return what is said in each sound, by a model that reads whole sounds."""
        from ernie.data.batch import pack
        from ernie.decode.recognizer import Recognized
        from ernie.kernels.precision import to_numpy
        from ernie.model.inference import finite, tokenizer_of

        tokenizer = tokenizer_of(ernie)
        decode = self._token_decoder(tokenizer, head)
        batch = self.augmented(pack([example.samples[0] for example in examples]), training=False)
        hidden_TD = self.encode(ernie, head, batch, task_id)
        logits_TV = finite(to_numpy(head(hidden_TD)))
        logits_TV[:, _excluded_from_ctc(tokenizer)] = -np.inf
        assert batch.frames is not None
        sounds = np.split(batch.frames.features, batch.frames.layout.offsets[1:-1])
        loudness, recognized = FeatureStream(self.features, self.statistics).loudness, []
        for frames_FM, (start, stop) in zip(sounds, pairwise(batch.layout.offsets.tolist()), strict=True):
            spikes, alternatives = decode(logits_TV[start:stop], hidden_TD[start:stop])
            spikes, end = placed(spikes, loudness(frames_FM))
            recognized.append(Recognized(spikes, end, alternatives))
        return recognized

    def _token_decoder(
        self, tokenizer: Tokenizer, head: Any
    ) -> Callable[[np.ndarray, Tensor], tuple[list[Spike], Ranked]]:
        """Return a function from scores (T, V) and vectors (T, D) to the decoded tokens, and others by a beam."""
        from ernie.decode.global_attention import UtteranceDecoder

        segment_decoder, blank = self.segment_decoder(head, tokenizer), head.blank
        if self.decoder == "global":
            utterance_decoder = UtteranceDecoder(head.writer, blank, *_special_tokens(tokenizer))
            return lambda scores_TV, hidden_TD: (utterance_decoder.decode(scores_TV, hidden_TD), [])
        beam = self.beam_search(tokenizer, blank)

        def decode(scores_TV: np.ndarray, hidden_TD: Tensor) -> tuple[list[Spike], Ranked]:
            if self.beam > 1 and segment_decoder is None:
                return beam.recognize(scores_TV)
            spikes = greedy(scores_TV, blank)
            if segment_decoder is not None:
                spikes = segment_decoder.decode(hidden_TD, [spike.vector for spike in spikes])
            return spikes, []

        return decode

    def recognizer(self, ernie: ErnieModel, head: Any) -> TokenRecognizer:
        """Return a recognizer of sound streams, in the chunks of training."""
        from ernie.decode.recognizer import TokenRecognizer
        from ernie.model.inference import tokenizer_of

        if self.decoder == "global":
            raise UserError(
                "decoder: global looks at whole sounds; to transcribe while one speaks, fine-tune with task.decoder: "
                "ctc or attention"
            )
        tokenizer = tokenizer_of(ernie)
        return TokenRecognizer(
            ernie,
            head,
            self.features,
            self.statistics,
            chunk=self.chunk_size,
            before=self.left_chunks,
            decoder=self.segment_decoder(head, tokenizer),
            beam=self.beam_search(tokenizer, head.blank) if self.beam > 1 and self.decoder == "ctc" else None,
            never=_excluded_from_ctc(tokenizer),
            pauses=self._pauses,
        )

    @property
    def _pauses(self) -> Pauses | None:
        from ernie.decode.recognizer import Pauses

        if not self.pause:
            return None
        return Pauses(*(max(1, round(seconds / self.vector_seconds)) for seconds in (self.pause, self.longest_line)))


def _labels(batch: Packed) -> list[np.ndarray]:
    """Return the labels of each sound: the decoder's tokens without the one it begins with."""
    assert batch.decoder_tokens is not None
    return [ids[1:] for ids in np.split(batch.decoder_tokens.ids, batch.decoder_tokens.layout.offsets[1:-1])]


def _special_tokens(tokenizer: Tokenizer) -> tuple[int, int, tuple[int, ...]]:
    """Return the token that a decoder begins with, the one it ends with, and those it never generates."""
    return tokenizer.cls_id, tokenizer.sep_id, (tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id)


def _excluded_from_ctc(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that CTC never predicts: no training transcript contains them."""
    begin, end, others = _special_tokens(tokenizer)
    return [token for token in (begin, end, *others) if token != tokenizer.pad_id]  # which is the blank


def _shifts(batch: Packed, period: int) -> np.ndarray:
    """Return the first position of each sound, (N,), random by its name, so that positions do not reveal lengths."""
    return np.array([seeded_rng.generator(0, "shift", *name.tolist()).integers(period) for name in batch.samples])
