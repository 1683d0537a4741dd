"""The figures of the latency paper on one seed, and the engine they run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from floodway.experiments.dissp import common
from floodway.experiments.dissp.laws import FixedLimit
from floodway.experiments.registry import EXPERIMENTS, LONG, load
from tests.experiments.verdicts import check_verdict

DISSP = [name for name in EXPERIMENTS if name.startswith("dissp-") and name not in LONG]


@pytest.mark.parametrize("name", DISSP)
def test_the_claim_holds_and_the_plot_is_drawn(name: str, tmp_path: Path) -> None:
    fractions: list[float] = []
    result = load(name).run(seeds=[11], trace=None, progress=fractions.append)
    check_verdict(name, result)
    assert fractions[-1] == pytest.approx(1.0)
    (written,) = result.save_plots(tmp_path)
    assert written.read_bytes().startswith(b"\x89PNG")


def test_no_tuple_is_lost_without_a_controller_and_the_capacity_is_never_exceeded() -> None:
    found = common.run_engine(None, 60, seconds=80.0, seed=1)
    offered = 60 * 10.0 * sum(common.RATES) * 2
    assert found.latencies[:, 2].sum() + found.waiting[-1] == pytest.approx(offered, abs=60 * 150)
    over = common.run_engine(None, 200, seconds=80.0, seed=1)
    assert over.latencies[:, 2].sum() <= 80.0 * 100.0 * common.SUSTAINED_QUERIES + 1
    assert np.nanmax(over.busy) <= 1.0


def test_what_arrives_while_the_queue_is_locked_is_served_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookkeeping so dear that a lock lasts for many ticks, and a controller that drops nothing."""
    monkeypatch.setattr(common, "GATHERING_SHARE", 0.5)
    found = common.run_engine(FixedLimit(1e12), 120, seconds=80.0, seed=1)
    assert found.locked.max() == 1.0
    assert np.isnan(found.latency[found.locked == 1.0]).all()
    offered = 120 * 10.0 * sum(common.RATES) * 2
    locked_seconds = common.TICK_SECONDS * (1.0 + np.argmin(found.locked[::-1]))
    in_second_queue = 120 * max(common.RATES) * locked_seconds
    accounted = found.latencies[:, 2].sum() + found.waiting[-1]
    assert offered - in_second_queue - 120 * 150 <= accounted <= offered
    free = common.run_engine(None, 120, seconds=80.0, seed=1)
    assert found.latencies[:, 2].sum() < free.latencies[:, 2].sum()


def test_kept_tuples_never_exceed_those_waiting() -> None:
    found = common.controlled(1.0, 200, 5)
    assert (found.kept <= found.waiting).all()
    assert found.kept[-1] < found.waiting[-1]
