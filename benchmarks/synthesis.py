"""Does the encoder learn to speak?  Digits in the voice of one speaker, and whether a recognizer understands them.

  python benchmarks/synthesis.py --data DATA --output runs/synthesis --recognizer RUN [--seeds 0] [--arms ARM...]

DATA has speech_fsdd/recordings/DIGIT_SPEAKER_NUMBER.wav (Free Spoken Digit Dataset, 8 kHz). Voices are trained, letter
by letter, on strings of 2 to 5 digits of one speaker from recordings 5 to 24, and tested on strings from recordings 0
to 4. `wavenet` is a whole voice, and so is `phonemes`, whose input is the pronunciation of words
(nltk_corpora/cmudict.zip); `flow` is distilled from the voice of the former to generate all samples at once, and so are
`middle flow` and `short flow`, with three and two instead of four networks of half as many channels; `..., longer` has
three times as many steps, `..., long windows` compares spectra in windows of 0.1 s as well, and `..., pulses` is given
pulses of the pitch that it predicts; `middle flow, together` has all three, and learns from segments twice as long, in
which more of the long windows fit; `no apart` is a short flow without the regularization of the divergence, and `no
spectra` one without the loss on spectra.

--epochs are those of the first two and of the flows. RUN is a run of benchmarks/recognition.py, trained on recordings
of all speakers and on no synthetic sound: it recognizes the voice's speech, from several draws of noise, the recordings
of the same strings and, to find out which half of a voice is at fault, sound made from the decoder's frames by Griffin
and Lim's method (1984) in place of the vocoder, and sound that the vocoder makes of the recordings' frames. The
clearness of a voice is the mean of the highest normalized autocorrelation over the windows in which the recording is
voiced. Finished work is kept, so that an interrupted command resumes where it stopped; the results of each arm are a
small file under `--records` (by default in OUTPUT), and `spectrograms.png` beside them shows the first test recording
and what the voices made of its frames.

Set before the first run: held-out samples have a likelihood at least 0.2 nats better than by linear prediction of order
16; the flow is at least 20 times as fast as the WaveNet, and its spectra, of the same frames, are at most 1.3 times as
far from the recordings as the WaveNet's; without the regularization the largest gradient, as a multiple of the median,
is at least 5 times as large, without the loss on spectra the power is 3 dB off; at most 20 % of the spoken digits are
not understood. (When the speed was set, the WaveNet's loop was in NumPy, which takes five times as long. A flow and the
WaveNet that taught it are timed in turns, on the same frames.)

Set before the first run of more steps: `middle flow, longer` has less than 8 % of the words wrong, and a higher
clearness than `middle flow`; `middle flow, longer, long windows` has a still higher clearness, and no more of the words
wrong. Set before the first run of pulses: `middle flow, pulses` has a higher clearness than `middle flow`, at most half
of its error of F0, and fewer of the words wrong. Set before its first run: `middle flow, together` has less than 8 % of
the words wrong, and is at least 20 times as fast as the WaveNet, on two cores. That three networks of 16 are 20 times
as fast on two cores was found before (benchmarks/results/kernels.md).
"""

from __future__ import annotations

import argparse
import statistics
import time
import zipfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import paddle
import soundfile
from fine_tuned import fine_tuned, letter_pieces, untrained_small
from outcomes import report
from page_tables import GIVEN_FRAMES, synthesis
from recognition import RATE, SHORT, WORDS, concatenated, read_table
from record_files import Records, cached_record, slug, this_machine
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter

from ernie.audio.features import PREEMPHASIS, mel_bank
from ernie.audio.pitch import pitch_of_frames, voicing
from ernie.audio.wave import read_wave
from ernie.data.batch import pack
from ernie.data.labeled.row import Row
from ernie.decode.synthesis import ConditionerReader, FlowVocoder, Vocoder, WaveNetVocoder
from ernie.errors import UserError
from ernie.model.voice_loss import (
    MIN_LOG_SCALE,
    USUAL_LOUDNESS,
    Segment,
    Windows,
    conditioners,
    likelihood_loss,
    magnitudes,
    segment_samples,
)
from ernie.text.pronounce import read_dictionary
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer
from finetune.train.model import TrainingModel
from inference.task_model import TaskModel
from tasks.downstream.metrics import wer
from tasks.downstream.synthesis.answers import answer_all
from tasks.downstream.synthesis.loss import teacher_forced
from tasks.downstream.synthesize import Synthesize

SPEAKER = "jackson"
TESTED = range(5)  # numbers of the test recordings
CROP = 0.15  # seconds of each string whose samples are trained on in a step: few, so that the decoder gets many steps
STRINGS = {"train": 1200, "dev": 1, "test": 100}
NOISES = range(3)  # seeds of the noise from which the test strings are spoken
SHAPE: dict[str, Any] = {"layers": 2, "hidden_size": 128, "heads": 4, "intermediate_size": 512, "max_positions": 128}
SMALL: dict[str, Any] = {
    "vocoder": "flow",
    "voice": {"flows": 2, "flow": {"channels": 16, "stacks": 1, "depth": 8, "taps": 3}},
}
MIDDLE = {**SMALL, "voice": {**SMALL["voice"], "flows": 3}}
LONG: dict[str, Any] = {"spectral_windows": [0.1]}  # seconds, beside those of the features, 0.05
PULSES = {**MIDDLE, "voice": {**MIDDLE["voice"], "pulses": True}}


class Arm(NamedTuple):
    """The options of a task, and how many times as many epochs it has."""

    task: dict[str, Any]
    times: int = 1


ARMS = {
    "wavenet": Arm({}),
    "end to end": Arm({"end_to_end": True}),
    "phonemes": Arm({}),
    "flow": Arm({"vocoder": "flow"}),
    "middle flow": Arm(MIDDLE),
    "middle flow, longer": Arm(MIDDLE, 3),
    "middle flow, long windows": Arm(MIDDLE | LONG),
    "middle flow, longer, long windows": Arm(MIDDLE | LONG, 3),
    "middle flow, pulses": Arm(PULSES),
    "middle flow, longer, pulses": Arm(PULSES, 3),
    "middle flow, together": Arm(PULSES | LONG | {"crop": 2 * CROP}, 3),
    "short flow": Arm(SMALL),
    "no apart": Arm({**SMALL, "log_std_penalty": 0.0}),
    "no spectra": Arm({**SMALL, "spectral": 0.0}),
}
VOICE_TRAINING: dict[str, Any] = {"batch": 8}
FLOW_TRAINING: dict[str, Any] = {"batch": 4, "dropout": 0.0, "lr": {"peak": 2e-3, "warmup": 0.1}}
ORDER, FRAME = 16, 240  # of the linear prediction: past samples, and samples of a frame with its own weights
TARGETS = (
    "voice",
    "voice-likelihood",
    "flow",
    "middle-flow",
    "short-flow",
    "voice-longer",
    "voice-windows",
    "voice-pulses",
    "voice-together",
)
WITHOUT = ("voice-gradients", "voice-power")
HOP = RATE // 100  # samples from one window in which F0 is looked for to the next
STEPS = 60  # whose gradients are measured
TURNS = 40  # iterations of Griffin and Lim's method
TIMED = 10  # recordings whose frames both vocoders are timed with
DRAWN = 1000  # Hz up to which spectrograms are drawn


def main() -> None:
    """Run what is missing and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--recognizer", type=Path, metavar="RUN", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,))
    parser.add_argument("--epochs", type=int, nargs=2, default=(24, 8))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    try:
        listener = TaskModel.load(arguments.recognizer)
    except UserError as error:
        parser.error(f"--recognizer: {error}")
    if listener.task.variant_name != "transcribe":
        parser.error(f"--recognizer: expected a run of the kind transcribe, found {listener.task.variant_name}")
    name = "strings-{}-epochs-{}-{}".format(STRINGS["test"], *arguments.epochs)
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    strings = write_strings(arguments.data / "speech_fsdd" / "recordings", arguments.output / "strings")
    fresh = initial_encoder(arguments.output / "fresh", "".join(WORDS))

    def trained(arm: str, seed: int) -> Path:
        is_flow = "vocoder" in ARMS[arm].task
        task, encoder = {"kind": "synthesize", "crop": CROP, **ARMS[arm].task}, fresh
        if is_flow:
            task["teacher"] = str(trained("wavenet", seed).resolve())
        if arm == "phonemes":
            words = pronunciations(arguments.data / "nltk_corpora" / "cmudict.zip", arguments.output / "words.dict")
            task["dictionary"] = str(words.resolve())
            phonemes = " ".join(read_dictionary(words).values()).lower().split()
            encoder = initial_encoder(arguments.output / "fresh-phonemes", phonemes)
        run = folder / f"{slug(arm)}-{seed}"
        data = {split: str(strings / f"{split}.tsv") for split in ("train", "dev")}
        train = FLOW_TRAINING if is_flow else VOICE_TRAINING
        epochs = ARMS[arm].times * arguments.epochs[is_flow]
        return fine_tuned(run, encoder, task, data, seed, epochs=epochs, evaluations=0, **train)

    def record(arm: str, seed: int) -> dict[str, Any]:
        run = trained(arm, seed)
        results = measured(run, strings, listener)
        if arm in ("short flow", "no apart"):
            results["largest gradient, in medians"] = gradient_spikes(run, strings, seed)
        return results | understood(run, strings, listener)

    for seed in arguments.seeds:
        for arm in arguments.arms:
            cached_record(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed))
    runs = {arm: folder / f"{slug(arm)}-{arguments.seeds[0]}" for arm in ARMS}
    draw({arm: run for arm, run in runs.items() if (run / "made.wav").is_file()}, records / "spectrograms.png")
    report(Records(records), synthesis, targets=TARGETS + WITHOUT)


def write_strings(recordings: Path, folder: Path) -> Path:
    """Write strings of digits as sound files, and a table for each split; they are the same in every run."""
    table = folder / "test.tsv"
    if not (table.is_file() and len(list(read_table(table))) == STRINGS["test"]):
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[bool, dict[int, list[Path]]] = {}  # test or not, by digit
        for file in sorted(recordings.glob(f"*_{SPEAKER}_*.wav")):
            digit, _, number = file.stem.split("_")
            files.setdefault(int(number) in TESTED, {}).setdefault(int(digit), []).append(file)
        rng = np.random.default_rng(0)
        for split, count in STRINGS.items():
            lines = ["audio\ttext"]
            for n in range(count):
                digits = rng.integers(0, 10, rng.integers(SHORT[0], SHORT[1] + 1))
                soundfile.write(folder / f"{split}-{n}.wav", concatenated(files[split == "test"], digits, rng)[0], RATE)
                lines.append(f"{split}-{n}.wav\t{' '.join(WORDS[digit] for digit in digits)}")
            (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def initial_encoder(folder: Path, letters: Iterable[str]) -> Path:
    """The folder of an untrained encoder with a vocabulary of these letters or phonemes."""
    return untrained_small(folder, letter_pieces(letters), **SHAPE)


def pronunciations(archive: Path, file: Path) -> Path:
    """Write the lines of the CMU dictionary for the words of the strings."""
    with zipfile.ZipFile(archive) as opened:
        lines = opened.read("cmudict/cmudict").decode().splitlines()
    file.write_text("".join(f"{line}\n" for line in lines if line.split()[0].lower() in WORDS), encoding="utf-8")
    return file


class Heard:
    """A test recording: its samples, their negative log likelihood, and what vocoders are given by teacher forcing."""

    def __init__(self, model: TaskModel, file: Path, text: str):
        task, head = model.task, model.head
        assert isinstance(task, Synthesize)
        row = Row({"audio": str(file), "text": text})
        samples, length = task.training_example(row, model.tokenizer).samples, len(task.wave(row).samples)
        batch = task.augmented(pack(list(samples)), training=False)
        hidden_TD = task.encode(model.ernie, head, batch, model.task_id)
        predicted, _, _, steps = teacher_forced(task, head, hidden_TD, batch)
        whole, context = Segment(np.zeros(1, np.int64), int(steps[0])), head.wavenet.config.context
        given_NSH = conditioners(head, predicted.states, steps, whole, context)
        samples_NS, inside_NR, begun_NS = segment_samples(batch, whole, task.step_samples, context)
        inside_NR[:, length:] = 0  # what fills the last step
        found = map(paddle.to_tensor, (samples_NS, inside_NR, begun_NS))
        self.nats = float(likelihood_loss(head, given_NSH, *found))
        self.samples = batch.sounds[0][:length]
        conditioner = given_NSH.numpy()[0, context : context + length]
        self.given = [conditioner, conditioner]  # what a WaveNet, and what a flow is given
        if head.pitch is not None:
            around = np.pad(predicted.states.numpy(), [(0, 0), (head.bridge.reach, head.bridge.reach), (0, 0)])
            self.given[1] = ConditionerReader(head.bridge, head.pitch).read(around, [])[0, :length]


@paddle.no_grad()
def measured(run: Path, strings: Path, listener: TaskModel) -> dict[str, Any]:
    """The measurements of a voice on held-out recordings, also of what is understood of it if given their frames."""
    model = TaskModel.load(run)
    task, head = model.task, model.head
    assert isinstance(task, Synthesize)
    rows = list(read_table(strings / "test.tsv"))
    heard = [Heard(model, file, text) for file, text in rows]
    results: dict[str, Any] = {"nats a sample": statistics.mean(recording.nats for recording in heard)}
    if task.vocoder == "wavenet":
        test = [recording.samples for recording in heard]
        train = [read_wave(file, RATE).samples for file, _ in read_table(strings / "train.tsv")][:200]
        results["nats by linear prediction"] = linear(train, test)
        results["nats by linear prediction and recent errors"] = linear_and_recent(train, test)
        results["nats by linear prediction of each frame"] = linear_by_frame(test)
    vocoders: list[Vocoder] = [WaveNetVocoder(head.wavenet)]
    if task.vocoder == "flow":
        vocoders.append(FlowVocoder(head.flow, pulse_rate=None if head.pitch is None else RATE))
    loudness = USUAL_LOUDNESS / head.wavenet.loudness
    distances, power, pitches, seconds, copies = [], [], [], [], []
    in_turns(vocoders, heard[0].given)  # the first time takes longer
    for number, recording in enumerate(heard):
        first = 0 if number < TIMED else len(vocoders) - 1
        sounds, taken = in_turns(vocoders[first:], recording.given[first : len(vocoders)], backwards=number % 2 == 1)
        made = sounds[-1]
        copies.append({"array": made.tolist(), "sampling_rate": RATE})
        if number < TIMED:
            seconds.append(taken / (len(recording.samples) / RATE))
        if number == 0:
            for name, sound in (("made", made), ("recorded", recording.samples)):
                soundfile.write(run / f"{name}.wav", sound, RATE)
        spectra = [
            magnitudes(paddle.to_tensor(x[None]), Windows.of(task.features)).numpy() for x in (made, recording.samples)
        ]
        logs = [np.log(np.maximum(spectrum, 1e-3)) for spectrum in spectra]
        distances.append(float(np.sqrt(((logs[0] - logs[1]) ** 2).mean())))
        power.append(10 * float(np.log10((made**2).mean() / (recording.samples**2).mean())))
        pitches.append(np.stack([[*voicing(loudness * sound, RATE, HOP)] for sound in (made, recording.samples)]))
    each = np.array(seconds)
    if head.pitch is not None:
        results |= pitch_predicted(heard, vocoders[-1], task.features.hop_samples, loudness)
    return results | {
        GIVEN_FRAMES: wer([text for _, text in rows], heard_by(listener, copies)),
        "distance of spectra": statistics.mean(distances),
        "decibels louder": statistics.mean(power),
        **pitch_errors(np.concatenate(pitches, axis=2)),
        "seconds for one": float(np.median(each[:, -1])),
        "times as fast": float(np.median(each[:, 0] / each[:, -1])),
        "times as fast, each": [round(float(own), 2) for own in each[:, 0] / each[:, -1]],
        **this_machine(),
    }


def pitch_predicted(heard: Sequence[Heard], vocoder: Vocoder, hop: int, loudness: float) -> dict[str, float]:
    """How far the pitch that a voice predicts is from that of the recordings, and how clear it is if given theirs.

    Sounds are brought to the usual loudness by the factor `loudness`.
    """
    both, clearness = [], []
    for recording in heard:
        conditioner, predicted = recording.given[1], recording.given[1][::hop, -1]
        true = pitch_of_frames(loudness * np.pad(recording.samples, (0, hop)), RATE, hop)[: len(predicted)]
        both.append(np.stack([predicted, true]))
        given = np.concatenate([conditioner[:, :-1], np.repeat(true, hop)[: len(conditioner), None]], axis=1)
        (made,), _ = in_turns([vocoder], [given.astype(np.float32)])
        voiced = voicing(loudness * recording.samples, RATE, HOP)[0] > 0
        clearness.append(voicing(loudness * made, RATE, HOP)[1][voiced])
    predicted, true = np.concatenate(both, axis=1)
    voiced = (predicted > 0) & (true > 0)
    return {
        "cents of the predicted F0": float(np.median(1200 * np.abs(np.log2(predicted[voiced] / true[voiced])))),
        "predicted voice is wrong": float(((predicted > 0) != (true > 0)).mean()),
        "clearness with the true F0": float(np.concatenate(clearness).mean()),
    }


def pitch_errors(found: np.ndarray) -> dict[str, float]:
    """How far F0 of a voice and of recordings are apart, where both are voiced, and where only one is.

    `found` is what `voicing` finds in the voice and in the recordings, (2, 2, windows).
    """
    pitches, likeness = found[:, 0], found[:, 1]
    voiced = pitches > 0
    if not voiced[1].any():
        return {}
    clearness = {
        "clearness": float(likeness[0, voiced[1]].mean()),
        "clearness of the recordings": float(likeness[1, voiced[1]].mean()),
    }
    made, recorded = pitches[:, voiced.all(0)]
    if not len(made):
        return clearness
    cents = 1200 * np.abs(np.log2(made / recorded))
    either = voiced.any(0)
    return clearness | {
        "cents of F0": float(np.median(cents)),
        "F0 off by a fifth": float((np.abs(made / recorded - 1) > 0.2).mean()),
        "voiced in one only": float((voiced.sum(0) == 1)[either].mean()),
    }


def in_turns(
    vocoders: list[Vocoder], given: Sequence[np.ndarray], *, backwards: bool = False
) -> tuple[list[np.ndarray], np.ndarray]:
    """What each vocoder makes of what it is given, and the seconds it takes; the last one goes first `backwards`."""
    sounds, seconds = [np.zeros(0)] * len(vocoders), np.zeros(len(vocoders))
    noise = np.random.default_rng(0).standard_normal((1, len(given[0]))).astype(np.float32)
    for number in sorted(range(len(vocoders)), reverse=backwards):
        begun = vocoders[number].begin()
        start = time.perf_counter()
        _, (sounds[number],) = vocoders[number].more([begun], given[number][None], noise)
        seconds[number] = time.perf_counter() - start
    return sounds, seconds


def draw(runs: dict[str, Path], file: Path) -> None:
    """Draw the spectrograms of the first test recording and of what voices made of its frames, below each other."""
    sounds = {arm: run / "made.wav" for arm, run in runs.items()}
    if sounds:
        sounds = {"recording": next(iter(runs.values())) / "recorded.wav", **sounds}
        figure, rows = plt.subplots(len(sounds), figsize=(7, 1.5 * len(sounds)), sharex=True, squeeze=False)
        for axes, (label, sound) in zip(rows[:, 0], sounds.items(), strict=True):
            samples = soundfile.read(sound)[0]
            axes.specgram(samples + 1e-6, NFFT=400, noverlap=360, pad_to=1024, Fs=RATE, vmin=-110, vmax=-40)
            axes.set(ylim=(0, DRAWN), ylabel="Hz")
            axes.set_title(label, fontsize=9, loc="left")
        rows[-1, 0].set_xlabel("seconds")
        figure.tight_layout()
        figure.savefig(file, dpi=110)
        plt.close(figure)


def gradient_spikes(run: Path, strings: Path, seed: int) -> float:
    """The largest gradient norm over the first steps of training a new head on a run's encoder, in medians."""
    trained = TaskModel.load(run)
    task, ernie = trained.task, trained.ernie
    assert isinstance(task, Synthesize)
    paddle.seed(seed)
    model = TrainingModel(ernie, task)
    task.initialize(ernie, model.head)
    rows = [Row({"audio": str(file), "text": text}) for file, text in read_table(strings / "train.tsv")]
    samples = [task.training_example(row, trained.tokenizer).samples[0] for row in rows[: 8 * STEPS]]
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=STEPS, seed=seed)
    norms = []
    for step in range(STEPS):
        packed = pack(samples[8 * step : 8 * (step + 1)], np.array([(0, 8 * step + n, 0) for n in range(8)]))
        batch = task.augmented(packed, training=True)
        norms.append(trainer.step(step, [("task", batch)], lambda _, batch: model.loss(batch), 1e-3).gradient_norm)
    return max(norms) / statistics.median(norms)


def linear(train: list[np.ndarray], test: list[np.ndarray]) -> float:
    """Mean negative log density of a sample by a single linear prediction of order 16 with a Gaussian error."""
    weights = predictor(np.concatenate(train))
    deviation = np.concatenate([errors(sound, weights) for sound in train]).std()
    residuals = np.concatenate([errors(sound, weights) for sound in test])
    return float((0.5 * (residuals / deviation) ** 2).mean() + np.log(deviation) + 0.5 * np.log(2 * np.pi))


def linear_and_recent(train: list[np.ndarray], test: list[np.ndarray]) -> float:
    """The same with the variance of the last errors, so many as suit the training recordings best."""
    weights = predictor(np.concatenate(train))
    found, wanted = ([errors(sound, weights) for sound in sounds] for sounds in (train, test))
    usual = float(np.concatenate(found).var())
    return recent(wanted, usual, min((16, 32, 64, 128), key=lambda count: recent(found, usual, count)))


def recent(residuals: list[np.ndarray], usual: float, count: int) -> float:
    """Mean negative log density of errors, by a Gaussian with the mean square of the `count` errors before each.

    Before the first there are as many of the `usual` mean square.
    """
    nats = []
    for own in residuals:
        sums = np.cumsum([0.0, *[usual] * count, *own**2])
        deviation = np.sqrt(np.maximum(sums[count:-1] - sums[: -count - 1], 0) / count + np.exp(2 * MIN_LOG_SCALE))
        nats.append(0.5 * (own / deviation) ** 2 + np.log(deviation) + 0.5 * np.log(2 * np.pi))
    return float(np.concatenate(nats).mean())


def linear_by_frame(test: list[np.ndarray]) -> float:
    """The same with weights and an error fitted to each frame of 30 ms by itself."""
    nats = []
    for sound in test:
        padded = np.concatenate([np.zeros(ORDER, np.float32), sound])
        for first in range(0, len(sound) - FRAME, FRAME):
            frame = padded[first : first + ORDER + FRAME]
            residuals = errors(frame, predictor(frame))[ORDER:]
            deviation = max(residuals.std(), np.exp(MIN_LOG_SCALE))
            nats.append((0.5 * (residuals / deviation) ** 2).mean() + np.log(deviation) + 0.5 * np.log(2 * np.pi))
    return float(np.mean(nats))


def predictor(sound: np.ndarray) -> np.ndarray:
    """Linear prediction weights of the past samples, latest first, by the autocorrelation method."""
    exact = sound.astype(np.float64)
    correlation = np.array([exact[: len(exact) - lag] @ exact[lag:] for lag in range(ORDER + 1)])
    correlation[0] = correlation[0] * (1 + 1e-6) + 1e-9
    return solve_toeplitz(correlation[:-1], correlation[1:])


def errors(sound: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The prediction error at each sample; before the first one there is silence."""
    padded = np.concatenate([np.zeros(ORDER), sound.astype(np.float64)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, ORDER)[:-1]
    return sound - windows[:, ::-1] @ weights


def understood(run: Path, strings: Path, listener: TaskModel) -> dict[str, Any]:
    """The word error rate of a recognizer on what the voice says, and on the recordings of the same strings.

    Also the wrong words of each string, for each noise that it is spoken from.
    """
    voice = TaskModel.load(run)
    rows = list(read_table(strings / "test.tsv"))
    texts = [text for _, text in rows]
    sides = {"frames": [{"array": without_vocoder(voice, text), "sampling_rate": RATE} for text in texts]}
    spoken = [f"spoken {noise}" for noise in NOISES]
    sides |= {name: said(voice, texts, noise) for name, noise in zip(spoken, NOISES, strict=True)}
    answers = {name: heard_by(listener, sounds) for name, sounds in sides.items()}
    answers["recorded"] = heard_by(listener, [str(file) for file, _ in rows])
    rates = {name: wer(texts, answers[name]) for name in ("frames", "recorded")}
    rates["spoken"] = wer(texts * len(spoken), [heard for name in spoken for heard in answers[name]])
    wrong = [
        [round(wer([text], [heard]) * len(text.split())) for text, heard in zip(texts, answers[name], strict=True)]
        for name in spoken
    ]
    return {"not understood": rates, "wrong words": wrong}


def said(voice: TaskModel, texts: list[str], noise: int) -> list[dict[str, Any]]:
    """The sounds of texts, spoken from the noise of a seed."""
    task = voice.task
    assert isinstance(task, Synthesize)
    synthesizer = task.synthesizer(voice.ernie, voice.head, voice.task_id, seed=noise)
    examples = [task.example(Row({"text": text}), voice.tokenizer) for text in texts]
    return [
        answer["audio"]
        for first in range(0, len(examples), 20)
        for answer in answer_all(task, synthesizer, examples[first : first + 20])
    ]


def heard_by(listener: TaskModel, sounds: Sequence[Any]) -> list[str]:
    """What a recognizer understands."""
    return [answer["transcript"] for answer in listener.predict([{"audio": sound} for sound in sounds])]


@paddle.no_grad()
def without_vocoder(voice: TaskModel, text: str) -> list[float]:
    """The sound of a text: frames predicted by the voice's decoder, made audible by Griffin and Lim's method."""
    task, head = voice.task, voice.head
    assert isinstance(task, Synthesize)
    assert task.statistics is not None
    (sample,) = task.example(Row({"text": text}), voice.tokenizer).samples
    synthesizer = task.synthesizer(voice.ernie, head, voice.task_id)
    with synthesizer.context():
        predicted_FM = synthesizer.frames(sample.ids)
    config, (mean, deviation) = task.features, task.statistics.mean_and_deviation()
    frames_FM = predicted_FM.reshape(-1, config.bins)
    transformed, width, hop = 2 * (config.frequencies - 1), config.window_samples, config.hop_samples
    bank_KM = np.linalg.pinv(mel_bank(config.sample_rate, transformed, config.bins).toarray())
    powers_FK = np.exp(frames_FM * deviation + mean) @ bank_KM.T
    magnitudes_FK = np.sqrt(np.maximum(powers_FK, 0))
    window = np.hanning(width)
    positions = hop * np.arange(len(frames_FM))[:, None] + np.arange(width)
    weights = np.bincount(positions.ravel(), np.tile(window**2, len(frames_FM)))
    phases_FK = np.random.default_rng(0).uniform(0, 2 * np.pi, magnitudes_FK.shape)
    for _ in range(TURNS):
        parts = np.fft.irfft(magnitudes_FK * np.exp(1j * phases_FK), transformed)[:, :width] * window
        sound = np.bincount(positions.ravel(), parts.ravel()) / np.maximum(weights, 1e-3)
        phases_FK = np.angle(np.fft.rfft(sound[positions] * window, transformed))
    return list(map(float, np.clip(lfilter([1], [1, -PREEMPHASIS], sound), -1, 1)))


if __name__ == "__main__":
    main()
