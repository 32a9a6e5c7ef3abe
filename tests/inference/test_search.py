"""Search: passages of texts, BM25, vectors, their fusion, and an index that is made, updated and asked."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.served import encoder, predictor
from support.toys import tiny_encoder

import inference
from ernie.cli import main
from ernie.data.raw import Place
from ernie.errors import Remark, UserError
from inference.encoder import TextEncoder
from inference.search import index as index_module
from inference.search.bm25 import Bm25, terms, words
from inference.search.index import IndexSettings, make_index
from inference.search.nearest import Nearest, chosen_kind, exact
from inference.search.passages import Document, Reading, passages
from inference.search.searching import LoadedIndex, SearchIndex, fusion

ROWS = [
    {"_id": "a", "title": "film", "text": "it was blue"},
    {"_id": "b", "text": "anna was very great"},
    {"_id": "c", "text": "paul was in london"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_encoder().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    (folder / "story.txt").write_text("The red film was new.\n\nAnna was in Paris.\nIt was great?\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def made(model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "made"
    words = ["--model", str(model), "--precision", "fp32", "--output", str(folder)]
    assert main(["search", "index", str(texts), *words]) == 0
    return folder


def cut(text: str, length: int, overlap: int = 0, **more: Any) -> list[tuple[str, int]]:
    document = Document(text, Place("story.txt", 1), "story", lines=True, **more)
    return [(found.text, found.line) for found in passages(document, words, length, overlap)]


# ------------------------------------------------------------------------------------------------------------ passages


def test_a_long_text_is_cut_at_the_ends_of_sentences_and_no_word_is_lost() -> None:
    text = "One two three. Four five.\nSix seven eight nine ten eleven. Twelve."
    assert cut(text, 7) == [("One two three. Four five.", 1), ("Six seven eight nine ten eleven. Twelve.", 2)]
    assert cut(text, 100) == [(text, 1)]
    long = " ".join(f"w{n}" for n in range(50))
    assert " ".join(part for part, _ in cut(long, 8)) == long


def test_passages_overlap_from_the_beginning_of_a_sentence_where_there_is_one() -> None:
    long = " ".join(f"w{n}" for n in range(12))
    assert [part.split()[0] for part, _ in cut(long, 6, 2)] == ["w0", "w4", "w8"]
    assert cut("a b c d. e f. g h i j", 6, 3) == [("a b c d. e f.", 1), ("e f. g h i j", 1)]


def test_chinese_is_cut_by_characters_and_at_its_own_marks() -> None:
    assert cut("我爱北京天安门。天安门上太阳升。", 9) == [("我爱北京天安门。", 1), ("天安门上太阳升。", 1)]


def test_the_title_counts_towards_the_length_and_belongs_to_each_passage() -> None:
    found = [*passages(Document("a b c d e f", Place("f", 3), "x", title="one two"), words, 5, 0)]
    assert [each.searched for each in found] == ["one two a b c", "one two d e f"]
    assert {each.line for each in found} == {3}  # those of a row


def test_documents_come_from_texts_and_rows_and_other_files_are_named(texts: Path, tmp_path: Path) -> None:
    for file in texts.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.warns(Remark, match=r"picture\.png: is of no format that is read"):
        found = [*Reading().documents([str(tmp_path)])]
    assert [document.id for document in found] == ["a", "b", "c", str(tmp_path / "story.txt")]
    lines = [*Reading(lines=True).documents([str(tmp_path / "story.txt")])]
    assert [document.place.line for document in lines] == [1, 3, 4]


def test_cells_of_a_row_are_given_back_with_its_passages(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a red film", "url": "x.org/1", "year": 1999}\n')
    settings = IndexSettings(Reading(keep=("url", "year")))
    make_index([str(tmp_path / "rows.jsonl")], tmp_path / "index", settings, None)
    ((hit,),) = SearchIndex(LoadedIndex.load(tmp_path / "index")).search(["red"])
    assert hit.as_dict(1)["cells"] == {"url": "x.org/1", "year": 1999}
    assert not SearchIndex(LoadedIndex.load(tmp_path / "index")).search(["org"])[0]
    with pytest.raises(UserError, match=r"rows\.jsonl:1: there is no column 'link'"):
        make_index([str(tmp_path / "rows.jsonl")], tmp_path / "other", IndexSettings(Reading(keep=("link",))), None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", '{"body": "red"}\n', r"^[^:]*rows\.jsonl:1: there is no column 'text'"),
        ("rows.jsonl", '{"text": "red"\n', r"rows\.jsonl:1: is not JSON"),
        ("rows.pdf", "", "holds no file that ends in"),
        ("blank.txt", " \n", "there is no text to search in"),
    ],
)
def test_unusable_texts_are_an_error_with_their_place(
    name: str, content: str, message: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / name).write_text(content)
    with pytest.raises(UserError, match=message):
        make_index([str(tmp_path / "texts")], tmp_path / "index", IndexSettings(), None)
    assert not (tmp_path / "index").exists()


def test_a_file_of_no_known_format_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.conll").write_text("red O\n")
    with pytest.raises(UserError, match=r"rows\.conll: expected a name that ends in \.txt, \.md, \.jsonl"):
        make_index([str(tmp_path / "rows.conll")], tmp_path / "index", IndexSettings(), None)


# ---------------------------------------------------------------------------------------------------------------- bm25


def test_bm25_scores_are_those_of_the_formula() -> None:
    passages = ["red red film", "a blue film", "", "red paris london anna paul"]
    found = Bm25.of(passages).scores("Red film film")
    counts = [Counter(passage.split()) for passage in passages]
    mean = sum(count.total() for count in counts) / 4
    for count, score in zip(counts, found, strict=True):
        expected = 0.0
        for term in ("red", "film", "film"):
            having = sum(term in own for own in counts)
            saturated = count[term] * 2.2 / (count[term] + 1.2 * (0.25 + 0.75 * count.total() / mean))
            expected += math.log(1 + (4 - having + 0.5) / (having + 0.5)) * saturated
        assert score == pytest.approx(expected, 1e-6)


def test_terms_are_words_in_lower_case_and_characters_with_their_neighbors_where_no_spaces_are() -> None:
    assert [*terms("Der Fluß, ＡＢＣ_1")] == ["der", "fluss", "abc", "1"]
    assert [*terms("北京大学 x")] == ["北", "京", "大", "学", "北京", "京大", "大学", "x"]
    scores = Bm25.of(["我住在北京", "东京北部很冷", "a red film"]).scores("北京")
    assert scores[0] > scores[1] > scores[2] == 0


def test_postings_are_read_as_they_were_written(tmp_path: Path) -> None:
    bm25 = Bm25.of(["red film", "北京 film"])
    bm25.write(tmp_path)
    assert np.array_equal(Bm25.read(tmp_path).scores("film 京"), bm25.scores("film 京"))


# ------------------------------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_approximate_index_finds_nearly_all_that_an_exact_search_finds(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    vectors = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index, recall = Nearest.of(kind, vectors)
    assert 0.95 <= recall <= 1
    index.write(tmp_path)
    read = Nearest.read(tmp_path, kind, index.effort)
    found = [
        {*read.search(vector, 10)[0].tolist()} & {*exact(vectors, vector, 10)[0].tolist()} for vector in vectors[:99]
    ]
    assert sum(map(len, found)) / 990 >= 0.9


def test_small_indices_are_exact_and_faiss_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    monkeypatch.setattr("inference.search.nearest.find_spec", lambda _: None)
    assert chosen_kind(1000, "auto") == ("exact", "")
    kind, note = chosen_kind(10**6, "auto")
    assert kind == "exact" and "ernie-continual[search]" in note
    with pytest.raises(UserError, match=r"needs FAISS: pip install 'ernie-continual\[search\]'"):
        chosen_kind(1000, "hnsw")


# --------------------------------------------------------------------------------------------------------- the index


def test_passages_are_ranked_by_the_cosines_of_their_vectors(made: Path, model: Path) -> None:
    index, own = inference.load(made, precision="fp32"), inference.load(model, precision="fp32")
    assert isinstance(index, SearchIndex) and isinstance(own, TextEncoder)
    (hits,) = index.search(["a new film"], top=9, by="dense")
    (query, *vectors) = own.encode(["a new film", *(hit.passage.searched for hit in hits)], normalize=True)
    assert [hit.score for hit in hits] == pytest.approx([query @ vector for vector in vectors], abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {hit.passage.id for hit in hits} >= {"a", "b", "c"}


def test_both_rankings_are_put_together_by_reciprocal_ranks(made: Path) -> None:
    index = inference.load(made, precision="fp32")
    assert isinstance(index, SearchIndex)
    rankings = [[hit.passage.text for hit in index.search(["anna in paris"], by=by)[0]] for by in ("dense", "bm25")]
    expected = {
        each: sum(1 / (61 + ranking.index(each)) for ranking in rankings if each in ranking) for each in rankings[0]
    }
    (hits,) = index.search(["anna in paris"])
    assert {hit.passage.text: hit.score for hit in hits} == pytest.approx(expected)
    assert hits[0].scores.keys() == {"dense", "bm25", "hybrid"}
    assert fusion([np.array([4, 7]), np.array([7])]) == pytest.approx({4: 1 / 61, 7: 1 / 62 + 1 / 61})


def test_a_document_comes_once_if_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("red film. " * 20 + "\n")
    (tmp_path / "short.txt").write_text("a red one\n")
    folder = tmp_path / "index"
    make_index(
        [str(tmp_path / name) for name in ("long.txt", "short.txt")], folder, IndexSettings(length=8, overlap=2), None
    )
    index = SearchIndex(LoadedIndex.load(folder))
    assert len(index.search(["red"])[0]) > 2
    files = [Path(hit.passage.file).name for hit in index.search(["red"], documents=True)[0]]
    assert files == ["long.txt", "short.txt"]


def test_a_model_of_the_kind_rank_sorts_the_best_passages_again(made: Path, tmp_path: Path) -> None:
    predictor("rank").model.save(tmp_path / "rank")
    with pytest.warns(Remark, match="reads 16 tokens of a query and a passage together, and passages have up to 62"):
        index = inference.load(made, precision="fp32", rerank=tmp_path / "rank")
    assert isinstance(index, SearchIndex)
    (hits,) = index.search(["anna film"])
    rows = [{"query": "anna film", "text": hit.passage.searched} for hit in hits]
    relevance = [outcome.get()["score"] for outcome in predictor("rank").outcomes(rows)]
    assert [hit.score for hit in hits] == pytest.approx(relevance)
    assert relevance == sorted(relevance, reverse=True)
    predictor("classify").model.save(tmp_path / "films")
    with pytest.raises(UserError, match="is a model of the kind classify, expected one of the kind rank"):
        inference.load(made, rerank=tmp_path / "films")


def test_an_update_encodes_only_what_is_new_and_gives_the_index_of_the_texts_of_now(
    model: Path, texts: Path, tmp_path: Path
) -> None:
    own = tmp_path / "texts"
    own.mkdir()
    for file in texts.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    face = encoder()
    first = make_index([str(own)], tmp_path / "index", IndexSettings(), face, "tiny")
    assert (first.info.passages, first.reused, first.dropped) == (4, 0, 0)
    (own / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[1:], {"_id": "d", "text": "who"}]))
    second = make_index([str(own)], tmp_path / "index", IndexSettings(), face, "tiny")
    assert (second.info.passages, second.reused, second.dropped) == (4, 3, 1)
    make_index([str(own)], tmp_path / "anew", IndexSettings(), face, "tiny")
    for name in ("vectors.npy", "passages.jsonl", "terms.txt", "index.json"):
        assert (tmp_path / "index" / name).read_bytes() == (tmp_path / "anew" / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"texts", "index", "anew"}


def test_vectors_from_before_an_interruption_are_not_computed_again(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_BLOCK", 2)
    asked = list[int]()
    own = index_module.encode

    def breaking(face: TextEncoder, passages: list[str], *how: Any) -> np.ndarray:
        asked.append(len(passages))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return own(face, passages, *how)

    monkeypatch.setattr(index_module, "encode", breaking)
    with pytest.raises(KeyboardInterrupt):
        make_index([str(texts)], tmp_path / "index", IndexSettings(), encoder(), "tiny")
    assert not (tmp_path / "index").exists()
    made = make_index([str(texts)], tmp_path / "index", IndexSettings(), encoder(), "tiny")
    assert (asked, made.reused) == ([2, 2, 2], 2)


def test_an_index_is_bound_to_the_model_that_made_it(made: Path, model: Path, texts: Path, tmp_path: Path) -> None:
    other = tiny_encoder()
    other.embedding.token.weight.set_value(other.embedding.token.weight * 2)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="is not the model that made the vectors of this index"):
        LoadedIndex.load(made, model=tmp_path / "other")
    with pytest.raises(UserError, match="the model that made the vectors cannot be loaded"):
        LoadedIndex.load(made, model=tmp_path / "gone")
    words = ["search", "index", str(texts), "--output", str(tmp_path / "index"), "--model"]
    assert main([*words, str(model)]) == 0
    assert main([*words, str(tmp_path / "other")]) == 2
    assert main([*words, str(tmp_path / "other"), "--overwrite"]) == 0
    LoadedIndex.load(tmp_path / "index")


def test_vectors_may_be_shortened(texts: Path, model: Path, tmp_path: Path) -> None:
    made = make_index([str(texts)], tmp_path / "index", IndexSettings(dimensions=8), encoder(), str(model))
    assert made.info.width == 8
    index = SearchIndex(LoadedIndex.load(tmp_path / "index", precision="fp32"))
    (hits,) = index.search(["a new film"], by="dense")
    vectors = encoder().encode(["a new film", *(hit.passage.searched for hit in hits)])[:, :8]
    query, *others = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert [hit.score for hit in hits] == pytest.approx([query @ other for other in others], abs=1e-5)
    with pytest.raises(UserError, match="whose vectors do not fit those of now"):
        make_index([str(texts)], tmp_path / "index", IndexSettings(), encoder(), str(model))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dimensions": 33}, "dimensions: expected at most 32, which the model has, found 33"),
        ({"length": 500}, "length: the model reads 62 tokens of a passage, found 500"),
        ({"length": 10, "overlap": 10}, "overlap: expected fewer than the 10 tokens of a passage"),
    ],
)
def test_passages_that_the_model_cannot_read_are_refused(
    settings: dict[str, int], message: str, texts: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        make_index([str(texts)], tmp_path / "index", IndexSettings(**settings), encoder())
    short = make_index([str(texts)], tmp_path / "index", IndexSettings(length=16), encoder())
    assert short.info.overlap == 2


# --------------------------------------------------------------------------------------------------------- commands


def test_a_query_is_answered_with_texts_files_lines_and_scores(
    made: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "query", str(made), "Anna in Paris", "--by", "bm25", "--top", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["Anna in Paris", "  1. The red film was new. Anna was in Paris. It was great?"]
    assert shown[2].startswith(f"     {texts / 'story.txt'}:1 (bm25 ")


def test_queries_of_a_file_are_answered_as_json_lines_or_as_a_run_of_trec(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q1", "text": "paul"}\n{"_id": "q2", "text": "blue"}\n')
    assert main(["search", "query", str(made), "--input", str(queries), "--top", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(answer["id"], answer["query"], len(answer["hits"])) for answer in found] == [
        ("q1", "paul", 2),
        ("q2", "blue", 2),
    ]
    assert found[0]["hits"][0]["scores"].keys() >= {"dense", "hybrid"}
    assert main(["search", "query", str(made), "--input", str(queries), "--by", "bm25", "--to", "trec"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines] == [["q1", "Q0", "c", "1"], ["q2", "Q0", "a", "1"]]


@pytest.mark.parametrize(
    "name", ["passages.jsonl", "passages.npz", "bm25.npz", "terms.txt", "vectors.npy", "index.json"]
)
def test_a_damaged_file_of_an_index_is_told(name: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "index")
    file = tmp_path / "index" / name
    content = file.read_bytes()
    if name == "vectors.npy":
        np.save(file, np.zeros((4, 7), np.float32))
    else:
        file.write_bytes(
            content.replace(b'"text"', b"'text'") if name == "passages.jsonl" else content[: len(content) // 2]
        )
    with pytest.raises(UserError, match=r"damaged|is not JSON"):
        SearchIndex(LoadedIndex.load(tmp_path / "index", precision="fp32")).search(["anna"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{made}"], "give queries as arguments, or a file of them by --input"),
        (["{made}", "x", " \u200b"], "text 1: expected a query, found ' \\u200b'"),
        (["{words}", "--input", "{queries}"], "queries.jsonl:2: expected a query, found ''"),
        (["{made}", "x", "--top", "0"], "top: expected at least 1, found 0"),
        (["{texts}", "x"], "holds no index, which ernie search index makes"),
        (["{words}", "x", "--by", "dense"], "by: dense needs vectors, and this index was made without a model"),
        (["{words}", "x", "--model", "y"], "was made without a model, and finds by words; leave out the model"),
        (["{damaged}", "x"], "the index is damaged: its files are not of the same passages"),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    words: list[str], message: str, made: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_index([str(texts)], tmp_path / "words", IndexSettings(), None)
    make_index([str(texts)], tmp_path / "damaged", IndexSettings(), None)
    with (tmp_path / "damaged" / "passages.jsonl").open("a") as file:
        file.write("x")
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"query": "red"}\n{"query": ""}\n')
    places = {"made": made, "texts": texts, "queries": queries}
    places |= {"words": tmp_path / "words", "damaged": tmp_path / "damaged"}
    assert main(["search", "query", *(word.format(**places) for word in words)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [{"vectors": "ivf"}, {"dimensions": 8}, {"query_prompt": "q"}, {"passage_prompt": ""}]
)
def test_settings_of_vectors_need_a_model(given: dict[str, Any], texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{next(iter(given))}: has no effect without a model"):
        make_index([str(texts)], tmp_path / "index", IndexSettings(**given), None)


def test_the_card_says_what_the_index_holds(made: Path, texts: Path, model: Path) -> None:
    card = (made / "README.md").read_text(encoding="utf-8")
    assert f"4 passages of 4 documents, from `{texts}`" in card
    assert f"cosines of 32 numbers by `{model}`, all of them compared" in card
