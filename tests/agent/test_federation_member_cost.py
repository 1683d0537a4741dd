"""The cost that the file gives a member, as a real participant reckons with it: queues, a link, measurements, moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import ParticipantAgent
from floodway.contracts.cost import LEAST, InFlight, Learnt
from floodway.contracts.federation_file import parse_federation
from floodway.contracts.load import Load
from floodway.contracts.messages import Offer
from floodway.experiments.chaos.log_engine import LogEngine
from floodway.spark.log import create_log
from tests.agent.federation_world import FAST, SETTINGS, part_of
from tests.patience import wait_until

FILE = """
version: 1
participants:
  A: {url: "http://127.0.0.1:1", cpu: 1.0, OTHER}
  B: {url: "http://127.0.0.1:2", cpu: 1.0}
contracts:
  A->B: {price: 4.0}
fragments:
  f0: {owner: A, run: sum, logs: {input: logs/f0}, parameters: {cpu: 0.3}, bytes: 40}
  f1: {owner: A, run: sum, logs: {input: logs/f1}, parameters: {cpu: 0.3}}
"""


class Calm(LogEngine):
    """Ten tuples a second to each fragment; how long they wait is for the test to say."""

    delay_seconds = 0.1

    def measure(self, now: float) -> dict[str, Measure]:
        return {name: replace(one, delay_seconds=self.delay_seconds) for name, one in super().measure(now).items()}


@contextmanager
def member(root: Path, other: str, *, price: float = 4.0) -> Iterator[tuple[ParticipantAgent, Calm]]:
    """A, which ticks when it is told to; B is away."""
    federation = parse_federation(FILE.replace(", OTHER", other and f", {other}").replace("4.0", str(price)))
    store = LeaseStore(root / "shared", seconds=1000.0)
    for name in federation.fragments:
        create_log(root / "shared" / "logs" / name, "id bigint")
    engine = Calm(root / "shared", store.checkpoint)
    made = ParticipantAgent(
        *(federation, "A", root / "A", store, engine),
        settings=SETTINGS,
        pace=replace(FAST, measure=0.0, lease=1000.0, patience=1000.0),
    )
    made.start()
    try:
        yield made, engine
    finally:
        made.close()


def offered(agent: ParticipantAgent) -> Offer | None:
    return None if agent.machine.search is None else agent.machine.search.offer


@pytest.mark.parametrize(
    ("other", "names"), [("", ["f0"]), ("migration_cost: 0.05", []), ("migration_cost: 0.01", ["f0"])]
)
def test_a_move_must_save_more_than_it_costs(tmp_path: Path, other: str, names: list[str]) -> None:
    # Of two fragments of 0.3 CPU one saves 1.5 − 0.4286 = 1.0714 at a price of 3.5 × 0.3 = 1.05.
    assert InFlight().cost(Load(0.6)) - InFlight().cost(Load(0.3)) == pytest.approx(1.0714, abs=1e-4)
    with member(tmp_path, other, price=3.5) as (agent, _):
        agent.tick()
        offer = offered(agent)
        assert [task.name for task in offer.tasks] == names if offer else names == []


def test_a_link_counts_where_the_file_gives_one(tmp_path: Path) -> None:
    # 10 tuples/s of 40 bytes over a link of 500 bytes/s: at 80% of it, the fragment that sends them goes.
    with member(tmp_path, "cost: {link: 500}") as (agent, _):
        agent.tick()
        assert agent.machine.load.link == pytest.approx(400.0)
        assert agent.machine.cost() == pytest.approx(0.6 / 0.4 + 0.8 / 0.2)
        offer = offered(agent)
        assert offer is not None and [task.name for task in offer.tasks] == ["f0"]


def test_without_a_link_nothing_is_offered_for_it(tmp_path: Path) -> None:
    with member(tmp_path, "") as (agent, _):
        agent.tick()
        assert agent.machine.cost() == pytest.approx(0.6 / 0.4) and offered(agent) is None
        assert part_of(agent).unit_cost == pytest.approx(1 / (0.4 * 0.39))


def test_a_cost_is_learnt_from_what_waits(tmp_path: Path) -> None:
    with member(tmp_path, "cost: {kind: measured}") as (agent, engine):
        for _ in range(LEAST):
            agent.tick()
        # 20 tuples/s that take 0.1 s are 2 in flight, little more than the queue's 1.5: no move is worth its price.
        assert isinstance(agent.machine.costs, Learnt)
        assert agent.machine.cost() == pytest.approx(2.0, rel=0.05) and offered(agent) is None
        engine.delay_seconds = 5.0
        for _ in range(40):
            agent.tick()
        # A hundred in flight at the same CPU: whatever the queue says, this member is slow.
        assert agent.machine.cost() == pytest.approx(100.0, rel=0.1)
        assert part_of(agent).unit_cost == pytest.approx(agent.machine.cost() / 0.6, rel=0.01)
        wait_until(lambda: offered(agent) is not None, "an offer", meanwhile=agent.tick)


def test_nothing_is_learnt_while_tuples_are_dropped(tmp_path: Path) -> None:
    with member(tmp_path, "cost: {kind: measured}") as (agent, engine):
        agent.tick()
        agent._figures.keeps = {"f0": 0.5}
        before = agent._loads._learning
        engine.delay_seconds = 0.01
        agent._measure(time.time())
        assert agent._loads._learning == before
