"""`ernie data show` and `ernie data diff`: what is marked is shown, numbers are true, and differences are named."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from ernie.cli import main
from ernie.data.document import Mark
from ernie.data.raw import ReadOptions
from ernie.data.shards import Corpus
from ernie.text.train import train_sentencepiece, train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.fineweb import FineWeb
from pretrain.corpus.clean.gopher import GopherRepetition
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.look.runs import sentences
from pretrain.corpus.look.shown import bracketed, tables
from pretrain.corpus.look.statistics import Lengths, statistics

ENGLISH = "Anna Weber plays chess. It isn't a long game; \"we're done\", she said. The end."
CHINESE = "江水很慢。她住在北京大学旁边。“天气很好！”他说。"
ROWS = [
    {"text": f"{ENGLISH}\nA second paragraph.", "title": "The River", "spans": [[0, 10, "entity"], [5, 22, "phrase"]]},
    {"text": CHINESE, "spans": [[8, 10, "word"], [10, 14, "entity"]]},
    {"text": "Nothing is marked here. <script>alert(1)</script> \x1b[31m red."},
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    texts = [*(row["text"] for row in ROWS), "The River", "Text number 0123456789 is short."]
    train_wordpiece(texts, vocab_size=200, lowercase=True, folder=folder / "wordpiece")
    train_sentencepiece(texts, vocab_size=120, lowercase=False, folder=folder / "sentencepiece")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two files of text."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    Path("b.txt").write_text("\n\n".join(f"Text number {i} is short. " * (i + 1) for i in range(12)))
    return tmp_path


def built(tokenizer: Path, output: str = "c", **keys: object) -> Corpus:
    defaults: dict[str, object] = {"input": ["a.jsonl", "b.txt"], "held_out": 0.0, "segmenters": [], "language": "en"}
    config = CorpusConfig(tokenizer=tokenizer, **{**defaults, **keys})  # type: ignore[arg-type]
    build_corpus(config, output, overwrite=True)
    return Corpus.open(output)


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_the_runs_of_a_sentence_read_as_its_tokens(folder: Path, tokenizers: Path, kind: str) -> None:
    corpus = built(tokenizers / kind, language="auto")
    for document in corpus.train:
        for i, sentence in enumerate(sentences(document, corpus.tokenizer)):
            whole = corpus.tokenizer.decode(document.sentence(i).ids.tolist())
            assert "".join(run.text for run in sentence.runs) == whole


def test_a_sentence_longer_than_what_is_decoded_at_once_reads_as_its_tokens(folder: Path, tokenizers: Path) -> None:
    Path("long.txt").write_text(("江水isn't slow, " * 300).strip())
    corpus = built(tokenizers / "wordpiece", input=["long.txt"], language="zh")
    (sentence,) = sentences(corpus.train[0], corpus.tokenizer)
    assert len(corpus.train[0].ids) > 1500
    assert "".join(run.text for run in sentence.runs) == corpus.tokenizer.decode(corpus.train[0].ids.tolist())


def test_words_phrases_and_entities_are_in_brackets_where_they_were_annotated(folder: Path, tokenizers: Path) -> None:
    corpus = built(tokenizers / "wordpiece", language="auto")
    first, second = (list(sentences(corpus.train[i], corpus.tokenizer)) for i in range(2))
    assert bracketed(first[0].runs) == "the river" and first[0].marks & Mark.TITLE
    assert bracketed(first[1].runs) == "[anna {weber}] {plays chess}."
    assert bracketed(second[1].runs).startswith("她住在<北京>[大学旁边]")


def test_statistics_are_those_of_the_documents(folder: Path, tokenizers: Path) -> None:
    corpus = built(tokenizers / "wordpiece", held_out=0.3, shard_tokens=40)
    documents = [*corpus.train, *corpus.held_out]
    found = statistics(corpus, most=9)
    tokens = sorted(len(document.ids) for document in documents)
    assert len(corpus.held_out) > 0 and found.documents == len(documents) == 15
    assert found.tokens.mean == pytest.approx(np.mean(tokens))
    assert [found.tokens.quantile(share) for share in (0, 0.5, 1)] == [tokens[0], tokens[7], tokens[-1]]
    assert sum(found.sentences.counts * np.arange(len(found.sentences.counts))) == sum(map(len, documents))
    assert {part.name: part.documents for part in found.parts} == {"a.jsonl": 3, "b.txt": 12}
    assert sum(part.tokens for part in found.parts) == sum(tokens)


def test_many_sources_are_counted_by_folder_and_the_least_together(folder: Path, tokenizers: Path) -> None:
    for name, size in (("x", 3), ("y", 2), ("z", 1)):
        for i in range(size):
            path = Path("in") / name / f"{i}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Folder {name} has number {i}.")
    found = statistics(built(tokenizers / "wordpiece", input=["in"]), most=2)
    assert found.by_folder
    assert [(part.name, part.documents) for part in found.parts] == [("in/x", 3), ("2 others", 3)]


@pytest.mark.parametrize("values", [[0, 0, 3], [7], [1, 2, 3, 1000], list(range(100))])
def test_every_length_is_in_a_bin_of_the_histogram(values: list[int]) -> None:
    lengths = Lengths()
    for value in values:
        lengths.add(np.array([value]))
    edges, counts = lengths.histogram(10)
    assert counts.sum() == len(values) and len(edges) == len(counts) + 1 <= 11
    assert counts[0] == sum(value < edges[1] for value in values)


def show(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["data", "show", *arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_documents_are_chosen_by_number_by_source_and_by_seed(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tokenizers / "wordpiece")
    assert "train 1  a.jsonl:2  " in show(capsys, "c", "--document", "1")
    assert len(re.findall("train .* b.txt:", show(capsys, "c", "--source", "b*", "--count", "4"))) == 4
    assert "train 3  b.txt:1  " in show(capsys, "c", "--source", "b.txt:1")
    drawn = [show(capsys, "c", "--count", "2", "--seed", seed) for seed in ("0", "0", "1")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert "1 more sentence not shown" in show(capsys, "c", "--document", "4", "--sentences", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none: is not a corpus: it holds no corpus.json"),
        (["c", "--document", "15"], "--document 15: the split train has 15 documents, numbered from 0"),
        (["c", "--source", "b.tx"], "--source b.tx: no document is from there. Did you mean 'b.txt'?"),
        (["c", "--source", "b.txt:2"], "there is no document that begins at line 2 in this split"),
        (["c", "--count", "-1"], "--count: expected at least 0, found -1"),
        (["c", "--set", "held_out=0"], "--set: is for a recipe, and a corpus is as it was built"),
        (["a.jsonl"], "a.jsonl"),
    ],
)
def test_what_cannot_be_shown_is_said(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    built(tokenizers / "wordpiece")
    assert message in show(capsys, *arguments, status=2)


def test_colors_are_printed_and_the_escapes_of_a_text_are_not(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tokenizers / "wordpiece")
    colored = show(capsys, "c", "--document", "0", "2", "--color", "always")
    plain = show(capsys, "c", "--document", "0", "2")
    assert "\x1b[1;33manna\x1b[0m" in colored and "\x1b[31m" not in colored
    assert "\x1b" not in plain and "[anna {weber}]" in plain


def test_the_page_needs_nothing_else_and_runs_no_script_of_a_text(folder: Path, tokenizers: Path) -> None:
    built(tokenizers / "wordpiece")
    assert main(["data", "show", "c", "--document", "0", "2", "--html", "out/c.html"]) == 0
    page = Path("out/c.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)|(src|href)=\"(?!data:)", page)
    assert '<span class="e">anna</span>' in page and '<span class="e p">weber</span>' in page
    assert "15 documents" in page and "prefers-color-scheme: dark" in page and "Documents by sources" in page


def test_a_page_has_every_table_that_a_terminal_shows(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [{"text": f"Page {i} is short.", "url": f"https://{'www.' * (i % 2)}a{i // 20}.org/{i}"} for i in range(40)]
    pages += [{"text": "Page 1 is short."}, {"text": "x"}, {"text": CHINESE}]
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pages))
    corpus = built(tokenizers / "wordpiece", input=["p.jsonl"], language="auto", min_tokens=3)
    titles = list(tables(statistics(corpus, 12)))
    assert len(titles) == 5
    terminal = show(capsys, "c", "--count", "0")
    assert main(["data", "show", "c", "--count", "0", "--html", "c.html"]) == 0
    page = Path("c.html").read_text(encoding="utf-8")
    for title in titles:
        assert title in terminal
        assert title[0].upper() + title[1:] in page
    assert "a0.org" in page and "a1.org" in page and "www." not in page


def test_nothing_of_a_sample_is_held_out_and_asking_for_it_is_refused(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r.yaml").write_text(f"input: [b.txt]\ntokenizer: {tokenizers / 'wordpiece'}\n")
    message = "--split: of a recipe's sample nothing is held out; build the corpus to see what is"
    assert message in show(capsys, "r.yaml", "--split", "held_out", status=2)


def test_a_recipe_is_tried_on_a_sample_without_being_built(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "input: [a.jsonl, b.txt]\nlanguage: en\nmin_sentences: 3\nsegmenters: []\n"
    Path("r.yaml").write_text(f"{keys}tokenizer: {tokenizers / 'wordpiece'}\n")
    shown = show(capsys, "r.yaml", "--source", "b.txt", "--count", "1")
    assert "too few sentences" in shown and "b.txt: 10" not in shown and "train" in shown
    assert sorted(path.name for path in Path().iterdir()) == ["a.jsonl", "b.txt", "r.yaml"]
    corpus = built(tokenizers / "wordpiece", min_sentences=3)
    ours = show(capsys, "c", "--document", *map(str, range(len(corpus.train))))
    tried = show(capsys, "r.yaml", "--document", *map(str, range(len(corpus.train))))
    assert set(ours.splitlines()) == set(tried.splitlines())
    assert "min_sentence: unknown key" in show(capsys, "r.yaml", "--set", "min_sentence=2", status=2)


def test_damaged_files_are_named_first_among_what_was_dropped(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("z.txt.gz").write_bytes(gzip.compress(Path("b.txt").read_bytes())[:-30])
    built(tokenizers / "wordpiece", input=["a.jsonl", "z.txt.gz"], read=ReadOptions(damaged="drop"))
    said = show(capsys, "c").splitlines()
    assert said[said.index("dropped or changed, for instance") + 1].startswith("  z.txt.gz: the gzip file breaks off")


def diff(capsys: pytest.CaptureFixture[str], one: str, other: str, status: int) -> list[str]:
    capsys.readouterr()
    assert main(["data", "diff", one, other]) == status
    out, err = capsys.readouterr()
    return (err if status == 2 else out).splitlines()[1 if status < 2 else 0 :]


def test_the_same_texts_and_recipe_do_not_differ_wherever_they_lie(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tokenizers / "wordpiece")
    Path("copy.jsonl").write_bytes(Path("a.jsonl").read_bytes())
    built(tokenizers / "wordpiece", "d", input=["copy.jsonl", "b.txt"])
    assert diff(capsys, "c", "d", 0) == ["they are the same"]


def test_settings_that_change_no_document_are_the_only_difference(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tokenizers / "wordpiece")
    built(tokenizers / "wordpiece", "d", min_tokens=2)
    assert diff(capsys, "c", "d", 1) == [
        "settings: min_tokens is 1 in A and 2 in B",
        "documents: the same in both, byte for byte",
    ]


def test_filters_are_compared_kind_by_kind(folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lax = {"min_punctuated": 0.0, "max_short": 1.0}
    built(tokenizers / "wordpiece", clean=[FineWeb(**lax), GopherRepetition(), FineWeb(**lax)])
    built(tokenizers / "wordpiece", "d", clean=[FineWeb(**lax), FineWeb(min_punctuated=0.0, max_short=0.99)])
    said = [line for line in diff(capsys, "c", "d", 1) if line.startswith("settings")]
    assert said[0] == (
        "settings: clean.order is 'fineweb, gopher_repetition, fineweb (2)' in A and 'fineweb, fineweb (2)' in B"
    )
    assert said[1].startswith("settings: clean.gopher_repetition is {")
    assert said[1].endswith(" in A and not given in B")
    assert said[2:] == ["settings: clean.fineweb (2).max_short is 1.0 in A and 0.99 in B"]


def test_documents_that_changed_came_and_went_are_told_apart(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = Path("b.txt").read_text().split("\n\n")
    built(tokenizers / "wordpiece")
    rows = [{**ROWS[0], "spans": [[0, 10, "phrase"]]}, *ROWS[1:]]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # The second text is another one, there is one more of the first, and one is new; in B the last text is missing.
    Path("b.txt").write_text("\n\n".join([texts[0], "Another text.", *texts[2:-1], "\n", texts[0], "It is new."]))
    built(tokenizers / "wordpiece", "d")
    said = [line for line in diff(capsys, "c", "d", 1) if line.startswith(("documents", "  "))]
    named = dict(zip(said, [*said[1:], ""], strict=True))
    assert "a.jsonl:1:" in named["documents: 1 with the same text and other words, phrases or entities marked"]
    assert "b.txt:3: 'text number 1 is short." in named["documents: 1 with another text at the same place"]
    assert "b.txt:23: 'text number 11" in named["documents: 1 only in A"]
    assert "b.txt:26: 'text number 0" in named["documents: 2 only in B"]
    assert len([line for line in said if line.startswith("documents")]) == 4


def test_equal_texts_count_as_often_as_they_are_there(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, times in (("one", 2), ("two", 5)):
        Path("b.txt").write_text("\n\n".join(["The same text."] * times))
        built(tokenizers / "wordpiece", name, input=["b.txt"])
    said = diff(capsys, "one", "two", 1)
    assert "documents: 3 only in B" in said and not [line for line in said if "only in A" in line]
    assert "counts: train has 2 documents in A and 5 in B (+150.0%)" in said
    assert "statistics: documents with an earlier text: 1 in A and 4 in B" in said


def test_corpora_of_two_tokenizers_are_compared_by_places(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tokenizers / "wordpiece")
    built(tokenizers / "sentencepiece", "d", min_tokens=30)
    said = diff(capsys, "c", "d", 1)
    assert "tokenizer: its kind is wordpiece in A and sentencepiece in B" in said
    assert "documents: as the tokenizers differ, only the places that they were read from can be compared" in said
    assert any(re.match(r"documents: \d+ only in A", line) for line in said)


def test_what_cannot_be_compared_is_trouble(folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built(tokenizers / "wordpiece")
    assert "none: is not a corpus" in diff(capsys, "c", "none", 2)[0]


def test_a_corpus_of_before_recipes_were_kept_is_compared_without_them(
    folder: Path, tokenizers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("c", "d"):
        built(tokenizers / "wordpiece", name)
    index = json.loads(Path("d/corpus.json").read_text())
    del index["recipe"]
    Path("d/corpus.json").write_text(json.dumps(index))
    assert diff(capsys, "c", "d", 0) == ["they are the same"]
    main(["data", "diff", "c", "d"])
    assert "note: d: has no recipe, so settings are not compared" in capsys.readouterr().err


def test_a_corpus_keeps_its_recipe_without_places_and_secrets(folder: Path, tokenizers: Path) -> None:
    corpus = built(tokenizers / "wordpiece", plugins=[], min_tokens=2)
    assert corpus.recipe["min_tokens"] == 2 and corpus.recipe["read"]["wrapped"] == "auto"
    assert not {"input", "tokenizer"} & set(corpus.recipe)
    config = CorpusConfig(["a"], Path("t"), plugins=["https://me:word@host/a?token=abc"])
    assert "word" not in str(config.settings()["plugins"]) and "abc" not in str(config.settings())
