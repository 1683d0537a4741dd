"""The federation file: what it says, and everything that can be wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.contracts.cost import InFlight
from floodway.contracts.federation_file import is_federation, load_federation, parse_federation
from floodway.contracts.federation_keys import KeySource
from floodway.errors import NetworkError

GOOD = """
version: 1
participants:
  A: {url: "http://127.0.0.1:8471", cpu: 2.0}
  B: {url: "http://127.0.0.1:8472/", price: [2.0, 4.0]}
contracts:
  A->B: {}
  B->A: {price: 3, kinds: [count], may_pass_on: false, service: {max_delay: 500ms, penalty: 2.0}}
fragments:
  f: {owner: A, run: count, logs: {hits: logs/hits}, parameters: {window: 60, name: x, exact: true}, cost: 0.001}
"""


def problems(text: str) -> dict[str, str]:
    with pytest.raises(NetworkError) as caught:
        parse_federation(text)
    return {problem.key: problem.message for problem in caught.value.problems}


def test_a_good_file_says_what_it_says() -> None:
    federation = parse_federation(GOOD, name="two")
    assert federation.name == "two"
    assert federation.members["A"].cpu == 2.0 and federation.members["B"].url == "http://127.0.0.1:8472"
    there, back = federation.contracts
    assert (there.min_price, there.max_price, there.may_pass_on) == (2.0, 4.0, True)
    assert back.fixed and back.kinds == frozenset({"count"}) and not back.may_pass_on
    assert back.service is not None and back.service.max_delay_seconds == 0.5
    (fragment,) = federation.owned_by("A")
    assert fragment.parameters == {"window": 60, "name": "x", "exact": True}
    assert fragment.output == "outputs/f" and fragment.cost == 0.001
    assert federation.partners("A") == {"B"}


def test_a_member_says_what_load_and_moves_cost_it() -> None:
    plain = parse_federation(GOOD).members["A"]
    assert (plain.cost, plain.link, plain.migration_cost) == ("in-flight", float("inf"), 0.0)
    text = GOOD.replace("cpu: 2.0", "cpu: 2.0, cost: {kind: measured, link: 1e6}, migration_cost: 0.5")
    federation = parse_federation(text.replace("cost: 0.001", "cost: 0.001, bytes: 250"))
    member = federation.members["A"]
    assert (member.cost, member.link, member.migration_cost) == ("measured", 1e6, 0.5)
    assert member.costs() == InFlight(cpu=2.0, link=1e6)
    assert federation.fragments["f"].bytes_per_tuple == 250.0
    found = problems(GOOD.replace("cpu: 2.0", "cost: {kind: guessed, link: 0, lnk: 1}, migration_cost: -1"))
    assert "in-flight or measured" in found["participants.A.cost.kind"]
    assert "above 0" in found["participants.A.cost.link"]
    assert "link" in found["participants.A.cost.lnk"]
    assert "participants.A.migration_cost" in found


def test_both_directions_in_one_line() -> None:
    text = GOOD.replace("A->B: {}", "A<->B: {price: 1.5}").replace("  B->A:", "  # ")
    assert [str(one) for one in parse_federation(text).contracts] == ["A->B", "B->A"]


def test_all_faults_come_at_once_with_line_and_remedy() -> None:
    text = """version: 2
participants:
  A: {url: "ftp://x", cpu: 0}
  b c: {url: "http://127.0.0.1:1"}
contracts:
  A->D: {price: 1.0}
  A->A: {price: 1.0}
  A<->b c: {price: [4, 2], knds: [x]}
fragments:
  f: {owner: Aa, run: count, logs: {hits: ../secret}}
  g: {run: count, logs: {hits: logs/x}, output: outputs/f, parameters: {w: [1]}}
"""
    found = problems(text)
    assert "must be 1" in found["version"]
    assert "must be an address" in found["participants.A.url"]
    assert "above 0" in found["participants.A.cpu"]
    assert "letters, digits" in found["participants.b c"]
    assert "unknown participant 'D'" in found["contracts.A->D"]
    assert "two different" in found["contracts.A->A"]
    assert "upside down" in found["contracts.A<->b c.price"]
    assert "kinds" in found["contracts.A<->b c.knds"]
    assert "did you mean A?" in found["fragments.f.owner"]
    assert "below the shared folder" in found["fragments.f.logs"]
    assert "owner: A" in found["fragments.g.owner"]
    assert "as f does" in found["fragments.g"]
    assert "plain value" in found["fragments.g.parameters"]
    with pytest.raises(NetworkError) as caught:
        parse_federation(text)
    assert [problem.line for problem in caught.value.problems if problem.key == "contracts.A->D"] == [6]


@pytest.mark.parametrize("text", ["", "[]", "version: 1", "{"])
def test_what_is_no_federation_is_refused(text: str) -> None:
    with pytest.raises(NetworkError):
        parse_federation(text)


def test_inputs_may_be_topics() -> None:
    topic = "kafka://one:9092,two:9092/hits"
    (spec,) = parse_federation(GOOD.replace("logs/hits", f'"{topic}"')).owned_by("A")
    assert spec.logs == {"hits": topic}
    for wrong in ("kafka:hits", "kafka://one:9092", "kafka://one:9092/a/b", "kafka:///hits", "/logs/hits"):
        found = problems(GOOD.replace("logs/hits", f'"{wrong}"'))
        assert "nor kafka://host:port/topic" in found["fragments.f.logs"], wrong


def test_keys_are_named_by_pair_and_never_given() -> None:
    keys = "keys:\n  B<->A: {env: KEY_AB}\n"
    (found,) = parse_federation(GOOD + keys).keys.items()
    assert found == (frozenset("AB"), KeySource(env="KEY_AB"))
    told = {
        "A<->B: {}": "needs one place",
        "A<->B: {env: X, file: y}": "needs one place",
        "A<->B: {key: 0123456789abcdef}": "needs one place",
        "A->B: {env: X}": "by the two participants",
        "A<->D: {env: X}": "unknown participant 'D'",
        "A<->B: {env: X}\n  B<->A: {env: Y}": "have a key already",
    }
    for entry, message in told.items():
        assert any(message in one for one in problems(GOOD + f"keys:\n  {entry}\n").values()), entry
    three = GOOD.replace("contracts:", '  C: {url: "http://127.0.0.1:3"}\ncontracts:\n  A->C: {price: 1}')
    assert "none for contract A->C" in problems(three + keys)["keys"]
    assert "as for B<->A" in problems(three + keys + "  A<->C: {env: KEY_AB}\n")["keys.A<->C"]
    assert "no contract" in problems(three + keys + "  A<->C: {env: K}\n  B<->C: {env: L}\n")["keys.B<->C"]


def test_a_contract_without_any_price_is_refused() -> None:
    assert "no price" in problems(GOOD.replace(", price: [2.0, 4.0]", ""))["contracts.A->B"]


def test_files_are_told_apart_from_networks(tmp_path: Path) -> None:
    root = Path(__file__).parents[2] / "examples"
    assert is_federation(root / "federation" / "three.yaml")
    assert not is_federation(root / "networks" / "figure1.yaml")
    assert not is_federation(tmp_path / "nothing.yaml")
    assert len(load_federation(root / "federation" / "three.yaml").members) == 3
    with pytest.raises(NetworkError, match="check the path"):
        load_federation(tmp_path / "nothing.yaml")
