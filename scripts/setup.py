"""Make `.venv` with the locked versions and find or obtain Java: `make setup`.

Runs on any Python >= 3.11 with its standard library only. A stamp in `.venv` holds the hash of all that
decides what is installed, so a second run without changes takes a fraction of a second.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "floodway-setup.stamp"
LOCK = ROOT / "requirements.lock"
JAVA_LOCK = ROOT / "requirements-java.lock"
PATIENT = ("--timeout", "120", "--retries", "10")
"""A machine that is busy may be silent for longer than pip's own 15 seconds."""
JAVA_FINDER = ROOT / "src" / "floodway" / "spark" / "session" / "java.py"


def main() -> None:
    """Bring `.venv` up to date; every way to fail ends in one line that says what to do."""
    started = time.monotonic()
    wanted = fingerprint()
    fresh = STAMP.is_file() and PYTHON.exists() and STAMP.read_text() == wanted
    if not fresh:
        install()
    java = ensure_java()
    if not fresh:
        STAMP.write_text(wanted)  # last: a run that was cut short starts over
        print(f"setup: ready in {time.monotonic() - started:.0f} s, Java at {java}")


def fingerprint() -> str:
    """A hash of what decides the content of `.venv`: locks, metadata, this script, Python and the place."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for file in (LOCK, JAVA_LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def install() -> None:
    """Make the environment if needed and install the locked versions and Floodway itself, editable."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        fail(f"this Python lacks venv or ensurepip: install the package python{version}-venv (or python3-venv)")
    if not usable():
        print(f"setup: making {VENV.name} with Python {sys.version.split()[0]}", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(VENV)], "the environment could not be made")
    print(f"setup: installing {LOCK.name} (about 850 MB the first time)", flush=True)
    # PEP 517 also for the packages that come as source (pyspark): the same build with every version of pip.
    pip("--require-hashes", "--use-pep517", "-r", str(LOCK))
    # hatchling comes from the lock: no build environment, and so nothing unlocked, is fetched here.
    pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))


def usable() -> bool:
    """Whether `.venv` runs and is of the same Python version as this one."""
    if not PYTHON.exists():
        return False
    code = "import pip, sys; print(sys.version_info[:2])"
    answer = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.strip() == str(sys.version_info[:2])


def ensure_java() -> str:
    """The Java home that Spark will use: the machine's, or one installed into `.venv`."""
    # -P keeps the script's own folder off the import path, where a file could shadow the standard library.
    find = [str(PYTHON), "-P", str(JAVA_FINDER)]
    answer = subprocess.run(find, capture_output=True, text=True, check=False)
    if answer.returncode:
        print("setup: no Java >= 17 on this machine; installing one into .venv", flush=True)
        pip("--require-hashes", "-r", str(JAVA_LOCK), problem=last_line(answer.stderr))
        answer = subprocess.run(find, capture_output=True, text=True, check=False)
    if answer.returncode:
        fail(last_line(answer.stderr))
    return answer.stdout.strip()


def pip(*arguments: str, problem: str = "pip could not install the locked versions; its message is above") -> None:
    """Run pip inside the environment; bytecode is made on import, for the few modules that are ever imported."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run([*command, *PATIENT, *arguments], problem)


def run(command: list[str], problem: str) -> None:
    """Run a command; end with one line if it fails."""
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        fail(problem)


def last_line(text: str) -> str:
    """The last line that says something."""
    return (text.strip().splitlines() or ["no Java >= 17 was found: install OpenJDK 17 or 21"])[-1]


def fail(message: str) -> NoReturn:
    """End with one line on stderr."""
    print(f"setup: {message}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
