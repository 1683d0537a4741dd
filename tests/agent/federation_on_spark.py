"""Two participants on one real Spark session, for tests: each with its loop on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import ParticipantAgent
from floodway.agent.federation.partners import Pace
from floodway.agent.federation.spark_engine import SparkFragments
from floodway.contracts.federation_file import Federation
from floodway.contracts.participant_state import NegotiationTimes
from floodway.job.decision import Mode
from floodway.job.options.options import JobOptions
from floodway.spark.query.catalogue import load_catalogue
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACE = Pace(tick=0.05, measure=0.5, bill=1.0)


def participant_on(
    spark: SparkSession,
    federation: Federation,
    name: str,
    root: Path,
    catalogue: str,
    *,
    trigger_seconds: float = 0.5,
    pace: Pace = PACE,
    mode: Mode = "observe",
) -> ParticipantAgent:
    """A participant whose fragments run on the given Spark; the shared storage is `root/shared`.

    It only observes, unless told otherwise: however busy the machine is, results are compared to the tuple. Leases
    last: who is held up for a while loses nothing, so that what moves does so once.
    """
    store = LeaseStore(root / "shared", seconds=PATIENCE_SECONDS)
    engine = SparkFragments(
        spark,
        load_catalogue(catalogue),
        root / "shared",
        root / name / "decision.json",
        trigger_seconds=trigger_seconds,
    )
    port = int(federation.members[name].url.rpartition(":")[2])
    return ParticipantAgent(
        *(federation, name, root / name, store, engine),
        listen=("127.0.0.1", port),
        settings=NegotiationTimes(period_seconds=1.0),
        pace=pace,
        options=JobOptions(mode=mode),
    )


class Running:
    """Participants in this process, each with its loop on a thread."""

    def __init__(self, *agents: ParticipantAgent) -> None:
        self.agents = agents
        for agent in agents:
            agent.start()
        self._threads = [threading.Thread(target=agent.run) for agent in agents]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for agent in self.agents:
            agent.stop()
        for thread in self._threads:
            thread.join()
        for agent in self.agents:
            agent.close()


def wait(what: str, condition: Callable[[], bool], told: Callable[[], object]) -> None:
    """Until it has happened."""
    wait_until(condition, what, told=told, pause_seconds=0.1)
