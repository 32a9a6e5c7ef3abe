"""Speech from eSpeak NG, a synthesizer by rules, through its C library (https://github.com/espeak-ng/espeak-ng)."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from typing import NamedTuple

import espeakng_loader
import numpy as np
import soxr

RATE = 8000  # samples a second
ACCENTS = ("en", "en-us", "en-gb-x-rp")
TIMBRES = ("", "m1", "m3", "m4", "m7", "f1", "f2", "f3", "f5")
HELD_OUT = ("m2", "f4")  # timbres that only speak dev and test
_RETRIEVED, _UTF8 = 2, 1  # what the library calls AUDIO_OUTPUT_SYNCHRONOUS and espeakCHARS_UTF8
_SPEED, _PITCH, _RANGE = 1, 3, 4  # espeakRATE, espeakPITCH, espeakRANGE
_ON_SOUND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Voice(NamedTuple):
    """A voice of eSpeak NG: words a minute, pitch and its range from 0 to 99."""

    name: str
    speed: int = 150
    pitch: int = 50
    variation: int = 50


def drawn_voice(rng: random.Random, timbres: tuple[str, ...]) -> Voice:
    """An English voice of one of the timbres; accent, speed, pitch and melody are drawn."""
    timbre = rng.choice(timbres)
    name = rng.choice(ACCENTS) + (f"+{timbre}" if timbre else "")
    return Voice(name, rng.randint(120, 180), rng.randint(30, 70), rng.randint(30, 70))


class Synthesizer:
    """Speaks one text after the other."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
        self._rate = self._library.espeak_Initialize(_RETRIEVED, 0, str(espeakng_loader.get_data_path()).encode(), 0)
        self._pieces: list[np.ndarray] = []
        self._callback = _ON_SOUND(self._receive)  # must live as long as the library may call it
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, voice: Voice) -> np.ndarray:
        """The samples of a text at 8 kHz, float32 from -1 to 1."""
        if self._library.espeak_SetVoiceByName(voice.name.encode()):
            raise LookupError(f"eSpeak NG has no voice {voice.name}")
        for parameter, value in ((_SPEED, voice.speed), (_PITCH, voice.pitch), (_RANGE, voice.variation)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._pieces.clear()
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8, None, None)
        return soxr.resample(np.concatenate(self._pieces).astype(np.float32) / 32768, self._rate, RATE)

    def _receive(self, samples: ctypes._Pointer[ctypes.c_short], count: int, events: int) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0


def recorded(sounds: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The sounds as a microphone in a room records them: with pauses, quieter, with some echo and noise."""
    pauses = [np.zeros(int(RATE * rng.uniform(0.3, 0.8)), np.float32) for _ in range(len(sounds) + 1)]
    sound = np.concatenate([*(part for pair in zip(pauses, sounds, strict=False) for part in pair), pauses[-1]])
    if rng.random() < 0.3:
        time = np.arange(int(RATE * 0.2)) / RATE
        echo = rng.normal(0, 1, len(time)) * np.exp(-time / rng.uniform(0.02, 0.06))
        echo *= rng.uniform(0.1, 0.5) / np.sqrt(np.sum(echo**2))
        sound = sound + np.convolve(sound, echo)[: len(sound)]
    loudness = 10 ** rng.uniform(-1.5, -0.3) / max(np.abs(sound).max(), 1e-3)
    noise = 10 ** rng.uniform(-5, -2.7) * rng.normal(0, 1, len(sound))
    return np.clip(sound * loudness + noise, -1, 1).astype(np.float32)


def with_hiss(sound: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The sound with faint noise, without which a silence would be the same number again and again."""
    return np.clip(sound + 0.003 * rng.normal(0, 1, len(sound)), -1, 1).astype(np.float32)
