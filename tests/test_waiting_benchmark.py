"""The benchmark of waiting: the policies that are compared lag little enough, or the table says that none does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import outcomes
import page_tables
from record_files import Records


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
