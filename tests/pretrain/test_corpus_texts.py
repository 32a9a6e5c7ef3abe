"""The texts that a build keeps and drops, in files: what was read, why it went, and a corpus that is made of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ernie.data.raw import RawDocument
from ernie.data.read import read_documents
from ernie.data.shards import Corpus
from ernie.errors import Remark, UserError
from ernie.text.train import train_wordpiece
from pretrain.corpus import texts as texts_module
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.address import Url
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.clean.personal import PersonalData
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.report import CorpusReport
from pretrain.corpus.texts import TextsConfig

FILTERS: list[Filter] = [PersonalData(), Url(block=["bad.com"]), ExactDuplicates()]
ROWS: list[Any] = [
    {"text": "The boat is slow. Write to anna@web.de.\nIt is blue.", "title": "A boat", "url": "https://good.com/1"},
    {"paragraphs": ["Of boats", "They are slow.", "Some are blue."], "headings": [0]},
    {"text": "Anna Weber rows. She is slow.", "spans": [[0, 10, "entity"]]},
    {"text": "The boat is bad.", "url": "https://bad.com"},
    {"text": "Anna waits."},
    {"text": "The river is wide. It is slow."},
    {"text": "The river is wide. It is slow.", "title": "Again"},
    {"title": "Nothing"},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with rows, a line that is no row, and a tokenizer."""
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "no row\n")
    train_wordpiece([json.dumps(row) for row in ROWS], vocab_size=120, lowercase=True, folder=Path("tokenizer"))
    return tmp_path


def built(output: str, processes: int = 0, **keys: Any) -> CorpusReport:
    given: dict[str, Any] = {"input": ["in.jsonl"], "clean": FILTERS, "min_sentences": 2, "held_out": 0.0}
    given |= {"segmenters": [], "language": "en", **keys}
    return build_corpus(CorpusConfig(tokenizer=Path("tokenizer"), **given), output, processes=processes)


def rows_of(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def test_what_is_dropped_is_there_as_it_was_read_with_its_reason() -> None:
    report = built("corpus", texts=TextsConfig(dropped="dropped.jsonl"))
    dropped = rows_of("dropped.jsonl")
    assert Counter(row["reason"] for row in dropped) == report.counts.dropped
    found = {row["source"]: (row["reason"], row.get("text"), row.get("url"), row.get("title")) for row in dropped}
    assert found == {
        "in.jsonl:4": ("url: blocked", "The boat is bad.", "https://bad.com", None),
        "in.jsonl:5": ("too few sentences", "Anna waits.", None, None),
        "in.jsonl:7": ("exact_duplicates: earlier text", "The river is wide. It is slow.", None, "Again"),
        "in.jsonl:8": ("no text", None, None, None),
        "in.jsonl:9": ("not JSON", None, None, None),
    }
    assert "in.jsonl:6" in next(row["detail"] for row in dropped if row["source"] == "in.jsonl:7")


def test_the_kept_texts_are_cleaned_and_make_the_same_corpus() -> None:
    built("corpus", texts=TextsConfig(kept="out/kept.jsonl"))
    kept = rows_of("out/kept.jsonl")
    assert [row["source"] for row in kept] == ["in.jsonl:1", "in.jsonl:2", "in.jsonl:3", "in.jsonl:6"]
    assert kept[0]["text"] == "The boat is slow. Write to email@example.com.\nIt is blue."
    assert (kept[0]["title"], kept[0]["url"], kept[0]["language"]) == ("A boat", "https://good.com/1", "en")
    built("again", input=["out/kept.jsonl"], clean=[])
    documents = [
        [(each.ids.tolist(), each.flags.tolist(), each.marks.tolist()) for each in Corpus.open(name).train]
        for name in ("corpus", "again")
    ]
    assert documents[0] == documents[1]
    assert len(documents[0]) == 4
    recipe = json.loads(Path("corpus/corpus.json").read_text())["recipe"]
    assert "texts" not in recipe


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_files_are_compressed_by_their_names_and_have_the_same_bytes_with_any_workers(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ROWS[:7] * 40
    Path("in.jsonl").write_text("".join(json.dumps({**row, "n": i}) + "\n" for i, row in enumerate(rows)))
    monkeypatch.setattr("ernie.data.parts.PART", 4000)
    names = ("kept", "dropped")
    for processes in (0, 2):
        texts = TextsConfig(*(f"{name}-{processes}.jsonl{suffix}" for name in names))
        built(f"corpus-{processes}", processes, texts=texts)
    for name in names:
        one, two = (Path(f"{name}-{processes}.jsonl{suffix}").read_bytes() for processes in (0, 2))
        assert one == two
    read = [each for each in read_documents([f"kept-0.jsonl{suffix}"]) if isinstance(each, RawDocument)]
    assert len(read) == len(Corpus.open("corpus-0").train) == 4


def test_an_interrupted_build_goes_on_with_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"Boat {i} is slow. It is blue." if i % 3 else f"Boat {i}."} for i in range(600)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("ernie.data.parts.PART", 2000)
    monkeypatch.setattr("ernie.data.work_folder.SAVED_EVERY", 0.0)

    def config(name: str) -> CorpusConfig:
        texts = TextsConfig(f"kept-{name}.jsonl.gz", f"dropped-{name}.jsonl")
        return CorpusConfig(["in.jsonl"], Path("tokenizer"), "en", [], held_out=0.0, min_sentences=2, texts=texts)

    build_corpus(config("whole"), "whole")
    seen = 0

    def stop(*given: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(Remark, match="the same command goes on from there"):
        build_corpus(config("stopped"), "stopped", progress=stop)
    assert not Path("dropped-stopped.jsonl").exists()
    with pytest.warns(Remark, match="goes on after .* that an interrupted build has left"):
        build_corpus(config("stopped"), "stopped")
    for name in ("kept-{}.jsonl.gz", "dropped-{}.jsonl"):
        assert Path(name.format("stopped")).read_bytes() == Path(name.format("whole")).read_bytes()
    assert len(rows_of("dropped-whole.jsonl")) == 200


def test_files_may_be_at_an_address_and_are_replaced_only_if_asked_for() -> None:
    pytest.importorskip("fsspec")
    texts = TextsConfig("memory://texts/kept.jsonl", "dropped.jsonl")
    built("corpus", texts=texts)
    assert len(list(read_documents(["memory://texts/kept.jsonl"]))) == 4
    with pytest.raises(UserError, match=r"texts\.kept: memory://texts/kept\.jsonl: exists\. Give --overwrite"):
        built("other", texts=texts)
    with pytest.raises(UserError, match=r"texts\.dropped: dropped\.jsonl: exists\. Give --overwrite to replace it"):
        built("other", texts=TextsConfig(dropped="dropped.jsonl"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kept": "kept.txt"}, r"kept: expected a name that ends in \.jsonl, or \.jsonl\.gz, .*; found 'kept\.txt'"),
        ({"kept": "a.jsonl", "dropped": "a.jsonl"}, r"dropped: a\.jsonl is the file of the kept texts"),
        ({"kept": "a.jsonl", "dropped": "./a.jsonl"}, r"dropped: a\.jsonl is the file of the kept texts"),
        ({"dropped": "corpus/dropped.jsonl"}, r"texts\.dropped: corpus/dropped\.jsonl: lies in the corpus"),
        ({"dropped": "in.jsonl"}, r"texts\.dropped: in\.jsonl: is read as text, or would be by the next build"),
        ({"dropped": "in.jsonl/d.jsonl"}, r"texts\.dropped: in\.jsonl/d\.jsonl: "),
    ],
)
def test_files_that_cannot_be_are_refused_at_once(keys: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        built("corpus", texts=TextsConfig(**keys))
    assert not Path("corpus").exists()


def test_a_file_in_a_folder_that_is_read_or_in_a_corpus_at_an_address_is_refused() -> None:
    Path("books").mkdir()
    Path("in.jsonl").rename("books/in.jsonl")
    for given in ("books", "books/*.jsonl"):
        with pytest.raises(UserError, match=r"texts\.kept: books/kept\.jsonl: is read as text, or would be"):
            built("corpus", input=[given], texts=TextsConfig(kept="books/kept.jsonl"))
    with pytest.raises(UserError, match=r"texts\.kept: memory://c/d/kept\.jsonl: lies in the corpus"):
        built("memory://c/d", input=["books"], texts=TextsConfig(kept="memory://c/d/kept.jsonl"))
    Path("books/in.jsonl").rename("in.jsonl")


def test_where_nothing_is_dropped_the_file_is_there_and_can_be_unpacked() -> None:
    import gzip

    built("corpus", clean=[], min_sentences=0, input=["in.jsonl"], texts=TextsConfig(dropped="d.jsonl.gz"))
    Path("good.jsonl").write_text('{"text": "The boat is slow. It is blue."}\n')
    built("other", input=["good.jsonl"], texts=TextsConfig(dropped="none.jsonl.gz"))
    assert gzip.decompress(Path("none.jsonl.gz").read_bytes()) == b""
    assert len(gzip.decompress(Path("d.jsonl.gz").read_bytes()).splitlines()) == 2


def test_after_a_file_that_cannot_be_written_the_build_goes_on_with_nothing_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ernie.data.work_folder.SAVED_EVERY", 0.0)
    copy = texts_module.shutil.copyfile

    def failing(made: Path, to: Path) -> None:
        if made.name == "dropped":
            raise PermissionError(13, "Permission denied")
        copy(made, to)

    texts = TextsConfig("kept.jsonl", "dropped.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(texts_module.shutil, "copyfile", failing)
        with (
            pytest.raises(UserError, match=r"texts\.dropped: dropped\.jsonl: may not be written: Permission denied"),
            pytest.warns(Remark, match="the same command goes on from there"),
        ):
            built("corpus", texts=texts)
    assert not Path("kept.jsonl").exists()
    with pytest.warns(Remark, match="goes on after 4 documents"):
        built("corpus", texts=texts)
    assert len(rows_of("kept.jsonl")) == 4
    assert len(rows_of("dropped.jsonl")) == 5
