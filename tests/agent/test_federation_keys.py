"""Who a message is from: one key a pair, or certificates; a member that speaks in another's name is refused."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from floodway.agent.federation import api
from floodway.agent.federation.credentials import Credentials, directed, load_pairs
from floodway.agent.federation.journal_rows import BookedEntry
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import ParticipantAgent
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.signing import Security, TlsFiles
from floodway.contracts.federation_file import parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Accept, Cancel, Move, Offer
from floodway.contracts.payment import Payment, PaymentReason
from floodway.errors import InputError
from floodway.experiments.chaos.log_engine import LogEngine
from tests.agent.federation_world import FAST, SETTINGS, refused_by
from tests.agent.wire.certificates import make_authority, make_files
from tests.agent.wire.meeting import signed_for
from tests.patience import PATIENCE_SECONDS

FILE = """
version: 1
participants:
  A: {{url: "{scheme}://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "{scheme}://127.0.0.1:{b}", cpu: 1.0}}
  C: {{url: "{scheme}://127.0.0.1:{c}", cpu: 1.0}}
contracts:
  A<->B: {{price: 4.0}}
  B<->C: {{price: 4.0}}
fragments:
  f0: {{owner: A, run: sum, logs: {{input: logs/f0}}, parameters: {{cpu: 0.6}}}}
  g: {{owner: C, run: sum, logs: {{input: logs/g}}, parameters: {{cpu: 0.6}}}}
keys:
  A<->B: {{env: KEY_AB}}
  B<->C: {{file: keys/bc}}
"""
AB, BC = b"a and b have this key, nobody else", b"b and c have this key, nobody else"
TASK = Task("f0", Load(0.6), units=0.6, kind="sum", origin="A")
OFFER = Offer("A/1", "A", "B", 4.0, (TASK,))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def member(root: Path, name: str, credentials: Credentials, *, scheme: str = "http") -> ParticipantAgent:
    """A participant that ticks only when told to."""
    a, b, c = free_ports(3)
    federation = parse_federation(FILE.format(scheme=scheme, a=a, b=b, c=c))
    store = LeaseStore(root / "shared", seconds=FAST.lease)
    made = ParticipantAgent(
        *(federation, name, root / name, store, LogEngine(root / "shared", store.checkpoint)),
        credentials=credentials,
        settings=SETTINGS,
        pace=FAST,
    )
    made.start()
    return made


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(PeerError) as caught:
        call()
    return caught.value.reason


def as_sender(url: str, key: bytes, name: str) -> Client:
    return Client(url, Security(directed(key, name, "B")))


def test_a_member_cannot_speak_in_the_name_of_another(tmp_path: Path, opened: ExitStack) -> None:
    b = member(tmp_path, "B", Credentials("B", pairs={"A": AB, "C": BC}))
    opened.callback(b.close)
    url = b.server.url
    a, c = as_sender(url, AB, "A"), as_sender(url, BC, "C")
    entry = BookedEntry(Payment("A/1/f0/load/0.000", "A", "B", 1.0, PaymentReason.LOAD, 10.0), "A/1", 0.0)
    move = Move("A/1", "A", "B", 4.0, (TASK,))
    # Everything that C could say as A, signed with the key that C does have.
    for path, body in (
        ("/v1/message", api.envelope(OFFER)),
        ("/v1/message", api.envelope(Cancel("A/1", "A", "B"))),
        ("/v1/message", api.envelope(Accept("B/1", "B", "A", 4.0, ("f0",)))),
        ("/v1/move", api.move_body(move, {"f0": 1}, dict(b.federation.fragments))),
        ("/v1/bill", api.bill_body("A", [entry])),
    ):
        assert refused(partial(c.post_json, path, body)) == "forged"
    # As A with a key that it does not have; with the pair's key, but not this direction's; with none.
    envelope = api.envelope(OFFER)
    for client in (as_sender(url, BC, "A"), Client(url, Security(AB)), Client(url, Security(directed(AB, "B", "A")))):
        assert refused(partial(client.post_json, "/v1/message", envelope)) == "bad-signature"
    assert refused(lambda: Client(url).post_json("/v1/message", envelope)) == "unsigned"
    assert not b.machine.inbox

    assert refused(lambda: a.post_json("/v1/message", api.envelope(replace(OFFER, price=4.5)))) == "contract"
    sent = json.dumps(envelope).encode()
    headers = signed_for(url, directed(AB, "A", "B"), "POST", "/v1/message", sent)
    answers = []
    for _ in range(2):
        connection = http.client.HTTPConnection(url.partition("://")[2], timeout=PATIENCE_SECONDS)
        connection.request("POST", "/v1/message", sent, {**headers, "content-type": "application/json"})
        answers.append(connection.getresponse().status)
        connection.close()
    assert answers == [200, 409] and [one.giver for one in b.machine.inbox] == ["A"]
    c.post_json("/v1/message", api.envelope(Offer("C/1", "C", "B", 4.0, (replace(TASK, name="g"),))))
    counted = refused_by(b)
    assert counted == {"forged": 5, "bad-signature": 3, "unsigned": 1, "contract": 1, "replayed": 1}


@pytest.mark.parametrize("certified", [False, True])
def test_a_member_reads_nothing_of_another(tmp_path: Path, opened: ExitStack, certified: bool) -> None:
    """Neither its prices, moves and balances with third members, nor its load; an operator reads all of it."""
    authority = make_authority(tmp_path)
    files: dict[str, TlsFiles] = {name: make_files(tmp_path, name, authority) for name in ("B", "C", "page")}
    token = b"a token to read the figures of B"
    credentials = Credentials("B", Security(token=token), {"A": AB, "C": BC})
    as_c, operator = Security(directed(BC, "C", "B")), Security(token=token)
    if certified:
        credentials = Credentials("B", Security(tls=files["B"]))
        as_c, operator = Security(tls=files["C"]), Security(tls=files["page"])
    b = member(tmp_path, "B", credentials, scheme="https" if certified else "http")
    opened.callback(b.close)
    for path in ("/v1/status", "/metrics"):
        assert refused(partial(Client(b.server.url, as_c).get_json, path)) == "contract"
    assert Client(b.server.url, operator).get_json("/v1/status")["name"] == "B"
    assert refused_by(b) == {"contract": 2}


def test_certificates_are_bound_to_names(tmp_path: Path, opened: ExitStack) -> None:
    authority = make_authority(tmp_path)
    files: dict[str, TlsFiles] = {name: make_files(tmp_path, name, authority) for name in "ABC"}
    b = member(tmp_path, "B", Credentials("B", Security(tls=files["B"])), scheme="https")
    opened.callback(b.close)
    url = b.server.url
    a, c = (Client(url, Security(tls=files[name]), peer="B") for name in "AC")
    assert refused(lambda: c.post_json("/v1/message", api.envelope(OFFER))) == "forged"
    a.post_json("/v1/message", api.envelope(OFFER))
    assert [one.giver for one in b.machine.inbox] == ["A"]
    # And who asks sees that it is B who answers.
    wrong = Client(url, Security(tls=files["A"]), peer="C")
    assert refused(lambda: wrong.post_json("/v1/message", api.envelope(OFFER))) == "forged"
    assert refused_by(b) == {"forged": 1}
    # The authority also signs certificates of hosts: who has one of those is nobody, not anybody.
    for subject in ("/O=some host", "/CN=A/CN=B"):
        host = Client(url, Security(tls=make_files(tmp_path, "host", authority, subject=subject)), peer="B")
        assert refused(partial(host.post_json, "/v1/message", api.envelope(replace(OFFER, id="A/2")))) == "forged"
    assert [one.id for one in b.machine.inbox] == ["A/1"]


def test_a_key_and_another_members_certificate_do_not_go_together(tmp_path: Path, opened: ExitStack) -> None:
    authority = make_authority(tmp_path)
    files: dict[str, TlsFiles] = {name: make_files(tmp_path, name, authority) for name in "ABC"}
    b = member(tmp_path, "B", Credentials("B", Security(tls=files["B"]), {"A": AB, "C": BC}), scheme="https")
    opened.callback(b.close)
    key = directed(AB, "A", "B")
    body = api.envelope(OFFER)
    assert refused(lambda: Client(b.server.url, Security(key, files["C"])).post_json("/v1/message", body)) == "forged"
    Client(b.server.url, Security(key, files["A"])).post_json("/v1/message", body)
    assert [one.giver for one in b.machine.inbox] == ["A"]


def test_a_member_reads_its_own_keys_and_no_others(tmp_path: Path) -> None:
    federation = parse_federation(FILE.format(scheme="http", a=1, b=2, c=3))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "bc").write_bytes(BC + b"\n")
    (tmp_path / "keys" / "bc").chmod(0o600)
    environ = {"KEY_AB": AB.decode()}
    assert load_pairs(federation, "B", tmp_path, environ) == {"A": AB, "C": BC}
    assert load_pairs(federation, "A", tmp_path / "nowhere", environ) == {"B": AB}
    with pytest.raises(InputError, match="KEY_AB, the key of B and A, is not set"):
        load_pairs(federation, "B", tmp_path, {})
    with pytest.raises(InputError, match=r"key of C and B: key file .* cannot be read"):
        load_pairs(federation, "C", tmp_path / "nowhere", environ)
    assert AB.decode() not in repr(Credentials("B", pairs={"A": AB})) + repr(Security(senders={"A": AB}))


def test_keys_that_would_not_tell_members_apart_are_refused() -> None:
    with pytest.raises(InputError, match="same key with A and with C"):
        Credentials("B", pairs={"A": AB, "C": AB})
    with pytest.raises(InputError, match="shorter than 16"):
        Credentials("B", pairs={"A": b"short"})
    shared = Credentials("B", Security(AB))
    shared.check_address("127.0.0.1")
    with pytest.raises(InputError, match="all members share one key"):
        shared.check_address("192.0.2.7")
    for good in (Credentials("B", Security(AB), {"A": AB}), Credentials("B", pairs={"A": AB})):
        good.check_address("192.0.2.7")
