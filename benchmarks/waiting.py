"""How little must a translation wait?  Adaptive waiting and distillation beside wait-k, German to English.

  python benchmarks/waiting.py --data DATA --output runs/waiting [--seeds 0 1 2] [--epochs 10] [--arms whole ...]
  python benchmarks/waiting.py --data DATA --output runs/waiting --in-time [...]
  python benchmarks/waiting.py --data DATA --output runs/waiting --simuleval [...]

DATA, the encoder, the decoder and the training are those of benchmarks/translation.py, with ten epochs.  The arms:
  whole                learns whole sentences, with an encoder that looks in both directions
  one-way              the same with an encoder that looks back only
  several              as `one-way`, waits 64, 1, 3, 5, 7 and 9 tokens, one drawn for each row (multi-path); like the
                       others its best epoch on dev is that of whole sentences
  ..., distilled       the same, but learns from the translations that `whole` of this seed gives with a beam of 4
                       (Kim and Rush, 2016, arXiv 1606.07947)
  one-way, in order    as `one-way, distilled`, from translations that `whole` gives 5 tokens behind its source: they
                       keep more of its order (Chen et al., 2020, arXiv 2010.11247)
Each translates the dev and the test split by wait-k, with several k, and by adaptive policies: from k = 1 on, with a
`confidence`, or an `agreement`, and a `max_wait_k` of a grid.  Once a source is over, a beam of 4 goes on, as for whole
sentences.  Of the policies of a kind that lag at most 3 tokens (AL) on dev the one with the highest BLEU there is
taken.  Finished work is kept, so that an interrupted command resumes where it stopped; the results of each arm are a
small file under `--records` (by default in OUTPUT), and the table shows all files.  The translations are kept in the
run's folder.

Seeds come in stages: seed 0 of all arms, then seeds 1 and 2 of `whole` and of the two arms whose adaptive policy is the
best on dev with seed 0.  Several processes may share OUTPUT, each with a seed of its own.

`--in-time` also measures, of the first IN_TIME rows of test, the lag in seconds, one sentence at a time, whose words
come every WORD_SECONDS: without and with the time that computing takes (computation-aware), against the words of the
reference.  That needs the machine for itself, and is done for the whole sentences and the policies that were taken.
`--simuleval` also has SimulEval, which must be installed, drive these policies: its BLEU, AL and LAAL, in words, stand
beside ours.  Both train nothing, and skip arms whose runs are not there, and say so; the policies that are taken depend
on the seeds that have records, so do this after all of them.

Set before the first run, for means over three seeds that both have: of the best arm (by BLEU of its adaptive policy on
dev) that policy is at most 1 BLEU below `whole` on whole sentences, on test2016, and lags at most 3.1 tokens there.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from fine_tuned import fine_tuned
from moments import moments
from outcomes import report
from page_tables import (
    LAGGING,
    LEARNERS,
    MOST_LAG,
    POLICIES,
    chosen_policy,
    is_adaptive,
    policy_name,
    simuleval,
    waiting_in_time,
    waiting_less,
)
from record_files import Records, cached_record, read_record, slug, this_machine
from translation import BEAM, DROPOUT, MOST_TOKENS, initial_encoder, parsed, rows_of, split_files

from ernie.atomic import make_folder, put_text
from ernie.decode.latency import Latency, average_lagging
from ernie.text.load import load_tokenizer
from finetune.report.latency import translate_live
from inference.translator import TextTranslator
from tasks.downstream.bleu import bleu

PAIR, SOURCE, TARGET = "de-en", "de", "en"
DEV_ROWS = 200  # by which checkpoints are chosen
IN_TIME, WORD_SECONDS = 200, 0.4  # 150 words a minute
ROWS_KEPT = 2000  # of those translated for distillation: what an interruption loses at most


@dataclass(frozen=True)
class Learner:
    """What the task waits for in training, and by which policy `whole` gives translations to learn from, if it does.

    An empty policy is that of whole sentences.
    """

    task: dict[str, Any]
    taught_by: dict[str, Any] | None = None


WHOLE = {"wait_k": MOST_TOKENS}  # waits for more tokens than a source has
ONE_WAY, SEVERAL = WHOLE, {"wait_k": [MOST_TOKENS, 1, 3, 5, 7, 9]}
ARMS = {
    "whole": Learner({}),
    "one-way": Learner(ONE_WAY),
    "several": Learner(SEVERAL),
    "whole, distilled": Learner({}, taught_by={}),
    "one-way, distilled": Learner(ONE_WAY, taught_by={}),
    "several, distilled": Learner(SEVERAL, taught_by={}),
    "one-way, in order": Learner(ONE_WAY, taught_by={"wait_k": 5}),
}


def main() -> None:
    """Run what is missing, print the table and draw the figure."""
    arguments, name, records = parsed(__doc__, list(ARMS), ["--in-time", "--simuleval"])
    folder = arguments.output / name
    files = split_files(arguments.data, arguments.output, PAIR)
    model = initial_encoder(files["train"], arguments.output / PAIR, PAIR)

    def trained(arm: str, seed: int) -> Path:
        learner, train = ARMS[arm], files["train"]
        if learner.taught_by is not None:
            taught = folder / f"distilled-{slug(policy_name(learner.taught_by))}-{seed}.jsonl"
            train = str(distilled(trained("whole", seed), learner.taught_by, files["train"], taught))
        task = {"kind": "translate", "text": SOURCE, "label": TARGET, "max_len": MOST_TOKENS, **learner.task}
        data = {"train": train, "dev": f"{files['dev']}[:{DEV_ROWS}]"}
        schedule = {"epochs": arguments.epochs, "batch_tokens": 2048, "dropout": DROPOUT}
        return fine_tuned(folder / f"{slug(arm)}-{seed}", model, task, data, seed, **schedule)

    def record(arm: str, seed: int) -> dict[str, Any]:
        run = trained(arm, seed)
        found: dict[str, Any] = {}
        for split in ("dev", "test"):
            rows = rows_of(split, files[split])
            parts = run / "policies" / split  # each is kept, for all of them take long
            found[split] = {
                policy_name(policy): cached_record(
                    parts / f"{slug(policy_name(policy))}.json", partial(scored, run, policy, rows, parts)
                )
                for policy in POLICIES
            }
        return found

    for seed in arguments.seeds:
        for arm in arguments.arms:
            file = records / f"{slug(arm)}-{seed}.json"
            if file.is_file() and not {*map(policy_name, POLICIES)} <= {*read_record(file)["dev"]}:
                file.unlink()  # of fewer policies; what they gave is kept beside the run
            if not (arguments.in_time or arguments.simuleval) or file.is_file():
                cached_record(file, partial(record, arm, seed))
    show(records)
    rows = rows_of("test", files["test"])
    for is_wanted, kind, measure in (
        (arguments.in_time, "in-time", timed),
        (arguments.simuleval, "simuleval", by_both),
    ):
        for arm, policy, seed in policies_taken(Records(records), arguments.arms, arguments.seeds) if is_wanted else ():
            stem, run = f"{arm}-{slug(policy_name(policy))}-{seed}", folder / f"{arm}-{seed}"
            file = records / kind / f"{stem}.json"
            if not file.is_file() and not (run / "scores.json").is_file():
                print(f"{kind}: {run} is not there; {stem} is left out", file=sys.stderr)
                continue
            cached_record(file, partial(measure, run, policy, rows, folder / kind / stem))
    show(records)


def show(records: Path) -> None:
    """Print the tables and draw the figure."""
    report(Records(records), waiting_less, waiting_in_time, simuleval, targets=["waiting-less"])
    draw(Records(records), records / "waiting.png")


def policies_taken(
    records: Records, arms: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any], int]]:
    """The arms, as files name them, that have records, with each policy that was taken, or whole sentences; and seeds.

    Whole sentences are those of `whole` alone.
    """
    policies = {policy_name(policy): policy for policy in POLICIES}
    for arm, _, own in records.arms({slug(arm): arm for arm in arms}):
        taken = [chosen_policy(own, adaptive) for adaptive in (False, True)]
        for name in ["whole"] * (arm == "whole") + [each for each in taken if each is not None]:
            for seed in seeds:
                yield arm, policies[name], seed


def distilled(run: Path, policy: Mapping[str, Any], train: str, file: Path) -> Path:
    """The training rows with translations of a run in place of those by people, written unless they are there.

    Rows without a translation are left out, and counted.  What was translated before an interruption is kept.
    """
    if not file.is_file():
        sources = [str(row[SOURCE]) for row in rows_of("train", train)]
        translator = translator_of(run, policy)

        def translated(first: int) -> dict[str, list[str]]:
            return {"texts": [text for text, _ in translator.translate(sources[first : first + ROWS_KEPT])]}

        parts = file.with_suffix("")
        translations = [
            text
            for first in range(0, len(sources), ROWS_KEPT)
            for text in cached_record(parts / f"{first}.json", partial(translated, first))["texts"]
        ]
        pairs = [(source, text) for source, text in zip(sources, translations, strict=True) if text.strip()]
        print(f"{file.name}: {len(sources) - len(pairs)} of {len(sources)} rows have no translation", file=sys.stderr)
        lines = (json.dumps({SOURCE: source, TARGET: text}, ensure_ascii=False) for source, text in pairs)
        put_text(file, "".join(f"{line}\n" for line in lines))
    return file


def translator_of(run: Path, policy: Mapping[str, Any]) -> TextTranslator:
    """The translator of a run with a policy; an empty one is that of whole sentences."""
    return TextTranslator.load(run, beam=BEAM, **(policy or WHOLE))


def scored(run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], parts: Path) -> dict[str, Any]:
    """BLEU and the mean latencies in tokens of a policy; `empty` counts translations without one.

    `longer` is how many times as many words as the references they have.  The translations are written to `parts`.
    """
    translator = translator_of(run, policy)
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    answers = list(translator.translate([row[SOURCE] for row in rows]))
    latencies = [
        Latency.of(progress.source_delays, progress.source, len(tokenizer.encode(row[TARGET]).ids))
        for (_, progress), row in zip(answers, rows, strict=True)
        if progress.written
    ]
    texts, targets = [text for text, _ in answers], [row[TARGET] for row in rows]
    lines = [
        json.dumps(
            {"text": text, "delays": list(progress.source_delays), "tokens": progress.source}, ensure_ascii=False
        )
        for text, progress in answers
    ]
    make_folder(parts)
    put_text(parts / f"{slug(policy_name(policy))}.jsonl", "".join(f"{line}\n" for line in lines))
    words, wanted = (sum(len(text.split()) for text in each) for each in (texts, targets))
    latency = asdict(Latency.mean(latencies))
    return {
        "bleu": bleu(targets, texts),
        "latency": latency,
        "longer": words / wanted,
        "empty": len(rows) - len(latencies),
    }


def timed(run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], place: Path) -> dict[str, Any]:
    """The lags in time of the first rows, and on which machine."""
    del place
    in_time(run, policy, rows[:1])  # the first sentence takes longer
    return {**this_machine(), "rows": IN_TIME, **in_time(run, policy, rows[:IN_TIME])}


def in_time(run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean AL in seconds of a policy, without and with the time that computing takes."""
    translator = translator_of(run, policy)
    lags: dict[str, list[float]] = {"seconds": [], "computation-aware": []}
    for row in rows:
        words = row[SOURCE].split()
        came = moments(translator, ((f"{' ' if n else ''}{word}", WORD_SECONDS) for n, word in enumerate(words)))
        if came.words:
            source, reference = WORD_SECONDS * len(words), len(row[TARGET].split())
            lags["seconds"].append(average_lagging(came.heard, source, reference))
            lags["computation-aware"].append(average_lagging(came.done, source, reference))
    return {name: statistics.mean(each) for name, each in lags.items()}


def by_both(
    run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], place: Path
) -> dict[str, dict[str, float]]:
    """BLEU, and AL and LAAL in words, of a policy on live input, by our own measures and by SimulEval's."""
    sources, targets = ([row[column] for row in rows] for column in (SOURCE, TARGET))
    live = translate_live(translator_of(run, policy), sources)
    told = [(each, target) for each, target in zip(live, targets, strict=True) if each.delays]
    latency = Latency.mean([Latency.of(each.delays, each.words, len(target.split())) for each, target in told])
    ours = {"BLEU": 100 * bleu(targets, [each.text for each in live])}
    place.mkdir(parents=True, exist_ok=True)
    for name, texts in (("source", sources), ("target", targets)):
        put_text(place / f"{name}.txt", "".join(f"{text}\n" for text in texts))
    words = ["--agent-class", "inference.simuleval_agent.TranslatorAgent", "--run", str(run), "--beam", str(BEAM)]
    words += [word for key, value in (policy or WHOLE).items() for word in (f"--{key.replace('_', '-')}", str(value))]
    words += ["--source", str(place / "source.txt"), "--target", str(place / "target.txt"), "--output", str(place)]
    words += ["--quality-metrics", "BLEU", "--latency-metrics", "AL", "LAAL", "--no-progress-bar"]
    subprocess.run([sys.executable, "-c", "from simuleval.cli import main; main()", *words], check=True)
    header, values = (place / "scores.tsv").read_text(encoding="utf-8").splitlines()[:2]
    scores = dict(zip(header.split("\t"), values.split("\t"), strict=True))
    return {
        "ours": ours | {"AL": latency.lagging, "LAAL": latency.length_adaptive},
        "SimulEval": {name: float(scores[name]) for name in ("BLEU", "AL", "LAAL")},
    }


def draw(records: Records, file: Path) -> None:
    """Draw BLEU on test against AL and LAAL: a panel for each arm below each, wait-k as a line, the others as points.

    Of the adaptive policies a line joins those that no other of lower lag on dev exceeds there.
    """
    arms = list(records.arms(LEARNERS))
    if not arms:
        return
    whole = next((seeds for arm, _, seeds in arms if arm == "whole"), None)
    figure, rows = plt.subplots(
        len(LAGGING), len(arms), figsize=(3.2 * len(arms), 3.1 * len(LAGGING)), sharey=True, sharex="row", squeeze=False
    )
    for panels, (measure, lag_name) in zip(rows, LAGGING.items(), strict=True):
        for panel, (_, label, seeds) in zip(panels, arms, strict=True):
            if whole:
                score = 100 * statistics.mean(seed["test"]["whole"]["bleu"] for seed in whole)
                panel.axhline(score, color="grey", linestyle="--")
                panel.axhspan(score - 1, score, color="grey", alpha=0.15)
            fixed, adaptive = (
                [policy_name(policy) for policy in POLICIES if policy and is_adaptive(policy) == wanted]
                for wanted in (False, True)
            )
            panel.errorbar(*points_with_spread(seeds, fixed, measure), marker=".", label="wait-k", capsize=2)
            panel.plot(*points_with_spread(seeds, adaptive, measure)[:2], ".", color="C1", alpha=0.4)
            best = undominated(seeds, adaptive, measure)
            panel.errorbar(
                *points_with_spread(seeds, best, measure), marker=".", color="C1", label="adaptive", capsize=2
            )
            panel.set(xlabel=f"{lag_name}, tokens", title=label, xlim=(0, 10))
            panel.title.set_fontsize(9)
            panel.axvline(MOST_LAG, color="grey", linewidth=0.5)
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("BLEU")
    rows[0, 0].legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    plt.close(figure)


def points_with_spread(
    seeds: Sequence[Mapping[str, Any]], names: Sequence[str], measure: str
) -> tuple[list[float], list[float], list[list[float]]]:
    """The mean lags on test of policies, in their order, the mean BLEU, and how far seeds are below and above it."""
    points = []
    for name in names:
        scores = [100 * seed["test"][name]["bleu"] for seed in seeds]
        mean = statistics.mean(scores)
        lag = statistics.mean(seed["test"][name]["latency"][measure] for seed in seeds)
        points.append((lag, mean, mean - min(scores), max(scores) - mean))
    lags, means, below, above = map(list, zip(*sorted(points), strict=True))
    return lags, means, [below, above]


def undominated(seeds: Sequence[Mapping[str, Any]], names: Sequence[str], measure: str) -> list[str]:
    """The policies that have a higher BLEU on dev than all of lower lag there."""
    found: list[str] = []
    highest = -1.0
    lags = {name: statistics.mean(seed["dev"][name]["latency"][measure] for seed in seeds) for name in names}
    for name in sorted(names, key=lags.__getitem__):
        score = statistics.mean(seed["dev"][name]["bleu"] for seed in seeds)
        if score > highest:
            found, highest = [*found, name], score
    return found


if __name__ == "__main__":
    main()
