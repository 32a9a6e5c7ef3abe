"""The settings of a transcription, and what they mean for a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal

from ernie.audio.augment import AugmentConfig
from ernie.audio.lengths import STRIDE
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.config import MOST_LAYERS, check_least, check_most
from ernie.data.labeled.row import Row
from ernie.decode.language import RankedDecoding
from ernie.decode.segmentation import Segmentation
from ernie.errors import UserError
from ernie.renames import formerly
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import FinetuneTask, Metric, check_max_len
from tasks.downstream.changes import with_decoding
from tasks.downstream.hooks import DecodingConditions, MetricSettings, OwnPositions, SizedHead
from tasks.downstream.metrics import cer, deletions, insertions, substitutions, wer
from tasks.downstream.sound import SoundTask

_MOST_CONVOLVED = 255  # vectors, ten seconds


@dataclass(frozen=True, kw_only=True)
class ScoringConfig:
    """What counts in word and character error rates: `case`, and `punctuation`, see `metrics.wer`."""

    case: bool = False
    punctuation: bool = True


@dataclass(frozen=True, kw_only=True)
class TranscribeSettings(SoundTask, RankedDecoding, OwnPositions, SizedHead, DecodingConditions, MetricSettings):
    """What a transcription is set to.

    `label` is the column of transcripts.  The encoder reads at most `max_len` vectors, one for each four feature
    frames.  `augment` configures the augmentation of the training sounds, which is drawn anew in every epoch.

    `encoder` says what a vector sees of its sound: the `whole`, or `chunks`.  A chunk of `chunk_size` vectors sees
    itself and `left_chunks` before it, as streaming recognition needs.  `recurrent` replaces the encoder's layers by
    layers of gated units, whose state covers all chunks before.  With a `convolution` each layer is followed by one
    over so many vectors, an odd number, as in a Conformer; it sees no more than the layer does.

    `decoder` says how text is found.  With `ctc` the encoder's vectors alone decide.  With `attention` CTC only cuts
    the sound into segments, and a decoder of `layers` generates the tokens of each segment (SMLTA, see
    `ernie.decode.truncated_attention`).  With `global` a decoder attends to the whole sound once it is over.
    `ctc_weight` is the weight of CTC in the loss beside a decoder.  With `global` and a `beam` above 1, hypotheses are
    ranked by both, and `beam_ctc_weight` is the weight of CTC there.

    `look_back` vectors before a segment and `look_ahead` vectors after it are seen by the decoder of segments.  No
    segment is longer than `longest` vectors.  The decoder sees the last `history` tokens, segment ends included.  With
    `abstractions` above 0, a segment is encoded with the abstractions of so many tokens before it (SMLTA2).

    `n_best` is the number of alternatives in an answer, for a whole sound.  `scoring` says what counts in error rates.

    `pause` is the time in seconds in which nothing is said after which a line of text ends in streaming recognition, 0
    for never.  Once a line has lasted `longest_line` seconds, a quarter of that pause ends it.
    """

    label: str = "text"
    max_len: int = 512
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    encoder: Literal["whole", "chunks"] = "whole"
    chunk_size: int = field(default=8, metadata=formerly("chunk"))
    left_chunks: int = field(default=4, metadata=formerly("before"))
    recurrent: RecurrentConfig | None = None
    convolution: int = 0
    n_best: int = 1
    decoder: Literal["ctc", "attention", "global"] = "ctc"
    layers: int = 2
    look_back: int = 8
    look_ahead: int = 3
    longest: int = 50
    history: int = 4
    abstractions: int = 0
    ctc_weight: float = field(default=0.5, metadata=formerly("ctc_share"))
    beam_ctc_weight: float = 0.3
    pause: float = 0.0
    longest_line: float = 20.0
    scoring: ScoringConfig = field(default_factory=ScoringConfig)

    face: ClassVar = "transcribe"
    known_metrics: ClassVar = {
        "wer": wer,
        "cer": cer,
        "substitutions": substitutions,
        "deletions": deletions,
        "insertions": insertions,
    }
    default_metrics: ClassVar = 2
    files: ClassVar = ("language_model", "hot_words")
    head_fields: ClassVar = (*SoundTask.head_fields, "recurrent", "convolution", "decoder", "layers", "abstractions")
    decoding_fields: ClassVar = (
        *(item.name for item in fields(RankedDecoding)),
        *("n_best", "beam_ctc_weight", "pause", "longest_line", "scoring", "channel"),
    )
    column_fields: ClassVar = ("audio", "label")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ranking()
        check_least(self, chunk_size=1, left_chunks=0, layers=1, look_back=0, look_ahead=0, longest=1, history=1)
        check_least(self, abstractions=0, convolution=0)
        check_most(self, layers=MOST_LAYERS, convolution=_MOST_CONVOLVED)
        if self.encoder == "chunks" and self.features.normalize == "utterance":
            raise UserError(
                "features.normalize: an utterance's mean is known at its end only, and chunks are processed before it; "
                "choose global, streaming or none"
            )
        if not 0 < self.ctc_weight < 1:
            raise UserError(f"ctc_weight: expected a number between 0 and 1, found {self.ctc_weight:g}")
        if not 1 <= self.n_best <= self.beam:
            raise UserError(f"n_best: expected 1 to {self.beam}, as many as beam keeps, found {self.n_best}")
        if self.n_best > 1 and (self.decoder == "attention" or self.pause):
            raise UserError("n_best: alternatives are of whole sounds by decoder: ctc or global, without pause")
        for name in ("pause", "longest_line"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: expected a number of seconds, found {getattr(self, name):g}")
        if self.pause and not self.hears_chunks:
            raise UserError(
                "pause: lines end at pauses where a model hears chunks: encoder: chunks, decoder: ctc or attention"
            )
        if not 0 <= self.beam_ctc_weight < 1:
            raise UserError(f"beam_ctc_weight: expected at least 0 and less than 1, found {self.beam_ctc_weight:g}")
        for name in ("language_model", "hot_words"):
            if self.decoder == "global" and getattr(self, name) is not None:
                raise UserError(
                    f"{name}: decoder: global ranks hypotheses without it; choose decoder: ctc or attention"
                )
        if self.convolution and self.convolution % 2 == 0:
            raise UserError(f"convolution: expected an odd number of vectors, found {self.convolution}")
        if self.convolution and self.recurrent is not None:
            raise UserError("convolution: follows the encoder's layers, which recurrent replaces; drop either")
        if self.abstractions and self.decoder != "attention":
            raise UserError("abstractions: they are made of segments, which decoder: attention reads")

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        self.augment.check_files(self.features.sample_rate)
        return super().adapted_to(rows)

    def decoding_with(self, given: Mapping[str, Any], tokenizer: Tokenizer) -> TranscribeSettings:
        if given.get("beam") == 1 and "language_model" not in given:
            given = {
                "hot_words": None,
                "n_best": 1,
                **given,
                "language_model": None,
            }  # what is left out here ranks several hypotheses
        changed = with_decoding(self, given, tokenizer)
        if changed.beam == 1 and given.keys() & {"alpha", "beta"}:
            raise UserError("alpha and beta rank hypotheses; keep several, such as beam: 16")
        if "beam_ctc_weight" in given and (changed.decoder != "global" or changed.beam == 1):
            raise UserError("beam_ctc_weight: ranks hypotheses of decoder: global; keep several, such as beam: 8")
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

    @property
    def segmentation(self) -> Segmentation:
        """The segmentation of the sound for the attention decoder."""
        return Segmentation(self.look_back, self.look_ahead, self.longest)

    @property
    def hears_chunks(self) -> bool:
        """Whether a model of this task can transcribe while the speaker is still talking."""
        return self.encoder == "chunks" and self.decoder != "global"

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
                f"task.max_len: with decoder: global up to {self.max_len} tokens are written after a mark, which takes "
                f"a position, too; {encoder} has {positions} positions, so that at most {positions - 1} are possible"
            )

    def metric(self, name: str) -> Metric:
        measure: Callable[..., float] = self.known_metrics[name]
        return partial(measure, case=self.scoring.case, punctuation=self.scoring.punctuation)

    def least_weights(self, width: int) -> int:
        written = 0 if self.decoder == "ctc" else 8 * width**2 * self.layers
        convolved = 3 * width**2 if self.convolution else 0  # of one layer
        return written + convolved + (0 if self.recurrent is None else self.recurrent.least_weights)
