"""The entries of a network file, one function a section: from settings to the model's dataclasses."""

from __future__ import annotations

from floodway.errors import did_you_mean, nearest
from floodway.network.fields import Fields, ProblemReport, Unit, shorten
from floodway.network.model import (
    DEFAULT_TUPLE_BYTES,
    Link,
    Node,
    Operator,
    OperatorKind,
    Output,
    Stream,
)
from floodway.network.yaml_lines import Located, join

_LOG = r"(?!kafka://).+|kafka://[^/\s:]+(:[0-9]{1,5})?(,[^/\s:]+(:[0-9]{1,5})?)*/[^/\s]+"
_RUN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


def read_stream(name: str, located: Located, report: ProblemReport) -> Stream:
    """`s1: {max_rate: 5k/s, log: …, schema: …, bytes: 100, deadline: 250ms, priority: 0}`."""
    fields = Fields(located, join("streams", name), report, what="a stream")
    stream = Stream(
        name,
        max_rate=fields.number("max_rate", above=True, unit=Unit.RATE),
        log=fields.text("log", pattern=_LOG, shape="a path or kafka://host:port/topic"),
        schema=fields.text("schema"),
        bytes=fields.number("bytes", above=True, unit=Unit.SIZE) or DEFAULT_TUPLE_BYTES,
        deadline=fields.duration("deadline"),
        priority=fields.whole("priority", 0),
    )
    fields.finish()
    return stream


def read_node(name: str, located: Located, report: ProblemReport) -> Node:
    """`A: {cpu: 1.0, memory: 1GB, url: http://…, spark: {…}}`."""
    fields = Fields(located, join("nodes", name), report, what="a node")
    node = Node(
        name,
        cpu=fields.number("cpu", above=True) or 1.0,
        memory=fields.number("memory", above=True, unit=Unit.SIZE),
        url=fields.text("url", pattern=r"https?://\S+", shape="an address such as http://127.0.0.1:8470"),
        spark=fields.settings("spark"),
    )
    fields.finish()
    return node


def read_operator(name: str, located: Located, report: ProblemReport) -> Operator:
    """`b1: {node: B, from: a1, kind: map, cost: 0.5ms, selectivity: 1.0, …}`; bad inputs come back as ()."""
    fields = Fields(located, join("operators", name), report, what="an operator")
    kind = _kind(fields)
    operator = Operator(
        name,
        node=_name(fields, "node", "the node that runs it, such as node: A"),
        inputs=_inputs(fields, kind),
        kind=kind,
        cost=fields.measured("cost", unit=Unit.DURATION),
        selectivity=_selectivity(fields, kind),
        windows=_windows(fields, kind),
        window=fields.duration("window"),
        slide=fields.duration("slide"),
        group_by=fields.names("group_by") or (),
        run=fields.text("run", pattern=_RUN, shape="package.module:function"),
        bytes=fields.number("bytes", above=True, unit=Unit.SIZE) or DEFAULT_TUPLE_BYTES,
        state_bytes=fields.number("state_bytes", above=True, unit=Unit.SIZE),
    )
    _check_aggregate(fields, operator)
    fields.finish()
    return operator


def read_output(name: str, located: Located, report: ProblemReport) -> Output:
    """`q1: {from: b1, weight: 1.0, latency: 2s, tier: 0, sink: …}`."""
    fields = Fields(located, join("outputs", name), report, what="an output")
    weight = fields.number("weight")
    latency, quantile = fields.target("latency")
    output = Output(
        name,
        source=_name(fields, "from", "the operator whose results it delivers, such as from: b1"),
        weight=1.0 if weight is None else weight,
        latency=latency,
        tier=fields.whole("tier", 0, low=0),
        sink=fields.text("sink"),
        quantile=quantile,
    )
    fields.finish()
    return output


def read_link(name: str, located: Located, report: ProblemReport) -> Link | None:
    """`A->B: {bandwidth: 1MB/s}`."""
    path = join("links", name)
    fields = Fields(located, path, report, what="a link")
    source, arrow, target = (part.strip() for part in name.partition("->"))
    bandwidth = fields.number("bandwidth", above=True, unit=Unit.SIZE)
    if not fields.has("bandwidth"):
        fields.missing("bandwidth", "give bytes per second above 0, such as bandwidth: 1e6")
    fields.finish()
    if not (source and arrow and target):
        report.add(path, "a link is named by its two nodes, such as A->B")
        return None
    return Link(source, target, bandwidth or 1.0)


def _kind(fields: Fields) -> OperatorKind:
    found = fields.get("kind")
    if found is None:
        return OperatorKind.MAP
    names = [kind.value for kind in OperatorKind]
    if found.value in names:
        return OperatorKind(found.value)
    text = found.text or ""
    fields.fault("kind", f"unknown kind {shorten(text)}; {did_you_mean(text, names)}", found)
    guesses = nearest(text, names)
    if len(guesses) == 1:
        return OperatorKind(guesses[0])
    # With two inputs it was meant as one of the two kinds that may have them.
    inputs = fields.get("from")
    many = inputs is not None and isinstance(inputs.value, list) and len(inputs.value) > 1
    return OperatorKind.UNION if many else OperatorKind.MAP


def _name(fields: Fields, key: str, remedy: str) -> str:
    found = fields.get(key)
    if found is None:
        fields.missing(key, f"give {remedy}")
    elif not found.text:
        fields.fault(key, f"must be one name; give {remedy}", found)
    return "" if found is None else found.text or ""


def _inputs(fields: Fields, kind: OperatorKind) -> tuple[str, ...]:
    if not fields.has("from"):
        fields.get("from")
        fields.missing("from", "give the stream or operator it reads, such as from: s1")
        return ()
    inputs = fields.names("from")
    if inputs is None:
        return ()
    distinct = tuple(dict.fromkeys(inputs))
    if len(distinct) < len(inputs):
        twice = sorted({name for name in inputs if inputs.count(name) > 1})
        fields.fault("from", f"reads {', '.join(twice)} twice; inputs must be distinct")
    elif kind is OperatorKind.JOIN and len(inputs) != 2:
        fields.fault("from", f"a join reads exactly two inputs, not {len(inputs)}; write from: [x, y]")
    elif kind is OperatorKind.UNION and len(inputs) < 2:
        fields.fault("from", "a union reads at least two inputs; write from: [x, y], or use kind: map")
    elif kind not in (OperatorKind.JOIN, OperatorKind.UNION) and len(inputs) > 1:
        fields.fault("from", f"a {kind} reads one input, not {len(inputs)}; use kind: union or kind: join")
    return distinct


def _selectivity(fields: Fields, kind: OperatorKind) -> float | None:
    if not fields.has("selectivity"):
        fields.get("selectivity")
        return 1.0
    if kind is OperatorKind.JOIN:
        return fields.measured("selectivity", high=1.0, why="a join's share of the cross product of its windows")
    if kind is OperatorKind.FILTER:
        return fields.measured("selectivity", high=1.0, why="a filter emits no more than it reads")
    return fields.measured("selectivity")


def _windows(fields: Fields, kind: OperatorKind) -> tuple[float, float] | None:
    counts = fields.counts("windows")
    if kind is not OperatorKind.JOIN:
        if counts is not None:
            fields.fault("windows", "only a join has windows; an aggregate has window and slide, in seconds")
        return None
    if counts is None:
        fields.missing("windows", "a join needs two windows in tuples, such as windows: [100, 100]")
        return None
    if len(counts) != 2:
        fields.fault("windows", f"a join has two windows, not {len(counts)}; write windows: [100, 100]")
        return None
    return counts[0], counts[1]


def _check_aggregate(fields: Fields, operator: Operator) -> None:
    if operator.kind is not OperatorKind.AGGREGATE:
        for key in ("window", "slide", "group_by"):
            if fields.has(key):
                fields.fault(key, f"only an aggregate has {key}; set kind: aggregate or remove it")
    elif operator.slide is not None:
        if not fields.has("window"):
            fields.fault("slide", "needs a window; add window: such as window: 10s")
        elif operator.window is not None and operator.slide > operator.window:
            message = f"must not exceed the window of {operator.window:g} s, or tuples fall between windows"
            fields.fault("slide", message)
