"""Hard negatives: passages near a text that do not belong to it, and how many were dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.served import encoder, predictor
from support.toys import TOKENIZER

import inference
from ernie.cli import main
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.kernels.precision import precision
from inference.search.index import IndexSettings, make_index
from inference.search.mining import Counts, Mining, mined, summary
from inference.search.searching import LoadedIndex, SearchIndex
from tasks.downstream.embed import Embed

PASSAGES = ["a blue film", "a red film", "a blue one", "anna was in paris", "paul was in london", "it was great"]
ROWS = [
    {"text": "blue film ?", "text_pair": "a blue film"},
    {"text": "blue film ?", "text_pair": "A  blue one"},
    {"text": "who was in paris ?", "text_pair": "anna was in paris"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mining")
    (folder / "texts.txt").write_text("".join(f"{passage}\n" for passage in PASSAGES))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = ["search", "index", str(folder / "texts.txt"), "--lines", "--output", str(folder / "index"), "--model"]
    encoder().model.ernie.save_pretrained(folder / "model")
    predictor("rank").model.save(folder / "rank")
    assert main([*words, str(folder / "model")]) == 0
    return folder


@pytest.fixture(scope="module")
def index(folder: Path) -> SearchIndex:
    found = inference.load(folder / "index", precision="fp32")
    assert isinstance(found, SearchIndex)
    return found


def rows_of(index: SearchIndex, **settings: Any) -> tuple[list[dict[str, Any]], Counts]:
    counts = Counts()
    return [*mined(index, [Row(row) for row in ROWS], Mining(**settings), counts)], counts


def test_what_belongs_to_a_text_by_any_row_is_no_negative_of_it(index: SearchIndex) -> None:
    found, counts = rows_of(index, most=0.0, count=9)
    negatives = [{*row["negatives"]} for row in found]
    assert negatives[0] == negatives[1] == {*PASSAGES} - {"a blue film", "a blue one"}
    assert negatives[2] == {*PASSAGES} - {"anna was in paris"}
    assert (counts.rows, counts.own, counts.likely, counts.negatives) == (3, 5, 0, 13)


def test_what_scores_nearly_as_high_as_the_own_passage_is_dropped_and_counted(index: SearchIndex) -> None:
    kept, _ = rows_of(index, most=0.0, count=9)
    found, counts = rows_of(index, most=0.8, count=9)
    (query, own, *others) = encoder().encode(
        [ROWS[2]["text"], ROWS[2]["text_pair"], *kept[2]["negatives"]], normalize=True
    )
    expected = [
        text for text, other in zip(kept[2]["negatives"], others, strict=True) if query @ other < 0.8 * (query @ own)
    ]
    assert found[2]["negatives"] == expected
    assert counts.likely == sum(len(row["negatives"]) for row in kept) - counts.negatives
    assert counts.likely > 0


def test_ranks_and_their_number_are_as_asked(index: SearchIndex) -> None:
    all_of_them, _ = rows_of(index, most=0.0, count=9)
    hits = [hit.passage.text for hit in index.search([ROWS[2]["text"]], top=6)[0]]
    found, _ = rows_of(index, most=0.0, count=2, first=3, last=6)
    assert found[2]["negatives"] == [text for text in hits[2:6] if text != ROWS[2]["text_pair"]][:2]
    assert len(all_of_them[2]["negatives"]) == 5


def test_rows_are_written_with_scores_of_a_model_that_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "mine", str(folder / "index"), "--input", str(folder / "rows.jsonl")]
    place = folder / "mined.jsonl"
    words += ["--output", str(place), "--rerank", str(folder / "rank"), "--most", "0", "--count", "2"]
    with precision("fp32"):
        assert main(words) == 0
    told = "3 rows, 2.00 negatives each; dropped: 5 that belong to the text; 0 rows had no negative\n"
    assert told in capsys.readouterr().err
    found = [json.loads(line) for line in place.read_text().splitlines()]
    predict = predictor("rank").model
    predict.change_decoding(raw_scores=True)
    for row in found:
        pairs = [{"query": row["text"], "text": text} for text in (row["text_pair"], *row["negatives"])]
        assert row["teacher_scores"] == pytest.approx(
            [answer["raw_score"] for answer in predict.predict(pairs)], abs=1e-5
        )
    task = Embed(max_len=16, negatives="negatives", teacher_scores="teacher_scores")
    assert len(task.training_example(Row(found[0]), TOKENIZER).samples) == 4


@pytest.mark.filterwarnings("ignore:.*it does not read the ends of some")
def test_rows_without_a_score_to_learn_are_left_out_and_that_is_told(folder: Path) -> None:
    index = SearchIndex(LoadedIndex.load(folder / "index", rerank=folder / "rank"))
    found, counts = rows_of(index, first=50)  # beyond the last passage
    assert (found, counts.without) == ([], 3)
    assert "; 3 rows had no negative and are left out" in summary(counts, Mining())


def test_an_index_of_words_needs_a_model_to_compare_scores(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a blue film\na blue one\n")
    make_index([str(tmp_path / "texts.txt")], tmp_path / "index", IndexSettings(), None)
    index = SearchIndex(LoadedIndex.load(tmp_path / "index"))
    with pytest.raises(UserError, match="most: needs scores of a model: give --rerank, or --most 0"):
        rows_of(index)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "9", "--to", "3"], "to: expected at least the rank 9, from which on, found 3"),
        (["--most", "2"], "most: expected a part from 0 (no limit) to 1, found 2"),
        (["--text", "query"], "rows.jsonl:1: there is no column 'query'"),
    ],
)
def test_what_cannot_be_mined_is_an_error(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["search", "mine", str(folder / "index"), "--input", str(folder / "rows.jsonl"), "--output", "unused.jsonl"]
    assert main([*own, *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("unused.jsonl").exists()
