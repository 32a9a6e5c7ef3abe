"""How early and how well: simultaneous translation on the shared encoder.

  python benchmarks/translation.py --data DATA --output runs/translation [--seeds 0 1 2] [--epochs 10] [--arms full ...]

DATA has mt_multi30k_task1/{train,val,test_2016_flickr}.{de,en,cs,fr}.gz and mt_doc_libreoffice_help_zh_en.  For each
pair of languages a vocabulary of both, an encoder of 3 layers of 256 and a decoder of as many; each arm is fine-tuned
by `ernie finetune`, seed by seed, and scored on the test split.  What is done is kept, so that the command goes on
where it was cut; what came out of each arm is a small file under `--records` (by default in OUTPUT), and all that are
there make the tables.

German to English: wait-k for several k, one model that learnt all of them, whole sentences, and whole sentences with an
encoder that knows the training text of both languages already; `full, early` is the model that learnt whole sentences,
asked to translate early (test-time wait-k), and `full, beam of 4` the same following four hypotheses.  What it has read
it encodes anew for each token, and its encoder looks both ways.  Those of the wait-k arms do not, nor does that of
`one-way`, which learnt whole sentences and is asked to translate early as well.  Czech to French, whose sentences have
1.25 times as many tokens: wait-3 with and without catching up.  English to Chinese: the help of an office suite.

The lag is AL in tokens, each translation's measured against its reference, the ends of sentences not counted.  Set
before the first run, after Ma et al. (2019): it grows with k and is, on the lengths that were decoded, within 0.01 of
its closed form (where a model did not wait of itself, having found a sentence over before its source was); k = 9 is at
most 2 BLEU below whole sentences; having learnt to wait one token is worth 1.5 BLEU over being asked to; catching up
brings the lag nearer to k; an encoder that knows the text beats one that knows nothing; and whole sentences reach 35
BLEU.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence import MASKED, SEEDS, kept, pretrain, read_records_of, slug
from fine_tuned import ernie, fine_tuned, knows_nothing

from ernie.data.labelled.read import read_split
from ernie.data.labelled.row import RowOptions
from ernie.decode.latency import Latency, average_lagging
from ernie.decode.translator import Progress
from ernie.text.load import load_tokenizer
from finetune.translator import TextTranslator
from tasks.downstream.measures import bleu

SHAPE: dict[str, Any] = {"layers": 3, "hidden_size": 256, "heads": 4, "intermediate_size": 1024}
VOCABULARY = 8000
DISTANCES = (1, 3, 5, 7, 9)
BETWEEN, BELOW, ABOVE, WHOLE = 0.01, 0.02, 0.015, 0.35
MOST_TOKENS = 64
BEAM = 4
DROPOUT = 0.3  # 29,000 sentences are seen ten times
LOOKED_AT = 200  # rows of dev
KNOWS = 4000  # steps that an encoder learns masked words of both languages for, where it does
LINES = 40  # sentences that make a document then
SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
HELD_OUT = 40  # of so many documents of the help one is for dev and one for the test


@dataclass(frozen=True)
class Arm:
    """A pair of languages, what is set of the task, and whether the encoder knows the text before."""

    pair: str
    task: dict[str, Any] = field(default_factory=dict)
    knows: bool = False


ARMS = {
    **{f"wait-{k}": Arm("de-en", {"wait_k": k}) for k in DISTANCES},
    "full": Arm("de-en"),
    "one-way": Arm("de-en", {"wait_k": MOST_TOKENS}),
    "full, encoder pretrained": Arm("de-en", knows=True),
    "several": Arm("de-en", {"wait_k": list(DISTANCES)}),
    "cs-fr, wait-3": Arm("cs-fr", {"wait_k": 3}),
    "cs-fr, wait-3, catching up": Arm("cs-fr", {"wait_k": 3, "catch_up": 0.2}),
    **{f"en-zh, wait-{k}": Arm("en-zh", {"wait_k": k}) for k in (3, 5, 7)},
    "en-zh, full": Arm("en-zh"),
}


def main() -> None:
    """Run what is missing, print the tables, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"epochs-{arguments.epochs}"
    records = (arguments.records or arguments.output / "records") / name

    def record(label: str, seed: int) -> dict[str, Any]:
        arm = ARMS[label]
        files, place = split_files(arguments.data, arguments.output, arm.pair), arguments.output / arm.pair
        model = beginning(files["train"], place, arm.pair)
        if arm.knows:
            model = knowing(files["train"], place, arm.pair, model, seed) / "model"
        run = place / name / f"{slug(label)}-{seed}"
        source, target = arm.pair.split("-")
        task = {"kind": "translate", "text": source, "label": target, "max_len": MOST_TOKENS, **arm.task}
        data = {"train": files["train"], "dev": f"{files['dev']}[:{LOOKED_AT}]"}
        fine_tuned(run, model, task, data, seed, epochs=arguments.epochs, batch_tokens=2048, dropout=DROPOUT)
        return scored(run, label, files)

    for seed in arguments.seeds:
        for label in arguments.arms:
            kept(records / f"{slug(label)}-{seed}.json", partial(record, label, seed))
    found = {label: read_records_of(records, slug(label)) for label in ARMS}
    points: dict[str, list[dict[str, float]]] = {}
    for there in found.values():
        for one in there:
            for name, point in one["points"].items():
                points.setdefault(name, []).append(point)
    print(table(points), end="\n\n")
    for there in found.values():
        print("".join(f"{line}\n" for one in there for line in one.get("anticipation", ())), end="")
    draw(points, records / "latency.png")


def split_files(data: Path, output: Path, pair: str) -> dict[str, str]:
    """The files of each split of a pair; those of the help are written."""
    if pair != "en-zh":
        between = "{" + pair.replace("-", ",") + "}"
        return {split: str(data / "mt_multi30k_task1" / f"{name}.{between}.gz") for split, name in SPLITS.items()}
    folder = output / pair
    files = {split: folder / f"{split}.jsonl" for split in SPLITS}
    if not files["test"].exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = help_rows(data / "mt_doc_libreoffice_help_zh_en" / "help_zh_en.jsonl")
        for split, file in files.items():
            file.write_text(
                "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[split]), encoding="utf-8"
            )
    return {split: str(file) for split, file in files.items()}


def help_rows(file: Path) -> dict[str, list[dict[str, str]]]:
    """The blocks of each split that were translated, each once; no document has blocks in two splits."""
    found: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    seen = set()
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            document = json.loads(line)
            split = {0: "dev", 1: "test"}.get(number % HELD_OUT, "train")
            for zh, en in zip(document["zh"], document["en"], strict=True) if document["aligned"] else ():
                if (zh, en) not in seen and any("\u4e00" <= character <= "\u9fff" for character in zh):
                    seen.add((zh, en))
                    found[split].append({"en": en, "zh": zh})
    return found


def rows_of(split: str, file: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a split."""
    return read_split(split, [file], RowOptions()).rows


def beginning(train: str, place: Path, pair: str) -> Path:
    """An encoder that knows nothing, with a vocabulary of both languages."""
    fresh, tokenizer = place / "fresh", place / "tokenizer"
    if not tokenizer.is_dir():
        options = ["--kind", "sentencepiece", "--cased", "--vocab-size", str(VOCABULARY), "--output", str(tokenizer)]
        ernie("tokenizer", "train", "--input", *map(str, texts(train, place, pair)), *options)
    return knows_nothing(fresh, load_tokenizer(tokenizer), **SHAPE)


def texts(train: str, place: Path, pair: str) -> list[Path]:
    """The training text of each language, an empty line between the documents."""
    place.mkdir(parents=True, exist_ok=True)
    rows, files = rows_of("train", train), []
    for language in pair.split("-"):
        files.append(place / f"train.{language}.txt")
        lines = [f"{row[language]}\n" + "\n" * (number % LINES == 0) for number, row in enumerate(rows, 1)]
        files[-1].write_text("".join(lines), encoding="utf-8")
    return files


def knowing(train: str, place: Path, pair: str, fresh: Path, seed: int) -> Path:
    """An encoder that has learnt masked words of the training text of both languages."""
    corpus = place / "corpus"
    if not corpus.is_dir():
        words = ("--tokenizer", str(place / "tokenizer"), "--output", str(corpus), "--quiet")
        ernie("data", "build", "--input", *map(str, texts(train, place, pair)), *words)
    tree = {
        "schedule": {"stages": [{MASKED: KNOWS}]},
        "model": {"start_from": str(fresh.resolve()), "dropout": 0.1, "attention_dropout": 0.1},
        "data": {"max_len": MOST_TOKENS, "batch_tokens": 2048},
        "train": {"rate": {"peak": 1e-3, "warmup": 0.05}},
    }
    return pretrain(corpus, tree, place / f"knows-{seed}", seed)


def asked(label: str) -> list[tuple[str, int | None, int]]:
    """What a model is asked for: its name in the table, the distance that is kept, None for its own, and the number of
    hypotheses that are followed once a sentence is over."""
    if label == "several":
        return [(f"several, asked for {k}", k, 1) for k in DISTANCES]
    whole: list[tuple[str, int | None, int]] = [(label, None, 1)]
    if label == "full":
        whole.append((f"full, beam of {BEAM}", None, BEAM))
    if label in ("full", "one-way"):
        whole += [(f"{label}, early {k}", k, 1) for k in DISTANCES]
    return whole


def scored(run: Path, label: str, files: dict[str, str]) -> dict[str, Any]:
    """The lag, checked against its closed form, and BLEU of each distance on the test split, and the time it took."""
    source, target = ARMS[label].pair.split("-")
    rows = rows_of("test", files["test"])
    seconds = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]["seconds"]
    found: dict[str, Any] = {"points": {}, "minutes": seconds / 60}
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    references = [len(tokenizer.encode(row[target]).ids) for row in rows]
    for name, k, beam in asked(label):
        translator = TextTranslator.load(run, k, beam)
        answers = translator.translate([row[source] for row in rows])
        latencies, off = [], []
        distance = k or ARMS[label].task.get("wait_k")
        for (_, progress), reference in zip(answers, references, strict=True):
            read, written = progress.source, len(progress.written)
            if not written:
                continue
            latencies.append(Latency.of(progress.behind, read, reference))
            if distance and not progress.waited and "catch_up" not in ARMS[label].task:
                lag = average_lagging(progress.behind, read, written)
                off.append(abs(lag - closed_form(distance, read, written)))
        if off and max(off) > BETWEEN:
            raise SystemExit(f"{run}: AL is {max(off)} off its closed form")
        score = bleu([row[target] for row in rows], [text for text, _ in answers])
        mean = Latency.mean(latencies)
        found["points"][name] = {"lag": mean.lagging, "bleu": score, "latency": asdict(mean)}
        if label == "wait-3":
            found["anticipation"] = anticipation(run, files, rows, answers)
    return found


def closed_form(k: int, read: int, written: int) -> float:
    """AL of wait-k: the mean of k + (t - 1)(1 - 1/r) over the tokens up to that before which all is read."""
    tokens = min(max(1, read - k + 1), written)
    return min(k, read) + (tokens - 1) / 2 * (1 - read / written)


def anticipation(
    run: Path, files: dict[str, str], rows: Sequence[Mapping[str, Any]], answers: list[tuple[str, Progress]]
) -> list[str]:
    """How often an English verb was written before the German one, which ends the sentence, had begun to be read."""
    lexicon = translations(rows_of("train", files["train"]))
    told = right = 0
    examples = []
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    for row, (text, progress) in zip(rows, answers, strict=True):
        words = row["de"].split()
        verb = words[-1].rstrip(".!,") if words else ""
        meanings = lexicon.get(verb, frozenset()) & frozenset(row["en"].lower().rstrip(".").split())
        if not is_verb(verb) or not meanings:
            continue
        before = len(tokenizer.encode(" ".join(words[:-1])).ids)  # tokens of the source ahead of the verb
        early = tokenizer.decode(
            [i for i, read in zip(progress.written, progress.delays, strict=True) if read <= before]
        )
        told += 1
        if meanings & frozenset(early.lower().split()):
            right += 1
            examples.append(f"  {row['de']} -> {text} ({verb}: {' '.join(meanings)})")
    head = f"{run.name}: of {told} verbs that end a sentence, {right} were written before they had begun to be read"
    return [head, *examples[:4]]


def is_verb(word: str) -> bool:
    """Whether the last word of a German sentence looks like a verb: nouns have a capital."""
    return len(word) > 3 and word[0].islower() and word.endswith(("t", "en", "eln", "ern"))


def translations(rows: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """For each German verb that ends sentences, the English words that go with it (Dice's coefficient above 0.2)."""
    english, german, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for row in rows:
        ours = set(row["en"].lower().rstrip(".").split())
        theirs = {word for word in (one.rstrip(".!,") for one in row["de"].split()) if is_verb(word)}
        english.update(ours)
        german.update(theirs)
        both.update((word, other) for word in theirs for other in ours)
    found: dict[str, set[str]] = {}
    for (word, other), count in both.items():
        if count >= 5 and 2 * count / (german[word] + english[other]) > 0.2:
            found.setdefault(word, set()).add(other)
    return {word: frozenset(others) for word, others in found.items()}


def table(points: dict[str, list[dict[str, float]]]) -> str:
    """AL and BLEU of each, the median of the seeds."""
    lines = ["| | AL, tokens | BLEU on the test split | seeds |", "|---|---|---|---|"]
    for name, found in points.items():
        scores = [100 * one["bleu"] for one in found]
        lag = statistics.median(one["lag"] for one in found)
        spread = f"{statistics.median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"
        lines.append(f"| {name} | {lag:.2f} | {spread} | {len(found)} |")
    return "\n".join([*lines, "", *verdicts(points)])


def verdicts(points: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """What was set before the first run, as far as it was measured."""

    def middle(name: str, key: str) -> float:
        return statistics.median(one[key] for one in points[name])

    def told(what: str, comes_true: bool, *names: str) -> Iterator[str]:
        if set(names) <= set(points):
            yield f"- {what}: {'as' if comes_true else 'not as'} was set"

    learnt = [f"wait-{k}" for k in DISTANCES if f"wait-{k}" in points]
    lags = [middle(name, "lag") for name in learnt]
    if len(lags) > 1:
        yield from told("the lag grows with k", lags == sorted(lags), *learnt)
    for what, better, worse, least in (
        ("k = 9 is at most 2 BLEU below whole sentences", "wait-9", "full", -BELOW),
        ("having learnt to wait one token is worth 1.5 BLEU", "wait-1", "full, early 1", ABOVE),
        ("so it is where neither encoder looks ahead", "wait-1", "one-way, early 1", ABOVE),
        ("an encoder that knows the text beats one that knows nothing", "full, encoder pretrained", "full", 0.0),
    ):
        if better in points and worse in points:
            gain = middle(better, "bleu") - middle(worse, "bleu")
            yield from told(f"{what} ({100 * gain:+.1f})", gain >= least)
    if "full" in points:
        yield from told("whole sentences reach 35 BLEU", middle("full", "bleu") >= WHOLE)
    plain, catching = "cs-fr, wait-3", "cs-fr, wait-3, catching up"
    if plain in points and catching in points:
        nearer = abs(middle(catching, "lag") - 3) < abs(middle(plain, "lag") - 3)
        yield from told("catching up brings the lag nearer to k", nearer)


def draw(points: dict[str, list[dict[str, float]]], file: Path) -> None:
    """BLEU against AL, German to English, a line for each way to have learnt it."""
    figure, panel = plt.subplots(figsize=(6.5, 4.5))
    families = {
        "learnt": "wait-",
        "several distances learnt": "several",
        "asked of a whole-sentence model": "full, early",
        "asked of one that encodes one way": "one-way, early",
    }
    for label, prefix in families.items():
        found = [
            tuple(np.median([[one["lag"], one["bleu"]] for one in values], axis=0))
            for name, values in points.items()
            if name.startswith(prefix)
        ]
        if found:
            panel.plot(*np.array(sorted(found)).T * [[1], [100]], marker="o", label=label)
    if "full" in points:
        whole = 100 * statistics.median(one["bleu"] for one in points["full"])
        panel.axhline(whole, color="grey", linestyle="--")
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "top"}
        panel.annotate("whole sentences", (0, whole), (6, -5), color="grey", **place)
    panel.set(xlabel="average lagging, tokens", ylabel="BLEU")
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
