"""Transcription of speech by connectionist temporal classification (CTC), optionally with an attention decoder.

Graves et al., 2006; Amodei et al., 2016, "Deep Speech 2" (arXiv 1512.02595).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, finetune_task
from tasks.downstream.hooks import EvaluationExamples
from tasks.downstream.transcription import answers, loss, sound_rows
from tasks.downstream.transcription.settings import TranscribeSettings

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.recognizer import Recognized, TokenRecognizer
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


@finetune_task("transcribe")
@dataclass(frozen=True, kw_only=True)
class Transcribe(TranscribeSettings, EvaluationExamples):
    """The transcript, in the column `label`, of the audio in the column `audio`."""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        begin, end, others = answers.special_tokens(tokenizer)
        self.check_files(tokenizer, (begin, end, *others))

    def target(self, row: Row) -> str:
        return sound_rows.target(self, row)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return sound_rows.example(self, row, tokenizer)

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return sound_rows.training_example(self, row, tokenizer)

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return sound_rows.evaluation_example(self, row, tokenizer)

    def remarks_on_texts(self, rows: Sequence[Row], tokenizer: Tokenizer) -> list[str]:
        return self.remarks_on_language([self.target(row) for row in rows], tokenizer)

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
        window, width = self.token_window, self.features.features
        return SpeechHead(
            model, width, blank, self.period, layers, window, recurrent, self.abstractions, self.convolution
        )

    def augmented(self, batch: Packed, training: bool) -> Packed:
        return loss.augmented(self, batch, training)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return loss.encode(self, ernie, head, batch)

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        return loss.head_loss(self, head, hidden_TD, batch)

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.data.batch import pack
        from ernie.model.inference import tokenizer_of

        if self.hears_chunks:
            # As streams are read: another order of the same sums would change a word now and then.
            sounds = pack([example.samples[0] for example in examples]).sounds
            recognized = self.recognizer(ernie, head).recognize(sounds)
        else:
            recognized = answers.recognize_whole(self, ernie, head, examples, task_id)
        decode = tokenizer_of(ernie).decode
        return [self.answer_of(own, decode) for own in recognized]

    def prediction(self, answer: Answer) -> str:
        return answer["transcript"]

    def recognizer(self, ernie: ErnieModel, head: Any) -> TokenRecognizer:
        """Return a recognizer of sound streams: see `answers.recognizer`."""
        return answers.recognizer(self, ernie, head)

    def answer_of(self, recognized: Recognized, decode: Callable[[Sequence[int]], str]) -> Answer:
        """Return the answer with what was recognized: see `answers.answer_of`."""
        return answers.answer_of(self, recognized, decode)
