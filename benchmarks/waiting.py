"""How little must a translation wait?  Adaptive waiting and distillation beside wait-k, German to English.

  python benchmarks/waiting.py --data DATA --output runs/waiting [--seeds 0 1 2] [--epochs 10] [--arms whole ...]
  python benchmarks/waiting.py --data DATA --output runs/waiting --simuleval [...]

DATA, the encoder, the decoder and the training are those of benchmarks/translation.py, with ten epochs.  The arms:
  whole                learns whole sentences, with an encoder that looks in both directions
  one-way              the same with an encoder that looks back only
  several              as `one-way`, waits 1, 3, 5, 7, 9 and 64 tokens, one drawn for each row (multi-path)
  ..., distilled       the same, but learns from the translations that `whole` of this seed gives with a beam of 4
                       (Kim and Rush, 2016, arXiv 1606.07947)
Each translates the dev and the test split by wait-k, with several k, and by adaptive policies: from k = 1 on, with a
`confidence` and a `max_wait_k` of a grid.  Once a source is over, a beam of 4 goes on, as for whole sentences.  Of the
policies of a kind that lag at most 3 tokens (AL) on dev the one with the highest BLEU there is taken.  Of the first
IN_TIME rows of test the lag is also measured in seconds, one sentence at a time, whose words come every WORD_SECONDS:
without and with the time that computing takes (computation-aware), against the words of the reference.  Finished work
is kept, so that an interrupted command resumes where it stopped; the results of each arm are a small file under
`--records` (by default in OUTPUT), and the table shows all files.  `--simuleval` also has SimulEval, which must be
installed, drive the policies that were taken: its BLEU, AL and LAAL, in words, stand beside ours.

Set before the first run, for means over three seeds: of the best arm (by BLEU of its adaptive policy on dev) that
policy is at most 1 BLEU below `whole` on whole sentences, on test2016, and lags at most 3.1 tokens there.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from fine_tuned import fine_tuned
from moments import moments
from outcomes import report
from page_tables import LEARNERS, POLICIES, chosen_policy, policy_name, simuleval, waiting_less
from record_files import Records, cached_record, slug
from translation import BEAM, DROPOUT, MOST_TOKENS, initial_encoder, parsed, rows_of, split_files

from ernie.atomic import put_text
from ernie.decode.latency import Latency, average_lagging
from ernie.text.load import load_tokenizer
from finetune.report.latency import translate_live
from inference.translator import TextTranslator
from tasks.downstream.bleu import bleu

PAIR, SOURCE, TARGET = "de-en", "de", "en"
DEV_ROWS = 200  # by which checkpoints are chosen
IN_TIME, WORD_SECONDS = 50, 0.4  # 150 words a minute
LAGS = (
    ("lagging", "average lagging (AL), tokens"),
    ("length_adaptive", "length-adaptive average lagging (LAAL), tokens"),
    ("computation-aware", "computation-aware AL, seconds"),
)


@dataclass(frozen=True)
class Learner:
    """What the task waits for in training, and whether the arm learns from translations of `whole`."""

    task: dict[str, Any]
    distilled: bool = False


ONE_WAY, SEVERAL = {"wait_k": MOST_TOKENS}, {"wait_k": [1, 3, 5, 7, 9, MOST_TOKENS]}
ARMS = {
    "whole": Learner({}),
    "one-way": Learner(ONE_WAY),
    "several": Learner(SEVERAL),
    "whole, distilled": Learner({}, distilled=True),
    "one-way, distilled": Learner(ONE_WAY, distilled=True),
    "several, distilled": Learner(SEVERAL, distilled=True),
}


def main() -> None:
    """Run what is missing, print the table and draw the figure."""
    arguments, name, records = parsed(__doc__, list(ARMS), ["--simuleval"])
    folder = arguments.output / name
    files = split_files(arguments.data, arguments.output, PAIR)
    model = initial_encoder(files["train"], arguments.output / PAIR, PAIR)

    def trained(arm: str, seed: int) -> Path:
        learner, train = ARMS[arm], files["train"]
        if learner.distilled:
            train = str(distilled(trained("whole", seed), files["train"], folder / f"distilled-{seed}.jsonl"))
        task = {"kind": "translate", "text": SOURCE, "label": TARGET, "max_len": MOST_TOKENS, **learner.task}
        data = {"train": train, "dev": f"{files['dev']}[:{DEV_ROWS}]"}
        schedule = {"epochs": arguments.epochs, "batch_tokens": 2048, "dropout": DROPOUT}
        return fine_tuned(folder / f"{slug(arm)}-{seed}", model, task, data, seed, **schedule)

    def record(arm: str, seed: int) -> dict[str, Any]:
        run = trained(arm, seed)
        found: dict[str, Any] = {}
        for split in ("dev", "test"):
            rows = rows_of(split, files[split])
            found[split] = {policy_name(policy): scored(run, policy, rows) for policy in POLICIES}
        found["in time"] = {policy_name(policy): in_time(run, policy, rows[:IN_TIME]) for policy in POLICIES}
        return found

    for seed in arguments.seeds:
        for arm in arguments.arms:
            cached_record(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed))
    if arguments.simuleval:
        rows, policies = rows_of("test", files["test"]), {policy_name(policy): policy for policy in POLICIES}
        for arm, _, seeds in Records(records).arms(LEARNERS):
            for chosen in filter(None, (chosen_policy(seeds, adaptive) for adaptive in (False, True))):
                for seed in arguments.seeds:
                    stem = f"{arm}-{slug(chosen)}-{seed}"
                    run, place = folder / f"{arm}-{seed}", folder / "simuleval" / stem
                    make = partial(by_both, run, policies[chosen], rows, place)
                    cached_record(records / "simuleval" / f"{stem}.json", make)
    report(Records(records), waiting_less, simuleval, targets=["waiting-less"])
    draw(Records(records), records / "waiting.png")


def distilled(run: Path, train: str, file: Path) -> Path:
    """The training rows with translations of a run in place of those by people, written unless they are there.

    Rows without a translation are left out, and counted.
    """
    if not file.is_file():
        sources = [str(row[SOURCE]) for row in rows_of("train", train)]
        translations = [text for text, _ in TextTranslator.load(run, beam=BEAM).translate(sources)]
        pairs = [(source, text) for source, text in zip(sources, translations, strict=True) if text.strip()]
        print(f"{file.name}: {len(sources) - len(pairs)} of {len(sources)} rows have no translation", file=sys.stderr)
        lines = (json.dumps({SOURCE: source, TARGET: text}, ensure_ascii=False) for source, text in pairs)
        put_text(file, "".join(f"{line}\n" for line in lines))
    return file


def scored(run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """BLEU and the mean latencies in tokens of a policy; `empty` counts translations without one."""
    translator = TextTranslator.load(run, beam=BEAM, **(policy or {"wait_k": MOST_TOKENS}))
    tokenizer = load_tokenizer(run / "model" / "tokenizer")
    answers = translator.translate([row[SOURCE] for row in rows])
    latencies = [
        Latency.of(progress.source_delays, progress.source, len(tokenizer.encode(row[TARGET]).ids))
        for (_, progress), row in zip(answers, rows, strict=True)
        if progress.written
    ]
    score = bleu([row[TARGET] for row in rows], [text for text, _ in answers])
    return {"bleu": score, "latency": asdict(Latency.mean(latencies)), "empty": len(rows) - len(latencies)}


def in_time(run: Path, policy: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean AL in seconds of a policy, without and with the time that computing takes."""
    translator = TextTranslator.load(run, beam=BEAM, **(policy or {"wait_k": MOST_TOKENS}))
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
    live = translate_live(TextTranslator.load(run, beam=BEAM, **policy), sources)
    told = [(each, target) for each, target in zip(live, targets, strict=True) if each.delays]
    latency = Latency.mean([Latency.of(each.delays, each.words, len(target.split())) for each, target in told])
    ours = {"BLEU": 100 * bleu(targets, [each.text for each in live])}
    place.mkdir(parents=True, exist_ok=True)
    for name, texts in (("source", sources), ("target", targets)):
        put_text(place / f"{name}.txt", "".join(f"{text}\n" for text in texts))
    words = ["--agent-class", "inference.simuleval_agent.TranslatorAgent", "--run", str(run), "--beam", str(BEAM)]
    words += [word for key, value in policy.items() for word in (f"--{key.replace('_', '-')}", str(value))]
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
    """Draw BLEU on test against AL, LAAL and computation-aware AL, with a line for each arm and kind of policy."""
    figure, panels = plt.subplots(1, 3, figsize=(15, 4.8), sharey=True)
    colors = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for color, (_, label, seeds) in zip(colors, records.arms(LEARNERS), strict=False):
        for panel, (measure, _) in zip(panels, LAGS, strict=True):
            for adaptive, style in ((False, ":"), (True, "-")):
                points = []
                for policy in POLICIES:
                    if policy and ("confidence" in policy) == adaptive:
                        name = policy_name(policy)
                        lags = [seed["test"][name]["latency"] | seed["in time"][name] for seed in seeds]
                        scores = [100 * seed["test"][name]["bleu"] for seed in seeds]
                        points.append((statistics.mean(lag[measure] for lag in lags), statistics.mean(scores)))
                shown = f"{label}, {'adaptive' if adaptive else 'wait-k'}"
                panel.plot(*zip(*sorted(points), strict=True), style, color=color, marker=".", label=shown)
    for panel, (_, name) in zip(panels, LAGS, strict=True):
        panel.set(xlabel=name, ylabel="BLEU" if panel is panels[0] else "")
        panel.grid(alpha=0.3)
    panels[-1].legend(loc="lower right", fontsize=7)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
