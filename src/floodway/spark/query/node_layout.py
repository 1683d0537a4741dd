"""Where the nodes of a network keep their files when each is a process of its own, below one shared folder.

ROOT/nodes/NODE/                  what is one node's alone: a `RunLayout` (decision, status, ledger, checkpoints, …)
ROOT/nodes/NODE/agent.json        the process: its id, address and control
ROOT/nodes/NODE/batches/          figures of its batches
ROOT/nodes/NODE/control/          what its control plane remembers over a restart
ROOT/streams, ROOT/outputs        logs that the network file leaves out, as in `RunLayout`
ROOT/links/PRODUCER--CONSUMER     the log of a link: written by one node, read by another
ROOT/links.json                   where links go instead, if they go over Kafka
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from floodway.errors import InputError
from floodway.job.store.store import LocalStore
from floodway.json_text import load_json
from floodway.network.model import Arc, Network
from floodway.network.part import incoming, node_part, outgoing
from floodway.spark.log.kafka_links import SCHEME, link_topic
from floodway.spark.query.layout import RunLayout

_MOST_PREFIX = 100


@dataclass(frozen=True, slots=True)
class KafkaLinks:
    """Links over Kafka: the brokers, and what the names of all topics of this network's run begin with."""

    servers: str
    prefix: str

    def address(self, arc: Arc) -> str:
        """Where the tuples of one link go."""
        return f"{SCHEME}{self.servers}/{link_topic(self.prefix, arc)}"


def parse_links(text: str, network: str) -> KafkaLinks:
    """Read `kafka://host:port[,host:port][/prefix]`; a prefix that is left out is made up, and no other run has it.

    >>> parse_links("kafka://10.0.0.5:9092/orders", "net")
    KafkaLinks(servers='10.0.0.5:9092', prefix='orders')
    """
    servers, _, prefix = text.removeprefix(SCHEME).partition("/")
    good = text.startswith(SCHEME) and all(re.fullmatch(r"\S+:\d+", server) for server in servers.split(","))
    if not good or not re.fullmatch(r"[A-Za-z0-9._-]*", prefix) or len(prefix) > _MOST_PREFIX:
        raise InputError(
            f"--links {text!r} is not an address for links",
            hint="Write --links kafka://host:port, or kafka://host:port/prefix with letters, digits, ., _ and -",
        )
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", network)[: _MOST_PREFIX // 2]
    return KafkaLinks(servers, prefix or f"floodway.{plain}-{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The shared folder of a network whose nodes are processes."""

    root: Path

    @property
    def shared(self) -> RunLayout:
        """Where streams, links and outputs lie."""
        return RunLayout(self.root)

    def own(self, node: str) -> RunLayout:
        """What belongs to one node alone."""
        return RunLayout(self.root / "nodes" / node)

    def agent(self, node: str) -> Path:
        """Who runs the node now."""
        return self.own(node).root / "agent.json"

    def control(self, node: str) -> Path:
        """The control plane's journal of one node."""
        return self.own(node).root / "control"

    def is_used(self) -> bool:
        """Whether nodes have run here, and not a network in one process."""
        return (self.root / "nodes").is_dir()

    def links(self) -> KafkaLinks | None:
        """How links go, as the first node of this folder was told: over Kafka, or (None) through logs below it."""
        try:
            body = load_json((self.root / "links.json").read_text(encoding="utf-8"))
            return KafkaLinks(str(body["servers"]), str(body["prefix"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.root / 'links.json'} cannot be read: {error!r}", hint="Restore it, or use a new state folder"
            ) from None

    def choose_links(self, text: str, network: Network) -> None:
        """Let links go over Kafka from the start; whoever comes first makes up the prefix, later ones must agree.

        Checkpoints hold positions in the links, so a folder stays with the way that it began with.
        """
        wanted = parse_links(text, network.name)
        if self.links() is None and self.is_used() and any(self.root.glob("nodes/*/checkpoints")):
            raise InputError(
                f"the nodes of {self.root} have run with links through logs", hint="Use a new state folder for --links"
            )
        body = {"servers": wanted.servers, "prefix": wanted.prefix}
        LocalStore(self.root).create("links.json", f"{json.dumps(body)}\n".encode())
        found = self.links()
        made_up = not text.removeprefix(SCHEME).partition("/")[2]
        if found is None or found.servers != wanted.servers or (found.prefix != wanted.prefix and not made_up):
            raise InputError(
                f"links of {self.root} go over {found}, not over {text}", hint="Leave --links as it was, or out"
            )

    def link(self, arc: Arc) -> str:
        """The address of a link: a topic, or a log below this folder."""
        over = self.links()
        return str(self.shared.link(arc)) if over is None else over.address(arc)

    def part(self, network: Network, node: str) -> Network:
        """One node's part of the network, with the addresses of all logs that it reads and writes."""
        part = node_part(network, node)
        shared = self.shared
        links_in = {str(arc): self.link(arc) for arc in incoming(network, node)}
        links_out = {str(arc): self.link(arc) for arc in outgoing(network, node)}
        return replace(
            part,
            streams={
                name: replace(stream, log=links_in.get(name) or shared.stream(network, name))
                for name, stream in part.streams.items()
            },
            outputs={
                name: replace(output, sink=links_out.get(name) or shared.output(network, name))
                for name, output in part.outputs.items()
            },
        )
