"""A translator's run reports latency and quality at several distances."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from support.toys import TOYS, tiny_encoder

from ernie.cli import main
from ernie.decode.wait_k import WaitK
from inference.commands.translate_lines import by_word
from inference.task_model import TaskModel
from inference.translator import TextTranslator

CONFIG = """\
task: {kind: translate, max_len: 16, wait_k: [2, 1], label_smoothing: 0.0, layers: 1}
data: {train: train.tsv, dev: dev.tsv}
model: encoder
train: {epochs: 4, batch: 16, lr: {peak: 4e-3}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a translator trained to stay one or two tokens behind."""
    folder = tmp_path_factory.mktemp("latency")
    tiny_encoder(32).save_pretrained(folder / "encoder")
    for seed, (name, count) in enumerate({"train": 240, "dev": 30}.items()):
        rows = [f"{row['source']}\t{row['target']}\n" for row in TOYS["translate"].rows(count, seed)]
        (folder / f"{name}.tsv").write_text("".join(["source\ttarget\n", *rows]), encoding="utf-8")
    (folder / "task.yaml").write_text(CONFIG, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["finetune", "task.yaml", "--output", "run", "--quiet"]) == 0
    return folder / "run"


def test_the_lag_grows_with_the_distance(run: Path) -> None:
    points = json.loads((run / "latency.json").read_text())
    assert [point["wait_k"] for point in points] == [1, 2, 3, 5, 7, 9, None]
    lags = [point["latency"]["lagging"] for point in points]
    assert lags == sorted(lags)
    assert lags[0] < lags[1] < lags[2]
    assert [point["wait_k"] for point in points if point["trained"]] == [1, 2]
    assert all(point["seconds"] > 0 for point in points)


def test_the_score_at_the_default_distance_is_the_reported_one(run: Path) -> None:
    points = {point["wait_k"]: point for point in json.loads((run / "latency.json").read_text())}
    (trial,) = json.loads((run / "scores.json").read_text())["trials"]
    assert points[2]["score"] == pytest.approx(trial["scores"]["dev"]["bleu"])
    assert points[2]["rows"] == 30


def test_the_lag_is_measured_against_the_reference_and_does_not_count_the_end_token(run: Path) -> None:
    """Every word is one token, and a translation has as many as its source: poor training cannot look like low lag."""
    points = {point["wait_k"]: point["token_latency"] for point in json.loads((run / "latency.json").read_text())}
    words = [len(row["source"].split()) for row in TOYS["translate"].rows(30, 1)]
    assert points[None]["lagging"] == pytest.approx(sum(words) / 30)
    assert points[2]["lagging"] == pytest.approx(2, abs=0.35)  # sources of one word lag by one


def test_the_lag_in_words_is_that_of_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The curve shows what a reader of `ernie translate --show-latency` sees, not what the policy would allow."""
    points = {point["wait_k"]: point for point in json.loads((run / "latency.json").read_text())}
    model = TaskModel.load(run)
    lines = "".join(f"{row['source']}\n" for row in TOYS["translate"].rows(30, 1))
    for k in (1, 3):
        report = StringIO()
        by_word(TextTranslator(model, WaitK(k)), StringIO(lines), StringIO(), report)
        mean = re.search(r"mean of 30 lines: AL ([\d.]+), LAAL [\d.]+, DAL ([\d.]+), AP ([\d.]+)", report.getvalue())
        assert mean is not None
        measured = points[k]["latency"]  # AL is against references there; DAL and AP need none
        assert measured["differentiable"] == pytest.approx(float(mean[2]), abs=0.006)
        assert measured["proportion"] == pytest.approx(float(mean[3]), abs=0.006)
        assert measured["lagging"] > points[k]["token_latency"]["lagging"]  # a word is written when the next one begins


def test_the_report_plots_the_curve(run: Path) -> None:
    assert (run / "report" / "latency.png").is_file()
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Latency and quality" in page
    assert "over 30 rows of dev" in page
    assert "LAAL" in page


def test_the_scores_name_the_signature_of_bleu(run: Path) -> None:
    signatures = json.loads((run / "scores.json").read_text())["signatures"]
    assert signatures["dev"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    for page in ("README.md", "report.html"):
        assert f"Signature of bleu: {signatures['dev']['bleu']}" in (run / page).read_text(encoding="utf-8")
