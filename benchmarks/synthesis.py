"""Does the encoder learn to speak?  Digits in the voice of one speaker, and whether they are understood.

  python benchmarks/synthesis.py --data DATA --output runs/synthesis [--recognizer RUN] [--seeds 0] [--epochs 24 8]

DATA has speech_fsdd/recordings/DIGIT_SPEAKER_NUMBER.wav (Free Spoken Digit Dataset, 8 kHz). Strings of 2 to 5 digits of
one speaker are learnt from the recordings 5 to 49, letter by letter, and spoken beside strings of those from 0 to 4.
`wavenet` learns all of it, and so does `phonemes`, which reads how words sound (nltk_corpora/cmudict.zip); from the
voice of the former `flow` learns to make all samples at once, and so do `no apart`, without the regularization of the
divergence, and `no spectra`, without the loss on spectra. --epochs are those of the first two and of the flows. RUN is
one of benchmarks/recognition.py, which learnt from recordings of all speakers and from nothing that was made here: it
is asked for what the voice says, for the recordings of the same strings, and, to tell which half of a voice is at
fault, for the decoder's frames, of which Griffin and Lim's method (1984) makes sound in the vocoder's place. What is
done is kept, so that the command goes on where it was cut; what came out of each arm is a small file under `--records`
(by default in OUTPUT).

Set before the first run: held-out samples have a likelihood at least 0.2 nats better than by linear prediction of order
16; the flow is at least 20 times as fast as the WaveNet, and its spectra, of the same frames, at most 1.3 times as far
from the recordings as the WaveNet's; without the regularization the largest gradient is at least 5 times as many times
the median, without the loss on spectra the power is 3 dB off; of the digits that are spoken at most 20 % are not
understood.  (As fast as the WaveNet was then, whose loop was one of NumPy; it now takes a fifth of the time.)
"""

from __future__ import annotations

import argparse
import statistics
import time
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import soundfile
from evidence import kept, slug
from fine_tuned import fine_tuned, knows_nothing, letter_pieces
from recognition import RATE, SHORT, WORDS, read_table, said
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter

from ernie.audio.features import PREEMPHASIS, mel_bank
from ernie.audio.wave import read_wave
from ernie.data.batch import pack
from ernie.data.labelled.row import Row
from ernie.decode.speaking import AllAtOnce, OneByOne, Vocoder, steps_of
from ernie.model.voice_loss import Stretch, conditioners, likelihood_loss, magnitudes, stretches
from ernie.text.pronounce import read_dictionary
from ernie.train.settings import AdamConfig
from ernie.train.trainer import Trainer
from finetune.model import FinetunedModel
from tasks.downstream.measures import wer
from tasks.downstream.synthesize import Synthesize

SPEAKER = "jackson"
TESTED = range(5)  # the numbers of the recordings to test on
# Seconds of each string that samples are learnt from at a time: so little that the decoder gets many steps.
CROP = 0.15
STRINGS = {"train": 1200, "dev": 1, "test": 40}
SHAPE: dict[str, Any] = {"layers": 2, "hidden_size": 128, "heads": 4, "intermediate_size": 512, "max_positions": 128}
ARMS: dict[str, dict[str, Any]] = {
    "wavenet": {},
    "end to end": {"end_to_end": True},
    "phonemes": {},
    "flow": {"vocoder": "flow"},
    "no apart": {"vocoder": "flow", "apart": 0.0},
    "no spectra": {"vocoder": "flow", "spectral": 0.0},
}
ORDER, FRAME = 16, 240  # of the linear prediction: samples that it sees, samples of a frame with weights of its own
LOUDER = 3.0  # decibels
STEPS = 60  # whose gradients are looked at
TURNS = 40  # of Griffin and Lim's method


def main() -> None:
    """Run what is missing and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--recognizer", type=Path, metavar="RUN")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,))
    parser.add_argument("--epochs", type=int, nargs=2, default=(24, 8))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = "epochs-{}-{}".format(*arguments.epochs)
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    strings = written(arguments.data / "speech_fsdd" / "recordings", arguments.output / "strings")
    fresh = beginning(arguments.output / "fresh", "".join(WORDS))

    def record(arm: str, seed: int) -> dict[str, Any]:
        teacher, fast = folder / f"wavenet-{seed}", "vocoder" in ARMS[arm]
        task, begins = {"kind": "synthesize", "crop": CROP, **ARMS[arm]}, fresh
        if fast:
            task["teacher"] = str(teacher.resolve())
        if arm == "phonemes":
            words = pronunciations(arguments.data / "nltk_corpora" / "cmudict.zip", arguments.output / "words.dict")
            task["dictionary"] = str(words.resolve())
            sounds = " ".join(read_dictionary(words).values()).lower().split()
            begins = beginning(arguments.output / "fresh-phonemes", sounds)
        run = folder / f"{slug(arm)}-{seed}"
        data = {split: str(strings / f"{split}.tsv") for split in ("train", "dev")}
        epochs, dropout = arguments.epochs[fast], 0.0 if fast else 0.1
        fine_tuned(run, begins, task, data, seed, epochs=epochs, batch=8, dropout=dropout, evaluations=0)
        found = measured(run, strings)
        if arm in ("flow", "no apart"):
            found["largest gradient, in medians"] = spikes(run, strings, seed)
        if arguments.recognizer:
            found["not understood"] = misunderstood(run, strings, arguments.recognizer)
        return found

    for seed in arguments.seeds:
        for arm in arguments.arms:
            print(arm, seed, kept(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed)), flush=True)


def written(recordings: Path, folder: Path) -> Path:
    """Strings of digits as sound files, and a table for each split; they are the same in every run."""
    if not (folder / "test.tsv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[bool, dict[int, list[Path]]] = {}
        for file in sorted(recordings.glob(f"*_{SPEAKER}_*.wav")):
            digit, _, number = file.stem.split("_")
            names.setdefault(int(number) in TESTED, {}).setdefault(int(digit), []).append(file)
        rng = np.random.default_rng(0)
        for split, count in STRINGS.items():
            lines = ["audio\ttext"]
            for n in range(count):
                digits = rng.integers(0, 10, rng.integers(SHORT[0], SHORT[1] + 1))
                soundfile.write(folder / f"{split}-{n}.wav", said(names[split == "test"], digits, rng), RATE)
                lines.append(f"{split}-{n}.wav\t{' '.join(WORDS[digit] for digit in digits)}")
            (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def beginning(place: Path, letters: Iterable[str]) -> Path:
    """An encoder that knows nothing and reads these letters, or phonemes."""
    return knows_nothing(place, letter_pieces(letters), **SHAPE)


def pronunciations(archive: Path, place: Path) -> Path:
    """The lines of the CMU dictionary about the words that are said."""
    with zipfile.ZipFile(archive) as opened:
        lines = opened.read("cmudict/cmudict").decode().splitlines()
    place.write_text("".join(f"{line}\n" for line in lines if line.split()[0].lower() in WORDS), encoding="utf-8")
    return place


class Heard:
    """A recording of the test, and what the voice conditions its samples on where it knows the frames before."""

    def __init__(self, model: FinetunedModel, file: Path, text: str):
        task, head = model.task, model.head
        assert isinstance(task, Synthesize)
        samples = task.labelled(Row({"audio": str(file), "text": text}), model.tokenizer).samples
        batch = task.drawn(pack(list(samples)), training=False)
        hidden_TD = task.encode(model.ernie, head, batch, model.task_id)
        told, _, _, steps = task.told(head, hidden_TD, batch)
        whole, context = Stretch(np.zeros(1, np.int64), int(steps[0])), head.wavenet.config.context
        given_NSH = conditioners(head, told.states, steps, whole, context)
        found = map(paddle.to_tensor, stretches(batch, whole, task.step_samples, context))
        self.nats = float(likelihood_loss(head, given_NSH, *found))
        self.samples, self.conditioner = batch.sounds[0], given_NSH.numpy()[0, context:]


@paddle.no_grad()
def measured(run: Path, strings: Path) -> dict[str, Any]:
    """What is measured of a voice on recordings that it has not learnt from."""
    model = FinetunedModel.load(run)
    task, head = model.task, model.head
    assert isinstance(task, Synthesize)
    rows = list(read_table(strings / "test.tsv"))
    heard = [Heard(model, file, text) for file, text in rows]
    found: dict[str, Any] = {"nats a sample": statistics.mean(one.nats for one in heard)}
    if task.vocoder == "wavenet":
        sounds = [one.samples for one in heard]
        learnt = [read_wave(file, RATE).samples for file, _ in read_table(strings / "train.tsv")][:200]
        found["nats by linear prediction"] = linear(learnt, sounds)
        found["nats by linear prediction of each frame"] = linear_by_frame(sounds)
    vocoder: Vocoder
    distances, seconds, power = [], 0.0, []
    for one in heard[:10]:
        rng = np.random.default_rng(0)
        vocoder = AllAtOnce(head.flow, rng) if task.vocoder == "flow" else OneByOne(head.wavenet, rng)
        began = time.perf_counter()
        made = vocoder.more(one.conditioner)
        seconds += time.perf_counter() - began
        spectra = [magnitudes(paddle.to_tensor(x[None]), task.features).numpy() for x in (made, one.samples)]
        logs = [np.log(np.maximum(spectrum, 1e-3)) for spectrum in spectra]
        distances.append(float(np.sqrt(((logs[0] - logs[1]) ** 2).mean())))
        power.append(10 * float(np.log10((made**2).mean() / (one.samples**2).mean())))
    length = sum(len(one.samples) for one in heard[:10]) / RATE
    found |= {
        "distance of spectra": statistics.mean(distances),
        "decibels louder": statistics.mean(power),
        "seconds for one": seconds / length,
    }
    return found


def spikes(run: Path, strings: Path, seed: int) -> float:
    """The largest gradient of the first steps of learning what a run learnt, as so many times their median."""
    learnt = FinetunedModel.load(run)
    task, ernie = learnt.task, learnt.ernie
    paddle.seed(seed)
    model = FinetunedModel(ernie, task)
    task.begin(ernie, model.head)
    rows = [Row({"audio": str(file), "text": text}) for file, text in read_table(strings / "train.tsv")]
    samples = [task.labelled(row, learnt.tokenizer).samples[0] for row in rows[: 8 * STEPS]]
    trainer = Trainer(model, AdamConfig(), clip=1.0, patience=STEPS, seed=seed)
    norms = []
    for step in range(STEPS):
        batch = pack(samples[8 * step : 8 * (step + 1)], np.array([(0, 8 * step + n, 0) for n in range(8)]))
        norms.append(trainer.step(step, [("task", batch)], lambda _, one: model.loss(one), 1e-3).gradient_norm)
    return max(norms) / statistics.median(norms)


def linear(learnt: list[np.ndarray], tested: list[np.ndarray]) -> float:
    """-log of the density of a sample by one linear prediction of order 16 with a Gaussian error, for all samples."""
    weights = predictor(np.concatenate(learnt))
    deviation = np.concatenate([errors(sound, weights) for sound in learnt]).std()
    away = np.concatenate([errors(sound, weights) for sound in tested])
    return float((0.5 * (away / deviation) ** 2).mean() + np.log(deviation) + 0.5 * np.log(2 * np.pi))


def linear_by_frame(tested: list[np.ndarray]) -> float:
    """The same where each frame of 30 ms has weights and an error of its own, which are made of that very frame."""
    found = []
    for sound in tested:
        padded = np.concatenate([np.zeros(ORDER, np.float32), sound])
        for first in range(0, len(sound) - FRAME, FRAME):
            frame = padded[first : first + ORDER + FRAME]
            away = errors(frame, predictor(frame))[ORDER:]
            deviation = max(away.std(), np.exp(-9.0))
            found.append((0.5 * (away / deviation) ** 2).mean() + np.log(deviation) + 0.5 * np.log(2 * np.pi))
    return float(np.mean(found))


def predictor(sound: np.ndarray) -> np.ndarray:
    """The weights of the samples before, the last one first, by autocorrelation."""
    exact = sound.astype(np.float64)
    correlation = np.array([exact[: len(exact) - lag] @ exact[lag:] for lag in range(ORDER + 1)])
    correlation[0] = correlation[0] * (1 + 1e-6) + 1e-9
    return solve_toeplitz(correlation[:-1], correlation[1:])


def errors(sound: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What a prediction is off at each sample; before the first one there is silence."""
    padded = np.concatenate([np.zeros(ORDER), sound.astype(np.float64)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, ORDER)[:-1]
    return sound - windows[:, ::-1] @ weights


def misunderstood(run: Path, strings: Path, recognizer: Path) -> dict[str, float]:
    """The word error rate of a recognizer on what the voice says, and on the recordings of the same strings."""
    voice, hears = FinetunedModel.load(run), FinetunedModel.load(recognizer)
    rows = list(read_table(strings / "test.tsv"))
    spoken = [answer["audio"] for answer in voice.predict([{"text": text} for _, text in rows])]
    for place, sound in enumerate(spoken[:3]):
        soundfile.write(run / f"spoken-{place}.wav", np.array(sound["array"], np.float32), RATE)
    right = [text for _, text in rows]
    frames = [{"array": without_vocoder(voice, text), "sampling_rate": RATE} for text in right]
    found = {}
    for name, sounds in (("spoken", spoken), ("frames", frames), ("recorded", [str(file) for file, _ in rows])):
        found[name] = wer(right, [answer["transcript"] for answer in hears.predict([{"audio": s} for s in sounds])])
    return found


@paddle.no_grad()
def without_vocoder(voice: FinetunedModel, text: str) -> list[float]:
    """A text as the voice's decoder tells its frames, and Griffin and Lim's method what they sound like."""
    task, head = voice.task, voice.head
    assert isinstance(task, Synthesize)
    assert task.around is not None
    batch = pack([task.example(Row({"text": text}), voice.tokenizer).samples[0]])
    read = head.decoder.read(task.encode(voice.ernie, head, batch, voice.task_id), batch.ids, batch.layout)
    config, (mean, deviation) = task.features, task.around.mean_and_deviation()
    told_FM = np.concatenate([told.frames.numpy().reshape(-1, config.bins) for told in steps_of(head, read)])
    transformed, width, hop = 2 * (config.frequencies - 1), config.window_samples, config.hop_samples
    bank_KM = np.linalg.pinv(mel_bank(config.rate, transformed, config.bins).toarray())
    powers_FK = np.exp(told_FM * deviation + mean) @ bank_KM.T
    magnitudes_FK = np.sqrt(np.maximum(powers_FK, 0))
    window = np.hanning(width)
    places = hop * np.arange(len(told_FM))[:, None] + np.arange(width)
    weights = np.bincount(places.ravel(), np.tile(window**2, len(told_FM)))
    phases_FK = np.random.default_rng(0).uniform(0, 2 * np.pi, magnitudes_FK.shape)
    for _ in range(TURNS):
        parts = np.fft.irfft(magnitudes_FK * np.exp(1j * phases_FK), transformed)[:, :width] * window
        sound = np.bincount(places.ravel(), parts.ravel()) / np.maximum(weights, 1e-3)
        phases_FK = np.angle(np.fft.rfft(sound[places] * window, transformed))
    return list(map(float, np.clip(lfilter([1], [1, -PREEMPHASIS], sound), -1, 1)))


if __name__ == "__main__":
    main()
