"""DISSP's figures on Spark: their data, and what the engine's limit sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.experiments.dissp.engine_on_spark import EngineLimit, papers_law
from floodway.experiments.dissp.host_feed import HOSTS, Hosts, generated, read_hosts
from tests.experiments.outcomes import LIMIT


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
    assert read_hosts(path).tolist() == [[7.0] * HOSTS] * 3
    path.write_text("arrivals per 100 ms bin\n1\n2\n")
    with pytest.raises(InputError, match="is no table of readings"):
        read_hosts(path)
