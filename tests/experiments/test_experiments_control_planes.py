"""Three agents on sockets, by every control plane: after each change they decide as well as the linear program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from floodway.experiments import control_planes
from floodway.experiments.dfit_agents import random_tree
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize(
    "kind",
    [
        control_planes.DISTRIBUTED,
        pytest.param(control_planes.LAZY, marks=pytest.mark.slow),
        pytest.param(control_planes.ADVANCE, marks=pytest.mark.slow),
    ],
)
def test_agents_decide_rightly_after_every_change(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_planes, "HOLD_SECONDS", 0.1)
    monkeypatch.setattr(control_planes, "CALM_SECONDS", 0.1)
    monkeypatch.setattr(control_planes, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    found = control_planes.play(random_tree(3, np.random.default_rng(3)), kind)
    assert list(found.reactions) == list(control_planes.CHANGES)
    assert all(one.error <= control_planes.EPSILON for one in found.reactions.values())
    assert found.first_bytes > 0


def test_nodes_that_let_everything_in_are_seen_to_be_wrong() -> None:
    """The judge itself: without plans the fullest node is over its capacity."""
    network = random_tree(3, np.random.default_rng(3))
    world = control_planes.World(network)
    world.change(control_planes.HEAVY)

    keep_all = SimpleNamespace(plan=lambda rates: SimpleNamespace(keeps={}))
    careless: Any = SimpleNamespace(planner=keep_all, observe=lambda *measured: None)
    lost, fullest = world.look(dict.fromkeys(network.nodes, careless))
    assert fullest > 1.0 + control_planes.EPSILON and lost < 0.0
