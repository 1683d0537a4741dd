"""The contract paper's tables and figures on one seed; `floodway reproduce` runs ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.experiments.contracts.common import FederationCase
from floodway.experiments.registry import load
from floodway.simulation.federation_cases import Variant
from tests.experiments.verdicts import check_verdict


@pytest.mark.parametrize("name", ["table1", "fig8", "fig9", "fig10", "fig11", "lemmas"])
def test_the_claim_holds_and_the_plot_is_drawn(name: str, tmp_path: Path) -> None:
    fractions: list[float] = []
    result = load(f"contracts-{name}").run(seeds=[1], trace=None, progress=fractions.append)
    check_verdict(f"contracts-{name}", result)
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    (written,) = result.save_plots(tmp_path / "plots")
    assert written.read_bytes().startswith(b"\x89PNG")


def test_a_seed_gives_every_variant_the_same_network_and_start() -> None:
    one, other = FederationCase(4, Variant.FIXED, 5), FederationCase(4, Variant.RANDOM_RANGE, 5)
    assert (one.topology.partners == other.topology.partners).all()
    assert (one.start == other.start).all()
    assert (FederationCase(4, Variant.FIXED, 5).run()[0].tasks == one.run()[0].tasks).all()


def test_ten_thousand_nodes_come_to_rest_without_excess() -> None:
    case = FederationCase(2, Variant.RANGE, 10, nodes=10_000)
    outcome, limit = case.run()
    assert outcome.converged
    assert (outcome.tasks <= limit).all()
    assert outcome.tasks.sum() == case.start.sum()
    assert (outcome.cost[1:-1] < outcome.cost[:-2]).all()
