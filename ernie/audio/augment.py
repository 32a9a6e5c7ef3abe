"""Data augmentation of sound, which keeps a model from memorizing single recordings.

Legend: S samples of sound, F frames, M features of a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ernie.audio.convert import resample
from ernie.audio.features import mel
from ernie.audio.recordings import drawn_part, drawn_response, recordings, response_of, seconds_of
from ernie.config import check_least
from ernie.errors import UserError, about
from ernie.renames import formerly

_MOST_DECIBELS = 60
_WINDOW, _REACH = 0.032, 0.008  # seconds, of the windows of a stretched sound
_LONGEST_ROOM = 10.0  # seconds, as in a cathedral
_MOST_DIRECT = 12.0  # decibels by which echoes are weaker than the direct sound
_BANDS = (3, 6)  # of an equalizer, at least and at most
_RINGING = 0.1  # seconds before and after a click, beyond which an equalizer leaves less than -34 dB of it
_MOST_EQUALIZED = 20.0  # decibels


@dataclass(frozen=True)
class AugmentConfig:
    """The augmentation of training recordings, sampled anew in every epoch.

    `speed`: the maximum relative change of speed, sampled for each recording (Ko et al., 2015).  `pitch`: the maximum
    relative change of all frequencies of the voice without one of speed.  `vocal_tract`: that of the features' bands,
    as a speaker with a longer or shorter vocal tract has them (VTLP: Jaitly and Hinton, 2013).  `room` is the range of
    the reverberation time in seconds, such as [0.1, 0.6].  `noise` is that of the ratio of signal to noise in decibels,
    such as [5, 30].  Echoes and noise are computed, unless `room_files` or `noise_files` name recordings:
    files, folders or patterns.  Each of the former holds the response to an impulse.  `room_fraction` and
    `noise_fraction` of the sounds, drawn anew in every epoch, get echoes and noise.  `equalizer` is the maximum change
    in decibels by which a microphone or a line makes some frequencies louder or quieter.  `volume` is the range of the
    change of loudness in decibels, such as [-20, 6]; [0, 0] changes nothing.  `time_masks` spans of up to `time_width`
    frames, and `freq_masks` bands of up to `freq_width` features, are masked (SpecAugment: Park et al., 2019, arXiv
    1904.08779).
    """

    speed: float = 0.0
    pitch: float = 0.0
    vocal_tract: float = 0.0
    room: tuple[float, float] | None = None
    room_files: tuple[str, ...] = ()
    room_fraction: float = 1.0
    noise: tuple[float, float] | None = None
    noise_files: tuple[str, ...] = ()
    noise_fraction: float = 1.0
    equalizer: float = 0.0
    volume: tuple[float, float] = (0.0, 0.0)
    time_masks: int = 0
    time_width: int = field(default=10, metadata=formerly("time"))
    freq_masks: int = field(default=0, metadata=formerly("bands"))
    freq_width: int = field(default=6, metadata=formerly("band"))

    def __post_init__(self) -> None:
        for name in ("speed", "pitch", "vocal_tract"):
            change = getattr(self, name)
            if not 0 <= change < 0.5:
                raise UserError(f"{name}: expected at least 0 and less than 0.5, found {change:g}")
            if change and not _hundredths(change):
                raise UserError(f"{name}: is counted in hundredths, and {change:g} is less than one; give 0.01, or 0")
        if self.room is not None and not 0 < self.room[0] <= self.room[1] <= _LONGEST_ROOM:
            raise UserError(
                "room: expected the shortest and the longest time of reverberation, above 0 and up to "
                f"{_LONGEST_ROOM:g} s, found [{self.room[0]:g}, {self.room[1]:g}]"
            )
        for name, what in (("noise", "ratio of signal to noise"), ("volume", "change")):
            low, high = getattr(self, name) or (0.0, 0.0)
            if not -_MOST_DECIBELS <= low <= high <= _MOST_DECIBELS:
                raise UserError(
                    f"{name}: expected the lowest and the highest {what}, from -{_MOST_DECIBELS} to "
                    f"{_MOST_DECIBELS} dB, found [{low:g}, {high:g}]"
                )
        if not 0 <= self.equalizer <= _MOST_EQUALIZED:
            raise UserError(f"equalizer: expected 0 to {_MOST_EQUALIZED:g} dB, found {self.equalizer:g}")
        if self.room is not None and self.room_files:
            raise UserError("room: is the reverberation of computed rooms; give it or room_files, not both")
        if self.noise_files and self.noise is None:
            raise UserError("noise_files: how loud is their noise? give noise, too, such as [5, 30] dB")
        for name, what, is_given in (("room", "echoes", self.has_room), ("noise", "noise", self.noise is not None)):
            fraction = getattr(self, f"{name}_fraction")
            if not 0 < fraction <= 1:
                raise UserError(f"{name}_fraction: expected more than 0 and at most 1, found {fraction:g}")
            if fraction < 1 and not is_given:
                raise UserError(f"{name}_fraction: says how many sounds get {what}, and none does; give {name}, too")
        check_least(self, time_masks=0, time_width=0, freq_masks=0, freq_width=0)

    @property
    def has_room(self) -> bool:
        """Whether sounds get echoes, computed or recorded."""
        return self.room is not None or bool(self.room_files)

    def check_files(self, rate: int) -> None:
        """Raise UserError if recordings are missing or cannot be read."""
        with about("augment.room_files"):
            for file in recordings(self.room_files):
                response_of(file, rate)
        with about("augment.noise_files"):
            for file in recordings(self.noise_files):
                seconds_of(file)


def _hundredths(change: float) -> int:
    """A relative change in hundredths, the unit of sampling: the resampler needs integer rates."""
    return round(100 * change)


def _is_chosen(fraction: float, rng: np.random.Generator) -> bool:
    """Whether a sound is one of this fraction of all; for all of them no number is drawn."""
    return fraction == 1 or bool(rng.random() < fraction)


def _percent(change: float, rng: np.random.Generator) -> int:
    """Draw a factor that differs from 100 percent by at most a relative change, in hundredths."""
    most = _hundredths(change)
    return 100 + int(rng.integers(-most, most + 1)) if most else 100


def varied(
    samples: np.ndarray,
    rate: int,
    config: AugmentConfig,
    rng: np.random.Generator,
    fits: Callable[[np.ndarray], bool] = lambda _: True,
) -> np.ndarray:
    """Change samples (S,) in all ways that can be heard, in turn: speed, pitch, room, noise, equalizer, volume.

    The speed stays where the faster or slower samples would not fit.
    """
    changed = perturb_speed(samples, rate, config, rng)
    kept = changed if fits(changed) else samples
    heard = in_room(shift_pitch(kept, rate, config, rng), rate, config, rng)
    noisy = add_noise(heard, rate, config, rng)
    return change_volume(equalized(noisy, rate, config, rng), config, rng)


def perturb_speed(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) a little faster or slower."""
    percent = _percent(config.speed, rng)
    return samples if percent == 100 else resample(samples, rate * percent, rate * 100)


def shift_pitch(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) with slightly higher or lower frequencies, and as fast as before.

    Those of the vocal tract, the formants, move as the pitch does: the stretched sound is resampled.
    """
    percent = _percent(config.pitch, rng)
    if percent == 100 or not len(samples):
        return samples
    shifted = resample(stretched(samples, rate, percent / 100), rate * percent, rate * 100)[: len(samples)]
    return np.pad(shifted, (0, len(samples) - len(shifted)))


def stretched(samples: np.ndarray, rate: int, factor: float) -> np.ndarray:
    """Return samples (S,) that last `factor` times as long with the same pitch.

    Windows of 32 ms overlap by half.  Each begins where the sound is most alike to what would follow the window before
    it, up to 8 ms from its place (WSOLA: Verhelst and Roelands, 1993, "An overlap-add technique based on waveform
    similarity for high quality time-scale modification of speech").
    """
    half, reach = max(2, round(_WINDOW * rate / 2)), round(_REACH * rate)
    count = round(factor * len(samples))
    padded = np.pad(samples, (reach, 2 * half + reach))
    rise = np.hanning(2 * half + 1)[:half].astype(np.float32)
    window = np.concatenate([rise, 1 - rise])
    found = np.zeros(count + 2 * half, np.float32)
    found[:half] = padded[reach : reach + half] * (1 - rise)  # the second half of a window before the first
    follows = padded[reach : reach + half]
    for at in range(0, count, half):
        low = min(round(at / factor), len(samples))  # in `padded`, `reach` before its place in `samples`
        likeness = np.correlate(padded[low : low + 2 * reach + half], follows, "valid")
        start = low + int(likeness.argmax())
        found[at : at + 2 * half] += window * padded[start : start + 2 * half]
        follows = padded[start + half : start + 2 * half]
    return found[:count]


def vocal_tract_warp(config: AugmentConfig, rng: np.random.Generator) -> float:
    """Draw the factor of all frequencies, for `ernie.audio.features.features`."""
    return _percent(config.vocal_tract, rng) / 100


def in_room(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) in a room: after the sound comes its reverberation, recorded, or one that fades exponentially.

    Computed echoes are Gaussian noise that falls by 60 dB in the reverberation time (Polack, 1988, "La transmission de
    l'énergie sonore dans les salles").  Their energy is 0 to 12 dB below that of the direct sound, drawn evenly.  The
    power of the whole stays that of the samples; what would sound on after their end is cut.
    """
    if not config.has_room or not _is_chosen(config.room_fraction, rng):
        return samples
    if config.room is None:
        response = drawn_response(recordings(config.room_files), rate, rng)
    else:
        response = _computed_response(config.room, rate, rng)
    return _as_strong(_convolved(samples, response), samples)


def _convolved(samples: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Return the convolution of samples (S,) with a response, as far as the samples go."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(max(1, len(samples) + len(response) - 1), real=True)
    spectra = [rfft(part.astype(np.float32), size) for part in (samples, response)]
    return irfft(spectra[0] * spectra[1], size)[: len(samples)]


def _computed_response(range_: tuple[float, float], rate: int, rng: np.random.Generator) -> np.ndarray:
    seconds, below = rng.uniform(*range_), rng.uniform(0.0, _MOST_DIRECT)
    times = np.arange(1, max(2, round(seconds * rate))) / rate
    echoes = rng.standard_normal(len(times)) * 10 ** (-3 * times / seconds)
    echoes *= 10 ** (-below / 20) / np.sqrt((echoes**2).sum())
    return np.concatenate([[1.0], echoes])


def add_noise(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Add noise to samples (S,): from recordings, or stationary.

    The power of the latter falls with the frequency f as 1 / f^b, where b is drawn evenly from 0 (white noise) to 2 (a
    rumble).
    """
    if config.noise is None or not len(samples) or not _is_chosen(config.noise_fraction, rng):
        return samples
    decibels = rng.uniform(*config.noise)
    if config.noise_files:
        noise = drawn_part(recordings(config.noise_files), len(samples), rate, rng)
    else:
        noise = _computed_noise(len(samples), rng)
    wanted, found = _power(samples) * 10 ** (-decibels / 10), _power(noise)
    return (samples + noise * np.sqrt(wanted / found)).astype(np.float32) if found else samples


def _computed_noise(count: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.fft import irfft, next_fast_len, rfft

    fall, size = rng.uniform(0.0, 2.0), next_fast_len(count, real=True)
    spectrum = rfft(rng.standard_normal(size, dtype=np.float32))
    spectrum *= np.maximum(np.arange(len(spectrum), dtype=np.float32), 1.0) ** np.float32(-fall / 2)
    spectrum[0] = 0.0  # no offset
    return irfft(spectrum, size)[:count]


def equalized(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) through a microphone or a line that does not pass all frequencies alike; the power stays.

    Across three to six bands with edges drawn evenly from the mel scale the gain in decibels changes along straight
    lines, as in FilterAugment (Nam et al., 2022, arXiv 2110.03282).
    """
    if not config.equalizer or not len(samples):
        return samples
    from scipy.fft import irfft, next_fast_len, rfft

    bands, highest = int(rng.integers(_BANDS[0], _BANDS[1] + 1)), float(mel(rate / 2))
    edges = np.concatenate([[0.0], np.sort(rng.uniform(0.0, highest, bands - 1)), [highest]])
    decibels = rng.uniform(-config.equalizer, config.equalizer, bands + 1)
    size = next_fast_len(len(samples) + round(2 * _RINGING * rate), real=True)
    spectrum = rfft(samples.astype(np.float32), size)
    gain = 10 ** (np.interp(mel(np.linspace(0, rate / 2, len(spectrum))), edges, decibels) / 20)
    return _as_strong(irfft(spectrum * gain.astype(np.float32), size)[: len(samples)], samples)


def _as_strong(changed: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Scale changed samples to the power of the samples before; silence stays as it was."""
    power = _power(changed) if len(changed) else 0.0
    return changed * np.float32(np.sqrt(_power(samples) / power)) if power else samples


def _power(samples: np.ndarray) -> float:
    """The mean power of samples."""
    return float((samples.astype(np.float64) ** 2).mean())


def change_volume(samples: np.ndarray, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) louder or quieter, by a number of decibels drawn evenly from the range."""
    if not any(config.volume):
        return samples
    return samples * np.float32(10 ** (rng.uniform(*config.volume) / 20))


def mask_spectrum(
    features_FM: np.ndarray, config: AugmentConfig, rng: np.random.Generator, mean: np.ndarray | float = 0.0
) -> np.ndarray:
    """Mask time spans and frequency bands of features (F, M), at most a third of each axis in total.

    Masked values are set to the `mean` (M,), which is zero for normalized features: any other value would be a signal
    (Park et al., 2019, section 2).
    """
    masked_FM = features_FM.copy()
    mean_FM = np.broadcast_to(mean, masked_FM.shape)
    for target, fill, count, max_width in (
        (masked_FM, mean_FM, config.time_masks, config.time_width),
        (masked_FM.T, mean_FM.T, config.freq_masks, config.freq_width),  # views: masking them masks the originals
    ):
        size = len(target)
        max_width = min(max_width, size // (3 * count)) if count else 0
        for _ in range(count):
            width = int(rng.integers(0, max_width + 1))
            first = int(rng.integers(0, size - width + 1))
            target[first : first + width] = fill[first : first + width]
    return masked_FM
