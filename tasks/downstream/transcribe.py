"""Transcription: what is said in a sound, token by token, by connectionist temporal classification.

Graves et al., 2006; Amodei et al., 2016, "Deep Speech 2" (arXiv 1512.02595).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.audio.augment import AugmentConfig, masked, perturbed
from ernie.audio.features import features
from ernie.audio.lengths import STRIDE, needed, vectors
from ernie.audio.recurrent import RecurrentConfig
from ernie.config import check_least
from ernie.data import order
from ernie.data.batch import Frames, Layout, Packed
from ernie.data.document import Sample
from ernie.data.labelled.row import Row
from ernie.decode.ctc import Beam, Reading, greedy
from ernie.decode.cutting import Cutting
from ernie.decode.ngram import BEGIN, END, NgramModel
from ernie.decode.words import words_of
from ernie.errors import Remark, UserError
from ernie.text.blank import is_blank
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, finetune_task
from tasks.downstream.measures import cer, wer
from tasks.downstream.sound import SoundTask

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.pieces import PieceWriter
    from ernie.decode.recognizer import TokenRecognizer
    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@finetune_task("transcribe")
@dataclass(frozen=True, kw_only=True)
class Transcribe(SoundTask):
    """The transcript, in the column `label`, of the audio in the column `audio`.

    The encoder reads at most `max_len` vectors, one per four feature frames.  `augment` changes the
    sounds to learn from, anew in every epoch.  `encoder` says what a vector sees of its sound: the `whole`, or
    `chunks`, its own one of `chunk` vectors and `before` chunks before it, so that it can be transcribed while it is
    spoken.  With `recurrent` layers of gated units, which know of all chunks before, take the place of the encoder's.
    `beam` hypotheses are kept; with 1 decoding is greedy.  `language` is an ARPA file, a
    language model of the vocabulary's tokens, of whose logarithms `alpha` counts in a beam, and `beta` is added for
    each token.  With `decoder: attention` CTC only cuts the sound into pieces, and a decoder of `layers` writes what it
    reads of each (SMLTA, see `ernie.decode.pieces`), seeing `look_back` vectors before a piece and `look_ahead` behind
    it; none is longer than `longest`.  It remembers `history` tokens, the ends of pieces among them, and each piece is
    encoded with the `abstractions` of so many tokens before it, if any (SMLTA2).  `decoder: global` writes once a sound
    is over, and looks at all of it.  `ctc_share` of the loss is that of CTC.
    """

    label: str = "text"
    max_len: int = 512
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    encoder: Literal["whole", "chunks"] = "whole"
    chunk: int = 8
    before: int = 4
    recurrent: RecurrentConfig | None = None
    beam: int = 1
    language: Path | None = None
    alpha: float = 0.5
    beta: float = 0.0
    decoder: Literal["ctc", "attention", "global"] = "ctc"
    layers: int = 2
    look_back: int = 8
    look_ahead: int = 3
    longest: int = 50
    history: int = 4
    abstractions: int = 0
    ctc_share: float = 0.5

    measures: ClassVar = {"wer": wer, "cer": cer}
    usual: ClassVar = 2
    files: ClassVar = ("language",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, chunk=1, before=0, beam=1, layers=1, look_back=0, look_ahead=0, longest=1, history=1)
        check_least(self, abstractions=0)
        if self.encoder == "chunks" and self.features.normalize == "utterance":
            raise UserError(
                "features.normalize: an utterance's mean is known at its end only, and chunks are heard before it; "
                "choose global, streaming or none"
            )
        if not 0 < self.ctc_share < 1:
            raise UserError(f"ctc_share: expected a share between 0 and 1, found {self.ctc_share:g}")
        if self.decoder != "ctc" and self.beam > 1:
            raise UserError("beam: several readings are followed of CTC alone; choose decoder: ctc, or beam: 1")
        if self.abstractions and self.decoder != "attention":
            raise UserError("abstractions: they are made of pieces, which decoder: attention reads")
        if self.language is not None and self.beam == 1:
            raise UserError("language: a language model chooses among readings; follow some, such as beam: 16")

    @property
    def period(self) -> int | None:
        """After how many vectors positions begin anew where sound is heard in chunks.

        Twice what attention sees: no two vectors that see each other have the same position.
        """
        return 2 * (self.before + 1) * self.chunk if self.encoder == "chunks" else None

    @property
    def vector_seconds(self) -> float:
        """How far apart vectors are."""
        return STRIDE * self.features.hop_samples / self.features.rate

    def seconds(self, vector: int) -> float:
        """Where in a sound a vector is."""
        return round(vector * self.vector_seconds, 3)

    @property
    def memory(self) -> int | None:
        """How many tokens of what it has written a decoder of pieces remembers; None is all of them."""
        return self.history if self.decoder == "attention" else None

    def check_fits(self, positions: int, encoder: str) -> None:
        if self.period is None:
            super().check_fits(positions, encoder)
        elif self.period > positions:
            raise UserError(
                f"task.chunk: chunks of {self.chunk} vectors and {self.before} before them take {self.period} "
                f"positions, twice as many as are seen, and {encoder} has {positions}"
            )
        if self.memory is not None and 2 * self.memory > positions:
            raise UserError(
                f"task.history: {self.memory} tokens take {2 * self.memory} positions, twice as many as are "
                f"remembered, and {encoder} has {positions}"
            )
        if self.decoder == "global" and self.max_len >= positions:
            raise UserError(
                f"task.max_len: with decoder: global as many tokens are written, and a mark before them takes a "
                f"position; {encoder} has {positions}, so that at most {positions - 1} are possible"
            )

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        if self.language is None:
            return
        model = _language_model(self.language)
        special = {*_marks(tokenizer)[:2], *_marks(tokenizer)[2]}
        tokens = [token for i, token in enumerate(tokenizer.tokens) if i not in special]
        known = sum((token,) in model.grams for token in tokens)
        if not known:
            raise UserError(
                f"task.language: {self.language} knows none of the vocabulary's tokens, such as '{tokens[-1]}'; learn "
                "it from texts that this tokenizer has cut into tokens"
            )
        if known < len(tokens) / 2:
            remark = f"task.language: {self.language} knows {known:,} of the vocabulary's {len(tokens):,} tokens"
            warnings.warn(f"{remark}; all others are as likely as any unknown one to it", Remark, stacklevel=2)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        wave = self.wave(row)
        count = vectors(self.features.frames(len(wave.samples)))
        if not count:
            raise UserError(
                f"column '{self.audio}': the sound is {wave.seconds:.3f} s long, less than one window of "
                f"{self.features.window:g} s"
            )
        # In chunks, with positions that begin anew, an encoder hears for as long as one likes.
        if count > self.max_len and (self.encoder == "whole" or self.decoder == "global"):
            raise self._too_long(wave.seconds, count)
        zeros = np.zeros(count, np.int64)
        sample = Sample(zeros, zeros, sound=partial(self.samples, row))
        odd = tuple(f"sound that {remark}" for remark in wave.remarks)
        return Example((sample,), odd=odd)

    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.example(row, tokenizer)
        ids = tokenizer.encode(self.truth(row)).ids
        if tokenizer.unk_id in ids:
            raise UserError(
                f"column '{self.label}': the vocabulary lacks characters of '{self.truth(row)}'; train a tokenizer on "
                "the transcripts, or leave them out"
            )
        (sample,) = given.samples
        if len(sample) > self.max_len:
            raise self._too_long(self.wave(row).seconds, len(sample))
        if needed(ids) > len(sample):
            raise UserError(
                f"column '{self.label}': {len(ids)} tokens need {needed(ids)} vectors, and the sound gives "
                f"{len(sample)}; it is shorter than what is said in it"
            )
        return replace(given, samples=(replace(sample, written=frame(tokenizer, ids)[0]),))

    def _too_long(self, seconds: float, count: int) -> UserError:
        return UserError(
            f"column '{self.audio}': the sound is {seconds:.1f} s long, {count:,} vectors, and max_len is "
            f"{self.max_len}; raise it, or cut the sound where nothing is said"
        )

    def truth(self, row: Row) -> str:
        text = " ".join(row.text(self.label).split())
        if is_blank(text):
            raise UserError(f"column '{self.label}': the transcript is empty")
        return text

    def answered(self, answer: Answer) -> str:
        return answer["transcript"]

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.inference import tokenizer_of
        from ernie.model.recurrent import RecurrentEncoder
        from ernie.model.speech import SpeechHead

        layers = 0 if self.decoder == "ctc" else self.layers
        recurrent = None
        if self.recurrent is not None:
            chunk = self.chunk if self.encoder == "chunks" else None
            recurrent = RecurrentEncoder(model.config.hidden_size, self.recurrent, chunk)
        blank = tokenizer_of(model).pad_id
        width = self.features.features
        return SpeechHead(model, width, blank, self.period, layers, self.memory, recurrent, self.abstractions)

    def drawn(self, batch: Packed, training: bool) -> Packed:
        """The batch with its features; in training each sound is changed as its name in this epoch decides."""
        found = []
        sounds = list(batch.sounds)
        generators = [order.generator(0, "sound", *name.tolist()) for name in batch.samples]
        if training:
            each = zip(sounds, _labels(batch), generators, strict=True)
            sounds = [self._perturbed(sound, labels, rng) for sound, labels, rng in each]
        for sound, rng in zip(sounds, generators, strict=True):
            heard_FM = features(self.features, sound, self.around)
            if training:
                mean = heard_FM.mean(0) if self.features.normalize == "none" else 0.0
                heard_FM = masked(heard_FM, self.augment, rng, mean)
            found.append(heard_FM)
        frames = Frames(np.concatenate(found), Layout.of_lengths([len(one) for one in found]))
        return replace(batch, frames=frames, layout=Layout.of_lengths([vectors(len(one)) for one in found]))

    def _perturbed(self, sound: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A sound played faster or slower; as it is where it would be too short for its labels, or too long."""
        changed = perturbed(sound, self.features.rate, self.augment, rng)
        count = vectors(self.features.frames(len(changed)))
        return changed if needed(labels) <= count <= self.max_len else sound

    def mask(self, layout: Layout) -> Mask | None:
        """What each vector sees of its sound."""
        from ernie.kernels.mask import Mask

        return Mask.chunk(layout, self.chunk, self.before) if self.encoder == "chunks" else None

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        period = head.frontend.period if head.training else None
        x_TD, layout = head.frontend(batch.frames, _shifts(batch, period) if period else 0)
        if head.recurrent is not None:
            return head.recurrent(x_TD, layout)
        return ernie.encoder(x_TD, layout, mask=self.mask(layout))

    def judge(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.speech import ctc_loss

        labels = _labels(batch)
        lies = Layout.of_lengths([len(one) for one in labels])
        told = ctc_loss(head(hidden_TD), batch.layout, np.concatenate(labels), lies, head.blank)
        if self.decoder == "ctc":
            return told
        from ernie.decode.listening import whole_loss
        from ernie.decode.pieces import attention_loss

        assert batch.written is not None
        if self.decoder == "global":
            heard = whole_loss(head.writer, hidden_TD, batch.layout, batch.written)
            return self._with_attention(told, heard)
        begin, end = batch.written.ids[0], batch.written.next[batch.written.layout.offsets[1] - 1]
        shifts = _shifts(batch, 2 * self.history)
        read = attention_loss(head, hidden_TD, batch.layout, labels, self.cutting, int(begin), int(end), shifts)
        return self._with_attention(told, read)

    def _with_attention(self, told: Loss, read: Loss) -> Loss:
        return replace(told, total=self.ctc_share * told.total + (1 - self.ctc_share) * read.total)

    @property
    def cutting(self) -> Cutting:
        """Where the decoder's pieces end, and what is seen of them."""
        return Cutting(self.look_back, self.look_ahead, self.longest)

    def writer(self, head: Any, tokenizer: Tokenizer) -> PieceWriter | None:
        """What writes the tokens of each piece, where that is not CTC."""
        from ernie.decode.pieces import PieceWriter

        if self.decoder != "attention":
            return None
        return PieceWriter(head, self.cutting, *_marks(tokenizer))

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.data.batch import pack
        from ernie.kernels.precision import to_numpy
        from ernie.model.inference import finite, tokenizer_of

        tokenizer = tokenizer_of(ernie)
        read = self._reader(tokenizer, head)
        batch = self.drawn(pack([example.samples[0] for example in examples]), training=False)
        hidden_TD = self.encode(ernie, head, batch, task_id)
        logits_TV = finite(to_numpy(head(hidden_TD)))
        logits_TV[:, _untold(tokenizer)] = -np.inf
        answers = []
        for start, stop in pairwise(batch.layout.offsets.tolist()):
            told = read(logits_TV[start:stop], hidden_TD[start:stop])
            text, firsts = words_of([token for token, _ in told], tokenizer_of(ernie).decode)
            seconds = [self.seconds(told[first][1]) for first in firsts]
            answers.append({"transcript": text, "seconds": seconds})
        return answers

    def _reader(self, tokenizer: Tokenizer, head: Any) -> Callable[[np.ndarray, Tensor], list[tuple[int, int]]]:
        """What makes of scores (T, V) and vectors (T, D) the tokens that were told, and at which vectors."""
        from ernie.decode.listening import WholeWriter

        writer, blank = self.writer(head, tokenizer), head.blank
        if self.decoder == "global":
            whole = WholeWriter(head.writer, blank, *_marks(tokenizer))
            return lambda scores_TV, hidden_TD: [spike[:2] for spike in whole.write(scores_TV, hidden_TD)]
        beam = self._beam(tokenizer, blank)

        def read(scores_TV: np.ndarray, hidden_TD: Tensor) -> list[tuple[int, int]]:
            if self.beam > 1:
                best = beam.best(beam.go_on([Reading()], scores_TV))
                return list(zip(best.tokens, best.vectors, strict=True))
            spikes = greedy(scores_TV, blank)
            if writer is not None:
                from ernie.decode.pieces import Writing

                _, spikes = writer.go_on(Writing.begin(), hidden_TD, [spike.vector for spike in spikes], ended=True)
            return [(spike.token, spike.vector) for spike in spikes]

        return read

    def _beam(self, tokenizer: Tokenizer, blank: int) -> Beam:
        """What follows several readings."""
        if self.language is None:
            return Beam(blank, self.beam, alpha=self.alpha, beta=self.beta)
        model, names = _language_model(self.language), tokenizer.tokens

        def score(before: tuple[int, ...], token: str) -> float:
            """The logarithm of the probability of a token after others."""
            last = before[max(0, len(before) - model.order) :]
            history = [names[one] for one in last]
            return model.score(history if len(last) < len(before) else [BEGIN, *history], token)

        return Beam(
            blank,
            self.beam,
            language=lambda before, token: score(before, names[token]),
            ends=lambda tokens: score(tokens, END),
            alpha=self.alpha,
            beta=self.beta,
            looks_back=model.order + 1,
        )

    def recognizer(self, ernie: ErnieModel, head: Any) -> TokenRecognizer:
        """What recognizes streams of sound in the chunks that were learnt."""
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
            self.around,
            chunk=self.chunk,
            before=self.before,
            writer=self.writer(head, tokenizer),
            beam=self._beam(tokenizer, head.blank) if self.beam > 1 else None,
            never=_untold(tokenizer),
        )


def _labels(batch: Packed) -> list[np.ndarray]:
    """What is said in each sound: what a decoder would write, without the token that it begins with."""
    assert batch.written is not None
    return [ids[1:] for ids in np.split(batch.written.ids, batch.written.layout.offsets[1:-1])]


def _marks(tokenizer: Tokenizer) -> tuple[int, int, tuple[int, ...]]:
    """What a decoder begins with, what it ends with, and what it never writes."""
    return tokenizer.cls_id, tokenizer.sep_id, (tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id)


def _untold(tokenizer: Tokenizer) -> list[int]:
    """What CTC never tells: no transcript to learn from has it."""
    begin, end, others = _marks(tokenizer)
    return [token for token in (begin, end, *others) if token != tokenizer.pad_id]  # which is the blank


def _language_model(file: Path) -> NgramModel:
    """Read once, not for every batch that is answered, and anew where the file has changed."""
    try:
        found = file.stat()
    except OSError:
        return NgramModel.load(file)  # which says what is wrong
    return _as_it_was(file, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _as_it_was(file: Path, *_: int) -> NgramModel:
    """The language model of a file as it was when it was last written to, and with so many bytes."""
    return NgramModel.load(file)


def _shifts(batch: Packed, period: int) -> np.ndarray:
    """Where the positions of each sound begin, (N,), as its name decides: so none of them stands for its length."""
    return np.array([order.generator(0, "shift", *name.tolist()).integers(period) for name in batch.samples])
