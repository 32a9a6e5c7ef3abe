"""The benchmark of a night: its arms build, its steps fill the time, and its tables say what was met."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import ROOT
from support.pretraining import await_step
from support.running import CONFIG, build_corpus, made_up_text

sys.path.insert(0, str(ROOT / "benchmarks"))

import night
import outcomes
from page_tables import NIGHT_ARMS, NIGHT_TASKS, ablations, night_scores, nights
from record_files import MissingRecord, Records, slug

from ernie.errors import UserError
from ernie.train.checkpoint import Checkpoints
from ernie.train.log import read_records
from pretrain.config import load

BENCHMARKS = str(ROOT / "benchmarks")


@pytest.mark.parametrize("size", night.NIGHTS)
@pytest.mark.parametrize("name", night.ARMS)
def test_an_arm_builds_and_differs_from_the_plain_one(name: str, size: str) -> None:
    config, arm = night.CONFIGS / night.NIGHTS[size].config, night.ARMS[name]
    found = load(config, [*arm.overrides, arm.stages([8, 4])])
    share = len(arm.entries)
    assert found.schedule.table == [
        dict.fromkeys(names, total // share) for names, total in zip(arm.names, (8, 4), strict=True)
    ]
    own = [pair for pair in arm.entries if pair in (night.WORDS, night.REPLACED)]
    assert all(found.tasks[second].head_of == first for first, second in own)
    assert own == list(arm.entries) or name == "replaced at last"
    taken = load(config, [night.ARMS[night.TAKEN].stages([8, 4])])
    assert (found == taken) == (name == night.TAKEN)


def test_the_steps_of_all_stages_take_the_time_in_the_proportion_that_is_written() -> None:
    first, second = night.planned_steps(3600, [0.1, 0.3], [2000, 1000])
    assert first == pytest.approx(2 * second, abs=2)
    assert 0.1 * first + 0.3 * second == pytest.approx(3600, abs=0.5)
    assert night.planned_steps(0.01, [1.0, 1.0], [1, 1]) == [1, 1]


def test_the_table_says_what_was_met() -> None:
    dev = {"cola": [10.0, 30.0, 20.0], "sst2": [84.0], "mrpc": [80.0], "stsb": [80.0], "rte": [60.0]}
    *_, last = night.table("mini", dev, 4)
    assert night.table("mini", dev, 4)[1] == ["ours, mini", "20.0", "84.0", "80.0", "80.0", "60.0", "64.8"]
    assert last == ["at least", "", "84: met", "", "", "", "65: missed"]
    chinese = {"chnsenticorp": [92.0], "msra_ner": [60.0], "ocnli": [60.0], "tnews": [44.0]}
    assert night.table("mini-chinese", chinese, 1)[-1] == ["at least", "", "", "", "", "63.4: met"]
    assert night.table("mini", dev, 0.5) == night.table("mini", dev, 4)[:-1]  # nothing was set for half an hour


def test_scores_are_those_of_the_best_point_or_of_a_named_one_and_of_test_where_it_has_labels(tmp_path: Path) -> None:
    for task, measure in night.ENGLISH.measures.items():
        splits = ("dev", "test") if task == "sst2" else ("dev",)
        trials = [
            {"point": point, "scores": {split: {measure: value / 100} for split in splits}}
            for point, value in ((night.POINT_NAME, 50.0), ("other", 60.0), (night.POINT_NAME, 52.0), ("other", 64.0))
        ]
        (tmp_path / task).mkdir()
        (tmp_path / task / "scores.json").write_text(json.dumps({"point": "other", "trials": trials}), "utf-8")
    best, named = night.scores_of(tmp_path, night.ENGLISH), night.scores_of(tmp_path, night.ENGLISH, night.POINT_NAME)
    assert best["dev"] == {task: pytest.approx([60, 64]) for task in night.ENGLISH.measures}
    assert named["dev"] == {task: pytest.approx([50, 52]) for task in night.ENGLISH.measures}
    assert best["test"] == {"sst2": pytest.approx([60, 64])}


def test_the_curve_has_a_point_for_each_run(tmp_path: Path) -> None:
    dev = {"cola": [10.0], "sst2": [84.0], "mrpc": [80.0], "stsb": [80.0], "rte": [60.0]}
    assert statistics.mean(night_scores({**dev, "cola": [10.0, 30.0, 20.0]})) == pytest.approx(64.8)
    for size, hours in (("mini", 1), ("mini", 4), ("small", 12)):
        record = json.dumps({"size": size, "hours": hours, "tokens": hours * 12_345_678, "dev": dev})
        (tmp_path / f"{size}-{hours}-hours.json").write_text(record, encoding="utf-8")
    night.draw(tmp_path, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_nights_stand_beside_the_miniatures_with_what_their_hours_cost(tmp_path: Path) -> None:
    dev = {"cola": [10.0, 30.0, 20.0], "sst2": [84.0], "mrpc": [80.0], "stsb": [80.0], "rte": [60.0]}
    for name, size, hours in (("small-12", "small", 12), ("mini-4", "mini", 4), ("peer-mini-4", "mini", 4)):
        record = {"size": size, "hours": hours, "tokens": hours * 12_345_678, "dev": dev}
        if size == "small":
            record["test"] = {"sst2": [81.0, 83.0, 82.0], "stsb": [70.0]}
        (tmp_path / f"{name}-hours.json").write_text(json.dumps(record), encoding="utf-8")
    chinese = json.dumps({"size": "mini-chinese", "hours": 1, "tokens": 1, "dev": {"tnews": [50.0]}})
    (tmp_path / "mini-chinese-1-hours.json").write_text(chinese, encoding="utf-8")
    records = Records(tmp_path)
    own = ["20.0", "84.0", "80.0", "80.0", "60.0", "64.8"]
    assert nights(records)[1:] == [
        ["ours, mini", "4", "49", "0.18", "best of four", *own],
        ["ours, small", "12", "148", "0.54", "best of four", *own],
        ["the same, on test", "", "", "", "", "", "82.0", "", "70.0", "", ""],
        ["transformers', mini", "4", "49", "0.18", "best of four", *own],
        ["BERT-Mini", "", "", "", "best of 20", "0.0", "85.9", "81.1", "75.4", "57.9", "60.1"],
        ["BERT-Small", "", "", "", "best of 20", "27.8", "89.7", "83.4", "78.8", "61.8", "68.3"],
    ]
    assert len(records.read) == 3
    assert outcomes.night(records, "mini", 4, 65.0, 84.0) == ("64.8; 84.0", "missed; met")
    assert outcomes.night(records, "small", 12, 64.0) == ("64.8", "met")
    with pytest.raises(MissingRecord, match="no night of 2 hours of mini"):
        outcomes.night(records, "mini", 2, 60.0)


def test_one_point_of_the_grid_is_judged_alone_and_again_within_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[dict[str, list[float]]] = []

    def ernie(*words: str) -> None:
        """Score the higher rate and the larger batch best on each task, as `ernie finetune` writes it."""
        given = next(word for word in words if word.startswith("grid="))
        grid = json.loads(given.removeprefix("grid="))
        grids.append(grid)
        run = Path(words[words.index("--output") + 1])
        task = run.name
        trials = []
        for peak, batch in itertools.product(grid["peak"], grid["batch"]):
            for seed in range(3):
                score = {night.ENGLISH.measures[task]: 0.5 + 100 * peak - batch / 1000 + seed / 100}
                name = f"peak={peak:g},batch={batch},epochs=4"
                trials.append({"point": name, "seed": seed, "scores": {"dev": score}})
        best = max(trials, key=lambda trial: max(trial["scores"]["dev"].values()))["point"]
        values = [100 * v for t in trials if t["point"] == best for v in t["scores"]["dev"].values()]
        scores = {"dev": {night.ENGLISH.measures[task]: {"values": [value / 100 for value in values]}}}
        run.mkdir(parents=True, exist_ok=True)
        written = json.dumps({"point": best, "scores": scores, "trials": trials})
        (run / "scores.json").write_text(written, encoding="utf-8")

    monkeypatch.setattr(night, "ernie", ernie)
    arguments = argparse.Namespace(
        size="mini", seeds=3, jobs=1, data=tmp_path, output=tmp_path, records=tmp_path / "records", one_point=True
    )
    folder, model = tmp_path / "mini-1-hours", tmp_path / "encoder"

    def about() -> dict[str, Any]:
        return {"size": "mini", "hours": 1, "tokens": 1}

    at_point = night.judged(arguments, model, folder, about)
    assert at_point["dev"] == dict.fromkeys(night.ENGLISH.measures, pytest.approx([49.8, 50.8, 51.8]))
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["mini-1-hours-at-one-point.json"]
    assert all(night.planned_trials(grid) == 1 for grid in grids)
    arguments.one_point = False
    best = night.judged(arguments, model, folder, about)
    assert best["dev"] == dict.fromkeys(night.ENGLISH.measures, pytest.approx([52.2, 53.2, 54.2]))
    assert len(grids) == 2 * len(night.ENGLISH.measures)
    assert night.judged(arguments, model, folder, about) == best
    arguments.records = tmp_path / "others"  # the records are made anew from what was trained
    assert night.judged(arguments, model, folder, about) == best
    assert len(grids) == 2 * len(night.ENGLISH.measures)
    rows = nights(Records(tmp_path / "others"))
    assert [row[4:6] for row in rows[1:3]] == [["one point", "50.8"], ["best of four", "53.2"]]
    night.draw(tmp_path / "others", tmp_path / "curve.png")


def test_an_arm_is_compared_with_the_plain_one_by_the_standard_error_of_the_difference(tmp_path: Path) -> None:
    for arm, scores in {"plain": [70.0, 72.0], "averages": [75.0, 77.0]}.items():
        file = tmp_path / f"{arm}-0.json"
        file.write_text(json.dumps({"dev": dict.fromkeys(night.QUICK, scores)}), encoding="utf-8")
    rows = ablations(Records(tmp_path))
    assert [row[0] for row in rows] == ["", NIGHT_ARMS["plain"], "averaged weights"]
    assert [row[-1] for row in rows] == ["above the first", "", "+5.00 ± 1.41"]
    assert list(map(slug, night.ARMS)) == list(NIGHT_ARMS)
    assert list(night.QUICK) == list(NIGHT_TASKS)


def test_texts_that_are_missing_or_around_the_output_are_refused_and_changed_ones_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output, texts = tmp_path / "runs", tmp_path / "texts"
    with pytest.raises(UserError, match="there is no such file or folder"):
        night.built_corpus([tmp_path / "txets"], output, 200)
    with pytest.raises(UserError, match="is inside of"):
        night.built_corpus([tmp_path], output, 200)
    texts.mkdir()
    made_up_text(texts / "a.txt")
    assert (night.built_corpus([texts], output, 200) / "corpus.json").is_file()
    with pytest.raises(UserError, match="is of other texts"):
        night.built_corpus([texts / "a.txt"], output, 200)
    capfd.readouterr()
    night.built_corpus([texts], output, 200)
    assert capfd.readouterr().err == ""
    (texts / "b.txt").write_text("One more text.", encoding="utf-8")
    night.built_corpus([texts], output, 200)
    assert "note: files of the texts have come, gone or changed" in capfd.readouterr().err
    shutil.rmtree(output / "corpus")  # as if its build had been interrupted, which then is of the text as it is now
    for _ in range(2):
        night.built_corpus([texts], output, 200)
        assert "note: files" not in capfd.readouterr().err


def test_rows_that_are_missing_are_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").mkdir()
    made_up_text(tmp_path / "texts" / "a.txt")
    command = ["night.py", "run", "mini", "--text", str(tmp_path / "texts")]
    monkeypatch.setattr(
        sys, "argv", [*command, "--data", str(tmp_path / "missing"), "--output", str(tmp_path / "runs")]
    )
    with pytest.raises(SystemExit) as ended:
        night.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("night.py: error: ") and str(tmp_path / "missing") in said
    assert not (tmp_path / "runs").exists()


def test_a_record_is_whole_or_not_there(tmp_path: Path) -> None:
    program = (
        f"import resource, sys; sys.path.insert(0, {BENCHMARKS!r}); from pathlib import Path\n"
        "from record_files import cached_record\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        f"cached_record(Path({str(tmp_path / 'record.json')!r}), lambda: {{'numbers': [*range(5000)]}})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_ctrl_c_lets_the_command_save_and_ends_with_its_status(tmp_path: Path) -> None:
    corpus = build_corpus(made_up_text(tmp_path / "a.txt"), tmp_path)
    (tmp_path / "run.yaml").write_text(
        CONFIG.format(corpus=corpus).replace("every: 5", "every: 9999"), encoding="utf-8"
    )
    words = ["pretrain", str(tmp_path / "run.yaml"), "--output", str(tmp_path / "run")]
    words += ["--set", "schedule.steps_per_task=100000"]
    program = f"import sys; sys.path.insert(0, {BENCHMARKS!r}); from recipe import ernie; ernie(*{words})"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        await_step(tmp_path / "run", 3, process)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    last = read_records(tmp_path / "run", "step")[-1]["step"]
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [last + 1]
    read = night.amount_read(tmp_path / "run")
    most = load(tmp_path / "run.yaml").data.micro_batch_tokens
    assert read["steps"] == last + 1
    assert 0.3 * most * read["steps"] < read["tokens"] <= most * read["steps"]


@pytest.mark.slow
def test_without_data_a_night_ends_with_an_encoder_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "the river runs past a mill and a boat lies on its bank in winter".split()
    lines = (" ".join(words[(7 * n + i * i) % len(words)] for i in range(9)) + "." for n in range(4000))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("\n\n".join(f"{line}\n{line[4:]}" for line in lines), encoding="utf-8")
    mini = night.NIGHTS["mini"]
    monkeypatch.setitem(night.NIGHTS, "mini", replace(mini, suite=replace(mini.suite, vocabulary=60)))
    monkeypatch.setattr(night, "TIMED", 3)
    monkeypatch.setattr(night, "WARM", 1)
    output = tmp_path / "out"
    command = [
        "night.py",
        "run",
        "mini",
        "--hours",
        "0.0003",
        "--text",
        str(tmp_path / "text"),
        "--output",
        str(output),
    ]
    monkeypatch.setattr(sys, "argv", command)
    night.main()
    made = output / "mini-0.0003-hours" / "encoder"
    assert f"{made}: the encoder is in model/" in capfd.readouterr().out
    assert (made / "model").is_dir()
    assert (made / "README.md").is_file()
    assert (made / "report.html").is_file()
    assert [path.name for path in (made.parent / "timed").iterdir() if path.is_dir()] == []
    before = (made / "model" / "model.safetensors").stat().st_mtime_ns
    night.main()
    assert (made / "model" / "model.safetensors").stat().st_mtime_ns == before
    (made / "README.md").unlink()  # as if killed before the card was written
    night.main()
    assert (made / "README.md").is_file()


def test_the_steps_of_a_stage_are_shared_by_its_entries_and_none_is_lost() -> None:
    planned = json.loads(night.ARMS["in turns"].stages([7, 4]).removeprefix("schedule.stages="))
    assert planned == [{"knowledge_masking": 3, "replaced": 4}, {"longer": 2, "longer_replaced": 2}]
    planned = json.loads(night.ARMS["plain"].stages([7, 4]).removeprefix("schedule.stages="))
    assert planned == [{"knowledge_masking": 7}, {"longer": 4}]


def test_arms_that_are_not_timed_themselves_have_the_samples_and_the_losses_of_one_that_is() -> None:
    for arm in night.ARMS.values():
        if arm.as_fast_as is not None:
            other = night.ARMS[arm.as_fast_as]
            assert other.as_fast_as is None
            assert arm.entries == other.entries
            assert not any(field.startswith(("max_len", "mask_rate", "initial_mask_rate")) for field in arm.fields)
            assert not any(change.startswith(("data.", "model.", "tasks.")) for change in arm.changes)


def test_the_pace_of_an_arm_is_the_median_of_its_own_trials_which_alternate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def timed(size: str, arm: night.Arm, corpus: Path, run: Path) -> dict[str, list[float]]:
        taken.append(run.name)
        return {"seconds": [len(taken), 10.0 * len(taken)]}

    monkeypatch.setattr(night, "timed", timed)
    arms = ["rate of 0.15", "plain", "higher rate", "rate of 0.3"]
    found = night.paces("mini", arms, tmp_path, tmp_path / "timed")
    assert [name.rpartition("-")[0] for name in taken] == ["rate-of-0.15", "plain", "rate-of-0.3"] * 3
    assert found == [[4, 40.0], [5, 50.0], [5, 50.0], [6, 60.0]]
    assert night.paces("mini", arms, tmp_path, tmp_path / "timed") == found
    assert len(taken) == 9
