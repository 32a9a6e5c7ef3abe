"""A corpus that is built on a Ray cluster: the bytes of one process, also where workers and nodes are lost."""

from __future__ import annotations

import json
import os
import random
import socket
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import put

from ernie.errors import UserError
from ernie.text.segment.base import Segmenter, no_spans
from ernie.text.train import train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.clean.passages import RepeatedPassages
from pretrain.corpus.config import CorpusConfig

pytest.importorskip("ray", reason="ray is not installed: pip install 'ernie-continual[ray]'")

WORDS = "the river Spree runs past an old stone mill where Anna Weber grinds wheat for Berlin".split()


def story(seed: int) -> str:
    rng = random.Random(seed)
    return "\n".join(" ".join(rng.choices(WORDS, k=12)).capitalize() + "." for _ in range(1 + seed % 5))


@dataclass(frozen=True)
class EndsOnce(Segmenter):
    """Ends its process the first time that it is asked, like the kernel does when memory runs out."""

    mark: str

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os._exit(9)
        return no_spans()


@dataclass(frozen=True)
class EndsAlways(Segmenter):
    """Ends its process whenever it is asked."""

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        os._exit(9)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CorpusConfig:
    """The recipe of texts in a relative folder: many small files and a large one, which is read in pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ernie.data.parts.PART", 20_000)
    Path("in").mkdir()
    for i in range(20):
        Path(f"in/{i:02}.txt").write_text("\n\n".join(story(20 * i + k) for k in range(20)))
    Path("in/large.jsonl").write_text("\n".join(json.dumps({"text": story(i)}) for i in range(1000)) + "\nnonsense")
    train_wordpiece([story(i) for i in range(30)], vocab_size=120, lowercase=True, folder=tmp_path / "tokenizer")
    clean: list[Filter] = [RepeatedPassages(words=8)]
    return CorpusConfig(["in"], tmp_path / "tokenizer", "en", [], held_out=0.1, drop_repeated=True, clean=clean)


def content(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def ray_here() -> Iterator[Any]:
    """Ray on this machine, with two cores."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        ray.shutdown()


def test_an_address_without_a_cluster_is_told_at_once(config: CorpusConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match=rf"there is no cluster at {address}, the address in RAY_ADDRESS \("):
            build_corpus(config, "corpus", engine="ray", processes=1)


def test_ray_gives_the_bytes_of_one_process_and_an_error_names_the_file(config: CorpusConfig, ray_here: Any) -> None:
    build_corpus(config, "alone")
    steps: list[int] = []
    build_corpus(config, "cluster", processes=None, engine="ray", progress=lambda done, *rest: steps.append(done))
    assert content("cluster") == content("alone")
    assert len(steps) > 10 and steps[-1] == sum(path.stat().st_size for path in Path("in").iterdir())
    Path("in/large.jsonl").write_bytes(b"\x1f\x8b")
    Path("in/large.jsonl").rename("in/zz.txt.gz")
    with pytest.raises(UserError, match=r"in/zz\.txt\.gz: the gzip file breaks off"):
        build_corpus(config, "broken", processes=1, engine="ray")
    assert sorted(path.name for path in Path().iterdir()) == ["alone", "cluster", "in", "tokenizer"]


@pytest.mark.parametrize("processes", [0, -1])
def test_no_tasks_at_all_is_an_error(config: CorpusConfig, processes: int, ray_here: Any) -> None:
    with pytest.raises(UserError, match=f"with --engine ray expected at least 1, found {processes}"):
        build_corpus(config, "none", processes=processes, engine="ray")


@pytest.mark.slow
class TestLoss:
    @pytest.fixture
    def cluster(self) -> Iterator[Any]:
        """A cluster of three nodes, the first of which does no work."""
        import ray
        from ray.cluster_utils import Cluster

        ray.shutdown()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
            cluster.nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            cluster.wait_for_nodes()
            yield cluster
            ray.shutdown()
            cluster.shutdown()

    def test_the_work_of_a_worker_that_is_killed_is_done_again(self, config: CorpusConfig, cluster: Any) -> None:
        mark = put(Path("mark").absolute(), "")
        ending = replace(config, segmenters=[EndsOnce(str(mark))])
        build_corpus(ending, "alone")
        mark.unlink()
        build_corpus(ending, "cluster", engine="ray", processes=4)
        assert mark.exists()
        assert content("cluster") == content("alone")

    def test_the_work_of_a_node_that_is_lost_is_done_by_the_others(self, config: CorpusConfig, cluster: Any) -> None:
        build_corpus(config, "alone")
        lost: list[int] = []

        def lose(done: int, size: int, counts: Any) -> None:
            if counts and counts.bytes and not lost:
                lost.append(done)
                cluster.remove_node(cluster.nodes[0], allow_graceful=False)

        build_corpus(config, "cluster", engine="ray", processes=None, progress=lose)
        assert 0 < lost[0] < sum(path.stat().st_size for path in Path("in").iterdir())
        assert content("cluster") == content("alone")

    def test_work_that_ends_every_worker_is_an_error(self, config: CorpusConfig, cluster: Any) -> None:
        with pytest.raises(UserError, match=r"a part of the work was lost 6 times.*memory ran out"):
            build_corpus(replace(config, segmenters=[EndsAlways()]), "cluster", engine="ray", processes=1)
        assert not Path("cluster").exists()
