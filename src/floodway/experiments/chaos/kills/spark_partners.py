"""Partners of a federation with a Spark application each, for kills at the steps of a move.

Their fragments count and sum numbers over windows of ten: a window that lives through a move and a kill is whole, or
gives itself away. Only `floodway.spark` imports pyspark, so DataFrames are `Any` here, and expressions are SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from floodway.agent.federation.partners import Pace
from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import parse_federation
from floodway.contracts.participant_state import NegotiationTimes
from floodway.experiments.chaos.federation_world import FederationWorld, must, struck_at
from floodway.spark.audit.run import audit_federation
from floodway.spark.query.catalogue import Catalogue, NoParameters

CATALOGUE = Catalogue()
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
WINDOW = 10
PACE = Pace(lease=20.0, margin=2.0, bill=2.0, failed_move=2.0, patience=1e6)
"""Nothing is shed, however long a partner takes: results are compared to the tuple."""
SETTINGS = NegotiationTimes(period_seconds=2.0, answer_seconds=5.0, wake_seconds=10.0)


@CATALOGUE.entry("tens", inputs={"input": "id bigint"})
def tens(inputs: Mapping[str, Any], parameters: NoParameters) -> Any:
    """How many numbers of each ten came, and their sum."""
    timed = inputs["input"].selectExpr("id", "timestamp_seconds(id) AS at").withWatermark("at", "0 seconds")
    windows = timed.selectExpr("id", f"window(at, '{WINDOW} seconds') AS ten")
    summed = windows.groupBy("ten").agg({"*": "count", "id": "sum"})
    return summed.selectExpr("unix_timestamp(ten.start) AS first", "`count(1)` AS count", "`sum(id)` AS total")


def run_spark_participant(text: str, name: str, root: str, kill_at: str | None) -> None:
    """The body of a participant's process with its own Spark application; see `run_participant`."""
    from floodway.agent.federation.leases import LeaseStore
    from floodway.agent.federation.participant import ParticipantAgent
    from floodway.agent.federation.spark_engine import SparkFragments
    from floodway.spark.query.catalogue import load_catalogue
    from floodway.spark.session.session import spark_session

    federation = parse_federation(text)
    store = LeaseStore(Path(root) / "shared", seconds=PACE.lease)
    spark = spark_session(f"floodway-{name}", conf={"spark.driver.memory": "1g"})
    shared, decision = Path(root) / "shared", Path(root) / name / "decision.json"
    engine = SparkFragments(spark, load_catalogue(__name__), shared, decision)
    port = int(federation.members[name].url.rpartition(":")[2])
    member = ParticipantAgent(
        *(federation, name, Path(root) / name, store, engine),
        listen=("127.0.0.1", port),
        settings=SETTINGS,
        pace=PACE,
        at=struck_at(kill_at),
    )
    member.start()
    member.run()


class SparkWorld(FederationWorld):
    """The small federation with Spark in its processes and windows in its results."""

    step_seconds: ClassVar[float] = 900.0

    @classmethod
    def make(cls, root: Path) -> Self:
        """On ports that are free."""
        a, b = free_ports(2)
        return cls(root, FILE.format(a=a, b=b))

    def body(self) -> Callable[[str, str, str, str | None], None]:
        return run_spark_participant

    def caught_up(self) -> bool:
        """See `FederationWorld`; the last window is not closed yet."""
        return all(len(self.written(name)) >= count // WINDOW - 1 for name, count in self.fed.items())

    def check_results(self) -> None:
        """Every window once and whole, and an audit without a difference."""
        for name, count in self.fed.items():
            found = sorted((row["first"], row["count"], row["total"]) for row in self.written(name))
            wanted = [(first, WINDOW, WINDOW * first + 45) for first in range(0, count - WINDOW, WINDOW)]
            must(found == wanted, f"the windows of {name} are not those of an unmoved run")
        for name, audit in audit_federation(parse_federation(self.text), self.root / "shared", full=True).items():
            must(audit.differences == (), f"{name}: {audit.differences}")
            must(audit.tuples_offered == self.fed[name], f"{name}: {audit.tuples_offered} of {self.fed[name]} offered")
