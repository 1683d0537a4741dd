"""A coordinator's plans where windows are dropped whole: those with the most windows, of streams and of branches."""

from __future__ import annotations

import pytest

from floodway.network.file import parse_network
from floodway.planning.windows.window_drop import WindowShape
from tests.agent.nodes import EQUAL_BRANCHES, EQUAL_WINDOWS
from tests.agent.test_agent_coordinator import SimulatedCoordinator


@pytest.mark.parametrize("lazy", [False, True], ids=["advance", "lazy"])
def test_plans_are_chosen_for_the_windows_that_they_keep_and_stay_with_one_stream(lazy: bool) -> None:
    network = parse_network(EQUAL_WINDOWS.format(first="A", second="B"))
    shapes = dict.fromkeys(("s", "t"), WindowShape(10_000_000, 5_000_000))
    simulated = SimulatedCoordinator(network, lazy=lazy, shapes=shapes)
    whole = set()
    for s, t in ((900.0, 900.0), (900.0, 920.0), (920.0, 900.0)):
        simulated.turn({"s": s, "t": t})
        keeps = simulated.planner("A").plan({"s": s, "t": t}).keeps
        whole.add(max(("s", "t"), key=lambda name: keeps[name]))
        assert max(keeps.values()) > 0.95 and min(keeps["s"], keeps["t"]) < 0.2
    assert len(whole) == 1
    assert "windows" in simulated.coordinator.state.not_prepared or lazy


def test_plans_are_chosen_among_branches_for_the_windows_that_they_keep() -> None:
    network = parse_network(EQUAL_BRANCHES.format(second="B"))
    window = WindowShape(10_000_000, 5_000_000)
    simulated = SimulatedCoordinator(network, lazy=True, shapes=dict.fromkeys(("u", "ou->os", "ou->ot"), window))
    whole = set()
    for rate in (900.0, 920.0, 880.0):
        simulated.turn({"u": rate})
        sent = simulated.planner("A").plan({"u": rate}).throughput
        low, high = sorted(("ou->os", "ou->ot"), key=lambda name: sent[name])
        whole.add(high)
        assert sent[low] < 0.1 * rate and sent[high] > 0.9 * rate
    assert len(whole) == 1
