"""Clocks that are set while a job runs: timers and ages stay right, and a silent writer is told by our own clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodway.job.clocks import AHEAD_SECONDS, STEP_SECONDS, SteadyClock
from floodway.job.decision import SILENCE_SECONDS, DecisionFile, JobDecision, write_decision

START = 1_700_000_000.0
SIZES = (1.0, 60.0, 3600.0, 86_400.0)
LOOK_SECONDS = 0.1

sizes = st.sampled_from([sign * size for size in SIZES for sign in (-1, 1)])
steps = st.lists(st.tuples(st.floats(1.0, 40.0), sizes), max_size=4)
drifts = st.floats(-1e-3, 1e-3)


class Machine:
    """True time, a monotonic clock that follows it, and a wall clock that drifts and is set."""

    def __init__(self, steps: list[tuple[float, float]], drift: float = 0.0) -> None:
        self.steps, self.drift, self.true = steps, drift, 0.0
        self.clock = SteadyClock(self.wall, lambda: 77.0 + self.true)

    def wall(self) -> float:
        return START + self.true * (1 + self.drift) + sum(size for at, size in self.steps if at <= self.true)

    def until(self, true: float) -> None:
        """Let time pass, looking at the clock as a loop does."""
        while self.true < true - 1e-9:
            self.true = min(true, self.true + LOOK_SECONDS)
            self.clock.now()


@given(steps, drifts)
def test_time_never_steps(steps: list[tuple[float, float]], drift: float) -> None:
    machine = Machine(steps, drift)
    before = machine.clock.now()
    for tick in range(1, 500):
        machine.until(tick * LOOK_SECONDS)
        now = machine.clock.now()
        assert 0.0 <= now - before <= LOOK_SECONDS * (1 + abs(drift)) + STEP_SECONDS
        before = now
    assert before - START == pytest.approx(50.0, abs=1.0 + len(steps) * 2 * LOOK_SECONDS)


@given(steps, drifts, st.floats(0.5, 50.0), st.lists(st.floats(0.0, 1.0), max_size=20))
@example([(30.0, 3600.0)], 0.0, 40.0, [0.0, 0.5, 1.0])
@example([(30.0, -3600.0)], 0.0, 40.0, [0.0, 0.5, 1.0])
@example([(11.0, -60.0), (23.0, 60.0)], 0.0, 50.0, [0.25])
def test_nothing_that_came_lately_is_below_the_lowest_stamp(
    steps: list[tuple[float, float]], drift: float, seconds: float, shares: list[float]
) -> None:
    machine = Machine(steps, drift)
    stamps = []
    for moment in sorted(60.0 - seconds + seconds * share for share in shares):
        machine.until(moment)
        stamps.append(machine.wall())
    machine.until(60.0)
    lowest = machine.clock.lowest(seconds)
    assert all(stamp >= lowest - STEP_SECONDS - LOOK_SECONDS * (1 + len(steps)) for stamp in stamps)
    if not any(60.0 - seconds - 1.0 < at for at, _ in steps):
        assert lowest == pytest.approx(machine.wall() - seconds, abs=0.2), "what came before is below it"


@given(steps, drifts, st.lists(st.floats(0.0, 59.0), min_size=1, max_size=20))
def test_ages_are_those_that_passed(steps: list[tuple[float, float]], drift: float, moments: list[float]) -> None:
    machine = Machine(steps, drift)
    stamps = []
    for moment in sorted(moments):
        machine.until(moment)
        stamps.append((machine.true, machine.wall()))
    machine.until(60.0)
    found = machine.clock.now() - machine.clock.steady_all(np.array([wall for _, wall in stamps]))
    slack = 1.0 + 2 * LOOK_SECONDS * len(steps)
    for (true, _), age in zip(stamps, found, strict=True):
        assert age <= 60.0 - true + slack, "older than it is"


@given(st.floats(1.0, 40.0), sizes, drifts, st.floats(0.0, 59.0))
def test_ages_are_exact_but_for_those_as_long_as_a_step_back(
    at: float, size: float, drift: float, moment: float
) -> None:
    machine = Machine([(at, size)], drift)
    machine.until(moment)
    stamp = machine.wall()
    machine.until(60.0)
    age = machine.clock.now() - machine.clock.steady(stamp)
    if size > 0 or moment >= at or 60.0 - moment < -size - AHEAD_SECONDS - 1.0:
        assert age == pytest.approx(60.0 - moment, abs=1.0 + 2 * LOOK_SECONDS)


def test_a_producer_that_is_a_little_ahead_is_not_taken_for_one_of_the_past() -> None:
    machine = Machine([(5.0, -3600.0)])
    machine.until(30.0)
    assert machine.clock.steady(machine.wall() + 1.0) == pytest.approx(machine.clock.now() + 1.0)


def test_a_process_that_was_held_up_sees_no_step() -> None:
    held = iter([0.0, 0.0, 1.0, 9.0, 9.0, 9.0, 10.0, 10.0])
    true = [0.0]

    def monotonic() -> float:
        true[0] = next(held)
        return true[0]

    clock = SteadyClock(lambda: START + true[0], monotonic)
    assert clock.now() == START + 9.0 and clock.shift_seconds == 0.0


@pytest.mark.parametrize("step_us", [int(sign * size * 1e6) for size in SIZES for sign in (-1, 1)])
def test_a_steering_is_silent_when_nothing_new_comes_whatever_its_clock_says(tmp_path: Path, step_us: int) -> None:
    now = [500.0]
    file = DecisionFile(tmp_path / "decision.json", monotonic=lambda: now[0])
    issued = 1_700_000_000_000_000
    for at_us in (issued, issued + step_us, issued + step_us + 100_000):
        write_decision(tmp_path / "decision.json", JobDecision(mode="enforce", issued_us=at_us))
        file.read()
        assert not file.silent
        now[0] += SILENCE_SECONDS
        file.read()
        assert not file.silent
    now[0] += 0.1
    file.read()
    assert file.silent
    write_decision(tmp_path / "decision.json", JobDecision(mode="enforce", issued_us=issued))
    file.read()
    assert not file.silent


def test_nobody_who_writes_no_decisions_is_silent(tmp_path: Path) -> None:
    now = [0.0]
    file = DecisionFile(tmp_path / "decision.json", monotonic=lambda: now[0])
    file.read()
    now[0] += 100 * SILENCE_SECONDS
    file.read()
    assert not file.silent
