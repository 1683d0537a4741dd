"""The story of Figure 13: its parts without Spark, and all of it on three Spark applications when slow tests run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.intrusion_logs import SCHEMA, generated, read_trace
from floodway.contracts.cost import InFlight
from floodway.contracts.federation_file import parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Remeasured
from floodway.contracts.participant_state import NegotiationTimes, participant
from floodway.errors import InputError
from floodway.experiments.federation import fig13
from floodway.experiments.federation.story import Feeding, _cpu_seconds, rows
from floodway.simulation.federation import SimulatedFederation
from floodway.spark.log import LogReader, create_log
from tests.experiments.outcomes import THREE, story
from tests.patience import wait_until


def test_the_script_tells_the_paper_story_on_a_simulated_clock() -> None:
    """The same machines, contracts and loads, with moves that take no time: what the real run should show."""
    file = parse_federation(fig13._text([1, 2, 3]))
    loads = dict(fig13.QUIET)
    members = [
        participant(
            name,
            InFlight(),
            file.contracts,
            [Task(part, Load(loads[part]), units=loads[part], kind=file.fragments[part].run) for part in parts],
            NegotiationTimes(period_seconds=5.0, wake_seconds=30.0),
        )
        for name, parts in fig13.OWNED.items()
    ]
    federation = SimulatedFederation.of(members, period_seconds=5.0)
    told: list[list[str]] = []
    for phase in fig13.PHASES:
        before = len(federation.moves)
        start = dict(loads)
        # Rates are measured over a window: a change arrives in steps.
        for share in (0.25, 0.5, 0.75, 1.0, 1.0, 1.0):
            for part, load in phase.load.items():
                loads[part] = start[part] + share * (load - start[part])
            for name in list(federation.members):
                held = federation.members[name].holdings
                tasks = tuple(Task(part, Load(loads[part]), units=loads[part]) for part in held)
                federation._step(name, Remeasured(tasks))
            federation.round()
        told.append([f"{move.giver}→{move.taker}" for _, move in federation.moves[before:]])
    assert told == [[], ["A→B"], ["A→B"], ["A→C"], ["B→C"], []]


def test_feeding_keeps_its_rate_and_ends_with_the_trace(tmp_path: Path) -> None:
    table = generated(3, seconds=100.0, rate=2.0)
    create_log(tmp_path / "log", SCHEMA)
    feed = Feeding(tmp_path / "log", table, rate=10.0)
    for _ in range(30):
        feed.feed(0.25)
    assert feed.fed == 75
    feed.rate = 1e6
    feed.feed(1.0)
    feed.close(fig13._closing(table))
    times = [row[0] for row in rows(tmp_path / "log")]
    assert len(times) == table.num_rows + 1 == LogReader(tmp_path / "log").end_positions()[0]
    assert (max(times) - sorted(times)[-2]).total_seconds() == pytest.approx(86_400.0)


def test_a_short_trace_is_repeated_for_as_long_as_the_story_may_last() -> None:
    table = generated(3, seconds=100.0, rate=2.0)
    lasting = fig13._lasting(table)
    times = lasting.column("at").to_pylist()
    assert times == sorted(times) and lasting.num_rows % table.num_rows == 0
    seconds = sum(phase.most for phase in fig13.PHASES)
    assert lasting.num_rows / len(fig13.QUIET) >= seconds * 0.34 / fig13.COST


@pytest.mark.parametrize("last", ["B→C", "B→A"])
def test_the_story_holds_whoever_takes_the_spike(tmp_path: Path, last: str) -> None:
    result = story(tmp_path, (*THREE, last))
    assert result.holds, result.reason
    assert result.measured["cores"]["A"] == {"declared": 0.5, "used by its processes": 1.0}


def test_the_cpu_of_a_session_is_that_of_all_its_processes() -> None:
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True)
    try:
        wait_until(lambda: _cpu_seconds(process.pid) > 0.3, "CPU time of a child's child")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_traces_are_read_by_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("ts,source,destination,protocol,service\n5.5,a,b,udp,53\n2.25,c,d,tcp,80\n")
    found = read_trace(path).to_pylist()
    assert [(row["at"].timestamp(), row["source"], row["protocol"]) for row in found] == [
        (2.25, "c", "tcp/80"),
        (5.5, "a", "udp/53"),
    ]
    path.write_text("arrivals\n1\n2\n")
    with pytest.raises(InputError, match="no column ts"):
        read_trace(path)


@pytest.mark.slow
@pytest.mark.spark
def test_three_spark_applications_tell_the_story() -> None:
    result = fig13.run(seeds=[1], trace=None, progress=lambda share: None)
    print(result.headline)
    assert result.holds, result.measured
