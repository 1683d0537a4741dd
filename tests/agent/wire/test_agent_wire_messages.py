"""Messages there and back, and everything else refused with its reason."""

from __future__ import annotations

import json
from typing import TypedDict

import pytest

from floodway.agent.wire.messages import (
    AnyMessage,
    Keeps,
    Mode,
    NodeStatistics,
    Noted,
    PlanAck,
    PlanChoice,
    PlanRow,
    PlanUpload,
    TableAck,
    TablePush,
    TableReach,
    decode,
    encode,
)
from floodway.agent.wire.refusals import RefusedError


class Who(TypedDict):
    network: str
    sender: str
    receiver: str


WHO: Who = {"network": "net", "sender": "B", "receiver": "A"}
PUSH = TablePush(**WHO, form="full", version=7, rows=2, useful=(1.0, 0.5), table=b"FT\n\0\xff\n")
ALL: list[AnyMessage] = [
    PUSH,
    TablePush(**WHO, form="beat", version=7),
    TableAck(**WHO, held=None),
    TableAck(**WHO, held=7, reach=(0.5,)),
    TableReach(**WHO, reach=(0.5, 2.0)),
    NodeStatistics(**WHO, number=3, rates={"s1": 2.0, "a->b": 0.0}, costs={"a1": 0.1}, scale=0.7),
    Keeps(**WHO, number=4, keeps={"s1": 0.25}),
    Keeps(**WHO, number=4, keeps={"s1": 0.25}, late={"q1": 0.5}),
    PlanUpload(**WHO, number=1, generation=1, rows=(PlanRow(plan="1,2", flows={"s1": 1.0}, keeps={"a->b": 0.5}),)),
    PlanChoice(**WHO, number=2, generation=1, plan="1,2", scale=0.9),
    PlanAck(**WHO, generation=None, plan=None, number=0, missing=True),
    Mode(**WHO, mode="off"),
    Noted(**WHO),
]


def reason(data: bytes, *, receiver: str = "A") -> str:
    with pytest.raises(RefusedError) as error:
        decode(data, network="net", receiver=receiver)
    return error.value.reason


@pytest.mark.parametrize("message", ALL, ids=lambda m: m.kind)
def test_there_and_back(message: AnyMessage) -> None:
    assert decode(encode(message), network="net", receiver="A") == message


def changed(**fields: object) -> bytes:
    given = {**json.loads(encode(ALL[5])), **fields}
    return json.dumps({name: value for name, value in given.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        changed(kind="nothing"),
        changed(kind=["table"]),
        changed(extra=1),
        changed(number=...),
        changed(number="3"),
        changed(number=-1),
        changed(number=2**63),
        changed(number=1.5),
        changed(rates={"s1": "2"}),
        changed(rates={"s1": -1.0}),
        changed(rates={"s1": float("nan")}),
        changed(rates={"s1": float("inf")}),
        changed(rates={"s1": 1e300}),
        changed(rates={"s" * 400: 1.0}),
        changed(rates={f"s{i}": 1.0 for i in range(10_001)}),
        changed(scale=0),
        changed(sender=""),
        changed() + b"\nmore",
        encode(PUSH).replace(b'"rows":2', b'"rows":2,"table":"x"'),
    ],
    ids=range(25),
)
def test_malformed(data: bytes) -> None:
    assert reason(data) == "malformed"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_named_even_if_the_rest_is_unknown(version: object) -> None:
    assert reason(changed(v=version, rates=..., novelty=1)) == "version"


def test_that_nothing_is_late_is_not_said() -> None:
    assert b"late" not in encode(ALL[5]) and ALL[5].kind == "statistics"
    assert reason(changed(late={"q1": 1.5})) == reason(changed(late={"q1": float("nan")})) == "malformed"


def test_for_another_node_or_network() -> None:
    assert reason(encode(PUSH), receiver="C") == "unknown"
    assert reason(changed(network="other")) == "unknown"


def test_a_line_without_end_is_oversized() -> None:
    assert reason(b'"' + bytes(5 * 2**20)) == "oversized"
