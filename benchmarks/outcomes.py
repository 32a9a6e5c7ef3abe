"""What came out of each target that was set before an experiment: the figure, and whether it is met.

Each function makes two cells of a line of RESULTS.md, whose other cells say what is measured and what was set.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cells import listed, percent
from page_tables import (
    EACH,
    HOUR,
    MASKED,
    OFFSETS,
    SCHEDULES,
    SILENCES,
    TASK_NAMES,
    TUNED,
    disturbed,
    end_of_hour,
    forgotten,
    translation_points,
    voices,
)
from record_files import Records

from pretrain.scaling.answer import curve
from pretrain.scaling.points import read_table

WORD_SECONDS = 0.68  # how long a word of speech_translation.py takes, which prints it


def outcome(figure: str, *holds: bool) -> str:
    """A figure, and whether each of its targets is met."""
    words = ["met" if each else "missed" for each in holds]
    return f"{figure} | {'; '.join(words if len(set(words)) > 1 else words[:1])}"


def standard_error(*samples: Sequence[float]) -> float:
    """The standard error of the difference of the means of samples that are independent of each other."""
    return math.sqrt(sum(statistics.variance(sample) / len(sample) for sample in samples))


def means_of_hour(records: Records) -> dict[str, list[float]]:
    """The mean of five dev scores at the end of the hour, by arm and seed."""
    return {arm: [statistics.mean(seed[TUNED]) for seed in end_of_hour(records, arm)] for arm in HOUR}


def hour_beside_transformers(records: Records) -> str:
    """Transformers' final score within 20 minutes, and a higher one at the end."""
    means = means_of_hour(records)
    ours, theirs = (statistics.mean(means[arm]) for arm in ("continual-moments", "transformers-2e-4"))
    (third,) = (records / "quality" / "minutes-60" / "2-of-6").of("continual-moments")
    soon = statistics.mean(third[TUNED])
    figure = f"{percent(soon)} after 20 minutes (seed 0); {100 * ours:.1f} vs {percent(theirs)}"
    return outcome(figure, soon >= theirs, ours > theirs)


def hour_beside_masked_words(records: Records) -> str:
    """A mean higher by more than its standard error, a loss at most 0.1 higher."""
    means = [means_of_hour(records)[arm] for arm in ("continual-moments", "masked-beta2")]
    losses = [
        statistics.mean(seed["hidden words"]["loss"] for seed in end_of_hour(records, arm))
        for arm in ("continual-moments", "masked-beta2")
    ]
    (ours, alone), error, more = map(statistics.mean, means), standard_error(*means), losses[0] - losses[1]
    figure = f"{100 * ours:.1f} vs {percent(alone)} (standard error {100 * error:.1f}); {more:.2f} higher"
    return outcome(figure, ours - alone > error, more <= 0.1)


def forgetting(records: Records) -> str:
    """Sequential learning loses at least 15 % of its first accuracy, continual learning at most 5 % of its best."""
    sequential, continual = (
        statistics.median(forgotten(seed, MASKED, arm) for seed in (records / "evidence" / "ablation-800").of(arm))
        for arm in ("sequential", "continual")
    )
    return outcome(f"{percent(sequential)}; {percent(continual)}", sequential >= 0.15, continual <= 0.05)


def forgetting_downstream(records: Records) -> str:
    """Means in the order sequential, joint, continual."""
    folder = records / "evidence" / "ablation-800"
    means = [statistics.mean(statistics.mean(seed[TUNED]) for seed in folder.of(arm)) for arm in SCHEDULES]
    return outcome(listed(means), means == sorted(means))


def each_task(records: Records) -> str:
    """Each task above both baselines on every seed."""
    return tasks_above(records / "evidence" / EACH, [task for task in TASK_NAMES if task != MASKED])


def each_task_longer(records: Records) -> str:
    """The same with four times the steps."""
    tasks = ["sentence_reordering", "sentence_distance", "discourse_relation"]
    return tasks_above(records / "evidence" / "tasks-6400-moments-each_task", tasks)


def tasks_above(records: Records, tasks: Sequence[str]) -> str:
    """How many tasks have their interval above both baselines on how many seeds."""
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


def masking(records: Records) -> str:
    """A higher mean with words, phrases and entities."""
    means = [
        [statistics.mean(seed[TUNED].values()) for seed in (records / "masking" / "steps-4000").of(arm)]
        for arm in ("words", "characters")
    ]
    words, characters = map(statistics.mean, means)
    error = 100 * standard_error(*means)
    return outcome(f"{100 * words:.1f} vs {percent(characters)} (standard error {error:.1f})", words > characters)


def scaling(records: Records) -> str:
    """The error with the most text predicted within 3 %, seed by seed."""
    file = (records / "ladder").file("points.tsv")
    with file.open(encoding="utf-8", newline="") as lines:
        seeds = [row["seed"] for row in csv.DictReader(lines, delimiter="\t")]
    points = list(zip(seeds, read_table(file), strict=True))
    off = [abs(curve([point for seed, point in points if seed == each]).missed) for each in sorted(set(seeds))]
    return outcome(f"{100 * min(off):.1f} to {percent(max(off))} off", max(off) <= 0.03)


def mean_bleu(records: Records, arm: str, point: str) -> float:
    """The mean BLEU of the seeds."""
    return 100 * statistics.mean(each["bleu"] for each in translation_points(records, arm, point))


def translation_whole(records: Records) -> str:
    """Whole sentences reach 35 BLEU."""
    score = mean_bleu(records, "full", "full")
    return outcome(f"{score:.1f}", score >= 35)


def translation_wait_1(records: Records) -> str:
    """Training to wait for one token gains 1.5 BLEU over waiting only at test time."""
    gain = mean_bleu(records, "wait-1", "wait-1") - mean_bleu(records, "full", "full, early 1")
    return outcome(f"{gain:+.1f}", gain >= 1.5)


def translation_wait_9(records: Records) -> str:
    """Waiting for nine tokens costs at most 2 BLEU."""
    gain = mean_bleu(records, "wait-9", "wait-9") - mean_bleu(records, "full", "full")
    return outcome(f"{gain:+.1f}", gain >= -2)


def translation_pretrained(records: Records) -> str:
    """A pretrained encoder is better."""
    knows, not_yet = (
        mean_bleu(records, "full-encoder-pretrained", "full, encoder pretrained"),
        mean_bleu(records, "full", "full"),
    )
    return outcome(f"{knows:.1f} vs {not_yet:.1f}", knows > not_yet)


def translation_catching_up(records: Records) -> str:
    """Catching up brings AL nearer to 3."""
    arms = {"cs-fr-wait-3-catching-up": "cs-fr, wait-3, catching up", "cs-fr-wait-3": "cs-fr, wait-3"}
    lags = [translation_points(records, *names)[0]["lag"] for names in arms.items()]
    return outcome(f"{lags[0]:.1f} vs {lags[1]:.1f}", abs(lags[0] - 3) < abs(lags[1] - 3))


def digit_errors(records: Records, arm: str, split: str, epochs: int = 20) -> float:
    """The median word error rate of an arm."""
    return statistics.median(seed[split] for seed in (records / "recognition" / f"all-epochs-{epochs}").of(arm))


def digits(records: Records) -> str:
    """CTC has at most 10 % errors on short strings."""
    wrong = digit_errors(records, "chunks", "test")
    return outcome(percent(wrong), wrong <= 0.1)


def digits_attention(records: Records) -> str:
    """Attention makes no more errors than CTC, on long strings at most 1.5 times as many as on short ones."""
    ctc, short, long = (
        digit_errors(records, *which) for which in (("chunks", "test"), ("attention", "test"), ("attention", "long"))
    )
    return outcome(f"{100 * short:.1f} vs {percent(ctc)}; {long / short:.1f} times", short <= ctc, long / short <= 1.5)


def digits_global(records: Records) -> str:
    """Global attention makes at least 3 times as many errors on long strings as on short ones."""
    times = digit_errors(records, "global", "long", 40) / digit_errors(records, "global", "test", 40)
    return outcome(f"{times:.1f} times", times >= 3)


def offsets(records: Records) -> str:
    """With an offset at most half a point more is wrong."""
    return disturbance(records, "test", [f"offset {offset}" for offset in OFFSETS])


def silences(records: Records) -> str:
    """After silence at most half a point more is wrong."""
    return disturbance(records, "some", [f"after {seconds} s of {sound}" for seconds, sound in SILENCES])


def disturbance(records: Records, base: str, others: Sequence[str]) -> str:
    """How many points more are wrong at worst, with global and with streaming statistics."""
    seeds = [disturbed(records, arm) for arm in ("chunks", "streaming")]
    more = [max(seed[f"{base}, {other}"] for other in others) - seed[base] for seed in seeds]
    return outcome("; ".join(f"{100 * each:+.1f} points" for each in more), *(each <= 0.005 for each in more))


def prompts(records: Records) -> str:
    """A language model corrects a fifth of the wrong words."""
    seeds = (records / "prompts" / "epochs-60").of("fresh")
    fewer = statistics.median(1 - seed["language model"]["wer"] / seed["likeliest letters"]["wer"] for seed in seeds)
    return outcome(f"{100 * fewer:.0f} %", fewer >= 0.2)


def prompts_sentences(records: Records) -> str:
    """Sentences in another voice, before or too, correct a tenth of the wrong letters."""
    wrong = [
        statistics.median(seed["likeliest letters"]["cer"] for seed in (records / "prompts" / "epochs-60").of(arm))
        for arm in ("fresh", "sentences-first", "sentences-too")
    ]
    more = [each / wrong[0] - 1 for each in wrong[1:]]
    return outcome("; ".join(f"{100 * each:+.0f} %" for each in more), *(each <= -0.1 for each in more))


def speech_translation(records: Records) -> str:
    """At most 1 % more errors than the transcripts have; a lag of k words, give or take a fifth of a word."""
    chain = (records / "speech-translation" / "epochs-4-chunks-0").by_seed("wait")
    alone = chain.pop(0)
    worse = max(each["word error rate"] for each in chain.values()) - alone["word error rate"]
    lags = {k: (each["lag"] - alone["lag"]) / WORD_SECONDS for k, each in chain.items()}
    figure = f"{percent(worse)}; {', '.join(f'{each:.1f}' for each in lags.values())} words"
    return outcome(figure, worse <= 0.01, all(abs(each - k) <= 0.2 for k, each in lags.items()))


def voice(records: Records) -> str:
    """At most 20 % of the digits are not understood."""
    wrong = voices(records)["wavenet"]["not understood"]["spoken"]
    return outcome(percent(wrong), wrong <= 0.2)


def voice_likelihood(records: Records) -> str:
    """Samples are 0.2 nats likelier than by linear prediction."""
    seed = voices(records)["wavenet"]
    better = seed["nats by linear prediction"] - seed["nats a sample"]
    return outcome(f"{better:.1f}", better >= 0.2)


def flow(arm: str) -> Callable[[Records], str]:
    """Of a flow: spectra at most 1.3 times as far as the WaveNet's, at most 20 % not understood."""

    def made(records: Records) -> str:
        seeds = voices(records)
        farther = seeds[arm]["distance of spectra"] / seeds["wavenet"]["distance of spectra"]
        wrong = seeds[arm]["not understood"]["spoken"]
        return outcome(f"{farther:.2f} times; {percent(wrong)}", farther <= 1.3, wrong <= 0.2)

    return made


OUTCOMES: dict[str, Callable[[Records], str]] = {
    "hour-beside-transformers": hour_beside_transformers,
    "hour-beside-masked-words": hour_beside_masked_words,
    "forgetting": forgetting,
    "forgetting-downstream": forgetting_downstream,
    "each-task": each_task,
    "each-task-longer": each_task_longer,
    "masking": masking,
    "scaling": scaling,
    "translation-whole": translation_whole,
    "translation-wait-1": translation_wait_1,
    "translation-wait-9": translation_wait_9,
    "translation-pretrained": translation_pretrained,
    "translation-catching-up": translation_catching_up,
    "digits": digits,
    "digits-attention": digits_attention,
    "digits-global": digits_global,
    "offsets": offsets,
    "silences": silences,
    "prompts": prompts,
    "prompts-sentences": prompts_sentences,
    "speech-translation": speech_translation,
    "voice": voice,
    "voice-likelihood": voice_likelihood,
    "flow": flow("flow"),
    "middle-flow": flow("middle-flow"),
    "short-flow": flow("short-flow"),
}
