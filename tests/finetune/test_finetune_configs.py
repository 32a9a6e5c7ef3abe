"""Every shipped fine-tuning configuration runs on files in the layout of its data set's download."""

from __future__ import annotations

import gzip
import io
import json
import re
import wave
from dataclasses import fields
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.helpers import ROOT, vocabulary

from ernie.config import read
from ernie.data.labeled.read import read_split
from ernie.errors import Remark, UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from finetune.check_config import check
from finetune.config import FinetuneConfig, SubmissionConfig, TrainConfig, load

CONFIGS = ROOT / "configs" / "finetune"
BENCHMARKS = ROOT / "benchmarks" / "finetune"


def tasks_in(folder: Path) -> list[Path]:
    """The configurations of a folder that define a task, without shared base files."""
    return [file for file in sorted(folder.rglob("*.yaml")) if read(file).get("task")]


FILES = [*tasks_in(CONFIGS), *tasks_in(BENCHMARKS)]
NAMES = {file.relative_to(CONFIGS).with_suffix("").as_posix(): file for file in tasks_in(CONFIGS)}

MNLI_PARSES = "index promptID pairID genre s1_binary s2_binary s1_parse s2_parse"
SQUAD = {
    "data": [
        {
            "title": "x",
            "paragraphs": [
                {
                    "context": "the cat sat on the mat",
                    "qas": [
                        {"id": "a", "question": "who sat ?", "answers": [{"text": "the cat", "answer_start": 0}]},
                        {"id": "b", "question": "on what ?", "answers": [{"text": "the mat", "answer_start": 15}]},
                    ],
                }
            ],
        }
    ]
}
XNLI = "language gold_label s1_binary s2_binary s1_parse s2_parse sentence1 sentence2 promptID pairID genre"
CONLL = "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n\n"
MSRA = "中\tB-ORG\n国\tI-ORG\n队\tI-ORG\n\n我\tO\n们\tO\n\n"


def table(header: str, *rows: str) -> str:
    """A tab-separated file, from column names separated by spaces and rows separated by bars."""
    lines = ["\t".join(header.split())] if header else []
    return "\n".join([*lines, *(row.replace("|", "\t") for row in rows)]) + "\n"


def json_lines(*rows: dict[str, object]) -> str:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"


def few(task: str, *rows: dict[str, object]) -> dict[str, str]:
    return {f"{task}/{name}.json": json_lines(*rows) for name in ("train_few_all", "dev_few_all", "test_public")}


def same(names: str, text: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), text)


def mnli(columns: str, row: str) -> str:
    return table(f"{MNLI_PARSES} {columns}", f"0|1|2|fiction|p|p|p|p|{row}")


def sound(seconds: float = 0.5, rate: int = 22050) -> bytes:
    """The bytes of a .wav file of noise."""
    samples = np.random.default_rng(0).integers(-9999, 9999, int(seconds * rate), dtype=np.int16)
    with io.BytesIO() as buffer:
        with wave.open(buffer, "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
        return buffer.getvalue()


# The first rows of each task's files, in the layout of its usual download, with made-up text.
LAYOUTS: dict[str, dict[str, str | bytes]] = {
    "glue/cola": {
        **same("CoLA/train.tsv CoLA/dev.tsv", table("", "gj04|1||the cat sat", "gj04|0|*|sat cat the")),
        "CoLA/test.tsv": table("index sentence", "0|the cat sat"),
    },
    "glue/sst2": {
        **same("SST-2/train.tsv SST-2/dev.tsv", table("sentence label", "the cat |1", "on the mat|0")),
        "SST-2/test.tsv": table("index sentence", "0|the cat"),
    },
    "glue/mrpc": {
        **same(
            "MRPC/train.tsv MRPC/dev.tsv",
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tthe \"cat\tthe cat's\n0\t7\t8\tthe mat\tcat\n",
        ),
        "MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tthe cat\tcat\n",
    },
    "glue/stsb": {
        **same(
            "STS-B/train.tsv STS-B/dev.tsv",
            table(
                "index genre filename year old_index source1 source2 sentence1 sentence2 score",
                "0|g|f|2012|1|a|b|the cat|cat|5.000",
                "1|g|f|2012|1|a|b|the cat|mat|2.600",
            ),
        ),
        "STS-B/test.tsv": table(
            "index genre filename year old_index source1 source2 sentence1 sentence2", "0|g|f|2012|1|a|b|the cat|cat"
        ),
    },
    "glue/qqp": {
        **same(
            "QQP/train.tsv QQP/dev.tsv",
            table(
                "id qid1 qid2 question1 question2 is_duplicate",
                "1|2|3|who sat ?|who ?|1",
                "2|4|5|torn by a line break",
                "?|0",
                "3|6|7|who sat ?|on what ?|0",
            ),
        ),
        "QQP/test.tsv": table("id question1 question2", "0|who ?|who sat ?"),
    },
    "glue/mnli": {
        "MNLI/train.tsv": mnli("sentence1 sentence2 label1 gold_label", "the cat|cat|neutral|entailment"),
        **same(
            "MNLI/dev_matched.tsv MNLI/dev_mismatched.tsv",
            mnli("sentence1 sentence2 l1 l2 l3 l4 l5 gold_label", "the cat|mat|a|b|c|d|e|contradiction"),
        ),
        **same("MNLI/test_matched.tsv MNLI/test_mismatched.tsv", mnli("sentence1 sentence2", "the cat|mat")),
        "diagnostic/diagnostic.tsv": table("index sentence1 sentence2", "0|the cat|mat"),
    },
    "glue/qnli": {
        **same(
            "QNLI/train.tsv QNLI/dev.tsv",
            table("index question sentence label", "0|who ?|cat|entailment", "1|who ?|mat|not_entailment"),
        ),
        "QNLI/test.tsv": table("index question sentence", "0|who ?|cat"),
    },
    "glue/rte": {
        **same(
            "RTE/train.tsv RTE/dev.tsv",
            table("index sentence1 sentence2 label", "0|the cat|cat|entailment", "1|the cat|mat|not_entailment"),
        ),
        "RTE/test.tsv": table("index sentence1 sentence2", "0|the cat|cat"),
    },
    "glue/wnli": {
        **same(
            "WNLI/train.tsv WNLI/dev.tsv", table("index sentence1 sentence2 label", "0|the cat|cat|1", "1|the|mat|0")
        ),
        "WNLI/test.tsv": table("index sentence1 sentence2", "0|the cat|cat"),
    },
    "zh/xnli": {
        "XNLI-MT-1.0/multinli/multinli.train.zh.tsv": table(
            "premise hypo label", "我 们|中 国|contradictory", "我 们|我|entailment"
        ),
        **same(
            "XNLI-1.0/xnli.dev.tsv XNLI-1.0/xnli.test.tsv",
            table(XNLI, "ar|neutral|||||x|y|1|2|g", "zh|neutral|||||我们|我|1|2|g"),
        ),
    },
    "zh/dureader": same("dureader/train.json dureader/dev.json", json.dumps(SQUAD)),
    "zh/cmrc2018": same(
        "cmrc2018/cmrc2018_train.json cmrc2018/cmrc2018_dev.json cmrc2018/cmrc2018_trial.json", json.dumps(SQUAD)
    ),
    "zh/drcd": same("drcd/DRCD_training.json drcd/DRCD_dev.json drcd/DRCD_test.json", json.dumps(SQUAD)),
    "zh/msra_ner": same("msra_ner/train.txt msra_ner/dev.txt msra_ner/test.txt", MSRA),
    "zh/chnsenticorp": same(
        "chnsenticorp/train.tsv chnsenticorp/dev.tsv chnsenticorp/test.tsv", table("label text_a", "1|我们", "0|中国")
    ),
    "zh/nlpcc_dbqa": same(
        "nlpcc_dbqa/train.tsv nlpcc_dbqa/dev.tsv nlpcc_dbqa/test.tsv",
        table("qid text_a text_b label", "0|我们|中国|0", "0|我们|我|1"),
    ),
    "zh/lcqmc": same("lcqmc/train.txt lcqmc/dev.txt lcqmc/test.txt", table("", "我们|我|1", "我们|中国|0")),
    "zh/bq": same("bq/train.tsv bq/dev.tsv bq/test.tsv", table("text_a text_b label", "我们|我|1", "我们|中国|0")),
    "clue/tnews": few("tnews", {"label": 100, "sentence": "我们", "id": 0}, {"label": 101, "sentence": "中国"}),
    "clue/iflytek": few("iflytek", {"label": 10, "sentence": "我们", "id": 0}, {"label": 2, "sentence": "中国"}),
    "clue/csl": few(
        "csl",
        {"id": 0, "abst": "我们", "keyword": ["我", "们"], "label": "1"},
        {"id": 1, "abst": "我们", "keyword": ["中", "国"], "label": "0"},
    ),
    "clue/cluewsc": few(
        "cluewsc",
        {"target": {"span1_text": "中国", "span2_text": "我", "span1_index": 2}, "label": "true", "text": "我是中国"},
        {"target": {"span1_text": "们", "span2_text": "我", "span1_index": 2}, "label": "false", "text": "我是中国"},
    ),
    "clue/chid": few("chid", {"id": 0, "candidates": ["中国", "我们"], "content": "是#idiom#的", "answer": 1}),
    "clue/ocnli": {
        **same(
            "ocnli/train.50k.json ocnli/dev.json",
            json_lines(
                {"sentence1": "我们", "sentence2": "我", "label": "entailment", "level": "easy"},
                {"sentence1": "我们", "sentence2": "中国", "label": "-", "level": "easy"},
            ),
        ),
        "ocnli/test.json": json_lines({"sentence1": "我们", "sentence2": "我", "id": 0}),
    },
    "clue/afqmc": {
        **same("afqmc/train.json afqmc/dev.json", json_lines({"sentence1": "我们", "sentence2": "我", "label": "1"})),
        "afqmc/test.json": json_lines({"id": 0, "sentence1": "我们", "sentence2": "我"}),
    },
    "conll2003": same("eng.train eng.testa eng.testb", CONLL),
    "squad2": same("train-v2.0.json dev-v2.0.json", json.dumps(SQUAD)),
    "multi30k": {
        f"{split}.{language}.gz": gzip.compress(text.encode())
        for split in ("train", "val", "test_2016_flickr")
        for language, text in (("de", "the cat\non the mat\n"), ("en", "cat\nmat\n"))
    },
    "librispeech": {
        **same("train-clean-100.tsv dev-clean.tsv test-clean.tsv test-other.tsv", table("audio text", "a.wav|the cat")),
        "a.wav": sound(),
    },
    "ljspeech": {
        "metadata.csv": "".join(f'LJ-{n}|The "Cat|the cat\n' for n in range(202)),
        **dict.fromkeys((f"wavs/LJ-{n}.wav" for n in range(202)), sound()),
    },
}
LAYOUTS["stsb_embed"] = LAYOUTS["glue/stsb"]
# The label of the first row of train, after `values` and similar settings are applied.
RIGHT: dict[str, object] = {
    "glue/cola": "acceptable",
    "glue/sst2": "positive",
    "glue/mrpc": "equivalent",
    "glue/qqp": "duplicate",
    "glue/mnli": "entailment",
    "glue/wnli": "entailment",
    "zh/xnli": "contradiction",
    "zh/chnsenticorp": "positive",
}
NOT_IN_FILES = {"clue/c3", "quickstart"}  # on the hub only; generated by the program that uses it


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paddle.seed(0)
    tokenizer = vocabulary("the cat sat on the mat who what ? eu rejects peter 我 们 中 国 是 的 指 队", "##s")
    shape = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 32, "max_positions": 512}
    model = ErnieModel(EncoderConfig(vocab_size=tokenizer.vocab_size, **shape))
    model.tokenizer = tokenizer
    folder = tmp_path_factory.mktemp("encoder")
    model.save_pretrained(folder)
    return folder


def write_layout(name: str, folder: Path) -> FinetuneConfig:
    """Write the files of a task's download, and load its configuration on them."""
    for file, text in LAYOUTS[name].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(NAMES[name], data=folder)


def test_every_configuration_has_a_layout() -> None:
    assert set(LAYOUTS) == set(NAMES) - NOT_IN_FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_data_and_published_scores_of_a_configuration_are_well_formed(file: Path) -> None:
    config = load(file)
    source = config.local or config.data
    assert {"train", "dev"} <= set(source.splits())
    assert {"train", "dev"} <= set(config.data.splits()) or config.local is not None
    splits = {*config.data.splits(), *source.splits(), "test"}
    for published in config.published.values():
        assert set(published) <= splits
        assert all(20 < score < 100 for scores in published.values() for score in scores.values())
    assert set(config.submission.files) <= splits


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "ljspeech" else name for name in LAYOUTS]
)
def test_check_passes_on_the_downloads_layout(name: str, encoder: Path, tmp_path: Path) -> None:
    config = write_layout(name, tmp_path)
    first = read_split("train", config.data.splits()["train"], config.data.options("train")).rows[0]
    if name in RIGHT:
        assert first[config.task.label] == RIGHT[name]  # type: ignore[attr-defined]
    lines = list(check(load(NAMES[name], [f"model={encoder}"], tmp_path)))
    passed = [line for line in lines if line.startswith("ok:")]
    for split in config.data.splits():
        assert any(f"{split}: " in line for line in passed), lines
    assert lines[-1].startswith("ok: one step")


def test_benchmarks_on_other_data_show_no_published_scores() -> None:
    for name in ("qnli", "lcqmc", "cmrc2018", "msra_ner", "squad2"):
        assert load(BENCHMARKS / f"{name}.yaml").published == {}


def test_the_broken_rows_of_qqp_are_skipped_and_counted(encoder: Path, tmp_path: Path) -> None:
    write_layout("glue/qqp", tmp_path)
    lines = list(check(load(NAMES["glue/qqp"], [f"model={encoder}"], tmp_path)))
    assert any("train: 2 rows skipped" in line for line in lines)


def test_several_cells_can_be_joined(tmp_path: Path) -> None:
    rows = {}
    for name in ("clue/cluewsc", "clue/csl"):
        config = write_layout(name, tmp_path)
        rows[name] = read_split("train", config.data.splits()["train"], config.data.options("train")).rows[0]
    assert rows["clue/cluewsc"]["asked"] == "我指的是中国"
    assert rows["clue/csl"]["keyword"] == "我，们"


def test_a_glue_submission_has_the_leaderboards_files_and_labels() -> None:
    glue = [load(file) for file in tasks_in(CONFIGS / "glue")]
    files = sorted(name for config in glue for name in config.submission.files.values())
    expected = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI".split()
    assert files == [f"{name}.tsv" for name in expected]
    for config in glue:
        labels = set(getattr(config.task, "labels", ()))
        assert set(config.submission.values) in (set(), labels)


def test_glue_batch_sizes_are_the_papers_rows_per_card_times_cards() -> None:
    batch_sizes = {file.stem: load(file).train.batch for file in tasks_in(CONFIGS / "glue")}
    assert batch_sizes == {
        "cola": 64,
        "sst2": 32 * 8,
        "mrpc": 16 * 2,
        "stsb": 16 * 8,
        "qqp": 32 * 8,
        "mnli": 64 * 8,
        "qnli": 32 * 8,
        "rte": 4,
        "wnli": 8,
    }


def test_the_documented_training_defaults_are_the_defaults(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "finetuning" / "training.md").read_text(encoding="utf-8")
    (block,) = [part.split("```")[0] for part in page.split("```yaml\n")[1:] if "layer_decay" in part.split("```")[0]]
    (tmp_path / "shown.yaml").write_text(block, encoding="utf-8")
    shown = read(tmp_path / "shown.yaml").get("train")
    assert load(tmp_path / "shown.yaml").train == TrainConfig()
    assert set(shown) == {item.name for item in fields(TrainConfig)}


def test_the_configuration_of_multi30k_has_the_settings_that_its_benchmark_found_best() -> None:
    source = (ROOT / "benchmarks" / "translation.py").read_text(encoding="utf-8")
    (dropout,) = re.findall(r"^DROPOUT = ([0-9.]+)", source, re.M)
    assert load(CONFIGS / "multi30k.yaml").train.dropout == float(dropout)


@pytest.mark.parametrize("name", ["../x.tsv", "/tmp/x.tsv", "a/x.tsv", "a\\x.tsv", "..", ""])
def test_a_submission_file_is_a_name_without_a_folder(name: str) -> None:
    with pytest.raises(UserError, match=r"files\.test: expected the name of a file without a folder, found"):
        SubmissionConfig(files={"test": name})


class TestIncludedSplits:
    OWN = "include: conll2003\ndata: {train: mine.conll, dev: mine.conll}\n"

    def test_splits_of_an_included_file_are_left_out_beside_other_train_and_dev(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.yaml"
        file.write_text(self.OWN, encoding="utf-8")
        with pytest.warns(Remark, match=r"^data\.test of conll2003\.yaml is left out, as train and dev are other data"):
            assert set(load(file).data.splits()) == {"train", "dev"}
        file.write_text(self.OWN.replace("}", ", test: more.conll}"), encoding="utf-8")
        assert load(file).data.sources("test") == ("more.conll",)
        assert load(file, ["data.test=other.conll"]).data.sources("test") == ("other.conll",)

    @pytest.mark.filterwarnings("error")
    def test_they_stay_where_only_one_of_both_is_replaced_or_by_set(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.yaml"
        file.write_text("include: conll2003\ndata: {train: mine.conll}\n", encoding="utf-8")
        assert "test" in load(file).data.splits()
        assert "test" in load(Path("conll2003"), ["data.train=a.conll", "data.dev=b.conll"]).data.splits()
        assert "test" not in load(Path("conll2003"), ["data.test=[]"]).data.splits()
