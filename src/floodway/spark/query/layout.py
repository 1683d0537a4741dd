"""Where a run keeps its files: one folder, one place for each thing.

ROOT/decision.json            what the sources drop now (job/decision.py)
ROOT/mode.json                what `floodway set` asks for
ROOT/status.json              the latest figures, for `floodway top`
ROOT/ledger/                  offered, kept, dropped (job/ledger/ledger.py)
ROOT/plans/                   the plans that batches were cut under (agent/loop/plan_book.py)
ROOT/checkpoints/NODE.FRAGMENT  Spark's, with notes of our own (spark/query/journal.py)
ROOT/streams/STREAM           logs of streams that name none
ROOT/links/PRODUCER--CONSUMER logs of cut arcs
ROOT/outputs/OUTPUT           logs of outputs that name no sink
ROOT/dead-letters/SOURCE      malformed records, with the reason
ROOT/dropped/SOURCE           the capped side output of dropped tuples
ROOT/windows/QUERY.json       which windows a query keeps, for the queries below it (spark/query/fragment_windows.py)
ROOT/lost/, ROOT/malformed/   notes of tasks: tuples deleted before they were read, bad records (spark/source/notes.py)

Where each node is a process of its own, they share one folder (`NodeLayout`):

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
from floodway.spark.query.fragments import Fragment, SourceSpec, link_name
from floodway.spark.source.notes import LOST

_MOST_PREFIX = 100


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The folder of one run of one network."""

    root: Path

    @property
    def decision(self) -> Path:
        """The decision file all sources of the run read."""
        return self.root / "decision.json"

    @property
    def status(self) -> Path:
        """The latest figures."""
        return self.root / "status.json"

    @property
    def store(self) -> LocalStore:
        """The folder as a store: of the ledger, the mode, the status."""
        return LocalStore(self.root)

    @property
    def notes(self) -> Path:
        """Where tasks leave notes for the driver."""
        return self.root

    @property
    def lost(self) -> Path:
        """Notes of tuples that were deleted before they were read."""
        return self.notes / LOST

    @property
    def windows(self) -> Path:
        """Which windows the queries keep."""
        return self.root / "windows"

    def checkpoint(self, fragment: Fragment) -> Path:
        """Spark's checkpoint of one fragment."""
        return self.root / "checkpoints" / fragment.query

    def stream(self, network: Network, name: str) -> str:
        """The log of a stream: the one its file names, or one of the run's own."""
        return network.streams[name].log or str(self.root / "streams" / name)

    def link(self, arc: Arc) -> Path:
        """The log that carries a cut arc."""
        return self.root / "links" / link_name(arc)

    def output(self, network: Network, name: str) -> str:
        """The sink of an output: the one its file names, or a log of the run's own."""
        return network.outputs[name].sink or str(self.root / "outputs" / name)

    def owns(self, network: Network, output: str) -> bool:
        """Whether nobody else writes to an output: one that the file names may have other writers."""
        return network.outputs[output].sink is None

    def source(self, network: Network, fragment: Fragment, spec: SourceSpec) -> str:
        """The log that a fragment's source reads."""
        if spec.producer in network.streams:
            return self.stream(network, spec.producer)
        consumer = next(c for c in fragment.operators if str(Arc(spec.producer, c)) == spec.name)
        return str(self.link(Arc(spec.producer, consumer)))

    def dead_letters(self, spec: SourceSpec) -> Path:
        """Malformed records of one source."""
        return self.root / "dead-letters" / spec.name.replace("->", "--")

    def dropped(self, spec: SourceSpec) -> Path:
        """The side output of one source's dropped tuples."""
        return self.root / "dropped" / spec.name.replace("->", "--")


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
