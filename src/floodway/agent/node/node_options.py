"""How one node of a network is to be run as a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from floodway.agent.wire.signing import Security
from floodway.errors import InputError, suggestion
from floodway.job.options.options import JobOptions
from floodway.network.model import Node
from floodway.spark.session.session import LOG_SETTINGS

Control = Literal["alone", "dfit", "coordinator"]
DRIVER_MEMORY = "512m"
# Several drivers share a few cores: one thread collects garbage, and the compiler stops at its cheap level, because a
# micro-batch's plan is new code every time and never pays for more.
SMALL_JAVA = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True, kw_only=True)
class NodeOptions(JobOptions):
    """A job's options and one node's process. `seconds` None runs until it is asked to stop; `urls` are all agents'.

    With `parent` the node ends when that process is no longer its parent: a supervisor that was killed leaves none
    behind. `master` None takes a local Spark with as many threads as the node has CPUs; `settings` are Spark's own,
    over those of the network file. `links` is where links to other nodes go (`kafka://host:port[/prefix]`); None leaves
    it as the folder has it, through logs below it if nobody said otherwise. What logs retain is for those of the folder
    that this node writes; links keep what their reader has not committed.
    """

    node: str
    root: Path
    control: Control = "alone"
    host: str = "127.0.0.1"
    port: int = 0
    urls: Mapping[str, str] = field(default_factory=dict)
    security: Security = field(default_factory=Security)
    seconds: float | None = None
    parent: int | None = None
    links: str | None = None


def parse_control(text: str) -> Control:
    """One of the ways to plan for several nodes, or a clear error."""
    known: tuple[Control, ...] = get_args(Control)
    for control in known:
        if text == control:
            return control
    raise InputError(f"--control {text!r} is unknown", hint=suggestion(text, known))


def parse_listen(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `HOST` (port 0 takes a free one).

    >>> parse_listen("127.0.0.1:8700"), parse_listen("[::1]:0")
    (('127.0.0.1', 8700), ('::1', 0))
    """
    host, _, port = text.rpartition(":") if text.rpartition(":")[2].isdigit() else (text, "", "0")
    if int(port) > 65535:
        raise InputError(f"--listen {text!r} has no usable port", hint="Write --listen 127.0.0.1:8700")
    return host.strip("[]") or "127.0.0.1", int(port)


def spark_master(node: Node, options: NodeOptions) -> str:
    """The Spark that runs this node."""
    return options.master or f"local[{max(1, round(node.cpu))}]"


def spark_settings(node: Node, options: NodeOptions) -> dict[str, str]:
    """Spark's settings for this node: small where it is local, then the network file's, then the caller's."""
    small = {"spark.driver.memory": DRIVER_MEMORY, "spark.driver.extraJavaOptions": SMALL_JAVA}
    local = spark_master(node, options).startswith("local")
    return {**(small if local else {}), **node.spark, **(options.settings or {})}
