"""The benchmark of waiting: the policies that are compared lag little enough, and lags in time count computing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
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
from record_files import MissingRecord, Records

from ernie.decode.stream import Outcome


def write(
    folder: Path, arm: str, lags: dict[str, float], bleu: dict[str, float], seeds: Sequence[int] = (0, 1, 2)
) -> None:
    """Records in which each policy has this lag and BLEU, 9 tokens and 0.2 unless they are given.

    With each seed BLEU is 0.01 higher; LAAL is 0.5 tokens more than AL.
    """
    names = [page_tables.policy_name(policy) for policy in page_tables.POLICIES]
    for seed in seeds:
        split = {}
        for name in names:
            latency = {"lagging": lags.get(name, 9.0), "length_adaptive": lags.get(name, 9.0) + 0.5}
            split[name] = {"bleu": bleu.get(name, 0.2) + 0.01 * seed, "latency": latency, "longer": 1.1}
        (folder / f"{arm}-{seed}.json").write_text(json.dumps({"dev": split, "test": split}), encoding="utf-8")


def test_the_best_policies_that_lag_at_most_three_tokens_are_compared_with_whole_sentences(tmp_path: Path) -> None:
    adaptive, fixed = "k = 1 to 5, 0.5", "k = 2"
    write(tmp_path, "whole", {}, {"whole": 0.4, "k = 9": 0.4})
    write(tmp_path, "one-way", {adaptive: 3.0, fixed: 2.0}, {adaptive: 0.395, fixed: 0.3, "k = 9": 0.5})
    header, whole, one_way = page_tables.waiting_less(Records(tmp_path))
    assert (header[2], header[7]) == ("wait-k", "adaptive")
    assert whole[2:] == ["all lag more", "", "", "", ""] * 2
    assert (one_way[2], one_way[7]) == (fixed, adaptive)
    assert one_way[8:] == ["3.00", "3.50", "1.10", "40.5 (39.5, 40.5, 41.5)"]
    assert outcomes.waits_less(Records(tmp_path)) == ("-0.5 (-0.5, -0.5, -0.5) at AL 3.0, LAAL 3.5", "met")
    waiting.draw(Records(tmp_path), tmp_path / "waiting.png")
    assert (tmp_path / "waiting.png").read_bytes().startswith(b"\x89PNG")


def test_only_the_seeds_that_both_have_are_compared_and_three_are_needed(tmp_path: Path) -> None:
    adaptive = "k = 1 to 5, 0.5"
    write(tmp_path, "whole", {}, {"whole": 0.4}, seeds=[1, 2])
    write(tmp_path, "one-way", {adaptive: 3.0}, {adaptive: 0.395}, seeds=[0, 1, 2])
    with pytest.raises(MissingRecord, match="no arm has three seeds"):
        outcomes.waits_less(Records(tmp_path))
    write(tmp_path, "whole", {}, {"whole": 0.4}, seeds=[3])
    write(tmp_path, "one-way", {adaptive: 3.0}, {adaptive: 0.395}, seeds=[3])
    found = outcomes.waits_less(Records(tmp_path))
    assert found == ("-0.5 (-0.5, -0.5, -0.5) at AL 3.0, LAAL 3.5", "met")


def test_a_policy_that_another_of_lower_lag_exceeds_is_not_joined(tmp_path: Path) -> None:
    names = ["k = 1", "k = 2", "k = 3"]
    write(
        tmp_path,
        "whole",
        dict(zip(names, (1.0, 2.0, 3.0), strict=True)),
        dict(zip(names, (0.3, 0.2, 0.4), strict=True)),
    )
    seeds = Records(tmp_path).of("whole")
    assert waiting.undominated(seeds, names, "lagging") == ["k = 1", "k = 3"]


def test_policies_are_measured_further_where_their_runs_are_there(tmp_path: Path) -> None:
    adaptive, fixed = "k = 1 to 5, 0.5", "k = 2"
    write(tmp_path, "whole", {}, {"whole": 0.4})
    write(tmp_path, "one-way", {adaptive: 3.0, fixed: 2.0}, {adaptive: 0.395, fixed: 0.3})
    taken = [*waiting.policies_taken(Records(tmp_path), ["whole", "one-way"], [0])]
    assert [(arm, page_tables.policy_name(policy)) for arm, policy, _ in taken] == [
        ("whole", "whole"),
        ("one-way", fixed),
        ("one-way", adaptive),
    ]
    (tmp_path / "in-time").mkdir()
    record = {"seconds": 1.5, "computation-aware": 1.75, "processor": "a processor"}
    (tmp_path / "in-time" / "one-way-k-=-2-0.json").write_text(json.dumps(record), encoding="utf-8")
    _, row = page_tables.waiting_in_time(Records(tmp_path))
    assert row == ["whole sentences, unidirectional encoder", fixed, "1.50", "1.75", "a processor"]


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
