"""The dispatcher forgets nothing, computes nothing twice, and keeps what it promises."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dispatching import FIXED, PER_TOKEN, job, lane

from serving.cost import CostModel
from serving.dispatcher import Dispatcher, Job, Lane, Refused, TooLarge
from serving.simulation import simulate

CAPACITY = 1 / (47 * PER_TOKEN)  # requests a second of the mean length


def lengths(numbers: random.Random) -> int:
    """A length in tokens: lognormal with a mean of 47 and a long tail."""
    return min(512, max(4, round(numbers.lognormvariate(3.456, 0.89))))


def poisson(load: float, seconds: float, seed: int = 0) -> list[tuple[float, int]]:
    """Arrival times and lengths at a share of the capacity."""
    numbers, now, arrivals = random.Random(seed), 0.0, []
    while (now := now + numbers.expovariate(load * CAPACITY)) < seconds:
        arrivals.append((now, lengths(numbers)))
    return arrivals


@st.composite
def many_jobs(draw: st.DrawFn) -> list[Job]:
    lanes = [lane("a"), lane("b", 0.001, 0.0002)]
    return [
        job(
            lanes[draw(st.integers(0, 1))],
            draw(st.lists(st.integers(1, 600), min_size=1, max_size=5)),
            draw(st.floats(0, 1)),
            draw(st.sampled_from([0.05, 0.3, 5.0])),
            bulk=draw(st.booleans()),
            client=draw(st.sampled_from("xyz")),
            step=draw(st.integers(0, 9)) == 0,
        )
        for _ in range(draw(st.integers(1, 40)))
    ]


@given(many_jobs())
@settings(max_examples=50, deadline=None)
def test_every_job_is_answered_once_or_refused_or_expired(jobs: list[Job]) -> None:
    found = simulate(jobs)
    fates = [*found.answered, *found.refused, *found.too_large, *found.expired]
    assert Counter(map(id, fates)) == Counter(map(id, jobs))
    computed = Counter((id(each), index) for batch in found.batches for each, index in batch.items)
    assert set(computed.values()) <= {1}
    for each in found.answered:
        assert all(computed[id(each), index] for index in range(len(each.items)))
    for each in (*found.refused, *found.too_large):
        assert not any(computed[id(each), index] for index in range(len(each.items)))


@given(many_jobs())
@settings(max_examples=50, deadline=None)
def test_a_batch_is_of_one_lane_and_longer_than_allowed_only_with_a_single_item(jobs: list[Job]) -> None:
    for batch in simulate(jobs).batches:
        assert {each.lane for each, _ in batch.items} == {batch.lane}
        assert batch.tokens == sum(each.items[index].tokens for each, index in batch.items)
        assert len(batch.items) == 1 or batch.tokens <= batch.lane.most_tokens()


@given(many_jobs())
@settings(max_examples=50, deadline=None)
def test_steps_of_sessions_are_always_computed(jobs: list[Job]) -> None:
    found = simulate(jobs)
    assert {each for each in jobs if each.step} <= {*found.answered}


@given(many_jobs(), st.data())
@settings(max_examples=50, deadline=None)
def test_nothing_of_a_cancelled_job_is_computed_and_the_counts_return_to_zero(
    jobs: list[Job], data: st.DataObject
) -> None:
    dispatcher = Dispatcher()
    for each in jobs:
        try:
            dispatcher.submit(each, each.arrived)
        except (Refused, TooLarge):
            continue
        if data.draw(st.booleans()):
            dispatcher.cancel(each)
    cancelled = {each for each in jobs if each.cancelled}
    while (taken := dispatcher.take(0.0))[0] is not None:
        batch = taken[0]
        assert not cancelled & {each for each, _ in batch.items}
        dispatcher.finished(batch, 0.0)
    assert (dispatcher.jobs, dispatcher.tokens) == (0, 0)


def test_the_earliest_deadline_goes_first() -> None:
    work, dispatcher = lane(), Dispatcher()
    late, early = job(work, [400], 0, 9.0), job(work, [300], 0, 5.0)
    work.limit = 500
    dispatcher.submit(late, 0)
    dispatcher.submit(early, 0)
    batch, _ = dispatcher.take(0.0)
    assert batch is not None
    assert [each for each, _ in batch.items] == [early]


def test_an_idle_engine_starts_at_once_and_whatever_came_meanwhile_is_the_next_batch() -> None:
    work = lane()
    jobs = [job(work, [20], when, 1.0) for when in (0.0, 0.001, 0.002, 0.003)]
    batches = simulate(jobs).batches
    assert [len(batch.items) for batch in batches] == [1, 3]
    assert batches[0].started == 0.0


def test_a_batch_ends_before_the_tightest_deadline() -> None:
    work, dispatcher = lane(), Dispatcher()
    dispatcher.submit(job(work, [20], 0, 0.04), 0)
    for _ in range(50):
        dispatcher.submit(job(work, [100], 0, 9.0), 0)
    batch, _ = dispatcher.take(0.0)
    assert batch is not None
    assert len(batch.items) > 1
    assert work.cost.surely(batch.tokens) <= 0.04


def test_steps_of_sessions_are_in_time_beside_requests_that_have_more() -> None:
    requests, steps = lane("requests"), lane("steps", 0.005, 0.001)
    jobs = [job(requests, [tokens], when, 1.0) for when, tokens in poisson(0.7, 20)]
    chunks = [job(steps, [1], n / 50, 0.1, step=True) for n in range(1000)]
    found = simulate([*jobs, *chunks])
    assert len({*found.in_time} & {*chunks}) >= 0.98 * len(chunks)
    assert len({*found.in_time} & {*jobs}) >= 0.95 * len(jobs)


def test_sound_that_is_made_long_before_it_is_played_has_no_request_refused() -> None:
    requests, steps = lane("requests"), lane("steps", 0.1, 0.01)
    ahead = [job(steps, [1], n * 0.11, 30, step=True) for n in range(60)]  # of a long text: the engine never rests
    jobs = [job(requests, [20], n / 20, 0.9) for n in range(120)]
    found = simulate([*ahead, *jobs])
    assert {*found.in_time} == {*ahead, *jobs}
    assert max(found.answered[each] - each.arrived for each in jobs) < 0.2


def test_a_step_that_is_due_at_once_does_not_make_later_batches_smaller() -> None:
    steps, dispatcher = lane("steps", 0.005, 0.01), Dispatcher()
    for due in (0.001, *[5.0] * 20):
        dispatcher.submit(replace(job(steps, [1], 0, due, step=True), timeout=0.1), 0)
    batch, _ = dispatcher.take(0.0)
    assert batch is not None
    assert 3 <= len(batch.items) <= 5


def test_costs_that_were_measured_on_a_busy_machine_are_found_to_be_lower() -> None:
    busy = [(1, 0.02), (4, 0.06), (16, 0.2)]  # ten times as much as later
    steps = Lane("steps", CostModel(busy))
    chunks = [job(steps, [1], n // 64 / 10, 0.1, step=True) for n in range(64 * 600)]
    simulate(chunks, seconds=lambda batch: 0.002 + 0.0005 * batch.tokens)
    assert steps.cost.seconds(64) < 2 * (0.002 + 0.0005 * 64)


def test_the_first_job_of_another_model_is_not_made_late() -> None:
    first, second, dispatcher = lane("first"), lane("second"), Dispatcher()
    for _ in range(50):
        dispatcher.submit(job(first, [100], 0, 0.8), 0)
    urgent = job(second, [20], 0, 0.81)
    dispatcher.submit(urgent, 0)
    now = 0.0
    while (batch := dispatcher.take(now)[0]) is not None:
        now += batch.lane.cost.seconds(batch.tokens)
        dispatcher.finished(batch, now)
        if urgent in {each for each, _ in batch.items}:
            assert now <= urgent.deadline


def test_a_job_that_cannot_be_in_time_even_alone_is_too_large() -> None:
    with pytest.raises(TooLarge, match=r"this takes about .* s here, which is longer than its timeout of 0\.1 s"):
        Dispatcher().submit(job(lane(), [500] * 10, 0, 0.1), 0)


def test_a_refused_job_is_admitted_after_the_time_that_it_was_told() -> None:
    work, dispatcher = lane(), Dispatcher()
    waiting = 0
    while True:
        try:
            dispatcher.submit(job(work, [100], 0, 0.2), 0)
            waiting += 1
        except Refused as error:
            retry_after = error.retry_after
            break
    assert waiting > 10
    now = 0.0
    while now < retry_after:
        batch, _ = dispatcher.take(now)
        if batch is None:
            break
        now += work.cost.seconds(batch.tokens)
        dispatcher.finished(batch, now)
    dispatcher.submit(job(work, [100], now, 0.2), now)


@pytest.mark.parametrize("rate", [31, 93, 155, 218])
def test_the_mean_latency_is_near_the_bound_of_the_theory(rate: float) -> None:
    """The bound is that of Inoue, 2021 (arXiv 1912.06322), for requests of equal length; ours differ in length."""
    work, mean = lane(), 47 * PER_TOKEN
    busy = rate * mean
    first = (mean + FIXED) / (2 * (1 - busy)) * (1 + 2 * rate * FIXED + (1 - rate * FIXED) / (1 + busy))
    second = 1.5 * FIXED / (1 - busy) + mean / 2 * (busy + 2) / (1 - busy**2)
    latencies = simulate([job(work, [n], when, 60.0) for when, n in poisson(rate / CAPACITY, 120)]).latencies
    assert sum(latencies) / len(latencies) <= 1.15 * min(first, second)


@pytest.mark.parametrize("load", [0.6, 0.9, 1.1, 1.5])
def test_admitted_interactive_jobs_are_in_time_at_any_load(load: float) -> None:
    work = lane()
    jobs = [job(work, [tokens], when, 0.1) for when, tokens in poisson(load, 30)]
    found = simulate(jobs)
    admitted = len(jobs) - len(found.refused) - len(found.too_large)
    assert len(found.in_time) >= 0.98 * admitted
    useful = sum(each.items[0].tokens for each in found.in_time) * PER_TOKEN
    offered = sum(each.items[0].tokens for each in jobs) * PER_TOKEN
    # Batches of 45 ms, of which 8 are the fixed cost, leave 82 % of the time to tokens; some jobs are refused in vain.
    assert useful >= min(0.97 * offered, 0.76 * 30)


@pytest.mark.parametrize("load", [1.2, 1.5])
def test_small_jobs_do_not_take_all_the_room_from_large_ones(load: float) -> None:
    work, jobs, chance, when = lane(), list[Job](), random.Random(0), 0.0
    mean = 0.9 * 25 + 0.1 * 160
    while (when := when + chance.expovariate(load * CAPACITY * 47 / mean)) < 30:
        jobs.append(job(work, [160 if chance.random() < 0.1 else 25], when, 0.1))
    refused = {*simulate(jobs).refused}
    small, large = (
        statistics.mean(each not in refused for each in jobs if each.items[0].tokens == tokens) for tokens in (25, 160)
    )
    assert large >= 0.25 * small


def test_a_job_that_asks_for_far_too_much_crowds_nobody_out() -> None:
    taken = [0, 0]
    for before in (0, 1):
        work, dispatcher = lane(), Dispatcher()
        dispatcher.submit(job(work, [100], 0, 0.2), 0)
        if before:
            with pytest.raises(Refused):
                dispatcher.submit(job(work, [2400], 0, 0.2), 0)
        with pytest.raises(Refused):
            while True:
                dispatcher.submit(job(work, [20], 0, 0.2), 0)
                taken[before] += 20
    assert taken[1] >= 0.75 * taken[0]


@pytest.mark.parametrize("load", [0.5, 1.5])
def test_bulk_jobs_get_their_share_however_many_interactive_ones_there_are(load: float) -> None:
    work = lane()
    jobs = [job(work, [tokens], when, 0.1) for when, tokens in poisson(load, 30)]
    bulk = [job(work, [300] * 4, when / 2, 60.0, bulk=True) for when in range(60)]
    found = simulate([*jobs, *bulk], Dispatcher(bulk_share=0.1))
    answered = [each for each in bulk if each in found.answered and found.answered[each] <= 31]
    time = sum(len(each.items) * 300 * PER_TOKEN for each in answered)
    assert time >= 0.08 * 30 or len(answered) == len(bulk)
    admitted = [each for each in jobs if each not in found.refused]
    assert len({*found.in_time} & {*admitted}) >= 0.97 * len(admitted)


def test_bulk_jobs_use_all_that_others_leave() -> None:
    work = lane()
    bulk = [job(work, [300] * 10, 0.0, 600.0, bulk=True) for _ in range(100)]
    found = simulate(bulk)
    assert len(found.answered) == 100
    assert max(found.answered.values()) <= 1.1 * 100 * 3000 * PER_TOKEN / 0.94


def test_a_client_with_more_than_its_share_is_refused_before_others() -> None:
    work, dispatcher = lane(), Dispatcher()
    dispatcher.submit(job(work, [50], 0, 1.0, client="small"), 0)
    taken = 0
    with pytest.raises(Refused, match="more than its share"):
        while True:
            dispatcher.submit(job(work, [100], 0, 0.2, client="greedy"), 0)
            taken += 1
    assert taken > 5
    dispatcher.submit(job(work, [100], 0, 0.2, client="small"), 0)


def test_timeouts_that_nobody_could_keep_make_no_batch_shorter() -> None:
    work, dispatcher = lane(), Dispatcher()
    for _ in range(100):
        dispatcher.submit(job(work, [100], 0, 30.0), 0)
    for timeout in (0.001, 1e-9):
        with pytest.raises(TooLarge):
            dispatcher.submit(job(work, [10], 0, timeout), 0)
    batch, _ = dispatcher.take(0.0)
    assert batch is not None
    assert batch.tokens > 0.9 * work.most_tokens()


def test_an_idle_engine_tries_whatever_it_can_answer_on_average() -> None:
    work = lane()
    work.cost.tail = 3.0
    admitted = job(work, [500], 0, 0.04)
    assert simulate([admitted]).in_time == [admitted]


def test_expired_jobs_are_reported_and_not_computed() -> None:
    work, dispatcher = lane(), Dispatcher()
    late = job(work, [20], 0, 0.05)
    dispatcher.submit(late, 0)
    batch, expired = dispatcher.take(1.0)
    assert batch is None
    assert expired == [late]


def test_the_fixed_cost_is_paid_once_for_what_waits_together() -> None:
    """Without batches, 200 jobs at once would take 200 times the fixed cost."""
    work = lane()
    found = simulate([job(work, [20], 0.0, 5.0) for _ in range(200)])
    assert max(found.answered.values()) < FIXED * 6 + 200 * 20 * PER_TOKEN


def test_lanes_are_compared_by_identity_so_that_a_reloaded_model_has_its_own() -> None:
    first, second = lane("same"), lane("same")
    assert first != second
    assert isinstance(first, Lane)
