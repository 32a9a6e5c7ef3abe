"""The tables of benchmarks/results/*.md, each made from records; TABLES has them by name."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cells import Rows, decimals, interval, listed, percent, spread
from record_files import Records, read_record, slug

from pretrain.scaling.answer import Curve, curve
from pretrain.scaling.points import read_table

# Keys of dev scores: of the recipe of evidence.py, and of the one before it.
TUNED, EARLIER = "fine-tuned with dropout", "downstream"
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
DIGITS = ("2 to 5 digits", "8 to 12 digits")


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
        "neighbours-and-likeness": "the default: those two heads, and one initialized to attend to equal tokens",
        "beta2-0.999": "the default, AdamW's beta2 0.999 instead of 0.98",
        "beta2-0.9999": "the default, beta2 0.9999",
    }
    rows = [["", "held-out loss", "masked-token accuracy", "std. dev. after the last layer"]]
    for arm, label in labels.items():
        seeds = (records / "plateau" / "steps-3000").of(arm)
        last = [seed["deviations"][-1] for seed in seeds]
        cells = [listed([seed["loss"] for seed in seeds], decimals(3)), listed([seed["right"] for seed in seeds])]
        rows.append([label, *cells, listed(last, lambda value: f"{value:.2f}" if value > 0.01 else f"{value:.5f}")])
    return rows


def comparing(records: Records) -> Rows:
    """What a head for equal tokens brings."""
    rows = [["initialization", "steps", *GLUE, "mean"]]
    head = "with a head that attends to equal tokens"
    for arm, label, steps in (
        ("by-chance", "random", 0),
        ("neighbours-and-likeness", head, 0),
        ("neighbours-and-likeness", head, 3000),
    ):
        for seed in (records / "comparing" / f"steps-{steps}").of(arm):
            rows.append([label, f"{steps:,}", *dev_scores(seed[TUNED])])
    return rows


def dev_scores(scores: Sequence[float]) -> list[str]:
    """Dev scores and their mean."""
    return [percent(score) for score in (*scores, statistics.mean(scores))]


SCHEDULES = ("sequential", "joint", "continual")


def forgetting(records: Records) -> Rows:
    """What three schedules learn, over the seeds."""
    tasks = (MASKED, "capitalization", "token_document", "sentence_reordering")
    names = ("masked tokens", "capitalization (F1)", "token-document (macro F1)", "sentence reordering")
    rows = [["schedule", *names, "masked tokens forgotten", "downstream mean"]]
    for schedule in SCHEDULES:
        seeds = (records / "evidence" / "ablation-800").of(schedule)
        ends = [spread([seed["measured"][task][-1]["value"] for seed in seeds]) for task in tasks]
        lost = "" if schedule == "joint" else spread([forgotten(seed, MASKED, schedule) for seed in seeds])
        rows.append([schedule, *ends, lost, spread([statistics.mean(seed[TUNED]) for seed in seeds])])
    return rows


def forgetting_by_seed(records: Records) -> Rows:
    """The same seed by seed: what was forgotten, and the means of the dev scores."""
    rows = [["schedule", "masked tokens forgotten", "capitalization forgotten", "downstream mean", "mean of the seeds"]]
    for schedule in SCHEDULES:
        seeds = (records / "evidence" / "ablation-800").of(schedule)
        lost = [
            "" if schedule == "joint" else listed([forgotten(seed, task, schedule) for seed in seeds])
            for task in (MASKED, "capitalization")
        ]
        means = [statistics.mean(seed[TUNED]) for seed in seeds]
        rows.append([schedule, *lost, listed(means), percent(statistics.mean(means))])
    return rows


def forgotten(seed: Mapping[str, Any], task: str, schedule: str) -> float:
    """The share of a score lost since its first stage (sequential), or since the best one."""
    values = [score["value"] for score in seed["measured"][task]]
    return 1 - values[-1] / (values[0] if schedule == "sequential" else max(values))


EACH = "tasks-1600-moments-each_task"


def each_task(records: Records) -> Rows:
    """Each task added to masked words."""
    header = ["added task", "metric", "held out (95 % interval over documents)", "majority", "token counts"]
    header += ["gain over token counts", "masked loss, task ids swapped", "masked tokens", "downstream mean"]
    rows = [header]
    for task, name in TASK_NAMES.items():
        seeds = (records / "evidence" / EACH).of(task)
        masked = listed([seed["measured"][MASKED][-1]["value"] for seed in seeds])
        own = [""] * 6
        if task != MASKED:
            scores = [seed["measured"][task][-1] for seed in seeds]
            gains = "; ".join(
                "{:+.1f} to {:+.1f}".format(*(100 * x for x in seed["beyond counting"])) for seed in seeds
            )
            swapped = listed([seed["task ids swapped"] for seed in seeds], lambda value: f"{100 * value:+.1f} %")
            own = [METRICS[scores[0]["name"]], "; ".join(map(interval, scores))]
            own += [
                listed([score["majority"] for score in scores]),
                listed([seed["counting tokens"] for seed in seeds]),
            ]
            own += [gains, swapped]
        rows.append([name, *own, masked, listed([statistics.mean(seed[TUNED]) for seed in seeds])])
    return rows


def gain(seed: Mapping[str, Any]) -> str:
    """The interval of a task's gain over counting tokens, in points."""
    low, high = (100 * value for value in seed["beyond counting"])
    return f"{low:+.1f} to {high:+.1f}"


def longer(records: Records) -> Rows:
    """Three tasks with four times the steps."""
    rows = [["added task", "metric", "held out (95 % interval)", "majority", "token counts", "gain over token counts"]]
    for task in ("sentence_distance", "sentence_reordering", "discourse_relation"):
        for seed in (records / "evidence" / "tasks-6400-moments-each_task").of(task):
            score = seed["measured"][task][-1]
            cells = [interval(score), percent(score["majority"]), percent(seed["counting tokens"])]
            rows.append([TASK_NAMES[task], METRICS[score["name"]], *cells, gain(seed)])
    return rows


def moments(records: Records) -> Rows:
    """Held-out scores with shared moments, moments for each task, and the task by itself; seed 0."""
    rows = [["held out", "moments shared", "moments for each task", "task alone"]]
    folders = [records / "evidence" / name for name in ("tasks-1600", EACH, "alone-1600")]
    for task in reversed(TASK_NAMES):
        if task != MASKED:
            scores = [folder.by_seed(task)[0]["measured"][task][-1]["value"] for folder in folders]
            rows.append([TASK_NAMES[task], *map(percent, scores)])
    return rows


def moments_masked(records: Records) -> Rows:
    """Masked words alone with shared moments, from the base of the table before."""
    seeds = (records / "evidence" / "tasks-1600").of(MASKED)
    rows = [["seed", "masked tokens", "downstream mean"]]
    for number, seed in enumerate(seeds):
        scores = seed.get(TUNED) or seed.get(EARLIER)
        mean = percent(statistics.mean(scores)) if scores else ""
        rows.append([str(number), interval(seed["measured"][MASKED][-1]), mean])
    return rows


# Time to quality

HOUR = {
    "masked-beta2": "masked words alone, beta2 0.999",
    "continual-moments": "continual, beta2 0.999, moments for each task",
    "transformers-2e-4": "transformers at 2e-4",
}
PARTS = 6  # of an hour


def paces(records: Records) -> Rows:
    """The seconds of a step."""
    names = {
        "continual": "continual multi-task learning",
        "masked": "knowledge masking only",
        "continual-moments": "continual, moments for each task, its own tasks",
        "masked-beta2": "knowledge masking only, beta2 0.999",
        "transformers": "transformers 5, PyTorch 2.15, fp32, compiled",
    }
    seconds = read_record((records / "quality").file("paces.json"))
    rows = [["", "seconds per step", "tokens/s"]]
    return rows + [[name, f"{seconds[arm]:.3f}", f"{1024 / seconds[arm]:,.0f}"] for arm, name in names.items()]


def hour(records: Records) -> Iterator[tuple[str, int, dict[int, dict[str, Any]]]]:
    """Yield arm, part and records by seed of the hour."""
    for arm in HOUR:
        for part in (2, 4, PARTS):
            yield arm, part, (records / "quality" / "minutes-60" / f"{part}-of-{PARTS}").by_seed(arm)


def quality(records: Records) -> Rows:
    """The hour with what the other experiments taught, seed by seed."""
    rows = [["pretrained with", "seed", "minutes", "hidden words, loss", "accuracy", *GLUE, "mean"]]
    found = [(arm, seed, record) for arm, _, by_seed in hour(records) for seed, record in by_seed.items()]
    for arm, label in HOUR.items():
        of_arm = sorted(
            ((seed, record) for name, seed, record in found if name == arm),
            key=lambda each: (each[0], each[1]["minutes"]),
        )
        for number, (seed, record) in enumerate(of_arm):
            hidden = record["hidden words"]
            cells = [str(seed), f"{record['minutes']:.0f}", f"{hidden['loss']:.2f}", percent(hidden["right"])]
            rows.append([label if not number else "", *cells, *dev_scores(record[TUNED])])
    return rows


def quality_means(records: Records) -> Rows:
    """The end of the hour, means over the seeds."""
    rows = [["pretrained with", "hidden words, loss", *GLUE, "mean (by seed)", "mean without STS-B"]]
    for arm, label in HOUR.items():
        seeds = end_of_hour(records, arm)
        tasks = [percent(statistics.mean(column)) for column in zip(*(seed[TUNED] for seed in seeds), strict=True)]
        by_seed = [statistics.mean(seed[TUNED]) for seed in seeds]
        single = statistics.mean(statistics.mean(seed[TUNED][:-1]) for seed in seeds)
        loss = statistics.mean(seed["hidden words"]["loss"] for seed in seeds)
        mean = f"{percent(statistics.mean(by_seed))} ({listed(by_seed).removesuffix(' %')})"
        rows.append([label, f"{loss:.2f}", *tasks, mean, percent(single)])
    return rows


def end_of_hour(records: Records, arm: str) -> list[dict[str, Any]]:
    """The records of an arm at the end of the hour."""
    return (records / "quality" / "minutes-60" / f"{PARTS}-of-{PARTS}").of(arm)


def quality_before(records: Records) -> Rows:
    """The first hours, fine-tuned by the recipe of then."""
    rows = [["pretrained with", "minutes", "hidden words, loss", "accuracy", *GLUE, "mean"]]
    root = records / "quality"
    hours = root / "minutes-60"
    original, beside = "continual, original initialization", "continual, with neighbors"
    series = [(original, [(root / "minutes-12" / f"{part}-of-3", "continual") for part in (1, 2, 3)])]
    series.append((original, [(root / "minutes-60-at-first", f"{part}-of-6-continual") for part in (2, 6)]))
    series.append((beside, [(root / "minutes-20" / f"{part}-of-2", "continual") for part in (1, 2)]))
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
    return curve(read_table((records / "ladder").file("points.tsv")))


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
    text = (records / "models").file(f"{language}.md").read_text(encoding="utf-8")
    lines = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if set("".join(row)) != {"-"}]


def masking(records: Records) -> Rows:
    """Masked characters beside masked words, phrases and entities."""
    rows = [["masked units", "hidden words, token accuracy", *CHINESE.values(), "mean", "mean, by seed"]]
    for arm, label in (("characters", "characters"), ("words", "words, phrases, entities")):
        seeds = (records / "masking" / "steps-4000").of(arm)
        means = [statistics.mean(seed[TUNED].values()) for seed in seeds]
        cells = [spread([seed[TUNED][task] for seed in seeds]) for task in CHINESE]
        rows.append([label, spread([seed["hidden words"]["right"] for seed in seeds]), *cells, spread(means)])
        rows[-1].append(listed(means))
    return rows


# Translation


def translation_points(records: Records, arm: str, point: str) -> list[dict[str, float]]:
    """One way to decode with an arm, seed by seed."""
    return [seed["points"][point] for seed in (records / "translation" / "epochs-10").of(arm)]


def bleu(points: Sequence[Mapping[str, float]]) -> str:
    """The mean BLEU of the seeds, and each."""
    scores = [100 * point["bleu"] for point in points]
    mean = f"{statistics.mean(scores):.1f}"
    return mean if len(scores) == 1 else f"{mean} ({', '.join(f'{score:.1f}' for score in scores)})"


def lag(*ways: Sequence[Mapping[str, float]]) -> str:
    """The average lagging of several ways to decode, where they differ."""
    lags = [f"{statistics.mean(point['lag'] for point in points):.1f}" for points in ways]
    return ", ".join(dict.fromkeys(lags))


def translation(records: Records) -> Rows:
    """German to English: what waiting costs, by the way of training."""
    header = ["waits for", "AL", "trained to wait", "one model for these five", "one for these and whole sentences"]
    rows = [[*header, "whole-sentence model", "the same, unidirectional encoder"]]

    def points(arm: str, point: str) -> list[dict[str, float]]:
        return translation_points(records, arm, point)

    for k in WAITS:
        ways = [points(f"wait-{k}", f"wait-{k}"), points("several", f"several, asked for {k}")]
        ways += [points("several-and-whole", f"several and whole, asked for {k}")]
        ways += [points("full", f"full, early {k}"), points("one-way", f"one-way, early {k}")]
        rows.append([f"{k} tokens" if k > 1 else "1 token", lag(*ways), *map(bleu, ways)])
    on = points("one-way-then-wait-1", "one-way, then wait-1")
    rows.append(["1 token, trained on from the unidirectional model", lag(on), bleu(on), "", "", "", ""])
    full, one_way = points("full", "full"), points("one-way", "one-way")
    rows.append(["whole sentences", lag(full), "", "", "", bleu(full), bleu(one_way)])
    beam = points("full", "full, beam of 4")
    rows.append(["whole sentences, beam of 4", lag(beam), "", "", "", bleu(beam), ""])
    knows = points("full-encoder-pretrained", "full, encoder pretrained")
    rows.append(["whole sentences, encoder pretrained", lag(knows), "", "", "", bleu(knows), ""])
    return rows


def translation_chinese(records: Records) -> Rows:
    """English to Chinese."""
    rows = [["waits for", "AL", "trained to wait", "whole-sentence model"]]
    for k in CHINESE_WAITS:
        own = translation_points(records, f"en-zh-wait-{k}", f"en-zh, wait-{k}")
        early = translation_points(records, "en-zh-full", f"en-zh, full, early {k}")
        rows.append([f"{k} tokens", lag(own, early), bleu(own), bleu(early)])
    whole = translation_points(records, "en-zh-full", "en-zh, full")
    rows.append(["whole sentences", lag(whole), "", bleu(whole)])
    return rows


def translation_catching_up(records: Records) -> Rows:
    """Czech to French, with and without catching up."""
    rows = [["waits for 3 tokens", "AL", "BLEU"]]
    for arm, label in (("cs-fr, wait-3", "as it is"), ("cs-fr, wait-3, catching up", "`catch_up: 0.2`")):
        points = translation_points(records, slug(arm), arm)
        rows.append([label, lag(points), bleu(points)])
    return rows


# Speech


def digits(records: Records) -> Rows:
    """Word error rates of CTC and of attention to its segments."""
    rows = [["decoder, three seeds", "", *DIGITS]]
    for arm, label in (("chunks", "CTC"), ("attention", "attention to CTC's segments")):
        seeds = (records / "recognition" / "all-epochs-20").of(arm)
        for how, name in (("", "whole audio, or streaming"), (", with a beam", "with a beam of 8")):
            rows.append([label if not how else "", name, *digit_errors(seeds, how)])
        if arm == "attention":
            rows.append(["", "without the audio", *digit_errors(seeds, ", without the sound")])
    return rows


def digit_errors(seeds: Sequence[Mapping[str, float]], how: str = "") -> list[str]:
    """Word error rates on short and on long strings."""
    return [spread([seed[f"{split}{how}"] for seed in seeds]) for split in ("test", "long")]


def digits_delay(records: Records) -> Rows:
    """How soon words come out, and how long computing takes."""
    rows = [["decoder, medians of three seeds", "seconds from first prediction to text", "computing, s per second"]]
    for arm, label in (("chunks", "CTC"), ("attention", "attention to CTC's segments")):
        seeds = (records / "recognition" / "all-epochs-20").of(arm)
        for key in ("test", "long"):
            assert all(seed[key] == seed[f"{key}, as it comes"] for seed in seeds), "streaming errs otherwise"
        delay, factor = (
            statistics.median(seed[f"test, {what}"] for seed in seeds)
            for what in ("seconds from spike to text", "real-time factor")
        )
        rows.append([label, f"{delay:.2f}", f"{factor:.2f}"])
    return rows


def digits_others(records: Records) -> Rows:
    """Other encoders and decoders, one seed."""
    rows = [["seed 0", *DIGITS, "long, as a multiple of short"]]
    root = records / "recognition"
    for folder, arm, label in (
        ("all-epochs-20", "recurrent", "recurrent encoder in both directions, CTC, hears whole sounds"),
        ("all-epochs-20", "abstractions", "attention to segments, abstractions of four tokens (SMLTA2)"),
        ("all-epochs-40", "global", "global attention, 40 epochs"),
    ):
        (seed,) = (root / folder).of(arm)
        rows.append([label, *digit_errors([seed]), f"{seed['long'] / seed['test']:.1f}"])
    return rows


def digits_left_out(records: Records) -> Rows:
    """CTC on a speaker that was not trained on."""
    rows = [["left out", *DIGITS]]
    for speaker in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler"):
        rows.append([speaker, *digit_errors((records / "recognition" / f"without-{speaker}-epochs-20").of("chunks"))])
    return rows


DISTURBED = {
    "chunks": "CTC in chunks",
    "offset-kept": "the same, offset kept",
    "streaming": "`normalize: streaming`",
    "streaming-as-before": "the same as at 0506553",
}
OFFSETS = (0.01, 0.05, 0.1)
SILENCES = tuple((seconds, sound) for sound in ("silence", "hiss") for seconds in (1, 5, 60))


def disturbed(records: Records, arm: str) -> dict[str, float]:
    """The one record of an arm with disturbed sounds."""
    (seed,) = (records / "disturbed" / "all-epochs-20").of(arm)
    return seed


def offsets(records: Records) -> Rows:
    """Word error rates with an offset added."""
    rows = [["word error rate, 300 sounds", "as recorded", *(f"offset {offset}" for offset in OFFSETS)]]
    for arm, label in DISTURBED.items():
        seed = disturbed(records, arm)
        values = [seed["test"], *(seed[f"test, offset {offset}"] for offset in OFFSETS)]
        rows.append([label, *map(percent, values)])
    return rows


def silences(records: Records) -> Rows:
    """Word error rates after silence."""
    after = [f"after {seconds} s of {'zeros' if sound == 'silence' else 'noise'}" for seconds, sound in SILENCES]
    rows = [["word error rate, 40 sounds", "as recorded", *after, "words in a minute of zeros"]]
    for arm, label in DISTURBED.items():
        seed = disturbed(records, arm)
        values = [seed["some"], *(seed[f"some, after {seconds} s of {sound}"] for seconds, sound in SILENCES)]
        rows.append([label, *map(percent, values), str(seed["words in a minute of silence"])])
    return rows


PROMPTS = {
    "fresh": "not pretrained",
    "pretrained": "pretrained on text",
    "sentences-first": "trained on sentences first, with its head",
    "sentences-too": "trained on sentences, too",
}


def prompts(records: Records) -> Rows:
    """Words and letters wrong, by encoder and decoding."""
    rows = [["encoder", "read by", "words wrong", "letters wrong"]]
    for arm, label in PROMPTS.items():
        seeds = (records / "prompts" / "epochs-60").of(arm)
        for way, name in (
            ("likeliest letters", "the likeliest letters"),
            ("beam", "a beam of 16"),
            ("language model", "and a language model of six letters"),
        ):
            errors = [spread([seed[way][measure] for seed in seeds]) for measure in ("wer", "cer")]
            rows.append([label if way == "likeliest letters" else "", name, *errors])
    return rows


def speech_translation(records: Records) -> Rows:
    """Errors and lags of a recognizer and of translators behind it."""
    rows = [["", "words wrong", "lag", "before the last 3 words", "with computing", "longest"]]
    names = ("lag", "lag before the last words", "lag with computing", "longest lag with computing")
    labels = ("recognizer", "and a translator that waits for 1", "for 2", "for 3")
    # The files are named by the wait where others are named by the seed.
    for k, seed in (records / "speech-translation" / "epochs-4-chunks-0").by_seed("wait").items():
        rows.append([labels[k], percent(seed["word error rate"]), *(f"{seed[name]:.2f} s" for name in names)])
    return rows


VOICES = {
    "wavenet": "`wavenet`",
    "phonemes": "`phonemes`: pronunciations as input",
    "flow": "`flow`: the default, four networks of 32 channels",
    "middle-flow": "`middle flow`: three of 16",
    "short-flow": "`short flow`: two of 16",
    "no-apart": "`no apart`: two of 16, without the regularization of the divergence",
    "no-spectra": "`no spectra`: two of 16, without the loss on spectra",
}


def voices(records: Records) -> dict[str, dict[str, Any]]:
    """The record of each voice."""
    found = {arm: (records / "synthesis" / "epochs-24-8").of(arm) for arm in VOICES}
    return {arm: seed for arm, (seed,) in found.items()}


def synthesis(records: Records) -> Rows:
    """Voices and their ablations."""
    header = ["", "spoken", "frames alone", "recordings", "nats per sample", "spectral distance"]
    rows = [[*header, "power", "times as fast as the WaveNet, one core"]]
    for arm, seed in voices(records).items():
        own = arm in ("wavenet", "phonemes")
        cells = [percent(seed["not understood"][how]) for how in ("spoken", "frames", "recorded")]
        cells += [f"{seed['nats a sample']:.2f}" if own else "", f"{seed['distance of spectra']:.2f}"]
        cells += [f"{seed['decibels louder']:.1f} dB", "" if own else f"{seed['times as fast']:.1f}"]
        rows.append([VOICES[arm], *cells])
    return rows


def synthesis_likelihood(records: Records) -> Rows:
    """The WaveNet's likelihood beside linear prediction."""
    seed = voices(records)["wavenet"]
    names = {
        "nats a sample": "`wavenet`",
        "nats by linear prediction": "linear prediction of order 16",
        "nats by linear prediction and recent errors": "with the variance of its recent errors",
        "nats by linear prediction of each frame": "fitted to each frame of 30 ms, on that very frame",
    }
    return [["", "nats per sample"], *([name, f"{seed[key]:.2f}"] for key, name in names.items())]


TABLES: dict[str, Callable[[Records], Rows]] = {
    "plateau": plateau,
    "comparing": comparing,
    "forgetting": forgetting,
    "forgetting-by-seed": forgetting_by_seed,
    "each-task": each_task,
    "each-task-longer": longer,
    "moments": moments,
    "moments-masked": moments_masked,
    "paces": paces,
    "quality": quality,
    "quality-means": quality_means,
    "quality-before": quality_before,
    "scaling-sizes": scaling_sizes,
    "scaling-widths": scaling_widths,
    "en-held-out": lambda records: card(records, "en", "Evaluation"),
    "en-fine-tuned": lambda records: card(records, "en", "Fine-tuned"),
    "zh-held-out": lambda records: card(records, "zh", "Evaluation"),
    "zh-fine-tuned": lambda records: card(records, "zh", "Fine-tuned"),
    "masking": masking,
    "translation": translation,
    "translation-chinese": translation_chinese,
    "translation-catching-up": translation_catching_up,
    "digits": digits,
    "digits-delay": digits_delay,
    "digits-others": digits_others,
    "digits-left-out": digits_left_out,
    "offsets": offsets,
    "silences": silences,
    "prompts": prompts,
    "speech-translation": speech_translation,
    "synthesis": synthesis,
    "synthesis-likelihood": synthesis_likelihood,
}
