"""The federation file, version 1: who is in it, under which contracts, and which fragments each member owns.

>>> federation = parse_federation('''
... version: 1
... participants:
...   A: {url: "http://127.0.0.1:8471", cpu: 1.0}
...   B: {url: "http://127.0.0.1:8472", cpu: 1.0, price: 4.0}
... contracts:
...   A->B: {}
... fragments:
...   hits: {owner: A, run: count-hits, logs: {hits: logs/hits}, parameters: {window: 60}}
... ''')
>>> [str(contract) for contract in federation.contracts], federation.contracts[0].max_price
(['A->B'], 4.0)

All members read the same file. It names entries of a catalogue and their parameters, never code: each member loads
its own catalogue from a module that it has installed. Every fault is reported at once, with key, line and remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal, TypeVar

from floodway.contracts.contract import Contract, Service
from floodway.contracts.cost import InFlight
from floodway.contracts.federation_keys import EXAMPLE, KeySource, Pair, pair_keys, read_key_source
from floodway.errors import NetworkError, Problem
from floodway.network.fields import MAX_PROBLEMS, Fields, ProblemReport, Unit, describe, shorten
from floodway.network.yaml_lines import WHOLE_FILE, Located, Scalar, join, read_lines

VERSION = 1
MAX_BYTES = 1_000_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""What members and fragments may be called: names become files on the shared storage and parts of addresses."""
_TOPIC = r"kafka://[A-Za-z0-9.:,_-]{1,300}/[A-Za-z0-9._-]{1,249}"
_PATH = r"(?!/)(?!.*(^|/)\.\.(/|$))[^\x00-\x1f]{1,300}"
_OUTPUT = _PATH.replace("[^", "[^:")
"""A log: a colon would name another kind of sink."""

Entry = TypeVar("Entry")


CostKind = Literal["in-flight", "measured"]


@dataclass(frozen=True, slots=True)
class Member:
    """One participant: its offer API, its CPU-seconds per second, and the price it asks where a contract has none.

    `link` is bytes/s that it can send, infinite where that is no limit. `cost` says whether its cost is what queues say
    or learnt from what it measures; `migration_cost` what a move must save beyond its price; `take_back` whether it
    asks for its own fragments when its load has fallen.
    """

    name: str
    url: str
    cpu: float = 1.0
    price: tuple[float, float] | None = None
    cost: CostKind = "in-flight"
    link: float = inf
    migration_cost: float = 0.0
    take_back: bool = False

    def costs(self) -> InFlight:
        """What carrying a load costs it, as queues at its CPU and its link say."""
        return InFlight(cpu=self.cpu, link=self.link)


@dataclass(frozen=True, slots=True)
class FragmentSpec:
    """A query fragment: a catalogue entry with its parameters, its logs by input name and its output log.

    Logs are paths relative to the shared storage, or Kafka topics as `kafka://host:port/topic`. `cost` is CPU-seconds
    per input tuple, None to measure it, `bytes_per_tuple` what it sends over the link for each; `query` names the
    continuous query that it belongs to, so that fragments of one query move together. `weight` is what a CPU-second of
    it is worth to its owner, in the unit of prices; None is the highest price in the owner's contracts.
    """

    name: str
    owner: str
    run: str
    logs: Mapping[str, str]
    output: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    cost: float | None = None
    query: str = ""
    bytes_per_tuple: float = 0.0
    weight: float | None = None


@dataclass(frozen=True)
class Federation:
    """Everything all members know of each other."""

    name: str
    members: Mapping[str, Member]
    contracts: tuple[Contract, ...]
    fragments: Mapping[str, FragmentSpec]
    keys: Mapping[Pair, KeySource] = field(default_factory=dict)
    """Where each pair of members finds its key; empty where none is named."""

    def owned_by(self, name: str) -> list[FragmentSpec]:
        """The fragments whose origin is this member."""
        return [fragment for fragment in self.fragments.values() if fragment.owner == name]

    def partners(self, name: str) -> set[str]:
        """Everybody with whom this member has a contract, in either direction."""
        mine = [one for one in self.contracts if name in (one.giver, one.taker)]
        return {one.taker if one.giver == name else one.giver for one in mine}


def load_federation(path: Path | str) -> Federation:
    """Read a federation file; its stem is the default name."""
    path = Path(path)
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _refuse(f"cannot be read: {reason}; check the path", str(path)) from error
    except UnicodeDecodeError as error:
        raise _refuse("is not UTF-8 text; save it as UTF-8", str(path)) from error
    return parse_federation(text, source=str(path), name=path.stem)


def parse_federation(text: str, *, source: str = "federation", name: str = "federation") -> Federation:
    """Read a federation from YAML or JSON text; `source` names it in errors."""
    if len(text) > MAX_BYTES:
        raise _refuse(f"is larger than {MAX_BYTES // 10**6} MB; split the federation", source)
    report = ProblemReport()
    root = read_lines(text, report.problems, source=source)
    if root is None or not isinstance(root.value, dict):
        found = "is empty" if root is None or root.value is None else f"is {describe(root.value)}"
        raise _refuse(f"{found}; start with `version: 1`, then participants, contracts, fragments", source)
    federation = _read(root, report, name)
    if report.problems:
        by_line = sorted(report.problems[:MAX_PROBLEMS], key=lambda one: (one.line is None, one.line or 0))
        raise NetworkError(by_line, source=source)
    return federation


def is_federation(path: Path) -> bool:
    """Whether a file is meant as a federation: it has the section that no network file has."""
    try:
        return bool(re.search(rb"^\s*\"?participants\"?\s*:", path.read_bytes()[:MAX_BYTES], re.MULTILINE))
    except OSError:
        return False


def _refuse(message: str, source: str) -> NetworkError:
    return NetworkError([Problem(WHOLE_FILE, None, message)], source=source)


def _read(root: Located, report: ProblemReport, default_name: str) -> Federation:
    fields = Fields(root, "", report, what="a federation file")
    version = fields.get("version")
    if version is None:
        fields.missing("version", "write `version: 1` first")
    elif isinstance(version.value, bool) or version.value != VERSION:
        fields.fault("version", f"must be {VERSION}, the only version there is, not {describe(version.value)}", version)
    name = fields.text("name", pattern=r"[^\x00-\x1f]{1,200}", shape="text of at most 200 characters")
    members = _section(fields, "participants", _member, example="participants: {A: {url: 'http://127.0.0.1:8471'}}")
    found = _section(fields, "contracts", _half_contract, example="contracts: {A->B: {price: 4.0}}", named=False)
    fragments = _section(
        fields,
        "fragments",
        _fragment,
        example="fragments: {f: {owner: A, run: entry, logs: {input: logs/f}}}",
        required=False,
    )
    keys = _section(fields, "keys", read_key_source, example=EXAMPLE, named=False, required=False)
    fields.finish()
    contracts: list[Contract] = []
    for key, half in found.items():
        contracts += _contracts(key, half, members, report)
    _check_fragments(fragments, members, report)
    pairs = pair_keys(keys, members, contracts, report)
    return Federation(name or default_name, members, tuple(contracts), fragments, pairs)


def _section(
    fields: Fields,
    key: str,
    read: Callable[[str, Located, ProblemReport], Entry],
    *,
    example: str,
    named: bool = True,
    required: bool = True,
) -> dict[str, Entry]:
    found, report = fields.get(key), fields.report
    if found is None:
        if required:
            fields.missing(key, f"write {example}")
        return {}
    if not isinstance(found.value, dict) or (required and not found.value):
        report.add(key, f"must map names to settings; write {example}", line=found.key_line)
        return {}
    report.lines.update((join(key, name), entry.key_line) for name, entry in found.value.items())
    for name in found.value if named else ():
        if not NAME.fullmatch(name):
            message = f"the name {shorten(name)} is not usable; use letters, digits, - and _, at most 64"
            report.add(join(key, name), message)
    return {name: read(name, entry, report) for name, entry in found.value.items()}


def _member(name: str, located: Located, report: ProblemReport) -> Member:
    fields = Fields(located, join("participants", name), report, what="a participant")
    url = fields.text("url", pattern=r"https?://[^\s/]+/?", shape="an address such as http://127.0.0.1:8471")
    if not fields.has("url"):
        fields.missing("url", "give the address of its offer API, such as url: http://127.0.0.1:8471")
    kind, link = _cost(fields, report)
    member = Member(
        name,
        (url or "").rstrip("/"),
        fields.number("cpu", above=True) or 1.0,
        _prices(fields),
        kind,
        link,
        fields.number("migration_cost") or 0.0,
        _flag(fields, "take_back", default=False),
    )
    fields.finish()
    return member


def _cost(fields: Fields, report: ProblemReport) -> tuple[CostKind, float]:
    """`cost: {kind: measured, link: 1e6}`: where the marginal cost comes from, and the bytes/s of the link."""
    found = fields.get("cost")
    if found is None:
        return "in-flight", inf
    inner = Fields(found, join(fields.path, "cost"), report, what="a cost")
    kind = inner.text("kind", pattern="in-flight|measured", shape="in-flight or measured")
    link = inner.number("link", above=True)
    inner.finish()
    return "measured" if kind == "measured" else "in-flight", link or inf


def _flag(fields: Fields, key: str, *, default: bool) -> bool:
    found = fields.get(key)
    if found is None:
        return default
    if not isinstance(found.value, bool):
        fields.fault(key, f"must be true or false, not {describe(found.value)}", found)
    return found.value is True


def _prices(fields: Fields) -> tuple[float, float] | None:
    """One price, or the two ends of a range."""
    found = fields.get("price")
    if found is None:
        return None
    items = found.value if isinstance(found.value, list) else [found]
    numbers = [item.value for item in items]
    usable = [float(one) for one in numbers if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if len(usable) != len(numbers) or len(usable) not in (1, 2) or not all(0 <= one < 1e15 for one in usable):
        fields.fault("price", "must be a number of at least 0, or two for a range such as [2.0, 4.0]", found)
        return None
    if usable[0] > usable[-1]:
        fields.fault("price", f"the range [{usable[0]:g}, {usable[1]:g}] is upside down; write the lower first", found)
        return None
    return usable[0], usable[-1]


@dataclass(frozen=True, slots=True)
class _HalfContract:
    """A contract's terms before it is known between whom."""

    price: tuple[float, float] | None
    kinds: frozenset[str] | None
    may_pass_on: bool
    service: Service | None


def _half_contract(name: str, located: Located, report: ProblemReport) -> _HalfContract:
    fields = Fields(located, join("contracts", name), report, what="a contract")
    kinds = fields.names("kinds")
    half = _HalfContract(
        _prices(fields),
        None if kinds is None else frozenset(kinds),
        _flag(fields, "may_pass_on", default=True),
        _service(fields, report),
    )
    fields.finish()
    return half


def _service(fields: Fields, report: ProblemReport) -> Service | None:
    found = fields.get("service")
    if found is None:
        return None
    inner = Fields(found, join(fields.path, "service"), report, what="a minimum service")
    delay, penalty = inner.duration("max_delay"), inner.number("penalty")
    for key, example in (("max_delay", "5s"), ("penalty", "1.0")):
        if not inner.has(key):
            inner.missing(key, f"such as {key}: {example}")
    inner.finish()
    return None if delay is None or penalty is None else Service(delay, penalty)


def _contracts(key: str, half: _HalfContract, members: Mapping[str, Member], report: ProblemReport) -> list[Contract]:
    """`A->B` is one contract, `A<->B` the same terms in both directions."""
    path = join("contracts", key)
    both = "<->" in key
    giver, _, taker = (part.strip() for part in key.partition("<->" if both else "->"))
    if not giver or not taker or giver == taker:
        report.add(path, "a contract is named by two different participants: A->B (A gives, B takes) or A<->B")
        return []
    unknown = [one for one in (giver, taker) if one not in members]
    for one in unknown:
        report.unknown(path, "participant", one, members)
    pairs = [(giver, taker), (taker, giver)] if both else [(giver, taker)]
    made: list[Contract] = []
    for one, other in () if unknown else pairs:
        price = half.price or members[other].price
        if price is None:
            report.add(path, f"has no price; give price: 4.0 here, or a price that {other} asks of everybody")
            continue
        made.append(Contract(one, other, *price, half.kinds, half.may_pass_on, half.service))
    return made


def _fragment(name: str, located: Located, report: ProblemReport) -> FragmentSpec:
    fields = Fields(located, join("fragments", name), report, what="a fragment")
    for key, remedy in (
        ("owner", "name the participant that it comes from, such as owner: A"),
        ("run", "name an entry of the catalogue, such as run: active-sources"),
        ("logs", "name its input logs, such as logs: {connections: logs/connections}"),
    ):
        if not fields.has(key):
            fields.missing(key, remedy)
    spec = FragmentSpec(
        name,
        owner=fields.text("owner") or "",
        run=fields.text("run", pattern=r"[A-Za-z][A-Za-z0-9_-]*", shape="the name of a catalogue entry") or "",
        logs=fields.settings("logs"),
        output=fields.text("output", pattern=_OUTPUT, shape="a path below the shared folder, without a colon")
        or f"outputs/{name}",
        parameters=_parameters(fields),
        cost=fields.number("cost", above=True, unit=Unit.DURATION),
        query=fields.text("query") or "",
        bytes_per_tuple=fields.number("bytes", unit=Unit.SIZE) or 0.0,
        weight=fields.number("weight", above=True),
    )
    for log in spec.logs.values():
        if not re.fullmatch(_TOPIC if log.startswith("kafka:") else _PATH, log):
            places = "a path below the shared folder, nor kafka://host:port/topic"
            fields.fault("logs", f"{shorten(log)} is not {places}", fields.get("logs"))
    fields.finish()
    return spec


def _parameters(fields: Fields) -> dict[str, Scalar]:
    found = fields.get("parameters")
    if found is None or not isinstance(found.value, dict):
        if found is not None:
            fields.fault("parameters", "must be a mapping of plain values, such as {window: 60}", found)
        return {}
    made: dict[str, Scalar] = {}
    for name, item in found.value.items():
        if isinstance(item.value, (dict, list)):
            fields.fault("parameters", f"{name} must be a plain value, not {describe(item.value)}", item)
        else:
            made[name] = item.value
    return made


def _check_fragments(
    fragments: Mapping[str, FragmentSpec], members: Mapping[str, Member], report: ProblemReport
) -> None:
    outputs: dict[str, str] = {}
    for name, spec in fragments.items():
        path = join("fragments", name)
        if spec.owner and members and spec.owner not in members:
            report.unknown(join(path, "owner"), "participant", spec.owner, members)
        first = outputs.setdefault(spec.output, name)
        if first != name:
            report.add(path, f"writes to {spec.output}, as {first} does; give each an output of its own")
