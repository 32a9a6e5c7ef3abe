"""Training a tokenizer on a sample of text of any size, its symbols and bytes, and how tokenizers are compared."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from ernie.cli import main
from ernie.data.raw import Place, RawDocument, ReadOptions
from ernie.data.read import find_inputs
from ernie.text.load import load_tokenizer
from ernie.text.scripts import words_in
from pretrain.corpus.draw import Draw
from pretrain.corpus.look.tokenizers import grouped, measured

LINES = [f"Document {i} is about {i * i} things and the number {i % 7}." for i in range(200)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with texts."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("\n\n".join(LINES))
    Path("zh.txt").write_text("江水很慢。她住在北京大学旁边。天气很好。\n" * 5, encoding="utf-8")
    return tmp_path


def draw(name: str, size: int, by: str, seed: int = 0) -> list[str]:
    options = ReadOptions(titles=False)
    return [document.text for document in Draw(size, by, seed).of(find_inputs([name]), options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["reservoir", "hash"])
def test_a_draw_has_the_size_that_is_asked_for_and_depends_on_its_seed(folder: Path, by: str) -> None:
    drawn = draw("in.txt", 1000, by)
    assert 980 < sum(len(text.encode()) for text in drawn) <= 1000  # the last one is cut between words
    assert drawn == draw("in.txt", 1000, by) != draw("in.txt", 1000, by, seed=1)
    assert set(drawn[:-1]) < set(LINES) and any(line.startswith(drawn[-1]) for line in LINES)
    assert sorted(draw("in.txt", 10**6, by)) == sorted(LINES)


@pytest.mark.parametrize("by", ["reservoir", "hash"])
def test_every_document_is_drawn_as_often_as_any_other(folder: Path, by: str) -> None:
    Path("same.txt").write_text("\n\n".join(f"Document {i:03}." for i in range(100)))
    times = dict.fromkeys(range(100), 0)
    for seed in range(200):
        for text in draw("same.txt", 13 * 10, by, seed):
            times[int(text[9:12])] += 1
    # 20 are expected of each; the chance that a binomial variable is outside these limits is below 1e-5.
    assert sum(times.values()) == 2000 and 4 <= min(times.values()) and max(times.values()) <= 42


def test_a_draw_by_texts_depends_on_no_order_and_takes_equal_texts_for_one(folder: Path) -> None:
    shuffled = LINES * 3
    random.Random(0).shuffle(shuffled)
    Path("shuffled.txt").write_text("\n\n".join(shuffled))
    assert draw("shuffled.txt", 2000, "hash") == draw("in.txt", 2000, "hash")
    assert draw("shuffled.txt", 2000, "reservoir") != draw("in.txt", 2000, "reservoir")


def test_a_long_document_crowds_out_only_what_it_takes_the_room_of(folder: Path) -> None:
    # Whatever comes later, a document stays out only for those with smaller numbers.
    texts = ["Long text. " * 200, *LINES]
    for seed in range(20):
        drawn = []
        for order in (texts, texts[::-1]):
            Path("mixed.txt").write_text("\n\n".join(order))
            drawn.append(draw("mixed.txt", 1500, "hash", seed))
        assert drawn[0] == drawn[1]


def train(*arguments: str, status: int = 0) -> None:
    assert main(["tokenizer", "train", "--output", "tok", "--overwrite", *arguments]) == status


def test_what_was_drawn_of_what_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("--input", "in.txt", "--vocab-size", "60", "--sample-mb", "0.002", "--sampling", "reservoir", "--seed", "4")
    said = capsys.readouterr().err
    assert re.search(
        r"learned from \d\d documents, 0.0 MB, of 200 documents, 0.0 MB \(sampling: reservoir, seed 4", said
    )


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_user_symbols_are_kept_whole_and_count_as_entries(folder: Path, kind: str) -> None:
    train("--input", "in.txt", "--kind", kind, "--vocab-size", "70", "--user-symbols", "[URL]", "<n>", "is")
    tokenizer = load_tokenizer("tok")
    assert tokenizer.vocab_size == 70
    tokens = [tokenizer.tokens[i] for i in tokenizer.encode("Document<n> is [URL] things").ids]
    assert [token for token in tokens if token in ("[URL]", "<n>", "is")] == ["<n>", "is", "[URL]"]
    assert not {tokenizer.tokens.index(symbol) for symbol in ("[URL]", "<n>", "is")} & tokenizer.special_ids
    if kind == "wordpiece":  # otherwise a text in other letters would hold it, too
        assert "[URL]" not in [tokenizer.tokens[i] for i in tokenizer.encode("[url]").ids]


def test_bytes_stand_for_characters_that_the_vocabulary_lacks(folder: Path) -> None:
    train("--input", "in.txt", "--kind", "sentencepiece", "--vocab-size", "320", "--byte-fallback")
    tokenizer = load_tokenizer("tok")
    ids = tokenizer.encode("Document 龍 ☃").ids.tolist()
    assert tokenizer.unk_id not in ids and len(tokenizer.byte_ids) == 256
    assert sum(i in tokenizer.byte_ids for i in ids) == len("龍☃".encode())
    assert tokenizer.decode(ids) == "document 龍 ☃"


def test_settings_are_read_from_a_file_and_overridden(folder: Path) -> None:
    Path("tok.yaml").write_text("input: [in.txt]\nvocab_size: 90\ncased: true\nuser_symbols: ['[URL]']\n")
    train("tok.yaml", "--vocab-size", "80")
    tokenizer = load_tokenizer("tok")
    assert (tokenizer.vocab_size, tokenizer.lowercase) == (80, False) and "[URL]" in tokenizer.tokens
    train("tok.yaml", "--vocab-size", "80", "--set", "vocab_size=75")
    assert load_tokenizer("tok").vocab_size == 75


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the input is missing: give --input PATH, or the key `input` in a CONFIG"),
        (["--input", "in.txt", "--vocab-size", "0"], "--vocab-size: vocab_size: expected a number above 0"),
        (["--input", "in.txt", "--byte-fallback"], "only a SentencePiece model splits characters into bytes"),
        (["--input", "in.txt", "--user-symbols", "a b"], "user_symbols: 'a b' is empty or has white space"),
        (["--input", "in.txt", "--user-symbols", "a", "a"], "user_symbols: 'a' is given twice"),
        (["--input", "in.txt", "--user-symbols", "[MASK]"], "'[MASK]' is the name of a special token"),
        (["--input", "in.txt", "--kind", "sentencepiece", "--strip-accents", "no"], "only a WordPiece vocabulary"),
        (["--input", "in.txt", "--set", "sampling=last"], "sampling: expected one of first, reservoir, hash"),
        (
            ["--input", "in.txt", "--kind", "sentencepiece", "--byte-fallback", "--vocab-size", "200"],
            "the special tokens alone take 5 entries, symbols and bytes another 256",
        ),
        (["bad.yaml"], "bad.yaml:2: vocabsize: unknown key. Did you mean 'vocab_size'?"),
    ],
)
def test_settings_that_do_not_go_are_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    Path("bad.yaml").write_text("input: [in.txt]\nvocabsize: 80\n")
    train(*arguments, status=2)
    assert message in capsys.readouterr().err and not Path("tok").exists()


def test_tokenizers_are_compared_by_counts_that_a_plain_loop_has(folder: Path) -> None:
    train("--input", "in.txt", "zh.txt", "--vocab-size", "120")
    tokenizer = load_tokenizer("tok")
    texts = ["Document 3 is 龍.", "A second one."]
    documents = [RawDocument(Place("a", i), text) for i, text in enumerate(texts)]
    (found,) = measured({"tok": tokenizer}, grouped(documents, lambda _: "all"))
    ids = [i for text in texts for i in tokenizer.encode(text).ids.tolist()]
    words, characters = sum(len(words_in(text)) for text in texts), sum(map(len, texts))
    assert (found.per_word, found.per_character) == (len(ids) / words, len(ids) / characters)
    assert found.covered == 1 - ids.count(tokenizer.unk_id) / len(ids) < 1


def test_tokenizers_are_compared_in_each_language_and_on_a_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", "train", "--input", "in.txt", "zh.txt", "--output", "both", "--vocab-size", "150"]) == 0
    assert main(["tokenizer", "train", "--input", "in.txt", "--output", "en", "--vocab-size", "150"]) == 0
    capsys.readouterr()
    compare = ["tokenizer", "compare", "both", "en", "--input", "in.txt", "zh.txt"]
    assert main([*compare, "--html", "page.html"]) == 0
    english, chinese = re.split(r"\n\n", capsys.readouterr().out)[1:3]
    assert english.startswith("en: 200 documents, ") and chinese.startswith("zh: 1 document, 100 words, ")
    both, only = (line.split() for line in chinese.splitlines()[2:])
    assert both[:5] == ["both", "1.000", "0.962", "100.00%", "0.00%"] and only[3:5] == ["0.00%", "100.00%"]
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Tokens a word" in page and 'style="width:100.0%"' in page and "<script" not in page
    assert main([*compare, "--by", "input"]) == 0
    assert "zh.txt: 1 document" in capsys.readouterr().out
    assert main([*compare, "--by", "all"]) == 0
    assert "all: 201 documents" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none", "--input", "in.txt"], "none: there is no such tokenizer folder or file"),
        (["tok", "tok", "--input", "in.txt"], "a tokenizer is given twice"),
        (["tok", "--input", "none.txt"], "none.txt: there is no such file or folder"),
        (["tok", "--input", "empty.txt"], "there is no text to compare tokenizers on"),
        (["tok", "--input", "in.txt", "--sample-mb", "0"], "--sample-mb: expected a number above 0"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    train("--input", "in.txt", "--vocab-size", "80", "--quiet")
    Path("empty.txt").write_text("\n")
    assert main(["tokenizer", "compare", *arguments]) == 2
    assert message in capsys.readouterr().err
