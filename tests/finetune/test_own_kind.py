"""A plug-in's task kind is trained, saved and used for prediction like a built-in one."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import paddle
import pytest
from support.helpers import ROOT, python, vocabulary

from ernie.cli import main
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel

WORDS = "awful poor fair good great".split()
CONFIG = """
plugins: [grades]
task: {kind: grade, text: review, label: stars, max_len: 16}
data: {train: train.tsv, dev: dev.tsv}
model: encoder
train: {epochs: 16, batch: 10, lr: {peak: 3e-3}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder, and rows whose grade depends on one word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    paddle.seed(0)
    tokenizer = vocabulary(" ".join(WORDS) + " a film it was")
    shape = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "max_positions": 16}
    model = ErnieModel(EncoderConfig(vocab_size=tokenizer.vocab_size, dropout=0.0, attention_dropout=0.0, **shape))
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "encoder")
    rng = random.Random(0)
    for name, count in (("train", 150), ("dev", 40)):
        grades = [rng.randrange(5) for _ in range(count)]
        rows = [f"{rng.choice(['a', 'it was a'])} {WORDS[grade]} film\t{grade + 1}" for grade in grades]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["review\tstars", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "grades.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_it_trains_and_a_new_process_predicts_with_it_as_its_card_says(folder: Path) -> None:
    assert main(["finetune", "grades.yaml", "--output", "run", "--quiet"]) == 0
    scores = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))["scores"]["dev"]
    assert scores["kappa"]["median"] > 0.9
    card = (folder / "run" / "README.md").read_text(encoding="utf-8")
    assert "\n\nThe plug-in `grades` must be on the Python path (PYTHONPATH, or an installed package);" in card
    assert "\nernie predict run --input FILE --plugin grades\n" in card
    assert "\nmodel = TaskModel.load('run', trust_plugins=['grades'])\n" in card
    (folder / "asked.txt").write_text("a great film\nit was a awful film\n", encoding="utf-8")
    rows = (folder / "asked.txt").read_text(encoding="utf-8").splitlines()
    (folder / "asked.tsv").write_text("\n".join(["review", *rows]) + "\n", encoding="utf-8")
    words = ("-m", "ernie.cli", "predict", "run", "--input", "asked.tsv")
    done = python(*words, "--plugin", "grades", cwd=folder, path=[ROOT / "examples"])
    assert [json.loads(line)["grade"] for line in done.stdout.splitlines()] == [5, 1], done.stderr

    def load(trust: str, before: str = "") -> subprocess.CompletedProcess[str]:
        program = folder / "load.py"
        loading = f"from inference.task_model import TaskModel\nmodel = TaskModel.load('run'{trust})\n"
        program.write_text(f"{before}{loading}print(next(model.predict(['a great film'])))\n", encoding="utf-8")
        return python("load.py", cwd=folder, path=[ROOT / "examples"])

    for trust in ("", ", trust_plugins=['marks']", ", trust_plugins=False"):
        done = load(trust)
        assert "task.json: module: asks for code from outside the library: grades. Code can do" in done.stderr
    for trust in (", trust_plugins=['grades']", ", trust_plugins='grades'", ", trust_plugins=True"):
        done = load(trust)
        assert done.stdout == "{'grade': 5}\n", done.stderr
    done = load("", "import grades\n")
    assert done.stdout == "{'grade': 5}\n", "what the user has imported, a run may ask for"

    # Conversion reads a head without its kind's code, so that `ernie convert` has no --plugin.
    done = python("-m", "ernie.cli", "convert", "run", "copy", "--to", "ernie", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = python(*words[:3], "copy", *words[4:], "--plugin", "grades", cwd=folder, path=[ROOT / "examples"])
    assert [json.loads(line)["grade"] for line in done.stdout.splitlines()] == [5, 1], done.stderr
    done = python("-m", "ernie.cli", "convert", "run", "published", "--to", "hf", cwd=folder)
    assert "its head of the kind grade (33 numbers) is not written: the format hf has no class for it" in done.stderr


def test_trials_are_not_reused_after_the_plug_in_was_edited(folder: Path) -> None:
    (folder / "marks.py").write_text(
        (ROOT / "examples" / "grades.py").read_text(encoding="utf-8").replace('task("grade"', 'task("mark"'),
        encoding="utf-8",
    )
    config = (
        CONFIG.replace("[grades]", "[marks]").replace("kind: grade", "kind: mark").replace("epochs: 16", "epochs: 1")
    )
    (folder / "marks.yaml").write_text(config, encoding="utf-8")
    command = ("-m", "ernie.cli", "finetune", "marks.yaml", "--output", "run", "--quiet")
    assert python(*command, cwd=folder, path=[folder]).returncode == 0
    assert python(*command, cwd=folder, path=[folder]).returncode == 0
    with (folder / "marks.py").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    done = python(*command, cwd=folder, path=[folder])
    assert done.returncode == 2
    assert "trained on other inputs under the same name: plugins.marks changed since" in done.stderr


TRUTH = "        return int(grade)\n"
LOSS = '        return squared_error(logits, batch.labels["label"].values)\n'
ANSWER = '        return {"grade": min(max(round(float(logits[0][0])), self.lowest), self.highest)}\n'
KAPPA = '    return float(np.nan_to_num(cohen_kappa_score(labels, predictions, weights="quadratic")))\n'
OUTPUTS = "        return 1\n"


@pytest.fixture
def edit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[str]]:
    """A function that edits the example kind and returns the words that check a run of the edited one."""
    monkeypatch.syspath_prepend(str(folder))

    def edit(line: str, replacement: str) -> list[str]:
        text = (ROOT / "examples" / "grades.py").read_text(encoding="utf-8")
        assert text.count(line) == 1
        name = folder.name  # each test imports a module of its own
        text = text.replace(line, replacement).replace('task("grade"', f'task("{name}"')
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return ["check", "grades.yaml", "--set", f"plugins=[{name}]", "--set", f"task.kind={name}"]

    return edit


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (TRUTH, "        import random\n        return random.random()\n", "KIND: its `target` returns "),
        (TRUTH, "        return None\n", "train.tsv:2: KIND: its `target` returns None; expected the row's target"),
        (TRUTH, "        return grade\n", "train.tsv:2: KIND: its `sample_target` gives the label '"),
        (TRUTH, "        return float('nan')\n", "KIND: its `sample_target` gives the label nan; expected finite"),
        (
            "    sample_target = target\n",
            "    def sample_target(self, row):\n        import random\n        return random.random()\n",
            "train.tsv:2: KIND: its `sample_target` gives something else when called again for the row",
        ),
        (
            "default_metrics: ClassVar = 2",
            "default_metrics: ClassVar = 5",
            "KIND: its `default_metrics` is 5, and it has 2 metrics: kappa, accuracy; expected how many",
        ),
        (
            "    sample_target = target\n",
            "    sample_target = target\n\n    def remarks_on(self, rows):\n        return ['odd']\n",
            "KIND: its `remarks_on` is never called: the kind has to inherit from SplitRemarks, too (of tasks.",
        ),
        (
            "    sample_target = target\n",
            "    sample_target = target\n\n    def adapted_to(self, rows):\n        raise ValueError\n",
            "KIND: its `adapted_to` is never called: the kind has to inherit from DerivesFromRows, too (of tasks.",
        ),
        (LOSS, LOSS.replace("\n", ".total\n"), "KIND: its `loss` gives a Tensor; expected a Loss (of"),
        (
            LOSS,
            "        from ernie.model.losses import Loss\n        return Loss(logits.mean(), 1, None, None)\n",
            "KIND: its loss is a sum over 1 target, and a batch of its samples has 16 labels",
        ),
        (OUTPUTS, "        return 3\n", "KIND: its `loss`: squared_error takes one output per sequence"),
        (
            OUTPUTS,
            "        return 1\n\n    def head(self, model):\n        pass\n",
            "KIND: its `head` returns a NoneType; expected a layer of paddle.nn",
        ),
        (ANSWER, "        return 3\n", "dev.tsv:2: KIND: its `answer` returns 3; expected a dict"),
        (KAPPA, "    pass\n", "KIND: its `kappa` returns None; expected a number"),
    ],
)
def test_a_kind_that_gives_the_wrong_things_is_reported(
    edit: Callable[[str, str], list[str]],
    capsys: pytest.CaptureFixture[str],
    line: str,
    replacement: str,
    message: str,
) -> None:
    words = edit(line, replacement)
    assert main(words) == 2
    assert message.replace("KIND", f"kind '{words[-1].removeprefix('task.kind=')}'") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (TRUTH, "        return {}[grade]\n", r"`target` failed at train.tsv:2: KeyError\('\d'\)"),
        (
            "    sample_target = target\n",
            "    def sample_target(self, row):\n        return {}[1]\n",
            r"`training_example` failed at train.tsv:2: KeyError\(1\)",
        ),
        (LOSS, "        return logits.no_such_thing\n", "`loss` failed: AttributeError"),
        (OUTPUTS, "        return None\n", "`head` failed: TypeError"),
        (
            "self, example: Example, logits: list",
            "self, logits: list",
            r"`answer` failed: TypeError\(.*answer\(\) takes",
        ),
        (ANSWER, '        return {"mark": 1}\n', r"`prediction` failed at dev.tsv:2: KeyError\('grade'\)"),
        (KAPPA, "    return 1 / 0\n", "`kappa` failed: ZeroDivisionError"),
    ],
)
def test_an_exception_in_a_kind_names_its_method_and_the_row(
    edit: Callable[[str, str], list[str]], line: str, replacement: str, message: str
) -> None:
    words = edit(line, replacement)
    with pytest.raises(RuntimeError, match=f"^kind '{words[-1].removeprefix('task.kind=')}': its {message}"):
        main(words)


def test_a_score_that_is_not_finite_is_noted(
    edit: Callable[[str, str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(edit(KAPPA, "    return float('nan')\n")) == 0
    assert "note: kappa is nan on the first 4 rows of dev; no checkpoint is best by that" in capsys.readouterr().out


def test_a_grade_outside_the_scale_is_reported_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("a good film\t6\n")
    assert main(["finetune", "grades.yaml", "--output", "run", "--quiet"]) == 2
    assert "train.tsv:152: grade '6' is not a whole number from 1 to 5" in capsys.readouterr().err
