"""A cross-validation: which rows are in which fold, and what a run of folds writes."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from support.toys import TOYS, tiny_encoder

from ernie.cli import main
from ernie.config import to_dict
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from ernie.model.save import save
from ernie.train.checkpoint import Checkpoints
from finetune.folds import assign_folds
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress

WITHOUT_DEV = ["--set", "data={train: train.tsv, dev: [], test: test.tsv}"]
FOLDS = ["--set", "folds=3", "--set", "train.epochs=2"]


def finetune(output: str, *more: str) -> int:
    return main(["finetune", "task.yaml", "--output", output, "--quiet", *FOLDS, *more])


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def scores(run: Path) -> dict[str, Any]:
    return json.loads((run / "scores.json").read_text(encoding="utf-8"))


def classified(labels: Sequence[str]) -> tuple[Classify, list[Row]]:
    rows = [Row({"text": f"text {number}", "label": label}) for number, label in enumerate(labels)]
    return Classify(labels=tuple(sorted({*labels}))), rows


class TestAssignment:
    def test_every_label_is_spread_evenly_and_so_are_the_rows(self) -> None:
        task, rows = classified(["rare"] * 5 + ["some"] * 21 + ["many"] * 77)
        found = assign_folds(task, rows, 5, "", seed=0)
        assert set(found) == {1, 2, 3, 4, 5}
        for label in task.labels:
            sizes = Counter(int(fold) for fold, row in zip(found, rows, strict=True) if row["label"] == label)
            assert max(sizes.values()) - min(sizes[fold] for fold in range(1, 6)) <= 1
        sizes = Counter(found.tolist())
        assert max(sizes.values()) - min(sizes.values()) <= 2

    def test_no_group_is_in_two_folds_and_the_folds_are_of_about_the_same_size(self) -> None:
        task, rows = classified(["a", "b"] * 60)
        authors = [str(number * number % 37) for number in range(120)]
        for row, author in zip(rows, authors, strict=True):
            row["author"] = author
        found = assign_folds(task, rows, 4, "author", seed=0)
        pairs = {(author, fold) for author, fold in zip(authors, found.tolist(), strict=True)}
        assert len(pairs) == len({*authors})
        sizes = Counter(found.tolist())
        assert len(sizes) == 4
        assert max(sizes.values()) - min(sizes.values()) <= max(Counter(authors).values())

    def test_the_texts_of_a_query_stay_together(self) -> None:
        rows = [Row({"query": f"q{n // 4}", "text": f"t{n}", "label": int(n % 4 == 0)}) for n in range(40)]
        found = assign_folds(Rank(), rows, 5, "", seed=0)
        assert all(len({*found[first : first + 4].tolist()}) == 1 for first in range(0, 40, 4))

    def test_it_depends_on_the_seed_and_on_nothing_else(self) -> None:
        task, rows = classified(["a", "b"] * 30)
        first, again, other = (assign_folds(task, rows, 3, "", seed).tolist() for seed in (0, 0, 1))
        assert first == again != other

    @pytest.mark.parametrize("task", [Regress(scale=(0.0, 1.0)), MultiLabel(labels=("a", "b"))])
    def test_kinds_without_one_label_a_row_have_folds_of_the_same_size(self, task: Any) -> None:
        cells = ["", "a", "a,b"] if isinstance(task, MultiLabel) else ["1", "2", "3"]
        rows = [Row({"text": "t", "label": cells[n % 3], "labels": cells[n % 3]}) for n in range(30)]
        sizes = Counter(assign_folds(task, rows, 3, "", seed=0).tolist())
        assert sorted(sizes) == [1, 2, 3]
        assert max(sizes.values()) - min(sizes.values()) <= 2

    @pytest.mark.parametrize(
        ("folds", "column", "message"),
        [
            (7, "", "folds: train has 6 rows; expected at most as many folds, found 7"),
            (3, "author", "fold_by: column 'author' has 2 different values in train; expected at least one for each"),
            (3, "autor", "fold_by: no row of train has a column 'autor'. Did you mean 'author'?"),
            (2, "gap", "fold_by: train.tsv:4: column 'gap': expected text, found nothing"),
        ],
    )
    def test_what_cannot_be_split_is_an_error_with_the_key(self, folds: int, column: str, message: str) -> None:
        task, plain = classified(["a", "b"] * 3)
        rows = [
            Row({**row, "author": "xy"[number % 2], "gap": ["z", None][number == 2]}, Place("train.tsv", number + 2))
            for number, row in enumerate(plain)
        ]
        with pytest.raises(UserError) as caught:
            assign_folds(task, rows, folds, column, seed=0)
        assert str(caught.value).startswith(message)


class TestRun:
    def test_every_row_of_train_is_answered_by_the_model_that_did_not_see_it(self, work: Path) -> None:
        assert finetune("run", *WITHOUT_DEV, "--set", "train.epochs=5") == 0
        lines = read_lines(work / "run" / "out_of_fold.jsonl")
        assert [line["row"] for line in lines] == [f"train.tsv:{number}" for number in range(2, 162)]
        assert {line["fold"] for line in lines} == {1, 2, 3}
        found = scores(work / "run")
        values = []
        for fold in (1, 2, 3):
            held = [line["label"] == line["right"] for line in lines if line["fold"] == fold]
            values.append(statistics.mean(held))
            steps = read_lines(work / "run" / "trials" / f"seed=0,fold={fold}" / "metrics.jsonl")[-1]["step"]
            assert steps == 5 * -(-(160 - len(held)) // 10)  # batches of the rows of the other folds
        reported = found["scores"]["held_out"]["accuracy"]
        assert reported["values"] == pytest.approx(values)
        assert reported["mean"] == pytest.approx(statistics.mean(values))
        assert reported["deviation"] == pytest.approx(statistics.stdev(values))
        pooled = statistics.mean(line["label"] == line["right"] for line in lines)
        assert max(values) > 0.9  # so that the model that is kept does not answer all rows alike
        assert found["scores"]["out_of_fold"]["accuracy"]["values"] == pytest.approx([pooled])
        assert "dev" not in found["scores"]
        assert len(found["scores"]["test"]["accuracy"]["values"]) == 3
        best = found["best"]["fold"]
        assert values[best - 1] == max(values)
        kept = [line for line in lines if line["fold"] == best]
        texts = (work / "train.tsv").read_text(encoding="utf-8").splitlines()
        rows = [{"text": texts[int(line["row"].partition(":")[2]) - 1].split("\t")[0]} for line in kept]
        answers = [answer["label"] for answer in TaskModel.load(work / "run").predict(rows)]
        assert answers == [line["label"] for line in kept]
        page = (work / "run" / "report.html").read_text(encoding="utf-8")
        for shown in ("fold 3", f"{reported['deviation']:.4f}", f"{pooled:.4f}", "Which labels are taken for which"):
            assert shown in page
        card = (work / "run" / "README.md").read_text(encoding="utf-8")
        assert f"seed 0, trained without fold {best}." in card
        assert "with `--like train` it is read" in card

    def test_checkpoints_are_chosen_on_dev_where_there_is_one_and_seeds_have_folds_of_their_own(
        self, work: Path
    ) -> None:
        assert finetune("run", "--seeds", "2", "--set", "train.epochs=1", "--set", "folds=2") == 0
        found = scores(work / "run")
        assert found["scores"].keys() == {"held_out", "dev", "test", "out_of_fold"}
        for trial in found["trials"]:
            best = max(record["accuracy"] for record in trial["curve"])
            assert trial["scores"]["dev"]["accuracy"] == pytest.approx(best)
        lines = read_lines(work / "run" / "out_of_fold.jsonl")
        folds = [[line["fold"] for line in lines if line["seed"] == seed] for seed in (0, 1)]
        assert [len(each) for each in folds] == [160, 160]
        assert folds[0] != folds[1]

    def test_a_killed_one_goes_on_with_its_fold_and_the_same_result(
        self, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class Killed(BaseException):
            """Simulates the end of the process."""

        more = [*WITHOUT_DEV, "--set", "train.dropout=0.1", "--set", "train.epochs=1"]
        assert finetune("whole", *more) == 0
        write = Checkpoints.save
        saves: list[int] = []

        def save(self: Checkpoints, step: int, *args: Any) -> Path:
            path = write(self, step, *args)
            saves.append(step)
            if len(saves) == 15:  # in the second fold of 11 steps
                raise Killed
            return path

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoints, "save", save)
            finetune("cut", *more, "--set", "save_minutes=1e-9")
        assert (work / "cut" / "trials" / "seed=0,fold=1" / "scores.json").is_file()
        capsys.readouterr()
        assert main(["finetune", "task.yaml", "--output", "cut", *FOLDS, *more]) == 0
        told = capsys.readouterr().err
        assert "seed=0,fold=1: was done before" in told
        assert "seed=0,fold=2: resumes after step 4" in told
        assert scores(work / "cut")["scores"] == scores(work / "whole")["scores"]
        files = ["out_of_fold.jsonl", "model/trial.txt"]
        for name in files:
            assert (work / "cut" / name).read_bytes() == (work / "whole" / name).read_bytes()
        one, other = (load_file(work / run / "model" / "model.safetensors") for run in ("cut", "whole"))
        assert all((one[name] == other[name]).all() for name in other)

    @pytest.mark.parametrize("kind", ["embed", "translate"])
    def test_kinds_without_logits_have_folds_too(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        save(tiny_encoder(), tmp_path / "encoder")
        toy = TOYS[kind]
        lines = (json.dumps(row) for row in toy.rows(24))
        (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
        tree = {
            "task": to_dict(toy.task),
            "data": {"train": "train.jsonl"},
            "model": "encoder",
            "folds": 2,
            "train": {"epochs": 1, "dropout": 0.1},
        }
        (tmp_path / "task.yaml").write_text(json.dumps(tree), encoding="utf-8")
        assert main(["finetune", "task.yaml", "--output", "run", "--quiet"]) == 0
        lines = read_lines(tmp_path / "run" / "out_of_fold.jsonl")
        assert [line["row"] for line in lines] == [f"train.jsonl:{number}" for number in range(1, 25)]
        assert not any("vector" in line for line in lines)
        found = scores(tmp_path / "run")["scores"]
        name = toy.task.scored_by[0]
        sizes = Counter(line["fold"] for line in lines)
        mean = sum(sizes[fold] * value for fold, value in enumerate(found["held_out"][name]["values"], 1)) / 24
        if kind == "embed":  # the vectors of different models are not compared
            assert found["out_of_fold"][name]["values"] == pytest.approx([mean])
            assert "cosine" in lines[0]

    @pytest.mark.parametrize("keep", ["best", "ensemble"])
    def test_what_is_kept_is_calibrated_on_the_rows_held_out_where_there_is_no_dev(
        self, work: Path, capsys: pytest.CaptureFixture[str], keep: str
    ) -> None:
        options = [*WITHOUT_DEV, "--set", "folds=2", "--set", "train.epochs=2", "--set", f"keep={keep}"]
        assert finetune("run", *options) == 0
        raw = (work / "run" / "out_of_fold.jsonl").read_bytes()
        page = (work / "run" / "report.html").read_text(encoding="utf-8")
        assert "how often it came true on the rows that were held out" in page and "How sure the scores are" in page
        assert finetune("run", *options, "--set", "calibrate=[temperature,threshold]") == 0
        kept = scores(work / "run")["kept"]
        fitted = kept["calibration"]
        assert (fitted["split"], fitted["rows"]) == ("out_of_fold", 160)
        pooled = scores(work / "run")["scores"]["out_of_fold"]["accuracy"]["values"]
        assert fitted["before"]["out_of_fold"]["accuracy"] == pytest.approx(pooled[0])
        assert fitted["after"]["out_of_fold"]["log_loss"] < fitted["before"]["out_of_fold"]["log_loss"]
        assert fitted["before"].keys() == {"out_of_fold", "test"}
        task: Any = TaskModel.load(work / "run").task
        assert task.temperature == fitted["temperature"] != 1.0
        page = (work / "run" / "report.html").read_text(encoding="utf-8")
        assert f"calibration error is {fitted['after']['out_of_fold']['ece']:.4f}:" in page
        assert "160 answers to rows of train by models that did not see them" in page
        assert (work / "run" / "out_of_fold.jsonl").read_bytes() == raw
        for file in (work / "run" / "trials").glob("*/held_out-logits.safetensors"):
            file.unlink()
        capsys.readouterr()
        assert finetune("run", *options, "--set", "calibrate=[temperature]") == 2
        assert "lack the logits of the rows that they held out; remove their folders" in capsys.readouterr().err

    def test_check_tells_the_folds_and_needs_no_dev(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "task.yaml", "--set", "folds=3", *WITHOUT_DEV]) == 0
        told = capsys.readouterr().out
        assert "ok: 3 folds of 53 to 54 rows; checkpoints are chosen on the rows that are held out" in told

    def test_labels_of_one_fold_and_texts_of_several_are_noted(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [f"the film was {'very ' * number}good\tpraise\n" * 4 for number in range(6)]
        (work / "train.tsv").write_text("".join(["text\tlabel\n", *rows, "bad\tblame\n"]), encoding="utf-8")
        assert main(["check", "task.yaml", "--set", "folds=3"]) == 0
        told = capsys.readouterr().out
        assert "note: train: label 'blame' is in rows of one fold only, whose model cannot learn it" in told
        assert re.search(
            r"note: held_out: \d+ of \d rows have the text of a row of train, the first at train.tsv:", told
        )

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["folds=0"], "folds: expected at least 2, or 1 for none, found 0"),
            (["folds=161"], "folds: train has 160 rows; expected at most as many folds, found 161"),
            (["fold_by=text"], "fold_by: has no effect without folds; say how many, as in folds: 5"),
            (["folds=3", "fold_by=label"], "fold_by: column 'label' has 2 different values in train"),
            (["folds=2", "data.more={held_out: test.tsv}"], "data.more: 'held_out' is what rows of a cross-"),
            (["folds=2", "task={kind: synthesize}"], "folds: a model of the kind synthesize answers in sound"),
            (["folds=2", "task={kind: embed, simcse: true}"], "folds: task.simcse learns from single texts"),
            (["seeds=2", "keep=ensemble", "task={kind: embed}"], "those of different models have no mean"),
        ],
    )
    def test_a_mistake_is_told_before_training(
        self, work: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
    ) -> None:
        shutil.rmtree(work / "done")
        words = [word for item in more for word in ("--set", item)]
        assert main(["finetune", "task.yaml", "--output", "run", *words]) == 2
        assert message in capsys.readouterr().err
        assert not (work / "run").exists()
