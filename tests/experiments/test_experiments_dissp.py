"""The figures of the latency paper on one seed, and the engine they run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from floodway.experiments.dissp import common
from floodway.experiments.registry import EXPERIMENTS, load
from tests.experiments.verdicts import check_verdict

DISSP = [name for name in EXPERIMENTS if name.startswith("dissp-")]


@pytest.mark.parametrize("name", DISSP)
def test_the_claim_holds_and_the_plot_is_drawn(name: str, tmp_path: Path) -> None:
    fractions: list[float] = []
    result = load(name).run(seeds=[11], trace=None, progress=fractions.append)
    assert result.id == name
    check_verdict(result)
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


def test_kept_tuples_never_exceed_those_waiting() -> None:
    found = common.controlled(1.0, 200, 5)
    assert (found.kept <= found.waiting).all()
    assert found.kept[-1] < found.waiting[-1]
