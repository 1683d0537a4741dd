"""Resolve the dependencies of pyproject.toml into the lock files: `make lock`.

Each lock holds exact versions and hashes for every platform and every Python from 3.11 on, and neither the
address of a registry nor a path of this machine. Versions already locked stay unless
`--upgrade` or `-P name` is given.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "requirements.lock": ["pyproject.toml", "--extra", "all", "--group", "dev"],  # what Floodway and its checks run on
    "requirements-java.lock": ["--group", "java"],  # only where the machine has no Java
}


def main() -> int:
    """Write both locks; extra arguments go to `uv pip compile`."""
    # The local link folders of this machine must not decide what everybody gets.
    environment = {key: value for key, value in os.environ.items() if key != "UV_FIND_LINKS"}
    environment["UV_CUSTOM_COMPILE_COMMAND"] = "make lock"  # what the header of each lock says
    for lock, what in LOCKS.items():
        command = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            *what,
            "--universal",
            "--python-version",
            "3.11",
        ]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
        command += ["--output-file", lock, *sys.argv[1:]]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if done.returncode:
            return done.returncode
        print(f"{lock}: {sum('==' in line for line in (ROOT / lock).read_text().splitlines())} locked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
