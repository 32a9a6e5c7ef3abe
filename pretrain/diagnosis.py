"""What went wrong in a replayed step, and where two runs part: the sentences that `ernie replay` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ernie.data.batch import Packed
from ernie.formatting import plural
from ernie.replay.reading import Place, Reading, elements, first_difference, first_wrong
from ernie.train.checkpoint import Checkpoints
from ernie.train.run_folder import CHECKPOINTS
from pretrain.history import read_checked
from pretrain.replay import Agreement, Observed, Replay, SampleLoss, near, saved_arrays

_LISTED = 5  # samples, at most
_EPSILON = float(np.finfo(np.float32).eps)
_CERTAIN = 10.0  # times the rounding error: a difference that is none of rounding


@dataclass
class Diagnosis:
    """What is to be said about a step.

    `wrong` is the first tensor with values that are not finite, `samples` are those that did it.  `holds` unless such a
    value is there, or the step is not what the run has recorded or saved.
    """

    lines: list[str] = field(default_factory=list)
    wrong: Reading | None = None
    samples: list[str] = field(default_factory=list)
    holds: bool = True

    def add(self, line: str, *, holds: bool = True) -> None:
        """Add a sentence, and whether all is well by it."""
        self.lines.append(line)
        self.holds = self.holds and holds


def diagnose(replay: Replay, observed: Observed) -> Diagnosis:
    """Say what went wrong in a step, and how it agrees with what the run has recorded and saved."""
    found = Diagnosis(wrong=first_wrong(observed.readings))
    if found.wrong is None:
        found.add("every value of the step is finite")
    else:
        origin = _begins(replay, found.wrong)
        found.add(f"first not finite: {found.wrong.place}: {found.wrong.wrong()}{origin}", holds=False)
        found.samples = list(_samples(replay, observed, found.wrong))
        for sample in found.samples[:_LISTED]:
            found.add(f"sample: {sample}")
        if len(found.samples) > _LISTED:
            found.add(f"and {len(found.samples) - _LISTED:,} more samples of this micro-batch")
    _add_recorded(found, replay, observed)
    _add_saved(found, replay, observed)
    return found


def compare(
    replay: Replay,
    observed: Observed,
    other: Sequence[Reading],
    values: Callable[[Place], np.ndarray] | None,
    tolerance: float,
) -> Diagnosis:
    """Say in which tensor a step first differs from the same step of another replay.

    `values` gives the values that a tensor has in the other one, if it can be done once more.
    """
    found, beyond = Diagnosis(), f" by more than {tolerance:g}" if tolerance else ""
    difference = first_difference(observed.readings, other, tolerance)
    if difference is None:
        found.add(f"no tensor of the step differs{beyond} from that of the other run")
        return found
    place, how = difference.one.place, f"by {difference.relative:.3g} of its values"
    if difference.one.shape != difference.other.shape:
        how = f"{list(difference.one.shape)} values, {list(difference.other.shape)} in the other run"
    elif values is not None:
        how = elements(replay.observe([place]).kept[place], values(place)) + " in the other run"
    found.add(f"first tensor that differs{beyond}: {place}: {how}", holds=False)
    return found


def _begins(replay: Replay, wrong: Reading) -> str:
    """Say where values of the run's state that are not finite come from."""
    if wrong.place.kind not in ("weight", "moment"):
        return ""
    if replay.since == replay.step and replay.since:
        return f", in the checkpoint of step {replay.since:,}"
    return ", ahead of the step: replay an earlier one"


def _samples(replay: Replay, observed: Observed, wrong: Reading) -> Iterator[str]:
    """Yield the samples whose values are not finite."""
    if wrong.place.micro is None:
        return
    task, batch = observed.batches[wrong.place.micro]
    assert batch is not None, "a process by itself makes all batches"
    rows = observed.bad_rows
    if rows is not None:
        # One row per token, or one per sequence, as in the outputs of a pooler.
        numbers = batch.layout.sequences_of(rows) if wrong.shape[0] == batch.layout.tokens else rows
        if wrong.shape[0] in (batch.layout.tokens, batch.layout.sequences):
            for number in dict.fromkeys(numbers.tolist()):
                yield _named(replay, task, batch, number)
            return
    for sample in replay.sample_losses(task, batch):
        if sample.is_wrong:
            yield str(sample)


def _named(replay: Replay, task: str, batch: Packed, number: int) -> str:
    name = batch.samples[number].tolist()
    return str(SampleLoss(task, tuple(name), replay.place(task, name), 0.0, 0.0))


def _add_recorded(found: Diagnosis, replay: Replay, observed: Observed) -> None:
    """Say how a step, and those before it, agree with the run's records."""
    agreements = [*replay.agreements, *([observed.agreement] if observed.agreement else [])]
    first = next((agreement for agreement in agreements if agreement.differences), None)
    if first is not None:
        found.add(f"the run departs from its replay at step {first.step + 1:,}: {first.told}", holds=False)
    elif observed.agreement is None:
        found.add("the run has no record of this step")
    else:
        how = "bit for bit" if all(agreement.exact for agreement in agreements) else "up to rounding"
        found.add(f"the run's records of {_steps(agreements[0].step, agreements[-1].step)} agree {how} with the replay")


def _steps(first: int, last: int) -> str:
    return f"step {last + 1:,}" if first == last else f"steps {first + 1:,} to {last + 1:,}"


def _add_saved(found: Diagnosis, replay: Replay, observed: Observed) -> None:
    """Say how the step's result agrees with the checkpoint that was written right after it, if there is one."""
    after, record = replay.step + 1, replay.records.get(replay.step)
    if record is not None and record["gradient_norm"] is None and not observed.report.skipped:
        found.add("the run skipped the step, whose gradient was not finite; in the replay it is", holds=False)
        return
    if after not in replay.checkpoints.steps() or observed.report.skipped:
        return
    weights, optimizer = saved_arrays(replay.checkpoints.path(after))
    if not any(_differing(observed.weights, weights)) and not any(_differing(observed.optimizer, optimizer)):
        found.add(f"the checkpoint of step {after:,} has the bits of the replay")
        return
    if (odd := _odd_gradient(replay, observed, optimizer)) is not None:
        found.add(f"the run had another gradient: {odd}", holds=False)
        return
    for name, values in weights.items():
        if how := _odd_weight(replay, observed, optimizer, name, values):
            found.add(f"the checkpoint of step {after:,} has other values of {name}: {how} in it", holds=False)
            return
    found.add(f"the checkpoint of step {after:,} agrees with the replay up to rounding")


def _differing(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yield the names of the arrays whose bits differ."""
    for name in one:
        if name in other and not np.array_equal(one[name], other[name], equal_nan=True):
            yield name


def _odd_weight(
    replay: Replay, observed: Observed, saved: Mapping[str, np.ndarray], name: str, values: np.ndarray
) -> str:
    """Say which values of a saved weight do not follow from the saved moments by AdamW's update; "" if all do.

    The replayed weights may differ from the saved ones even so: AdamW makes whole steps of gradients that are only
    rounding, also in the steps before.
    """
    config, lr, before = replay.config.train.adam, replay.training.lr(replay.step), replay.weights[name]
    taken = {key.removesuffix("/steps"): int(steps[0]) for key, steps in saved.items() if key.endswith("/steps")}
    prefixes = [prefix for prefix in taken if prefix.partition("/")[0] == name]
    prefix = next((each for each in prefixes if taken[each] != replay.moments.get(f"{each}/steps", [0])[0]), None)
    expected = before.astype(np.float64)
    if prefix is not None:
        mean, square = (saved[f"{prefix}/moment{number}"].astype(np.float64) for number in (1, 2))
        mean, square = mean / (1 - config.beta1 ** taken[prefix]), square / (1 - config.beta2 ** taken[prefix])
        decay = config.weight_decay if before.ndim > 1 else 0.0
        with np.errstate(all="ignore"):
            expected = expected * (1 - lr * decay) - lr * mean / (np.sqrt(square) + config.epsilon)
    drifted = 0 if all(agreement.exact for agreement in replay.agreements) else replay.step - replay.since
    limit = (1e-3 + 2 * drifted) * lr + 4 * _EPSILON * np.abs(expected)
    with np.errstate(all="ignore"):
        odd = ~(np.abs(values - expected) <= limit) & ~(np.isnan(values) & np.isnan(expected))
        reference = np.where(np.abs(observed.weights[name] - expected) <= limit, observed.weights[name], expected)
    return elements(np.where(odd, reference, values).astype(np.float32), values)


class _Odd(NamedTuple):
    """A value of a gradient that the run has otherwise, and by how much, as its checkpoint shows."""

    name: str
    at: tuple[int, ...]
    replayed: float
    recorded: float
    certainty: float  # the difference over the error that rounding may cause


def _odd_gradient(replay: Replay, observed: Observed, saved: Mapping[str, np.ndarray]) -> str | None:
    """Say which value of a gradient differs most from that of the run, and why; None if none does.

    The run's gradients follow from AdamW's first moments ahead of the step and after it, and from the recorded norm.
    """
    odd = max(_odd_values(replay, observed, saved), key=lambda found: found.certainty, default=None)
    if odd is None or odd.certainty < _CERTAIN:
        return None
    told = (
        f"{Place('sum', odd.name)}: at {list(odd.at)} {odd.replayed:.6g} in the replay, {odd.recorded:.6g} in the run"
    )
    return told + _flip(replay, odd)


def _odd_values(replay: Replay, observed: Observed, saved: Mapping[str, np.ndarray]) -> Iterator[_Odd]:
    """Yield the value of each gradient that is least to be explained by rounding."""
    config, record = replay.config.train, replay.records.get(replay.step, {})
    own_norm = observed.report.gradient_norm
    norms = (record.get("gradient_norm") or own_norm, own_norm)
    gain, own_gain = ((1 - config.adam.beta1) * _clip_scale(config.clip, norm) for norm in norms)
    gradients = {reading.place.name: reading for reading in observed.readings if reading.place.kind == "sum"}
    for key, after in saved.items():
        name, _, what = key.rpartition("/")
        name = name.partition("/")[0]
        if what != "moment1" or key not in observed.optimizer or name not in gradients:
            continue
        decayed = config.adam.beta1 * replay.moments.get(key, np.zeros_like(after)).astype(np.float64)
        with np.errstate(all="ignore"):
            recorded, replayed = (after - decayed) / gain, (observed.optimizer[key] - decayed) / own_gain
            noise = _EPSILON * (np.abs(decayed) + np.abs(after)) / gain
            noise += _EPSILON * (np.abs(decayed) + np.abs(observed.optimizer[key])) / own_gain
            # Sums of many terms round by a part of these, even where they cancel, as in the bias of keys.
            noise += replay.tolerance * gradients[name].rms / replay.loss_scale + _EPSILON * own_norm
            certainty = np.nan_to_num(np.abs(recorded - replayed) / noise, nan=np.inf)
        at = np.unravel_index(int(certainty.argmax()), certainty.shape)
        index = tuple(map(int, at))
        yield _Odd(name, index, float(replayed[at]), float(recorded[at]), float(certainty[at]))


def _clip_scale(clip: float, norm: float) -> float:
    return min(1.0, clip / norm) if clip and norm else 1.0


def _flip(replay: Replay, odd: _Odd) -> str:
    """Say which flipped bit of which micro-batch's gradient would explain a value, with all that would; "" if none.

    The same bit of two numbers of one size makes the same difference.
    """
    places = [Place("gradient", odd.name, number) for number in range(replay.config.train.micro_batches)]
    kept, gap = replay.observe(places).kept, (odd.recorded - odd.replayed) * replay.loss_scale
    found: list[tuple[int, int]] = []
    for number, place in enumerate(places):
        own = np.array(kept[place][odd.at] if place in kept else 0, np.float32)
        flipped = (own.view(np.uint32) ^ (np.uint32(1) << np.arange(32, dtype=np.uint32))).view(np.float32)
        explains = np.isclose(flipped.astype(np.float64) - own, gap, rtol=1e-3, atol=0)
        found += [(number, bit) for bit in np.flatnonzero(explains).tolist()]
    if not found:
        return ""
    numbers, bits = (sorted(set(each)) for each in zip(*found, strict=True))
    ranks = [rank for rank in dict.fromkeys(map(replay.rank_of, numbers)) if rank is not None]
    where = f", which rank {_either(ranks)} computed" if ranks else ""
    return f": bit {_either(bits)} of it is flipped in micro-batch {_either([1 + n for n in numbers])}{where}"


def _either(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


class Parting(NamedTuple):
    """The first step (from 0) at which two runs differ, and sentences that say how that was found.

    `step` is None if they do not differ.  `replays` if their replays differ at this step, too; else a machine computed
    it otherwise, and `odd` is the run (0 or 1) that departs from its replay.
    """

    step: int | None
    lines: list[str]
    replays: bool = False
    odd: int | None = None


def bisect(one: Path, other: Path, open_replay: Callable[[Path, int], Replay], tolerance: float = 0.0) -> Parting:
    """Find the first step at which two runs differ.

    Their records and the weights of their common checkpoints bound it.  Replaying both from the last checkpoint in
    which they are alike finds it.  `open_replay` opens a run ahead of a step.  A relative difference up to `tolerance`
    counts as none.
    """
    folders, lines = (one, other), list[str]()
    records = [{record["step"]: record for record in read_checked(folder, "step")} for folder in folders]
    recorded = _first_recorded(records, tolerance)
    if recorded is not None:
        lines.append(f"their records first differ at step {recorded[0] + 1:,}: {recorded[1]}")
    alike, differing = _common_checkpoints(folders, tolerance)
    if differing is not None:
        lines.append(f"their checkpoints first differ at that of step {differing[0]:,}: {differing[1]}")
    if alike:
        lines.append(f"the weights of their checkpoints of step {alike:,} are alike")
    ends = [recorded[0] + 1] if recorded is not None else []
    ends += [differing[0]] if differing is not None else []
    if not ends:
        common = len(set(records[0]) & set(records[1]))
        return Parting(None, [*lines, f"no difference in {plural(common, 'common step')}"])
    begin, end = (alike if alike < min(ends) else 0), min(ends)
    replays = [open_replay(folder, begin) for folder in folders]
    try:
        return _replayed_parting(replays, range(begin, end), tolerance, lines)
    finally:
        for replay in replays:
            replay.close()


def _replayed_parting(replays: Sequence[Replay], steps: range, tolerance: float, lines: list[str]) -> Parting:
    """Find the first step at which two replays differ, or else one of them from its run's records."""
    for step in steps:
        if (how := _weights_apart(replays[0].weights, replays[1].weights, tolerance)) is not None:
            return Parting(max(0, step - 1), [*lines, f"their replays differ ahead of step {step + 1:,}: {how}"], True)
        for replay in replays:
            replay.advance()
        how = _weights_apart(replays[0].weights, replays[1].weights, tolerance)
        if how is not None:
            return Parting(step, [*lines, f"their replays first differ in step {step + 1:,}: {how}"], True)
    lines.append(f"their replays are alike up to step {steps.stop:,}: what differs is no sample, seed or setting")
    departed = [next((each for each in replay.agreements if not _agrees(each, tolerance)), None) for replay in replays]
    found = [(each.step, number, each) for number, each in enumerate(departed) if each is not None]
    if not found:
        return _odd_checkpoint(replays, steps.stop, max(tolerance, replays[0].tolerance), lines)
    step, number, agreement = min(found, key=lambda each: each[:2])
    lines.append(f"{replays[number].folder} departs from its replay at step {step + 1:,}: {agreement.told}")
    return Parting(step, lines, odd=number)


def _agrees(agreement: Agreement, tolerance: float) -> bool:
    return agreement.exact or (bool(tolerance) and not agreement.differences)


def _odd_checkpoint(replays: Sequence[Replay], after: int, tolerance: float, lines: list[str]) -> Parting:
    """Find the run whose checkpoint after a step is not what the replays give."""
    for number, replay in enumerate(replays):
        if after not in replay.checkpoints.steps():
            continue
        saved, _ = saved_arrays(replay.checkpoints.path(after))
        if (how := _weights_apart(replay.weights, saved, tolerance)) is not None:
            told = f"the checkpoint of step {after:,} in {replay.folder} is not what its replay gives: {how}"
            return Parting(after - 1, [*lines, told], odd=number)
    return Parting(after - 1, lines)


def _first_recorded(records: Sequence[dict[int, dict[str, Any]]], tolerance: float) -> tuple[int, str] | None:
    """Return the first common step whose records differ, and how."""
    for step in sorted(set(records[0]) & set(records[1])):
        one, other = records[0][step], records[1][step]
        if one.get("samples") != other.get("samples"):
            return step, "other samples"
        numbers = [("learning rate", one["rate"], other["rate"])]
        tasks = dict.fromkeys([*one["loss"], *other["loss"]])
        numbers += [(f"loss of {task}", one["loss"].get(task), other["loss"].get(task)) for task in tasks]
        numbers.append(("gradient norm", one["gradient_norm"], other["gradient_norm"]))
        for what, first, second in numbers:
            if not near(first, second, tolerance):
                return step, f"{what} {first} against {second}"
    return None


def _common_checkpoints(folders: Sequence[Path], tolerance: float) -> tuple[int, tuple[int, str] | None]:
    """Return the last common checkpoint whose weights are alike (0: none), and the first that differs, and how."""
    checkpoints = [Checkpoints(folder / CHECKPOINTS) for folder in folders]
    alike = 0
    for step in sorted(set(checkpoints[0].steps()) & set(checkpoints[1].steps())):
        one, other = (saved_arrays(each.path(step))[0] for each in checkpoints)
        if (how := _weights_apart(one, other, tolerance)) is not None:
            return alike, (step, how)
        alike = step
    return alike, None


def _weights_apart(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], tolerance: float) -> str | None:
    """Say in which tensor two sets of weights first differ, None if in none."""
    for name, values in one.items():
        if name not in other or values.shape != other[name].shape:
            return f"{name} is not the same tensor"
        if np.array_equal(values, other[name], equal_nan=True):
            continue
        readings = [Reading.of(Place("weight", name), each) for each in (values, other[name])]
        if not tolerance or readings[0].difference(readings[1]) > tolerance:
            return f"{name}: {elements(values, other[name])}"
    return None
