"""Either side killed at each step of a move, on real Spark: two applications, windows that live through it all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from floodway.agent.federation.audit import audit_federation
from floodway.agent.federation.moving import STEPS
from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import parse_federation
from floodway.experiments.chaos import federation_world
from tests.agent.federation_world import World

FILE = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{b}", cpu: 1.0}}
contracts:
  A<->B: {{price: 4.0}}
fragments:
  f0: {{owner: A, run: tens, logs: {{input: logs/f0}}, cost: 0.006}}
  f1: {{owner: A, run: tens, logs: {{input: logs/f1}}, cost: 0.006}}
"""


def run_spark_participant(text: str, name: str, root: str, kill_at: str | None) -> None:
    """The body of a participant's process with its own Spark application."""
    from floodway.agent.federation.leases import LeaseStore
    from floodway.agent.federation.pace import Pace
    from floodway.agent.federation.participant import ParticipantAgent
    from floodway.agent.federation.spark_engine import SparkEngine
    from floodway.contracts.participant import Settings
    from floodway.spark.query.catalogue import load_catalogue
    from floodway.spark.session.session import spark_session

    def at(step: str) -> None:
        if step == kill_at:
            os._exit(9)

    federation = parse_federation(text)
    # Nothing is shed, however long a partner takes: results are compared to the tuple.
    pace = Pace(lease=20.0, margin=2.0, bill=2.0, failed_move=2.0, patience=1e6)
    store = LeaseStore(Path(root) / "shared", seconds=pace.lease)
    spark = spark_session(f"floodway-{name}", conf={"spark.driver.memory": "1g"})
    shared, decision = Path(root) / "shared", Path(root) / name / "decision.json"
    catalogue = load_catalogue("tests.agent.federation_catalogue")
    engine = SparkEngine(spark, catalogue, shared, decision)
    port = int(federation.members[name].url.rpartition(":")[2])
    member = ParticipantAgent(
        *(federation, name, Path(root) / name, store, engine),
        listen=("127.0.0.1", port),
        settings=Settings(period_seconds=2.0, answer_seconds=5.0, wake_seconds=10.0),
        pace=pace,
        at=at,
    )
    member.start()
    member.run()


class SparkWorld(World):
    """The same world with Spark in its processes and windows in its results."""

    def body(self) -> Callable[[str, str, str, str | None], None]:
        return run_spark_participant

    def caught_up(self) -> bool:
        return all(len(self.written(name)) >= count // 10 - 1 for name, count in self.fed.items())

    def check_results(self) -> None:
        for name, count in self.fed.items():
            found = sorted((row["first"], row["count"], row["total"]) for row in self.written(name))
            wanted = [(first, 10, 10 * first + 45) for first in range(0, count - 10, 10)]
            assert found == wanted, name
        for name, audit in audit_federation(parse_federation(self.text), self.root / "shared").items():
            assert audit.differences == () and audit.tuples_offered == self.fed[name], name


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkWorld]:
    monkeypatch.setattr(federation_world, "STEP_SECONDS", 400.0)
    a, b = free_ports(2)
    made = SparkWorld(tmp_path, FILE.format(a=a, b=b))
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_leaves_one_owner_and_whole_windows(world: SparkWorld, step: str) -> None:
    world.survives_a_kill(step, patience_seconds=400.0)
