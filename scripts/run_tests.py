"""All tests, on both cores: `make test`.

Three processes: tests that use neither Spark nor Kafka, those of `tests/spark` with one Spark session, and all others
with another. The third takes a few folders of the first's before its own, so that all three are busy for about as long.
Tests marked `timing` measure latencies and need the machine to themselves: they are in the third, come last, and wait
until the other two have ended.

Arguments (`make test ARGS="-k plan"`) go to one plain pytest instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parent.parent
HEAVY = "spark or kafka"
FOLDERS = ("tests/docs", "tests/experiments", "tests/properties")
"""Those that the third process takes from the first."""
BESIDE = {
    "without Spark": ["-m", f"not ({HEAVY})", *(f"--ignore={folder}" for folder in FOLDERS)],
    "of Spark itself": ["-m", HEAVY, "tests/spark"],
}
THIRD = {
    f"without Spark of {', '.join(FOLDERS)}": ["-m", f"not ({HEAVY})", *FOLDERS],
    "of all else": ["-m", HEAVY, "--ignore=tests/spark"],
}
WAIT_FOR = "FLOODWAY_TESTS_BESIDE"
"""Names a folder with a file for each process that runs beside: tests marked `timing` wait until it is empty."""


def main(arguments: list[str]) -> int:
    """Run the tests; 0 if all passed."""
    pytest = [sys.executable, "-m", "pytest", "--durations=10"]
    if arguments:
        return subprocess.run([*pytest, *arguments], cwd=ROOT, check=False).returncode
    print(f"Beside these run tests {' and those '.join(BESIDE)}; their reports follow at the end.", flush=True)
    with tempfile.TemporaryDirectory(prefix="floodway-tests-") as folder:
        running = Path(folder, "running")
        running.mkdir()
        beside = {what: _Beside([*pytest, *chosen], running, Path(folder, what)) for what, chosen in BESIDE.items()}
        try:
            environment = {**os.environ, WAIT_FOR: str(running)}
            codes = {
                what: subprocess.run([*pytest, *chosen], cwd=ROOT, env=environment, check=False).returncode
                for what, chosen in THIRD.items()
            }
            codes |= {what: one.wait() for what, one in beside.items()}
        finally:
            for one in beside.values():
                one.end()
        for one in beside.values():
            print(one.log.read_text(), flush=True)
    for what, failed in codes.items():
        print(f"Tests {what}: {f'FAILED, pytest exit {failed}' if failed else 'passed'}")
    return max(codes.values())


class _Beside:
    """A pytest whose output goes to a file; while it runs, its mark is in the folder `running`."""

    def __init__(self, command: list[str], running: Path, log: Path) -> None:
        self.log = log
        mark = running / log.name
        mark.touch()
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [*command, "-p", "no:cacheprovider"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        self._waiter = Thread(target=_clear_after, args=(self._process, mark))
        self._waiter.start()

    def wait(self) -> int:
        self._waiter.join()
        return self._process.returncode

    def end(self) -> None:
        self._process.kill()
        self._waiter.join()


def _clear_after(process: subprocess.Popen[bytes], mark: Path) -> None:
    process.wait()
    mark.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
