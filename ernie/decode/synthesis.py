"""Streaming speech synthesis: the next stretch of many utterances, in steps of bounded size.

Legend: N utterances, L tokens, D width, F decoder steps, S samples, H features of the conditioner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import paddle

from ernie.audio.pitch import pulses
from ernie.data import seeded_rng
from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.decode.sampler import Sampler, SamplerState
from ernie.errors import NotFinite
from ernie.kernels.precision import batch_invariant, to_numpy
from ernie.model.ernie import ErnieModel
from ernie.model.inference import NOT_FINITE, evaluating
from ernie.model.voice import DecoderPast, Pitch, ReadText, ReadTexts, TextPast, Upsampler, VoiceHead
from ernie.model.wavenet import Flow, FlowPast, WaveNet
from ernie.outcome import Note, Outcome

_MOST_LOGIT = 50.0  # where exp is still finite
_FIRST = 2  # decoder steps of the first stretch of an utterance
_LIMIT_FACTOR, _MIN_LIMIT = 4, 20  # the limit of steps is this multiple of the expected number, at least the latter

Past = tuple[np.ndarray, np.ndarray]  # what a vocoder keeps of a sound: last samples, and the vectors that layers see


class Vocoder(Protocol):
    """Generates the samples of many sounds from their conditioners, stretch by stretch.

    Within `batch_invariant` a sound depends on no other, and not on how it is cut into stretches.
    """

    def begin(self) -> Past:
        """Return the past of a sound before its first sample."""

    def more(self, pasts: Sequence[Past], given: np.ndarray, noise_NS: np.ndarray) -> tuple[list[Past], np.ndarray]:
        """Return the next samples (N, S) by what a Reader gives for them, and the pasts of those that follow.

        `noise_NS` is the white noise that they are made from.
        """


class Reader(Protocol):
    """Prepares the decoder's states for a vocoder.  A sample depends on `reach` steps on either side of its own."""

    reach: int
    step_samples: int  # of a decoder step

    def read(self, states_NFD: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return what the vocoder takes for some steps, by their states and `reach` before and after them.

        Each sound has the first `counts` of these states; the others, and those before its first step, are zero.
        """


class ConditionerReader:
    """Upsamples states to the conditioner of each sample, which F0 follows if there is a `pitch`."""

    def __init__(self, bridge: Upsampler, pitch: Pitch | None = None):
        self._bridge, self.reach, self.step_samples = bridge, bridge.reach, bridge.samples
        self._pitch = pitch

    def read(self, states_NFD: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the conditioners (N, S, H), or (N, S, H + 1) with F0 in Hz, 0 where there is no voice."""
        states = paddle.to_tensor(states_NFD)
        conditioner_NSH = to_numpy(self._bridge(states, self.reach))
        if self._pitch is None:
            return conditioner_NSH
        f0_NF = self._pitch.f0(states, self.reach).astype(np.float32)
        f0_NS = np.repeat(f0_NF, conditioner_NSH.shape[1] // f0_NF.shape[1], axis=1)
        return np.concatenate([conditioner_NSH, f0_NS[:, :, None]], axis=-1)


class WaveNetVocoder:
    """Samples a WaveNet autoregressively."""

    def __init__(self, network: WaveNet):
        self._sampler = Sampler(network)

    @cached_property
    def _silence(self) -> SamplerState:
        return self._sampler.begin()

    def begin(self) -> Past:
        """Return the past of a sound before its first sample."""
        return self._silence.last, self._silence.past

    def more(
        self, pasts: Sequence[Past], conditioner_NSH: np.ndarray, noise_NS: np.ndarray
    ) -> tuple[list[Past], np.ndarray]:
        """Return the next samples (N, S), one for each row of the conditioner, and the pasts of those that follow."""
        after, samples_NS = self._sampler.draw([SamplerState(*past) for past in pasts], conditioner_NSH, noise_NS)
        return [(state.last, state.past) for state in after], samples_NS


class FlowVocoder:
    """Transforms noise into samples by a flow, in parallel; `seed` is that of the noise before the first sample.

    With a `pulse_rate`, the samples of a second, F0 follows each conditioner, and the flow is given pulses of it.  Then
    their phase follows the last samples in a sound's past.
    """

    def __init__(self, flow: Flow, seed: int = 0, pulse_rate: int | None = None):
        self._flow, self._seed, self._pulse_rate = flow, seed, pulse_rate

    @cached_property
    def _silence(self) -> Past:
        noise_S = seeded_rng.generator(self._seed, "noise before").standard_normal(self._flow.context, np.float32)
        with paddle.no_grad(), batch_invariant():
            past = self._flow.begin(paddle.to_tensor(noise_S[None]))
        last, vectors = (np.stack([to_numpy(part)[0] for part in parts]) for parts in past)
        return (last if self._pulse_rate is None else np.append(last, 0.0)), vectors

    def begin(self) -> Past:
        """Return the past of a sound before its first sample: noise under a conditioner of zeros."""
        return self._silence

    def more(
        self, pasts: Sequence[Past], conditioner_NSH: np.ndarray, noise_NS: np.ndarray
    ) -> tuple[list[Past], np.ndarray]:
        """Return the next samples (N, S), one for each row of the conditioner, and the pasts of those that follow."""
        phases: Sequence[int] = ()
        if self._pulse_rate is not None:
            f0_NS, before_N = conditioner_NSH[:, :, -1], [int(past[0][-1]) for past in pasts]
            made = [pulses(f0_S, self._pulse_rate, own) for f0_S, own in zip(f0_NS, before_N, strict=True)]
            given_NSP, phases = zip(*made, strict=True)
            conditioner_NSH = np.concatenate([conditioner_NSH[:, :, :-1], np.stack(given_NSP)], axis=-1)
        networks = range(len(self._flow.networks))
        last, vectors = (
            [paddle.to_tensor(np.stack([past[part][k] for past in pasts], dtype=np.float32)) for k in networks]
            for part in (0, 1)
        )
        given = (paddle.to_tensor(noise_NS), paddle.to_tensor(conditioner_NSH))
        with paddle.no_grad():
            samples_NS, after = self._flow.generate(FlowPast(last, vectors), *given)
        each = zip(*(zip(*map(to_numpy, parts), strict=True) for parts in after), strict=True)
        kept = [(np.stack(own), np.stack(seen)) for own, seen in each]
        if phases:  # whole numbers, which double precision holds
            kept = [(np.append(own, float(phase)), seen) for (own, seen), phase in zip(kept, phases, strict=True)]
        return kept, np.clip(to_numpy(samples_NS), -1, 1)


@dataclass(frozen=True, eq=False)
class Utterance:
    """The state of an utterance that is being spoken.

    The decoder has taken `steps` steps, `past` is what its next one depends on, and `going_on` the probability that
    none so far was the last; once it is `over`, only sound is left to be made.  The samples of `spoken` steps were
    returned; `states` (F, D) are the hidden states, from those that the next samples depend on.
    """

    text: ReadText
    past: TextPast
    states: np.ndarray
    sound: Past
    steps: int = 0
    spoken: int = 0
    going_on: float = 1.0
    over: bool = False


class Stretch(NamedTuple):
    """What a step returns for an utterance: its state, None once all is spoken, and its new samples (S,)."""

    utterance: Utterance | None
    sound: Outcome[np.ndarray]


class Synthesizer:
    """Speaks utterances in stretches of `chunk` decoder steps, many at once.

    The vocoder gets what `reader` makes of the decoder's states, by default the conditioner.

    The noise that samples are made from is a function of `seed` and of the place of the sample in its utterance.  The
    sound of an utterance is the same whatever is spoken beside it and however long the stretches are: to the last bit
    on a CPU.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        head: VoiceHead,
        task_id: int,
        vocoder: Vocoder,
        chunk: int,
        reader: Reader | None = None,
        *,
        seed: int = 0,
    ):
        self._reader = reader or ConditionerReader(head.bridge)
        self._ernie, self._head, self._task_id = ernie, head, task_id
        self._vocoder, self._chunk, self._seed = vocoder, chunk, int(seed)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Return the context in which utterances are begun and advanced."""
        with evaluating(self._ernie), evaluating(self._head), batch_invariant():
            yield

    def begin(self, texts: Sequence[np.ndarray]) -> list[Utterance]:
        """Return the utterances of texts, (L,) tokens each, before their first sample."""
        batch = pack([Sample(ids, np.zeros(len(ids), np.int64)) for ids in texts])
        encoded_TD = self._ernie.encode_packed(batch, self._task_id)
        decoder = self._head.decoder
        no_states = np.zeros((0, decoder.value.weight.shape[0]), np.float32)
        read = decoder.read_each(encoded_TD, batch.ids, batch.layout)
        return [Utterance(text, decoder.beginning, no_states, self._vocoder.begin()) for text in read]

    def advance(self, utterances: Sequence[Utterance], most: int = 1) -> list[Stretch]:
        """Return the next stretch of each utterance: the samples of at most `most` times `chunk` steps.

        The first stretch is shorter, for a listener waits for it.  The decoder goes at most as many steps further, and
        at first also those that the upsampler looks ahead.  An utterance whose numbers are not finite ends with the
        error NotFinite.
        """
        if not utterances:
            return []
        lengths = [most * self._chunk if own.spoken else min(_FIRST, most * self._chunk) for own in utterances]
        decoded, notes = self._decoded(utterances, lengths)
        found = dict.fromkeys(range(len(utterances)), Stretch(None, Outcome(error=NotFinite(NOT_FINITE))))
        for length in sorted({*lengths}):
            whole = {n: own for n, own in enumerate(decoded) if own is not None and lengths[n] == length}
            if whole:
                found |= zip(whole, self._spoken(list(whole.values()), length), strict=True)
        return [Stretch(own.utterance, replace(own.sound, notes=notes[n])) for n, own in sorted(found.items())]

    def frames(self, ids_L: np.ndarray) -> np.ndarray:
        """Return the frames (F, M) that the decoder predicts for a text, up to its end.  Raises NotFinite."""
        (begun,), decoder = self.begin([ids_L]), self._head.decoder
        (decoded,), _ = self._decoded([begun], [_limit(begun.text.letters, decoder.pace)])
        if decoded is None:
            raise NotFinite(NOT_FINITE)
        return decoder.frames_of(decoded.states[None])[0]

    def _decoded(
        self, utterances: Sequence[Utterance], lengths: Sequence[int]
    ) -> tuple[list[Utterance | None], list[tuple[Note, ...]]]:
        """Return the utterances with the states that stretches of these lengths need, None for those that fail."""
        each: list[Utterance | None] = list(utterances)
        notes: list[tuple[Note, ...]] = [()] * len(each)

        def missing(n: int) -> int:
            own = each[n]
            return 0 if own is None or own.over else own.spoken + lengths[n] + self._reader.reach - own.steps

        while going := [n for n in range(len(each)) if missing(n) > 0]:
            batch = [own for n in going if (own := each[n]) is not None]
            for n, (own, stopped) in zip(going, self._steps(batch, min(map(missing, going))), strict=True):
                each[n] = own
                if own is not None and own.over and not stopped:
                    notes[n] = (Note(_did_not_stop(own.steps)),)
        return each, notes

    def _steps(self, utterances: Sequence[Utterance], count: int) -> list[tuple[Utterance | None, bool]]:
        """Take `count` steps of each utterance, fewer if one of them is over before; None stands for one that fails.

        Also returns whether each has stopped by itself.
        """
        decoder, texts = self._head.decoder, ReadTexts.of([own.text for own in utterances])
        past = DecoderPast.of([own.past for own in utterances])
        limits = [_limit(own.text.letters, decoder.pace) - own.steps for own in utterances]
        going_on, states = [own.going_on for own in utterances], []
        stopped = over = finite = np.array([])
        for step in range(1, count + 1):
            prediction, past = decoder.step(past, texts)
            states.append(prediction.states)
            finite = np.isfinite(prediction.stop_logits) & np.isfinite(prediction.frames).all(axis=1)
            for n, logit in enumerate(prediction.stop_logits.tolist()):
                going_on[n] *= 1 / (1 + math.exp(min(logit, _MOST_LOGIT)))
            # Where recordings end with pauses of different lengths, no single step is probably the last.
            at_end = prediction.most_attended >= np.diff(texts.offsets) - 2  # the last token but [SEP]
            stopped = (np.array(going_on) < 0.5) & at_end
            over = stopped | (np.array(limits) <= step)
            if over.any() or not finite.all():
                break
        new_NFD = np.stack(states, axis=1)
        after = [
            replace(own, past=own_past, states=np.concatenate([own.states, new_FD]), steps=own.steps + len(new_FD))
            for own, own_past, new_FD in zip(utterances, past.each(), new_NFD, strict=True)
        ]
        flags = zip(after, going_on, over.tolist(), finite.tolist(), stopped.tolist(), strict=True)
        return [
            (replace(own, going_on=probability, over=ends) if whole else None, ended_itself)
            for own, probability, ends, whole, ended_itself in flags
        ]

    def _spoken(self, utterances: Sequence[Utterance], chunk: int) -> list[Stretch]:
        """Return the stretch of each utterance whose states are there."""
        unit = self._reader.step_samples
        counts = [min(chunk, own.steps - own.spoken) for own in utterances]
        given = self._given(utterances, max(counts))
        finite = np.isfinite(given).all(axis=(1, 2))
        rows = np.flatnonzero(finite).tolist()
        found = [Stretch(None, Outcome(error=NotFinite(NOT_FINITE)))] * len(utterances)
        if not rows:
            return found
        noise_NS = np.stack([self._noise(utterances[n].spoken, max(counts), unit) for n in rows])
        pasts, samples_NS = self._vocoder.more([utterances[n].sound for n in rows], given[rows], noise_NS)
        for n, sound, samples_S in zip(rows, pasts, samples_NS, strict=True):
            samples_S = samples_S[: counts[n] * unit]
            if np.isfinite(samples_S).all():
                found[n] = Stretch(self._after(utterances[n], counts[n], sound), Outcome(samples_S.copy()))
        return found

    def _after(self, utterance: Utterance, count: int, sound: Past) -> Utterance | None:
        """Return an utterance after the samples of `count` more steps, None once all is spoken."""
        spoken, reach = utterance.spoken + count, self._reader.reach
        if utterance.over and spoken == utterance.steps:
            return None
        kept = utterance.steps - max(0, spoken - reach)
        return replace(utterance, spoken=spoken, sound=sound, states=utterance.states[-kept:])

    def _given(self, utterances: Sequence[Utterance], count: int) -> np.ndarray:
        """Return what the vocoder reads for the samples of the next `count` steps.

        Before an utterance's first step and after its last one its states are zero, as in training.
        """
        reach = self._reader.reach
        windows_NFD = np.zeros((len(utterances), count + 2 * reach, utterances[0].states.shape[1]), np.float32)
        for window_FD, own in zip(windows_NFD, utterances, strict=True):
            first = max(0, reach - own.spoken)  # of the states that are there
            states = own.states[: len(window_FD) - first]
            window_FD[first : first + len(states)] = states
        return self._reader.read(windows_NFD, [own.steps - own.spoken + reach for own in utterances])

    def _noise(self, first: int, count: int, unit: int) -> np.ndarray:
        """Return the noise (S,) for the samples of some steps of an utterance."""
        steps = range(first, first + count)
        draws = [seeded_rng.generator(self._seed, "noise", step).standard_normal(unit, np.float32) for step in steps]
        return np.concatenate(draws)


def _limit(letters: float, pace: float) -> int:
    """Return after how many steps a voice that does not stop by itself is cut."""
    return max(_MIN_LIMIT, round(_LIMIT_FACTOR * letters / pace))


def _did_not_stop(steps: int) -> str:
    return (
        f"the voice did not stop by itself and was cut after {steps} steps, {_LIMIT_FACTOR} times as many as it takes "
        "for such a text on average"
    )
