"""The tables of benchmarks/results/*.md, each made from the records of an experiment; TABLES has them by name.

The experiments print the same tables.  An arm without records has no row.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cells import Rows, decimals, interval, listed, percent, spread, standard_error
from record_files import EARLIER, TUNED, MissingRecord, Records, read_record, record_files, slug

from pretrain.scaling.answer import Curve, curve
from pretrain.scaling.points import read_table

GLUE = ("SST-2", "CoLA", "RTE", "MRPC", "STS-B")
CHINESE = {"chnsenticorp": "ChnSentiCorp", "msra_ner": "MSRA-NER (F1)", "ocnli": "OCNLI", "tnews": "TNEWS"}
MASKED = "knowledge_masking"
TASK_NAMES = {
    MASKED: "none",
    "capitalization": "capitalization",
    "token_document": "token-document",
    "sentence_reordering": "sentence reordering",
    "sentence_distance": "sentence distance",
    "discourse_relation": "discourse relation",
    "ir_relevance": "IR relevance",
}
METRICS = {"f1": "F1", "macro_f1": "macro F1", "accuracy": "accuracy"}
WAITS, CHINESE_WAITS = (1, 3, 5, 7, 9), (3, 5, 7)


# Pretraining


def plateau(records: Records) -> Rows:
    """What leaves the plateau, arm by arm."""
    labels = {
        "as-BERT": "as BERT: all target words masked, random positions, smaller initial weights",
        "as-it-was": "as it was: a fifth of the target words visible, sinusoidal positions, larger initial weights",
        "small-weights": "but smaller initial weights, as BERT's",
        "drawn": "but random positions, as BERT's",
        "all-hidden": "but all target words masked",
        "mixed": "but batches from about a hundred documents",
        "mixed-throughout": "but batches from all documents",
        "neighbours": "batches from about a hundred documents, two of four heads initialized to attend to neighbors",
        "neighbours-few-documents": "and batches from the same few documents",
        "neighbours-all-hidden": "and all target words masked",
        "neighbours-and-likeness": "the default: those two heads, and one initialized to attend to equal tokens",
        "beta1-0.5": "the default, AdamW's beta1 0.5",
        "beta2-0.999": "the default, AdamW's beta2 0.999 instead of 0.98",
        "beta2-0.9999": "the default, beta2 0.9999",
        "both": "the default, beta1 0.5 and beta2 0.999",
    }
    rows = [["", "held-out loss", "masked-token accuracy", "std. dev. after the last layer"]]
    for _, label, seeds in records.arms(labels):
        last = [seed["deviations"][-1] for seed in seeds]
        cells = [listed([seed["loss"] for seed in seeds], decimals(3)), listed([seed["right"] for seed in seeds])]
        rows.append([label, *cells, listed(last, lambda value: f"{value:.2f}" if value > 0.01 else f"{value:.5f}")])
    return rows


def comparing(records: Records) -> Rows:
    """What heads for neighbors and for equal tokens bring, by the steps of pretraining."""
    labels = {
        "by-chance": "random",
        "neighbours": "with heads that attend to neighbors",
        "neighbours-and-likeness": "with a head that attends to equal tokens",
    }
    rows = [["initialization", "steps", *GLUE, "mean"]]
    for steps in sorted(int(folder.name.partition("-")[2]) for folder in records.folder.glob("steps-*")):
        for _, label, seeds in (records / f"steps-{steps}").arms(labels):
            columns = zip(*(with_mean(seed[TUNED]) for seed in seeds), strict=True)
            rows.append([label, f"{steps:,}", *map(spread, columns)])
    return rows


def with_mean(scores: Sequence[float]) -> list[float]:
    """Dev scores and their mean."""
    return [*scores, statistics.mean(scores)]


def dev_scores(scores: Sequence[float]) -> list[str]:
    """Dev scores and their mean, in percent."""
    return list(map(percent, with_mean(scores)))


SCHEDULES = {name: name for name in ("sequential", "joint", "continual")}


def forgetting(records: Records) -> Rows:
    """What three schedules learn, over the seeds."""
    tasks = (MASKED, "capitalization", "token_document", "sentence_reordering")
    names = ("masked tokens", "capitalization (F1)", "token-document (macro F1)", "sentence reordering")
    rows = [["schedule", *names, "masked tokens forgotten", "downstream mean"]]
    for schedule, _, seeds in records.arms(SCHEDULES):
        ends = [spread([seed["measured"][task][-1]["value"] for seed in seeds]) for task in tasks]
        lost = "" if schedule == "joint" else spread([forgotten(seed, MASKED, schedule) for seed in seeds])
        rows.append([schedule, *ends, lost, spread(downstream(seeds))])
    return rows


def forgetting_by_seed(records: Records) -> Rows:
    """The same seed by seed: what was forgotten, and the means of the dev scores."""
    rows = [["schedule", "masked tokens forgotten", "capitalization forgotten", "downstream mean", "mean of the seeds"]]
    for schedule, _, seeds in records.arms(SCHEDULES):
        lost = [
            "" if schedule == "joint" else listed([forgotten(seed, task, schedule) for seed in seeds])
            for task in (MASKED, "capitalization")
        ]
        means = downstream(seeds)
        rows.append([schedule, *lost, listed(means), percent(statistics.mean(means)) if means else ""])
    return rows


def downstream(seeds: Sequence[Mapping[str, Any]]) -> list[float]:
    """The mean of the dev scores of each seed that was fine-tuned."""
    return [statistics.mean(seed[TUNED]) for seed in seeds if seed.get(TUNED)]


def forgotten(seed: Mapping[str, Any], task: str, schedule: str) -> float:
    """The share of a score lost since its first stage (sequential), or since the best one."""
    values = [score["value"] for score in seed["measured"][task]]
    return 1 - values[-1] / (values[0] if schedule == "sequential" else max(values))


# Keys of the records: a baseline of the tasks, and the interval of the gain over it; and what the tables call it.
BASELINES = {"counting tokens": "beyond counting", "shared words": "beyond shared words"}
BASELINE_NAMES = {"counting tokens": "token counts", "shared words": "shared words"}


def each_task(records: Records) -> Rows:
    """Each task added to masked words."""
    arms = list(records.arms(TASK_NAMES))
    others = baselines_of(arms)
    header = ["added task", "metric", "held out (95 % interval over documents)", "majority", *baseline_header(others)]
    rows = [[*header, "masked loss, task ids swapped", "masked tokens", "downstream mean"]]
    for task, name, seeds in arms:
        masked = listed([seed["measured"][MASKED][-1]["value"] for seed in seeds])
        own = [""] * len(header)
        if task != MASKED:
            scores = [seed["measured"][task][-1] for seed in seeds]
            own = [METRICS[scores[0]["name"]], "; ".join(map(interval, scores))]
            own += [listed([score["majority"] for score in scores]), *baseline_cells(seeds, others)]
            own += [listed([seed["task ids swapped"] for seed in seeds], lambda value: f"{100 * value:+.1f} %")]
        rows.append([name, *own, masked, listed(downstream(seeds))])
    return rows


def baselines_of(arms: Iterable[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """The baselines that some record has."""
    known = {name for _, _, seeds in arms for seed in seeds for name in seed}
    return [name for name in BASELINES if name in known]


def baseline_header(others: Sequence[str]) -> list[str]:
    """The header of `baseline_cells`."""
    return [cell for name in others for cell in (BASELINE_NAMES[name], f"gain over {BASELINE_NAMES[name]}")]


def baseline_cells(seeds: Sequence[Mapping[str, Any]], others: Sequence[str]) -> list[str]:
    """The scores of baselines and the gains over them, seed by seed; nothing where a task has no such baseline."""
    cells = []
    for name in others:
        found = [seed for seed in seeds if name in seed]
        cells += [listed([seed[name] for seed in found]), "; ".join(gain(seed, name) for seed in found)]
    return cells


def gain(seed: Mapping[str, Any], baseline: str) -> str:
    """The interval of a task's gain over a baseline, in points."""
    low, high = (100 * value for value in seed[BASELINES[baseline]])
    return f"{low:+.1f} to {high:+.1f}"


def alone(records: Records) -> Rows:
    """Each task beside its baselines, seed by seed."""
    arms = list(records.arms(TASK_NAMES))
    others = baselines_of(arms)
    rows = [["added task", "metric", "held out (95 % interval)", "majority", *baseline_header(others)]]
    for task, name, seeds in arms:
        for seed in seeds if task != MASKED else ():
            score = seed["measured"][task][-1]
            cells = [interval(score), percent(score["majority"]), *baseline_cells([seed], others)]
            rows.append([name, METRICS[score["name"]], *cells])
    return rows


def moments(records: Records) -> Rows:
    """Held-out scores with shared moments, moments for each task, and the task by itself; seed 0."""
    rows = [["held out", "moments shared", "moments for each task", "task alone"]]
    folders = [records / name for name in ("tasks-1600", "tasks-1600-moments-each_task", "alone-1600")]
    for task in reversed(TASK_NAMES):
        if task != MASKED:
            scores = [folder.by_seed(task)[0]["measured"][task][-1]["value"] for folder in folders]
            rows.append([TASK_NAMES[task], *map(percent, scores)])
    return rows


def moments_masked(records: Records) -> Rows:
    """Masked words alone with shared moments, from the base of the table before."""
    rows = [["seed", "masked tokens", "downstream mean"]]
    for number, seed in (records / "tasks-1600").by_seed(MASKED).items():
        mean = percent(statistics.mean(seed[EARLIER]))
        rows.append([str(number), interval(seed["measured"][MASKED][-1]), mean])
    return rows


# Time to quality

QUALITY = {
    "masked": "masked words alone",
    "continual": "continual",
    "transformers": "transformers at 1e-4",
    "masked-beta2": "masked words alone, beta2 0.999",
    "continual-moments": "continual, beta2 0.999, moments for each task",
    "transformers-2e-4": "transformers at 2e-4",
    "transformers-3e-4": "transformers at 3e-4",
}


def paces(records: Records) -> Rows:
    """The seconds of a step."""
    names = {
        "continual": "continual multi-task learning",
        "masked": "knowledge masking only",
        "continual-moments": "continual, moments for each task, its own tasks",
        "masked-beta2": "knowledge masking only, beta2 0.999",
        "transformers": "transformers 5, PyTorch 2.15, fp32, compiled",
    }
    seconds = read_record(records.file("paces.json"))
    rows = [["", "seconds per step", "tokens/s"]]
    return rows + [[name, f"{seconds[arm]:.3f}", f"{1024 / seconds[arm]:,.0f}"] for arm, name in names.items()]


def parts(records: Records) -> list[Records]:
    """The folders of the parts of the time, the last one last."""
    numbers = {int(folder.name.partition("-")[0]): folder.name for folder in records.folder.glob("*-of-*")}
    return [records / numbers[number] for number in sorted(numbers)]


# Arms of night.py, and the tasks that they are compared by: these show in minutes whether words and sentences were
# learned.
NIGHT_ARMS = {
    "plain": "masked words and phrases, from 30 % of the tokens to 15 %",
    "rate-of-0.15": "15 % throughout",
    "rate-of-0.3": "30 % throughout",
    "rare-words": "rare words more often",
    "single-tokens": "single tokens",
    "replaced": "replaced tokens are detected",
    "replaced-falling": "replaced tokens, from 30 % to 15 %",
    "in-turns": "masked words and replaced tokens, in turns",
    "replaced-at-last": "masked words, and replaced tokens for the last 30 % of the steps",
    "long-throughout": "samples of 128 tokens throughout",
    "averages": "averaged weights",
    "linear-cool-down": "a cool-down along a line",
    "linear-decay": "the rate falls along a line throughout",
    "higher-rate": "a rate of 0.002 in place of 0.001",
    "lower-rate": "a rate of 0.0005",
    "small-batches": "batches of 2,048 tokens in place of 4,096",
    "beta2-0.98": "AdamW's beta2 0.98",
}
NIGHT_TASKS = {"sst2": "SST-2", "stsb": "STS-B", "cola": "CoLA"}
# The tasks of the BERT miniatures that a night is judged by, and their published scores on GLUE's test sets, in percent
# (google-research/bert, Turc et al., 2019).
MINIATURE_TASKS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE"}
MINIATURES: dict[str, tuple[float, ...]] = {
    "BERT-Mini": (0.0, 85.9, 81.1, 75.4, 57.9),
    "BERT-Small": (27.8, 89.7, 83.4, 78.8, 61.8),
}
AT_POINT = "-at-one-point"  # in the names of records: of a single point of the grid
LAPTOP = 45  # watts, of a laptop both of whose cores are busy


def nights(records: Records) -> Rows:
    """The scores of each night, the median of its seeds, beside those of the miniatures, and what its hours cost."""
    rows = [["encoder", "hours", "million tokens", "kWh", "grid", *MINIATURE_TASKS.values(), "mean"]]
    for prefix, whose in (("", "ours"), ("peer-", "transformers'")):
        found = [
            (read_record(records.file(file.name)), points)
            for size in ("mini", "small")
            for suffix, points in ((AT_POINT, "one point"), ("", "best of four"))
            for file in records.folder.glob(f"{prefix}{size}-[0-9]*-hours{suffix}.json")
        ]
        for night, points in sorted(
            found, key=lambda each: (each[0]["size"], each[0]["hours"], each[1] != "one point")
        ):
            scores = night_scores(night["dev"])
            cells = [f"{night['hours']:g}", millions(night), f"{LAPTOP * night['hours'] / 1000:.2f}"]
            rows.append([f"{whose}, {night['size']}", *cells, points, *scored(scores)])
            if test := night.get("test"):  # of the tasks whose test sets have labels
                on_test = [f"{statistics.median(test[task]):.1f}" if task in test else "" for task in MINIATURE_TASKS]
                rows.append(["the same, on test", "", "", "", "", *on_test, ""])
    rows += [[name, "", "", "", "best of 20", *scored(scores)] for name, scores in MINIATURES.items()]
    return rows


def night_scores(dev: Mapping[str, Sequence[float]]) -> list[float]:
    """The median over the seeds of each task of the miniatures, in percent."""
    return [statistics.median(dev[task]) for task in MINIATURE_TASKS]


def millions(night: Mapping[str, Any]) -> str:
    """The tokens that the encoder of a record has read, in millions."""
    return f"{night['tokens'] / 1e6:,.0f}"


def scored(scores: Sequence[float]) -> list[str]:
    """The cells of scores and of their mean."""
    return [f"{score:.1f}" for score in (*scores, statistics.mean(scores))]


def ablations(records: Records) -> Rows:
    """The means of each arm's scores over its seeds, and how far it is above `plain`, with its standard error."""
    plain: list[float] | None = None
    rows = [["", *NIGHT_TASKS.values(), "mean", "above the first"]]
    for arm, label, [record] in records.arms(NIGHT_ARMS):
        scores = [record["dev"][task] for task in NIGHT_TASKS]
        of_seeds = [statistics.mean(seed) for seed in zip(*scores, strict=True)]
        if arm == "plain":
            plain = of_seeds
        cells = [f"{statistics.mean(seeds):.1f}" for seeds in scores]
        rows.append([label, *cells, f"{statistics.mean(of_seeds):.2f}", above(of_seeds, plain)])
    return rows


def above(scores: Sequence[float], plain: Sequence[float] | None) -> str:
    """The difference of two means with its standard error; "" without the scores of two seeds on both sides."""
    if plain is None or scores is plain or min(len(scores), len(plain)) < 2:
        return ""
    return f"{statistics.mean(scores) - statistics.mean(plain):+.2f} ± {standard_error(scores, plain):.2f}"


def quality(records: Records) -> Rows:
    """The scores of each arm after each part of the time, seed by seed."""
    rows = [["pretrained with", "seed", "minutes", "hidden words, loss", "accuracy", *GLUE, "mean"]]
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for part in parts(records):
        for arm, label, _ in part.arms(QUALITY):
            found.setdefault(label, []).extend(part.by_seed(arm).items())
    for label in QUALITY.values():
        tuned = [(seed, record) for seed, record in found.get(label, ()) if TUNED in record]
        for number, (seed, record) in enumerate(sorted(tuned, key=lambda each: (each[0], each[1]["minutes"]))):
            hidden = record["hidden words"]
            cells = [str(seed), f"{record['minutes']:.0f}", f"{hidden['loss']:.2f}", percent(hidden["right"])]
            rows.append([label if not number else "", *cells, *dev_scores(record[TUNED])])
    return rows


def quality_means(records: Records) -> Rows:
    """The end of the time, means over the seeds."""
    rows = [["pretrained with", "hidden words, loss", *GLUE, "mean (by seed)", "mean without STS-B"]]
    for _, label, all_seeds in parts(records)[-1].arms(QUALITY):
        if seeds := [seed for seed in all_seeds if TUNED in seed]:
            tasks = [percent(statistics.mean(column)) for column in zip(*(seed[TUNED] for seed in seeds), strict=True)]
            single = statistics.mean(statistics.mean(seed[TUNED][:-1]) for seed in seeds)
            loss = statistics.mean(seed["hidden words"]["loss"] for seed in seeds)
            by_seed = downstream(seeds)
            mean = f"{percent(statistics.mean(by_seed))} ({listed(by_seed).removesuffix(' %')})"
            rows.append([label, f"{loss:.2f}", *tasks, mean, percent(single)])
    return rows


def quality_before(records: Records) -> Rows:
    """The first hours, fine-tuned by the recipe of then."""
    rows = [["pretrained with", "minutes", "hidden words, loss", "accuracy", *GLUE, "mean"]]
    hours = records / "minutes-60"
    original, beside = "continual, original initialization", "continual, with neighbors"
    series = [(original, [(records / "minutes-12" / f"{part}-of-3", "continual") for part in (1, 2, 3)])]
    series.append((original, [(records / "minutes-60-at-first", f"{part}-of-6-continual") for part in (2, 6)]))
    series.append((beside, [(records / "minutes-20" / f"{part}-of-2", "continual") for part in (1, 2)]))
    for arm, label in (
        ("continual", "continual"),
        ("masked", "masked words alone"),
        ("transformers", "transformers at 1e-4"),
    ):
        series.append((label, [(hours / f"{part}-of-6", arm) for part in (1, 2, 4, 6)]))
    for label, points in series:
        for folder, arm in points:
            for seed in folder.of(arm):
                hidden = seed["hidden words"]
                cells = [f"{seed['minutes']:.1f}", f"{hidden['loss']:.2f}", percent(hidden["right"])]
                rows.append([label, *cells, *dev_scores(seed[EARLIER])])
    return rows


# Scaling


def ladder(records: Records) -> Curve:
    """The learning curve of all runs."""
    return curve(read_table(records.file("points.tsv")))


def scaling_sizes(records: Records) -> Rows:
    """The error of the best width on each size, and the law."""
    found = ladder(records)
    rows = [["tokens of text", "width", "error", "law fitted to all six"]]
    for point in found.best:
        errors = [each.error for each in found.points if (each.size, each.width) == (point.size, point.width)]
        cell = f"{point.error:.3f} ({min(errors):.3f} to {max(errors):.3f})"
        rows.append([f"{point.size:,.0f}", f"{point.width}", cell, f"{found.whole.law.error(point.size):.3f}"])
    return rows


def scaling_widths(records: Records) -> Rows:
    """The error of each width on the largest size."""
    found = ladder(records)
    largest = found.best[-1].size
    widths = sorted({point.width for point in found.points})
    rows = [["width", "error with the most text, three seeds"]]
    for width in widths:
        errors = [point.error for point in found.points if (point.size, point.width) == (largest, width)]
        rows.append([f"{width}", f"{statistics.mean(errors):.3f} ({min(errors):.3f} to {max(errors):.3f})"])
    return rows


# Encoders


def card(records: Records, language: str, heading: str) -> Rows:
    """The table below a heading of a model card."""
    text = records.file(f"{language}.md").read_text(encoding="utf-8")
    lines = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if set("".join(row)) != {"-"}]


def masking(records: Records) -> Rows:
    """Masked characters beside masked words, phrases and entities."""
    rows = [["masked units", "hidden words, token accuracy", *CHINESE.values(), "mean", "mean, by seed"]]
    for _, label, seeds in records.arms({"characters": "characters", "words": "words, phrases, entities"}):
        means = [statistics.mean(seed[TUNED].values()) for seed in seeds]
        cells = [spread([seed[TUNED][task] for seed in seeds]) for task in CHINESE]
        rows.append([label, spread([seed["hidden words"]["right"] for seed in seeds]), *cells, spread(means)])
        rows[-1].append(listed(means))
    return rows


# Translation


def points_of(records: Records, arm: str, point: str) -> list[dict[str, float]]:
    """One way to decode with an arm, seed by seed; none if there is no record."""
    return [seed["points"][point] for _, _, seeds in records.arms({arm: point}) for seed in seeds]


def bleu(points: Sequence[Mapping[str, float]]) -> str:
    """The mean BLEU of the seeds, and each."""
    if not points:
        return ""
    scores = [100 * point["bleu"] for point in points]
    mean = f"{statistics.mean(scores):.1f}"
    return mean if len(scores) == 1 else f"{mean} ({', '.join(f'{score:.1f}' for score in scores)})"


def lag(*ways: Sequence[Mapping[str, float]]) -> str:
    """The average lagging of several ways to decode, where they differ."""
    lags = [f"{statistics.mean(point['lag'] for point in points):.1f}" for points in ways if points]
    return ", ".join(dict.fromkeys(lags))


def waiting(label: str, *ways: Sequence[Mapping[str, float]]) -> Rows:
    """The row of a wait, if any way to decode was measured: BLEU of each."""
    return [[label, lag(*ways), *map(bleu, ways)]] if any(ways) else []


def translation(records: Records) -> Rows:
    """German to English: what waiting costs, by the way of training."""
    header = ["waits for", "AL", "trained to wait", "one model for these five", "one for these and whole sentences"]
    rows = [[*header, "whole-sentence model", "the same, unidirectional encoder"]]
    points = partial(points_of, records)
    for k in WAITS:
        ways = [points(f"wait-{k}", f"wait-{k}"), points("several", f"several, asked for {k}")]
        ways += [points("several-and-whole", f"several and whole, asked for {k}")]
        ways += [points("full", f"full, early {k}"), points("one-way", f"one-way, early {k}")]
        rows += waiting(f"{k} tokens" if k > 1 else "1 token", *ways)
    on = points("one-way-then-wait-1", "one-way, then wait-1")
    rows += waiting("1 token, trained on from the unidirectional model", on, [], [], [], [])
    rows += waiting("whole sentences", [], [], [], points("full", "full"), points("one-way", "one-way"))
    rows += waiting("whole sentences, beam of 4", [], [], [], points("full", "full, beam of 4"), [])
    knows = points("full-encoder-pretrained", "full, encoder pretrained")
    return rows + waiting("whole sentences, encoder pretrained", [], [], [], knows, [])


def translation_chinese(records: Records) -> Rows:
    """English to Chinese."""
    rows = [["waits for", "AL", "trained to wait", "whole-sentence model"]]
    points = partial(points_of, records)
    for k in CHINESE_WAITS:
        early = points("en-zh-full", f"en-zh, full, early {k}")
        rows += waiting(f"{k} tokens", points(f"en-zh-wait-{k}", f"en-zh, wait-{k}"), early)
    return rows + waiting("whole sentences", [], points("en-zh-full", "en-zh, full"))


def translation_catching_up(records: Records) -> Rows:
    """Czech to French, with and without catching up."""
    rows = [["waits for 3 tokens", "AL", "BLEU"]]
    for arm, label in (("cs-fr, wait-3", "as it is"), ("cs-fr, wait-3, catching up", "`catch_up: 0.2`")):
        rows += waiting(label, points_of(records, slug(arm), arm))
    return rows


# The arms of waiting.py, its policies, and the most tokens that those which are compared may lag.
LEARNERS = {
    "whole": "whole sentences",
    "one-way": "whole sentences, unidirectional encoder",
    "several": "several waits (multi-path)",
    "whole-distilled": "whole sentences, distilled",
    "one-way-distilled": "the same, unidirectional encoder",
    "several-distilled": "several waits, distilled",
    "one-way-in-order": "translations given 5 tokens behind, unidirectional encoder",
}
MOST_LAG = 3.0
LAGGING = {"lagging": "AL", "length_adaptive": "LAAL"}
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    *({"wait_k": k} for k in (1, 2, 3, 4, 5, 7, 9)),
    *({"wait_k": 1, "confidence": c, "max_wait_k": most} for most in (5, 9) for c in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
    *({"wait_k": 1, "agreement": less, "max_wait_k": most} for most in (5, 9) for less in (1, 2, 3)),
)


def policy_name(policy: Mapping[str, Any]) -> str:
    """The name of a policy in records and tables."""
    if not policy:
        return "whole"
    least = f"k = {policy['wait_k']}"
    if not is_adaptive(policy):
        return least
    how = f"agreement {policy['agreement']}" if "agreement" in policy else f"{policy['confidence']:g}"
    return f"{least} to {policy['max_wait_k']}, {how}"


def is_adaptive(policy: Mapping[str, Any]) -> bool:
    """Whether a policy depends on the tokens."""
    return "max_wait_k" in policy


def chosen_policy(seeds: Sequence[Mapping[str, Any]], adaptive: bool) -> str | None:
    """Of the adaptive policies, or of wait-k, that lag at most 3 tokens on dev: the one with the highest BLEU there.

    None if all lag more.
    """
    names = [policy_name(policy) for policy in POLICIES if policy and is_adaptive(policy) == adaptive]
    lags = {name: statistics.mean(seed["dev"][name]["latency"]["lagging"] for seed in seeds) for name in names}
    allowed = [name for name in names if lags[name] <= MOST_LAG]
    return max(allowed, key=lambda name: statistics.mean(seed["dev"][name]["bleu"] for seed in seeds), default=None)


def waiting_less(records: Records) -> Rows:
    """BLEU on test of whole sentences, and of the best wait-k and the best adaptive policy that lag 3 tokens on dev."""
    columns = [name for kind in ("wait-k", "adaptive") for name in (kind, *LAGGING.values(), "words written", "BLEU")]
    rows = [["learned from", "whole sentences", *columns]]
    for _, label, seeds in records.arms(LEARNERS):
        cells = [label, bleu([seed["test"]["whole"] for seed in seeds])]
        for adaptive in (False, True):
            if (name := chosen_policy(seeds, adaptive)) is None:
                cells += ["all lag more", "", "", "", ""]
                continue
            points = [seed["test"][name] for seed in seeds]
            lags = (statistics.mean(point["latency"][each] for point in points) for each in LAGGING)
            longer = statistics.mean(point["longer"] for point in points)
            cells += [name, *(f"{mean:.2f}" for mean in lags), f"{longer:.2f}", bleu(points)]
        rows.append(cells)
    return rows


def waiting_in_time(records: Records) -> Rows:
    """The lags in seconds of whole sentences and of the chosen policies, without and with the time of computing."""
    rows = [["learned from", "policy", "AL, s", "computation-aware", "processor"]]
    for label, policy, found in of_policies(records, "in-time"):
        means = (statistics.mean(seed[name] for seed in found) for name in ("seconds", "computation-aware"))
        rows.append([label, policy, *(f"{mean:.2f}" for mean in means), found[0]["processor"]])
    return rows


def of_policies(records: Records, kind: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """The arms with whole sentences and the policies that were chosen, where there are records of this kind of them."""
    for arm, label, seeds in records.arms(LEARNERS):
        for policy in ("whole", *(chosen_policy(seeds, adaptive) for adaptive in (False, True))):
            measured = records / kind
            if policy is not None and record_files(measured.folder, name := f"{arm}-{slug(policy)}"):
                yield label, "whole sentences" if policy == "whole" else policy, measured.of(name)


def simuleval(records: Records) -> Rows:
    """BLEU and lags in words of the chosen policies, by our measures and by SimulEval's."""
    names = ("BLEU", "AL", "LAAL")
    rows = [["learned from", "policy", *(f"{name}, {who}" for name in names for who in ("ours", "SimulEval"))]]
    for label, policy, found in of_policies(records, "simuleval"):
        means = [
            statistics.mean(seed[who][measure] for seed in found) for measure in names for who in ("ours", "SimulEval")
        ]
        rows.append([label, policy, *(f"{mean:.2f}" for mean in means)])
    return rows


# Speech

RECOGNIZERS = {
    "whole": "CTC, whole sounds",
    "chunks": "CTC in chunks",
    "chunks-that-see-far": "CTC in chunks that see 1.28 s before them",
    "recurrent": "CTC, recurrent encoder in both directions",
    "recurrent-in-chunks": "CTC, recurrent encoder in chunks",
    "offset-kept": "CTC in chunks, offset kept",
    "streaming": "CTC in chunks, `normalize: streaming`",
    "streaming-as-before": "CTC in chunks, `normalize: streaming` as at 0506553",
    "attention": "attention to CTC's segments (SMLTA)",
    "abstractions": "the same with abstractions of four tokens (SMLTA2)",
    "global": "global attention",
}
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
REMEDIES = {
    "chunks": "CTC in chunks",
    "voices": "varied voices",
    "voices-and-places": "varied voices, rooms, noise and loudness",
    "voices-and-places-Kaldi": "the same with Kaldi's features",
    "voices-and-places-convolution": "varied voices and places, with convolution",
    "voices-and-places-streaming": "varied voices and places, statistics that follow the sound",
    "voices-and-places-averages": "varied voices and places, averaged weights",
    "all-remedies": "all of these",
    "voices-and-places-whole": "varied voices and places, whole sounds",
    "voices-and-places-recurrent": "varied voices and places, recurrent in both directions",
    "recurrent-sound-by-sound": "the same, averaged weights, each sound normalized by itself",
    "recurrent-half-in-places": "recurrent, rooms and noise in half of the sounds each",
    "recurrent-microphones": "recurrent, varied voices, places and microphones",
}
HOW = {
    "": "whole sounds",
    ", as it comes": "streaming",
    ", with a beam": "with a beam of 8",
    ", without the sound": "without the audio",
}
OFFSETS = (0.01, 0.05, 0.1)
SILENCES = tuple((seconds, sound) for sound in ("silence", "hiss") for seconds in (1, 5, 60))


def digits(records: Records) -> Rows:
    """Word error rates on short and on long strings, by the way of decoding."""
    rows = [["recognizer", "seeds", "", "2 to 5 digits", "8 to 12 digits"]]
    for _, label, seeds in records.arms(RECOGNIZERS):
        for how, name in HOW.items():
            if all(f"test{how}" in seed for seed in seeds):
                errors = [spread([seed[f"{split}{how}"] for seed in seeds]) for split in ("test", "long")]
                rows.append([*([label, str(len(seeds))] if not how else ["", ""]), name, *errors])
    return rows


def digits_delay(records: Records) -> Rows:
    """How soon words come out, and how long computing takes, medians of the seeds."""
    rows = [["recognizer", "seconds from first prediction to text", "computing, s per second of sound"]]
    for _, label, seeds in records.arms(RECOGNIZERS):
        keys = [f"test, {what}" for what in ("seconds from spike to text", "real-time factor")]
        if all(key in seed for seed in seeds for key in keys):
            rows.append([label, *(f"{statistics.median(seed[key] for seed in seeds):.2f}" for key in keys)])
    return rows


def left_out(records: Records, arm: str) -> dict[str, list[dict[str, float]]]:
    """The records of a recognizer by the speaker who was left out of training."""
    folders = {speaker: records / f"without-{speaker}-epochs-20" for speaker in SPEAKERS}
    return {speaker: folder.of(arm) for speaker, folder in folders.items() if record_files(folder.folder, arm)}


def mean_left_out(speakers: Mapping[str, Sequence[Mapping[str, float]]], split: str = "test") -> float:
    """The mean over speakers of the mean word error rate over seeds."""
    return statistics.mean(statistics.mean(seed[split] for seed in seeds) for seeds in speakers.values())


def digits_left_out(records: Records) -> Rows:
    """Word error rates on a speaker who was not trained on, and their means over all six."""
    rows = [["left out, 2 to 5 digits", "seeds", *SPEAKERS, "mean", "mean, 8 to 12 digits"]]
    for arm, label in REMEDIES.items():
        if speakers := left_out(records, arm):
            counts = {len(seeds) for seeds in speakers.values()}
            cells = [spread([s["test"] for s in speakers[name]]) if name in speakers else "" for name in SPEAKERS]
            all_six = len(speakers) == len(SPEAKERS)
            means = [percent(mean_left_out(speakers, split)) if all_six else "" for split in ("test", "long")]
            rows.append([label, " or ".join(map(str, sorted(counts))), *cells, *means])
    return rows


def offsets(records: Records) -> Rows:
    """Word error rates with an offset added."""
    rows = [["word error rate, 300 sounds", "as recorded", *(f"offset {offset}" for offset in OFFSETS)]]
    keys = ["test", *(f"test, offset {offset}" for offset in OFFSETS)]
    return rows + [
        [label, *disturbed(seeds, keys)] for _, label, seeds in records.arms(RECOGNIZERS) if "some" in seeds[0]
    ]


def silences(records: Records) -> Rows:
    """Word error rates after silence."""
    after = [f"after {seconds} s of {'zeros' if sound == 'silence' else 'noise'}" for seconds, sound in SILENCES]
    rows = [["word error rate, 40 sounds", "as recorded", *after, "words in a minute of zeros"]]
    keys = ["some", *(f"some, after {seconds} s of {sound}" for seconds, sound in SILENCES)]
    for _, label, seeds in records.arms(RECOGNIZERS):
        if "some" in seeds[0]:
            words = [seed["words in a minute of silence"] for seed in seeds]
            rows.append([label, *disturbed(seeds, keys), f"{statistics.median(words):g}"])
    return rows


def disturbed(seeds: Sequence[Mapping[str, float]], keys: Sequence[str]) -> list[str]:
    """Word error rates under several conditions."""
    return [spread([seed[key] for seed in seeds]) for key in keys]


PROMPT_ARMS = {
    "fresh": "not pretrained",
    "pretrained": "pretrained on text",
    "sentences-first": "trained on sentences first, with its head",
    "sentences-too": "trained on sentences, too",
    "voices": "more changes of voices",
    "convolution": "a convolution after each layer",
    "averages": "averaged weights",
    "all-remedies": "all three",
    "all-remedies-sentences-too": "all three, trained on sentences, too",
    "recurrent": "recurrent in place of the layers",
    "recurrent-voices": "recurrent, more changes of voices",
    "recurrent-voices-finer": "the same with a vector every 28 ms in place of 40",
    "recurrent-voices-sentences-too": "recurrent, more changes of voices, trained on sentences, too",
}


def prompts(records: Records) -> Rows:
    """Words and letters wrong, by encoder and decoding."""
    ways = {
        "likeliest letters": "the likeliest letters",
        "beam": "a beam of 16",
        "language model": "and a language model of six letters",
        "language model of words": "or of three words",
    }
    rows = [["encoder", "read by", "words wrong", "letters wrong"]]
    for _, label, seeds in records.arms(PROMPT_ARMS):
        for way, name in ways.items():
            if all(way in seed for seed in seeds):
                errors = [spread([seed[way][measure] for seed in seeds]) for measure in ("wer", "cer")]
                rows.append([label if way == "likeliest letters" else "", name, *errors])
    return rows


def speech_translation(records: Records) -> Rows:
    """Errors and lags of a recognizer and of translators behind it."""
    rows = [["", "words wrong", "lag", "before the last 3 words", "with computing", "longest"]]
    names = ("lag", "lag before the last words", "lag with computing", "longest lag with computing")
    labels = ("recognizer", "and a translator that waits for 1", "for 2", "for 3")
    # The files are named by the wait where others are named by the seed.
    for k, seed in records.by_seed("wait").items():
        rows.append([labels[k], percent(seed["word error rate"]), *(f"{seed[name]:.2f} s" for name in names)])
    return rows


# What a recognizer does not understand of sound that a vocoder makes of the recordings' frames.
GIVEN_FRAMES = "not understood, given the recordings' frames"
# What the first voices were not measured by.
LATER = {
    GIVEN_FRAMES: "spoken, given the recordings' frames",
    "cents of F0": "F0, cents",
    "F0 off by a fifth": "off by a fifth",
    "voiced in one only": "voiced in one only",
    "clearness": "clearness",
}


def synthesis(records: Records) -> Rows:
    """Voices and their ablations."""
    labels = {
        "wavenet": "`wavenet`",
        "end-to-end": "`end to end`: gradients flow through everything",
        "phonemes": "`phonemes`: pronunciations as input",
        "flow": "`flow`: the default, four networks of 32 channels",
        "middle-flow": "`middle flow`: three of 16",
        "middle-flow-longer": "`middle flow, longer`: the same with three times the steps",
        "middle-flow-long-windows": "`middle flow, long windows`: spectra in windows of 0.1 s, too",
        "middle-flow-longer-long-windows": "`middle flow, longer, long windows`: both",
        "middle-flow-pulses": "`middle flow, pulses`: with pulses of the pitch",
        "middle-flow-longer-pulses": "`middle flow, longer, pulses`: with three times the steps, too",
        "middle-flow-together": "`middle flow, together`: all three, in segments twice as long",
        "short-flow": "`short flow`: two of 16",
        "no-apart": "`no apart`: two of 16, without the regularization of the divergence",
        "no-spectra": "`no spectra`: two of 16, without the loss on spectra",
    }
    arms = list(records.arms(labels))
    header = ["", "spoken", "frames alone", "recordings", "nats per sample", "spectral distance"]
    later = LATER if any("clearness" in seed for _, _, seeds in arms for seed in seeds) else {}
    threads = sorted({seed.get("threads", 1) for _, _, seeds in arms for seed in seeds})
    cores = "one core" if threads == [1] else f"{' or '.join(map(str, threads))} cores"
    rows = [[*header, "power, dB", *later.values(), f"times as fast as the WaveNet, {cores}"]]
    for _, label, seeds in arms:
        heard = [seed["not understood"] for seed in seeds if "not understood" in seed]
        cells = [spread([each[how] for each in heard]) if heard else "" for how in ("spoken", "frames", "recorded")]
        has_wavenet = "nats by linear prediction" in seeds[0]
        cells.append(spread([seed["nats a sample"] for seed in seeds], decimals(2)) if has_wavenet else "")
        cells.append(spread([seed["distance of spectra"] for seed in seeds], decimals(2)))
        cells.append(spread([seed["decibels louder"] for seed in seeds], decimals(1)))
        for name in later:
            values = [seed[name] for seed in seeds if name in seed]
            cells.append(spread(values, decimals(0) if name == "cents of F0" else percent) if values else "")
        rows.append(
            [label, *cells, "" if has_wavenet else spread([seed["times as fast"] for seed in seeds], decimals(1))]
        )
    return rows


def synthesis_likelihood(records: Records) -> Rows:
    """The WaveNet's likelihood beside linear prediction."""
    seeds = records.of("wavenet")
    names = {
        "nats a sample": "`wavenet`",
        "nats by linear prediction": "linear prediction of order 16",
        "nats by linear prediction and recent errors": "with the variance of its recent errors",
        "nats by linear prediction of each frame": "fitted to each frame of 30 ms, on that very frame",
    }
    rows = [[name, spread([seed[key] for seed in seeds], decimals(2))] for key, name in names.items()]
    return [["", "nats per sample"], *rows]


def speaking(records: Records) -> Rows:
    """Many streams at once beside one after another: sound made, and when the first of it is there."""
    rows = [
        ["vocoder, streams", "seconds of sound made in a second", "the first sound after, mean", "of the last stream"]
    ]
    for vocoder in ("wavenet", "flow"):
        record = read_record(records.file(f"{vocoder}.json"))
        for side in ("at once", "one after another"):
            made, mean, last = (statistics.median(record[side][name]) for name in record[side])
            rows.append([f"`{vocoder}`, {record['streams']} {side}", f"{made:.1f}", f"{mean:.2f} s", f"{last:.2f} s"])
        times = [
            a / b for a, b in zip(*(record[side]["sound/s"] for side in ("at once", "one after another")), strict=True)
        ]
        low, middle, high = statistics.quantiles(times, n=4)
        rows.append([f"`{vocoder}`, in the same turn", f"{middle:.2f} times ({low:.2f} to {high:.2f})", "", ""])
    return rows


# A loop of one's own


def plain_loop(records: Records) -> Rows:
    """The speed of loops in plain Paddle beside that of `ernie finetune` in the same turn."""
    return beside_first(records, "finetune-sst2.json")


def adapting(records: Records) -> Rows:
    """The speed of steps that learn low-rank updates beside that of one which learns all weights, in the same turn."""
    return beside_first(records, "sst2.json")


def beside_first(records: Records, file: str) -> Rows:
    """The speed of each side, and beside that of the first in the same turn."""
    rows = [["side", "tokens/s, median", "ratio, median", "half of the turns"]]
    for side, (speeds, ratios) in turns_beside_first(records, file).items():
        low, _, high = statistics.quantiles(ratios, n=4)
        middle = f"{low:.2f} to {high:.2f}" if low < high else ""
        rows.append([side, f"{statistics.median(speeds):,.0f}", f"{statistics.median(ratios):.2f}", middle])
    return rows


def turns_beside_first(records: Records, file: str) -> dict[str, tuple[list[float], list[float]]]:
    """The tokens/s of every turn, and their ratios to those of the first side, by side."""
    sides = read_record(records.file(file))["tokens/s"]
    first, *_ = sides.values()
    return {
        side: (speeds, [speed / other for speed, other in zip(speeds, first, strict=True)])
        for side, speeds in sides.items()
    }


def products(records: Records) -> Rows:
    """The median speed of each product beside Paddle's, and the median of their ratio in a turn."""
    rows = [["widths", "product", "GFLOP/s, ours", "Paddle", "ratio"]]
    for widths, found in read_record(records.file("products.json"))["GFLOP/s"].items():
        for name, sides in found.items():
            ours, theirs = sides["ours"], sides["Paddle"]
            cells = [f"{statistics.median(each):.0f}" for each in (ours, theirs)]
            rows.append([widths if name == "output" else "", name, *cells, f"{product_ratio(ours, theirs):.2f}"])
    return rows


def product_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of turns."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


# Training recipes

RECIPES = {
    "skewed": (
        "`class_weights`, a twentieth of the rows is negative",
        ("plain", "balanced", "plain, 10 epochs", "balanced, 10 epochs"),
    ),
    "rte": ("R-Drop and FGM, RTE", ("plain", "plain, 6 epochs", "R-Drop", "FGM")),
    "mrpc": ("R-Drop, FGM and LoRA, MRPC", ("plain", "plain, 6 epochs", "R-Drop", "FGM", "LoRA")),
    "sst2": ("LoRA, 8,000 rows of SST-2", ("plain", "LoRA", "LoRA, with outer")),
    "small": ("a teacher, SST-2", ("6 layers", "3 layers alone", "3 layers taught")),
    "long": ("windows, IFLYTEK", ("cut", "windows")),
}


def recipes(records: Records) -> Rows:
    """The scores of each arm over the seeds, and their mean."""
    rows = [["recipe", "arm", "metric", "median of the seeds", "mean"]]
    for name, (label, arms) in RECIPES.items():
        for _, arm, found in (records / name).arms({slug(arm): arm for arm in arms}):
            metric = next(iter(found[0]["scores"]))
            values = [record["scores"][metric] for record in found]
            shown = label if label not in {row[0] for row in rows} else ""
            rows.append([shown, arm, metric.replace("_", " "), spread(values), percent(statistics.mean(values))])
    return rows


# Failure drills

DRILL_FAULTS = ("kill", "stop", "freeze", "full disk", "corrupt file", "lost link")


def drills(records: Records) -> Rows:
    """What became of the runs that each fault happened to."""
    rows = [["fault", "drills", "at an end, the same bytes", "told why not", "neither"]]
    found = drill_records(records)
    for fault in DRILL_FAULTS:
        outcomes = [record["outcome"] for record in found if record["fault"] == fault]
        same, told = outcomes.count("resumed"), outcomes.count("told")
        rows.append([fault, f"{len(outcomes)}", f"{same}", f"{told}", f"{len(outcomes) - same - told}"])
    return rows


def drill_records(records: Records) -> list[dict[str, Any]]:
    """The drills, in their order.  Raises MissingRecord if there are none."""
    files = sorted(records.folder.glob("drill-*.json"))
    if not files:
        raise MissingRecord(f"{records.folder}: there is no record of a drill")
    return [read_record(records.file(file.name)) for file in files]


# Sentence vectors

VECTORS = {"stsb": "STS-B, Spearman", "cranfield": "Cranfield, nDCG@10"}
VECTOR_SIDES = ("ours", "sentence-transformers")


def sentence_vectors(records: Records) -> Rows:
    """The scores of both sides, and how many times as fast ours is in training and in encoding."""
    rows = [["data", "ours", "sentence-transformers", "training", "encoding"]]
    for name, label in VECTORS.items():
        scores = [spread([record["score"] for record in found]) for _, _, found in sides_of(records / name)]
        times = [f"{statistics.median(ratios):.1f} times as fast" for ratios in vector_speeds(records / name)]
        if scores or times:
            rows.append([label, *(scores if len(scores) == len(VECTOR_SIDES) else ["", ""]), *(times or ["", ""])])
    return rows


def sides_of(records: Records) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The scores of both sides."""
    return list(records.arms({side: side for side in VECTOR_SIDES}))


def vector_speeds(records: Records) -> list[list[float]]:
    """How many times as fast ours is as the faster of the peer's, in each turn: in training, and in encoding."""
    sides = (*VECTOR_SIDES, "sentence-transformers-bf16")
    found = [turns for _, _, turns in records.arms({f"{side}-speed": side for side in sides})]
    if len(found) < len(sides):
        return []
    return [
        [min(other[key] for other in theirs) / ours[key] for ours, *theirs in zip(*found, strict=True)]
        for key in ("training seconds", "encoding seconds")
    ]


# Corpora


CLEANING_CASES = {"rules": "rules of Gopher and C4", "exact": "and exact copies", "near": "rules and near duplicates"}
CLEANING_SIDES = {
    "ours": "the cleaning of `ernie data build` alone",
    "build": "`ernie data build`, the whole command",
    "dolma": "Dolma toolkit",
    "datatrove": "datatrove",
    "nemo": "NeMo Curator",
}


def corpus_tools(records: Records) -> Rows:
    """The speed and the memory of cleaning, by the filters and by the side."""
    rows = [["filters", "", "MB/s", "resident, MB", "documents left"]]
    for case, filters in CLEANING_CASES.items():
        for side, label, turns in (records / case).arms(CLEANING_SIDES):
            speed = spread([turn["megabytes"] / turn["seconds"] for turn in turns], decimals(1))
            memory = spread([turn["resident MB"] for turn in turns], decimals(0))
            left = f"{turns[0]['documents left']:,}" if side != "build" else ""
            rows.append([filters, label, speed, memory, left])
    return rows


def planted_duplicates(records: Records) -> Rows:
    """What the filter of near duplicates drops of each cell of the grid, all seeds together."""
    rows = [["changed or shared", "documents", "true similarity", "at least 0.75", "dropped", "dropped of those"]]
    seeds = [record["cells"] for _, _, found in records.arms({"planted": ""}) for record in found]
    for cells in zip(*seeds, strict=True):
        documents, dropped, similar, both = (
            sum(cell[key] for cell in cells) for key in ("documents", "dropped", "similar", "similar and dropped")
        )
        label = f"{100 * cells[0]['share']:g} %, {cells[0]['way']}"
        if cells[0]["way"] == "boilerplate":
            rows.append([label, f"{documents:,}", "", "", percent(dropped / documents), ""])
            continue
        median = f"{statistics.median(cell['similarity'] for cell in cells):.2f}"
        known = percent(both / similar) if similar else ""
        cells_of = [f"{documents:,}", median, percent(similar / documents), percent(dropped / documents), known]
        rows.append([label, *cells_of])
    return rows


def planted_by_similarity(records: Records) -> Rows:
    """What the filter drops of the copies, by their true similarity to their originals."""
    rows = [["true similarity", "copies", "dropped"]]
    seeds = [record["by similarity"] for _, _, found in records.arms({"planted": ""}) for record in found]
    for cells in zip(*seeds, strict=True):
        copies, dropped = (sum(cell[key] for cell in cells) for key in ("copies", "dropped"))
        label = f"{cells[0]['from']:.2f} to {cells[0]['to']:.2f}"
        rows.append([label, f"{copies:,}", percent(dropped / copies) if copies else ""])
    return rows


TINY = {"plain": "none", "exact": "`exact_duplicates`", "near": "`near_duplicates`"}


def tiny_documents(records: Records) -> Rows:
    """Builds of many tiny documents: time and peak memory, by the filter."""
    rows = [["filter", "documents", "MB", "kept", "seconds", "resident, MB", "proportional, MB"]]
    for _, label, (record, *_) in records.arms(TINY):
        counts = [f"{record['documents']:,}", f"{record['megabytes']:,.0f}", f"{record['kept']:,}"]
        sizes = [f"{record[key]:,.0f}" for key in ("seconds", "resident MB", "proportional MB")]
        rows.append([label, *counts, *sizes])
    return rows


CLEANED = {"dirty": "dirtied", "cleaned": "dirtied, then cleaned", "clean": "never dirtied"}
JUDGED = {"sst2": "SST-2", "mrpc": "MRPC"}


def cleaning(records: Records) -> Rows:
    """What an encoder learns from text with and without cleaning."""
    rows = [["text", "documents", "tokens", "hidden words, loss", "accuracy", *JUDGED.values(), "mean"]]
    for _, label, seeds in records.arms(CLEANED):
        sizes = [f"{seeds[0]['corpus'][key]:,}" for key in ("documents", "tokens")]
        loss = spread([seed["hidden words"]["loss"] for seed in seeds], decimals(3))
        right = spread([seed["hidden words"]["right"] for seed in seeds])
        scores = [spread([seed[TUNED][task] for seed in seeds]) for task in JUDGED]
        rows.append([label, *sizes, loss, right, *scores])
        rows[-1].append(spread([statistics.mean(seed[TUNED].values()) for seed in seeds]))
    return rows


# Search


def searching(records: Records) -> Rows:
    """The scores of each way to rank."""
    names = {"ndcg_at_10": "nDCG@10", "mrr_at_10": "MRR@10", "map_at_100": "MAP@100", "recall_at_10": "recall@10"}
    rows = [["ranked by", *names.values(), "recall@100"]]
    found = read_record(records.file("cranfield.json"))
    for way, label in (("bm25", "words"), ("dense", "vectors"), ("hybrid", "both")):
        rows.append([label, *(f"{found[way][name]:.3f}" for name in [*names, "recall_at_100"])])
    return rows


# By name: the folder of records, and what is made of it.
# Inference


def stream_caches(records: Records) -> Rows:
    """What a step of many streams costs before and after caches append in place."""
    shapes = {"3-layers-of-256": "3 layers of 256", "6-layers-of-512": "6 layers of 512"}
    labels = {
        "cache": "the cache's part of a step",
        "step": "a whole step",
        "attention": "attention's part of it",
        "product": "products' part of it",
        "split": "splitting",
        "join": "joining",
    }
    rows = [["decoder", "", "ms, before", "after", "times as fast", "kB, before", "after", "times fewer"]]
    for _, label, seeds in records.arms(shapes):
        for name, what in labels.items():
            before, after = (seeds[0][side] for side in ("before", "after"))
            times = [f"{1000 * side[name]:.2f}" for side in (before, after)]
            row = [label, what, *times, f"{before[name] / after[name]:.1f}"]
            written = [side.get(f"{name} bytes") for side in (before, after)]
            if written[0] is None:
                row += ["", "", ""]
            else:
                fewer = f"{written[0] / written[1]:.0f}" if written[1] else "all"
                row += [*(f"{each / 1000:,.0f}" for each in written), fewer]
            rows.append(row)
    return rows


# Serving

SIDES = {
    "ours": "ours",
    "mosec": "mosec",
    "litserve": "LitServe",
    "bentoml": "BentoML",
    "ray": "Ray Serve",
    "pytriton": "PyTriton",
    "infinity": "infinity, torch",
    "sherpa": "sherpa-onnx",
}
SERVING_ARMS = (
    *("overhead", "saturated", "classify", "embed", "optimum", "overload", "recognition", "translation", "voices"),
    *("interpreter", "cancels", "reloads", "generator"),
)


def serving(records: Records, arm: str) -> dict[str, Any]:
    """The record of an arm of serving_load.py.  Raises MissingRecord if there is none."""
    return records.of(arm)[0]


def serving_arms(records: Records) -> Rows:
    """Where each arm was measured, what the generator took, and the largest gap of the event loop."""
    rows = [["arm", "processor", "minutes", "generator, cores at most", "largest gap, ms"]]
    for _, label, (record, *_) in records.arms({arm: f"`{arm}`" for arm in SERVING_ARMS}):
        cores = [value for key, value in leaves(record) if key == "generator's cores"]
        gap = record["largest gap"]
        shown = [f"{max(cores):.2f}" if cores else "", "" if gap is None else f"{1000 * gap:.1f}"]
        processor = f"{record['processor']}, {record['instructions'][0]}"
        rows.append([label, processor, f"{record['minutes']:.0f}", *shown])
    return rows


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values within a record with their keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, name)
    else:
        yield name, value


def serving_costs(records: Records) -> Rows:
    """What our server costs beside the engine."""
    rows = [["", "by turn"]]
    for _, label, (record, *_) in records.arms({"overhead": "processor time outside the engine, ms a request"}):
        rows.append([label, listed([turn["ms"] for turn in record["turns"]], decimals(3))])
        rows.append(["processor time of an idle server, cores", f"{record['idle cores']:.3f}"])
    for _, _, (record, *_) in records.arms({"saturated": ""}):
        for key, label in (("offline", "rows/s, packed batches without a server"), ("served", "rows/s, served")):
            rows.append([label, listed([turn[key] for turn in record["turns"]], decimals(1))])
        rows.append(["the part that is served of the cores that the generator leaves", listed(parts_served(record))])
    for _, _, (record, *_) in records.arms({"generator": ""}):
        for side, label in (("ours", "our generator"), ("k6", "k6")):
            pairs = [f"{turn[side]['p50']:.1f} and {turn[side]['p99']:.1f}" for turn in record["turns"]]
            rows.append([f"p50 and p99 at {record['rate']:.0f} requests/s, ms, {label}", ", ".join(pairs)])
    return rows


def parts_served(record: Mapping[str, Any]) -> list[float]:
    """The throughput of the server as a part of that of packed batches on what the generator leaves, by turn."""
    cores = record["cores"]
    return [turn["served"] / turn["offline"] * cores / (cores - turn["generator's cores"]) for turn in record["turns"]]


def serving_rates(records: Records) -> Rows:
    """The highest rates of all sides, and the latencies there and with bursts."""
    rows = [["work", "side", "requests/s", "p50, ms", "p99, ms", "bursts of 8: p99, ms", "in time"]]
    for _, label, (record, *_) in records.arms({"classify": "classify", "embed": "vectors of MiniLM"}):
        for side, rate in record["rates"].items():
            at = record["sides"][side].get(str(rate), [{}])[-1]
            shown = [f"{at[key]:.0f}" if key in at else "" for key in ("p50", "p99")]
            burst = record["bursts"][side]
            row = [label, SIDES[side], f"{rate:.0f}", *shown, f"{burst['p99']:.0f}" if "p99" in burst else ""]
            rows.append([*row, percent(burst["in time"])])
        rows += [[label, SIDES[side], "did not start", "", "", "", ""] for side in record["failed"]]
    return rows


def serving_optimum(records: Records) -> Rows:
    """Latencies beside those of a simulated engine, medians of the turns."""
    rows = [["load", "bursts of", "texts a batch", "p50, ms", "ideal", "p99, ms", "ideal", "times the ideal"]]
    for _, _, (record, *_) in records.arms({"optimum": ""}):
        for (share, burst), points in by_load(record).items():
            middle = statistics.median
            cells = [f"{middle(point['texts a batch'] for point in points):.1f}"]
            for q in ("p50", "p99"):
                cells += [f"{middle(p[q] for p in points):.1f}", f"{middle(p['ideal'][q] for p in points):.1f}"]
            rows.append([f"{share:.0%}", str(burst), *cells, f"{beyond_ideal(points):.2f}"])
    return rows


def by_load(record: Mapping[str, Any]) -> dict[tuple[float, int], list[dict[str, Any]]]:
    """The points of the record of `optimum` by load and size of bursts."""
    found: dict[tuple[float, int], list[dict[str, Any]]] = {}
    for point in record["points"]:
        found.setdefault((point["share"], point["burst"]), []).append(point)
    return found


def beyond_ideal(points: Sequence[Mapping[str, Any]]) -> float:
    """How many times the ideal's a p99 is, the median of the turns."""
    return statistics.median(point["p99"] / point["ideal"]["p99"] for point in points)


def serving_overload(records: Records) -> Rows:
    """What becomes of requests at one and a half times the capacity, by turn."""
    rows = [["turn", "capacity, requests/s", "goodput", "admitted in time", "p50 and p99 of refusals, ms"]]
    rows[0] += ["memory", "normal again after, s"]
    for _, _, (record, *_) in records.arms({"overload": ""}):
        for number, turn in enumerate(record["turns"], 1):
            refusals = " and ".join(f"{turn[f'{q} of refusals'] or 0:.1f}" for q in ("p50", "p99"))
            cells = [f"{turn['capacity']:.0f}", percent(turn["goodput"]), percent(turn["admitted in time"]), refusals]
            rows.append([str(number), *cells, f"{turn['memory']:+.1%}", f"{turn['normal again']:.1f}"])
    return rows


def serving_recognition(records: Records) -> Rows:
    """The latency of a chunk by the number of sessions."""
    rows = [["side", "sessions", "p50, ms", "p90, ms", "p99, ms", "streams a step"]]
    for _, _, (record, *_) in records.arms({"recognition": ""}):
        for side, found in record["sides"].items():
            for count, at in found["counts"].items():
                shown = [f"{at[q]:.0f}" if at[q] is not None else "" for q in ("p50", "p90", "p99")]
                streams = f"{at['streams a step']:.1f}" if "streams a step" in at else ""
                rows.append([SIDES.get(side, side), count, *shown, streams])
    return rows


def serving_translation(records: Records) -> Rows:
    """The tokens/s of 64 sessions, by turn."""
    rows = [["turn", "tokens/s together", "one after another", "times", "streams a step", "the same texts"]]
    for _, _, (record, *_) in records.arms({"translation": ""}):
        for number, turn in enumerate(record["turns"], 1):
            speeds = list(turn["tokens/s"].values())
            cells = [*(f"{speed:,.0f}" for speed in speeds), f"{speeds[0] / speeds[1]:.1f}"]
            rows.append([str(number), *cells, f"{turn['streams a step']:.0f}", "yes" if turn["same"] else "no"])
    return rows


def serving_voices(records: Records) -> Rows:
    """When voices are heard, and how much of their sound is late."""
    rows = [["voices", "first sound, p50, ms", "p95, ms", "pieces that are late"]]
    for _, _, (record, *_) in records.arms({"voices": ""}):
        for count, at in record["counts"].items():
            shown = [f"{at[q]:.0f}" if at[q] is not None else "" for q in ("p50", "p95")]
            rows.append([count, *shown, percent(at["late"])])
        first = record["first at 8"]
        rows.append(["8, five rounds", f"{first['p50']:.0f}", f"{first['p95']:.0f}", ""])
    return rows


def serving_interpreter(records: Records) -> Rows:
    """When those who speak at once see a word, and hear its translation."""
    rows = [["8 people who speak at once", "p50, ms", "p95, ms"]]
    labels = {
        "first word": "first word, tentative or final, after the end of its sound",
        "first final word": "first final word, after the end of its sound",
        "first sound": "first sound of the translation, after the end of the speech",
    }
    for _, _, (record, *_) in records.arms({"interpreter": ""}):
        rows += [[label, *(f"{record[name][q]:.0f}" for q in ("p50", "p95"))] for name, label in labels.items()]
    return rows


def serving_faults(records: Records) -> Rows:
    """What clients that go away leave behind, and what reloads cost others."""
    rows = [["", "requests", "failed", "p99, ms", "left behind", "memory"]]
    for _, _, (record, *_) in records.arms({"cancels": ""}):
        others, left = record["others"], sum(record["left"].values())
        bad = sum(others.values()) - others.get("200", 0)
        label = f"{record['clients']:,} clients that go away; others meanwhile"
        rows.append([label, f"{sum(others.values()):,}", str(bad), "", f"{left:.0f}", f"{record['memory']:+.1%}"])
    for _, _, (record, *_) in records.arms({"reloads": ""}):
        labels = {"hot": f"{record['hot']['reloads']} reloads", "rolling": "a rolling restart of two replicas"}
        for part, label in labels.items():
            if part in record:
                requests, bad = failures(record[part])
                rows.append([label, f"{requests:,}", str(bad), f"{record[part]['p99']:.0f}", "", ""])
    return rows


def replaying(records: Records) -> Rows:
    """The faults that were planted, and how many of them `ernie replay` named."""
    labels = {
        "weight": "a value of a weight in a checkpoint is not finite",
        "document": "a document makes the loss infinite",
        "gradient": "a bit is flipped in the gradient of one of two ranks",
        "kernel": "an operator or a layer rounds otherwise",
    }
    rows = [["planted", "named", "seconds", "the first of them", "what is said"]]
    for _, label, found in records.arms(labels):
        named, seconds = sum(each["named"] for each in found), [each["seconds"] for each in found]
        said = str(found[0]["said"]).replace("|", " ")
        rows.append([label, f"{named} of {len(found)}", f"{max(seconds):.0f}", found[0]["planted"], said])
    return rows


def failures(part: Mapping[str, Any]) -> tuple[int, int]:
    """How many requests there were, and how many of them were not answered with 200."""
    statuses = part["statuses"]
    return sum(statuses.values()), sum(statuses.values()) - statuses.get("200", 0)


TABLES: dict[str, tuple[str, Callable[[Records], Rows]]] = {
    "plateau": ("plateau/steps-3000", plateau),
    "comparing": ("comparing", comparing),
    "forgetting": ("evidence/ablation-800", forgetting),
    "forgetting-by-seed": ("evidence/ablation-800", forgetting_by_seed),
    "each-task": ("evidence/tasks-1600-moments-each_task", each_task),
    "each-task-longer": ("evidence/tasks-6400-moments-each_task", alone),
    "moments": ("evidence", moments),
    "moments-masked": ("evidence", moments_masked),
    "paces": ("quality", paces),
    "quality": ("quality/minutes-60", quality),
    "quality-means": ("quality/minutes-60", quality_means),
    "quality-before": ("quality", quality_before),
    "scaling-sizes": ("ladder", scaling_sizes),
    "scaling-widths": ("ladder", scaling_widths),
    "en-held-out": ("models", partial(card, language="en", heading="Evaluation")),
    "en-fine-tuned": ("models", partial(card, language="en", heading="Fine-tuned")),
    "zh-held-out": ("models", partial(card, language="zh", heading="Evaluation")),
    "zh-fine-tuned": ("models", partial(card, language="zh", heading="Fine-tuned")),
    "masking": ("masking/steps-4000", masking),
    "nights": ("night", nights),
    "night-ablations": ("night/night-mini-20-minutes", ablations),
    "stream-caches": ("stream-caches", stream_caches),
    "translation": ("translation/epochs-10", translation),
    "translation-chinese": ("translation/epochs-10", translation_chinese),
    "translation-catching-up": ("translation/epochs-10", translation_catching_up),
    "waiting-less": ("waiting/epochs-10", waiting_less),
    "waiting-in-time": ("waiting/epochs-10", waiting_in_time),
    "waiting-simuleval": ("waiting/epochs-10", simuleval),
    "digits": ("recognition/all-epochs-20", digits),
    "digits-delay": ("recognition/all-epochs-20", digits_delay),
    "digits-longer": ("recognition/all-epochs-40", digits),
    "digits-left-out": ("recognition", digits_left_out),
    "offsets": ("disturbed/all-epochs-20", offsets),
    "silences": ("disturbed/all-epochs-20", silences),
    "prompts": ("prompts/epochs-60", prompts),
    "prompts-remedies": ("prompts/epochs-120", prompts),
    "speech-translation": ("speech-translation/epochs-4-chunks-0", speech_translation),
    "synthesis": ("synthesis/epochs-24-8", synthesis),
    "synthesis-likelihood": ("synthesis/epochs-24-8", synthesis_likelihood),
    "plain-loop": ("plain-loop", plain_loop),
    "recipes": ("recipes", recipes),
    "searching": ("searching", searching),
    "sentence-vectors": ("sentence-vectors", sentence_vectors),
    "adapting": ("adapting", adapting),
    "drills": ("drills", drills),
    "corpus-tools": ("corpus-tools", corpus_tools),
    "planted-duplicates": ("planted-duplicates", planted_duplicates),
    "planted-by-similarity": ("planted-duplicates", planted_by_similarity),
    "tiny-documents": ("tiny-documents/documents-10000000", tiny_documents),
    "cleaning": ("cleaning/minutes-20", cleaning),
    "products": ("products", products),
    "speaking": ("speaking", speaking),
    "serving-arms": ("serving", serving_arms),
    "serving-costs": ("serving", serving_costs),
    "serving-rates": ("serving", serving_rates),
    "serving-optimum": ("serving", serving_optimum),
    "serving-overload": ("serving", serving_overload),
    "serving-recognition": ("serving", serving_recognition),
    "serving-translation": ("serving", serving_translation),
    "serving-voices": ("serving", serving_voices),
    "serving-interpreter": ("serving", serving_interpreter),
    "serving-faults": ("serving", serving_faults),
    "replaying": ("replaying", replaying),
}
