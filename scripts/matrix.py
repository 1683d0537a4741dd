"""The one line on every Spark that users have: `make matrix`.

    make matrix                        # 3.5, 4.0, 4.1, 4.2 and 4.3, Classic and Connect
    make matrix ARGS="3.5 4.1 --classic"
    make matrix ARGS="4.3 --python python3.13"

Each version has an environment of its own in the project's cache: that PySpark, the wheel as it would be released, and
pytest. Floodway's own dependencies come with the wheel, which must leave PySpark's version as it is. The tests are
those of `tests/matrix`; they see the wheel, not `src`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from floodway.spark.session.java import find_java
from scripts.fetch_kafka import JarSet, cache, fetch

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The newest release of every line that managed platforms run."""

SERVER = JarSet(
    name="spark-connect-3.5.7",
    artifacts=("org.apache.spark:spark-connect_2.12:3.5.7",),
    proof="spark-connect_2.12-3.5.7.jar",
)
"""The Connect server of 3.5, which is not in its Python package; the newest release that could be had."""

MINOR = "import sys; print('{}.{}'.format(*sys.version_info))"
TOOLS = ("pytest>=8", "hypothesis>=6")
CONNECT = ("grpcio>=1.67", "grpcio-status>=1.67", "googleapis-common-protos>=1.65", "zstandard", "pandas>=2.0.3,<3")
"""What a Connect client needs; the extra `pyspark[connect]` asks for the same, in older versions without wheels."""

OLD = ("numpy<2", "pyarrow<20", "setuptools<80")
"""For 3.5: its own code still uses names that NumPy 2 removed, and `distutils`; later pyarrow needs NumPy 2."""


def main(arguments: list[str]) -> int:
    """Run the chosen cells and print one line for each; 0 if all passed."""
    parser = argparse.ArgumentParser(prog="make matrix", description="The shed's tests on several versions of Spark.")
    parser.add_argument("lines", nargs="*", choices=[*VERSIONS, []], help="e.g. 3.5 4.1; all if left out")
    parser.add_argument("--classic", action="store_true", help="only sessions with a JVM of their own")
    parser.add_argument("--connect", action="store_true", help="only sessions through Spark Connect")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to try, this one if left out")
    chosen = parser.parse_args(arguments)
    kinds = [kind for kind in ("classic", "connect") if getattr(chosen, kind) or not (chosen.classic or chosen.connect)]
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="floodway-matrix-") as folder:
        wheel = build(Path(folder))
        for line in chosen.lines or VERSIONS:
            python = environment(chosen.python, VERSIONS[line], wheel)
            for kind in kinds:
                print(f"\n== Spark {VERSIONS[line]}, {kind} ==", flush=True)
                code = run_tests(python, VERSIONS[line], kind, Path(folder))
                results[f"Spark {VERSIONS[line]} {kind}"] = "passed" if code == 0 else f"FAILED, exit {code}"
    print()
    for cell, result in results.items():
        print(f"{cell:24} {result}")
    return int(any(result != "passed" for result in results.values()))


def build(folder: Path) -> Path:
    """The wheel of this tree."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(interpreter: str, version: str, wheel: Path) -> Path:
    """The Python of an environment with this PySpark and the wheel; made once, the wheel installed anew every time."""
    home = cache() / "matrix" / f"spark-{version}-py{_output(interpreter, MINOR)}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        print(f"making an environment with PySpark {version}", flush=True)
        subprocess.run([interpreter, "-m", "venv", str(home)], check=True)
        old = OLD if version.startswith("3.") else ()
        pip(python, f"pyspark=={version}", *TOOLS, *CONNECT, *old)
        (home / "ready").touch()
    before = installed(python)
    pip(python, "--upgrade-strategy", "only-if-needed", str(wheel))
    pip(python, "--force-reinstall", "--no-deps", str(wheel))
    if installed(python) != before:
        raise SystemExit(f"installing the wheel changed PySpark from {before} to {installed(python)}")
    return python


def installed(python: Path) -> str:
    """PySpark's version there."""
    return _output(str(python), "import importlib.metadata as m; print(m.version('pyspark'))")


def _output(interpreter: str, code: str) -> str:
    """What a line of Python prints there."""
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def pip(python: Path, *arguments: str) -> None:
    """Install quietly."""
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments], check=True)


def run_tests(python: Path, version: str, kind: str, folder: Path) -> int:
    """Run `tests/matrix` there; the exit code."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    environ |= {"FLOODWAY_TEST_SESSION": kind, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": str(python)}
    # The optimising compiler takes more than it gives in a session of a few minutes.
    environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
    if kind == "connect" and version.startswith("3."):
        (server,) = [jar for jar in fetch(SERVER) if jar.name == SERVER.proof]  # it holds what it depends on
        environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {server} pyspark-shell"
    # A copy beside nothing: what is imported is the wheel.
    place = folder / kind
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "matrix", place / "matrix")
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(place),
        str(place / "matrix"),
    ]
    return subprocess.run(command, cwd=place, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
