"""All checks, on both cores: `make test`.

Steps wait in a queue, and five run at a time, on two cores too: more than half of a test's time is waiting, for a
batch, a sink, a socket, a timer. The longest come first, and before the others where CPU is short. Each step that needs
Spark has one session of its own. No test depends on how fast the machine is; those that judge latencies are marked
`timing` and `slow`, and run with `--run-slow` only.

Arguments (`make test ARGS="-k plan"`) go to one plain pytest instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_A_TIME = 5
LONGEST, LATER = 3, ["nice", "-n", "5"]
"""As many steps decide how long all take: the others have what CPU they leave."""
PYTEST = [sys.executable, "-m", "pytest", "--durations=10", "-p", "no:cacheprovider"]
HEAVY = "(spark or kafka or cluster)"
LIGHT = ["-m", f"not {HEAVY}"]
MARKED = re.compile(r"mark\.(?:spark|kafka|cluster)\b")
ELSEWHERE = ("tests/spark", "tests/kafka", "tests/cluster")
"""Folders whose heavy tests have steps of their own."""
CONNECT = "tests/spark/test_spark_connect.py"
"""It has a server of its own, and nothing in common with the others."""
AGENTS = "tests/agent"
"""More than half of the seconds of jobs on Spark are here."""
WAITING = ("tests/agent", "tests/dashboard", "tests/cli")
"""Folders whose tests wait for processes, sockets and browsers."""
COMPUTING = ("tests/docs", "tests/experiments", "tests/properties")
Steps = Mapping[str, Sequence[str]]


def steps() -> Steps:
    """What is run, by what it is called: the longest first."""
    others = [f"--ignore={folder}" for folder in WAITING + COMPUTING]
    return {
        "tests of Spark itself": [*PYTEST, "-m", HEAVY, "tests/spark", f"--ignore={CONNECT}"],
        "tests of runs and agents on Spark": [*PYTEST, "-m", HEAVY, *jobs(AGENTS)],
        "tests of Kafka and clusters": [*PYTEST, "-m", HEAVY, "tests/kafka", "tests/cluster"],
        "tests of papers, properties and pages": [*PYTEST, *LIGHT, *COMPUTING],
        "tests of agents": [*PYTEST, *LIGHT, "tests/agent"],
        "tests of commands and the page": [*PYTEST, *LIGHT, "tests/dashboard", "tests/cli"],
        "tests of other jobs on Spark": [*PYTEST, "-m", HEAVY, *jobs(all_but=AGENTS)],
        "other tests without Spark": [*PYTEST, *LIGHT, *others],
        "lint": ["make", "--no-print-directory", "lint"],
        "tests of Spark Connect": [*PYTEST, CONNECT],
    }


def jobs(folder: str = "tests", *, all_but: str = "") -> list[str]:
    """Files with heavy tests in a folder, found by their text: to import all of them takes ten seconds."""
    elsewhere = [ROOT / other for other in (*ELSEWHERE, all_but) if other]
    return [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / folder).rglob("test_*.py"))
        if not any(file.is_relative_to(other) for other in elsewhere)
        and MARKED.search(file.read_text(encoding="utf-8"))
    ]


def main(arguments: list[str]) -> int:
    """Run all checks; 0 if all passed."""
    if arguments:
        return subprocess.run([*PYTEST, *arguments], cwd=ROOT, check=False).returncode
    queue = _Queue(steps())
    print(f"{len(queue.steps)} steps, {AT_A_TIME} at a time; what one says is shown when it has ended.", flush=True)
    codes = queue.run()
    for what, failed in codes.items():
        print(f"{what}: {f'FAILED, exit {failed}' if failed else 'passed'}")
    return max(codes.values())


class _Queue:
    """Steps that are run a few at a time, what they say in files until they have ended."""

    def __init__(self, chosen: Steps) -> None:
        self.steps = chosen
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self) -> dict[str, int]:
        """Exit codes, in the order in which steps have ended."""
        codes: dict[str, int] = {}
        with tempfile.TemporaryDirectory(prefix="floodway-tests-") as folder, ThreadPoolExecutor(AT_A_TIME) as pool:
            begun: dict[Future[int], str] = {
                pool.submit(self._step, command if at < LONGEST else [*LATER, *command], Path(folder) / what): what
                for at, (what, command) in enumerate(self.steps.items())
            }
            try:
                for ended in as_completed(begun):
                    what = begun[ended]
                    codes[what] = ended.result()
                    print((Path(folder) / what).read_text(encoding="utf-8", errors="replace"), flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in self._running:
                    process.kill()
                raise
        return codes

    def _step(self, command: Sequence[str], said: Path) -> int:
        start = time.monotonic()
        with said.open("w") as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            self._running.append(process)
            code = process.wait()
            output.write(f"{said.name}: {time.monotonic() - start:.0f} s\n")
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
