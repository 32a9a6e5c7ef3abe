"""The corpus on disk: it reads back as written, and damage is detected."""

from __future__ import annotations

import errno
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data import shard_writer
from ernie.data.document import Document
from ernie.data.shard_writer import CorpusWriter, Documents
from ernie.data.shards import Corpus, Split
from ernie.errors import UserError
from ernie.text.tokenizer import Encoding, Tokenizer


class Numbers(Tokenizer):
    """A tokenizer whose units are numbers and their own ids: all that the shards need."""

    kind: ClassVar[str] = "numbers"
    lowercase = False
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, size: int = 1000):
        self._tokens = [str(i) for i in range(size)]

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    def split(self, text: str) -> list[str]:
        return text.split()

    def pieces(self, unit: str) -> list[int]:
        return [int(unit)]

    def encode_whole(self, text: str) -> Encoding:
        ids = np.array([int(unit) for unit in text.split()], dtype=np.int64)
        return Encoding(ids, np.zeros((len(ids), 2), np.int64))

    def readable(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))

    def write_files(self, folder: Path) -> None:
        (folder / "size").write_text(str(len(self._tokens)))


def document(lengths: Sequence[int], seed: int = 0, vocab_size: int = 1000) -> Document:
    """A document of random tokens with sentences of these lengths."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return Document(
        0,
        rng.integers(vocab_size, size=n),
        rng.integers(128, size=n),
        np.cumsum(lengths),
        rng.integers(8, size=len(lengths)),
    )


def write_corpus(
    folder: Path, batches: Sequence[Sequence[Document]], *, vocab_size: int = 1000, shard_tokens: int = 100
) -> Corpus:
    with CorpusWriter(folder, Numbers(vocab_size), shard_tokens=shard_tokens) as writer:
        for batch in batches:
            writer.write("train", Documents.join(batch, [(0, 7)] * len(batch)))
        writer.finish(["a.txt"], language="en")
    return Corpus.open(folder)


def assert_same(split: Split, documents: Sequence[Document]) -> None:
    assert len(split) == len(documents)
    for i, (found, expected) in enumerate(zip(split, documents, strict=True)):
        assert found.index == i
        for name in ("ids", "flags", "ends", "marks"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4), max_size=6),
    vocab_size=st.sampled_from([1000, 65_536, 65_537]),
    shard_tokens=st.integers(1, 60),
)
def test_a_corpus_reads_back_as_written(batches, vocab_size, shard_tokens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("round") / "corpus"
    documents = [
        [document(lengths, 10 * i + j, vocab_size) for j, lengths in enumerate(batch)]
        for i, batch in enumerate(batches)
    ]
    corpus = write_corpus(folder, documents, vocab_size=vocab_size, shard_tokens=shard_tokens)
    flat = [doc for batch in documents for doc in batch]
    assert_same(corpus.train, flat)
    assert_same(pickle.loads(pickle.dumps(corpus)).train, flat)
    assert corpus.train.tokens == sum(len(doc.ids) for doc in flat)
    assert corpus.train.sentences == sum(len(doc) for doc in flat)
    assert len(corpus.held_out) == 0
    corpus.verify()


def test_large_vocabularies_keep_ids_above_65535(tmp_path):
    large = Document(0, np.array([70_000]), np.array([0]), np.array([1]), np.array([0]))
    assert write_corpus(tmp_path / "c", [[large]], vocab_size=70_001).train[0].ids.tolist() == [70_000]


def test_a_document_knows_where_it_was_read(tmp_path):
    with CorpusWriter(tmp_path / "c", Numbers()) as writer:
        writer.write("train", Documents.join([document([3]), document([2])], [(1, 12), (0, 5)]))
        writer.finish(["a.txt", "b.txt"], language="en")
    train = Corpus.open(tmp_path / "c").train
    assert [train.source(0), train.source(-1)] == ["b.txt:12", "a.txt:5"]


def test_an_index_outside_the_split_is_an_error(tmp_path):
    train = write_corpus(tmp_path / "c", [[document([3])]]).train
    assert train[-1].index == 0
    with pytest.raises(IndexError):
        train[1]


def test_a_pickled_split_contains_no_data(tmp_path):
    train = write_corpus(tmp_path / "c", [[document([5000])]]).train
    assert len(train[0].ids) == 5000
    assert len(pickle.dumps(train)) < 2000


def test_corpora_of_the_same_bytes_have_the_same_fingerprint(tmp_path):
    first = write_corpus(tmp_path / "a", [[document([3, 4])]])
    second = write_corpus(tmp_path / "b", [[document([3, 4])]])
    other = write_corpus(tmp_path / "c", [[document([3, 4], seed=1)]])
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_a_truncated_shard_is_named_when_the_corpus_is_opened(tmp_path):
    write_corpus(tmp_path / "c", [[document([50])]])
    path = tmp_path / "c" / "train" / "shard-00000.ids"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"shard-00000\.ids: has 99 bytes, was written with 100.*rebuild"):
        Corpus.open(tmp_path / "c")


def test_a_missing_shard_is_named_when_the_corpus_is_opened(tmp_path):
    write_corpus(tmp_path / "c", [[document([50])]])
    (tmp_path / "c" / "train" / "shard-00000.ends").unlink()
    with pytest.raises(UserError, match=r"shard-00000\.ends: is missing"):
        Corpus.open(tmp_path / "c")


def test_verify_finds_a_changed_byte(tmp_path):
    corpus = write_corpus(tmp_path / "c", [[document([50])]])
    path = tmp_path / "c" / "train" / "shard-00000.flags"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"shard-00000\.flags: is not what was written"):
        corpus.verify()


def test_a_folder_that_is_not_a_corpus_is_rejected(tmp_path):
    with pytest.raises(UserError, match="is not a corpus"):
        Corpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="corpus format 99, this version reads 1"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("missing", ["language", "tokenizer.vocab_size", "splits.held_out", "splits.train[0].tokens"])
def test_a_key_missing_from_the_index_is_named(tmp_path, missing):
    write_corpus(tmp_path / "c", [[document([3])]])
    path = tmp_path / "c" / "corpus.json"
    index = json.loads(path.read_text())
    *parents, last = [int(key) if key.isdigit() else key for key in missing.replace("[0]", ".0").split(".")]
    owner = index
    for key in parents:
        owner = owner[key]
    del owner[last]
    path.write_text(json.dumps(index))
    with pytest.raises(UserError) as caught:
        Corpus.open(tmp_path / "c")
    assert f"{path}: {missing}: this key is required" in str(caught.value)
    assert "rebuild it" in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", "[{}]"])
def test_a_damaged_source_list_raises_a_clear_error(tmp_path, content):
    write_corpus(tmp_path / "c", [[document([3])]])
    corpus = Corpus.open(tmp_path / "c")
    (tmp_path / "c" / "sources.json").write_text(content)
    with pytest.raises(UserError, match=r"sources\.json: cannot be read"):
        corpus.train.source(0)


def test_an_error_while_writing_leaves_nothing_behind(tmp_path):
    with pytest.raises(RuntimeError), CorpusWriter(tmp_path / "c", Numbers()) as writer:
        writer.write("train", Documents.join([document([3])], [(0, 1)]))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_overwriting_keeps_the_old_corpus(tmp_path):
    write_corpus(tmp_path / "c", [[document([3])]])
    with pytest.raises(RuntimeError), CorpusWriter(tmp_path / "c", Numbers(), overwrite=True):
        raise RuntimeError
    assert len(Corpus.open(tmp_path / "c").train) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_overwriting_replaces_the_corpus(tmp_path):
    write_corpus(tmp_path / "c", [[document([3])]])
    with CorpusWriter(tmp_path / "c", Numbers(), overwrite=True) as writer:
        writer.write("held_out", Documents.join([document([3])], [(0, 1)]))
        writer.finish(["a.txt"], language="en")
    corpus = Corpus.open(tmp_path / "c")
    assert (len(corpus.train), len(corpus.held_out)) == (0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_existing_corpus_is_kept_without_overwrite(tmp_path):
    write_corpus(tmp_path / "c", [[document([3])]])
    with pytest.raises(UserError, match="holds a corpus already"):
        CorpusWriter(tmp_path / "c", Numbers())


def test_a_folder_with_other_files_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not empty and holds no corpus"):
        CorpusWriter(tmp_path, Numbers(), overwrite=True)


def test_a_full_disk_is_reported_and_the_partial_corpus_removed(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="the disk is full"), CorpusWriter(tmp_path / "c", Numbers()) as writer:
        monkeypatch.setattr(shard_writer.os, "fsync", full)
        writer.write("train", Documents.join([document([3])], [(0, 1)]))
        writer.finish(["a.txt"], language="en")
    assert list(tmp_path.iterdir()) == []
