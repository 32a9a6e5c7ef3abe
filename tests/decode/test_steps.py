"""The contract of stream decoders: bounded steps in any order, beside any streams, give what push and finish give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import recognizers, translators
from support.stepping import Decoder, actions, alone, outputs

from ernie.decode.recognizer import RecognitionState
from ernie.decode.states import VERSION, arrays_of, restore
from ernie.decode.stream import load_state, save_state
from ernie.decode.translator import TranslationState
from ernie.decode.wait_k import WaitK
from ernie.errors import NotFinite, UserError
from ernie.kernels.precision import precision

KINDS = ("greedy", "beam", "prefixes", "ctc", "ctc by beam with pauses", "abstractions by beam")
BY_TEXT = KINDS[:3]


def decoder_of(kind: str) -> Decoder:
    if kind in BY_TEXT:
        return translators.translator(WaitK(2), kind != "prefixes", 3 if kind == "beam" else 1)
    return recognizers.recognizer(2 * recognizers.CHUNK * (recognizers.BEFORE + 1), kind)


def inputs(kind: str, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """The input of some streams, of sizes between 0 and 9."""
    if kind in BY_TEXT:
        return translators.texts(list(sizes), seed)
    return [recognizers.sound(700 * size, seed + n) for n, size in enumerate(sizes)]


@pytest.fixture(autouse=True)
def full_precision():
    with precision("fp32"):
        yield


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.integers(0, 9), min_size=3, max_size=3), actions, st.integers(0, 99))
def test_steps_in_any_order_and_company_give_what_each_stream_gives_alone(
    kind: str, sizes: list[int], calls: list[tuple[str, int]], seed: int
) -> None:
    decoder, whole = decoder_of(kind), inputs(kind, sizes, seed)
    pieces = [np.array_split(own, 4) for own in whole]
    assert outputs(decoder, pieces, calls) == [alone(decoder, own) for own in whole]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_computes_at_most_a_chunk_or_a_token_of_each_stream(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, computed = decoder_of(kind), list[int]()
    whole = inputs(kind, [9, 0, 4], 0)
    if kind in BY_TEXT:
        _, head = translators.model()
        forward = type(head).forward_cached
        monkeypatch.setattr(
            type(head), "forward_cached", lambda *given, **more: (computed.append(1), forward(*given, **more))[1]
        )
    else:
        ernie, _ = recognizers.model(2 * recognizers.CHUNK * (recognizers.BEFORE + 1), kind)
        chunks = type(ernie.encoder).forward_chunks

        def counted(own: Any, x_TD: Any, layout: Any, *rest: Any) -> Any:
            computed.append(int(layout.lengths.max()))
            return chunks(own, x_TD, layout, *rest)

        monkeypatch.setattr(type(ernie.encoder), "forward_chunks", counted)
    state, _ = decoder.accept(decoder.begin(3), whole)
    state, passes = decoder.end(state), 0
    while any(decoder.pending(state)):
        computed.clear()
        state, outcomes = decoder.step(state)
        passes += len(computed)
        assert len(computed) <= 1
        if kind in BY_TEXT:  # a search returns all of its tokens at its end
            assert kind == "beam" or all(len(outcome.get()) <= 1 for outcome in outcomes)
        else:
            assert sum(computed) <= recognizers.CHUNK
    assert passes > 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_whose_outputs_are_not_finite_fails_alone(kind: str) -> None:
    decoder, whole = decoder_of(kind), inputs(kind, [8, 6, 7], 1)
    state, _ = decoder.push(decoder.begin(3), [own[: len(own) // 2] for own in whole])
    arrays = dict(state.select([1]).arrays())
    # Of prefixes the source is encoded anew at each step.
    damage = {"greedy": "source_cache", "beam": "source_cache", "prefixes": "target_cache/cache"}
    cache = damage.get(kind, "cache")
    name = next(name for name in arrays if name.startswith(f"{cache}/values"))
    arrays[name] = np.full_like(arrays[name], np.nan)
    damaged = state.select([0]).concat([type(state).from_arrays(arrays), state.select([2])])
    rest = [own[len(own) // 2 :] for own in whole]
    found: list[list[Any]] = [[], [], []]
    failed = []
    for now in (decoder.accept(damaged, rest)[0], None):
        damaged = decoder.end(damaged) if now is None else now
        while any(decoder.pending(damaged)):
            damaged, outcomes = decoder.step(damaged)
            for n, outcome in enumerate(outcomes):
                if outcome.error is None:
                    found[n] += outcome.get()
                else:
                    failed.append((n, type(outcome.error), outcome.error.stream))
    assert failed == [(1, NotFinite, 1)]
    for n in (0, 2):
        own = state.select([n])
        own, (more,) = decoder.push(own, [rest[n]])
        assert found[n] == more + decoder.finish(own)[1][0]
    _, errors = decoder.accept(damaged, [rest[0][:0], rest[1], None])
    assert [error is None for error in errors] == [True, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_a_piece_that_cannot_be_taken_leaves_its_stream_as_it_was(kind: str) -> None:
    decoder = decoder_of(kind)
    (own, other) = inputs(kind, [6, 7], 2)
    state = decoder.end(decoder.begin(2), [True, False])
    state, errors = decoder.accept(state, [own, other])
    assert [str(error) for error in errors] == [str(errors[0]), "None"]
    assert "is over; begin another one" in str(errors[0]) and errors[0] is not None and errors[0].stream == 0
    _, (first, second) = decoder.finish(state)
    assert (first, second) == ([], alone(decoder, other))


def test_a_saved_state_has_a_version_the_model_and_the_names_of_its_fields(tmp_path: Path) -> None:
    decoder = decoder_of("beam")
    state, _ = decoder.push(decoder.begin(), inputs("beam", [4], 0))
    arrays = state.arrays()
    assert int(arrays["state.version"]) == VERSION
    assert str(arrays["state.fields"]).count(f'"model": "{state.model}"') == 1
    assert {"encoder_cache/lengths", "target_cache/cache/keys.0", "source_cache/values.1"} <= arrays.keys()
    save_state(Later(arrays), tmp_path / "kept.npz")
    with pytest.raises(UserError, match=r"kept\.npz: a state of version 99, which another version"):
        load_state(decoder, tmp_path / "kept.npz")


class Later:
    """A state as a later version might save it."""

    streams = 1

    def __init__(self, arrays: dict[str, np.ndarray]):
        self._arrays = arrays

    def select(self, streams: Sequence[int]) -> Later:
        return self

    def concat(self, others: Sequence[Later]) -> Later:
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        return self._arrays | {"state.version": np.array(99)}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Later:
        return cls(arrays)


@pytest.mark.parametrize("kind", ["beam", "abstractions by beam"])
def test_states_of_fewer_streams_in_one_part_are_refused(kind: str) -> None:
    decoder = decoder_of(kind)
    state = decoder.begin(2)
    torn = (
        replace(state, progress=state.progress[:1])
        if isinstance(state, TranslationState)
        else replace(state, stream_states=state.stream_states[:1])
    )
    with pytest.raises(ValueError, match="its parts have different numbers of streams"):
        restore(TranslationState if kind == "beam" else RecognitionState, arrays_of(torn))
