"""Finished runs and checkpoints of a stranger: code, links, forged and damaged files."""

from __future__ import annotations

import pytest
from hostile_case import Case, Trier, everywhere, text

CASES = [
    Case(
        "config-not-yaml",
        text("done/config.yaml", "task: [\n"),
        "evaluate done",
        r"config\.yaml:\d: .*YAML",
        base="run",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_strangers_run_ends_in_a_sentence(case: Case, trier: Trier) -> None:
    trier.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", everywhere(CASES), ids=str)
def test_a_strangers_run_ends_in_a_sentence_in_every_command(case: Case, trier: Trier) -> None:
    trier.check(case)
