"""All checks, on both cores: `make test`.

Three lanes of tests run side by side: those that use neither Spark nor Kafka, those of `tests/spark` with one Spark
session, and all others with another; the third takes a few folders of the first's before its own, so that all are busy
for about as long. `make lint` runs beside them. No test depends on how fast the machine is; those that judge latencies
are marked `timing` and `slow`, and run with `--run-slow` only.

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
HEAVY = "(spark or kafka)"
FOLDERS = ("tests/docs", "tests/experiments", "tests/properties")
"""Those that the third lane takes from the first."""
FIRST = {"tests without Spark": ["-m", f"not {HEAVY}", *(f"--ignore={folder}" for folder in FOLDERS)]}
SECOND = {"tests of Spark itself": ["-m", HEAVY, "tests/spark"]}
THIRD = {
    f"tests without Spark of {', '.join(FOLDERS)}": ["-m", f"not {HEAVY}", *FOLDERS],
    "tests of all else": ["-m", HEAVY, "--ignore=tests/spark"],
}


def main(arguments: list[str]) -> int:
    """Run all checks; 0 if all passed."""
    if arguments:
        return _run(arguments)
    print("Lint and three lanes of tests; the third is shown as it runs, the others when they have ended.", flush=True)
    lanes = {"lint": LINT} | {what: [*PYTEST, *chosen] for what, chosen in (FIRST | SECOND).items()}
    with tempfile.TemporaryDirectory(prefix="floodway-tests-") as folder:
        beside = [_Lane(what, command, Path(folder)) for what, command in lanes.items()]
        try:
            codes = {what: _run(chosen) for what, chosen in THIRD.items()}
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
