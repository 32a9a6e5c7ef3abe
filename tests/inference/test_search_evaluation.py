"""Scores of search: the metrics, folders of BEIR, and a text encoder as a model of mteb."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.served import encoder
from support.toys import tiny_encoder

from ernie.cli import main
from ernie.errors import UserError
from inference.mteb_model import MtebEncoder
from inference.search.evaluation import scores

CORPUS = {"a": "anna was in paris", "b": "a blue film", "c": "paul was in london", "d": "who was it ?"}
QUERIES = {"q1": "paris", "q2": "blue film", "q3": "new"}
JUDGED = [("q1", "a", 2), ("q1", "c", 1), ("q2", "b", 1), ("q3", "d", 0)]


def beir(folder: Path, judged: list[tuple[str, str, int]] = JUDGED) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", CORPUS), ("queries", QUERIES)):
        lines = "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items())
        (folder / f"{name}.jsonl").write_text(lines)
    rows = "".join(f"{query}\t{document}\t{score}\n" for query, document, score in judged)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return folder


def test_scores_are_those_of_trec_eval() -> None:
    relevance = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"x": 1}}
    ranked = {"q1": ["c", "b", "z", "a"], "q2": ["y"] * 10 + ["x"]}
    found = scores(relevance, ranked)
    ideal = 2 + 1 / math.log2(3)
    assert found == pytest.approx(
        {
            "ndcg_at_10": (1 / math.log2(3) + 2 / math.log2(5)) / ideal / 2,
            "mrr_at_10": 1 / 4,
            "map_at_100": (((1 / 2 + 2 / 4) / 2) + 1 / 11) / 2,
            "recall_at_10": 1 / 2,
            "recall_at_100": 1.0,
        }
    )


def test_a_model_is_scored_on_a_folder_of_beir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_encoder().save_pretrained(tmp_path / "tiny")
    data = str(beir(tmp_path / "data"))
    assert main(["search", "evaluate", str(tmp_path / "tiny"), "--data", data]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["queries"] == 2  # those with a relevant document
    assert found["bm25"] == {
        **{"ndcg_at_10": pytest.approx((2 / (2 + 1 / math.log2(3)) + 1) / 2), "mrr_at_10": 1.0},
        **{"map_at_100": 0.75, "recall_at_10": 0.75, "recall_at_100": 0.75},
    }
    assert found["dense"]["recall_at_10"] == found["hybrid"]["recall_at_100"] == 1.0
    words = ["search", "index", f"{data}/corpus.jsonl", "--output", str(tmp_path / "words")]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["search", "evaluate", str(tmp_path / "words"), "--data", data]) == 0
    assert json.loads(capsys.readouterr().out) == {"queries": 2, "bm25": found["bm25"]}


def test_documents_with_one_id_count_once_and_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = beir(tmp_path / "data", [("q1", "a", 1)])
    with (data / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "a", "text": "in paris"}\n')
    words = ["--data", str(data), "--quiet"]
    assert main(["search", "index", str(data / "corpus.jsonl"), "--output", str(tmp_path / "index")]) == 0
    told = capsys.readouterr().err
    assert "1 document with the id of an earlier one, the first 'a' at" in told and "corpus.jsonl:5" in told
    assert main(["search", "evaluate", str(tmp_path / "index"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["bm25"]["map_at_100"] == 1.0
    assert main(["search", "query", str(tmp_path / "index"), "paris", "--to", "trec"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("judged", "words", "message"),
    [
        (JUDGED, ["--split", "tset"], "tset.tsv: there is no such file. Did you mean 'test'?"),
        ([("q9", "a", 1)], [], "test.tsv:2: there is no query 'q9'"),
        ([("q1", "a", 0)], [], "test.tsv: judges no document as relevant"),
        ([("q1", "x7", 1)], [], "no query finds a document that is judged: judgments name 'x7'"),
    ],
)
def test_faulty_judgments_are_told(
    judged: list[Any], words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(beir(tmp_path / "data", judged))
    assert main(["search", "index", f"{data}/corpus.jsonl", "--output", str(tmp_path / "index")]) == 0
    assert main(["search", "evaluate", str(tmp_path / "index"), "--data", data, *words]) == 2
    assert message in capsys.readouterr().err


def test_vectors_are_scored_by_pairs_and_by_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from scipy.stats import spearmanr

    tiny_encoder().save_pretrained(tmp_path / "tiny")
    pairs = [
        ("a blue film", "the blue film", 5),
        ("anna was in paris", "paul was in london", 3),
        ("great", "a red one", 1),
    ]
    (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + "".join("\t".join(map(str, row)) + "\n" for row in pairs))
    own = ["search", "evaluate", str(tmp_path / "tiny")]
    assert main([*own, "--pairs", str(tmp_path / "pairs.tsv"), "--rename", "text=a", "text_pair=b"]) == 0
    one, other = (encoder().encode([row[side] for row in pairs], normalize=True) for side in (0, 1))
    expected = spearmanr((one * other).sum(1), [5, 3, 1]).statistic
    assert json.loads(capsys.readouterr().out)["spearman"] == pytest.approx(expected)
    rows = [("blue blue blue", "color"), ("blue blue", "color"), ("paris paris", "place"), ("paris", "place")]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    assert main([*own, "--clusters", str(tmp_path / "rows.tsv")]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 4, "clusters": 2, "v_measure": pytest.approx(1.0)}
    (tmp_path / "same.tsv").write_text("text\tlabel\nblue\tcolor\nred\tcolor\n")
    for words, message in (
        (["--clusters", str(tmp_path / "same.tsv")], "every row has the label 'color'; clusters need several"),
        (["--pairs", str(tmp_path / "rows.tsv")], "rows.tsv:2: there is no column 'text_pair'"),
        (["--pairs", str(tmp_path / "pairs.tsv"), "--rename", "text"], "--rename: expected NAME=COLUMN"),
        (["--clusters", str(tmp_path / "rows.tsv"), "--rerank", "x"], "--rerank and --model: are for --data"),
    ):
        assert main([*own, *words]) == 2
        assert message in capsys.readouterr().err


def test_a_model_of_mteb_needs_an_encoder_and_a_name() -> None:
    with pytest.raises(UserError, match="name: expected ORGANIZATION/MODEL, found 'x'"):
        MtebEncoder(encoder(), "x")
    with pytest.raises(UserError, match=r"expected an encoder, as inference\.load returns it, found a str"):
        MtebEncoder("runs/vectors")  # type: ignore[arg-type]


def test_mteb_scores_a_text_encoder_on_a_task_of_its_own() -> None:
    mteb = pytest.importorskip("mteb", reason="mteb, which brings PyTorch along, is not installed")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from scipy.stats import spearmanr

    rows = {
        "sentence1": ["a blue film", "anna was in paris", "it was great", "who was new ?"],
        "sentence2": ["the blue film", "paul was in london", "it was poor", "a red film"],
        "score": [5.0, 3.0, 2.0, 0.0],
    }

    class Toy(AbsTaskSTS):
        metadata = TaskMetadata(
            name="ToySTS",
            dataset={"path": "none/none", "revision": "1"},
            description="four pairs",
            reference=None,
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
            prompt=None,
        )
        min_score, max_score = 0, 5

        def load_data(self, **_: Any) -> None:
            self.dataset = DatasetDict({"test": Dataset.from_dict(rows)})
            self.data_loaded = True

    model = MtebEncoder(encoder(), "ernie/tiny")
    assert isinstance(model, mteb.EncoderProtocol)
    results = mteb.evaluate(model, [Toy()], cache=None)
    one, other = (encoder().encode(rows[name], normalize=True) for name in ("sentence1", "sentence2"))
    expected = spearmanr((one * other).sum(1), rows["score"]).statistic
    assert results.task_results[0].get_score() == pytest.approx(expected)
    assert np.allclose(model.similarity(one, other).numpy(), one @ other.T, atol=1e-6)
