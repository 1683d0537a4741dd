"""The status of a job: one form for all four kinds, written by the job, read by everything that watches it.

A job writes it to `status.json` in its state, and serves it under `/v1/status` where it has an HTTP API. `latency` and
`rates` are over the last batches (`figures.py`), `totals` over the whole life of the job. Times are seconds of the
epoch, rates tuples per second, loads CPU-seconds per second.

    loss = 1 − rates.kept / rates.offered       what is dropped now
    would_drop = 1 − keep                       what the decision in force drops of what arrives, once it is enforced

Parts that only some kinds have are None or empty in the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.job.decision import Mode
from floodway.job.ledger.fold import Counts
from floodway.job.status.batches import Latency
from floodway.job.status.parts import AccuracyPart, BehindPart, ParticipantPart
from floodway.job.store.store import Store

STATUS = "status.json"
Kind = Literal["shed", "run", "node", "participant"]
Phase = Literal["starting", "waiting", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Tuples per second at the inputs; None before the first batch."""

    offered: float | None = None
    kept: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Tuples at the inputs since the beginning; `dropped` by reason, also inside the network."""

    offered: int = 0
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    recovered: int = 0

    @property
    def recovered_words(self) -> str:
        """What backfills have processed, for people.

        >>> Totals(5_000, 2_000, {"shedder": 2_500, "stale": 500}, recovered=1_200).recovered_words
        '1,200 of 3,000 dropped tuples'
        """
        return f"{self.recovered:,} of {sum(self.dropped.values()):,} dropped tuples"


@dataclass(frozen=True, slots=True)
class Place:
    """One place where tuples can be dropped: a stream, a link, or a branch inside the network.

    `keep` is the share planned to be kept, `arriving` the rate that it was planned for, `waiting` what no batch has
    taken; None where the job does not know. `rates` are over the last batches, the counts since the beginning.
    """

    keep: float = 1.0
    arriving: float | None = None
    waiting: int | None = None
    rates: Rates = Rates()
    offered: int = 0
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePart:
    """One node: the load planned for it and its CPU, None where it is not known; its mode; when it was last heard."""

    load: float | None = None
    cpu: float | None = None
    mode: Mode | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class PlanPart:
    """The plan in force: its id, who made it and for what, whether it has to drop, the share of capacity it uses."""

    id: str = ""
    planner: str = ""
    objective: str = ""
    overloaded: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """How many lines the ledger has, and every way in which it does not add up."""

    lines: int = 0
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlPart:
    """The control plane of a node: which, who is silent, and its own figures, for people."""

    kind: str = ""
    silent: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessPart:
    """A process with an HTTP API: where it stands, what it waits for, what it refused, by reason."""

    pid: int
    phase: Phase = "running"
    url: str = ""
    waiting_for: tuple[str, ...] = ()
    warm: bool = False
    idle: bool = False
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A heavy key of `share_by`: its share of the input, and the part of its tuples that the decision keeps."""

    key: str
    share: float
    keep: float


@dataclass(frozen=True, slots=True)
class ShedPart:
    """What a shed needs to resume after a restart: the controller's state, and the latest event time seen."""

    query: str
    batch: int
    batch_seconds: float
    controller: Mapping[str, Any] = field(default_factory=dict)
    seen_us: int | None = None
    late_writes: int = 0
    stale: int = 0
    """Tuples of the last batch that were older than `max_age`."""
    behind: int = 0
    """Tuples of the last batch before the position that `skip_when_lag` skips to."""
    first: int = 0
    """Tuples of the last batch that are the first of their keys, and kept for it."""
    over: int = 0
    """Tuples of the last batch that the decision drops because their keys are over their shares."""


@dataclass(frozen=True, slots=True)
class Status:
    """A job at one moment. `mode` is `mixed` where the nodes of a network differ.

    `decision_seen` says whether the last batch was cut by a decision of this job; None before the first batch.
    `decision_until`: batches that begin then or later keep everything, unless somebody renews the decision before.
    `warnings` are sentences on what the job cannot account for or carry out.
    `capacity_needed` is how many times the present capacity would keep everything at the target; None if not known.
    `delivered` has tuples by sink. `reason` is a sentence; `reasons` has one for each node of a network.
    """

    name: str
    kind: Kind
    mode: Mode | Literal["mixed"]
    time: float
    latency: Latency = field(default_factory=Latency)
    rates: Rates = Rates()
    keep: float = 1.0
    totals: Totals = Totals()
    decision_seen: bool | None = None
    decision_until: float | None = None
    reason: str = ""
    errors: int = 0
    warnings: tuple[str, ...] = ()
    unreachable: bool = False
    floor_seconds: float | None = None
    capacity_needed: float | None = None
    executors_more: int | None = None
    """On a cluster: how many would bring that capacity."""
    executor_efficiency: float | None = None
    """What the next of them adds of what the present ones do on the mean, as measured; None: 0.9 is assumed."""
    accuracy: AccuracyPart | None = None
    behind: BehindPart | None = None
    """Of a job that drops nothing."""
    outputs: Mapping[str, Latency] = field(default_factory=dict)
    """Latencies by output, where outputs have targets of their own."""
    keys: tuple[KeyPart, ...] = ()
    """The keys that send most, where tuples have shares by key."""
    would_drop_tuples: Mapping[str, int] = field(default_factory=dict)
    """In mode observe: tuples of the last batch that enforcing would drop for their age, number or key, by reason."""
    batch_count: int = 0
    places: Mapping[str, Place] = field(default_factory=dict)
    delivered: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, NodePart] = field(default_factory=dict)
    plan: PlanPart | None = None
    ledger: LedgerPart | None = None
    control: ControlPart | None = None
    process: ProcessPart | None = None
    shed: ShedPart | None = None
    participant: ParticipantPart | None = None
    network: str = ""
    node: str = ""
    """Of a run and a node: which network it runs, and which node of it."""
    version: Literal[2] = 2

    @property
    def loss(self) -> float | None:
        """The share of what arrives that is dropped at the inputs; None before the first batch."""
        offered, kept = self.rates.offered, self.rates.kept
        return 1.0 - kept / offered if offered and kept is not None else None

    @property
    def would_drop(self) -> float:
        """The share of what arrives that the decision in force drops, once it is enforced."""
        return 1.0 - self.keep

    @property
    def inputs(self) -> list[str]:
        """The places at which tuples come into the job: streams, and for one node also the links that it reads."""
        among = self.kind == "node"
        return [at for at, one in self.places.items() if "->" not in at or (among and one.arriving is not None)]

    def counts(self) -> Counts:
        """The counts of all places, as the ledger's fold has them."""
        found = Counts()
        for at, place in self.places.items():
            found.offered[at], found.kept[at] = place.offered, place.kept
            for reason, count in place.dropped.items():
                found.dropped[at, reason] = count
        found.delivered.update(self.delivered)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway top`."""
        return {**_FORM.dump_python(self, mode="json"), "loss": self.loss, "would_drop": self.would_drop}

    def encode(self) -> bytes:
        """As it is stored and served."""
        return _FORM.dump_json(self)


_FORM = TypeAdapter(Status)


def decode_status(stored: object, place: str) -> Status:
    """A status from bytes as stored, or from JSON as served; InputError for anything else, or for another version."""
    try:
        return _FORM.validate_json(stored) if isinstance(stored, bytes) else _FORM.validate_python(stored)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "it"
        raise InputError(
            f"{place} holds no status of this version of Floodway ({key}: {first['msg']})",
            hint="Use the version that the job runs with, or start the job again with this one",
        ) from None


def read_status(store: Store) -> Status | None:
    """The status of the job at this place; None if there is none yet, InputError for one of another version."""
    raw = store.read(STATUS)
    return None if raw is None else decode_status(raw, f"{store.uri}/{STATUS}")


def write_status(store: Store, status: Status) -> None:
    """Replace the status. Event times that a shed has seen must outlast a crash of the machine; the rest is measured
    again, and the accounts are in the ledger.
    """
    durable = status.shed is not None and status.shed.seen_us is not None
    store.write(STATUS, status.encode() + b"\n", durable=durable)


def at_inputs(places: Mapping[str, Place], inputs: Iterable[str]) -> tuple[Rates, float, Totals]:
    """Rates, keep and totals of a job from its places: offered and kept at the inputs, dropped anywhere.

        keep = Σ rate · keep / Σ rate      over the inputs, by the rates planned for

    >>> at_inputs({"a": Place(0.5, arriving=300.0), "b": Place(arriving=100.0)}, ["a", "b"])[1]
    0.625
    """
    found = [places[at] for at in inputs if at in places]
    dropped: Counter[str] = Counter()
    for place in places.values():
        dropped.update(place.dropped)
    totals = Totals(sum(one.offered for one in found), sum(one.kept for one in found), dict(dropped))
    weights = [one.rates.offered or 0.0 if one.arriving is None else one.arriving for one in found]
    planned = sum(weight * one.keep for weight, one in zip(weights, found, strict=True))
    keep = planned / sum(weights) if sum(weights) > 0 else min((one.keep for one in found), default=1.0)
    return _sum_rates(one.rates for one in found), keep, totals


def merge_nodes(statuses: Mapping[str, Status]) -> Status | None:
    """The nodes of one network, by their names, as one job; None if there are none.

    It is as old as the node that was heard longest ago, and as late as its slowest node. What one node delivers to
    another is no input of the network.
    """
    if not statuses:
        return None
    every = list(statuses.values())
    slowest = max(every, key=lambda one: -1.0 if one.latency.mean is None else one.latency.mean)
    places: dict[str, Place] = {}
    for status in every:
        for at, place in status.places.items():
            places[at] = _join(places[at], place) if at in places else place
    rates, keep, totals = at_inputs(places, replace(slowest, kind="run", places=places).inputs)
    modes = {one.mode for one in every if one.places} or {slowest.mode}
    seen = [one.decision_seen for one in every if one.decision_seen is not None]
    ledgers = [one.ledger for one in every if one.ledger is not None]
    delivered: Counter[str] = Counter()
    for status in every:
        delivered.update(status.delivered)
    return replace(
        slowest,
        name=slowest.network or slowest.name,
        kind="run",
        mode=modes.pop() if len(modes) == 1 else "mixed",
        time=min(one.time for one in every),
        rates=rates,
        keep=keep,
        totals=replace(totals, recovered=sum(one.totals.recovered for one in every)),
        decision_seen=all(seen) if seen else None,
        errors=sum(one.errors for one in every),
        warnings=tuple(f"{name}: {text}" for name, one in statuses.items() for text in one.warnings),
        unreachable=any(one.unreachable for one in every),
        floor_seconds=max((one.floor_seconds for one in every if one.floor_seconds is not None), default=None),
        capacity_needed=max((one.capacity_needed for one in every if one.capacity_needed is not None), default=None),
        outputs={name: latency for one in every for name, latency in one.outputs.items()},
        keys=tuple(key for one in every for key in one.keys),
        would_drop_tuples=dict(sum((Counter(one.would_drop_tuples) for one in every), Counter())),
        accuracy=next((one.accuracy for one in every if one.accuracy is not None), None),
        behind=_join_behind([one.behind for one in every if one.behind is not None]),
        batch_count=sum(one.batch_count for one in every),
        places=places,
        delivered=dict(delivered),
        reasons={name: one.reason for name, one in statuses.items() if one.reason},
        nodes={name: _node_part(name, one) for name, one in statuses.items()},
        plan=next((one.plan for one in every if one.plan is not None), None),
        ledger=_join_ledgers(ledgers) if ledgers else None,
        control=None,
        process=None,
        node="",
    )


def _join(first: Place, second: Place) -> Place:
    """One place that two nodes count, such as a stream that both read."""
    return replace(
        first,
        rates=_sum_rates([first.rates, second.rates]),
        waiting=max((one.waiting for one in (first, second) if one.waiting is not None), default=None),
        offered=first.offered + second.offered,
        kept=first.kept + second.kept,
        dropped=dict(Counter(first.dropped) + Counter(second.dropped)),
    )


def _join_behind(parts: list[BehindPart]) -> BehindPart | None:
    """The nodes catch up beside each other: all have when the slowest has."""
    if not parts:
        return None
    seconds = [one.catch_up_seconds for one in parts if one.catch_up_seconds is not None]
    return BehindPart(sum(one.tuples for one in parts), max(seconds) if len(seconds) == len(parts) else None)


def _sum_rates(rates: Iterable[Rates]) -> Rates:
    known = [(one.offered, one.kept) for one in rates if one.offered is not None and one.kept is not None]
    return Rates(sum(offered for offered, _ in known), sum(kept for _, kept in known)) if known else Rates()


def _node_part(name: str, status: Status) -> NodePart:
    mode = None if status.mode == "mixed" else status.mode
    return replace(status.nodes.get(name, NodePart()), mode=mode, time=status.time)


def _join_ledgers(parts: Iterable[LedgerPart]) -> LedgerPart:
    every = list(parts)
    return LedgerPart(sum(one.lines for one in every), tuple(text for one in every for text in one.differences))
