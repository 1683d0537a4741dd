"""The machine against queueing theory and against cases worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from floodway.buffering.options import BufferOptions, Manager
from floodway.buffering.queues import QueueClass
from floodway.simulation.arrivals import Tuples, draw, poisson
from floodway.simulation.buffer import Run, simulate

TAIL_DROP = BufferOptions(adaptor="tail-drop", limit=150)


def at(
    times: Sequence[float],
    *,
    deadlines: Sequence[float] = (),
    cost: float = 0.1,
    options: BufferOptions = TAIL_DROP,
    seconds: float = 5.0,
    clean_at_dispatch: bool = True,
) -> Run:
    """Tuples at these times, generated as they arrive, each with its own deadline or 100 s."""
    found = list(deadlines) or [100.0] * len(times)
    tuples = Tuples(
        np.array(times),
        np.array(times),
        np.arange(len(times)),
        np.full(len(times), cost),
        tuple(QueueClass("s", deadline) for deadline in found),
    )
    return simulate(
        tuples,
        options,
        np.random.default_rng(1),
        seconds=seconds,
        first_estimate_seconds=cost,
        clean_at_dispatch=clean_at_dispatch,
    )


def test_mean_delay_agrees_with_the_pollaczek_khinchine_formula() -> None:
    rng = np.random.default_rng(3)
    cost, load = 0.01, 0.7
    tuples = draw(
        poisson(load / cost, 2000.0, rng),
        rng,
        mean_cost_seconds=cost,
        classes=(QueueClass("s"),),
        transmission_seconds=0.0,
    )
    options = BufferOptions(scheduler="fifo", adaptor="tail-drop", limit=10**6)
    run = simulate(tuples, options, rng, seconds=2000.0, first_estimate_seconds=cost)
    expected = cost + load * cost / (2 * (1 - load))
    assert run.total.delay_seconds / run.total.processed == pytest.approx(expected, rel=0.03)
    assert run.utilisation == pytest.approx(load, rel=0.02)


def test_edf_saves_a_tuple_that_fifo_loses() -> None:
    # The first starts at once and ends at 1.1; the tight one then fits only if it overtakes the second.
    times, deadlines = (1.0, 1.01, 1.02), (9.0, 9.0, 0.2)
    fifo = replace(TAIL_DROP, scheduler="fifo")
    assert at(times, deadlines=deadlines, options=fifo).total.purged == 1
    run = at(times, deadlines=deadlines)
    assert (run.total.processed, run.total.late, run.total.purged) == (3, 0, 0)


def test_without_a_cleaner_late_tuples_are_served_in_vain() -> None:
    options = replace(TAIL_DROP, cleaner=False)
    run = at((1.0, 1.0, 1.0), deadlines=(0.15, 0.15, 0.15), options=options)
    assert (run.total.processed, run.total.late) == (3, 2)
    cleaned = at((1.0, 1.0, 1.0), deadlines=(0.15, 0.15, 0.15))
    assert (cleaned.total.processed, cleaned.total.late, cleaned.total.purged) == (1, 0, 2)
    assert cleaned.total.miss_ratio_with_purged == pytest.approx(2 / 3)


def test_the_pass_at_the_end_of_a_cycle_purges_without_the_check_at_dispatch() -> None:
    # At t = 1 the CPU is at the first of eight until 1.05: the next would end at 1.15, 0.2 s after 0.95.
    times = [0.95] * 8
    run = at(times, deadlines=[0.2] * 8, clean_at_dispatch=False)
    assert run.total.purged == 7
    assert run.total.late == 0


@pytest.mark.parametrize(("name", "kept"), [("tail-drop", [0, 1, 2]), ("drop-front", [0, 3, 4])])
def test_a_full_queue_drops_at_its_own_end(name: str, kept: list[int]) -> None:
    # One is being served and two may wait; the sum of delays tells which.
    options = BufferOptions(scheduler="fifo", adaptor=name, limit=2)
    times = [1.0 + 0.001 * place for place in range(5)]
    run = at(times, options=options)
    assert (run.total.processed, run.total.overflow) == (3, 2)
    delays = sum(1.1 + 0.1 * rank - times[place] for rank, place in enumerate(kept))
    assert run.total.delay_seconds == pytest.approx(delays)


def test_a_limit_of_zero_serves_what_finds_the_cpu_idle() -> None:
    options = replace(TAIL_DROP, limit=0)
    run = at((1.0, 1.05, 1.2, 2.0), options=options)
    assert (run.total.processed, run.total.overflow, run.waiting) == (3, 1, 0)
    assert run.occupancy.max() == 0


def test_utilisation_counts_only_what_falls_into_the_run() -> None:
    run = at((4.95,), cost=1.0)
    assert run.total.busy_seconds == pytest.approx(0.05)
    assert run.utilisation == pytest.approx(0.01)


def test_the_system_without_a_buffer_settles_near_its_capacity() -> None:
    rng = np.random.default_rng(5)
    tuples = draw(poisson(150.0, 300.0, rng), rng, mean_cost_seconds=0.01)
    managers: tuple[Manager, ...] = ("cob", "aurora")
    for manager in managers:
        run = simulate(
            tuples,
            BufferOptions(manager),
            np.random.default_rng(1),
            seconds=300.0,
            first_estimate_seconds=0.01,
        )
        assert run.total.purged == run.total.overflow == 0
        assert run.drop_ratio == pytest.approx(1 / 3, abs=0.06), manager
        assert run.total.offered == run.total.shed + run.total.processed + run.waiting


def test_misses_above_the_permitted_ratio_throttle_the_pace() -> None:
    rng = np.random.default_rng(5)
    tuples = draw(poisson(150.0, 200.0, rng), rng, mean_cost_seconds=0.01, classes=(QueueClass("s", 0.25),))
    options = replace(TAIL_DROP, cleaner=False)
    run = simulate(tuples, options, rng, seconds=200.0, first_estimate_seconds=0.01)
    assert run.total.miss_ratio > 0.5
    assert run.cycles[-1].processed < run.cycles[0].processed


def test_equal_seeds_give_equal_runs_and_progress_ends_at_one() -> None:
    seen: list[float] = []
    rng = np.random.default_rng(2)
    tuples = draw(poisson(120.0, 20.0, rng), rng, mean_cost_seconds=0.01)
    runs = [
        simulate(
            tuples,
            BufferOptions(adaptor="random-drop", limit=10),
            np.random.default_rng(7),
            seconds=20.0,
            first_estimate_seconds=0.01,
            progress=seen.append,
        )
        for _ in range(2)
    ]
    assert runs[0].total == runs[1].total
    assert seen[19] == seen[-1] == 1.0
