"""Speech: a text as it sounds, frame by frame and sample by sample.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.audio.features import FeatureConfig, features
from ernie.audio.voice import VoiceConfig
from ernie.audio.wave import Wave, as_wave
from ernie.data import order
from ernie.data.batch import Frames, Layout, Packed
from ernie.data.labelled.row import Row
from ernie.errors import UserError, about
from ernie.text.load import load_tokenizer
from ernie.text.pronounce import all_known, pronounced, read_dictionary
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import Answer, Example, FinetuneTask, finetune_task
from tasks.downstream.measures import mcd
from tasks.downstream.saved import HEAD_FILE, model_of, read_task
from tasks.downstream.sound import SoundTask

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.voice import Text, Told, VoiceHead

# Of an encoder's configuration, what decides nothing once it has learnt.
_BEFORE_LEARNING = ("dropout", "attention_dropout", "initializer_range")
_DIGITS = 4  # of what is learnt from all rows, and of the samples that are written down


@finetune_task("synthesize")
@dataclass(frozen=True, kw_only=True)
class Synthesize(SoundTask):
    """The text of the column `text` as it is spoken in the sounds of the column `audio`.

    Words are written as `dictionary`, a file as the CMU dictionary, says; without one, and for words that it lacks, as
    they are.  A decoder makes frames of `features`, and `voice` says what makes sound of them.  With `vocoder: wavenet`
    all of it learns at the same time, sound from stretches of `crop` seconds, and noise of `dither` times the deviation
    of the samples is added to those that the WaveNet sees, so that it learns to make up for errors of its own (Valin
    and Skoglund, 2019, arXiv 1810.11846, section 3.5).  With `end_to_end` the decoder and the encoder learn from the
    samples, too, as in the paper, and otherwise from frames alone.  With `flow` nothing learns but a flow, which makes
    all samples at once: from the voice of the run `teacher`, by the divergence between the two, to which `apart` times
    the squared difference of the logarithms of their deviations is added, and by `spectral` times how far the spectra
    of what it makes are from those of the recordings.  No recording is longer than `longest` seconds.  `pace` is the
    letters per decoder step and `loudness` the samples' standard deviation; default: means over the train rows.
    """

    text: str = "text"
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(window=0.05, hop=0.0125))
    voice: VoiceConfig = field(default_factory=VoiceConfig)
    dictionary: Path | None = None
    vocoder: Literal["wavenet", "flow"] = "wavenet"
    teacher: Path | None = None
    crop: float = 0.5
    dither: float = 0.0
    end_to_end: bool = False
    apart: float = 4.0
    spectral: float = 1.0
    longest: float = 10.0
    pace: float = 0.0
    loudness: float = 0.0

    measures: ClassVar = {"mcd": mcd}
    answer_field: ClassVar[str] = "audio"
    files: ClassVar = ("dictionary",)

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
        if self.crop_steps * self.step_samples < self.features.window_samples:
            raise UserError(
                f"crop: {self.crop:g} s are less than one window of {self.features.window:g} s, by which spectra are "
                "compared"
            )
        for name in ("apart", "spectral", "dither", "pace", "loudness"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}: expected at least 0, found {getattr(self, name):g}")
        if self.features.normalize not in ("global", "none"):
            raise UserError(
                f"features.normalize: {self.features.normalize} takes the loudness from what is to be said; choose "
                "global or none"
            )

    @property
    def clipped_apart(self) -> tuple[str, ...]:
        return () if self.end_to_end else ("bridge", "wavenet")

    @property
    def leaves_encoder(self) -> bool:
        return self.vocoder == "flow"

    @property
    def step_samples(self) -> int:
        """The samples of a step of the decoder."""
        return self.voice.reduction * self.features.hop_samples

    @property
    def crop_steps(self) -> int:
        """The steps of a stretch that sound is learnt from."""
        return max(1, round(self.crop * self.features.rate / self.step_samples))

    def learnt_from(self, rows: Sequence[Row]) -> FinetuneTask:
        if self.teacher is not None:
            return self._as_taught()
        task = super().learnt_from(rows)
        assert isinstance(task, Synthesize)
        if self.pace and self.loudness:
            return task
        letters = samples = 0
        power = 0.0
        for row in rows:
            try:
                wave, text = self.wave(row), self._said(row)
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
        own = super().learns_from
        return own if self.teacher is None else {**own, "teacher": model_of(self.teacher) / HEAD_FILE}

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:
        """Raise UserError where the text would reach the teacher's voice as other vectors than those it has learnt."""
        from ernie.model.config import EncoderConfig
        from ernie.model.inference import tokenizer_of
        from ernie.model.pretrained import CONFIG_FILE, TOKENIZER_FOLDER

        if self.teacher is None:
            return
        folder, (_, known_id) = model_of(self.teacher), self._taught_by()
        instead = f"A flow reads as its teacher does: give --model {folder}"
        if load_tokenizer(folder / TOKENIZER_FOLDER).fingerprint != tokenizer_of(ernie).fingerprint:
            raise UserError(f"model: {encoder} has another vocabulary than the teacher, {self.teacher}. {instead}.")
        known = EncoderConfig.read(folder / CONFIG_FILE)
        for name, value in asdict(known).items():
            own = getattr(ernie.config, name)
            if name not in _BEFORE_LEARNING and own != value:
                raise UserError(
                    f"model: {encoder} has {name} {own}, the teacher, {self.teacher}, has {value}. {instead}."
                )
        if task_id != known_id:
            raise UserError(
                f"train.task_id: is {task_id}, and the teacher, {self.teacher}, has learnt with {known_id}; set it so"
            )

    def _taught_by(self) -> tuple[Synthesize, int]:
        """The teacher's task, and the id of its task embedding.  Raises UserError where it is no such run."""
        assert self.teacher is not None
        teacher, task_id = read_task(model_of(self.teacher))
        if not isinstance(teacher, Synthesize) or teacher.vocoder != "wavenet":
            raise UserError(f"teacher: {self.teacher} is no run of the kind synthesize whose vocoder is wavenet")
        return teacher, task_id

    def _as_taught(self) -> Synthesize:
        """The task with what its teacher has learnt from rows.  Raises UserError where the two differ in shape."""
        teacher, _ = self._taught_by()
        voice = replace(teacher.voice, flows=self.voice.flows, flow=self.voice.flow)
        if (teacher.features, voice) != (self.features, self.voice):
            raise UserError(
                f"teacher: {self.teacher} has other features, or a voice of another shape; only `flows` and `flow` may "
                "differ"
            )
        if self.max_len > teacher.max_len:
            raise UserError(
                f"max_len: is {self.max_len}, and the teacher, {self.teacher}, has learnt texts of {teacher.max_len} "
                "tokens at most; set it so"
            )
        learnt = {name: getattr(teacher, name) for name in ("mean", "deviation", "pace", "loudness")}
        for name, known in learnt.items():
            if (given := getattr(self, name)) and given != known:
                raise UserError(f"{name}: is that of the teacher, {known}; take the key out")
        words = [read_dictionary(file) if file else {} for file in (self.dictionary, teacher.dictionary)]
        if self.dictionary and words[0] != words[1]:
            raise UserError(
                f"dictionary: {self.dictionary} differs from what the teacher, {self.teacher}, has learnt with, "
                f"{teacher.dictionary or 'which is no dictionary'}; take the key out, and the teacher's is used"
            )
        return replace(self, **learnt, dictionary=teacher.dictionary)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        if self.dictionary:
            with about("task.dictionary"):  # and not the first row that is looked up in it
                read_dictionary(self.dictionary)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        ids = tokenizer.encode(self._said(row)).ids
        cut = max(0, len(ids) + 2 - self.max_len)
        return Example((single(tokenizer, ids[: self.max_len - 2]),), cut=cut, empty=not len(ids))

    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.judged(row, tokenizer)
        wave = self.truth(row)
        (sample,) = given.samples
        if tokenizer.unk_id in sample.ids:
            raise UserError(
                f"column '{self.text}': the vocabulary lacks characters of '{self._said(row)}'; train a tokenizer on "
                "the texts, as they are or as the dictionary writes them"
            )
        if wave.seconds > self.longest:
            raise UserError(
                f"column '{self.audio}': the sound is {wave.seconds:.1f} s long, and longest is {self.longest:g}; "
                "raise it, or cut the sound where nothing is said"
            )
        sample = replace(sample, sound=partial(self.samples, row), labels={"steps": self._steps(wave)})
        odd = [f"sound that {remark}" for remark in wave.remarks]
        if self.dictionary and not all_known(row.text(self.text), read_dictionary(self.dictionary)):
            odd.append("words that the dictionary lacks, which stay as they are")
        return replace(given, samples=(sample,), odd=tuple(odd))

    def judged(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.example(row, tokenizer)
        if given.cut:
            raise UserError(
                f"column '{self.text}': the text has {given.tokens + given.cut:,} tokens, and max_len is "
                f"{self.max_len}: the sound would say words that the text lacks; raise max_len, or part text and sound"
            )
        return given

    def truth(self, row: Row) -> Wave:
        return self.wave(row)

    def answered(self, answer: Answer) -> Wave:
        return as_wave(answer["audio"], self.features.rate, "the answer")

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

    def begin(self, ernie: ErnieModel, head: Any) -> None:
        head.begin()
        if self.teacher is not None:
            _taught(ernie, head, model_of(self.teacher))

    def drawn(self, batch: Packed, training: bool) -> Packed:
        """The batch with the sounds up to the end of their last steps, and their features."""
        if not batch.sounds:
            return batch
        sounds = [np.pad(sound, (0, self._filled(len(sound)) - len(sound))) for sound in batch.sounds]
        # A frame lies in the middle of the samples that are made of it.
        around = self.features.window_samples - self.features.hop_samples
        sides = (around // 2, around - around // 2)
        found = [features(self.features, np.pad(sound, sides), self.around) for sound in sounds]
        frames = Frames(np.concatenate(found), Layout.of_lengths([len(one) for one in found]))
        return replace(batch, sounds=tuple(sounds), frames=frames)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        with self._as_it_speaks(ernie):
            return ernie.encode_packed(batch, task_id)

    def judge(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import Loss
        from ernie.model.voice_loss import frame_loss

        with self._as_it_speaks(head.decoder):
            told, text, frames_NFM, steps = self.told(head, hidden_TD, batch)
        states_NFD = told.states if self.end_to_end else told.states.detach()
        total = self.sound_loss(head, states_NFD, steps, batch)
        if self.vocoder == "wavenet":
            total = total + frame_loss(told, text, frames_NFM, steps)
        return Loss(total, batch.layout.sequences, None, batch.labels["steps"].values)

    def told(self, head: VoiceHead, hidden_TD: Tensor, batch: Packed) -> tuple[Told, Text, np.ndarray, np.ndarray]:
        """What the decoder tells of each step where it knows those before it, of which text; the features that were
        spoken, zero behind the last step, (N, F, M), and how many steps each sound has, (N,)."""
        text = head.decoder.read(hidden_TD, batch.ids, batch.layout)
        frames_NFM, steps = self._in_steps(batch)
        before_NFM = np.pad(frames_NFM, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        return head.decoder(_tensor(before_NFM), text), text, frames_NFM, steps

    def _as_it_speaks(self, layer: nn.Layer) -> AbstractContextManager[None]:
        """A layer of the teacher forgets nothing while a flow learns: what it told the flow would not be what it tells
        where it speaks."""
        from ernie.model.inference import evaluating

        return evaluating(layer) if self.leaves_encoder else nullcontext()

    def sound_loss(self, head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, batch: Packed) -> Tensor:
        """The loss of the vocoder on a stretch of each sound, which begins where the sound's name decides."""
        from ernie.model import voice_loss

        context = head.wavenet.config.context
        if self.vocoder == "flow":
            assert head.flow is not None
            context += head.flow.context
        generators = [order.generator(0, "stretch", *name.tolist()) for name in batch.samples]
        free = np.maximum(1, steps - self.crop_steps + 1)
        first = np.array([rng.integers(count) for rng, count in zip(generators, free, strict=True)])
        stretch = voice_loss.Stretch(first, self.crop_steps)
        given_NSH = voice_loss.conditioners(head, states_NFD, steps, stretch, context)
        samples_NS, *known = voice_loss.stretches(batch, stretch, self.step_samples, context)
        inside_NR, begun_NS = map(_tensor, known)
        noise_NS = np.stack([rng.standard_normal(samples_NS.shape[1]) for rng in generators])
        if self.vocoder == "wavenet":
            dither_NS = _tensor(self.dither * self.loudness * noise_NS) if self.dither else None
            return voice_loss.likelihood_loss(head, given_NSH, _tensor(samples_NS), inside_NR, begun_NS, dither_NS)
        return voice_loss.flow_loss(
            head,
            given_NSH,
            _tensor(samples_NS[:, context:]),
            inside_NR,
            begun_NS,
            _tensor(noise_NS),
            self.features,
            self.apart,
            self.spectral,
        )

    def _in_steps(self, batch: Packed) -> tuple[np.ndarray, np.ndarray]:
        assert batch.frames is not None
        layout = batch.frames.layout
        steps = layout.lengths // self.voice.reduction
        found = np.zeros((layout.sequences, steps.max(), self.voice.reduction * self.features.features), np.float32)
        each = np.split(batch.frames.features, layout.offsets[1:-1])
        for row, own, count in zip(found, each, steps, strict=True):
            row[:count] = own.reshape(count, -1)
        return found, steps

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        answers: list[Answer] = []
        for example in examples:
            parts = list(self.spoken(ernie, head, example.samples[0].ids, task_id))
            samples = np.concatenate(parts) if parts else np.zeros(0, np.float32)
            array = [round(float(sample), _DIGITS) for sample in samples]
            answers.append({"audio": {"array": array, "sampling_rate": self.features.rate}})
        return answers

    def spoken(
        self,
        ernie: ErnieModel,
        head: VoiceHead,
        ids: np.ndarray,
        task_id: int,
        *,
        vocoder: str | None = None,
        seed: int = 0,
        chunk: int | None = None,
    ) -> Iterator[np.ndarray]:
        """The samples of a text's tokens, in pieces of `chunk` steps, by default of a quarter of a second.

        `vocoder` is another than the kind's own, `seed` that of the noise which samples are made of.
        """
        import paddle

        from ernie.data.batch import pack
        from ernie.data.document import Sample
        from ernie.decode.speaking import AllAtOnce, OneByOne, speak

        rng = np.random.default_rng(seed)
        chosen = vocoder or self.vocoder
        maker = OneByOne(head.wavenet, rng) if chosen == "wavenet" or head.flow is None else AllAtOnce(head.flow, rng)
        with paddle.no_grad():
            encoded_LD = ernie.encode_packed(pack([Sample(ids, np.zeros(len(ids), np.int64))]), task_id)
        steps = chunk or max(1, round(0.25 * self.features.rate / self.step_samples))
        yield from speak(head, encoded_LD, ids, maker, steps)

    def _said(self, row: Row) -> str:
        text = row.text(self.text)
        return pronounced(text, read_dictionary(self.dictionary)) if self.dictionary else text

    def _filled(self, samples: int) -> int:
        return -(-samples // self.step_samples) * self.step_samples

    def _steps(self, wave: Wave) -> int:
        return self._filled(len(wave.samples)) // self.step_samples


def _rounded(value: float) -> float:
    """With so many digits that the order of the rows does not show."""
    return float(f"{value:.{_DIGITS}g}")


def _tensor(values: np.ndarray) -> Tensor:
    import paddle

    return paddle.to_tensor(values.astype(np.float32))


def _taught(ernie: ErnieModel, head: VoiceHead, folder: Path) -> None:
    """Give an encoder and its head the voice of a model, which is to stay as it is; only the flow learns."""
    from ernie.model.ernie import ErnieModel
    from ernie.model.weights import arrays, read_arrays, set_weights

    set_weights(ernie, arrays(ErnieModel.from_pretrained(folder)), str(folder))
    assert head.flow is not None
    own = {f"flow.{name}": value for name, value in arrays(head.flow).items()}
    set_weights(head, read_arrays(folder / HEAD_FILE) | own, str(folder))
    learning = {id(parameter) for parameter in head.flow.parameters()}
    for parameter in (*ernie.parameters(), *head.parameters()):
        parameter.stop_gradient = id(parameter) not in learning
