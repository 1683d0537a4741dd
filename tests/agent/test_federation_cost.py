"""What a fragment costs where the file does not say: measured on real Spark, per fragment, and used to make offers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import parse_federation
from floodway.spark.log import LogWriter, create_log
from tests.agent.federation_on_spark import Running, participant_on, wait
from tests.agent.federation_world import part_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BURN = 0.004
"""CPU-seconds of a Python worker for each tuple of the heavy fragment."""
FEDERATION = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{b}", cpu: 1.0}}
contracts:
  A->B: {{price: 0.1}}
fragments:
  light: {{owner: A, run: burn, logs: {{input: logs/l}}, parameters: {{milliseconds: 0}}}}
  heavy: {{owner: A, run: burn, logs: {{input: logs/h}}, parameters: {{milliseconds: 4}}}}
"""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.spark
def test_the_cost_of_a_tuple_is_measured_for_each_fragment_alone(
    spark: SparkSession, tmp_path: Path, opened: ExitStack
) -> None:
    a_port, b_port = free_ports(2)
    federation = parse_federation(FEDERATION.format(a=a_port, b=b_port))
    for name in "lh":
        create_log(tmp_path / "shared" / "logs" / name, "id bigint")
    agent = participant_on(
        spark, federation, "A", tmp_path, "tests.agent.federation_catalogue", trigger_seconds=2.0
    )  # B is away: offers go out, nothing moves
    stop = threading.Event()

    def feed() -> None:
        with (
            LogWriter(tmp_path / "shared" / "logs" / "l", sync=False) as light,
            LogWriter(tmp_path / "shared" / "logs" / "h", sync=False) as heavy,
        ):
            while not stop.wait(0.2):
                for writer in (light, heavy):
                    writer.append(pa.table({"id": list(range(20))}))

    feeder = threading.Thread(target=feed)
    feeder.start()
    opened.callback(feeder.join)
    opened.callback(stop.set)
    running = Running(agent)
    opened.callback(running.close)

    def costs() -> tuple[float, float]:
        """CPU-seconds a tuple, as the machine has them: of the heavy one and of the light one."""
        fragments = [part_of(agent).fragments[name] for name in ("heavy", "light")]
        heavy, light = (one.cpu / one.rate if one.rate else 0.0 for one in fragments)
        return heavy, light

    def apart() -> bool:
        heavy, light = costs()
        return light > 0 and heavy - light > 0.6 * BURN and light < 0.5 * heavy

    # What the two do apart from burning is the same. The first batches pay for Spark's warm-up, until that has faded.
    wait("the two to be told apart", apart, agent.status)
    heavy, light = costs()
    print(f"CPU-seconds a tuple: heavy {heavy:.5f}, light {light:.5f}; burnt {BURN:g}")
    assert heavy - light < 2.0 * BURN

    # These are the loads and units that the machine makes its offers with, the heaviest first.
    task = agent.machine.holdings["heavy"].task
    assert task.units == task.load.cpu > agent.machine.holdings["light"].task.load.cpu > 0
    wait("an offer", lambda: bool(agent.journal.offers()), agent.status)
    assert agent.journal.offers()[-1]["tasks"][0] == "heavy"
