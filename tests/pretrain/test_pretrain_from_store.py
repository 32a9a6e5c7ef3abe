"""`ernie pretrain` on a corpus in an object store: the run of a local corpus, through a cache that holds part of it."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.object_store import object_store
from support.pretraining import await_step, outcome, pretrain, start_process
from support.running import CONFIG

from ernie.data.mirror import Mirror
from ernie.data.shards import Corpus
from ernie.text.train import train_wordpiece
from ernie.train.log import read_records
from pretrain.corpus.build import build_corpus
from pretrain.corpus.config import CorpusConfig

WORDS = "the river Spree runs past an old stone mill where Anna Weber grinds wheat for Berlin".split()
OPTIONS = ("--set", "data.shuffle_shards=1", "--set", "data.cache_mb=1")


def story(seed: int) -> str:
    rng = random.Random(seed)
    return "\n".join(" ".join(rng.choices(WORDS, k=12)).capitalize() + "." for _ in range(25))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Configurations of a run on a local corpus and on the same one in a store."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "in.txt").write_text("\n\n".join(map(story, range(1200))))
    train_wordpiece([story(i) for i in range(30)], vocab_size=120, lowercase=True, folder=folder / "tokenizer")
    recipe = CorpusConfig([str(folder / "in.txt")], folder / "tokenizer", "en", [], shard_tokens=30_000)
    build_corpus(recipe, folder / "corpus")
    with object_store("corpora") as store, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ERNIE_CACHE", str(folder / "cache"))
        for file in (folder / "corpus").rglob("*.*"):
            store.upload_file(str(file), "corpora", f"wiki/{file.relative_to(folder / 'corpus')}")
        for name, place in {"here": folder / "corpus", "there": "s3://corpora/wiki"}.items():
            (folder / f"{name}.yaml").write_text(CONFIG.format(corpus=place))
        yield folder / "here.yaml", folder / "there.yaml"


def held(mirror: Mirror) -> int:
    """The bytes of shards in the cache."""
    return sum(path.stat().st_size for path in mirror.folder.rglob("shard-*") if path.is_file())


@pytest.mark.slow
def test_a_killed_run_from_a_store_resumes_to_the_run_of_the_local_corpus_bit_for_bit(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    here, there = runs
    mirror = Corpus.open("s3://corpora/wiki").mirror
    assert mirror is not None and sum(mirror.sizes.values()) > 1_000_000
    assert start_process(here, tmp_path / "local", *OPTIONS).wait() == 0
    process = start_process(there, tmp_path / "run", *OPTIONS)
    await_step(tmp_path / "run", 9, process)  # in the second stage, after the first checkpoint
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < held(mirror) <= 1_000_000
    assert start_process(there, tmp_path / "run", *OPTIONS).wait() == 0
    assert 0 < held(mirror) <= 1_000_000
    assert outcome(tmp_path / "run") == outcome(tmp_path / "local")


def test_a_cache_that_is_too_small_for_the_run_is_an_error_before_training(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(runs[1], tmp_path / "run", "--set", "data.cache_mb=1") == 2
    assert "data.cache_mb: all shards of s3://corpora/wiki take" in capsys.readouterr().err
    assert read_records(tmp_path / "run") == []
