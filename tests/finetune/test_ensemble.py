"""Several models of a task as one: what a run keeps, how it answers, and which models can be joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ernie.cli import main
from ernie.errors import UserError
from ernie.train.checkpoint import Checkpoints
from inference.loading import load
from inference.predictor import Predictor
from inference.task_model import Ensemble, TaskModel
from tasks.downstream.base import Example, softmax
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.extract import Extract
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.regress import Regress

KEEP = ["--set", "keep=ensemble", "--set", "train.epochs=1", "--set", "train.dropout=0.1"]


def finetune(output: str, *more: str) -> int:
    return main(["finetune", "task.yaml", "--output", output, "--quiet", *KEEP, *more])


def weights(run: Path, member: str) -> dict[str, np.ndarray]:
    folder = run / "model" / member
    return load_file(folder / "model.safetensors") | load_file(folder / "head.safetensors")


class TestMean:
    ONE, OTHER = np.array([2.0, -1.0, 0.5]), np.array([-3.0, 1.0, 4.0])

    def test_is_that_of_the_probabilities_of_classes(self) -> None:
        (mean,) = Classify(labels=("a", "b", "c")).mean_logits([[self.ONE], [self.OTHER]])
        assert softmax(mean) == pytest.approx((softmax(self.ONE) + softmax(self.OTHER)) / 2)

    def test_is_that_of_each_labels_probability(self) -> None:
        (mean,) = MultiLabel(labels=("a", "b", "c")).mean_logits([[self.ONE], [self.OTHER]])
        expected = (1 / (1 + np.exp(-self.ONE)) + 1 / (1 + np.exp(-self.OTHER))) / 2
        assert 1 / (1 + np.exp(-mean)) == pytest.approx(expected)

    def test_is_that_of_numbers(self) -> None:
        assert Regress().mean_logits([[np.array([1.0])], [np.array([4.0])]])[0] == pytest.approx(2.5)

    def test_is_taken_over_the_choices_of_a_row(self) -> None:
        each = [[np.array([score]) for score in scores] for scores in (self.ONE, self.OTHER)]
        mean = np.concatenate(Choose().mean_logits(each))
        assert softmax(mean) == pytest.approx((softmax(self.ONE) + softmax(self.OTHER)) / 2)

    def test_is_taken_over_the_tokens_of_all_windows(self) -> None:
        rng = np.random.default_rng(0)
        one, other = ([rng.normal(size=(n, 2)) for n in (3, 5)] for _ in range(2))
        mean = Extract().mean_logits([one, other])
        assert [len(window) for window in mean] == [3, 5]
        expected = (softmax(np.concatenate(one).T) + softmax(np.concatenate(other).T)) / 2
        assert np.exp(np.concatenate(mean).T) == pytest.approx(expected)

    def test_is_not_finite_where_one_of_them_is_not(self) -> None:
        task = Classify(labels=("a", "b", "c"))
        broken = task.mean_logits([[self.ONE], [np.array([np.inf, 0.0, 0.0])]])
        (answer,) = task.answers_from([Example(())], [broken])
        assert isinstance(answer, UserError)


class TestRun:
    def test_the_models_of_all_seeds_and_folds_are_kept_and_answer_together(self, work: Path) -> None:
        assert finetune("run", "--seeds", "2", "--set", "folds=2", "--set", "grid={peak: [3e-3, 1e-9]}") == 0
        names = [f"peak=0.003,seed={seed},fold={fold}" for seed in (0, 1) for fold in (1, 2)]
        assert sorted(path.name for path in (work / "run" / "model").iterdir() if path.is_dir()) == names
        assert not list((work / "run" / "trials").glob("*/model"))
        model = TaskModel.load(work / "run")
        rows = [{"text": "it was good"}, {"text": "bad bad film"}]
        each = [list(TaskModel.load(work / "run" / "model" / name).predict(rows)) for name in names]
        assert isinstance(model, Ensemble)
        for answer, singles in zip(model.predict(rows), zip(*each, strict=True), strict=True):
            chances = [
                one["probability"] if one["label"] == answer["label"] else 1 - one["probability"] for one in singles
            ]
            assert answer["probability"] == pytest.approx(np.mean(chances), abs=2e-6)
        face = load(work / "run")
        assert isinstance(face, Predictor)
        assert face.facts.weights == 4 * sum(values.size for values in weights(work / "run", names[0]).values())
        found = json.loads((work / "run" / "scores.json").read_text(encoding="utf-8"))
        assert found["kept"]["members"] == names
        assert found["kept"]["scores"].keys() == {"dev", "test"}
        lines = (work / "run" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
        right = [record["label"] == record["right"] for record in map(json.loads, lines)]
        assert found["kept"]["scores"]["dev"]["accuracy"] == pytest.approx(np.mean(right))
        card = (work / "run" / "README.md").read_text(encoding="utf-8")
        assert "models of 2 seeds and 2 folds" in card and "4 times the size and the computing of one" in card
        assert "| dev, ensemble of 4 |" in card

    def test_a_killed_one_goes_on_with_the_models_that_it_has_kept(
        self, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            """Simulates the end of the process."""

        assert finetune("whole", "--seeds", "2") == 0
        write, saves = Checkpoints.save, []

        def save(self: Checkpoints, step: int, *args: Any) -> Path:
            path = write(self, step, *args)
            saves.append(step)
            if len(saves) == 20:  # in the second trial of 16 steps
                raise Killed
            return path

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoints, "save", save)
            finetune("cut", "--seeds", "2", "--set", "save_minutes=1e-9")
        assert (work / "cut" / "trials" / "seed=0" / "model" / "task.json").is_file()
        assert finetune("cut", "--seeds", "2") == 0
        for member in ("seed=0", "seed=1"):
            one, other = (weights(work / run, member) for run in ("cut", "whole"))
            assert all((one[name] == other[name]).all() for name in other)
        assert (work / "cut" / "dev.jsonl").read_bytes() == (work / "whole" / "dev.jsonl").read_bytes()

    def test_what_is_kept_can_be_changed_afterwards(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["finetune", "task.yaml", "--output", "run", "--set", "train.epochs=1", "--seeds", "2"]
        assert main([*words, "--quiet"]) == 0
        assert main([*words, "--set", "keep=ensemble"]) == 0
        assert capsys.readouterr().err.count("is part of the ensemble; training it again") == 1
        assert isinstance(TaskModel.load(work / "run"), Ensemble)
        assert main(words) == 0
        assert "training it again" not in capsys.readouterr().err
        assert not isinstance(TaskModel.load(work / "run"), Ensemble)

    def test_check_tells_the_cost(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "task.yaml", "--set", "keep=ensemble", "--set", "seeds=3"]) == 0
        told = capsys.readouterr().out
        assert "ok: an ensemble of 3 models is kept" in told and "3 times the computing for an answer" in told

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["keep=ensemble"], "keep: ensemble has no effect with one seed and no folds; say how many"),
            (
                ["keep=ensemble", "seeds=2", "task={kind: translate}"],
                "keep: a model of the kind translate has no logits",
            ),
        ],
    )
    def test_a_mistake_is_told_before_training(
        self, work: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
    ) -> None:
        words = [word for item in more for word in ("--set", item)]
        assert main(["finetune", "task.yaml", "--output", "run", *words]) == 2
        assert message in capsys.readouterr().err
        assert not (work / "run").exists()


class TestCommand:
    @pytest.fixture
    def models(self, work: Path) -> Path:
        """The models a, b (with another head) and c (of another kind of rows), beside the run `done`."""
        model = TaskModel.load(work / "done")
        model.save(work / "a")
        model.head.out.bias.set_value(model.head.out.bias + 1.0)
        model.save(work / "b")
        TaskModel(model.ernie, Classify(labels=("blame", "praise", "silence"), max_len=16)).save(work / "labels")
        TaskModel(model.ernie, Regress(max_len=16)).save(work / "kind")
        return work

    def test_it_joins_runs_models_and_ensembles(self, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ensemble", "done", "b", "--output", "both"]) == 0
        assert main(["ensemble", "both", "a", "--output", "three"]) == 0
        model = TaskModel.load(models / "three")
        assert isinstance(model, Ensemble) and len(model.members) == 3
        capsys.readouterr()
        assert main(["evaluate", "three", "--input", "dev.tsv", "--quiet"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["a"], "a: is one model; an ensemble has two or more"),
            (["a", "b", "./a"], "RUN: the same model is given twice"),
            (["a", "kind"], "kind: is of the kind regress, and a of the kind classify"),
            (
                ["a", "labels"],
                "labels: its labels is ['blame', 'praise', 'silence'], and that of a ['blame', 'praise']",
            ),
            (["a", "encoder"], "encoder: holds no fine-tuned model"),
        ],
    )
    def test_models_that_do_not_fit_are_an_error(
        self, models: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
    ) -> None:
        assert main(["ensemble", *words, "--output", "joined"]) == 2
        assert message in capsys.readouterr().err
        assert not (models / "joined").exists()

    def test_another_tokenizer_is_an_error(self, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from support.helpers import vocabulary

        model = TaskModel.load(models / "a")
        model.ernie.tokenizer = vocabulary("bad good fine poor it was very the film")
        model.save(models / "other")
        assert main(["ensemble", "a", "other", "--output", "joined"]) == 2
        assert "other: has another tokenizer than a" in capsys.readouterr().err

    def test_what_needs_one_model_says_so(self, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ensemble", "a", "b", "--output", "both"]) == 0
        assert main(["export", "both", "--to", "paddle", "--output", "graph"]) == 2
        assert "both: is an ensemble of 2 models, which is no single graph. Export the folder of one" in (
            capsys.readouterr().err
        )
        (models / "run").mkdir()
        (models / "both").rename(models / "run" / "model")
        for name, members in (("run/model", "member-1, member-2"), ("run", "model/member-1, model/member-2")):
            words = ["finetune", "task.yaml", "--model", name, "--output", "more"]
            assert main([*words, "--set", "head=keep"]) == 2
            assert main(words) == 2
            told = capsys.readouterr().err
            assert told.count(f"did you mean a folder in it: {members}?") == 2

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            (["../a"], "members: there is no folder '../a' beside it"),
            (["."], "members: there is no folder '.' beside it"),
            (["gone"], "members: there is no folder 'gone' beside it"),
            ("member-1", "members: expected a list"),
        ],
    )
    def test_a_damaged_folder_is_an_error(self, models: Path, members: Any, message: str) -> None:
        assert main(["ensemble", "a", "b", "--output", "both"]) == 0
        file = models / "both" / "task.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"members": members}))
        with pytest.raises(UserError) as caught:
            TaskModel.load(models / "both")
        assert message in str(caught.value)
