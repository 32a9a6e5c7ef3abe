"""Speech synthesis: from text to frames to samples.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.audio.features import FeatureConfig, features
from ernie.audio.voice import VoiceConfig
from ernie.audio.wave import Wave, as_wave
from ernie.config import differences, to_dict
from ernie.data import seeded_rng
from ernie.data.batch import Frames, Layout, Packed
from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError, about
from ernie.renames import formerly
from ernie.text.load import load_tokenizer
from ernie.text.pronounce import all_pronounceable, read_dictionary, to_phonemes
from ernie.text.spoken_form import SpokenLanguage, has_digits, is_unspoken, spoken_form
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import MOST_COUNTED, Answer, Example, FinetuneTask, encode_start, finetune_task
from tasks.downstream.changes import with_values_of
from tasks.downstream.hooks import (
    DerivesFromExamples,
    EvaluationExamples,
    HeadConditions,
    PartialTraining,
    SizedHead,
    TrainingFiles,
)
from tasks.downstream.metrics import mcd
from tasks.downstream.saved import HEAD_FILE, model_of, read_task
from tasks.downstream.sound import SoundTask

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.synthesis import Synthesizer
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.voice import FramePrediction, Text, VoiceHead

# The fields of an encoder's configuration that matter in training only.
_TRAINING_ONLY = ("dropout", "attention_dropout", "initializer_range")
_MOST_UNLEARNED = 0.1  # of a text's tokens: the voice says the others, and something like them in their place
_DIGITS = 4  # of the means over all rows, and of the samples in answers


@finetune_task("synthesize")
@dataclass(frozen=True, kw_only=True)
class Synthesize(
    SoundTask, DerivesFromExamples, EvaluationExamples, TrainingFiles, PartialTraining, HeadConditions, SizedHead
):
    """The text of the column `text`, spoken as in the sounds of the column `audio`.

    Words are transcribed with `dictionary`, a file in the format of the CMU dictionary; without one, and for words that
    it lacks, they stay as they are.  A decoder predicts frames of `features`, and `voice` configures the networks that
    turn them into sound.  With `vocoder: wavenet` everything is trained jointly, the vocoder on segments of `crop`
    seconds, and noise of `input_noise_std` times the samples' standard deviation is added to the WaveNet's input, so
    that it learns to compensate for errors of its own (Valin and Skoglund, 2019, arXiv 1810.11846, section 3.5).  With
    `end_to_end` the vocoder's loss also trains the decoder and the encoder, as in the paper; otherwise they are trained
    on frames alone.  With `flow` only a flow is trained, which generates all samples in parallel: it is distilled from
    the voice of the run `teacher`, by the divergence between the two plus `log_std_penalty` times the squared
    difference of their log deviations, and `spectral` times the distance of the spectra of its output from those of the
    recordings, both brought to a standard deviation of 0.1.  No recording is longer than `longest` seconds.  `pace` is
    the letters per decoder step and `loudness` the samples' standard deviation; default: means over the train rows.

    `text_normalization` writes numbers, dates, units and abbreviations as words of a language first.  `learned` are the
    tokens that the voice can say; default: those of the train rows' texts.  A text with more than a tenth of others is
    refused.
    """

    text: str = "text"
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(window=0.05, hop=0.0125))
    voice: VoiceConfig = field(default_factory=VoiceConfig)
    dictionary: Path | None = None
    text_normalization: SpokenLanguage = "none"
    vocoder: Literal["wavenet", "flow"] = "wavenet"
    teacher: Path | None = None
    crop: float = 0.5
    input_noise_std: float = field(default=0.0, metadata=formerly("dither"))
    end_to_end: bool = False
    log_std_penalty: float = field(default=4.0, metadata=formerly("apart"))
    spectral: float = 1.0
    longest: float = 10.0
    pace: float = 0.0
    loudness: float = 0.0
    learned: tuple[str, ...] = ()

    face: ClassVar = "speak"
    known_metrics: ClassVar = {"mcd": mcd}
    answer_fields: ClassVar = ("audio",)
    files: ClassVar = ("dictionary",)
    head_fields: ClassVar = (*SoundTask.head_fields, "voice", "pace", "loudness")
    decoding_fields: ClassVar = ("text_normalization",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.teacher is None) != (self.vocoder == "wavenet"):
            raise UserError(
                "teacher: a flow learns from a run of the kind synthesize whose vocoder is wavenet; give vocoder: flow "
                "together with teacher: RUN, or neither"
            )
        for name in ("crop", "longest"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name}: expected more than 0 seconds, found {getattr(self, name):g}")
        if self.crop > self.longest:
            raise UserError(f"crop: {self.crop:g} s are more than any recording has, {self.longest:g} s (longest)")
        if self.crop_steps * self.step_samples < self.features.window_samples:
            raise UserError(
                f"crop: {self.crop:g} s are less than one window of {self.features.window:g} s, by which spectra are "
                "compared"
            )
        for name in ("log_std_penalty", "spectral", "input_noise_std", "pace", "loudness"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}: expected at least 0, found {getattr(self, name):g}")
        if self.features.normalize not in ("global", "none"):
            raise UserError(
                f"features.normalize: {self.features.normalize} takes the loudness from what is to be said; choose "
                "global or none"
            )

    @property
    def separate_clip_groups(self) -> tuple[str, ...]:
        return () if self.end_to_end else ("bridge", "wavenet")

    @property
    def freezes_encoder(self) -> bool:
        return self.vocoder == "flow"

    @property
    def step_samples(self) -> int:
        """The number of samples in a decoder step."""
        return self.voice.reduction * self.features.hop_samples

    @property
    def crop_steps(self) -> int:
        """The number of steps in a training segment of the vocoder."""
        return max(1, round(self.crop * self.features.sample_rate / self.step_samples))

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        if self.teacher is not None:
            return self._with_teacher_values()
        task = super().adapted_to(rows)
        assert isinstance(task, Synthesize)
        if self.pace and self.loudness:
            return task
        letters = samples = 0
        power = 0.0
        for row in rows:
            try:
                wave, text = self.wave(row), self._spoken_text(row)
            except UserError:
                continue
            letters += len("".join(text.split()))
            samples += len(wave.samples)
            power += float((wave.samples.astype(np.float64) ** 2).sum())
        if not letters or not power:
            return task
        pace, loudness = letters * self.step_samples / samples, math.sqrt(power / samples)
        return replace(task, pace=self.pace or _rounded(pace), loudness=self.loudness or _rounded(loudness))

    @property
    def learns_from(self) -> Mapping[str, Path]:
        return {} if self.teacher is None else {"teacher": model_of(self.teacher) / HEAD_FILE}

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:
        """Raise UserError if the encoder would give the teacher's voice other vectors than those it was trained on."""
        from ernie.model.config import EncoderConfig
        from ernie.model.inference import tokenizer_of
        from ernie.model.pretrained import CONFIG_FILE, TOKENIZER_FOLDER

        if self.teacher is None:
            return
        folder, (_, teacher_task_id) = model_of(self.teacher), self._read_teacher()
        advice = f"A flow reads as its teacher does: give --model {folder}"
        if load_tokenizer(folder / TOKENIZER_FOLDER).fingerprint != tokenizer_of(ernie).fingerprint:
            raise UserError(f"model: {encoder} has another vocabulary than the teacher, {self.teacher}. {advice}.")
        teacher_config = EncoderConfig.read(folder / CONFIG_FILE)
        for name, value in asdict(teacher_config).items():
            own = getattr(ernie.config, name)
            if name not in _TRAINING_ONLY and own != value:
                raise UserError(
                    f"model: {encoder} has {name} {own}, the teacher, {self.teacher}, has {value}. {advice}."
                )
        if task_id != teacher_task_id:
            raise UserError(
                f"train.task_id: is {task_id}, and the teacher, {self.teacher}, has learned with {teacher_task_id}; "
                "set it so"
            )

    def _read_teacher(self) -> tuple[Synthesize, int]:
        """Return the teacher's task, and the id of its task embedding.  Raises UserError for a run of another kind."""
        assert self.teacher is not None
        teacher, task_id = read_task(model_of(self.teacher))
        if not isinstance(teacher, Synthesize) or teacher.vocoder != "wavenet":
            raise UserError(f"teacher: {self.teacher} is no run of the kind synthesize whose vocoder is wavenet")
        return teacher, task_id

    def _with_teacher_values(self) -> Synthesize:
        """Return the task with the values its teacher took from rows.  Raises UserError if their shapes differ."""
        teacher, _ = self._read_teacher()
        voice = replace(teacher.voice, flows=self.voice.flows, flow=self.voice.flow)
        # A teacher may be older than these keys; what it learned from decides.
        newer = {name: getattr(teacher.features, name) for name in ("normalize_seconds", "remove_dc_offset")}
        features = replace(self.features, **newer)
        shape = to_dict({"features": features, "voice": self.voice})
        teachers = to_dict({"features": teacher.features, "voice": voice})
        for key, (own, its) in differences(shape, teachers, "task").items():
            raise UserError(f"{key}: is {own}, and the teacher, {self.teacher}, has learned with {its}; set it so")
        if self.max_len > teacher.max_len:
            raise UserError(
                f"max_len: is {self.max_len}, and the teacher, {self.teacher}, has learned texts of {teacher.max_len} "
                "tokens at most; set it so"
            )
        derived, whose = ("mean", "deviation", "pace", "loudness", "learned"), f"the teacher, {self.teacher},"
        task = with_values_of(replace(self, features=features), teacher, derived, whose)
        return task._with_dictionary_of(teacher, whose)

    def keeping_head_of(self, before: FinetuneTask, whose: str) -> Synthesize:
        assert isinstance(before, Synthesize)
        if self.vocoder != before.vocoder:
            advice = (
                "go on from the run that taught it"
                if self.teacher is None
                else "leave head: keep out, for a flow begins with its teacher's voice"
            )
            raise UserError(f"task.vocoder: is {self.vocoder}, and {whose} has learned with {before.vocoder}; {advice}")
        return with_values_of(self, before, self.head_fields, whose)._with_dictionary_of(before, whose)

    def _with_dictionary_of(self, before: Synthesize, whose: str) -> Synthesize:
        words = [read_dictionary(file) if file else {} for file in (self.dictionary, before.dictionary)]
        if self.dictionary and words[0] != words[1]:
            raise UserError(
                f"dictionary: {self.dictionary} differs from what {whose} has learned with, "
                f"{before.dictionary or 'which is no dictionary'}; take the key out, and that is used"
            )
        return replace(self, dictionary=before.dictionary)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        if self.dictionary:
            with about("task.dictionary"):  # reported for the file, not for the first row looked up in it
                read_dictionary(self.dictionary)

    def having_read(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Synthesize:
        if self.learned:
            return self
        ids = {int(i) for example in examples for sample in example.samples for i in sample.ids}
        return replace(self, learned=tuple(tokenizer.tokens[i] for i in sorted(ids - tokenizer.special_ids)))

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.text_example(row, tokenizer)
        with about(f"column '{self.text}'"):
            warnings = self.check_sayable(row.text(self.text), given, tokenizer)
        return replace(given, warnings=(*given.warnings, *warnings))

    def check_sayable(self, text: str, example: Example, tokenizer: Tokenizer) -> list[str]:
        """Return what a voice may say badly in a text, in words that follow "has ".

        Raises UserError for characters that the vocabulary lacks, and where more than a tenth of the tokens are others
        than the voice has learned, and no mere marks: it would say noise.
        """
        (sample,) = example.samples
        advice = "write them as words"
        if self.text_normalization == "none" and has_digits(text):
            advice += ", or let --normalize en (of `ernie speak`; task.text_normalization elsewhere) do so"
        if tokenizer.unk_id in sample.ids:
            raise UserError(f"'{text:.60}' has characters that this voice has not learned; {advice}")
        ids = [int(i) for i in sample.ids if i not in tokenizer.special_ids]
        known = set(self.learned)
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

    def text_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the sample of a text, whether the voice can say all of it or not."""
        text = self._spoken_text(row)
        ids = encode_start(tokenizer, text, self.max_len)
        cut, silent = max(0, len(ids) + 2 - self.max_len), is_unspoken("".join(text.split()))
        return Example((single(tokenizer, ids[: self.max_len - 2]),), cut=cut, empty=silent or not len(ids))

    def token_count(self, row: Row, example: Example) -> str:
        """Return how many tokens the text of a row has, in words: of a very long one not all are counted."""
        least = "at least " if len(self._spoken_text(row)) > MOST_COUNTED else ""
        return f"{least}{example.tokens + example.cut:,}"

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.evaluation_example(row, tokenizer)
        wave = self.target(row)
        (sample,) = given.samples
        if tokenizer.unk_id in sample.ids:
            raise UserError(
                f"column '{self.text}': the vocabulary lacks characters of '{self._spoken_text(row)}'; train a "
                "tokenizer on the texts, as they are or as the dictionary writes them"
            )
        if wave.seconds > self.longest:
            raise UserError(
                f"column '{self.audio}': the sound is {wave.seconds:.1f} s long, and longest is {self.longest:g}; "
                "raise it, or cut the sound where nothing is said"
            )
        sample = replace(sample, sound=partial(self.samples, row), labels={"steps": self._steps(wave)})
        warnings = [f"sound that {remark}" for remark in wave.remarks]
        spoken = spoken_form(row.text(self.text), self.text_normalization)
        if self.dictionary and not all_pronounceable(spoken, read_dictionary(self.dictionary)):
            warnings.append("words that the dictionary lacks, which stay as they are")
        if self.text_normalization == "none" and has_digits(row.text(self.text)):
            warnings.append("digits in a text, which task.text_normalization would write as words")
        return replace(given, samples=(sample,), warnings=tuple(warnings))

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.text_example(row, tokenizer)
        if given.empty:
            raise UserError(f"column '{self.text}': there is nothing in the text that could be said")
        if given.cut:
            raise UserError(
                f"column '{self.text}': the text has {self.token_count(row, given)} tokens, and max_len is "
                f"{self.max_len}: the sound would say words that the text lacks; raise max_len, or split text and sound"
            )
        if tokenizer.unk_id in given.samples[0].ids:
            given = replace(given, warnings=("characters in a text that the vocabulary lacks, which are not spoken",))
        return given

    def target(self, row: Row) -> Wave:
        return self.wave(row)

    def prediction(self, answer: Answer) -> Wave:
        return as_wave(answer["audio"], self.features.sample_rate, "the answer")

    def least_weights(self, width: int) -> int:
        flows = self.voice.flows * self.voice.flow.least_weights if self.vocoder == "flow" else 0
        return self.voice.wavenet.least_weights + flows

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
            flow=self.vocoder == "flow",
        )

    def initialize(self, ernie: ErnieModel, head: Any) -> None:
        head.initialize()
        if self.teacher is not None:
            _load_teacher(ernie, head, model_of(self.teacher))

    def augmented(self, batch: Packed, training: bool) -> Packed:
        """Return the batch with sounds padded to whole decoder steps, and their features."""
        if not batch.sounds:
            return batch
        sounds = [np.pad(sound, (0, self._padded_length(len(sound)) - len(sound))) for sound in batch.sounds]
        # A frame is centered on the samples generated from it.
        margin = self.features.window_samples - self.features.hop_samples
        sides = (margin // 2, margin - margin // 2)
        features_FM = [features(self.features, np.pad(sound, sides), self.statistics) for sound in sounds]
        frames = Frames(np.concatenate(features_FM), Layout.of_lengths([len(own_FM) for own_FM in features_FM]))
        return replace(batch, sounds=tuple(sounds), frames=frames)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        with self._inference_mode(ernie):
            return ernie.encode_packed(batch, task_id)

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        import paddle

        from ernie.model.inference import evaluating
        from ernie.model.losses import Loss
        from ernie.model.voice_loss import frame_loss

        with self._inference_mode(head.decoder):
            predictions, text, frames_NFM, steps = self.teacher_forced(head, hidden_TD, batch)
        states_NFD = predictions.states
        if not self.end_to_end and self.vocoder == "wavenet":  # it learns from states as in synthesis, without dropout
            with paddle.no_grad(), evaluating(head.decoder):
                states_NFD = self.teacher_forced(head, hidden_TD, batch)[0].states
        total = self.sound_loss(head, states_NFD, steps, batch)
        if self.vocoder == "wavenet":
            total = total + frame_loss(predictions, text, frames_NFM, steps)
        return Loss(total, batch.layout.sequences, None, batch.labels["steps"].values)

    def teacher_forced(
        self, head: VoiceHead, hidden_TD: Tensor, batch: Packed
    ) -> tuple[FramePrediction, Text, np.ndarray, np.ndarray]:
        """Run the decoder on the true preceding frames.

        Returns its predictions, the encoded text, the target features (N, F, M), zero after the last step, and the
        number of steps of each sound, (N,).
        """
        text = head.decoder.read(hidden_TD, batch.ids, batch.layout)
        frames_NFM, steps = self._in_steps(batch)
        before_NFM = np.pad(frames_NFM, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        return head.decoder(_tensor(before_NFM), text), text, frames_NFM, steps

    def _inference_mode(self, layer: nn.Layer) -> AbstractContextManager[None]:
        """Disable dropout in a teacher's layer while a flow is trained: the flow must see its inference outputs."""
        from ernie.model.inference import evaluating

        return evaluating(layer) if self.freezes_encoder else nullcontext()

    def sound_loss(self, head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, batch: Packed) -> Tensor:
        """Return the vocoder's loss on a random segment of each sound, seeded by the sound's name."""
        from ernie.model import voice_loss

        context = head.wavenet.config.context
        if self.vocoder == "flow":
            assert head.flow is not None
            context += head.flow.context
        generators = [seeded_rng.generator(0, "stretch", *name.tolist()) for name in batch.samples]
        start_counts = np.maximum(1, steps - self.crop_steps + 1)
        first = np.array([rng.integers(count) for rng, count in zip(generators, start_counts, strict=True)])
        segment = voice_loss.Segment(first, self.crop_steps)
        conditioner_NSH = voice_loss.conditioners(head, states_NFD, steps, segment, context)
        samples_NS, *masks = voice_loss.segment_samples(batch, segment, self.step_samples, context)
        inside_NR, begun_NS = map(_tensor, masks)
        noise_NS = np.stack([rng.standard_normal(samples_NS.shape[1]) for rng in generators])
        if self.vocoder == "wavenet":
            dither_NS = _tensor(self.input_noise_std * self.loudness * noise_NS) if self.input_noise_std else None
            return voice_loss.likelihood_loss(
                head, conditioner_NSH, _tensor(samples_NS), inside_NR, begun_NS, dither_NS
            )
        return voice_loss.flow_loss(
            head,
            conditioner_NSH,
            _tensor(samples_NS[:, context:]),
            inside_NR,
            begun_NS,
            _tensor(noise_NS),
            self.features,
            self.log_std_penalty,
            self.spectral,
        )

    def _in_steps(self, batch: Packed) -> tuple[np.ndarray, np.ndarray]:
        assert batch.frames is not None
        layout = batch.frames.layout
        steps = layout.lengths // self.voice.reduction
        frames_NFM = np.zeros(
            (layout.sequences, steps.max(), self.voice.reduction * self.features.features), np.float32
        )
        sounds = np.split(batch.frames.features, layout.offsets[1:-1])
        for row, own, count in zip(frames_NFM, sounds, steps, strict=True):
            row[:count] = own.reshape(count, -1)
        return frames_NFM, steps

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        said = [n for n, example in enumerate(examples) if not example.empty]
        sounds = self.spoken(ernie, head, [examples[n].samples[0].ids for n in said], task_id)
        found = dict(zip(said, sounds, strict=True))
        answers: list[Answer] = []
        for n in range(len(examples)):
            array = [round(float(sample), _DIGITS) for sample in found.get(n, ())]
            answers.append({"audio": {"array": array, "sampling_rate": self.features.sample_rate}})
        return answers

    def spoken(self, ernie: ErnieModel, head: VoiceHead, texts: Sequence[np.ndarray], task_id: int) -> list[np.ndarray]:
        """Return the samples (S,) of texts, (L,) tokens each.

        Warns (a Remark) where the voice does not stop by itself.  Raises NotFinite when numbers are not finite.
        """
        synthesizer = self.synthesizer(ernie, head, task_id)
        sounds: list[list[np.ndarray]] = [[] for _ in texts]
        with synthesizer.context():
            going = dict(enumerate(synthesizer.begin(texts))) if texts else {}
            while going:
                stretches = zip(list(going), synthesizer.advance(list(going.values())), strict=True)
                for n, (utterance, sound) in stretches:
                    sounds[n].append(sound.get())
                    for note in sound.notes:
                        warnings.warn(str(note), Remark, stacklevel=2)
                    if utterance is None:
                        del going[n]
                    else:
                        going[n] = utterance
        return [np.concatenate(own) for own in sounds]

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
        from ernie.decode.synthesis import FlowVocoder, Synthesizer, WaveNetVocoder

        flow = None if (vocoder or self.vocoder) == "wavenet" else head.flow
        generator = WaveNetVocoder(head.wavenet) if flow is None else FlowVocoder(flow, seed)
        steps = chunk or max(1, round(0.25 * self.features.sample_rate / self.step_samples))
        return Synthesizer(ernie, head, task_id, generator, steps, seed=seed)

    def _spoken_text(self, row: Row) -> str:
        text = spoken_form(row.text(self.text), self.text_normalization)
        return to_phonemes(text, read_dictionary(self.dictionary)) if self.dictionary else text

    def _padded_length(self, samples: int) -> int:
        return -(-samples // self.step_samples) * self.step_samples

    def _steps(self, wave: Wave) -> int:
        return self._padded_length(len(wave.samples)) // self.step_samples


def _rounded(value: float) -> float:
    """Round to a few digits, so that the order of the rows does not matter."""
    return float(f"{value:.{_DIGITS}g}")


def _tensor(values: np.ndarray) -> Tensor:
    import paddle

    return paddle.to_tensor(values.astype(np.float32))


def _load_teacher(ernie: ErnieModel, head: VoiceHead, folder: Path) -> None:
    """Load a teacher's voice into an encoder and its head, and freeze everything but the flow."""
    from ernie.model.ernie import ErnieModel
    from ernie.model.weights import arrays, read_arrays, set_weights

    set_weights(ernie, arrays(ErnieModel.from_pretrained(folder)), str(folder))
    assert head.flow is not None
    own = {f"flow.{name}": value for name, value in arrays(head.flow).items()}
    set_weights(head, read_arrays(folder / HEAD_FILE) | own, str(folder))
    trainable = {id(parameter) for parameter in head.flow.parameters()}
    for parameter in (*ernie.parameters(), *head.parameters()):
        parameter.stop_gradient = id(parameter) not in trainable
