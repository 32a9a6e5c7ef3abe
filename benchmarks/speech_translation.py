"""How long after a word was spoken does its translation come, of a recognizer and a translator in a chain?

  python benchmarks/speech_translation.py --data DATA --output runs/speech-translation --recognizer RUN [--epochs 4]

DATA has speech_fsdd/recordings/DIGIT_SPEAKER_NUMBER.wav (Free Spoken Digit Dataset, 8 kHz).  RUN is a run in chunks of
benchmarks/recognition.py, which strings of 5 to 10 English digits are recognized with, from recordings that it was not
trained on.  Translators into German digits, an untrained encoder of 2 layers of 128 and a decoder of as many, are
trained on 4,000 random strings of 1 to 12 digits, each to wait for k words.  The sound comes in pieces of a tenth of a
second, in real time.  The lag of a word is the time from its end in the sound to the output of its translation, of
strings that are translated without a mistake; computing time is added as in a queue.  The last words of a string come
when it ends, whatever k, so that the lag of the words before the last 3 is shown, too.  Finished work is kept, so that
an interrupted command resumes where it stopped.

Set before the first run, for every k: a translated word comes k words (at the pace of the strings) after the recognizer
alone puts out the English one, give or take a fifth of a word, since a word is committed when the next has begun; and
of the words at most 1 % more are wrong than in the recognizer's own transcripts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fine_tuned import fine_tuned, untrained_small
from moments import moments
from outcomes import report
from page_tables import speech_translation
from recognition import RATE, WORDS, concatenated, recordings_by
from record_files import Records, cached_record

from ernie.decode.chain import Chain
from ernie.decode.stream import StreamDecoder
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.recognizer import SpeechRecognizer
from inference.translator import TextTranslator
from tasks.downstream.metrics import wer

GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun".split()
ALONE, DISTANCES = 0, (1, 2, 3)
SPOKEN, WRITTEN = (5, 10), (1, 12)  # digits in a string
STRINGS = {"train": 4000, "dev": 100}
TESTED = 100  # spoken strings
PIECE = 0.1  # seconds
SHAPE = {"layers": 2, "hidden_size": 128, "heads": 4, "intermediate_size": 512, "max_positions": 64}


class Spoken(NamedTuple):
    """A string of spoken digits: its samples, its digits, and when each of them ends, in seconds."""

    samples: np.ndarray
    digits: list[int]
    ends: list[float]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--recognizer", type=Path, required=True, metavar="RUN")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"epochs-{arguments.epochs}"
    records = (arguments.records or arguments.output / "records") / f"{name}-{arguments.recognizer.name}"
    spoken = spoken_strings(arguments.data / "speech_fsdd" / "recordings")
    written = write_pairs(arguments.output)
    fresh = untrained_small(
        arguments.output / "fresh", WordPiece([*SPECIAL_TOKENS, *WORDS, *GERMAN], lowercase=False), **SHAPE
    )

    def record(k: int) -> dict[str, float]:
        decoder: StreamDecoder[Any, Any, Any] = SpeechRecognizer.load(arguments.recognizer)
        if k:
            task = {"kind": "translate", "text": "english", "label": "german", "max_len": 16, "wait_k": k}
            run = arguments.output / name / f"wait-{k}"
            fine_tuned(run, fresh, task, written, 0, epochs=arguments.epochs, batch=32)
            decoder = Chain(decoder, TextTranslator.load(run))
        return measured(decoder, spoken, GERMAN if k else WORDS)

    for k in (ALONE, *DISTANCES):
        cached_record(records / f"wait-{k}.json", partial(record, k))
    pace = statistics.mean(np.diff(string.ends).mean() for string in spoken)
    print(f"A word takes {pace:.2f} s.")
    report(Records(records), speech_translation, targets=["speech-translation"])


def spoken_strings(recordings: Path) -> list[Spoken]:
    """Strings of digits from recordings that no recognizer is trained on; the same in every run."""
    rng, files = np.random.default_rng(1), recordings_by(recordings)
    speakers = sorted(speaker for speaker, held in files if held)
    strings = []
    for _ in range(TESTED):
        digits = rng.integers(0, 10, rng.integers(SPOKEN[0], SPOKEN[1] + 1))
        samples, ends = concatenated(files[speakers[rng.integers(len(speakers))], True], digits, rng)
        strings.append(Spoken(samples.astype(np.float32), digits.tolist(), ends))
    return strings


def write_pairs(folder: Path) -> dict[str, str]:
    """Write random strings of digits in English and German; return the file of each split."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, files = np.random.default_rng(0), {}
    for split, count in STRINGS.items():
        lines = ["english\tgerman"]
        for _ in range(count):
            digits = rng.integers(0, 10, rng.integers(WRITTEN[0], WRITTEN[1] + 1))
            lines.append("\t".join(" ".join(names[digit] for digit in digits) for names in (WORDS, GERMAN)))
        files[split] = str(folder / f"{split}.tsv")
        Path(files[split]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def measured(decoder: StreamDecoder[Any, Any, Any], spoken: Sequence[Spoken], names: Sequence[str]) -> dict[str, float]:
    """The word error rate of what a decoder writes, and the median lag of a word, without and with computing time."""
    size = round(PIECE * RATE)
    expected, written = [], []
    lags: list[float] = []
    followed: list[float] = []  # of words that as many follow as the longest wait
    aware: list[float] = []
    for string in spoken:
        pieces = (string.samples[i : i + size] for i in range(0, len(string.samples), size))
        words, heard, done = moments(decoder, ((piece, len(piece) / RATE) for piece in pieces))
        expected.append(" ".join(names[digit] for digit in string.digits))
        written.append(" ".join(words))
        if written[-1] == expected[-1]:
            behind = [at - end for at, end in zip(heard, string.ends, strict=True)]
            lags += behind
            followed += behind[: -max(DISTANCES)]
            aware += [at - end for at, end in zip(done, string.ends, strict=True)]
    if not lags:
        raise SystemExit("no string came out without a mistake: take a recognizer that has learned more")
    return {
        "word error rate": wer(expected, written),
        "lag": statistics.median(lags),
        "lag before the last words": statistics.median(followed),
        "lag with computing": statistics.median(aware),
        "longest lag with computing": max(aware),
    }


if __name__ == "__main__":
    main()
