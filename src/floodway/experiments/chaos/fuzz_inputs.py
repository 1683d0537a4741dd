"""Everything that reads what others wrote, each with good examples and with what it must do about bad ones.

A reader takes its bytes or refuses them with a `FloodwayError`; a refused input has changed nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.dfit.own import UNMEASURED
from floodway.agent.planes.plane import make_control_plane
from floodway.agent.wire.messages import COORDINATOR, AnyMessage, Mode, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.contracts.federation_file import parse_federation
from floodway.errors import FloodwayError
from floodway.experiments.chaos.fuzz_files import file_readers
from floodway.experiments.chaos.fuzz_partners import EffectError, Reader, partner_readers
from floodway.experiments.chaos.plane_agents import NETWORK
from floodway.job.decision import JobDecision, StreamDecision, as_dict, read_decision
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.store.store import LocalStore
from floodway.json_text import load_json
from floodway.network.file import parse_network
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.kafka_links import Mark
from floodway.spark.log.segments import open_segment, parse_name
from floodway.spark.shed.checkpoints import backlog, positions, waiting
from floodway.spark.shed.control_file import FILE, ControlTable
from floodway.spark.shed.control_table import Entry, Table
from floodway.spark.shed.keys.quotas import Quotas
from floodway.spark.source.decode import ERROR, decode_json, decode_rows, encode_rows, json_schema
from floodway.spark.source.offsets import BatchOffset, parse_offset

FEDERATION = """
version: 1
participants: {A: {url: "http://127.0.0.1:1", cpu: 1.0}, B: {url: "http://127.0.0.1:2"}}
contracts:
  A<->B: {price: 4.0, kinds: [sum], service: {max_delay: 60s, penalty: 0.5}}
fragments:
  f0: {owner: A, run: sum, logs: {input: logs/f0}, parameters: {cpu: 0.6}}
"""
_NOW = 1_000_000.0


def readers(folder: Path) -> Mapping[str, Reader]:
    """All of them; files that some need are made in the folder."""
    return {
        **_messages(folder),
        **partner_readers(parse_federation(FEDERATION), folder),
        **file_readers(folder),
        "offsets": Reader(_offsets(), lambda data: _kept(parse_offset(_text(data))), 100),
        "progress": Reader(_sources(), _progress, 20),
        "marks": Reader([b"A.main@6f0c2c5e1b2a:a->b:7:0:2:10"], _mark, 10),
        "decisions": _decisions(folder),
        "control-files": _control(folder),
        "ledgers": _ledgers(folder),
        "records": Reader([json.dumps(row).encode() for row in _ROWS], _record, 12),
        "link-records": Reader(
            encode_rows(_TABLE), lambda data: _kept(decode_rows([data], _TABLE.schema, where="topic t")), 20
        ),
        "segments": _segments(folder),
        "networks": Reader([NETWORK.encode()], lambda data: _kept(parse_network(_text(data))), 1),
        "federations": Reader([FEDERATION.encode()], lambda data: _kept(parse_federation(_text(data))), 1),
    }


_ROWS = (
    {"id": 1, "name": "x", "at": "2026-01-01T00:00:00", "price": 1.5},
    {"id": -7, "name": "\u00e9", "at": None, "price": None},
)
_SCHEMA = json_schema("id bigint, name string, at timestamp, price double")
_TABLE = pa.table({"id": [1, 2, None], "name": ["x", None, "long" * 9], "raw": [b"", b"\0", None]})


def _kept(found: object) -> None:
    """What was read; only that it could be matters."""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _messages(folder: Path) -> dict[str, Reader]:
    """Every message of both control planes, decoded and heard by the machine that it is for."""
    network = parse_network(NETWORK)
    child = make_control_plane("dfit", network, "B", Security(), {}, folder / "B")
    parent = make_control_plane("dfit", network, "A", Security(), {}, folder / "A")
    child.observe_results({"q1": 9.0}, 1.0, 2, _NOW)
    pushed = child.agent.tick(_NOW)
    node, coordinator = Agent(CoordinatedNode(network, "A")), Agent(Coordinator(network))
    node.observe({"s1": 1.0, "s2": 1.0}, UNMEASURED, _NOW)
    reports = node.tick(_NOW)
    orders = _orders(coordinator, reports)
    above, tables, waiting, planned = parent.agent.machine, parent.agent.state, node.state, coordinator.state
    mode = Mode.model_validate({"network": network.name, "sender": "B", "receiver": "A", "mode": "off"})
    mine = [order for order in orders if order.receiver == "A"]
    return {
        "tables": _heard(network.name, lambda: Agent(above, tables), "A", [*pushed, mode], 80),
        "orders": _heard(network.name, lambda: Agent(node.machine, waiting), "A", mine, 60),
        "statistics": _heard(network.name, lambda: Agent(coordinator.machine, planned), COORDINATOR, reports, 40),
    }


def _orders(coordinator: Agent[Any], reports: Sequence[AnyMessage]) -> list[AnyMessage]:
    for report in reports:
        coordinator.hear(report, _NOW)
    return [*coordinator.tick(_NOW), *coordinator.tick(_NOW + 5.0)]


def _heard(
    network: str,
    begun: Callable[[], Agent[Any]],
    receiver: str,
    honest: Sequence[AnyMessage],
    weight: int,
) -> Reader:
    def read(data: bytes) -> None:
        message = decode(data, network=network, receiver=receiver)
        machine = begun()  # anew each time: one that has heard a later version takes no earlier one
        before = machine.state
        try:
            machine.hear(message, _NOW)
        except RefusedError:
            if machine.state is not before:
                raise EffectError("a refused message has changed the state") from None
            raise

    return Reader([encode(message) for message in honest], read, weight)


def _offsets() -> list[bytes]:
    plain = BatchOffset("s", {0: 0, 1: 5}, {0: 1000, 1: 9}, keep_ppm=250_000, mode="enforce")
    lost = BatchOffset("s", {0: 0}, {0: 1000}, lost={0: 20}, plan="abc", arcs={"a->b": 5})
    return [json.dumps(one.to_json()).encode() for one in (plain, lost)]


def _sources() -> list[bytes]:
    """As Spark tells them after a batch: of Kafka, of a log, and of a source that others have written."""
    kafka = {"description": "KafkaV2[Subscribe[clicks]]", "startOffset": {"clicks": {"0": 3}}, "numInputRows": 6}
    kafka |= {"endOffset": {"clicks": {"0": 9}}, "latestOffset": {"clicks": {"0": 11}}}
    own = {"description": "floodway", "startOffset": None, "latestOffset": {"pos": {"0": 12}}, "numInputRows": 5}
    own["endOffset"] = BatchOffset("s", {0: 0, 1: 5}, {0: 5, 1: 9}).to_json()
    shard = {"shard-0": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "4957"}}
    other = {"description": "Kinesis", "startOffset": shard, "endOffset": shard, "latestOffset": shard}
    return [json.dumps([one]).encode() for one in (kafka, own, {**other, "numInputRows": 2})]


def _progress(data: bytes) -> None:
    """Spark writes the progress; what stands in the offsets is the source's own, and may be anything."""
    try:
        sources = load_json(data)
        described = all(isinstance(one["description"], str) for one in sources)
        complete = all({"startOffset", "endOffset"} <= one.keys() for one in sources)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise FloodwayError("no sources of a progress") from None
    if not described or not complete or not isinstance(sources, list):
        raise FloodwayError("no sources of a progress")
    ranges, why = positions(sources)
    if any(one.end < one.start for one in ranges):
        raise EffectError("a batch that went back was believed")
    # A source of another kind has no positions, and it is said why.
    if backlog(sources) is None and not waiting(sources) and not ranges and not why:
        raise FloodwayError("offsets of an unknown form")


def _mark(data: bytes) -> None:
    if Mark.parse(data) is None:
        raise FloodwayError("no mark of a link")


def _decisions(folder: Path) -> Reader:
    path = folder / "decision.json"
    one = JobDecision("p", "enforce", 7, {"s": StreamDecision(250_000)}, {"a->b": 5}, issued_us=9)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_decision(path)

    return Reader([json.dumps(as_dict(one)).encode()], read, 5)


def _control(folder: Path) -> Reader:
    store = LocalStore(folder / "shed")
    table = ControlTable(store, lambda: 1000, Entry(0, 0), {})
    quotas = Quotas((7, 9), (0.5, 0.25), (0.8, 0.9), (1, 2), sizes=(3.0,))
    full = Entry(1, 0, 5, 3, "enforce", 0.5, 9, 300.0, 20.0, 70, 5000, quotas, 4, {"clicks": (5, 6)})
    table.put(full)
    example = store.read(FILE) or b""

    def read(data: bytes) -> None:
        """Whatever is taken, the operator can turn it off."""
        (folder / "shed" / FILE).write_bytes(data)
        found = ControlTable(store, lambda: 1000, Entry(0, 0), {})
        found.put(replace(found.latest, mode="off"))
        written = Table.decode(store.read(FILE) or b"")
        if written is None or written.latest.mode != "off":
            raise EffectError("a kill switch is not in force")

    return Reader([example], read, 5)


def _ledgers(folder: Path) -> Reader:
    """Whole ledger files: what is no line is counted, and the sums are those of the lines that are some."""
    store = LocalStore(folder / "ledger")
    ledger = Ledger(store)
    for batch in range(4):
        ledger.append([LedgerLine("q", batch, "s", "shedder", 9, 4, 5, plan="p", time_us=batch)])
    (name,) = [one for one in store.names("ledger") if one.endswith(".jsonl")]
    good = store.read(name) or b""

    def read(data: bytes) -> None:
        (folder / "ledger" / name).write_bytes(data)
        found = Ledger(store)
        fold, lines = found.fold(), found.read()
        if not lines and data.strip() and not fold.differences() and not found.torn_now():
            raise EffectError("a ledger without a line is said to be sound")
        if differences := [*fold.differences(), *found.torn_now()]:
            raise FloodwayError(differences[0])

    return Reader([good], read, 3)


def _record(data: bytes) -> None:
    row = decode_json([data], _SCHEMA).to_pylist()[0]
    if row[ERROR] is not None:
        raise FloodwayError(row[ERROR])


def _segments(folder: Path) -> Reader:
    root = folder / "log"
    meta = create_log(root, "id bigint, name string")
    with LogWriter(root) as writer:
        writer.append(pa.table({"id": [1, 2], "name": ["a", None]}), tag="q:s:0:0")
    (path,) = (root / "p0").glob("*.arrow")
    name, good = parse_name(path.name), path.read_bytes()
    assert name is not None

    def read(data: bytes) -> None:
        path.write_bytes(data)
        segment = open_segment(path, name, meta.stored_schema)
        for batch in segment.slices(0, 2):
            batch.take(pa.array([0, batch.num_rows - 1]))
        _kept(segment.tagged)

    return Reader([good], read, 3)
