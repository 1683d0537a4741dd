"""DISSP's figures on Spark: their data, and that their criteria fail when a run misses what the paper claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.experiments.dissp import spark_fig6, spark_fig7, spark_runs
from floodway.experiments.dissp.feed import HOSTS, Hosts, generated, is_readings, read_hosts
from floodway.experiments.dissp.spark_engine import EngineBatch, EngineLimit, EngineRun, papers_law
from floodway.experiments.dissp.spark_runs import DEFAULT, LAWS, PAPER, ControlledRuns

LIMIT = EngineLimit(pairs_per_second=4_500_000.0, batch_seconds=0.5)


def made(
    target: float | None, law: str, *, latency: float, kept: int, spread: float = 0.3, cpu: float = 0.8
) -> EngineRun:
    """A run whose batches take two thirds of their latency."""
    seconds = latency / 1.5
    batches = [
        EngineBatch(end, seconds, kept, latency, spread, latency - spread, latency + spread)
        for end in np.arange(seconds, 80.0, seconds)
    ]
    return EngineRun(200, target, law, tuple(batches), cpu, 80.0)


def runs() -> ControlledRuns:
    """What the paper says: means at the targets, tuples kept and spread in proportion."""
    found = {
        (target, law): made(target, law, latency=target, kept=round(10_000 * target), spread=0.2 * target)
        for target in LIMIT.targets
        for law in LAWS
    }
    return ControlledRuns(LIMIT, made(None, "none", latency=40.0, kept=400_000), found, {120: found[4.0, DEFAULT]})


def unmet(found: ControlledRuns, monkeypatch: pytest.MonkeyPatch, folder: Path) -> set[str]:
    """The beginnings of the criteria that are not met, of both figures; plots are drawn too."""
    told: set[str] = set()
    for module in (spark_fig6, spark_fig7):
        monkeypatch.setattr(module, "controlled", lambda trace, seed, progress: found)
        result = module.run(seeds=[1], trace=None, progress=lambda share: None)
        assert result.where == "spark" and result.as_json(seconds=1.0)["holds"] == (not result.unmet)
        assert all(path.stat().st_size > 0 for path in result.save_plots(folder))
        told |= {one.text for one in result.unmet}
    return told


def test_runs_as_the_paper_claims_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert unmet(runs(), monkeypatch, tmp_path) == set()


@pytest.mark.parametrize(
    ("law", "change", "beginning"),
    [
        (PAPER, {"latency": 4.6, "kept": 40_000, "spread": 0.8}, "the paper's law: the mean is within"),
        (DEFAULT, {"latency": 3.5, "kept": 40_000, "spread": 0.8}, "the default: the mean is within"),
        (DEFAULT, {"latency": 4.0, "kept": 40_000, "spread": 0.8, "cpu": 0.6}, "the default: the CPU is as busy"),
        (PAPER, {"latency": 4.0, "kept": 15_000, "spread": 0.8}, "the paper's law: tuples kept rise"),
        (DEFAULT, {"latency": 4.0, "kept": 40_000, "spread": 0.1}, "the default: the spread rises"),
    ],
)
def test_a_run_that_misses_a_claim_fails_its_criterion(
    law: str, change: dict[str, Any], beginning: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = runs()
    broken = made(4.0, law, **change)
    found = ControlledRuns(found.limit, found.free, {**found.runs, (4.0, law): broken}, found.sweep)
    (told,) = unmet(found, monkeypatch, tmp_path)
    assert told.startswith(beginning)


def test_the_limit_sets_rates_targets_and_the_start_of_the_law() -> None:
    assert LIMIT.queries == pytest.approx(4500.0) and LIMIT.scale == pytest.approx(50.0)
    assert LIMIT.targets == (2.0, 4.0, 6.0)
    assert EngineLimit(1e6, batch_seconds=1.4).targets == (6.0, 12.0, 18.0)
    controller = papers_law(3.0, 200, LIMIT)
    assert controller.initial().n == pytest.approx(4_500_000 / 200 * 2.0) and not controller.warnings


def test_hosts_send_in_turn_what_their_column_says_second_by_second() -> None:
    readings = np.arange(30.0).reshape(3, HOSTS)
    hosts = Hosts(readings)
    first = hosts.make(20, start_us=5_000_000, end_us=6_000_000).to_pydict()
    second = hosts.make(20, start_us=6_000_000, end_us=7_000_000).to_pydict()
    assert first["host"] == [*range(10), *range(10)] and first["cpu"] == [*readings[0], *readings[0]]
    assert second["cpu"] == [*readings[1], *readings[1]]
    assert hosts.make(10, start_us=8_000_000, end_us=9_000_000).to_pydict()["cpu"] == [*readings[0]]


def test_readings_come_from_a_record_of_hosts_or_are_generated(tmp_path: Path) -> None:
    made_up = generated(3)
    assert made_up.shape == (288, HOSTS) and made_up.min() >= 0.0 and made_up.max() <= 100.0
    assert np.array_equal(made_up, generated(3)) and not np.array_equal(made_up, generated(4))
    path = tmp_path / "cpu.csv"
    path.write_text("\n".join([",".join(f"host{i:03}" for i in range(12)), *[",".join("7" * 12)] * 3]) + "\n")
    assert is_readings(path) and spark_runs.readings(path) == path
    assert read_hosts(path).tolist() == [[7.0] * HOSTS] * 3
    path.write_text("arrivals per 100 ms bin\n1\n2\n")
    assert spark_runs.readings(path) is None
    with pytest.raises(InputError, match="is no table of readings"):
        read_hosts(path)
