"""The settings of a speech synthesis, and what they mean for a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ernie.audio.features import FeatureConfig
from ernie.audio.voice import VocoderName, VoiceConfig
from ernie.errors import UserError
from ernie.renames import formerly
from ernie.text.spoken_form import SpokenLanguage
from tasks.downstream.hooks import SizedHead
from tasks.downstream.metrics import mcd
from tasks.downstream.sound import SoundTask


@dataclass(frozen=True, kw_only=True)
class SynthesizeSettings(SoundTask, SizedHead):
    """What a speech synthesis is set to.

    `text` is the column of texts.  `dictionary` is a file in the format of the CMU dictionary, by which words are
    transcribed.  Without one, and for words that it lacks, they stay as they are.  `text_normalization` writes numbers,
    dates, units and abbreviations as words of a language first.

    `voice` configures the networks that turn the frames of `features`, which a decoder predicts, into sound.
    `vocoder` says what generates the samples: a `wavenet` one after the other, a `flow` all of them in parallel.
    `griffin_lim` is not learned: phases are found that fit the frames.

    `crop` is the length in seconds of the segments on which a WaveNet is trained.  `input_noise_std` is the standard
    deviation of noise that is added to its input, in standard deviations of the samples.  From this noise the WaveNet
    learns to compensate for errors of its own (Valin and Skoglund, 2019, arXiv 1810.11846, section 3.5).  With
    `end_to_end` its loss also trains the decoder and the encoder, as in the paper; otherwise they are trained on frames
    alone.

    `teacher` is the run whose voice a flow is distilled from; nothing else is trained then, but for the pitch if it is
    given pulses, whose error is added to the loss.  The loss is the divergence between the two plus two terms.
    `log_std_penalty` weights the squared difference of their log deviations.  `spectral` weights the distance of the
    spectra of the flow's output from those of the recordings.  Both sounds are brought to a standard deviation of 0.1
    for that.  `spectral_windows` are lengths in seconds of windows whose spectra are compared beside those of
    `features`.

    `longest` is the length in seconds that no recording exceeds.  `pace` is the number of letters in a decoder step,
    and `loudness` the samples' standard deviation; the default of both is the mean over the train rows.  `learned` are
    the tokens that the voice can say, by default those of the train rows' texts.  A text with more than a tenth of
    others is refused.
    """

    text: str = "text"
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(window=0.05, hop=0.0125))
    voice: VoiceConfig = field(default_factory=VoiceConfig)
    dictionary: Path | None = None
    text_normalization: SpokenLanguage = "none"
    vocoder: VocoderName = "wavenet"
    teacher: Path | None = None
    crop: float = 0.5
    input_noise_std: float = field(default=0.0, metadata=formerly("dither"))
    end_to_end: bool = False
    log_std_penalty: float = field(default=4.0, metadata=formerly("apart"))
    spectral: float = 1.0
    spectral_windows: tuple[float, ...] = ()
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
        if (self.teacher is not None) != (self.vocoder == "flow"):
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
        if self.voice.pulses and self.vocoder != "flow":
            raise UserError("voice.pulses: are given to a flow; give vocoder: flow and a teacher, too")
        if self.spectral_windows and self.vocoder != "flow":
            raise UserError("spectral_windows: compare the spectra of a flow; give vocoder: flow and a teacher, too")
        if self.spectral_windows and not self.spectral:
            raise UserError("spectral_windows: with spectral: 0 no spectra are compared; drop either")
        rate, segment = self.features.sample_rate, self.crop_steps * self.step_samples
        for seconds in self.spectral_windows:
            if not 4 <= round(seconds * rate) <= segment:
                raise UserError(
                    f"spectral_windows: expected from {4 / rate:g} s, four samples, to {segment / rate:g} s, a segment "
                    f"of the length that crop asks for; found {seconds:g}"
                )
        for name in ("log_std_penalty", "spectral", "input_noise_std", "pace", "loudness"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}: expected at least 0, found {getattr(self, name):g}")
        if self.features.kind == "kaldi":
            raise UserError("features.kind: kaldi is for recognition; sound is made of log_mel or linear features")
        if self.features.normalize not in ("global", "none"):
            raise UserError(
                f"features.normalize: {self.features.normalize} takes the loudness from what is to be said; choose "
                "global or none"
            )

    @property
    def step_samples(self) -> int:
        """The number of samples in a decoder step."""
        return self.voice.reduction * self.features.hop_samples

    @property
    def crop_steps(self) -> int:
        """The number of steps in a training segment of the vocoder."""
        return max(1, round(self.crop * self.features.sample_rate / self.step_samples))

    def padded_length(self, samples: int) -> int:
        """Return the number of samples in the whole decoder steps that hold `samples` samples."""
        return -(-samples // self.step_samples) * self.step_samples

    def least_weights(self, width: int) -> int:
        if self.vocoder == "griffin_lim":
            return 0
        flows = self.voice.flows * self.voice.flow.least_weights if self.vocoder == "flow" else 0
        return self.voice.wavenet.least_weights + flows
