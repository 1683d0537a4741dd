"""All checks, on both cores: `make test`.

Lanes of tests run side by side, and `make lint` beside them. Most of a test's time is waiting (for a batch, a socket, a
timer), so there are more lanes than cores; each that needs Spark has one session of its own. No test depends on how
fast the machine is; those that judge latencies are marked `timing` and `slow`, and run with `--run-slow` only.

Arguments (`make test ARGS="-k plan"`) go to one plain pytest instead.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "--durations=10", "-p", "no:cacheprovider"]
LINT = ["make", "--no-print-directory", "lint"]
HEAVY = "(spark or kafka or cluster)"
WAITING = ("tests/agent", "tests/dashboard", "tests/cli")
"""Folders whose tests wait for processes, sockets and browsers."""
COMPUTING = ("tests/docs", "tests/experiments", "tests/properties")
CONNECT = "tests/spark/test_spark_connect.py"
"""It has a server of its own, and nothing in common with the others."""
LANES = {
    "tests of agents": ["-m", f"not {HEAVY}", "tests/agent"],
    "tests of commands and the page": ["-m", f"not {HEAVY}", "tests/dashboard", "tests/cli"],
    "tests of papers, properties and pages": ["-m", f"not {HEAVY}", *COMPUTING],
    "other tests without Spark": ["-m", f"not {HEAVY}", *(f"--ignore={folder}" for folder in WAITING + COMPUTING)],
    "tests of Spark itself": ["-m", HEAVY, "tests/spark", f"--ignore={CONNECT}"],
    "tests of Spark Connect": [CONNECT],
    "tests of Kafka and clusters": ["-m", HEAVY, "tests/kafka", "tests/cluster"],
}
SHOWN = "tests of jobs on Spark"
"""The lane whose output is shown as it runs."""
OTHERS = ["-m", HEAVY, *(f"--ignore=tests/{folder}" for folder in ("spark", "kafka", "cluster"))]


def main(arguments: list[str]) -> int:
    """Run all checks; 0 if all passed."""
    if arguments:
        return _run(arguments)
    print(
        f"Lint and {len(LANES) + 1} lanes of tests; one is shown as it runs, the others when they have ended.",
        flush=True,
    )
    commands = {"lint": LINT} | {what: [*PYTEST, *chosen] for what, chosen in LANES.items()}
    with tempfile.TemporaryDirectory(prefix="floodway-tests-") as folder:
        beside = [_Lane(what, command, Path(folder)) for what, command in commands.items()]
        try:
            codes = {SHOWN: _run(OTHERS)}
            for lane in beside:
                codes |= lane.wait()
        finally:
            for lane in beside:
                lane.end()
    for what, failed in codes.items():
        print(f"{what}: {f'FAILED, exit {failed}' if failed else 'passed'}")
    return max(codes.values())


def _run(chosen: Sequence[str]) -> int:
    return subprocess.run([*PYTEST, *chosen], cwd=ROOT, check=False).returncode


class _Lane:
    """One command beside the others, its output in a file until it has ended."""

    def __init__(self, what: str, command: Sequence[str], folder: Path) -> None:
        self._what = what
        self._log = folder / what
        with self._log.open("w") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    def wait(self) -> dict[str, int]:
        code = self._process.wait()
        print(self._log.read_text(), flush=True)
        return {self._what: code}

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
