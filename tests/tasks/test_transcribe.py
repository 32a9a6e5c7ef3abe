"""Answers of the kind transcribe, and the options of `ernie transcribe` that depend on a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields

import pytest
from support.toys import TOKENIZER, TOYS

from ernie.data.labeled.row import Row
from ernie.decode.recognizer import Recognized
from ernie.errors import UserError
from inference.commands.transcribe import add_arguments, decoding_changes
from tasks.downstream.transcribe import Transcribe

TEXTS = ("", "red", "re", "##d", " blue")


def decode(tokens: Sequence[int]) -> str:
    return " ".join(TEXTS[token] for token in tokens).replace(" ##", "")


def test_alternatives_differ_from_one_another_as_texts() -> None:
    ranked = [((1,), -1.0), ((2, 3), -1.5), ((4,), -2.0), ((), -3.0), ((1, 1), -4.0)]
    alternatives = Transcribe(beam=8, n_best=3).answer_of(Recognized([], 0, ranked), decode)["alternatives"]
    assert alternatives == [
        {"transcript": "red", "score": -1.0},
        {"transcript": "blue", "score": -2.0},
        {"transcript": "", "score": -3.0},
    ]


@pytest.mark.parametrize(
    ("given", "task", "changes"),
    [
        (["--to", "srt"], Transcribe(encoder="chunks"), {"pause": 0.8}),
        (["--to", "srt"], Transcribe(encoder="whole"), {}),
        (["--to", "jsonl", "--pause", "0"], Transcribe(encoder="chunks"), {"pause": 0.0}),
        (["--to", "jsonl"], Transcribe(encoder="chunks", beam=4, n_best=2), {}),  # alternatives are of whole sounds
        (["--to", "jsonl", "--n-best", "1"], Transcribe(encoder="chunks"), {"n_best": 1, "pause": 0.8}),
        (["--beam", "8", "--beam-ctc-weight", "0.5"], Transcribe(), {"beam": 8, "beam_ctc_weight": 0.5}),
        ([], Transcribe(encoder="chunks"), {}),
    ],
)
def test_lines_with_times_end_at_pauses_unless_something_else_is_said(
    given: list[str], task: Transcribe, changes: dict
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert decoding_changes(parser.parse_args(["run", "a.wav", *given]), task) == changes


def test_the_weight_of_ctc_in_a_beam_is_for_a_beam_of_whole_sounds() -> None:
    task = Transcribe(decoder="global")
    assert task.decoding_with({"beam": 8, "beam_ctc_weight": 0.5}, TOKENIZER).beam_ctc_weight == 0.5
    for other, given in ((task, {}), (Transcribe(), {"beam": 8})):
        with pytest.raises(UserError, match="beam_ctc_weight: ranks hypotheses of decoder: global; keep several"):
            other.decoding_with({**given, "beam_ctc_weight": 0.5}, TOKENIZER)


@dataclass(frozen=True, kw_only=True)
class Backwards(Transcribe):
    """A kind of one's own that writes the words in the opposite order."""

    def target(self, row: Row) -> str:
        return " ".join(reversed(super().target(row).split()))


def test_a_kind_that_changes_the_target_learns_from_it() -> None:
    task = TOYS["transcribe"].task
    (row,) = TOYS["transcribe"].rows(1)
    own = Backwards(**{field.name: getattr(task, field.name) for field in fields(task)})
    assert own.target(row) != task.target(row)
    (sample,) = own.training_example(row, TOKENIZER).samples
    assert sample.decoder_ids is not None
    assert TOKENIZER.decode(sample.decoder_ids[1:]) == own.target(row)
