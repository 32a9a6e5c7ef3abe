"""Runs and corpora whose records were forged: for every file and key another type, nothing, NaN or something nested.

The short form tries one case of each file, and the long form more of the thousands, spread over keys, values and
commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.hostile.case import Case, Trier
from support.hostile.forge import CONTENTS, VALUES, filled, forged, places

PRETRAIN = "pretrain run.yaml --output run --quiet"
REPLAY = "replay run --step 4 --from-start --quiet"
FINETUNE = "finetune task.yaml --output done --quiet"
PREDICT = "predict done --input test.tsv"


@dataclass(frozen=True)
class Record:
    """A file in the base's folder, a line of it (0: it is one object; -1: the last), and commands that read it."""

    base: str
    name: str
    commands: tuple[str, ...]
    line: int = 0

    def cases(self, root: Path) -> Iterator[Case]:
        """Yield every case of it."""
        text = (root / self.name).read_text(encoding="utf-8")
        content = json.loads(text.splitlines()[self.line - (self.line > 0)] if self.line else text)
        makes = {f"{id}": filled(self.name, whole) for id, whole in CONTENTS.items()}
        for path in places(content):
            for id, value in VALUES.items():
                makes[f"{'.'.join(map(str, path))} {id}"] = forged(self.name, self.line, path, value)
        for id, make in makes.items():
            for words in self.commands:
                name = f"{self.base} {self.name}:{self.line} {id}: {words.split()[0]}"
                yield Case(name, make, words, "", base=self.base, seconds=60, megabytes=3000)


RECORDS = [
    Record("trained", "run/origin.json", ("report run", "verify run", REPLAY, PRETRAIN)),
    Record("trained", "run/metrics.jsonl", ("report run", "verify run", "scaling run", REPLAY, PRETRAIN), line=1),
    Record("trained", "run/metrics.jsonl", ("report run", "scaling run"), line=-1),
    Record("trained", "run/checkpoints/step-00000004/state.json", ("verify run", REPLAY, PRETRAIN)),
    Record("trained", "run/checkpoints/step-00000004/manifest.json", ("verify run", PRETRAIN)),
    Record("trained", "run/model/config.json", ("report run", "scaling run", "convert run/model out --to hf")),
    Record("trained", "run/report/downstream.json", ("report run",)),
    Record("trained", "corpus/corpus.json", ("verify run", PRETRAIN)),
    Record("trained", "corpus/sources.json", ("verify run", PRETRAIN)),
    Record("trained", "corpus/tokenizer/tokenizer_config.json", ("verify run",)),
    Record("run", "done/model/task.json", ("evaluate done", PREDICT)),
    Record("run", "done/model/sha256.json", (PREDICT,)),
    Record("run", "done/model/config.json", (PREDICT,)),
    Record("run", "done/origin.json", (FINETUNE,)),
    Record("run", "done/trials/seed=0/scores.json", (FINETUNE,)),
    Record("run", "done/trials/seed=0/metrics.jsonl", (FINETUNE,), line=1),
]
SHORT, LONG = 1, 40  # cases of each file
_STEP = 37  # coprime to the numbers of cases, so that the chosen ones differ in key, value and command


def _try(trier: Trier, cases: list[Case]) -> None:
    """Fail with every case that does not end in a sentence, or well."""
    wrong = []
    for case in cases:
        status, seconds, printed = trier.outcome(case)
        trier.forget(case)
        if status not in (0, 1, 2) or "Traceback" in printed or (status == 2 and "error: " not in printed):
            told = f"{case.id}: `ernie {case.words}` ended with {status} after {seconds:.1f} s"
            wrong.append(f"{told}:\n{printed[-1500:]}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.name}:{record.line}")
def test_a_forged_record_ends_in_a_sentence(record: Record, count: int, trier: Trier) -> None:
    cases = list(record.cases(trier.base(record.base)))
    _try(trier, [cases[(1 + number) * _STEP % len(cases)] for number in range(min(count, len(cases)))])
