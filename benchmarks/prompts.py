"""How well are the prompts of a telephone system recognized, letter by letter?

  python benchmarks/prompts.py --data DATA --output runs/prompts [--pretrained RUN] [--seeds 0 1 2] [--arms fresh]

DATA has speech_asterisk_en (metadata.tsv, flac/NAME.flac: the prompts of Asterisk in one voice, 8 kHz).  Only prompts
that consist of words are used: of ten texts, eight for training, the ninth to choose the weight of the language model,
the tenth for testing.  An encoder of 3 layers of 256 is trained with CTC over letters: `fresh` is untrained before,
`pretrained` starts with the layers of RUN, an encoder of that shape which was pretrained on text, such as
`de-en/knows-1` of benchmarks/translation.py.  `sentences first` is trained on other sentences in another voice before,
those of speech_arctic_fraser (likewise, 16 kHz), and continues with all that was learned; `sentences too` is trained on
both at once.  The others are `fresh` with remedies for how little sound there is: `voices` has more changes of speed,
pitch and vocal tract, `convolution` a convolution after each layer, `averages` averaged weights; `all remedies` has all
three, and with `sentences too` is trained on these as well. `recurrent` has gated units in place of the layers, also
with `voices`, then with a vector every 28 ms in place of 40 (`finer`), and with `sentences too`.
Each is decoded in three ways: the likeliest letter of each vector, a beam of 16 hypotheses, and the beam with a
six-gram language model of letters, trained on the transcripts of the training prompts.  With TEXT, a folder of plain
text, there is a fourth: a trigram language model of words, of that text and PROMPTS times those transcripts.  Finished
work is kept, so that an interrupted command resumes where it stopped; the results of each arm are a small file under
`--records` (by default in OUTPUT), and the table shows all files.

Set before the first run: with the language model at least a fifth fewer words are wrong than by the likeliest letters.
The effect of pretraining on text is reported, whatever its sign.  Set before the first run of the other two: with
sentences first, or too, at least a tenth fewer letters are wrong.  Set before the first run with remedies: the best arm
by the words that are wrong on dev with a language model has at most 50 % of them wrong on test, over three seeds.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fine_tuned import fine_tuned, letter_pieces, untrained_small
from outcomes import report
from page_tables import prompts as prompts_table
from recognition import AUGMENT, VOICES, read_table
from record_files import Records, cached_record, slug

from ernie.data.raw import RawDocument
from ernie.data.read import read_documents
from ernie.decode.ngram import UNKNOWN, NgramModel
from ernie.model.ernie import ErnieModel
from ernie.model.weights import arrays, set_weights
from inference.task_model import TaskModel
from tasks.downstream.metrics import cer, wer
from tasks.downstream.transcribe import Transcribe

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
SHAPE = {"layers": 3, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "max_positions": 512}
LONGEST = 14.0  # seconds
BEAM, ORDER = 16, 6
LANGUAGE_WEIGHTS = (0.2, 0.4, 0.6, 0.8)  # one of which is chosen on dev
WORD_WEIGHTS = (0.5, 1.0, 1.5, 2.0)
# Of the language model of words: its order, the words of TEXT that it reads, how often one of them has to stand there,
# and how much a word of a prompt counts.
WORD_ORDER, MOST_WORDS, LEAST_COUNT, PROMPTS = 3, 1_000_000, 5, 20


@dataclass(frozen=True)
class Arm:
    """What an encoder starts from, what it is trained on beside the prompts, and changes of the task and training."""

    start: str = "fresh"
    with_sentences: bool = False
    task: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


REMEDIES = Arm(task={"augment": VOICES, "convolution": 15}, train={"ema": 0.998})
RECURRENT = Arm(task={"recurrent": {"layers": 3, "units": 256}}, train={"shortest_first": True})
RECURRENT_VOICES = replace(RECURRENT, task={**RECURRENT.task, "augment": VOICES})
ARMS = {
    "fresh": Arm(),
    "pretrained": Arm("pretrained"),
    "sentences first": Arm("sentences"),
    "sentences too": Arm(with_sentences=True),
    "voices": Arm(task={"augment": VOICES}),
    "convolution": Arm(task={"convolution": 15}),
    "averages": Arm(train={"ema": 0.998}),
    "all remedies": REMEDIES,
    "all remedies, sentences too": replace(REMEDIES, with_sentences=True),
    "recurrent": RECURRENT,
    "recurrent, voices": RECURRENT_VOICES,
    "recurrent, voices, finer": replace(RECURRENT_VOICES, task={**RECURRENT_VOICES.task, "features": {"hop": 0.007}}),
    "recurrent, voices, sentences too": replace(RECURRENT_VOICES, with_sentences=True),
}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--pretrained", type=Path, metavar="RUN")
    parser.add_argument("--text", type=Path, metavar="TEXT")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"epochs-{arguments.epochs}"
    runs, records = arguments.output / name, (arguments.records or arguments.output / "records") / name
    prompts = write_splits(arguments.data / "speech_asterisk_en", arguments.output / "prompts")
    languages = {"language model": (language_model(prompts, arguments.output / "letters.arpa"), LANGUAGE_WEIGHTS)}
    if arguments.text is not None:
        words = word_model(prompts, arguments.text, arguments.output / "words.arpa")
        languages["language model of words"] = (words, WORD_WEIGHTS)
    fresh = initial_encoder(arguments.output / "fresh")
    arms = [arm for arm in arguments.arms if ARMS[arm].start != "pretrained" or arguments.pretrained]
    if any(ARMS[arm].with_sentences or ARMS[arm].start == "sentences" for arm in arms):
        write_sentences(arguments.data / "speech_arctic_fraser", prompts)

    def record(name: str, seed: int) -> dict[str, Any]:
        arm = ARMS[name]

        def trained(name: str, train: str, model: Path, head: str = "new") -> Path:
            task = {"kind": "transcribe", "augment": AUGMENT, **arm.task}
            data = {"train": str(prompts / f"{train}.tsv"), "dev": str(prompts / "dev.tsv")}
            settings = {"epochs": arguments.epochs, "batch": 16, **arm.train}
            return fine_tuned(runs / f"{slug(name)}-{seed}", model, task, data, seed, head, **settings)

        model, head = fresh, "new"
        if arm.start == "pretrained":
            model = pretrained(arguments.pretrained, fresh, arguments.output / "knows")
        if arm.start == "sentences":
            model, head = trained("sentences", "sentences", fresh), "keep"
        run = trained(name, "both" if arm.with_sentences else "train", model, head)
        return error_rates(run, prompts, languages)

    for seed in arguments.seeds:
        for arm in arms:
            cached_record(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed))
    report(Records(records), prompts_table, targets=["prompts", "prompts-sentences", "prompts-remedies"])


def write_splits(source: Path, folder: Path) -> Path:
    """Write a table for each split, of the prompts that consist of words; no two splits share a text."""
    if not (folder / "test.tsv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        lines: dict[str, list[str]] = {split: [] for split in ("train", "dev", "test")}
        splits: dict[str, str] = {}  # by text: some were recorded several times
        for line in spoken(source):
            text = line.split("\t")[1]
            split = splits.setdefault(text, {8: "dev", 9: "test"}.get(len(splits) % 10, "train"))
            lines[split].append(line)
        for split, of_split in lines.items():
            write_table(folder / f"{split}.tsv", of_split)
    return folder


def write_sentences(source: Path, folder: Path) -> None:
    """Write a table of sentences, and one of them and the prompts to train on."""
    sentences = list(spoken(source))
    write_table(folder / "sentences.tsv", sentences)
    prompts = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    write_table(folder / "both.tsv", [*prompts, *sentences])


def spoken(source: Path) -> Iterator[str]:
    """Yield the lines of a table, of what consists of words."""
    for line in (source / "metadata.tsv").read_text(encoding="utf-8").splitlines():
        name, text, seconds = line.split("\t")
        words = " ".join(re.sub(r"[^a-z']+", " ", text.lower().replace("’", "'")).split())
        if not re.search(r"[0-9\[<]", text) and words and float(seconds) <= LONGEST:
            yield f"{(source / 'flac' / f'{name}.flac').resolve()}\t{words}"


def write_table(file: Path, lines: list[str]) -> None:
    """Write a table of sound files and their texts."""
    file.write_text("\n".join(["audio\ttext", *lines]) + "\n", encoding="utf-8")


def language_model(prompts: Path, file: Path) -> Path:
    """Train the language model on the training prompts unless that is done; return its file."""
    if not file.is_file():
        tokenizer = letter_pieces(LETTERS)
        texts = [text for _, text in read_table(prompts / "train.tsv")]
        pieces = [[tokenizer.tokens[i] for i in tokenizer.encode(text).ids] for text in texts]
        NgramModel.learn(pieces, ORDER).save(file)
    return file


def word_model(prompts: Path, text: Path, file: Path) -> Path:
    """Train the language model of words unless that is done; return its file.

    Words of the text that are rarer than LEAST_COUNT, and in no prompt, are unknown to it.
    """
    if not file.is_file():
        spoken_words = [words.split() for _, words in read_table(prompts / "train.tsv")]
        lines, words = [], 0
        for line in text_lines(text):
            lines.append(line)
            words += len(line)
            if words >= MOST_WORDS:
                break
        counts = Counter(word for line in lines for word in line)
        known = {word for word, count in counts.items() if count >= LEAST_COUNT}.union(*spoken_words)
        pieces = [[word if word in known else UNKNOWN for word in line] for line in lines]
        NgramModel.learn([*pieces, *spoken_words * PROMPTS], WORD_ORDER).save(file)
    return file


def text_lines(text: Path) -> Iterator[list[str]]:
    """Yield the words of each line of a folder of plain text, in small letters."""
    for document in read_documents([text]):
        if isinstance(document, RawDocument):
            for line in document.text.splitlines():
                if words := re.findall(r"[a-z]+(?:'[a-z]+)*", line.lower().replace("’", "'")):
                    yield words


def initial_encoder(folder: Path) -> Path:
    """The folder of an untrained encoder."""
    return untrained_small(folder, letter_pieces(LETTERS), **SHAPE)


def pretrained(run: Path, fresh: Path, folder: Path) -> Path:
    """The folder of the same encoder with the layers of one that was pretrained on text."""
    if not folder.is_dir():
        model = ErnieModel.from_pretrained(fresh)
        layers = {
            name: value
            for name, value in arrays(ErnieModel.from_pretrained(run)).items()
            if name.startswith("encoder.")
        }
        set_weights(model, arrays(model) | layers, str(run))
        model.save_pretrained(folder)
    return folder


def error_rates(
    run: Path, prompts: Path, languages: Mapping[str, tuple[Path, Sequence[float]]]
) -> dict[str, dict[str, float]]:
    """The word and letter error rates of a run on test, by the likeliest letters, a beam, and with language models.

    Of the weights of a language model the one is taken with which the fewest words are wrong on dev; it and the rate
    on dev are told, too.
    """
    model = TaskModel.load(run)
    greedy = model.task
    assert isinstance(greedy, Transcribe)

    def errors(split: str, task: Transcribe) -> dict[str, float]:
        model.task = task
        rows = list(read_table(prompts / f"{split}.tsv"))
        texts, answers = [text for _, text in rows], model.predict([{"audio": str(file)} for file, _ in rows])
        transcripts = [answer["transcript"] for answer in answers]
        return {"wer": wer(texts, transcripts), "cer": cer(texts, transcripts)}

    beam = replace(greedy, beam=BEAM)
    found = {"likeliest letters": errors("test", greedy), "beam": errors("test", beam)}
    for name, (file, weights) in languages.items():
        tasks = {weight: replace(beam, language_model=file, alpha=weight) for weight in weights}
        dev = {weight: errors("dev", task)["wer"] for weight, task in tasks.items()}
        best = min(dev, key=dev.__getitem__)
        found[name] = {**errors("test", tasks[best]), "weight": best, "dev wer": dev[best]}
    return found


if __name__ == "__main__":
    main()
