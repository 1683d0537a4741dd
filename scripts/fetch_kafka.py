"""Fetch a real Kafka broker and Spark's Kafka connector into the project's cache, for tests and demos.

    .venv/bin/python scripts/fetch_kafka.py            # prints progress, ends with the two folders

The jars come from the public Java repository through an ordinary client: the Ivy that PySpark ships (it
knows that repository by itself), else `mvn` where there is one. Each set is fetched into a draft folder that
is renamed when it is whole, so a folder that exists is complete and a run that was cut short starts over. The
cache is `.cache` in the project, or the folder that `FLOODWAY_CACHE` names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.spark.session.java import find_java

ROOT = Path(__file__).resolve().parent.parent


class FetchError(FloodwayError):
    """The jars could not be had; the message carries what the clients said."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Artifacts (`group:name:version`) with all they depend on; `proof` is a jar that must be among them.

    The versions named here win over those that other artifacts ask for. `inside_spark`: leave out what
    PySpark has already, which would be loaded beside it in another version.
    """

    name: str
    artifacts: tuple[str, ...]
    proof: str
    inside_spark: bool = False


# The logging binding is not among the broker's dependencies; without it a broker that fails says nothing.
BROKER = JarSet(
    name="kafka-broker-4.1.1",
    artifacts=("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"),
    proof="kafka_2.13-4.1.1.jar",
)
# Not PySpark's own version: when this was written the repository answered "not found" for the connector's
# 4.3.0 and for every release of its token provider after 4.0.0. This pair is the newest release of each that
# could be had; tests/kafka shows that it reads and writes, batch and streaming, under PySpark 4.3.0. Replace
# it by the one artifact in PySpark's version where that is there.
CONNECTOR = JarSet(
    name="spark-kafka-4.2.0",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ),
    proof="spark-sql-kafka-0-10_2.13-4.2.0.jar",
    inside_spark=True,
)


def cache() -> Path:
    """Where fetched jars are kept."""
    return Path(os.environ.get("FLOODWAY_CACHE") or ROOT / ".cache")


def cached(jars: JarSet) -> list[Path] | None:
    """The jars of a set that was fetched before, None if it was not."""
    folder = cache() / jars.name
    return sorted(folder.glob("*.jar")) if folder.is_dir() else None


def fetch(jars: JarSet, *, say: Callable[[str], None] = print) -> list[Path]:
    """The jars of a set, fetched if they are not in the cache. Raises `FetchError` if no client gets them."""
    found = cached(jars)
    if found is not None:
        return found
    cache().mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    for client, get in (("ivy", _by_ivy), ("mvn", _by_maven)):
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache()) as draft:
            say(f"fetching {jars.name} with {client} ...")
            folder = Path(draft) / "jars"
            folder.mkdir()
            problem = get(jars, folder, Path(draft), say)
            if problem is None and not (folder / jars.proof).is_file():
                problem = f"{jars.proof} did not come"
            if problem is None:
                if jars.inside_spark:
                    _leave_out_sparks_own(folder)
                count = len(list(folder.glob("*.jar")))
                _publish(folder, cache() / jars.name)
                say(f"fetched {jars.name}: {count} jars")
                break
            problems.append(f"{client}: {problem}")
            say(f"{jars.name} could not be fetched with {client}: {problem}")
    found = cached(jars)
    if found is None:
        raise FetchError(
            f"{jars.name} could not be fetched ({'; '.join(problems)})",
            hint="Check the network, and Java's proxy and trust store (JAVA_TOOL_OPTIONS); then try again",
        )
    return found


def _leave_out_sparks_own(folder: Path) -> None:
    own = {_artifact(jar) for jar in _spark_jars().glob("*.jar")}
    for jar in folder.glob("*.jar"):
        if _artifact(jar) in own:
            jar.unlink()


def _artifact(jar: Path) -> str:
    """The name without its version: `commons-pool2-2.12.1.jar` is `commons-pool2`."""
    return re.sub(r"-\d[^-]*(-[\w.]+)?\.jar$", "", jar.name)


def _spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def _publish(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was quicker with the same jars
            raise


def _by_ivy(jars: JarSet, folder: Path, draft: Path, say: Callable[[str], None]) -> str | None:
    ivy = next(_spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        return "PySpark ships no Ivy"
    wanted = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->default"/>'.format(*artifact.split(":"))
        for artifact in jars.artifacts
    ) + "".join('<override org="{}" module="{}" rev="{}"/>'.format(*artifact.split(":")) for artifact in jars.artifacts)
    order = draft / "ivy.xml"
    order.write_text(
        '<ivy-module version="2.0"><info organisation="floodway" module="cache"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    command = [str(find_java() / "bin" / "java"), "-jar", str(ivy), "-ivy", str(order), "-confs", "default"]
    command += ["-cache", str(draft / "ivy"), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    return _run(command, say, progress="[SUCCESSFUL ]")


def _by_maven(jars: JarSet, folder: Path, draft: Path, say: Callable[[str], None]) -> str | None:
    maven = shutil.which("mvn")
    if maven is None:
        return "no mvn on the PATH"
    wanted = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in jars.artifacts
    )
    order = draft / "pom.xml"
    order.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>floodway</groupId><artifactId>cache</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )
    command = [maven, "--batch-mode", "-f", str(order), f"-Dmaven.repo.local={draft / 'm2'}"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    return _run(command, say, progress="Copying")


def _run(command: list[str], say: Callable[[str], None], *, progress: str) -> str | None:
    """Run a client, say a word every ten jars; None if it went well, else its last lines."""
    with tempfile.TemporaryFile("w+") as errors:
        lines: list[str] = []
        done = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.strip())
                if progress in line:
                    done += 1
                    if done % 10 == 0:
                        say(f"  {done} jars")
        if process.returncode == 0 and not any("UNRESOLVED" in line for line in lines):
            return None
        errors.seek(0)
        # The first words about a failure say what is missing; the last ones only how to ask for more.
        said = [line for line in (*lines, *errors.read().splitlines()) if re.search(r"not found|ERROR|rror:", line)]
        tail = said[:2] or [line for line in lines if line][-2:]
        return " / ".join(tail) or f"exit code {process.returncode}"


def main() -> int:
    """Fetch both sets."""
    try:
        for jars in (BROKER, CONNECTOR):
            fetch(jars, say=lambda text: print(text, flush=True))
            print(cache() / jars.name)
    except FloodwayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
