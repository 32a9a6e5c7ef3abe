"""`ernie check` lists what it checked, fails with a message for an error, and prints a note for what is only odd."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from support.toys import TOKENIZER, TOYS

from ernie import ErnieModel
from ernie.cli import main
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.text.train import train_sentencepiece
from finetune.check_config import described_example
from inference.rows import input_rows
from tasks.downstream.translate import Translate

TRANSLATION = (
    *("--set", "task={kind: translate, max_len: 16, layers: 1}"),
    *("--set", "data={train: pairs.tsv, dev: pairs.tsv, test: []}"),
)
TWO = "text\tlabel\ngood film\tpraise\nbad film\tblame\n"


def test_every_check_is_listed_and_one_row_is_shown_as_the_model_sees_it(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "two.tsv").write_text(TWO, encoding="utf-8")
    assert main(["check", "task.yaml", "--set", "data.train=two.tsv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "ok: task.yaml has no unknown or mistyped key",
        "ok: encoder is an encoder of 1 layer, width 32",
        "ok: its 32 positions are enough for samples of 16 tokens",
        "ok: train: 2 rows, 8 tokens, longest 4",
        *(line for line in lines if line.startswith(("ok: dev: 50 rows, ", "ok: test: 30 rows, "))),
    ]
    assert "ok: labels: blame, praise" in lines
    assert "ok: of train: blame 1 (50%), praise 1 (50%) of 2 rows" in lines
    assert "ok: scored by accuracy; the first decides" in lines
    assert lines[-4:-1] == [
        "the first row of train, two.tsv:2, as the model sees it:",
        "  sample 1 of 1: 4 tokens, label 1",
        "    [CLS] good film [SEP]",
    ]
    assert lines[-1].startswith("ok: one step on 2 rows and a scoring of 4: loss 0.")
    # No run was started.
    assert sorted(path.name for path in work.iterdir() if path.suffix == "") == ["done", "encoder"]


def test_what_the_loss_makes_of_the_rows_is_listed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [({"praise": 0.75, "blame": 0.25}, 1), ("blame", 2), ({"praise": 0, "blame": 0.9, "none": 0.1}, 1)]
    lines = [json.dumps({"text": "good film", "label": label, "w": weight}) for label, weight in cells]
    (work / "it.jsonl").write_text("\n".join(lines), encoding="utf-8")
    settings = "task={class_weights: balanced, row_weight: w, label_smoothing: 0.1, focal_gamma: 2}"
    assert main(["check", "task.yaml", "--set", "data.train=it.jsonl", "--set", settings]) == 0
    out = capsys.readouterr().out
    parts = np.array([[0.25, 0, 0.75], [2, 0, 0], [0.9, 0.1, 0]])  # of blame, none, praise
    weights = 4 / (3 * parts.sum(0))
    rows = parts @ weights / (parts @ weights).mean()
    assert [line for line in out.splitlines() if "weight" in line or "soft" in line or ": gamma" in line] == [
        "ok: soft labels: 2 of 3 rows are divided among several labels",
        "ok: class weights: "
        + ", ".join(f"{n} {w:.4g}" for n, w in zip(["blame", "none", "praise"], weights, strict=True)),
        "ok: focal loss: gamma 2",
        "ok: row weights: column 'w', divided by their mean",
        f"ok: weights of a row: {rows.min():.4g} to {rows.max():.4g}, mean 1; effective number of rows: "
        f"{9 / (rows**2).sum():.1f} of 3",
        f"  sample 1 of 1: 4 tokens, label [[0.25, 0.0, 0.75]], weight {1 / (parts @ weights).mean():.4g}",
    ]
    assert "does not occur in train" not in out


@pytest.mark.parametrize(
    ("override", "content", "message"),
    [
        ("model=''", "", "model: which encoder? Give --model, or the key `model`"),
        ("model=nowhere/at/all/x", "", "nowhere/at/all/x: there is no such folder"),
        ("model=bare", "", "bare: has no tokenizer; put its vocabulary into its folder 'tokenizer'"),
        ("task.max_len=33", "", "task.max_len: 33 tokens, but encoder has 32 positions"),
        ("task.text=review", "", "train.tsv:2: there is no column 'review'. Known: label, text."),
        ("task.text_pair=other", "", "train.tsv:2: there is no column 'other'. Known: label, text."),
        ("task.labels=[a, b]", "", "label 'praise' is not one of a, b"),
        ("data.dev=it.tsv", TWO + "odd film\tgrumble\n", "it.tsv:4: label 'grumble' is not one of blame, praise"),
        ("data.train=nothing.tsv", "", "nothing.tsv: there is no such file or folder"),
        ("data.train=it.tsv", "", "it.tsv: there are no rows"),
        ("data.dev=it.tsv", "text\tlabel\n", "it.tsv: there are no rows"),
        ("data.train=it.tsv", "text\ngood film\n", "data.train: there is no column 'label' to learn from"),
        ("data.train=it.tsv", "good film\tpraise\nbad film\tblame\n", "or with data.columns where no line of the file"),
        ("data.dev=it.tsv", "text\ngood film\n", "data.dev: there is no column 'label' to judge by"),
        ("data.dev=[]", "", "data.dev: fine-tuning needs a labeled dev split"),
        ("data.train=[]", "", "data.train: fine-tuning needs a labeled train split"),
        ("data.train=it.tsv", TWO + "film\n", "it.tsv:4: has 1 cell, expected 2: text, label"),
        ("data.train=it.tsv", TWO + "film\t\n", "it.tsv:4: there is no label; rows without one can be left out"),
        (
            "data.train=it.tsv",
            TWO.replace("praise", "blame"),
            "at least two different ones, the rows have blame",
        ),
        ("task.kind=tag", "", "data.train: there is no column 'tag' to learn from"),
        ("task={kind: tag, tags: label}", "", "train.tsv:2: column 'label': expected a list of tags, found '"),
        ("task.metrics=[acc]", "", "metrics: classify has no metric 'acc'. Known: accuracy"),
    ],
)
def test_errors_are_reported(
    work: Path, capsys: pytest.CaptureFixture[str], override: str, content: str, message: str
) -> None:
    (work / "it.tsv").write_text(content, encoding="utf-8")
    shutil.copytree(work / "encoder", work / "bare")
    shutil.rmtree(work / "bare" / "tokenizer")
    (work / "bare" / "sha256.json").unlink()  # which names the missing file
    assert main(["check", "task.yaml", "--set", override]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("ernie: error: ")
    assert message in captured.err
    assert "one step" not in captured.out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("folds: 999", "folds: train has 160 rows; expected at most as many folds, found 999"),
        ("layers: 2", "layers: expected a number from 1 to 1, as many as encoder has, found 2"),
        ("train.freeze: 3", "train.freeze: expected at most the encoder's 1 layer, found 3"),
        ("task.class_weights: {good: 2}", "class_weights.good: there is no such label. Known: blame, praise."),
    ],
)
def test_an_error_of_a_key_that_only_the_rows_or_the_encoder_show_names_its_line(
    work: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    text = (work / "task.yaml").read_text(encoding="utf-8")
    tree, (key, _, value) = yaml.safe_load(text), line.partition(": ")
    *parents, last = key.split(".")
    block = tree
    for parent in parents:
        block = block[parent]
    block[last] = yaml.safe_load(value)
    written = yaml.safe_dump(tree)
    (work / "task.yaml").write_text(written, encoding="utf-8")
    number = next(i for i, found in enumerate(written.splitlines(), 1) if found.strip().startswith(f"{last}:"))
    number += last == "class_weights"  # the label's own line
    assert main(["check", "task.yaml"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"ernie: error: task.yaml:{number}: {sentence}"


def test_an_error_of_a_key_that_was_overridden_names_the_option(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "task.yaml", "--set", "folds=999"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ernie: error: --set: folds: train has 160 rows;")


def test_a_folder_that_is_called_like_a_block_is_not_taken_for_it(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "task.yaml", "--model", "data"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ernie: error: data: there is no")


def test_a_split_with_the_texts_of_train_is_noted(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "new.tsv").write_text("text\tlabel\ngood bad bad good\tpraise\nbad good bad\tblame\n", encoding="utf-8")
    assert main(["check", "task.yaml", "--set", "data.dev=new.tsv"]) == 0
    assert "of a row of train" not in capsys.readouterr().out
    assert main(["check", "task.yaml", "--set", "data.dev=train.tsv"]) == 0
    note = "note: dev: 160 of 160 rows have the text of a row of train, the first at train.tsv:2; scores on them say"
    assert note in capsys.readouterr().out


def test_errors_in_several_splits_are_reported_together(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "dev.tsv").write_text(TWO + "film\n", encoding="utf-8")
    (work / "test.tsv").write_text(TWO + "film\tpraise\tx\n", encoding="utf-8")
    assert main(["check", "task.yaml"]) == 2
    err = capsys.readouterr().err
    assert "dev.tsv:4: has 1 cell" in err
    assert "test.tsv:4: has 3 cells" in err
    assert "(a run can do without the split test: take it out)" in err


def test_notes_on_the_learning_rate_are_about_the_run_and_not_about_the_trial_step(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ["--set", "train={epochs: 3, batch: 32}"]  # 160 rows: 15 steps
    assert main(["check", "task.yaml", *steps, "--set", "train.lr.warmup=12"]) == 0
    captured = capsys.readouterr()
    assert "warms up" not in captured.out + captured.err
    assert main(["check", "task.yaml", *steps, "--set", "train.lr.warmup=20"]) == 0
    captured = capsys.readouterr()
    assert "note: the learning rate warms up for 20 steps, but there are only 15: it does not" in captured.out
    assert "warms up" not in captured.err


def test_a_rate_that_is_too_high_is_reported_without_the_warm_up_that_the_trial_step_lacks(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "task.yaml", "--set", "train.lr.peak=1e30"]) == 1
    err = capsys.readouterr().err
    assert "a learning rate that is too high (train.lr.peak is 1e+30) and an encoder with damaged weights." in err
    assert main(["finetune", "task.yaml", "--output", "run", "--quiet", "--set", "train.lr.peak=1e30"]) == 1
    assert "a warm-up that is too short (train.lr.warmup is 0.1) and an encoder" in capsys.readouterr().err


def test_pairs_need_an_encoder_with_two_segments(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = json.loads((work / "encoder" / "config.json").read_text())
    model = ErnieModel(EncoderConfig(**{**settings, "segments": 1, "task_vocab_size": 0}))
    model.tokenizer = ErnieModel.from_pretrained(work / "encoder").tokenizer
    model.save_pretrained(work / "single")
    pairs = ["--set", "task.text_pair=text", "--model", "single"]
    assert main(["check", "task.yaml", *pairs]) == 2
    assert "model: single has 1 segment embedding, and the rows of this task, which" in capsys.readouterr().err
    assert main(["finetune", "task.yaml", *pairs, "--output", "run"]) == 2
    assert "model: single has 1 segment embedding" in capsys.readouterr().err
    assert main(["check", "task.yaml", "--model", "single", "--set", "train.task_id=1"]) == 2
    assert "train.task_id: expected 0, as single has no task embeddings, found 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("targets", "note"),
    [
        (
            ["A film", "a film"],
            "capitals in a translation, which BLEU counts and this vocabulary never writes, the first at pairs.tsv:2",
        ),
        (
            ["the film", "the fílm"],
            "a translation that this vocabulary writes with other spaces or accents, which BLEU counts, the first at "
            "pairs.tsv:3",
        ),
    ],
    ids=["capitals", "accents"],
)
def test_translations_that_the_vocabulary_cannot_write_are_noted(
    work: Path, capsys: pytest.CaptureFixture[str], targets: list[str], note: str
) -> None:
    rows = "".join(f"the film\t{target}\n" for target in targets)
    (work / "pairs.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")
    assert main(["check", "task.yaml", *TRANSLATION]) == 0
    assert f"note: train: 1 row with {note}" in capsys.readouterr().out.splitlines()


def test_a_vocabulary_of_a_different_script_than_the_translations_is_refused(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for targets, status in ((("一部", "影片", "film"), 2), (("一", "film", "film"), 0)):
        rows = "".join(f"a film\t{target}\n" for target in targets)
        (work / "pairs.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")
        assert main(["check", "task.yaml", *TRANSLATION]) == status
    captured = capsys.readouterr()
    assert "data.train: of the 5 tokens of the column 'target' the vocabulary does not know 4: it was" in captured.err
    assert "note: train: 1 row with a translation that the vocabulary lacks characters of" in captured.out
    (work / "pairs.tsv").write_text("source\ttarget\n影片\ta film\n", encoding="utf-8")
    assert main(["check", "task.yaml", *TRANSLATION]) == 2
    assert "tokens of the column 'source' the vocabulary does not know" in capsys.readouterr().err


def test_the_mark_before_an_unknown_word_does_not_count_as_known(tmp_path: Path) -> None:
    words = ["the film was good", "a bad film", "it was fine and poor"] * 40
    tokenizer = train_sentencepiece(words, vocab_size=28, lowercase=True, folder=tmp_path)
    task = TOYS["translate"].task
    assert isinstance(task, Translate)

    def check_target(text: str) -> None:
        row = Row({task.text: "the film", task.label: text})
        task.check_examples([task.training_example(row, tokenizer)], tokenizer)

    check_target("the film was good играет")
    with pytest.raises(UserError, match=r"of the 4 tokens of the column '.*' the vocabulary does not know 4: it"):
        check_target("девушка играет на пианино")


def test_rows_that_a_task_cannot_use_are_skipped_like_faulty_ones(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["a film\ta film\n", "a film\t \n", "film\tfilm\n", "film\t\n"]
    (work / "pairs.tsv").write_text("source\ttarget\n" + "".join(rows), encoding="utf-8")
    assert main(["check", "task.yaml", *TRANSLATION]) == 2
    assert "pairs.tsv:3: column 'target': the translation is empty" in capsys.readouterr().err
    assert main(["check", "task.yaml", *TRANSLATION, "--set", "data.faulty=skip"]) == 0
    out = capsys.readouterr().out
    skipped = "2 rows left out, as 'faulty' asks, the first at pairs.tsv:3: column 'target': the translation is empty"
    assert f"note: train: {skipped}" in out.splitlines()
    assert "train: 2 rows" in out


@pytest.mark.parametrize(
    ("override", "content", "note"),
    [
        (
            "data.dev=it.tsv",
            TWO + "odd film\tgrumble\n",
            "note: dev: label 'grumble' (1 row, the first at it.tsv:4) does not occur in train: it cannot be learned",
        ),
        (
            "data.train=it.tsv",
            TWO.replace("film", "film " * 20),
            "note: train: every row cut to max_len 16, the first at it.tsv:2; 14 tokens not seen",
        ),
        (
            "data.train=it.tsv",
            TWO + "very " * 15 + "\tpraise\n",
            "note: train: 1 of 3 rows cut to max_len 16, the first at it.tsv:4; 1 token not seen",
        ),
        (
            "data.dev=it.tsv",
            TWO + "odd\tpraise\nodd\tblame\nodd \tblame\nodd\tblame\n",
            "note: dev: 2 rows with exactly the text of an earlier row and a different label, the first at it.tsv:5, "
            "with that of it.tsv:4",
        ),
        (
            "data.train=it.tsv",
            TWO + "very " * 60_000 + "\tpraise\n",
            "note: train: 1 of 3 rows cut to max_len 16, the first at it.tsv:4; at least 19,987 tokens not seen",
        ),
        (
            "data.train=it.tsv",
            TWO + " \tpraise\n",
            "note: train: 1 row with a text without any token, the first at it.tsv:4; kept as they are",
        ),
    ],
)
def test_unusual_data_is_noted(
    work: Path, capsys: pytest.CaptureFixture[str], override: str, content: str, note: str
) -> None:
    (work / "it.tsv").write_text(content, encoding="utf-8")
    labels = "task.labels=[blame, praise, grumble]"
    assert main(["check", "task.yaml", "--set", override, "--set", labels]) == 0
    assert note in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("labels", "blame", "praise"), [("[0, 1]", "0", "1"), ("[false, True]", "false", "True")])
def test_labels_may_be_numbers_or_booleans_as_written_in_the_files(
    work: Path, capsys: pytest.CaptureFixture[str], labels: str, blame: str, praise: str
) -> None:
    for name in ("train", "dev", "test"):
        text = (work / f"{name}.tsv").read_text(encoding="utf-8")
        text = text.replace("\tblame", f"\t{blame}").replace("\tpraise", f"\t{praise}")
        (work / f"{name}.tsv").write_text(text, encoding="utf-8")
    assert main(["check", "task.yaml", "--set", f"task.labels={labels}"]) == 0
    assert f"ok: labels: {blame}, {praise}" in capsys.readouterr().out


def test_a_split_whose_label_column_is_empty_is_unlabeled(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "test.tsv").write_text("text\tlabel\na good film\t\na bad film\t\n", encoding="utf-8")
    assert main(["check", "task.yaml"]) == 0
    assert "ok: test: 2 rows, 10 tokens, longest 5, without labels" in capsys.readouterr().out


def test_a_header_line_that_is_read_as_a_row_is_noted(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns are configured, but the file still begins with other names."""
    lines = (work / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (work / "train.tsv").write_text("".join(lines[1:]), encoding="utf-8")
    (work / "odd.tsv").write_text("review\tverdict\n" + "".join(lines[1:]), encoding="utf-8")
    (work / "odd.yaml").write_text(
        "task: {kind: classify, max_len: 16}\nmodel: encoder\n"
        "data: {train: odd.tsv, dev: train.tsv, columns: [text, label]}\n",
        encoding="utf-8",
    )
    assert main(["check", "odd.yaml"]) == 0
    note = "note: train: label 'verdict' occurs only at odd.tsv:1, the first line of its file: if that line names"
    assert note in capsys.readouterr().out
    assert main(["check", "odd.yaml", "--set", "data.train=train.tsv"]) == 0
    assert "note: train: label" not in capsys.readouterr().out


def test_labeled_rows_in_a_plain_text_file_are_reported_with_the_key_to_set(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "train.tsv").rename(work / "train.txt")
    assert main(["check", "task.yaml", "--set", "data.train=train.txt"]) == 2
    err = capsys.readouterr().err
    assert "there is no column 'label' to learn from; train.txt was read as plain lines of text" in err
    assert "say so with data.format: tsv, csv, jsonl or conll" in err


@pytest.mark.parametrize(
    ("labels", "hint"), [("", True), ("[blame, praise]", False)], ids=["learned from train", "given"]
)
def test_a_label_that_only_dev_has_is_reported_with_the_key_that_sets_labels(
    work: Path, capsys: pytest.CaptureFixture[str], labels: str, hint: bool
) -> None:
    (work / "dev.tsv").write_text("text\tlabel\ngood film\tmixed\n", encoding="utf-8")
    given = ["--set", f"task.labels={labels}"] if labels else []
    assert main(["check", "task.yaml", *given]) == 2
    err = capsys.readouterr().err
    assert "dev.tsv:2: label 'mixed' is not one of blame, praise" in err
    assert ("(the labels are those that train has; the key task.labels can name others, too)" in err) == hint
    if hint:
        assert main(["check", "task.yaml", "--set", "task.labels=[blame, praise, mixed]"]) == 0


def test_rows_without_a_label_are_skipped_like_faulty_ones(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the labels of the training rows are those of the task."""
    rows = [
        '{"text": "good", "label": "praise"}',
        '{"text": "bad", "label": null}',
        '{"text": "bad", "label": "blame"}',
    ]
    (work / "null.jsonl").write_text("\n".join(rows), encoding="utf-8")
    data = ["--set", "data.train=null.jsonl", "--set", "task.labels=[]"]
    assert main(["check", "task.yaml", *data]) == 2
    assert "null.jsonl:2: column 'label': expected text, found nothing" in capsys.readouterr().err
    assert main(["check", "task.yaml", *data, "--set", "data.faulty=skip"]) == 0
    out = capsys.readouterr().out
    assert "ok: labels: blame, praise" in out
    assert "note: train: 1 row left out, as 'faulty' asks, the first at null.jsonl:2: column 'label'" in out


def test_of_a_row_of_several_samples_the_first_has_the_label_and_a_target_text_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def described(kind: str) -> list[str]:
        toy = TOYS[kind]
        [row] = toy.rows(1)
        split = SimpleNamespace(examples=[toy.task.training_example(row, TOKENIZER)], rows=[row])
        spoken = kind == "synthesize"
        return list(described_example(split, TOKENIZER, spoken))[1:]  # type: ignore[arg-type]

    samples = [line for line in described("choose") if "sample" in line]
    assert re.fullmatch(r"  sample 1 of \d: \d+ tokens, choice \d", samples[0])
    assert re.fullmatch(r"  sample 2 of \d: \d+ tokens", samples[1])
    assert described("translate")[-1].startswith("  to be generated: [CLS] ")
    counted, tokens, spoken = described("synthesize")
    assert re.fullmatch(r"  sample 1 of 1: \d+ tokens, steps \d+", counted)
    assert tokens.startswith("    [CLS] ")
    assert re.fullmatch(r"  to be spoken: [\d,]+ samples of sound", spoken)
    assert re.fullmatch(r"  [\d,]+ samples of sound, \d+ vectors for the encoder", described("transcribe")[0])


def test_a_line_of_text_is_not_taken_for_the_other_column_of_a_task(tmp_path: Path) -> None:
    """`text` is where ranking reads its second text, and a plain line is the query only."""
    (tmp_path / "lines.txt").write_text("a fine film\n", encoding="utf-8")
    [row] = input_rows(str(tmp_path / "lines.txt"), RowOptions(), TOYS["rank"].task)
    assert dict(row) == {"query": "a fine film"}


def test_an_empty_output_folder_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(work.iterdir())
    with pytest.raises(SystemExit) as ended:
        main(["finetune", "task.yaml", "--output", ""])
    assert ended.value.code == 2
    assert "argument --output: is empty; expected a path" in capsys.readouterr().err
    assert sorted(work.iterdir()) == before
