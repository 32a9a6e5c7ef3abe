"""The benchmark of waiting: the policies that are compared lag little enough, and lags in time count computing."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.helpers import ROOT
from support.sessions import Loud, LoudState
from support.toys import GERMAN
from support.trained import trained

sys.path.insert(0, str(ROOT / "benchmarks"))

import moments
import outcomes
import page_tables
import waiting
from record_files import Records

from ernie.decode.stream import Outcome


def write(folder: Path, arm: str, lags: dict[str, float], bleu: dict[str, float]) -> None:
    """A record in which each policy has this lag and BLEU, 9 tokens and 0.2 unless they are given."""
    names = [page_tables.policy_name(policy) for policy in page_tables.POLICIES]
    split = {name: {"bleu": bleu.get(name, 0.2), "latency": {"lagging": lags.get(name, 9.0)}} for name in names}
    (folder / f"{arm}-0.json").write_text(json.dumps({"dev": split, "test": split}), encoding="utf-8")


def test_the_best_policies_that_lag_at_most_three_tokens_are_compared_with_whole_sentences(tmp_path: Path) -> None:
    adaptive, fixed = "k = 1 to 5, 0.5", "k = 2"
    write(tmp_path, "whole", {}, {"whole": 0.4, "k = 9": 0.4})
    write(tmp_path, "one-way", {adaptive: 3.0, fixed: 2.0}, {adaptive: 0.395, fixed: 0.3, "k = 9": 0.5})
    header, whole, one_way = page_tables.waiting_less(Records(tmp_path))
    assert (header[2], header[5]) == ("wait-k", "adaptive")
    assert whole[2:] == ["all lag more", "", "", "all lag more", "", ""]
    assert (one_way[2], one_way[5]) == (fixed, adaptive)
    assert outcomes.waits_less(Records(tmp_path)) == ("-0.5 at AL 3.0", "met")


def test_where_all_lag_more_the_target_is_missed(tmp_path: Path) -> None:
    write(tmp_path, "whole", {}, {"whole": 0.4})
    assert outcomes.waits_less(Records(tmp_path)) == ("all lag more than 3 tokens", "missed")


class Slow(Loud):
    """Takes a quarter of a second for each word that it gives."""

    clock = 0.0

    def advance(self, state: LoudState, most: int | None) -> tuple[LoudState, list[Outcome[Any]]]:
        Slow.clock += 0.25
        return super().advance(state, most)


def test_a_word_is_late_by_the_computing_before_it_but_for_what_ran_while_the_source_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: Slow.clock)
    words, heard, done = moments.moments(Slow(" word"), [("abc", 1.0), ("", 1.0), ("de", 0.0), ("f", 0.25)])
    assert words == ["word"] * 6
    assert heard == [1.0, 1.0, 1.0, 2.0, 2.0, 2.25]
    assert done == [1.75, 1.75, 1.75, 2.5, 2.5, 2.75]  # the last began when the one before it was over


def test_our_figures_on_live_input_are_those_of_simuleval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simuleval")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    trained("translate").model.save(tmp_path / "model")
    sources = ("blue red green blue", "red", "green blue blue red", "red green red green blue")
    rows = [{"de": source, "en": " ".join(GERMAN[word] for word in source.split())} for source in sources]
    policy = {"wait_k": 1, "confidence": 0.5, "max_wait_k": 3}
    found = waiting.by_both(tmp_path / "model", policy, rows, tmp_path / "place")
    assert found["ours"] == pytest.approx(found["SimulEval"], abs=1e-3)
    assert found["ours"]["AL"] > 1
    aware = waiting.in_time(tmp_path / "model", policy, rows)
    assert aware["computation-aware"] > aware["seconds"] > 0
