"""All tests, on both cores: `make test`.

Tests that use neither Spark nor Kafka run beside those that do, as a process of their own. Tests marked `timing`
measure latencies and need the machine to themselves: they come last and wait until the other process has ended.
Arguments are handed to one plain pytest instead: `make test ARGS="-k plan"`.
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
BESIDE = "FLOODWAY_TESTS_BESIDE"
"""Names a file that is there while other tests run: tests marked `timing` wait until it is gone."""


def main(arguments: list[str]) -> int:
    """Run the tests; 0 if all passed."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        return subprocess.run([*pytest, *arguments], cwd=ROOT, check=False).returncode
    print("Tests without Spark run beside the others; their report follows at the end.", flush=True)
    with tempfile.TemporaryDirectory(prefix="floodway-tests-") as folder:
        running, log = Path(folder, "running"), Path(folder, "log")
        running.touch()
        with log.open("w") as output:
            light = subprocess.Popen(
                [*pytest, "-m", f"not ({HEAVY})", "-p", "no:cacheprovider"],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        waiter = Thread(target=_clear_after, args=(light, running))
        waiter.start()
        try:
            environment = {**os.environ, BESIDE: str(running)}
            heavy = subprocess.run([*pytest, "-m", HEAVY], cwd=ROOT, env=environment, check=False).returncode
            waiter.join()
        finally:
            light.kill()
            waiter.join()
        print(log.read_text(), flush=True)
    for what, code in (("with Spark or Kafka", heavy), ("without", light.returncode)):
        print(f"Tests {what}: {f'FAILED, pytest exit {code}' if code else 'passed'}")
    return heavy or light.returncode


def _clear_after(process: subprocess.Popen[bytes], running: Path) -> None:
    process.wait()
    running.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
