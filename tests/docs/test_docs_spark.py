"""Shell blocks that need Spark, done page by page in their order: the same commands, for seconds instead of minutes.

`docs/start-kafka.md` and the Python blocks that read Kafka are done by `tests/kafka/test_kafka_start.py`.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.made_state import MadeJob
from tests.docs.pages import ROOT, blocks_of, commands, environment, workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SHORT = {
    "audit": "",
    "dashboard": "--seconds 0.5",
    "demo": "--seconds 15",
    "feed": "--seconds 90",
    "payments": "",
    "participant": "--seconds 90",
    "report": "",
    "run": "--seconds 30",
    "set": "",
    "top": "--once",
    "up": "--seconds 40",
}
"""How each command comes to its end; what has an end of its own is left as it is."""
ALONE = ("feed", "participant")
"""What runs in a terminal of its own, beside the lines that follow it."""
LEFT_OUT = ("bench", "node")
"""`bench` has tests of its own; `node` needs machines of its own, and `up` starts the same processes."""
PLACES = {"127.0.0.1:8800": "127.0.0.1:0", "0.0.0.0:8800": "0.0.0.0:0"}
MOST_SECONDS = 300.0
NET = """
version: 1
name: net
streams: {s1: {max_rate: 50}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators: {a1: {node: A, from: s1, cost: 0.001}, b1: {node: B, from: a1, cost: 0.001}}
outputs: {q1: {from: b1}}
"""


def shortened(line: str) -> list[str]:
    """The words of a command that ends within seconds."""
    for long, short in PLACES.items():
        line = line.replace(long, short)
    words = shlex.split(line)
    option, _, value = SHORT[words[1]].partition(" ")
    if not option or (option == "--once" and "--json" in words):
        return words
    if option in words and value:
        words[words.index(option) + 1] = value
        return words
    return words if option in words else [*words, *filter(None, (option, value))]


def test_commands_are_shortened() -> None:
    assert shortened("floodway run a.yaml --seconds 120 --page 127.0.0.1:8800") == [
        *("floodway", "run", "a.yaml", "--seconds", "30", "--page", "127.0.0.1:0")
    ]
    assert shortened("floodway top x")[-1] == shortened("floodway top x --once")[-1] == "--once"
    assert shortened("floodway up n.yaml --links kafka://localhost:9092")[-2:] == ["--seconds", "40"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a network of two nodes, a key, and a token."""
    monkeypatch.setenv("FLOODWAY_STATE", str(tmp_path / "floodway"))
    monkeypatch.setenv("BROWSER", "true")  # takes the address, and opens nothing
    folder = workplace(tmp_path)
    (folder / "net.yaml").write_text(NET, encoding="utf-8")
    for secret in ("key", "token"):
        (folder / secret).write_text(secrets.token_hex(32), encoding="utf-8")
        (folder / secret).chmod(0o600)
    return folder


def made(folder: Path, name: str) -> None:
    job = MadeJob(folder, int(time.time()) - 3, name=name)
    job.start(network=False)
    job.run(3)


def do(lines: list[str], folder: Path) -> None:
    """Run the commands one after the other; those with a terminal of their own beside each other."""
    beside: list[tuple[str, subprocess.Popen[str]]] = []
    try:
        for line in lines:
            words = shortened(line)
            if words[1] not in ALONE:  # looks at what the ones before it have done
                while beside:
                    ended(*beside.pop())
            started = subprocess.Popen(
                words, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            beside.append((line, started))
        while beside:
            ended(*beside.pop())
    finally:
        for _, process in beside:
            process.terminate()  # does nothing to one that has ended


def ended(line: str, process: subprocess.Popen[str]) -> None:
    _, error = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, f"{line}: {error}"


def spark_lines(page: str) -> list[list[str]]:
    """The commands of a page's blocks that need Spark, a list a block."""
    found = [commands(block) for block in blocks_of(ROOT / page) if (block.language, block.note) == ("bash", "spark")]
    assert found
    return [[line for line in lines if line.split()[1] not in LEFT_OUT] for lines in found]


def test_the_readme(place: Path) -> None:
    made(place / "floodway" / "clicks", "clicks")
    for lines in spark_lines("README.md"):
        do(lines, place)
    report = json.loads((place / "runs" / "shop" / "report.json").read_text(encoding="utf-8"))
    assert report["reconciled"] and report["offered"]["clicks"] > 0


def test_three_participants_of_the_page_on_federations(place: Path) -> None:
    running, ledgers = spark_lines("docs/federation.md")[:2]
    do(running, place)
    do(ledgers, place)
    for name in ("A", "B", "C"):
        status = json.loads((place / "state" / name / "status.json").read_text(encoding="utf-8"))
        assert status["name"] == name
        assert {one[end] for one in status["contracts"] for end in ("from", "to")} == {"A", "B", "C"}
    kept = place / "shared"
    assert {path.name for path in (kept / "logs").iterdir()} == {"utah", "mit"}
    # Every fragment of the file ran somewhere: each has left a checkpoint with a batch that was committed.
    fragments = set(re.findall(r"^  ([\w-]+): \{owner", (ROOT / "examples/federation/three.yaml").read_text(), re.M))
    ran = {path.parts[len(kept.parts) + 1] for path in kept.rglob("commits/0")}
    assert ran == fragments


def test_the_page_on_buffers(place: Path) -> None:
    for lines in spark_lines("docs/buffer.md"):
        do(lines, place)


def test_the_page_on_operating(place: Path) -> None:
    do(["floodway run examples/networks/shop.yaml --state runs/shop"], place)
    made(place / "floodway" / "clicks", "clicks")
    for node in ("A", "B"):
        made(place / "runs" / "net" / "nodes" / node, f"net: {node}")
    for lines in spark_lines("docs/operating.md"):
        do(lines, place)
    assert '"observe"' in (place / "runs" / "net" / "nodes" / "A" / "mode.json").read_text(encoding="utf-8")
    assert '"off"' in (place / "runs" / "net" / "nodes" / "B" / "mode.json").read_text(encoding="utf-8")


def test_the_page_on_watching(place: Path) -> None:
    do(["floodway run examples/networks/shop.yaml --state runs/shop"], place)
    for lines in spark_lines("docs/watching.md"):
        do(lines, place)
    assert (place / "report.html").is_file() and (place / "demo-out" / "report.html").is_file()


def test_python_blocks(spark: SparkSession, place: Path) -> None:
    rows = spark.readStream.format("rate").load()
    events = rows.selectExpr(
        "timestamp AS ts", "value AS price", "'click' AS kind", "'t' AS tenant", "value AS session", "'p' AS page"
    )
    names: dict[str, Any] = {"events": events}
    for page in ("docs/shed.md", "docs/federation.md"):
        for block in blocks_of(ROOT / page):
            if (block.language, block.note) == ("python", "spark"):
                exec(compile(block.body, str(block), "exec"), names)
    for name in ("orders", "sessions", "exact", "alerts", "fresh", "fair", "seen", "priced"):
        writer = names[name].writeStream.format("noop").option("checkpointLocation", str(place / "checkpoints" / name))
        assert writer.trigger(availableNow=True).start().awaitTermination(MOST_SECONDS)
    assert names["CATALOGUE"].get("hits").inputs == ("clicks",)


def test_the_page_on_many_nodes(place: Path) -> None:
    first = spark_lines("docs/many-nodes.md")[0]
    do(first, place)
    assert len(list((place / "runs" / "net" / "nodes").iterdir())) == 2
