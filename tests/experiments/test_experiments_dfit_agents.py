"""Many agents on the real message code: they agree, cheaply, on plans near the optimum."""

from __future__ import annotations

import pytest

from floodway.agent.planes.dfit.simulation import Wire
from floodway.experiments.dfit_agents import EPSILON, simulate
from floodway.experiments.registry import load


@pytest.mark.parametrize("agents", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_agents_agree_and_plan_within_epsilon(agents: int) -> None:
    found = simulate(agents, seed=2)
    assert 0 < found.first.seconds < 30 and 0 < found.change.seconds < 30
    assert max(found.first.error, found.change.error) <= EPSILON
    assert found.first.bytes < found.first.paper_bytes
    # A change concerns the nodes above it alone.
    assert 1 <= found.change.tables <= 2 * found.depth and found.change.rows < found.first.rows


def test_what_is_lost_is_sent_again() -> None:
    perfect, lossy = (simulate(10, seed=3, wire=Wire(loss=loss)).first for loss in (0.0, 0.4))
    assert perfect.tables < lossy.tables and perfect.error <= EPSILON >= lossy.error


def test_it_is_registered() -> None:
    assert "agents" in load("dfit-agents").TITLE
