"""What came out of each target that was set before an experiment: the figure, and whether it is met.

The pages show them, and the experiments print them.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from cells import Rows, listed, markdown, percent, standard_error
from page_tables import (
    AT_POINT,
    CLEANING_CASES,
    CLEANING_SIDES,
    LAGGING,
    LEARNERS,
    MASKED,
    OFFSETS,
    PROMPT_ARMS,
    REMEDIES,
    SCHEDULES,
    SERVING_ARMS,
    SIDES,
    SILENCES,
    SPEAKERS,
    TASK_NAMES,
    TINY,
    VECTOR_SIDES,
    WAITS,
    beyond_ideal,
    by_load,
    chosen_policy,
    downstream,
    drill_records,
    failures,
    forgotten,
    left_out,
    mean_left_out,
    night_scores,
    parts,
    parts_served,
    points_of,
    product_ratio,
    serving,
    turns_beside_first,
    vector_speeds,
)
from record_files import TUNED, MissingRecord, Records, read_record, slug

from pretrain.scaling.answer import curve
from pretrain.scaling.points import read_table

WORD_SECONDS = 0.68  # how long a word of speech_translation.py takes, which prints it


class Outcome(NamedTuple):
    """A figure, and whether each of its targets is met."""

    figure: str
    verdict: str


def outcome(figure: str, *holds: bool) -> Outcome:
    """A figure, and whether each of its targets is met, once if all are alike."""
    words = ["met" if each else "missed" for each in holds]
    return Outcome(figure, "; ".join(words if len(set(words)) > 1 else words[:1]))


def report(records: Records, *tables: Callable[[Records], Rows], targets: Sequence[str] = ()) -> None:
    """Print the tables of an experiment that have rows, and the outcome of each target whose arms have been run."""
    for table in tables:
        if len(rows := table(records)) > 1:
            print(markdown(rows))
    for name in targets:
        with suppress(MissingRecord):
            print(f"- {name}: {': '.join(OUTCOMES[name][1](records))}")


# Pretraining


def hour_beside_transformers(records: Records) -> Outcome:
    """Transformers' final score within a third of the time, and a higher one at the end."""
    last = parts(records)[-1]
    ours, theirs = (downstream(last.of(arm)) for arm in ("continual-moments", "transformers-2e-4"))
    count = int(last.folder.name.partition("-of-")[2])
    seeds = [seed for seed in (records / f"{count // 3}-of-{count}").of("continual-moments") if TUNED in seed]
    soon, end, goal = map(statistics.mean, (downstream(seeds), ours, theirs))
    one = " (one seed)" if len(seeds) == 1 else ""
    figure = f"{percent(soon)} after {seeds[0]['minutes']:.0f} minutes{one}; {100 * end:.1f} vs {percent(goal)}"
    return outcome(figure, soon >= goal, end > goal)


def hour_beside_masked_words(records: Records) -> Outcome:
    """A mean higher by more than its standard error, a loss of hidden words at most 0.1 higher."""
    seeds = [parts(records)[-1].of(arm) for arm in ("continual-moments", "masked-beta2")]
    scores = [downstream(of_arm) for of_arm in seeds]
    losses = [statistics.mean(seed["hidden words"]["loss"] for seed in of_arm) for of_arm in seeds]
    (ours, alone), error, more = map(statistics.mean, scores), standard_error(*scores), losses[0] - losses[1]
    figure = f"{100 * ours:.1f} vs {percent(alone)} (standard error {100 * error:.1f}); {more:.2f} higher"
    return outcome(figure, ours - alone > error, more <= 0.1)


def night(records: Records, size: str, hours: int, mean: float, sst2: float | None = None, points: str = "") -> Outcome:
    """The mean over the tasks of the miniatures, and the accuracy on SST-2, are at least as high."""
    file = records.file(f"{size}-{hours}-hours{points}.json")
    if not file.is_file():
        raise MissingRecord(f"{records.folder}: there is no night of {hours} hours of {size}")
    dev = read_record(file)["dev"]
    found = [statistics.mean(night_scores(dev)), statistics.median(dev["sst2"])]
    pairs = [(score, low) for score, low in zip(found, (mean, sst2), strict=True) if low is not None]
    return outcome("; ".join(f"{score:.1f}" for score, _ in pairs), *(score >= low for score, low in pairs))


def forgetting(records: Records) -> Outcome:
    """Sequential learning loses at least 15 % of its first accuracy, continual learning at most 5 % of its best."""
    sequential, continual = (
        statistics.median(forgotten(seed, MASKED, arm) for seed in records.of(arm))
        for arm in ("sequential", "continual")
    )
    return outcome(f"{percent(sequential)}; {percent(continual)}", sequential >= 0.15, continual <= 0.05)


def forgetting_downstream(records: Records) -> Outcome:
    """Means in the order sequential, joint, continual."""
    scores = [downstream(records.of(arm)) for arm in SCHEDULES]
    if not all(scores):
        raise MissingRecord(f"{records.folder}: some schedule was not fine-tuned")
    means = [statistics.mean(of_arm) for of_arm in scores]
    return outcome(listed(means), means == sorted(means))


def each_task(records: Records, tasks: Sequence[str]) -> Outcome:
    """Each task above both baselines, on every seed."""
    seeds = {task: records.of(task) for task in tasks}
    above = [sum(is_above(seed, task) for seed in of_task) for task, of_task in seeds.items()]
    count = len(next(iter(seeds.values())))
    if count == 1:
        return outcome(f"{sum(above)} of {len(tasks)} tasks", all(above))
    fewer = "".join(f", {above.count(n)} on {n}" for n in range(count - 1, 0, -1) if n in above)
    return outcome(f"{above.count(count)} of {len(tasks)} tasks on all {count} seeds{fewer}", min(above) == count)


def is_above(seed: Mapping[str, Any], task: str) -> bool:
    """Whether the interval of a task's score lies above the majority and above counting tokens."""
    score = seed["measured"][task][-1]
    return bool(score["low"] > max(score["majority"], seed["counting tokens"]))


def masking(records: Records) -> Outcome:
    """A higher mean with words, phrases and entities."""
    scores = [[statistics.mean(seed[TUNED].values()) for seed in records.of(arm)] for arm in ("words", "characters")]
    words, characters = map(statistics.mean, scores)
    error = 100 * standard_error(*scores)
    return outcome(f"{100 * words:.1f} vs {percent(characters)} (standard error {error:.1f})", words > characters)


def scaling(records: Records) -> Outcome:
    """The error with the most text predicted within 3 %, seed by seed."""
    file = records.file("points.tsv")
    with file.open(encoding="utf-8", newline="") as text:
        seeds = [row["seed"] for row in csv.DictReader(text, delimiter="\t")]
    points = list(zip(seeds, read_table(file), strict=True))
    off = [abs(curve([point for seed, point in points if seed == each]).missed) for each in sorted(set(seeds))]
    return outcome(f"{100 * min(off):.1f} to {percent(max(off))} off", max(off) <= 0.03)


# Translation


def mean_bleu(records: Records, arm: str, point: str) -> float:
    """The mean BLEU of the seeds.  Raises MissingRecord if there are none."""
    records.of(arm)
    return 100 * statistics.mean(each["bleu"] for each in points_of(records, arm, point))


def translation_whole(records: Records) -> Outcome:
    """Whole sentences reach 35 BLEU."""
    score = mean_bleu(records, "full", "full")
    return outcome(f"{score:.1f}", score >= 35)


def translation_gain(records: Records, least: float, arms: tuple[tuple[str, str], tuple[str, str]]) -> Outcome:
    """One way to decode gains at least so many BLEU over another."""
    better, worse = (mean_bleu(records, *arm) for arm in arms)
    return outcome(f"{better - worse:+.1f}", better - worse >= least)


def translation_lag(records: Records) -> Outcome:
    """AL grows with k."""
    arms = [f"wait-{k}" for k in WAITS]
    lags = [statistics.mean(seed["points"][arm]["lag"] for seed in records.of(arm)) for arm in arms]
    return outcome(", ".join(f"{lag:.1f}" for lag in lags), lags == sorted(lags))


def translation_catching_up(records: Records) -> Outcome:
    """Catching up brings AL nearer to 3."""
    arms = {"cs-fr-wait-3-catching-up": "cs-fr, wait-3, catching up", "cs-fr-wait-3": "cs-fr, wait-3"}
    lags = [statistics.mean(seed["points"][point]["lag"] for seed in records.of(arm)) for arm, point in arms.items()]
    return outcome(f"{lags[0]:.1f} vs {lags[1]:.1f}", abs(lags[0] - 3) < abs(lags[1] - 3))


# Speech


def errors(records: Records, arm: str, split: str) -> float:
    """The median word error rate of an arm."""
    seeds = records.of(arm)
    if not all(split in seed for seed in seeds):
        raise MissingRecord(f"{records.folder}: '{arm}' was not measured with '{split}'")
    return statistics.median(seed[split] for seed in seeds)


def digits(records: Records) -> Outcome:
    """CTC has at most 10 % errors on short strings."""
    wrong = errors(records, "chunks", "test")
    return outcome(percent(wrong), wrong <= 0.1)


def no_more_errors(records: Records, one: tuple[str, str], other: tuple[str, str]) -> Outcome:
    """One way to recognize makes no more errors than another."""
    first, second = (errors(records, *way) for way in (one, other))
    return outcome(f"{100 * first:.1f} vs {percent(second)}", first <= second)


def digits_attention(records: Records) -> Outcome:
    """Attention makes no more errors than CTC, on long strings at most 1.5 times as many as on short ones."""
    ctc, short, long = (
        errors(records, *way) for way in (("chunks", "test"), ("attention", "test"), ("attention", "long"))
    )
    return outcome(f"{100 * short:.1f} vs {percent(ctc)}; {long / short:.1f} times", short <= ctc, long <= 1.5 * short)


def digits_deaf(records: Records) -> Outcome:
    """Without the audio attention makes at least twice as many errors."""
    short, deaf = (errors(records, "attention", split) for split in ("test", "test, without the sound"))
    return outcome(f"{deaf / short:.0f} times", deaf >= 2 * short)


def digits_global(records: Records) -> Outcome:
    """Global attention makes at least 3 times as many errors on long strings as on short ones."""
    short, long = (errors(records, "global", split) for split in ("test", "long"))
    return outcome(f"{long / short:.1f} times", long >= 3 * short)


def disturbance(records: Records, base: str, others: Sequence[str]) -> Outcome:
    """At most half a point more is wrong, with global and with streaming statistics."""
    more = [
        max(errors(records, arm, f"{base}, {other}") for other in others) - errors(records, arm, base)
        for arm in ("chunks", "streaming")
    ]
    return outcome("; ".join(f"{100 * each:+.1f} points" for each in more), *(each <= 0.005 for each in more))


def silent(records: Records) -> Outcome:
    """Not one word in a minute of zeros."""
    words = [errors(records, arm, "words in a minute of silence") for arm in ("chunks", "streaming")]
    return outcome("; ".join(f"{each:g}" for each in words), *(each == 0 for each in words))


def prompts(records: Records) -> Outcome:
    """A language model corrects a fifth of the wrong words."""
    seeds = records.of("fresh")
    fewer = statistics.median(1 - seed["language model"]["wer"] / seed["likeliest letters"]["wer"] for seed in seeds)
    return outcome(f"{100 * fewer:.0f} %", fewer >= 0.2)


def prompts_sentences(records: Records) -> Outcome:
    """Sentences in another voice, before or too, correct a tenth of the wrong letters."""
    fresh, *others = (
        statistics.median(seed["likeliest letters"]["cer"] for seed in records.of(arm))
        for arm in ("fresh", "sentences-first", "sentences-too")
    )
    more = [each / fresh - 1 for each in others]
    return outcome("; ".join(f"{100 * each:+.0f} %" for each in more), *(each <= -0.1 for each in more))


def prompts_remedies(records: Records) -> Outcome:
    """The best arm and language model by dev have at most half of the words wrong."""
    tried = [
        [seed[way] for seed in seeds]
        for _, _, seeds in records.arms(PROMPT_ARMS)
        for way in seeds[0]
        if all("dev wer" in seed.get(way, ()) for seed in seeds)
    ]
    if not tried:
        raise MissingRecord(f"{records.folder}: has no arm with remedies")
    best = min(tried, key=lambda seeds: statistics.mean(seed["dev wer"] for seed in seeds))
    wrong = statistics.mean(seed["wer"] for seed in best)
    return outcome(percent(wrong), wrong <= 0.5)


def speech_translation(records: Records) -> Outcome:
    """At most 1 % more errors than the transcripts have; a lag of k words, give or take a fifth of a word."""
    chain = records.by_seed("wait")
    alone = chain.pop(0)
    worse = max(each["word error rate"] for each in chain.values()) - alone["word error rate"]
    lags = {k: (each["lag"] - alone["lag"]) / WORD_SECONDS for k, each in chain.items()}
    figure = f"{percent(worse)}; {', '.join(f'{each:.1f}' for each in lags.values())} words"
    return outcome(figure, worse <= 0.01, all(abs(each - k) <= 0.2 for k, each in lags.items()))


def heard(records: Records, arm: str) -> float:
    """The median share of a voice's digits that are not understood."""
    seeds = records.of(arm)
    if not all("not understood" in seed for seed in seeds):
        raise MissingRecord(f"{records.folder}: no recognizer has heard '{arm}'")
    return statistics.median(seed["not understood"]["spoken"] for seed in seeds)


def median(records: Records, arm: str, key: str) -> float:
    """The median of a measurement of a voice."""
    seeds = records.of(arm)
    if not all(key in seed for seed in seeds):
        raise MissingRecord(f"{records.folder}: '{arm}' was not measured with '{key}'")
    return statistics.median(seed[key] for seed in seeds)


def voice(records: Records) -> Outcome:
    """At most 20 % of the digits are not understood."""
    wrong = heard(records, "wavenet")
    return outcome(percent(wrong), wrong <= 0.2)


def voice_likelihood(records: Records) -> Outcome:
    """Samples are 0.2 nats likelier than by linear prediction."""
    better = median(records, "wavenet", "nats by linear prediction") - median(records, "wavenet", "nats a sample")
    return outcome(f"{better:.1f}", better >= 0.2)


def flow(records: Records, arm: str) -> Outcome:
    """Spectra at most 1.3 times as far from the recordings as the WaveNet's, at most 20 % not understood."""
    ours, wavenet = (median(records, each, "distance of spectra") for each in (arm, "wavenet"))
    wrong = heard(records, arm)
    return outcome(f"{ours / wavenet:.2f} times; {percent(wrong)}", ours <= 1.3 * wavenet, wrong <= 0.2)


def voice_longer(records: Records) -> Outcome:
    """With three times the steps less than 8 % of the words are wrong, and the voice is clearer."""
    wrong = heard(records, "middle-flow-longer")
    more = median(records, "middle-flow-longer", "clearness") - median(records, "middle-flow", "clearness")
    return outcome(f"{percent(wrong)}; {100 * more:+.1f} points", wrong < 0.08, more > 0)


def voice_windows(records: Records) -> Outcome:
    """Long windows make that voice clearer, and no more of its words are wrong."""
    longer, windows = "middle-flow-longer", "middle-flow-longer-long-windows"
    more = median(records, windows, "clearness") - median(records, longer, "clearness")
    wrong = heard(records, windows) - heard(records, longer)
    return outcome(f"{100 * more:+.1f} points; {100 * wrong:+.1f} %", more > 0, wrong <= 0)


def voice_pulses(records: Records) -> Outcome:
    """Pulses make a voice clearer, halve its error of F0, and fewer of its words are wrong."""
    without, pulses = "middle-flow", "middle-flow-pulses"
    more = median(records, pulses, "clearness") - median(records, without, "clearness")
    cents, before = (median(records, arm, "cents of F0") for arm in (pulses, without))
    wrong = heard(records, pulses) - heard(records, without)
    figure = f"{100 * more:+.1f} points; {cents:.0f} vs {before:.0f} cents; {100 * wrong:+.1f} %"
    return outcome(figure, more > 0, cents <= before / 2, wrong < 0)


def voice_together(records: Records) -> Outcome:
    """All changes together: less than 8 % of the words are wrong, at 20 times the WaveNet's speed on two cores."""
    arm = "middle-flow-together"
    if any(seed.get("threads", 1) != 2 for seed in records.of(arm)):
        raise MissingRecord(f"{records.folder}: the speed of '{arm}' was not measured on two cores")
    wrong, faster = heard(records, arm), median(records, arm, "times as fast")
    return outcome(f"{percent(wrong)} at {faster:.1f} times", wrong < 0.08, faster >= 20)


def voice_gradients(records: Records) -> Outcome:
    """Without the regularization the largest gradient, in medians, is at least 5 times as large."""
    without, with_it = (median(records, arm, "largest gradient, in medians") for arm in ("no-apart", "short-flow"))
    return outcome(f"{without / with_it:.1f} times", without >= 5 * with_it)


def voice_power(records: Records) -> Outcome:
    """Without the loss on spectra the power is 3 dB off."""
    louder = median(records, "no-spectra", "decibels louder")
    return outcome(f"{louder:+.1f} dB", abs(louder) >= 3)


# A loop of one's own


def plain_loop(records: Records) -> Outcome:
    """Nine tenths of the speed of `ernie finetune`."""
    _, ratios = turns_beside_first(records, "finetune-sst2.json")["`ernie.AdamW`"]
    ratio = statistics.median(ratios)
    return outcome(f"{ratio:.2f}", ratio >= 0.9)


def adapting(records: Records) -> Outcome:
    """LoRA of query and value is 1.3 times as fast as full fine-tuning."""
    _, ratios = turns_beside_first(records, "sst2.json")["LoRA, `query` and `value`"]
    ratio = statistics.median(ratios)
    return outcome(f"{ratio:.2f} times", ratio >= 1.3)


def multiplied(records: Records) -> Outcome:
    """The lowest ratio of the speed of a product to that of Paddle's."""
    found = read_record(records.file("products.json"))["GFLOP/s"]
    ratios = [product_ratio(sides["ours"], sides["Paddle"]) for kinds in found.values() for sides in kinds.values()]
    return outcome(f"{min(ratios):.2f} to {max(ratios):.2f}", min(ratios) >= 0.9)


# Training recipes


def recipe_mean(records: Records, case: str, arm: str) -> float:
    """The mean score of an arm over the seeds, by its first metric."""
    return statistics.mean(next(iter(record["scores"].values())) for record in (records / case).of(slug(arm)))


def recipe_gain(records: Records, case: str, arms: Sequence[str], plain: Sequence[str], least: float) -> Outcome:
    """The best of some arms is so many points above the best of others, or not so many below."""
    gains = {arm: recipe_mean(records, case, arm) - max(recipe_mean(records, case, of) for of in plain) for arm in arms}
    best = max(gains, key=lambda arm: gains[arm])
    named = f" ({best})" if len(arms) > 1 else ""
    return outcome(f"{100 * gains[best]:+.1f} points{named}", 100 * gains[best] >= least)


def recipe_adapted(records: Records, case: str, arm: str = "LoRA") -> Outcome:
    """LoRA loses at most a point, with under 5 % of the weights."""
    gain = recipe_gain(records, case, [arm], ["plain"], -1)
    share = (records / case).of(slug(arm))[0]["weights trained"]
    return outcome(f"{gain.figure}; {percent(share)} of the weights", gain.verdict == "met", share < 0.05)


def vectors(records: Records, name: str) -> Outcome:
    """The score is lower by at most the larger spread; training and encoding are 3 times as fast."""
    sides = [(records / name).of(side) for side in VECTOR_SIDES]
    ours, theirs = ([record["score"] for record in side] for side in sides)
    gain = statistics.mean(ours) - statistics.mean(theirs)
    spread = max(max(scores) - min(scores) for scores in (ours, theirs))
    training, encoding = map(statistics.median, vector_speeds(records / name) or [[0.0], [0.0]])
    figure = f"{100 * gain:+.1f} points; {training:.1f} and {encoding:.1f} times as fast"
    return outcome(figure, gain >= -spread, training >= 3, encoding >= 3)


def drilled(records: Records) -> Outcome:
    """All runs end with the same bytes, or with a sentence where a file was corrupted."""
    outcomes = [record["outcome"] for record in drill_records(records)]
    kept = sum(each in ("resumed", "told") for each in outcomes)
    return outcome(f"{kept} of {len(outcomes)}", kept == len(outcomes))


def digits_left_out(records: Records) -> Outcome:
    """The recognizer that is best by two speakers with seed 0 has at most 20 % in the mean of all six."""
    tried = {
        arm: [left_out(records, arm).get(speaker, [])[:1] for speaker in ("george", "nicolas")] for arm in REMEDIES
    }
    errors = {arm: statistics.mean(seed["test"] for [seed] in both) for arm, both in tried.items() if all(both)}
    best = min(errors, key=errors.__getitem__, default="chunks")
    speakers = left_out(records, best)
    if len(speakers) < len(SPEAKERS) or best == "chunks":
        raise MissingRecord(f"{records.folder}: not all speakers were left out of '{best}'")
    mean = mean_left_out(speakers)
    return outcome(f"{percent(mean)} of words wrong", mean <= 0.2)


def waits_less(records: Records) -> Outcome:
    """The best adaptive policy of all arms is at most 1 BLEU below whole sentences and lags at most 3.1 tokens.

    Over the seeds that both have, at least three: the seeds of an arm differ by more than that.
    """
    whole = records.by_seed("whole")
    arms = {arm: records.by_seed(arm) for arm, _, _ in records.arms(LEARNERS)}
    arms = {arm: {n: own for n, own in seeds.items() if n in whole} for arm, seeds in arms.items()}
    arms = {arm: seeds for arm, seeds in arms.items() if len(seeds) >= 3}
    if not arms:
        raise MissingRecord(f"{records.folder}: no arm has three seeds")

    def bleu(seeds: Iterable[Mapping[str, Any]], split: str, name: str) -> list[float]:
        return [100 * seed[split][name]["bleu"] for seed in seeds]

    chosen = {arm: chosen_policy(list(seeds.values()), adaptive=True) for arm, seeds in arms.items()}
    policies = {arm: name for arm, name in chosen.items() if name is not None}
    if not policies:
        return outcome("all lag more than 3 tokens", False)
    best = max(policies, key=lambda arm: statistics.mean(bleu(arms[arm].values(), "dev", policies[arm])))
    ours = bleu(arms[best].values(), "test", policies[best])
    gains = [a - b for a, b in zip(ours, bleu((whole[n] for n in arms[best]), "test", "whole"), strict=True)]
    lags = [seed["test"][policies[best]]["latency"] for seed in arms[best].values()]
    lag, adaptive = (statistics.mean(each[name] for each in lags) for name in LAGGING)
    gain = statistics.mean(gains)
    by_seed = ", ".join(f"{each:+.1f}" for each in gains)
    return outcome(f"{gain:+.1f} ({by_seed}) at AL {lag:.1f}, LAAL {adaptive:.1f}", gain >= -1 and lag <= 3.1)


def corpus_tool(records: Records, case: str) -> Outcome:
    """Cleaning is twice as fast as the best of the others; neither it nor the whole command has 1 GB of memory."""
    sides = {side: turns for side, _, turns in (records / case).arms(CLEANING_SIDES)}
    seconds = {side: statistics.median(turn["seconds"] for turn in turns) for side, turns in sides.items()}
    others = {side: each for side, each in seconds.items() if side not in ("ours", "build")}
    if "ours" not in seconds or not others:
        raise MissingRecord(f"{records.folder}: there are not two sides of '{case}'")
    best = min(others, key=lambda side: others[side])
    memory = max(turn["resident MB"] for side in ("ours", "build") for turn in sides.get(side, ()))
    faster = others[best] / seconds["ours"]
    return outcome(f"{faster:.1f} times ({best}); {memory / 1000:.2f} GB", faster >= 2, memory < 1000)


def planted_duplicates(records: Records) -> Outcome:
    """A recall of at least 95 % of near duplicates, a precision of at least 99 %, over all seeds."""
    seeds = records.of("planted")
    cells = [cell for record in seeds for cell in record["cells"]]
    recall = sum(cell["similar and dropped"] for cell in cells) / sum(cell["similar"] for cell in cells)
    precision = 1 - sum(record["wrong"] for record in seeds) / sum(record["dropped"] for record in seeds)
    return outcome(f"{percent(recall)}; {percent(precision)}", recall >= 0.95, precision >= 0.99)


def tiny_documents(records: Records) -> Outcome:
    """No build of ten million documents has more than 1 GB of resident memory."""
    most = max(records.of(build)[0]["resident MB"] for build in TINY)
    return outcome(f"{most / 1000:.2f} GB", most <= 1000)


def cleaned(records: Records) -> Outcome:
    """With cleaning a loss lower by at least 0.05, and a mean of dev scores higher by at least half a point."""
    dirty, clean = (records.of(arm) for arm in ("dirty", "cleaned"))
    losses = [statistics.mean(seed["hidden words"]["loss"] for seed in seeds) for seeds in (dirty, clean)]
    before, after = (
        statistics.mean(statistics.mean(seed[TUNED].values()) for seed in seeds) for seeds in (dirty, clean)
    )
    figure = f"{losses[1] - losses[0]:+.2f}; {100 * (after - before):+.1f} points"
    return outcome(figure, losses[0] - losses[1] >= 0.05, after - before >= 0.005)


def searched(records: Records) -> Outcome:
    """No target: nDCG@10 by words, by vectors, and by both."""
    found = read_record(records.file("cranfield.json"))
    return Outcome(", ".join(f"{found[way]['ndcg_at_10']:.3f}" for way in ("bm25", "dense", "hybrid")), "")


OTHERS = [task for task in TASK_NAMES if task != MASKED]
REGULARIZED, PLAIN = ("R-Drop", "FGM"), ("plain", "plain, 6 epochs")
WHOLE, EARLY = ("full", "full"), ("full", "full, early 1")
# By name: the folder of records, and what is made of it.
# Inference


def stream_caches(records: Records, part: str, least: float) -> Outcome:
    """How many times as fast a part of a step is, at least, and how many times fewer bytes the cache writes."""
    sides = [(of["before"], of["after"]) for arm in ("3-layers-of-256", "6-layers-of-512") for of in records.of(arm)]
    speeds = [before[part] / after[part] for before, after in sides]
    shown = " and ".join(f"{speed:.1f}" for speed in speeds) + " times as fast"
    if part != "cache":
        return outcome(shown, min(speeds) >= least)
    fewer = min(before["cache bytes"] / after["cache bytes"] for before, after in sides)
    return outcome(f"{shown}; {fewer:.0f} times fewer bytes", min(speeds) >= least, fewer >= 10)


# Serving


def serving_overhead(records: Records) -> Outcome:
    """0.3 ms of processor time a request."""
    spent = statistics.median(turn["ms"] for turn in serving(records, "overhead")["turns"])
    return outcome(f"{spent:.2f} ms", spent <= 0.3)


def serving_saturated(records: Records) -> Outcome:
    """95 % of the offline packed batch."""
    part = statistics.median(parts_served(serving(records, "saturated")))
    return outcome(percent(part), part >= 0.95)


def serving_rate(records: Records, arm: str, least: float) -> Outcome:
    """So many times the requests/s of the best other side."""
    rates = serving(records, arm)["rates"]
    others = {side: rate for side, rate in rates.items() if side != "ours"}
    if not others:
        raise MissingRecord(f"no other side of {arm} was measured")
    best = max(others, key=lambda side: others[side])
    if not others[best]:
        return outcome(f"{rates['ours']:.0f} requests/s, others at no rate that was tried", rates["ours"] > 0)
    times = rates["ours"] / others[best]
    return outcome(f"{times:.1f} times ({rates['ours']:.0f} and {others[best]:.0f}, {SIDES[best]})", times >= least)


def serving_optimum(records: Records) -> Outcome:
    """A p99 of at most 1.15 times the simulated optimum at half and at 80 % of the capacity."""
    loads = by_load(serving(records, "optimum"))
    times = [beyond_ideal(loads[share, 1]) for share in (0.5, 0.8)]
    return outcome(" and ".join(f"{each:.2f}" for each in times) + " times", *(each <= 1.15 for each in times))


def serving_overload(records: Records) -> Outcome:
    """Goodput 95 %, 98 % of the admitted in time, refusals within 5 ms, memory +5 %, normal again within 2 s."""
    turns = serving(records, "overload")["turns"]
    keys = ("goodput", "admitted in time", "p99 of refusals", "memory", "normal again")
    goodput, admitted, refusals, memory, again = (statistics.median(turn[key] or 0 for turn in turns) for key in keys)
    shown = f"{percent(goodput)}; {percent(admitted)}; {refusals:.1f} ms (p99); {memory:+.1%}; {again:.1f} s"
    return outcome(shown, goodput >= 0.95, admitted >= 0.98, refusals <= 5, memory <= 0.05, again <= 2)


def serving_recognition(records: Records) -> Outcome:
    """200 sessions, and 4 times as many as one by one."""
    sides = serving(records, "recognition")["sides"]
    together, alone = (sides[side]["most"] for side in ("together", "one by one"))
    times = together / max(1, alone)
    return outcome(f"{together}; {times:.1f} times as many as one by one ({alone})", together >= 200, times >= 4)


def serving_translation(records: Records) -> Outcome:
    """6 times the tokens/s, the same bits."""
    turns = serving(records, "translation")["turns"]
    speeds = [turn["tokens/s"] for turn in turns]
    times = statistics.median(each["together"] / each["one after another"] for each in speeds)
    same = all(turn["same"] for turn in turns)
    return outcome(f"{times:.1f} times; {'the same' if same else 'other bits'}", times >= 6, same)


def serving_voices(records: Records) -> Outcome:
    """18 voices in real time, the first sound of 8 within 150 ms."""
    record = serving(records, "voices")
    first = record["first at 8"]["p95"]
    return outcome(f"{record['most']}; {first:.0f} ms", record["most"] >= 18, first <= 150)


def serving_interpreter(records: Records) -> Outcome:
    """The p95 of the first word within a chunk and 150 ms, and that of the first sound within 1 s, for everybody."""
    record = serving(records, "interpreter")
    word, sound = record["first word"]["p95"], record["first sound"]["p95"]
    every = record["problems"] == 0
    return outcome(f"{word:.0f} ms; {sound:.0f} ms", every and word <= record["chunk"] + 150, every and sound <= 1000)


def serving_cancels(records: Records) -> Outcome:
    """Nothing left, memory +1 %."""
    record = serving(records, "cancels")
    left = sum(record["left"].values())
    return outcome(f"{left:.0f} left; memory {record['memory']:+.1%}", left == 0, record["memory"] <= 0.01)


def serving_reloads(records: Records) -> Outcome:
    """No failed request."""
    record = serving(records, "reloads")
    counts = [failures(record[part]) for part in ("hot", "rolling") if part in record]
    requests, failed = (sum(column) for column in zip(*counts, strict=True))
    return outcome(f"{failed} of {requests:,} requests failed", failed == 0)


def serving_heartbeat(records: Records) -> Outcome:
    """No gap above 10 ms."""
    found = [record for _, _, (record, *_) in records.arms({arm: arm for arm in SERVING_ARMS})]
    gaps = [1000 * record["largest gap"] for record in found if record["largest gap"] is not None]
    if not gaps:
        raise MissingRecord("no arm was measured")
    return outcome(f"{max(gaps):.1f} ms", max(gaps) <= 10)


def replaying(records: Records) -> Outcome:
    """All planted faults are named."""
    found = [each for kind in ("weight", "document", "gradient", "kernel") for each in records.of(kind)]
    named = sum(each["named"] for each in found)
    return outcome(f"{named} of {len(found)}", named == len(found) == 20)


OUTCOMES: dict[str, tuple[str, Callable[[Records], Outcome]]] = {
    "hour-beside-transformers": ("quality/minutes-60", hour_beside_transformers),
    "hour-beside-masked-words": ("quality/minutes-60", hour_beside_masked_words),
    # As was predicted:
    "night-mini-1": ("night", partial(night, size="mini", hours=1, mean=60.5, sst2=81)),
    "night-mini-1-at-one-point": ("night", partial(night, size="mini", hours=1, mean=60, sst2=80.5, points=AT_POINT)),
    "night-mini": ("night", partial(night, size="mini", hours=4, mean=65, sst2=84)),
    "night-small": ("night", partial(night, size="small", hours=12, mean=68)),
    "forgetting": ("evidence/ablation-800", forgetting),
    "forgetting-downstream": ("evidence/ablation-800", forgetting_downstream),
    "each-task": ("evidence/tasks-1600-moments-each_task", partial(each_task, tasks=OTHERS)),
    "each-task-longer": ("evidence/tasks-6400-moments-each_task", partial(each_task, tasks=OTHERS[2:5])),
    "masking": ("masking/steps-4000", masking),
    "scaling": ("ladder", scaling),
    "stream-caches": ("stream-caches", partial(stream_caches, part="cache", least=4)),
    "stream-caches-step": ("stream-caches", partial(stream_caches, part="step", least=4)),
    "translation-whole": ("translation/epochs-10", translation_whole),
    "translation-wait-1": (
        "translation/epochs-10",
        partial(translation_gain, least=1.5, arms=(("wait-1", "wait-1"), EARLY)),
    ),
    "translation-lag": ("translation/epochs-10", translation_lag),
    "translation-one-way": (
        "translation/epochs-10",
        partial(translation_gain, least=1.5, arms=(("wait-1", "wait-1"), ("one-way", "one-way, early 1"))),
    ),
    "translation-wait-9": (
        "translation/epochs-10",
        partial(translation_gain, least=-2, arms=(("wait-9", "wait-9"), WHOLE)),
    ),
    "translation-pretrained": (
        "translation/epochs-10",
        partial(translation_gain, least=0, arms=(("full-encoder-pretrained", "full, encoder pretrained"), WHOLE)),
    ),
    "translation-catching-up": ("translation/epochs-10", translation_catching_up),
    "digits": ("recognition/all-epochs-20", digits),
    "digits-attention": ("recognition/all-epochs-20", digits_attention),
    "digits-deaf": ("recognition/all-epochs-20", digits_deaf),
    "digits-beam": (
        "recognition/all-epochs-20",
        partial(no_more_errors, one=("chunks", "test, with a beam"), other=("chunks", "test")),
    ),
    "digits-attention-beam": (
        "recognition/all-epochs-20",
        partial(no_more_errors, one=("attention", "test, with a beam"), other=("attention", "test")),
    ),
    "digits-abstractions": (
        "recognition/all-epochs-20",
        partial(no_more_errors, one=("abstractions", "test"), other=("attention", "test")),
    ),
    "digits-global": ("recognition/all-epochs-40", digits_global),
    "digits-left-out": ("recognition", digits_left_out),
    "offsets": (
        "disturbed/all-epochs-20",
        partial(disturbance, base="test", others=[f"offset {offset}" for offset in OFFSETS]),
    ),
    "silences": (
        "disturbed/all-epochs-20",
        partial(disturbance, base="some", others=[f"after {seconds} s of {sound}" for seconds, sound in SILENCES]),
    ),
    "silent": ("disturbed/all-epochs-20", silent),
    "prompts": ("prompts/epochs-60", prompts),
    "prompts-sentences": ("prompts/epochs-60", prompts_sentences),
    "prompts-remedies": ("prompts/epochs-120", prompts_remedies),
    "speech-translation": ("speech-translation/epochs-4-chunks-0", speech_translation),
    "voice": ("synthesis/epochs-24-8", voice),
    "voice-likelihood": ("synthesis/epochs-24-8", voice_likelihood),
    "flow": ("synthesis/epochs-24-8", partial(flow, arm="flow")),
    "middle-flow": ("synthesis/epochs-24-8", partial(flow, arm="middle-flow")),
    "short-flow": ("synthesis/epochs-24-8", partial(flow, arm="short-flow")),
    "voice-longer": ("synthesis/strings-100-epochs-24-8", voice_longer),
    "voice-windows": ("synthesis/strings-100-epochs-24-8", voice_windows),
    "voice-pulses": ("synthesis/strings-100-epochs-24-8", voice_pulses),
    "voice-together": ("synthesis/strings-100-epochs-24-8", voice_together),
    "voice-gradients": ("synthesis/epochs-24-8", voice_gradients),
    "voice-power": ("synthesis/epochs-24-8", voice_power),
    "plain-loop": ("plain-loop", plain_loop),
    "searching": ("searching", searched),
    "adapting": ("adapting", adapting),
    **{f"corpus-tools-{case}": ("corpus-tools", partial(corpus_tool, case=case)) for case in CLEANING_CASES},
    "planted-duplicates": ("planted-duplicates", planted_duplicates),
    "tiny-documents": ("tiny-documents/documents-10000000", tiny_documents),
    "waiting-less": ("waiting/epochs-10", waits_less),
    "cleaning": ("cleaning/minutes-20", cleaned),
    "products": ("products", multiplied),
    "vectors-stsb": ("sentence-vectors", partial(vectors, name="stsb")),
    "vectors-cranfield": ("sentence-vectors", partial(vectors, name="cranfield")),
    "drills": ("drills", drilled),
    "recipes-skewed": ("recipes", partial(recipe_gain, case="skewed", arms=["balanced"], plain=["plain"], least=3)),
    "recipes-rte": ("recipes", partial(recipe_gain, case="rte", arms=REGULARIZED, plain=PLAIN, least=1)),
    "recipes-mrpc": ("recipes", partial(recipe_gain, case="mrpc", arms=REGULARIZED, plain=PLAIN, least=1)),
    "recipes-small": (
        "recipes",
        partial(recipe_gain, case="small", arms=["3 layers taught"], plain=["6 layers"], least=-1),
    ),
    "recipes-long": ("recipes", partial(recipe_gain, case="long", arms=["windows"], plain=["cut"], least=1)),
    "recipes-sst2-lora": ("recipes", partial(recipe_adapted, case="sst2")),
    "recipes-sst2-lora-outer": ("recipes", partial(recipe_adapted, case="sst2", arm="LoRA, with outer")),
    "recipes-mrpc-lora": ("recipes", partial(recipe_adapted, case="mrpc")),
    "serving-overhead": ("serving", serving_overhead),
    "serving-saturated": ("serving", serving_saturated),
    "serving-classify": ("serving", partial(serving_rate, arm="classify", least=2)),
    "serving-embed": ("serving", partial(serving_rate, arm="embed", least=5)),
    "serving-optimum": ("serving", serving_optimum),
    "serving-overload": ("serving", serving_overload),
    "serving-recognition": ("serving", serving_recognition),
    "serving-translation": ("serving", serving_translation),
    "serving-voices": ("serving", serving_voices),
    "serving-interpreter": ("serving", serving_interpreter),
    "replaying": ("replaying", replaying),
    "serving-cancels": ("serving", serving_cancels),
    "serving-reloads": ("serving", serving_reloads),
    "serving-heartbeat": ("serving", serving_heartbeat),
}
