"""Speech synthesis: from text to frames to samples.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ernie.audio.wave import Wave, as_wave
from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import about
from ernie.text.pronounce import read_dictionary
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, FinetuneTask, finetune_task
from tasks.downstream.hooks import (
    DerivesFromExamples,
    EvaluationExamples,
    HeadConditions,
    PartialTraining,
    TrainingFiles,
)
from tasks.downstream.synthesis import answers, loss, teacher, text_rows
from tasks.downstream.synthesis.settings import SynthesizeSettings

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.synthesis import Synthesizer
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.voice import VoiceHead


@finetune_task("synthesize")
@dataclass(frozen=True, kw_only=True)
class Synthesize(
    SynthesizeSettings, DerivesFromExamples, EvaluationExamples, TrainingFiles, PartialTraining, HeadConditions
):
    """The text of the column `text`, spoken as in the sounds of the column `audio`."""

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        if self.teacher is not None:
            return teacher.with_teacher_values(self)
        task = super().adapted_to(rows)
        assert isinstance(task, Synthesize)
        return text_rows.with_means(task, rows)

    def having_read(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Synthesize:
        return text_rows.with_learned(self, examples, tokenizer)

    def keeping_head_of(self, before: FinetuneTask, whose: str) -> Synthesize:
        return teacher.keeping_head_of(self, before, whose)

    def text_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the sample of a text, whether the voice can say all of it or not."""
        return text_rows.text_example(self, row, tokenizer)

    @property
    def learns_from(self) -> Mapping[str, Path]:
        return teacher.learns_from(self)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        if self.dictionary:
            with about("task.dictionary"):  # reported for the file, not for the first row looked up in it
                read_dictionary(self.dictionary)

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:
        teacher.check_encoder(self, ernie, task_id, encoder)

    def target(self, row: Row) -> Wave:
        return self.wave(row)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return text_rows.example(self, row, self.text_example(row, tokenizer), tokenizer)

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return text_rows.training_example(self, row, self.evaluation_example(row, tokenizer), tokenizer)

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return text_rows.evaluation_example(self, row, self.text_example(row, tokenizer), tokenizer)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.inference import tokenizer_of
        from ernie.model.voice import VoiceHead, letters_of

        width, letters = model.config.hidden_size, letters_of(tokenizer_of(model))
        return VoiceHead(
            width,
            self.voice,
            self.features.features,
            self.features.hop_samples,
            letters,
            pace=self.pace or 1.0,
            loudness=self.loudness or 1.0,
            vocoder=self.vocoder,
        )

    def initialize(self, ernie: ErnieModel, head: Any) -> None:
        head.initialize()
        if self.teacher is not None:
            teacher.load_teacher(ernie, head, self.teacher)

    @property
    def separate_clip_groups(self) -> tuple[str, ...]:
        if self.vocoder == "flow":
            return ("pitch",) if self.voice.pulses else ()
        return () if self.end_to_end or self.vocoder == "griffin_lim" else ("bridge", "wavenet")

    @property
    def freezes_encoder(self) -> bool:
        return self.vocoder == "flow"

    def augmented(self, batch: Packed, training: bool) -> Packed:
        return loss.augmented(self, batch)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        with loss.inference_mode(self, ernie):
            return ernie.encode_packed(batch, task_id)

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        return loss.head_loss(self, head, hidden_TD, batch)

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        return answers.answer_all(self, self.synthesizer(ernie, head, task_id), examples)

    def prediction(self, answer: Answer) -> Wave:
        return as_wave(answer["audio"], self.features.sample_rate, "the answer")

    def synthesizer(
        self,
        ernie: ErnieModel,
        head: VoiceHead,
        task_id: int,
        *,
        vocoder: str | None = None,
        seed: int = 0,
        chunk: int | None = None,
    ) -> Synthesizer:
        """Return what speaks tokens in stretches of `chunk` decoder steps, by default of a quarter of a second.

        `vocoder` overrides the kind's own; `seed` is that of the noise from which samples are generated.
        """
        from ernie.decode.griffin_lim import GriffinLimVocoder, MagnitudeReader
        from ernie.decode.synthesis import ConditionerReader, FlowVocoder, Synthesizer, WaveNetVocoder

        steps = chunk or max(1, round(0.25 * self.features.sample_rate / self.step_samples))
        name = vocoder or self.vocoder
        if name == "griffin_lim":
            reader = MagnitudeReader(head.decoder, self.features, self.statistics, self.voice.reduction)
            return Synthesizer(ernie, head, task_id, GriffinLimVocoder(self.features), steps, reader, seed=seed)
        if name == "wavenet" or head.flow is None:
            return Synthesizer(ernie, head, task_id, WaveNetVocoder(head.wavenet), steps, seed=seed)
        pulse_rate = None if head.pitch is None else self.features.sample_rate
        flow = FlowVocoder(head.flow, seed, pulse_rate)
        return Synthesizer(ernie, head, task_id, flow, steps, ConditionerReader(head.bridge, head.pitch), seed=seed)
