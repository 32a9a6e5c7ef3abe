"""How well are the prompts of a telephone system recognized, letter by letter?

  python benchmarks/prompts.py --data DATA --output runs/prompts [--pretrained RUN] [--seeds 0 1 2] [--epochs 60]

DATA has speech_asterisk_en (metadata.tsv, flac/NAME.flac: the prompts of Asterisk in one voice, 8 kHz).  Prompts of
words alone are learnt, of ten eight; the ninth chooses how much the language model counts, the tenth is tested on.  An
encoder of 4 layers of 256 learns CTC over letters: `fresh` knows nothing, `pretrained` begins with the layers of RUN,
an encoder of that shape which was pretrained on text.  Each is asked three ways: the likeliest letter of each vector,
a beam of 16 readings, and the beam with a language model of six letters, which is learnt from the transcripts of the
training prompts.  What is done is kept, so that the command goes on where it was cut; what came out of each arm is a
small file under `--records` (by default in OUTPUT), and all that are there make the table.

Set before the first run: with the language model at least a fifth fewer words are wrong than by the likeliest letters.
What pretraining changes is told, whatever its sign.
"""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evidence import kept, read_records_of
from fine_tuned import fine_tuned, knows_nothing, letter_pieces
from recognition import AUGMENT, read_table

from ernie.decode.ngram import NgramModel
from ernie.model.ernie import ErnieModel
from ernie.model.weights import arrays, set_weights
from finetune.model import FinetunedModel
from tasks.downstream.measures import cer, wer
from tasks.downstream.transcribe import Transcribe

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
SHAPE = {"layers": 4, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "max_positions": 512}
ARMS = ("fresh", "pretrained")
LONGEST = 14.0  # seconds
BEAM, ORDER = 16, 6
COUNTS = (0.2, 0.4, 0.6, 0.8)  # of the language model, of which the ninth prompts choose one
FEWER = 0.2  # of the words that are wrong: how many a language model takes away


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--pretrained", type=Path, metavar="RUN")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"epochs-{arguments.epochs}"
    records = (arguments.records or arguments.output / "records") / name
    prompts = written(arguments.data / "speech_asterisk_en", arguments.output / "prompts")
    language = learnt(prompts, arguments.output / "letters.arpa")
    beginnings = {"fresh": beginning(arguments.output / "fresh")}
    if arguments.pretrained:
        beginnings["pretrained"] = pretrained(arguments.pretrained, beginnings["fresh"], arguments.output / "knows")

    def record(arm: str, seed: int) -> dict[str, Any]:
        task = {"kind": "transcribe", "augment": AUGMENT}
        data = {split: str(prompts / f"{split}.tsv") for split in ("train", "dev")}
        run = arguments.output / name / f"{arm}-{seed}"
        fine_tuned(run, beginnings[arm], task, data, seed, epochs=arguments.epochs, batch=16)
        return tested(run, prompts, language)

    for seed in arguments.seeds:
        for arm in beginnings:
            kept(records / f"{arm}-{seed}.json", partial(record, arm, seed))
    print(table({arm: there for arm in ARMS if (there := read_records_of(records, arm))}))


def written(source: Path, folder: Path) -> Path:
    """A table for each split, of the prompts that are words."""
    if not (folder / "test.tsv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        lines: dict[str, list[str]] = {split: ["audio\ttext"] for split in ("train", "dev", "test")}
        count = 0
        for line in (source / "metadata.tsv").read_text(encoding="utf-8").splitlines():
            name, text, seconds = line.split("\t")
            said = " ".join(re.sub(r"[^a-z']+", " ", text.lower().replace("’", "'")).split())
            if re.search(r"[0-9\[<]", text) or not said or float(seconds) > LONGEST:
                continue
            split = {8: "dev", 9: "test"}.get(count % 10, "train")
            lines[split].append(f"{(source / 'flac' / f'{name}.flac').resolve()}\t{said}")
            count += 1
        for split, own in lines.items():
            (folder / f"{split}.tsv").write_text("\n".join(own) + "\n", encoding="utf-8")
    return folder


def learnt(prompts: Path, file: Path) -> Path:
    """The language model of the training prompts."""
    if not file.is_file():
        tokenizer = letter_pieces(LETTERS)
        texts = [text for _, text in read_table(prompts / "train.tsv")]
        pieces = [[tokenizer.tokens[i] for i in tokenizer.encode(text).ids] for text in texts]
        NgramModel.learn(pieces, ORDER).save(file)
    return file


def beginning(place: Path) -> Path:
    """An encoder that knows nothing."""
    return knows_nothing(place, letter_pieces(LETTERS), **SHAPE)


def pretrained(run: Path, fresh: Path, place: Path) -> Path:
    """The same encoder with the layers of one that was pretrained on text."""
    if not place.is_dir():
        model = ErnieModel.from_pretrained(fresh)
        layers = {
            name: value
            for name, value in arrays(ErnieModel.from_pretrained(run)).items()
            if name.startswith("encoder.")
        }
        set_weights(model, arrays(model) | layers, str(run))
        model.save_pretrained(place)
    return place


def tested(run: Path, prompts: Path, language: Path) -> dict[str, Any]:
    """The word and letter error rates of a run, three ways."""
    model = FinetunedModel.load(run)
    plain = model.task
    assert isinstance(plain, Transcribe)

    def errors(split: str, task: Transcribe) -> dict[str, float]:
        model.task = task
        rows = list(read_table(prompts / f"{split}.tsv"))
        right, told = [text for _, text in rows], model.predict([{"audio": str(file)} for file, _ in rows])
        answers = [answer["transcript"] for answer in told]
        return {"wer": wer(right, answers), "cer": cer(right, answers)}

    beam = replace(plain, beam=BEAM)
    with_language = {count: replace(beam, language=language, alpha=count) for count in COUNTS}
    best = min(COUNTS, key=lambda count: errors("dev", with_language[count])["wer"])
    return {
        "likeliest letters": errors("test", plain),
        "beam": errors("test", beam),
        "language model": errors("test", with_language[best]),
        "how much it counts": best,
    }


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """The error rates: the median of the seeds, lowest to highest; and what was set before the first run."""
    lines = ["| encoder | read by | words wrong | letters wrong |", "|---|---|---|---|"]
    verdicts = []
    for arm, seeds in found.items():
        for way in ("likeliest letters", "beam", "language model"):
            cells = [[seed[way][measure] for seed in seeds] for measure in ("wer", "cer")]
            shown = [f"{statistics.median(c):.1%} ({min(c):.1%} to {max(c):.1%})" for c in cells]
            lines.append(f"| {arm} | {way} | {' | '.join(shown)} |")
        fewer = statistics.median(
            1 - seed["language model"]["wer"] / seed["likeliest letters"]["wer"] for seed in seeds
        )
        verdict = "as was set" if fewer >= FEWER else "not as was set"
        verdicts.append(f"- {arm}: with the language model {fewer:.0%} fewer words are wrong: {verdict}")
    return "\n".join([*lines, "", *verdicts])


if __name__ == "__main__":
    main()
