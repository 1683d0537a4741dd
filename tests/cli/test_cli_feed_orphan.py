"""A feeder that a run has started ends with the run, however that ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import wait_until

START = """
import sys
from pathlib import Path
from floodway.agent.loop.feeds import Feed, Feeder
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.query.layout import RunLayout

network = Network("n", {"s": Stream("s", 10.0)}, {"A": Node("A")}, {"w": Operator("w", "A", ("s",))}, {})
feeder = Feeder(network, RunLayout(Path(sys.argv[1])), {"s": Feed(rate=10.0)})
feeder.start()
print(feeder._running['s'].pid, flush=True)
sys.stdin.read()
"""


def test_a_feeder_ends_when_its_run_was_killed(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None and run.stdin is not None
    pid = int(run.stdout.readline())
    segments = tmp_path / "streams" / "s" / "p0"
    wait_until(lambda: any(segments.glob("*.arrow")))
    run.kill()
    run.communicate()
    wait_until(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
