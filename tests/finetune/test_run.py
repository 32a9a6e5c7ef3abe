"""A fine-tuning run: the files in its folder, which trials run again, and which model is kept."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file, save_file

from ernie.cli import main
from ernie.config import to_dict
from ernie.train.log import read_records
from finetune.config import load
from finetune.train.trial import Result, Trial
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify
from tasks.downstream.regress import Regress


def finetune(*more: str, output: str = "run") -> int:
    return main(["finetune", "task.yaml", "--output", output, *more])


def scores(run: Path) -> dict[str, Any]:
    return json.loads((run / "scores.json").read_text(encoding="utf-8"))


def trial_file(run: Path, name: str) -> Path:
    return run / "trials" / name / "scores.json"


def scores_of_kept_model(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """The dev scores of the model in the run's folder, from a command that does not know how it was chosen."""
    capsys.readouterr()
    assert main(["evaluate", str(run), "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    del found["rows"]
    return found


class TestFolder:
    def test_its_model_loads_on_its_own_with_tokenizer_and_labels(self, work: Path, tmp_path: Path) -> None:
        alone = shutil.copytree(work / "done" / "model", tmp_path / "elsewhere" / "model")
        shutil.rmtree(work)
        model = TaskModel.load(alone)
        assert model.task.labels == ("blame", "praise")
        answers = [answer["label"] for answer in model.predict([{"text": "the film was bad"}, {"text": "very fine"}])]
        assert answers == ["blame", "praise"]

    def test_its_configuration_is_resolved_and_reproduces_the_run(self, work: Path) -> None:
        written = load(work / "done" / "config.yaml")
        assert written.train.adam.beta2 == 0.999  # a default that task.yaml does not mention
        expected = {**to_dict(load(work / "task.yaml")), "output": "done"}
        assert to_dict(written) == expected
        assert main(["finetune", "done/config.yaml", "--output", "again", "--quiet"]) == 0
        again, before = scores(work / "again"), scores(work / "done")
        assert again["best"] == before["best"]

    def test_model_card_report_and_origin_describe_the_run(self, work: Path) -> None:
        run = work / "done"
        card = (run / "README.md").read_text(encoding="utf-8")
        accuracy = scores(run)["best"]["scores"]["test"]["accuracy"]
        for part in ("`classify`", "`encoder`", "train: 160 rows", "`dev.tsv`", "ernie predict", f"{accuracy:.4f}"):
            assert part in card
        changed = yaml.safe_load(card.partition("## Training")[2].partition("```yaml\n")[2].partition("```")[0])
        given = yaml.safe_load((work / "task.yaml").read_text(encoding="utf-8"))
        assert changed["train"]["epochs"] == given["train"]["epochs"]
        assert changed["train"].keys() <= given["train"].keys()
        page = (run / "report.html").read_text(encoding="utf-8")
        assert f"{accuracy:.4f}" in page
        assert "Which labels are taken for which" in page
        assert "<script src" not in page
        assert "http" not in page.replace("http://www.w3.org", "")
        origin = json.loads((run / "origin.json").read_text(encoding="utf-8"))
        assert origin["inputs"].keys() == {"model", "data.train", "data.dev", "data.test"}
        assert "paddlepaddle" in " ".join(origin["versions"])

    def test_the_saved_dev_predictions_give_the_reported_score(self, work: Path) -> None:
        lines = (work / "done" / "trials" / "seed=0" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        assert [record["row"] for record in records[:2]] == ["dev.tsv:2", "dev.tsv:3"]
        accuracy = statistics.mean(record["label"] == record["right"] for record in records)
        assert accuracy == pytest.approx(scores(work / "done")["best"]["scores"]["dev"]["accuracy"])

    def test_every_evaluation_is_in_the_log_and_in_the_curve(self, work: Path) -> None:
        assert finetune("--quiet", "--set", "train.evaluations=2") == 0
        trial = json.loads(trial_file(work / "run", "seed=0").read_text(encoding="utf-8"))
        log = read_records(work / "run" / "trials" / "seed=0", "evaluation")
        assert [record["step"] for record in log] == [record["step"] for record in trial["curve"]]
        assert [record["step"] for record in trial["curve"]] == [8 * k for k in range(1, 11)]

    def test_every_step_is_logged_and_an_evaluation_has_the_mean_loss_of_the_steps_before(self, work: Path) -> None:
        place = work / "done" / "trials" / "seed=0"
        steps, evaluations = read_records(place, "step"), read_records(place, "evaluation")
        assert [record["step"] for record in steps] == list(range(1, evaluations[-1]["step"] + 1))
        start = 0
        for evaluation in evaluations:
            losses = [record["loss"] for record in steps[start : evaluation["step"]]]
            assert evaluation["loss"] == pytest.approx(statistics.mean(losses), rel=1e-6)
            start = evaluation["step"]
        assert all(record["gradient_norm"] > 0 and not record["skipped"] for record in steps)


class TestRunAgain:
    def test_finished_trials_are_not_run_again(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        files = [trial_file(work / "done", "seed=0"), work / "done" / "model" / "model.safetensors"]
        before = [file.stat().st_mtime_ns for file in files]
        assert finetune(output="done") == 0
        assert "seed=0: was done before, accuracy " in capsys.readouterr().err
        assert [file.stat().st_mtime_ns for file in files] == before

    def test_a_run_whose_logs_were_removed_still_has_a_report(self, work: Path) -> None:
        (work / "done" / "trials" / "seed=0" / "metrics.jsonl").unlink()
        (work / "done" / "report.html").unlink()
        assert finetune("--quiet", output="done") == 0
        assert "training loss" in (work / "done" / "report.html").read_text(encoding="utf-8")

    def test_with_more_seeds_the_missing_ones_are_run(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert finetune("--seeds", "3", output="done") == 0
        err = capsys.readouterr().err
        assert "seed=0: was done before" in err
        assert "seed=1: accuracy" in err
        assert [trial["seed"] for trial in scores(work / "done")["trials"]] == [0, 1, 2]

    def test_an_interrupted_trial_without_checkpoint_starts_over(self, work: Path) -> None:
        before = scores(work / "done")["best"]
        trial_file(work / "done", "seed=0").unlink()
        log = work / "done" / "trials" / "seed=0" / "metrics.jsonl"
        log.write_text('{"kind": "evaluation", "step": 1}\n{"kind": "evalu', encoding="utf-8")
        assert finetune("--quiet", output="done") == 0
        assert scores(work / "done")["best"] == before
        assert "evalu\n" not in log.read_text(encoding="utf-8")

    def test_a_damaged_trial_is_reported_with_a_way_to_fix_it(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        trial_file(work / "done", "seed=0").write_text("{", encoding="utf-8")
        assert finetune(output="done") == 2
        assert "done/trials/seed=0/scores.json: is not JSON. Remove it, and its trial" in capsys.readouterr().err

    def test_without_its_answers_a_run_says_what_to_do(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        trial_file(work / "done", "seed=0").with_name("dev.jsonl").unlink()
        assert finetune("--quiet", output="done") == 2
        err = capsys.readouterr().err
        assert "dev.jsonl: there is no such file. Remove the folder of this trial, and it is run again." in err

    @pytest.mark.slow
    def test_without_any_of_its_files_a_run_is_completed_or_refused(self, work: Path) -> None:
        whole = sorted(file.relative_to(work / "done") for file in (work / "done").rglob("*") if file.is_file())
        refused = set()
        for number, file in enumerate(whole):
            folder = work / f"without-{number}"
            shutil.copytree(work / "done", folder)
            (folder / file).unlink()
            if status := finetune("--quiet", output=folder.name):
                assert status == 2, file
                refused.add(file.name)
            elif file.parts[0] == "model" and file.name != "sha256.json":  # without it nothing is checked
                assert (folder / file).read_bytes() == (work / "done" / file).read_bytes(), file
        assert {"config.yaml", "origin.json", "dev.jsonl", "model.safetensors", "config.json"} <= refused

    def test_another_configuration_is_refused_with_the_differences(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = (work / "done" / "config.yaml").read_bytes()
        assert finetune("--set", "train.epochs=9", "--set", "task.max_len=12", output="done") == 2
        err = capsys.readouterr().err
        assert "  train.epochs: was 5, is 9\n" in err
        assert "  task.max_len: was 16, is 12\n" in err
        assert "Choose another --output, or delete the folder to start over." in err
        assert (work / "done" / "config.yaml").read_bytes() == before

    def test_other_rows_under_the_same_name_are_noticed(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = (work / "dev.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        (work / "dev.tsv").write_text("".join(rows[:-1]), encoding="utf-8")
        assert finetune(output="done") == 2
        assert "under the same name: data.dev changed since" in capsys.readouterr().err

    def test_a_changed_encoder_is_noticed(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.rmtree(work / "encoder")
        shutil.copytree(work / "done" / "model", work / "encoder")
        assert finetune(output="done") == 2
        assert "under the same name: model changed since" in capsys.readouterr().err

    def test_a_run_without_a_finished_trial_may_start_over_with_other_settings(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert finetune("--quiet", "--set", "train.lr.peak=1e30") == 1
        assert "not finite" in capsys.readouterr().err
        assert finetune("--quiet") == 0

    @pytest.mark.parametrize("what", ["a stranger's", "an encoder"])
    def test_a_folder_with_something_else_is_refused_and_left_alone(
        self, work: Path, capsys: pytest.CaptureFixture[str], what: str
    ) -> None:
        (work / "a stranger's").mkdir()
        (work / "a stranger's" / "config.yaml").write_text("corpus: mine\n", encoding="utf-8")
        (work / "encoder").rename(work / "an encoder")
        before = sorted((work / what).rglob("*"))
        assert finetune("--model", "an encoder", output=what) == 2
        assert f"{what}: is not empty and holds no fine-tuning run" in capsys.readouterr().err
        assert sorted((work / what).rglob("*")) == before


class TestScores:
    def test_every_statistic_is_that_of_the_trials(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        # So few steps that only some of the seeds learn the task.
        assert finetune("--quiet", "--seed", "5", "--seeds", "4", "--set", "train.epochs=3") == 0
        found = scores(work / "run")
        assert [trial["seed"] for trial in found["trials"]] == [5, 6, 7, 8]
        for split in ("dev", "test"):
            values = [trial["scores"][split]["accuracy"] for trial in found["trials"]]
            reported = found["scores"][split]["accuracy"]
            assert reported["values"] == values
            assert (reported["lowest"], reported["highest"]) == (min(values), max(values))
            assert reported["median"] == pytest.approx(statistics.median(values))
            assert reported["mean"] == pytest.approx(statistics.mean(values))
            assert reported["deviation"] == pytest.approx(statistics.stdev(values))
        assert len(set(found["scores"]["dev"]["accuracy"]["values"])) > 1
        table = capsys.readouterr().out
        reported = found["scores"]["dev"]["accuracy"]
        assert f"| dev | {reported['median']:.4f} ({reported['lowest']:.4f} to {reported['highest']:.4f}) |" in table

    def test_a_seed_gives_the_same_losses_in_another_run_even_if_the_encoder_lacks_a_pooler(self, work: Path) -> None:
        assert main(["convert", "encoder", "published", "--to", "hf"]) == 0
        weights = load_file(work / "published" / "model.safetensors")
        bare = {name: value for name, value in weights.items() if "pooler" not in name}
        assert len(bare) == len(weights) - 2
        save_file(bare, work / "published" / "model.safetensors", {"format": "pt"})
        for output in ("one", "two"):
            assert finetune("--quiet", "--model", "published", output=output) == 0
        curves = [[record["loss"] for record in scores(work / name)["trials"][0]["curve"]] for name in ("one", "two")]
        assert curves[0] == curves[1]


class TestChoice:
    """Which checkpoint, which trial and which point of a grid are the best."""

    @pytest.mark.parametrize("metric", ["mean_squared_error", "pearson"])
    def test_the_kept_checkpoint_is_the_best_on_dev_even_if_lower_is_better(
        self, work: Path, capsys: pytest.CaptureFixture[str], metric: str
    ) -> None:
        for name in ("train", "dev", "test"):
            file = work / f"{name}.tsv"
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace("\tpraise", "\t1").replace("\tblame", "\t0"), encoding="utf-8")
        # A rate so high that later evaluations are worse than earlier ones.
        unstable = ("--set", "train.lr={peak: 1e-1, decay: constant, warmup: 0}", "--set", "train.evaluations=8")
        kind = f"task={{kind: regress, max_len: 16, metrics: [{metric}]}}"
        (work / "task.yaml").write_text("data: {train: train.tsv, dev: dev.tsv}\nmodel: encoder\n", encoding="utf-8")
        assert finetune("--quiet", "--set", kind, "--set", "train.batch=10", *unstable) == 0
        (trial,) = scores(work / "run")["trials"]
        curve = [record[metric] for record in trial["curve"]]
        best = min(curve) if metric == "mean_squared_error" else max(curve)
        assert curve[-1] != best
        assert trial["scores"]["dev"][metric] == pytest.approx(best, rel=1e-4)
        assert trial["best_step"] == trial["curve"][curve.index(best)]["step"]
        assert scores_of_kept_model(work / "run", capsys)[metric] == pytest.approx(best, rel=1e-4)

    def test_a_trial_ends_early_when_patience_runs_out(self, work: Path) -> None:
        hopeless = (
            "--set",
            "train.lr.peak=1e-12",
            "--set",
            "train.early_stopping_patience=2",
            "--set",
            "train.epochs=30",
        )
        assert finetune("--quiet", *hopeless) == 0
        (trial,) = scores(work / "run")["trials"]
        assert trial["steps"] == 16 * 3  # the first evaluation is the best, the next two are not
        assert trial["best_step"] == 16

    def test_every_point_of_a_grid_is_tried_and_the_best_one_reported(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert finetune("--quiet", "--seeds", "2", "--set", "grid={peak: [1e-9, 3e-3], epochs: [1, 5]}") == 0
        names = {path.name for path in (work / "run" / "trials").iterdir()}
        points = [f"peak={peak},epochs={epochs}" for peak in ("1e-09", "0.003") for epochs in (1, 5)]
        assert names == {f"{point},seed={seed}" for point in points for seed in (0, 1)}
        found = scores(work / "run")
        medians = {
            point: statistics.median(
                trial["scores"]["dev"]["accuracy"] for trial in found["trials"] if trial["point"] == point
            )
            for point in points
        }
        assert medians[found["point"]] == max(medians.values()) > medians[points[0]]
        assert f"best of the grid: {found['point']}" in capsys.readouterr().out
        kept = f"is that of seed {found['best']['seed']} at the best point of the grid, `{found['point']}`."
        assert kept in (work / "run" / "README.md").read_text(encoding="utf-8")
        assert scores_of_kept_model(work / "run", capsys) == pytest.approx(found["best"]["scores"]["dev"])

    def test_an_invalid_point_of_a_grid_is_found_before_anything_is_written(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert finetune("--set", "grid={batch: [8, 0]}") == 2
        assert "grid: batch: expected at least 1, found 0" in capsys.readouterr().err
        assert not (work / "run").exists()

    def test_the_median_decides_between_points_and_the_best_seed_within_one(self) -> None:
        steady, lucky = (
            [make_trial("a", 0, 0.8), make_trial("a", 1, 0.81)],
            [make_trial("b", 0, 0.95), make_trial("b", 1, 0.3)],
        )
        result = Result.of(Classify(labels=("no", "yes")), [*lucky, *steady])
        assert (result.point, result.best) == ("a", steady[1])
        lower_is_better = Regress(metrics=("mean_squared_error",))
        trials = [make_trial(point, 0, error, "mean_squared_error") for point, error in (("a", 2.0), ("b", 1.0))]
        result = Result.of(lower_is_better, trials)
        assert result.best.point == "b"

    def test_the_model_is_replaced_when_another_trial_turns_out_to_be_the_best(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert finetune("--quiet", "--seeds", "2") == 0
        kept = scores(work / "run")["best"]["seed"]
        file = trial_file(work / "run", f"seed={kept}")
        trial = json.loads(file.read_text(encoding="utf-8"))
        trial["scores"]["dev"]["accuracy"] = 0.0  # as if the median of its point turned out to be lower
        file.write_text(json.dumps(trial), encoding="utf-8")
        assert finetune("--seeds", "2") == 0
        other = 1 - kept
        assert f"seed={other}: is the best after all; training it again" in capsys.readouterr().err
        found = scores(work / "run")["best"]
        assert found["seed"] == other
        assert scores_of_kept_model(work / "run", capsys) == pytest.approx(found["scores"]["dev"])
        assert f"that of seed {other}" in (work / "run" / "README.md").read_text(encoding="utf-8")


def make_trial(point: str, seed: int, score: float, metric: str = "accuracy") -> Trial:
    return Trial(point, seed, {"dev": {metric: score}}, best_step=1, steps=1, seconds=1.0, tokens=1, curve=[])


def test_an_encoder_without_dropout_is_noted_unless_dropout_is_set(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "note: this encoder was pretrained without dropout; with few rows `train.dropout: 0.1` is usually better"
    words = ["finetune", "task.yaml", "--set", "train.epochs=1"]
    assert main([*words, "--output", "its-own"]) == 0
    assert note in capsys.readouterr().err
    for given in ("0.1", "0.0"):
        assert main([*words, "--set", f"train.dropout={given}", "--output", given]) == 0
        assert note not in capsys.readouterr().err
