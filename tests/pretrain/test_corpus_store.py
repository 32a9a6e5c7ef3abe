"""A corpus in an object store: written there when it is complete, and trained on through a cache of bounded size."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import s3fs
from support.object_store import object_store

from ernie import cli
from ernie.data import remote
from ernie.data.shards import Corpus
from ernie.data.stream import Feed, Source
from ernie.errors import UserError
from ernie.text.train import train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.config import CorpusConfig
from tasks import pretraining  # noqa: F401 - registers the tasks
from tasks.base import pretrain_tasks

WORDS = "the river Spree runs past an old stone mill where Anna Weber grinds wheat for Berlin".split()
HERE, THERE = "s3://corpora/wiki", "s3://corpora/read"


def story(seed: int) -> str:
    rng = random.Random(seed)
    return "\n".join(" ".join(rng.choices(WORDS, k=12)).capitalize() + "." for _ in range(2 + seed % 5))


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with object_store("corpora") as client:
        yield client


@pytest.fixture(scope="module")
def built(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a tokenizer, and a corpus of them in several shards, which the store has at read/, too."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "in.jsonl").write_text("\n".join(json.dumps({"text": story(i)}) for i in range(240)))
    train_wordpiece([story(i) for i in range(30)], vocab_size=120, lowercase=True, folder=folder / "tokenizer")
    build_corpus(recipe(folder), folder / "local")
    for name, body in content(folder / "local").items():
        store.put_object(Bucket="corpora", Key=f"read/{name}", Body=body)
    return folder


def recipe(folder: Path) -> CorpusConfig:
    return CorpusConfig([str(folder / "in.jsonl")], folder / "tokenizer", "en", [], held_out=0.1, shard_tokens=2500)


@pytest.fixture(autouse=True)
def place(built: Path, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at wiki/, an empty cache, and short pauses."""
    for each in store.list_objects_v2(Bucket="corpora", Prefix="wiki/").get("Contents", []):
        store.delete_object(Bucket="corpora", Key=each["Key"])
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ERNIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def config() -> CorpusConfig:
    return recipe(Path())


def content(folder: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def objects(store: Any) -> dict[str, bytes]:
    """What the bucket holds below wiki/."""
    listed = store.list_objects_v2(Bucket="corpora", Prefix="wiki/").get("Contents", [])
    return {
        each["Key"].removeprefix("wiki/"): store.get_object(Bucket="corpora", Key=each["Key"])["Body"].read()
        for each in listed
    }


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


class TestWriting:
    def test_the_store_has_the_bytes_of_a_local_build_and_this_machine_none(
        self, config: CorpusConfig, store: Any
    ) -> None:
        config = replace(config, shard_tokens=4000)
        build_corpus(config, "here")
        build_corpus(config, HERE)
        assert objects(store) == content("here")
        assert files_in(Path("cache")) == []
        build_corpus(replace(config, shard_tokens=10_000), HERE, overwrite=True)
        build_corpus(replace(config, shard_tokens=10_000), "other")
        assert objects(store) == content("other")  # nothing of the larger number of shards is left

    def test_the_manifest_comes_last_and_an_interrupted_build_goes_on(
        self, config: CorpusConfig, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ernie.data.parts.PART", 5000)
        monkeypatch.setattr("ernie.data.work_folder.SAVED_EVERY", 0)
        build_corpus(config, "here")
        steps = 0

        def stop(*_: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == 9:
                raise KeyboardInterrupt

        with pytest.warns(UserWarning, match="the same command goes on"), pytest.raises(KeyboardInterrupt):
            build_corpus(config, HERE, progress=stop)
        written = objects(store)
        assert "train/shard-00001.ids" in written and "corpus.json" not in written
        with pytest.raises(UserError, match="there is no such file"):
            Corpus.open(HERE)
        assert not list(Path("cache").rglob("train/shard-00000.ids"))
        build_corpus(config, HERE)
        assert objects(store) == content("here")

    @pytest.mark.parametrize(
        ("there", "why"),
        [
            ({"wiki/notes.txt": b""}, "is not empty and holds no corpus"),
            ({"wiki/corpus.json": b"{}"}, "holds a corpus already"),
            ({"wiki/corpus.json": b"{}", "wiki/mine/a.txt": b""}, "holds 'mine/a.txt', too"),
        ],
    )
    def test_what_is_there_is_not_overwritten(
        self, config: CorpusConfig, store: Any, there: dict[str, bytes], why: str
    ) -> None:
        for key, body in there.items():
            store.put_object(Bucket="corpora", Key=key, Body=body)
        with pytest.raises(UserError, match=why):
            build_corpus(config, HERE)
        assert {f"wiki/{name}" for name in objects(store)} == set(there)

    def test_a_store_that_stays_away_is_an_error_with_status_2(
        self, config: CorpusConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        arguments = ["--input", "in.jsonl", "--tokenizer", "tokenizer", "--output", "s3://elsewhere/wiki", "--quiet"]
        assert cli.main(["data", "build", *arguments]) == 2
        assert "s3://elsewhere/wiki: cannot be read after 6 tries" in capsys.readouterr().err


def batches(corpus: Corpus, count: int, mixed: int, workers: int = 0) -> list[bytes]:
    """The first batches of a task's samples."""
    task = pretrain_tasks["knowledge_masking"]()
    feed = Feed([Source("knowledge_masking", task, corpus.train, corpus.tokenizer, 1, 256, 1000, mixed)], workers)
    stream = feed.stream("knowledge_masking")
    try:
        drawn = [next(stream) for _ in range(count)]
    finally:
        feed.close()
    return [np.ascontiguousarray(batch.samples).tobytes() + batch.ids.tobytes() for batch in drawn if batch is not None]


class TestReading:
    @pytest.mark.parametrize(("mixed", "workers"), [(0, 0), (2, 0), (2, 1)])
    def test_batches_are_those_of_the_local_corpus_bit_for_bit(self, mixed: int, workers: int) -> None:
        local, remotely = Corpus.open("local"), Corpus.open(THERE)
        assert len(local.index["splits"]["train"]) > 4
        drawn = batches(local, 60, mixed)
        assert batches(remotely, 60, mixed, workers) == drawn
        assert remotely.fingerprint == local.fingerprint
        assert remotely.train.source(5) == local.train.source(5)

    def test_the_cache_never_holds_more_than_its_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        local = Corpus.open("local")
        corpus = Corpus.open(THERE)
        assert corpus.mirror is not None
        largest = max(corpus.mirror.sizes.values())
        monkeypatch.setattr(corpus.mirror, "limit", 3 * largest)
        held: list[int] = []
        for count in (10, 60):
            assert batches(corpus, count, 1) == batches(local, count, 1)
            held.append(sum(path.stat().st_size for path in files_in(corpus.mirror.folder) if "shard-" in path.name))
        assert max(held) <= 3 * largest < sum(corpus.mirror.sizes.values())

    def test_a_cache_that_is_too_small_is_an_error_that_says_what_is_needed(self) -> None:
        corpus = Corpus.open(THERE)
        assert corpus.mirror is not None
        sizes = sorted(corpus.mirror.sizes.values())
        corpus.mirror.limit = sum(sizes[-3:])
        with pytest.raises(UserError, match=r"data\.cache_mb: all shards of s3://corpora/read take .*_shards=4"):
            corpus.check_cache(0)
        corpus.check_cache(1)
        with pytest.raises(UserError, match="twice 4 shards of each split"):
            corpus.check_cache(4)
        Corpus.open("local").check_cache(0)

    def test_a_missing_shard_is_an_error_with_its_name(self, store: Any) -> None:
        with changed(store, "read/train/shard-00003.flags"):
            store.delete_object(Bucket="corpora", Key="read/train/shard-00003.flags")
            with pytest.raises(UserError, match=r"s3://corpora/read/train/shard-00003\.flags: is missing"):
                Corpus.open(THERE)

    def test_a_shard_that_was_changed_is_an_error_with_its_name(self, store: Any) -> None:
        key = "read/train/shard-00003.ids"
        with changed(store, key) as body:
            store.put_object(Bucket="corpora", Key=key, Body=b"\0\0" + body[2:])
            corpus = Corpus.open(THERE)
            with pytest.raises(UserError, match=r"shard-00003\.ids: is not what was written \(its SHA-256 differs"):
                [document.index for document in corpus.train]
            store.put_object(Bucket="corpora", Key=key, Body=body + b"\0\0")
            with pytest.raises(UserError, match=r"train/shard-00003\.ids: has [\d,]+ bytes, not"):
                Corpus.open(THERE)

    def test_a_store_that_goes_away_is_an_error_and_what_was_fetched_can_be_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        corpus = Corpus.open(THERE)
        first = corpus.train[0].ids.tolist()
        monkeypatch.setattr(remote, "_system", _away)
        assert corpus.train[0].ids.tolist() == first
        with pytest.raises(UserError, match=r"read/train/shard-\d+\.\w+: cannot be read after 6 tries: gone"):
            corpus.train[len(corpus.train) - 1]

    def test_another_corpus_at_the_address_takes_the_place_of_the_old_one(self, config: CorpusConfig) -> None:
        config = replace(config, shard_tokens=10_000)
        build_corpus(config, HERE)
        assert len(Corpus.open(HERE).train) == len(Corpus.open("local").train)
        build_corpus(replace(config, held_out=0.5), HERE, overwrite=True)
        build_corpus(replace(config, held_out=0.5), "half")
        half, there = Corpus.open("half"), Corpus.open(HERE)
        assert [each.ids.tolist() for each in there.train] == [each.ids.tolist() for each in half.train]


@contextmanager
def changed(store: Any, key: str) -> Iterator[bytes]:
    """Yield the content of an object, and put it back at the end."""
    body = store.get_object(Bucket="corpora", Key=key)["Body"].read()
    yield body
    store.put_object(Bucket="corpora", Key=key, Body=body)


class _Gone:
    def __getattr__(self, name: str) -> Any:
        raise OSError("gone")


def _away(url: str) -> tuple[Any, str]:
    return _Gone(), url
