"""Write the files of this folder, with the code of commit 0506553.

They keep what that version wrote: runs, models, states and checkpoints with the keys it had.  They are never written
anew; this script says what they hold.  In a checkout of that commit, with its packages on the Python path:

  python make.py OUTPUT
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ernie.cli import main
from ernie.decode.stream import Stream, save_state
from ernie.train.checkpoint import Checkpoints
from finetune.model import FinetunedModel
from finetune.recognizer import SpeechRecognizer
from finetune.speaker import TextSpeaker
from finetune.translator import TextTranslator

COLORS, GERMAN = ("blue", "green", "red"), {"blue": "blau", "green": "gruen", "red": "rot"}
FILLERS = "a film it the very was".split()

PRETRAIN = {
    "corpus": "corpus",
    "schedule": {"steps_per_task": 4, "tasks": ["knowledge_masking", "capitalization"], "method": "sequential"},
    "objectives": {"knowledge_masking": {"share": 0.3, "mask": 0.7, "random": 0.2}},
    "model": {"preset": "tiny", "hidden_size": 8, "intermediate_size": 16, "layers": 1, "max_positions": 96},
    "data": {"max_len": 32, "batch_tokens": 64, "mixed": 4096, "share": 0.9, "lanes": 2},
    "train": {"micro_batches": 2, "rate": {"peak": 1e-2, "warmup": 2}, "patience": 7, "precision": "fp32"},
    "save": {"every": 4, "keep_last": 5},
    "probe": {"batches": 1},
}
TRAIN = {
    **{"epochs": 2, "batch": 4, "micro_tokens": 64, "rate": {"peak": 1e-2}, "patience": 9, "dropout": 0.1},
    **{"evaluations": 2, "precision": "fp32"},
}
SOUND = {"rate": 2000, "window": 0.02, "hop": 0.01, "bins": 4}
SPOKEN = {"rate": 8000, "window": 0.01, "hop": 0.005, "bins": 20}
WAVENET = {"channels": 4, "stacks": 1, "depth": 2}
VOICE = {"reduction": 2, "conditioner": 4, "wavenet": WAVENET, "flows": 1, "flow": WAVENET}
TASKS: dict[str, dict[str, Any]] = {
    "classify": {"max_len": 16},
    "tag": {"max_len": 16, "entities": False},
    "translate": {"max_len": 16, "wait_k": 1, "smoothing": 0.2, "layers": 1},
    "transcribe": {
        **{"max_len": 40, "features": SOUND, "encoder": "chunks", "chunk": 3, "before": 2, "ctc_share": 0.6},
        **{"layers": 1, "longest": 9, "beam": 2},
        "augment": {"time_masks": 1, "time": 3, "bands": 1, "band": 2},
    },
    "synthesize": {
        **{"max_len": 16, "features": SPOKEN, "voice": VOICE, "crop": 0.05, "dither": 0.3},
        **{"apart": 3.0, "spectral": 0.5, "longest": 5.0},
    },
}


def row(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """A random row of a kind."""
    colors = [str(color) for color in rng.choice(COLORS, 2)]
    words = [*map(str, rng.choice(FILLERS, 3)), colors[0]]
    return {
        "classify": {"text": " ".join(words), "label": colors[0]},
        "tag": {"token": words, "tag": ["O", "O", "O", "color"]},
        "translate": {"source": " ".join(colors), "target": " ".join(GERMAN[color] for color in colors)},
        "transcribe": {"audio": tones(colors, rng, 2000), "text": " ".join(colors)},
        "synthesize": {"audio": tones(colors, rng, 8000), "text": " ".join(colors)},
    }[kind]


def tones(colors: list[str], rng: np.random.Generator, rate: int) -> dict[str, Any]:
    """A tone of 400 samples for each color."""
    time = np.arange(400) / rate
    waves = [np.sin(2 * np.pi * 200 * (1 + COLORS.index(color)) * time) for color in colors]
    sound = np.concatenate([0.3 * wave * np.hanning(len(time)) for wave in waves])
    return {"array": (sound + rng.normal(0, 0.01, len(sound))).round(3).tolist(), "sampling_rate": rate}


def corpus() -> None:
    """Write a text, train a tokenizer on it, and build a corpus."""
    rng = np.random.default_rng(0)
    words = [*COLORS, *GERMAN.values(), *FILLERS, "Anna", "Paris"]
    documents = ["\n".join(" ".join(rng.choice(words, 8)) + "." for _ in range(4)) for _ in range(40)]
    Path("text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    run("tokenizer", "train", "--input", "text.txt", "--output", "tokenizer", "--vocab-size", "120")
    build = ("--tokenizer", "tokenizer", "--output", "corpus", "--set", "held_out=0.1", "--processes", "0", "--quiet")
    run("data", "build", "--input", "text.txt", *build)


def pretrained() -> None:
    """A finished run, and one that was stopped at its first checkpoint."""
    write("pretrain.yaml", PRETRAIN)
    run("pretrain", "pretrain.yaml", "--output", "pretrained", "--quiet")
    stopped = Path("pretrained-stopped")
    shutil.copytree("pretrained", stopped)
    shutil.rmtree(stopped / "model")
    for checkpoint in sorted((stopped / "checkpoints").iterdir())[1:]:
        shutil.rmtree(checkpoint) if checkpoint.is_dir() else checkpoint.unlink()
    log = (stopped / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in log if json.loads(line)["step"] < 4]
    (stopped / "metrics.jsonl").write_text("".join(kept), encoding="utf-8")
    strip("pretrained")
    strip("pretrained-stopped")


def fine_tuned(kind: str) -> None:
    """A finished run of a kind."""
    rng = np.random.default_rng(1)
    for split, count in (("train", 60 if kind == "transcribe" else 12), ("dev", 2)):
        rows = [row(kind, rng) for _ in range(count)]
        text = "".join(json.dumps(each) + "\n" for each in rows)
        Path(f"{kind}-{split}.jsonl").write_text(text, encoding="utf-8")
    data = {"train": f"{kind}-train.jsonl", "dev": f"{kind}-dev.jsonl"}
    config: dict[str, Any] = {
        "task": {"kind": kind, **TASKS[kind]},
        "data": data,
        "model": "pretrained/model",
        "train": dict(TRAIN),
    }
    if kind == "transcribe":  # so that it hears something
        config["train"] |= {"epochs": 40, "evaluations": 1}
        config["train"]["rate"] = {"peak": 2e-2}
    write(f"{kind}.yaml", config)
    run("finetune", f"{kind}.yaml", "--output", kind, "--quiet")
    strip(kind)


class Stopped(BaseException):
    """Ends a command as if its process were killed."""


def stopped_fine_tuning() -> None:
    """A run of the kind classify that was killed after its third step."""
    save = Checkpoints.save

    def stop(self: Checkpoints, step: int, *args: Any) -> Any:
        path = save(self, step, *args)
        if step == 3:
            raise Stopped
        return path

    Checkpoints.save = stop  # type: ignore[method-assign]
    with suppress(Stopped):
        run("finetune", "classify.yaml", "--output", "classify-stopped", "--quiet", "--set", "save_minutes=1e-9")
    Checkpoints.save = save  # type: ignore[method-assign]
    strip("classify-stopped")


def states() -> None:
    """A state in the middle of a stream of each kind, and what comes after it."""
    translator = Stream(TextTranslator(FinetunedModel.load(Path("translate"))))
    early = translator.push("blue red green")
    save_state(translator.state, "translate.npz")
    recognizer = Stream(SpeechRecognizer(FinetunedModel.load(Path("transcribe"))))
    sound = np.array(tones(["blue", "red", "green"], np.random.default_rng(2), 2000)["array"], np.float32)
    Path("sound.json").write_text(json.dumps(sound.astype(float).round(4).tolist()) + "\n", encoding="utf-8")
    heard = recognizer.push(sound[:700])
    save_state(recognizer.state, "transcribe.npz")
    speaker = Stream(TextSpeaker.load(Path("synthesize")))
    speaker.push("blue re")
    save_state(speaker.state, "synthesize.npz")
    expected = {
        "translate": [early, translator.push("blue") + translator.finish()],
        "transcribe": [str(heard), str(recognizer.push(sound[700:])), str(recognizer.finish())],
        "synthesize": len(np.concatenate([np.zeros(0), speaker.push("d"), speaker.finish()])),
    }
    Path("states.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def answers() -> None:
    """What each model answers to its dev rows."""
    found = {}
    for kind in TASKS:
        rows = [json.loads(line) for line in Path(f"{kind}-dev.jsonl").read_text(encoding="utf-8").splitlines()]
        given = list(FinetunedModel.load(Path(kind)).predict(rows))
        found[kind] = [len(answer["audio"]["array"]) if kind == "synthesize" else answer for answer in given]
    Path("answers.json").write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")


def run(*words: str) -> None:
    """Run a command of `ernie`."""
    assert main(list(words)) == 0, words


def write(file: str, config: dict[str, Any]) -> None:
    """Write a configuration."""
    Path(file).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def strip(folder: str) -> None:
    """Delete what people read: reports, cards and figures."""
    for file in list(Path(folder).rglob("*")):
        if file.suffix in (".html", ".png", ".md", ".lock") or file.name in ("cards",):
            file.unlink()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    os.chdir(sys.argv[1])
    corpus()
    pretrained()
    for kind in TASKS:
        fine_tuned(kind)
    stopped_fine_tuning()
    states()
    answers()
    shutil.rmtree("pretrained/checkpoints/step-00000004")
    for kind in ("transcribe", "synthesize"):  # the largest files, which nothing reads any more
        Path(f"{kind}-train.jsonl").unlink()
    for lock in Path().rglob(".lock"):
        lock.unlink()
