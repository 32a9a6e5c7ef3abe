"""Latency and quality of simultaneous translation on the shared encoder.

  python benchmarks/translation.py --data DATA --output runs/translation [--seeds 0 1 2] [--epochs 10] [--arms full ...]

DATA has mt_multi30k_task1/{train,val,test_2016_flickr}.{de,en,cs,fr}.gz and mt_doc_libreoffice_help_zh_en.  Each
language pair has a joint vocabulary, an encoder of 3 layers of 256 and a decoder of the same size; each arm is
fine-tuned by `ernie finetune`, seed by seed, and scored on the test split.  Finished work is kept, so that an
interrupted command resumes where it stopped; the results of each arm are a small file under `--records` (by default in
OUTPUT), and the tables show all files.

German to English: wait-k for several k, one model trained on all of them, and one also on whole sentences, whole
sentences, and whole sentences with an encoder pretrained on the training text of both languages; `full, early` is the
model trained on whole sentences, used with test-time wait-k, and `full, beam of 4` the same model with a beam of four
hypotheses. It encodes the source read so far anew for each token, with a bidirectional encoder. The encoders of the
wait-k arms are unidirectional, and so is that of `one-way`, which is trained on whole sentences and also used with
test-time wait-k; `one-way, then wait-1` continues it for as many epochs. Czech to French, whose sentences have 1.25
times as many tokens: wait-3 with and without catching up. English to Chinese: the help of an office suite.

Test sentences that are longer than any learned from are left out (only the help has some). The lag is AL in tokens,
measured for each translation against its reference, not counting the ends of sentences. Set before the first run, after
Ma et al. (2019): it grows with k and is, on the decoded lengths, within 0.01 of its closed form (where a model did not
wait of its own accord, having ended a sentence before its source ended); k = 9 is at most 2 BLEU below whole sentences;
training with wait-1 is worth 1.5 BLEU over test-time wait-1; catching up brings the lag nearer to k; a pretrained
encoder beats an untrained one; and whole sentences reach 35 BLEU.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence import MASKED, SEEDS, pretrain
from fine_tuned import ernie, fine_tuned, untrained_small
from outcomes import report
from page_tables import CHINESE_WAITS, WAITS, translation, translation_catching_up, translation_chinese
from record_files import Records, cached_record, read_records_of, slug

from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import RowOptions
from ernie.decode.latency import Latency, average_lagging
from ernie.decode.translator import Progress
from ernie.text.load import load_tokenizer
from inference.translator import TextTranslator
from tasks.downstream.bleu import bleu

SHAPE: dict[str, Any] = {"layers": 3, "hidden_size": 256, "heads": 4, "intermediate_size": 1024}
VOCABULARY = 8000
BETWEEN = 0.01  # the measured AL and its closed form
TARGETS = (
    "translation-whole",
    "translation-lag",
    "translation-wait-1",
    "translation-one-way",
    "translation-wait-9",
    "translation-pretrained",
    "translation-catching-up",
)
MOST_TOKENS = 64
BEAM = 4
DROPOUT = 0.1  # with 0.3 ten epochs end at 37.1 BLEU instead of 40.6
DEV_ROWS = 200
PRETRAINING_STEPS = 4000  # on masked words of both languages
LINES = 40  # sentences in a document of that text
SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
HELD_OUT = 40  # of this many documents of the help, one is for dev and one for test


@dataclass(frozen=True)
class Arm:
    """A language pair, settings of the task, whether the encoder is pretrained, and the arm that is trained before."""

    pair: str
    task: dict[str, Any] = field(default_factory=dict)
    pretrained: bool = False
    start: str = ""


ARMS = {
    **{f"wait-{k}": Arm("de-en", {"wait_k": k}) for k in WAITS},
    "full": Arm("de-en"),
    "one-way": Arm("de-en", {"wait_k": MOST_TOKENS}),
    "full, encoder pretrained": Arm("de-en", pretrained=True),
    "one-way, then wait-1": Arm("de-en", {"wait_k": 1}, start="one-way"),
    "several": Arm("de-en", {"wait_k": list(WAITS)}),
    "several and whole": Arm("de-en", {"wait_k": [*WAITS, MOST_TOKENS]}),
    "cs-fr, wait-3": Arm("cs-fr", {"wait_k": 3}),
    "cs-fr, wait-3, catching up": Arm("cs-fr", {"wait_k": 3, "catch_up": 0.2}),
    **{f"en-zh, wait-{k}": Arm("en-zh", {"wait_k": k}) for k in CHINESE_WAITS},
    "en-zh, full": Arm("en-zh"),
}


def main() -> None:
    """Run what is missing, print the tables and draw the figure."""
    arguments, name, records = parsed(__doc__, list(ARMS))

    def record(label: str, seed: int) -> dict[str, Any]:
        arm = ARMS[label]
        files, folder = split_files(arguments.data, arguments.output, arm.pair), arguments.output / arm.pair
        model = initial_encoder(files["train"], folder, arm.pair)
        if arm.pretrained:
            model = pretrained_encoder(files["train"], folder, arm.pair, model, seed) / "model"
        head = "new"
        if arm.start:
            model, head = folder / name / f"{slug(arm.start)}-{seed}" / "model", "keep"
            if not model.is_dir():
                raise SystemExit(f"{label} continues {arm.start}: run that arm first")
        run = folder / name / f"{slug(label)}-{seed}"
        source, target = arm.pair.split("-")
        task = {"kind": "translate", "text": source, "label": target, "max_len": MOST_TOKENS, **arm.task}
        data = {"train": files["train"], "dev": f"{files['dev']}[:{DEV_ROWS}]"}
        schedule = {"epochs": arguments.epochs, "batch_tokens": 2048, "dropout": DROPOUT}
        fine_tuned(run, model, task, data, seed, head, **schedule)
        return scored(run, label, files)

    for seed in arguments.seeds:
        for label in arguments.arms:
            cached_record(records / f"{slug(label)}-{seed}.json", partial(record, label, seed))
    by_arm = {label: read_records_of(records, slug(label)) for label in ARMS}
    points: dict[str, list[dict[str, float]]] = {}
    for of_arm in by_arm.values():
        for result in of_arm:
            for name, point in result["points"].items():
                points.setdefault(name, []).append(point)
    report(Records(records), translation, translation_chinese, translation_catching_up, targets=TARGETS)
    for of_arm in by_arm.values():
        print("".join(f"{line}\n" for result in of_arm for line in result.get("anticipation", ())), end="")
    draw(points, records / "latency.png")


def parsed(description: str | None, arms: list[str], flags: Sequence[str] = ()) -> tuple[argparse.Namespace, str, Path]:
    """The arguments of a command with these arms, the name of its schedule, and the folder of its records."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--arms", nargs="+", choices=arms, default=arms)
    parser.add_argument("--records", type=Path, metavar="DIR")
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args()
    name = f"epochs-{arguments.epochs}"
    return arguments, name, (arguments.records or arguments.output / "records") / name


def split_files(data: Path, output: Path, pair: str) -> dict[str, str]:
    """The files of each split of a pair; those of the help are written first."""
    if pair != "en-zh":
        languages = "{" + pair.replace("-", ",") + "}"
        return {split: str(data / "mt_multi30k_task1" / f"{name}.{languages}.gz") for split, name in SPLITS.items()}
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
    """The distinct translated blocks of each split; no document has blocks in two splits."""
    rows: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    seen = set()
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            document = json.loads(line)
            split = {0: "dev", 1: "test"}.get(number % HELD_OUT, "train")
            for zh, en in zip(document["zh"], document["en"], strict=True) if document["aligned"] else ():
                if (zh, en) not in seen and any("\u4e00" <= character <= "\u9fff" for character in zh):
                    seen.add((zh, en))
                    rows[split].append({"en": en, "zh": zh})
    return rows


def rows_of(split: str, file: str) -> Sequence[Mapping[str, Any]]:
    """Read the rows of a split."""
    return read_split(split, [file], RowOptions()).rows


def initial_encoder(train: str, folder: Path, pair: str) -> Path:
    """The folder of an untrained encoder with a joint vocabulary of both languages."""
    fresh, tokenizer = folder / "fresh", folder / "tokenizer"
    if not tokenizer.is_dir():
        options = ["--kind", "sentencepiece", "--cased", "--vocab-size", str(VOCABULARY), "--output", str(tokenizer)]
        ernie("tokenizer", "train", "--input", *map(str, texts(train, folder, pair)), *options)
    return untrained_small(fresh, load_tokenizer(tokenizer), **SHAPE)


def texts(train: str, folder: Path, pair: str) -> list[Path]:
    """Write the training text of each language, with an empty line between documents."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, files = rows_of("train", train), []
    for language in pair.split("-"):
        files.append(folder / f"train.{language}.txt")
        lines = [f"{row[language]}\n" + "\n" * (number % LINES == 0) for number, row in enumerate(rows, 1)]
        files[-1].write_text("".join(lines), encoding="utf-8")
    return files


def pretrained_encoder(train: str, folder: Path, pair: str, fresh: Path, seed: int) -> Path:
    """The run that pretrains the encoder on masked words of the training text of both languages."""
    corpus = folder / "corpus"
    if not corpus.is_dir():
        options = ("--tokenizer", str(folder / "tokenizer"), "--output", str(corpus), "--quiet")
        ernie("data", "build", "--input", *map(str, texts(train, folder, pair)), *options)
    tree = {
        "schedule": {"stages": [{MASKED: PRETRAINING_STEPS}]},
        "model": {"start_from": str(fresh.resolve()), "dropout": 0.1, "attention_dropout": 0.1},
        "data": {"max_len": MOST_TOKENS, "micro_batch_tokens": 2048},
        "train": {"lr": {"peak": 1e-3, "warmup": 0.05}},
    }
    return pretrain(corpus, tree, folder / f"knows-{seed}", seed)


def decodings(label: str) -> list[tuple[str, int | None, int]]:
    """The ways to decode with a model: name in the table, k (None for the model's own), and the beam size that is used
    once the source sentence has ended."""
    if label.startswith("several"):
        return [(f"{label}, asked for {k}", k, 1) for k in WAITS]
    ways: list[tuple[str, int | None, int]] = [(label, None, 1)]
    if label == "full":
        ways.append((f"full, beam of {BEAM}", None, BEAM))
    if label in ("full", "one-way", "en-zh, full"):
        distances = CHINESE_WAITS if label == "en-zh, full" else WAITS
        ways += [(f"{label}, early {k}", k, 1) for k in distances]
    return ways


def scored(run: Path, label: str, files: dict[str, str]) -> dict[str, Any]:
    """Lag, checked against its closed form, and BLEU on the test split by each way to decode; the training time."""
    source, target = ARMS[label].pair.split("-")
    all_rows = rows_of("test", files["test"])
    problem = TextTranslator.load(run).problem
    rows = [row for row in all_rows if not problem(row[source])]
    seconds = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]["seconds"]
    result: dict[str, Any] = {"points": {}, "minutes": seconds / 60, "too long": len(all_rows) - len(rows)}
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    references = [len(tokenizer.encode(row[target]).ids) for row in rows]
    for name, k, beam in decodings(label):
        translator = TextTranslator.load(run, k, beam)
        answers = translator.translate([row[source] for row in rows])
        latencies, deviations = [], []
        distance = k or ARMS[label].task.get("wait_k")
        for (_, progress), reference in zip(answers, references, strict=True):
            read, written = progress.source, len(progress.written)
            if not written:
                continue
            latencies.append(Latency.of(progress.source_delays, read, reference))
            if distance and not progress.waited and "catch_up" not in ARMS[label].task:
                lag = average_lagging(progress.source_delays, read, written)
                deviations.append(abs(lag - closed_form(distance, read, written)))
        if deviations and max(deviations) > BETWEEN:
            raise SystemExit(f"{run}: AL is {max(deviations)} off its closed form")
        score = bleu([row[target] for row in rows], [text for text, _ in answers])
        mean = Latency.mean(latencies)
        waited = sum(progress.waited > 0 for _, progress in answers)
        result["points"][name] = {"lag": mean.lagging, "bleu": score, "waited": waited, "latency": asdict(mean)}
        if label == "wait-3":
            result["anticipation"] = anticipation(run, files, rows, answers)
    return result


def closed_form(k: int, read: int, written: int) -> float:
    """AL of wait-k: the mean of k + (t - 1)(1 - 1/r) over the tokens up to the first after all is read."""
    tokens = min(max(1, read - k + 1), written)
    return min(k, read) + (tokens - 1) / 2 * (1 - read / written)


def anticipation(
    run: Path, files: dict[str, str], rows: Sequence[Mapping[str, Any]], answers: list[tuple[str, Progress]]
) -> list[str]:
    """How often an English verb was written before any token of the sentence-final German verb was read.

    Sentences in which another verb has that meaning do not count.
    """
    lexicon = translations(rows_of("train", files["train"]))
    verbs = anticipated = 0
    examples = []
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    for row, (text, progress) in zip(rows, answers, strict=True):
        words = row["de"].split()
        verb = words[-1].rstrip(".!,") if words else ""
        elsewhere = frozenset[str]().union(*(lexicon.get(word.rstrip(".!,"), ()) for word in words[:-1]))
        meanings = (lexicon.get(verb, frozenset()) - elsewhere) & frozenset(row["en"].lower().rstrip(".").split())
        if not is_verb(verb) or not meanings:
            continue
        before = len(tokenizer.encode(" ".join(words[:-1])).ids)  # source tokens before the verb
        early = tokenizer.decode(
            [i for i, read in zip(progress.written, progress.delays, strict=True) if read <= before]
        )
        verbs += 1
        if meanings & frozenset(early.lower().split()):
            anticipated += 1
            examples.append(f"  {row['de']} -> {text} ({verb}: {' '.join(meanings)})")
    summary = f"{run.name}: of {verbs} verbs that end a sentence, {anticipated} were written before they were read"
    return [summary, *examples[:4]]


def is_verb(word: str) -> bool:
    """Whether the last word of a German sentence looks like a verb; nouns are capitalized."""
    return len(word) > 3 and word[0].islower() and word.endswith(("t", "en", "eln", "ern"))


def translations(rows: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """For each German verb that ends sentences, the English words that go with it (Dice's coefficient above 0.2)."""
    english, german, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for row in rows:
        words = set(row["en"].lower().rstrip(".").split())
        verbs = {word for word in (token.rstrip(".!,") for token in row["de"].split()) if is_verb(word)}
        english.update(words)
        german.update(verbs)
        both.update((verb, word) for verb in verbs for word in words)
    lexicon: dict[str, set[str]] = {}
    for (verb, word), count in both.items():
        if count >= 5 and 2 * count / (german[verb] + english[word]) > 0.2:
            lexicon.setdefault(verb, set()).add(word)
    return {verb: frozenset(meanings) for verb, meanings in lexicon.items()}


def draw(points: dict[str, list[dict[str, float]]], file: Path) -> None:
    """Draw BLEU against AL, German to English, with a line for each way of training."""
    figure, panel = plt.subplots(figsize=(6.5, 4.5))
    families = {
        "trained with wait-k": "wait-",
        "trained with several k": "several, ",
        "trained with several k and whole sentences": "several and whole, ",
        "test-time wait-k": "full, early",
        "test-time wait-k, unidirectional encoder": "one-way, early",
    }
    for label, prefix in families.items():
        line = [
            tuple(np.median([[point["lag"], point["bleu"]] for point in of_seeds], axis=0))
            for name, of_seeds in points.items()
            if name.startswith(prefix)
        ]
        if line:
            panel.plot(*np.array(sorted(line)).T * [[1], [100]], marker="o", label=label)
    if "full" in points:
        whole = 100 * statistics.median(point["bleu"] for point in points["full"])
        panel.axhline(whole, color="grey", linestyle="--")
        anchor: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "top"}
        panel.annotate("whole sentences", (0, whole), (6, -5), color="grey", **anchor)
    panel.set(xlabel="average lagging, tokens", ylabel="BLEU")
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
