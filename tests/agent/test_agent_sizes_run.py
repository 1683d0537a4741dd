"""Real Spark: bytes of a link and memory of state are measured, planned with, and limit what is kept."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, value double"
NETWORK = f"""
version: 1
name: sizes
streams: {{s1: {{max_rate: 400, schema: '{SCHEMA}'}}, s2: {{max_rate: 400, schema: '{SCHEMA}'}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}, C: {{cpu: 1.0, memory: 5e5}}}}
operators:
  wide: {{node: A, from: s1, run: 'floodway.experiments.on_spark.example_operators:widened', cost: 0.00001}}
  b1: {{node: B, from: wide, cost: 0.00001}}
  count: {{node: C, from: s2, kind: aggregate, window: 10s,
          run: 'floodway.experiments.on_spark.example_operators:distinct', cost: 0.00001}}
outputs: {{q1: {{from: b1}}, q2: {{from: count}}}}
links: {{A->B: {{bandwidth: 5e4}}}}
"""
"""At 400 tuples/s each the declared 100 bytes a tuple fit into link and memory. They take several times that."""


@pytest.mark.parametrize(
    "full_one", ["the link A->B", pytest.param("the memory of C", marks=pytest.mark.slow)], ids=["link", "memory"]
)
def test_a_link_or_a_memory_that_is_full_limits_what_is_kept(spark: Session, tmp_path: Path, full_one: str) -> None:
    network, full = parse_network(NETWORK), Event()
    rates = {"s1": 400.0, "s2": 400.0}
    assert not ExactPlanner(Program(network)).plan(rates).overloaded

    def look(status: Status) -> None:
        if full_one in status.reason and "full" in status.reason:
            full.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS,
        root=tmp_path,
        target=Target(4.0),
        settle_seconds=0.0,
        feeds={name: Feed(rate=rate) for name, rate in rates.items()},
        progress=look,
        ended=full,
    )
    report = run_network(network, options, spark)
    assert full.is_set(), report.to_dict()
    assert report.differences == ()
