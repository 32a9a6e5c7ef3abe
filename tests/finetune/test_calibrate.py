"""What is fitted on dev after training: a temperature and thresholds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.cli import main
from ernie.errors import UserError
from finetune.calibrate import fit_temperature, fit_threshold
from inference.task_model import TaskModel
from tasks.downstream.base import Example, softmax
from tasks.downstream.calibration import calibration_error, log_loss, reliability
from tasks.downstream.classify import Classify
from tasks.downstream.metrics import macro_f1
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.scoring import score_answers

BOTH = ["--set", "calibrate=[temperature,threshold]", "--set", "train.epochs=3"]


def drawn(count: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and right classes that are drawn from their softmax."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (count, classes))
    targets = [rng.choice(classes, p=each) for each in softmax(logits)]
    return logits, np.array(targets)


def two(probabilities: np.ndarray) -> np.ndarray:
    """Probabilities of two classes, given those of the second."""
    return np.stack([1 - probabilities.ravel(), probabilities.ravel()], -1)


class TestTemperature:
    @pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
    def test_undoes_a_factor_on_logits_that_were_calibrated(self, factor: float) -> None:
        logits, targets = drawn(4000)
        assert fit_temperature(factor * logits, targets) == pytest.approx(factor, rel=0.06)

    def test_has_the_smallest_log_loss(self) -> None:
        logits, targets = drawn(300)
        best = fit_temperature(logits, targets)
        least = log_loss(logits, targets, best)
        assert all(least <= log_loss(logits, targets, best * other) for other in (0.5, 0.9, 1.1, 2.0))

    def test_is_bounded_where_nothing_is_wrong(self) -> None:
        assert fit_temperature(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 1])) == 0.05

    def test_log_loss_is_that_of_scikit_learn(self) -> None:
        from sklearn.metrics import log_loss as known

        logits, targets = drawn(50)
        assert log_loss(logits, targets, 2.0) == pytest.approx(known(targets, softmax(logits / 2), labels=[0, 1, 2]))


class TestCalibrationError:
    def test_is_that_of_an_example_by_hand(self) -> None:
        probabilities, hits = np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, False, True, True])
        assert reliability(probabilities, hits) == [(0.55, 1.0, 2), (0.95, 0.5, 2)]
        assert calibration_error(probabilities, hits) == pytest.approx(0.45)

    def test_is_small_for_drawn_answers_and_large_for_sure_ones(self) -> None:
        logits, targets = drawn(4000)
        answers = logits.argmax(-1)
        errors = [calibration_error(softmax(factor * logits).max(-1), answers == targets) for factor in (1.0, 5.0)]
        assert errors[0] < 0.03 < 0.1 < errors[1]


class TestThreshold:
    def test_is_the_best_one_by_the_deciding_metric(self) -> None:
        task = Classify(labels=("no", "yes"), metrics=("f1",))
        probabilities, targets = np.array([0.1, 0.2, 0.3, 0.4]), [0, 0, 1, 1]
        assert fit_threshold(task, two(probabilities), targets) == pytest.approx(0.25)

    def test_stays_at_a_half_where_that_is_as_good(self) -> None:
        task = Classify(labels=("no", "yes"))
        assert fit_threshold(task, two(np.array([0.1, 0.2, 0.8, 0.9])), [0, 0, 1, 1]) == 0.5

    def test_is_one_for_each_label_by_macro_f1_and_else_one_for_all(self) -> None:
        probabilities = np.array([[0.2, 0.9], [0.1, 0.6], [0.3, 0.7], [0.05, 0.95]])
        targets = [np.array(each) for each in ([1, 1], [0, 0], [1, 0], [0, 1])]
        each = fit_threshold(MultiLabel(labels=("a", "b"), metrics=("macro_f1",)), two(probabilities), targets)
        assert each == {"a": pytest.approx(0.15), "b": pytest.approx(0.8)}
        one = fit_threshold(MultiLabel(labels=("a", "b"), metrics=("micro_f1",)), two(probabilities), targets)
        assert isinstance(one, float)

    def test_of_several_classes_raises_macro_f1_where_a_rare_one_is_never_the_most_probable(self) -> None:
        rng = np.random.default_rng(0)
        targets = rng.choice(3, 300, p=[0.6, 0.3, 0.1])
        logits = np.log([0.6, 0.3, 0.1]) + np.eye(3)[targets] + rng.normal(0, 0.5, (300, 3))
        task = Classify(labels=("a", "b", "c"), metrics=("macro_f1", "accuracy"))
        found = fit_threshold(task, softmax(logits), targets.tolist())
        assert isinstance(found, dict) and found.keys() == {"a", "b", "c"}
        fitted = replace(task, threshold=found)
        before, after = (
            [each.prediction(each.answer(Example(()), [row])) for row in logits] for each in (task, fitted)
        )
        assert macro_f1(targets.tolist(), after) > macro_f1(targets.tolist(), before) + 0.05
        assert 2 in after and after == (softmax(logits) / [*found.values()]).argmax(1).tolist()

    def test_of_several_classes_stays_where_no_answer_is_wrong(self) -> None:
        task = Classify(labels=("a", "b", "c"), metrics=("macro_f1",))
        assert fit_threshold(task, np.eye(3) * 0.4 + 0.2, [0, 1, 2]) == {"a": 0.5, "b": 0.5, "c": 0.5}

    def test_decides_what_is_answered(self) -> None:
        logits = [np.log(np.array([0.7, 0.3]))]
        answers = [
            Classify(labels=("no", "yes"), threshold=each).answer(Example(()), logits) for each in (None, 0.25, 0.35)
        ]
        assert [(each["label"], each["probability"]) for each in answers] == [("no", 0.7), ("yes", 0.3), ("no", 0.7)]
        several = MultiLabel(labels=("a", "b"), threshold={"b": 0.2}).answer(Example(()), [np.array([-0.5, -0.5])])
        assert several["labels"] == ["b"]

    def test_of_ranking_changes_f1_and_says_what_is_relevant(self) -> None:
        from ernie.data.labeled.row import Row

        task = Rank(metrics=("mrr", "f1"), threshold=0.2)
        rows = [Row({"query": "q", "text": "t", "label": label}) for label in ("1", "0")]
        answers = [task.answer(Example(()), [np.log(np.array([1 - p, p]))]) for p in (0.3, 0.1)]
        assert [each["relevant"] for each in answers] == [True, False]
        for judge in (task, replace(task, threshold=None)):  # as where answers of two runs are compared
            assert score_answers(judge, rows, answers) == {"mrr": 1.0, "f1": 1.0}

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Classify(labels=("a", "b"), threshold=1.0), "threshold: expected a probability between 0 and 1"),
            (lambda: Classify(labels=("a", "b", "c"), threshold=0.5), "threshold: one number is for two labels"),
            (lambda: Classify(labels=("a", "b"), threshold={"b": 0.5}), "threshold: of two labels, give one number"),
            (lambda: Classify(labels=("a", "b", "c"), threshold={"d": 0.5}), "threshold.d: there is no such label"),
            (lambda: MultiLabel(labels=("a", "b"), threshold={"c": 0.5}), "threshold.c: there is no such label"),
            (lambda: MultiLabel(threshold={"c": 2.0}), "threshold.c: expected a probability between 0 and 1"),
            (lambda: Rank(threshold=0.0), "threshold: expected a probability between 0 and 1"),
            (lambda: Rank(temperature=0.0), "temperature: expected a number above 0, found 0"),
        ],
    )
    def test_a_mistake_is_an_error(self, make: Any, message: str) -> None:
        with pytest.raises(UserError) as caught:
            make()
        assert message in str(caught.value)


class TestRun:
    def test_what_is_fitted_is_kept_reported_and_found_again(self, work: Path) -> None:
        def finetune(*more: str) -> dict[str, Any]:
            assert main(["finetune", "task.yaml", "--output", "run", "--quiet", *more]) == 0
            return json.loads((work / "run" / "scores.json").read_text(encoding="utf-8"))

        kept = finetune(*BOTH)["kept"]
        calibration = kept["calibration"]
        model = TaskModel.load(work / "run")
        assert isinstance(model.task, Classify)
        assert model.task.temperature == calibration["temperature"] != 1
        assert model.task.threshold == calibration["threshold"]
        assert calibration["rows"] == 50 and calibration["before"].keys() == {"dev", "test"}
        assert calibration["after"]["dev"]["accuracy"] == kept["scores"]["dev"]["accuracy"]
        assert calibration["after"]["dev"]["accuracy"] >= calibration["before"]["dev"]["accuracy"]
        assert calibration["after"]["dev"]["log_loss"] < calibration["before"]["dev"]["log_loss"]
        card = (work / "run" / "README.md").read_text(encoding="utf-8")
        assert "## Calibration" in card and "Fitted on the 50 rows of dev: temperature:" in card
        task = (work / "run" / "model" / "task.json").read_bytes()
        assert finetune(*BOTH)["kept"]["calibration"] == calibration
        assert (work / "run" / "model" / "task.json").read_bytes() == task
        assert "kept" not in finetune("--set", "train.epochs=3")
        assert TaskModel.load(work / "run").task.threshold is None  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (
                ["calibrate=[temperature]", "task={kind: regress}"],
                "a model of the kind regress decides among no classes",
            ),
            (["calibrate=[threshold]", "task={kind: tag}"], "calibrate: a model of the kind tag has no threshold"),
            (
                ["calibrate=[threshold]", "task={kind: rank, metrics: [mrr]}"],
                "threshold changes none of the metrics mrr",
            ),
            (["calibrate=[temperature]", "data.dev=[]"], "calibrate: is fitted on dev, or on the rows that folds hold"),
            (["calibrate=[threshold,threshold]", "seeds=1"], "calibrate: a name is listed twice"),
            (["calibrate=[threshold]", "task.threshold=0.4"], "task.threshold: is fitted after training, as calibrate"),
        ],
    )
    def test_a_mistake_is_told_before_training(
        self, work: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
    ) -> None:
        if "rank" in more[1]:
            for name in ("train", "dev", "test"):
                (work / f"{name}.tsv").write_text("query\ttext\tlabel\ngood\tfilm\t1\ngood\tbad\t0\n")
        words = [word for item in more for word in ("--set", item)]
        assert main(["finetune", "task.yaml", "--output", "run", *words]) == 2
        assert message in capsys.readouterr().err
        assert not (work / "run").exists()

    def test_check_says_what_will_be_fitted(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "task.yaml", *BOTH]) == 0
        assert "ok: fitted on dev after training: temperature, threshold" in capsys.readouterr().out

    def test_a_conversion_says_what_other_libraries_do_without(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = TaskModel.load(work / "done")
        model.change_decoding(temperature=2.5, threshold=0.3)
        model.save(work / "calibrated")
        assert main(["convert", "calibrated", "converted", "--to", "hf"]) == 0
        told = capsys.readouterr().err
        assert "its temperature of 2.5 is this library's own" in told
        assert "its threshold of 0.3 is this library's own" in told
