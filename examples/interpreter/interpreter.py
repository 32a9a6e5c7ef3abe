"""A simultaneous interpreter from nothing: data, a recognizer, a translator, a voice, a server, and its page.

Run by `make interpreter`, in the repository's folder.  People speak English, the page shows the transcript and its
German translation, and a voice reads it out.  The three models know 60 words.  Their data is made here: sentences by a
small grammar (grammar.py), speech by eSpeak NG in many voices (voices.py).  Each command is printed before it runs.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
from grammar import Pair, sentences
from voices import HELD_OUT, RATE, TIMBRES, Synthesizer, Voice, drawn_voice, recorded, with_hiss

from ernie import ErnieModel
from ernie.audio.wave import read_wave
from ernie.cli import main as ernie
from ernie.decode.chain import Chain
from ernie.decode.stream import Stream
from ernie.model.config import EncoderConfig
from ernie.runtime import cores
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.recognizer import SpeechRecognizer
from inference.translator import TextTranslator

HERE, HOME = Path(os.path.relpath(Path(__file__).parent)), Path("runs/interpreter")
SPOKEN = {"train": 2200, "dev": 100, "test": 200}  # recordings for the recognizer, each in a voice of its own
WRITTEN = {"train": 12000, "dev": 200, "test": 500}
VOICED = {"train": 900, "dev": 8}  # sentences that the voice learns from
READER = Voice("de", speed=140, pitch=45, variation=40)  # whom the voice learns from
TESTED = 100  # sentences
SHOWN_EVERY = 20.0  # seconds
TOLD = """
How good they are, on sentences that none of them learned from:
  the recognizer gets {wer:.1%} of the words wrong, spoken by voices that it never heard
  the translator has a BLEU of {bleu:.0f}, five words behind the speaker
  both together translate {right} of {tested} spoken sentences without a mistake

What is real: the training, the streaming decoders, the server and its page. The same configurations, with other data
and a pretrained encoder, train what people use: {here}.
What is a toy: a language of 60 words, a synthesizer's voices, models that a laptop trains in minutes.
"""


def main() -> None:
    """Make the data, train what is missing, tell what came of it, and serve."""
    started = time.monotonic()
    make_data()
    train("recognizer", "voice", "translator")
    tell()
    print(f"\nThis took {(time.monotonic() - started) / 60:.1f} minutes.")
    words = ["serve", str(HERE / "serve.yaml"), "--open"]
    print(f"\n$ ernie {shlex.join(words)}", flush=True)
    sys.exit(ernie(words))


def train(*names: str) -> None:
    """Train models, two at a time with half of the cores each; a model that is there stays as it is."""
    waiting = [name for name in names if not (HOME / name / "scores.json").is_file()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    threads = str(max(1, cores() // 2))
    shown = 0.0
    try:
        while waiting or running:
            while waiting and len(running) < 2:
                name = waiting.pop(0)
                words = ["finetune", str(HERE / f"{name}.yaml"), "--output", str(HOME / name)]
                print(f"\n$ ernie {shlex.join(words)} 2> {HOME / name}.log", flush=True)
                with (HOME / f"{name}.log").open("wb") as log:
                    running[name] = subprocess.Popen(
                        [sys.executable, "-m", "ernie.cli", *words],
                        env={**os.environ, "MKL_NUM_THREADS": threads},
                        stdout=log,
                        stderr=log,
                    )
            time.sleep(0.5)
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                if process.returncode:
                    sys.exit(f"{name}: the training ended with status {process.returncode}; see {HOME / name}.log")
                del running[name]
            if time.monotonic() - shown > SHOWN_EVERY:
                print("  ".join(f"{name}: {last_line(HOME / f'{name}.log')}" for name in running), flush=True)
                shown = time.monotonic()
    finally:
        for process in running.values():
            process.terminate()


def last_line(file: Path) -> str:
    """The last line of progress in a log."""
    lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if "step " in line]
    return " ".join(lines[-1].split()) if lines else "begins"


def tell() -> None:
    """Tell how good the models are on sentences and voices that they did not learn from, and what they are."""
    wer, bleu = (
        json.loads((HOME / name / "scores.json").read_text(encoding="utf-8"))["scores"]["test"][metric]["mean"]
        for name, metric in (("recognizer", "wer"), ("translator", "bleu"))
    )
    rows = (HOME / "spoken" / "test.tsv").read_text(encoding="utf-8").splitlines()[1 : TESTED + 1]
    print(TOLD.format(here=HERE, wer=wer, bleu=100 * bleu, right=right_translations(rows), tested=len(rows)))


def right_translations(rows: list[str]) -> int:
    """How many spoken sentences are translated without a mistake."""
    chain = Chain(SpeechRecognizer.load(HOME / "recognizer"), TextTranslator.load(HOME / "translator"))
    german = dict(row.rstrip("\n").split("\t") for row in (HOME / "written" / "test.tsv").open(encoding="utf-8"))
    right = 0
    for row in rows:
        file, english = row.split("\t")
        stream = Stream(chain)
        found = stream.push(read_wave(HOME / "spoken" / file, RATE).samples) + stream.finish()
        right += found.split() == german[english].split()
    return right


def make_data() -> None:
    """Write sentences, sounds and untrained encoders, unless they are there."""
    if (HOME / "fresh").is_dir():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    print("Making sentences and speech ...", flush=True)
    pairs = sentences(sum(WRITTEN.values()), seed=0)
    held_out = set(pairs[WRITTEN["train"] :])
    write_pairs(pairs)
    synthesizer = Synthesizer()
    seconds = write_spoken(synthesizer, pairs)
    seconds += write_voiced(synthesizer, [pair for pair in pairs if pair not in held_out])
    write_encoders(pairs)
    print(f"{len(pairs):,} sentences, {seconds / 60:.0f} minutes of speech")


def write_pairs(pairs: list[Pair]) -> None:
    """Write the translator's sentences."""
    folder, begin = HOME / "written", 0
    folder.mkdir(parents=True)
    for split, count in WRITTEN.items():
        lines = [f"{pair.english}\t{pair.german}\n" for pair in pairs[begin : begin + count]]
        (folder / f"{split}.tsv").write_text("english\tgerman\n" + "".join(lines), encoding="utf-8")
        begin += count


def write_spoken(synthesizer: Synthesizer, pairs: list[Pair]) -> float:
    """Write the recognizer's sounds, and return their seconds.  Other voices speak dev and test than train.

    In most training sounds somebody says several sentences.  Otherwise every first word would come at the beginning of
    a sound, and a recognizer that guesses it from there would hardly learn how it sounds.
    """
    folder, seconds, rng = HOME / "spoken", 0.0, random.Random(1)
    folder.mkdir()
    rooms = np.random.default_rng(1)
    begins = {"train": 0, "dev": WRITTEN["train"], "test": len(pairs) - SPOKEN["test"]}
    for split, count in SPOKEN.items():
        lines, begin = ["audio\ttext\n"], begins[split]
        for n in range(count):
            several = rng.randint(1, 3) if split == "train" else 1
            texts = [pair.english for pair in pairs[begin : begin + several]]
            voice = drawn_voice(rng, TIMBRES if split == "train" else HELD_OUT)
            sound = recorded([synthesizer.speak(text, voice) for text in texts], rooms)
            soundfile.write(folder / f"{split}-{n}.wav", sound, RATE)
            lines.append(f"{split}-{n}.wav\t{' '.join(texts)}\n")
            seconds += len(sound) / RATE
            begin += several
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return seconds


def write_voiced(synthesizer: Synthesizer, pairs: list[Pair]) -> float:
    """Write the sentences of the voice, and return their seconds."""
    folder, seconds, begin, hiss = HOME / "voiced", 0.0, 0, np.random.default_rng(2)
    folder.mkdir()
    for split, count in VOICED.items():
        lines = ["audio\tgerman\n"]
        for n, pair in enumerate(pairs[begin : begin + count]):
            sound = with_hiss(synthesizer.speak(pair.german, READER), hiss)
            soundfile.write(folder / f"{split}-{n}.wav", sound, RATE)
            lines.append(f"{split}-{n}.wav\t{pair.german}\n")
            seconds += len(sound) / RATE
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
        begin += count
    return seconds


def write_encoders(pairs: list[Pair]) -> None:
    """Write an untrained encoder for each model, with the words or letters that it needs."""
    import paddle  # after ernie, which prepares it

    english = sorted({word for pair in pairs for word in pair.english.split()})
    german = sorted({word for pair in pairs for word in pair.german.split()})
    letters = sorted({letter for word in german for letter in word})
    vocabularies = {
        "recognizer": english,
        "translator": sorted({*english, *german}),
        "voice": [*letters, *(f"##{letter}" for letter in letters)],
    }
    for name, entries in vocabularies.items():
        tokenizer = WordPiece([*SPECIAL_TOKENS, *entries], lowercase=False)
        layers, positions = (3, 512) if name == "recognizer" else (2, 128)
        config = EncoderConfig(
            vocab_size=tokenizer.vocab_size,
            layers=layers,
            hidden_size=128,
            heads=4,
            intermediate_size=512,
            max_positions=positions,
            initializer_range=0.05,
        )
        paddle.seed(0)
        model = ErnieModel(config)
        model.tokenizer = tokenizer
        model.save_pretrained(HOME / "fresh" / name)


if __name__ == "__main__":
    main()
