"""What a partner may claim: one that proves who it is, and then says what is not so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from floodway.agent.federation import api
from floodway.agent.federation.engine import Fence
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import ParticipantAgent
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.server import ServerError
from floodway.contracts.federation_file import FragmentSpec, parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Accept, Move, Offer, Reject
from floodway.errors import FloodwayError, InputError
from floodway.experiments.chaos.log_engine import LogEngine
from floodway.spark.log import create_log
from tests.agent.federation_world import FAST, SETTINGS, part_of, refused_by
from tests.patience import PATIENCE_SECONDS, wait_until

FILE = """
version: 1
participants:
  A: {url: "http://127.0.0.1:1", cpu: 1.0}
  B: {url: "http://127.0.0.1:2", cpu: 1.0}
  C: {url: "http://127.0.0.1:3", cpu: 1.0}
contracts:
  B->A: {price: 4.0, kinds: [sum]}
  A->C: {price: 4.0}
  A->B: {price: 4.0}
fragments:
  fa: {owner: A, run: sum, logs: {input: logs/fa}, parameters: {cpu: 0.1}}
  fb: {owner: B, run: sum, logs: {input: logs/fb}, parameters: {cpu: 0.1}}
  own: {owner: B, run: own, logs: {input: logs/own}, parameters: {cpu: 0.1}}
  fc: {owner: C, run: sum, logs: {input: logs/fc}, parameters: {cpu: 0.1}}
"""
TASK = Task("fb", Load(0.1), units=0.1, kind="sum", origin="B")
OFFER = Offer("B/0", "B", "A", 4.0, (TASK,))
MOVE = Move("B/0", "B", "A", 4.0, (TASK,))


class Table:
    """A participant A that ticks only when told to, and what partners can say to it."""

    def __init__(
        self, root: Path, text: str = FILE, *, state: str = "A", port: int = 0, engine: type[LogEngine] = LogEngine
    ) -> None:
        self.federation = parse_federation(text)
        self.store = LeaseStore(root / "shared", seconds=10.0)
        for name, spec in self.federation.fragments.items():
            create_log(root / "shared" / "logs" / name, "id bigint")
            if spec.owner != "A" and self.store.current(name) is None:
                self.store.claim(name, spec.owner, after=0, now=time.time())
        self.agent = ParticipantAgent(
            *(self.federation, "A", root / state, self.store, engine(root / "shared", self.store.checkpoint)),
            settings=SETTINGS,
            pace=FAST,
            listen=("127.0.0.1", port),
        )

    def start(self) -> Table:
        self.agent.start()
        return self

    def say(self, path: str, body: Mapping[str, object]) -> None:
        Client(self.agent.server.url, timeout_seconds=PATIENCE_SECONDS).post_json(path, body)

    def offer(self, offer: Offer = OFFER) -> None:
        self.say("/v1/message", api.envelope(offer))
        self.agent.tick()

    def owners(self) -> dict[str, str]:
        leases = {name: self.store.current(name) for name in self.federation.fragments}
        return {name: lease.owner for name, lease in leases.items() if lease is not None}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def table(tmp_path: Path, opened: ExitStack) -> Table:
    made = Table(tmp_path).start()
    opened.callback(made.agent.close)
    return made


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(PeerError) as caught:
        call()
    return caught.value.reason


def test_a_move_takes_no_lease_but_those_of_what_was_accepted(table: Table, tmp_path: Path) -> None:
    table.offer()
    assert list(table.agent.machine.reserved) == ["B/0"]
    specs: dict[str, FragmentSpec] = {"fb": table.federation.fragments["fb"]}
    for epochs, reason in (
        ({"fb": 1, "fc": 1}, "contract"),  # a third member's fragment
        ({"fb": 1, "../../escaped": 1}, "contract"),
        ({"fb": 1, "../../escaped": 0}, "malformed"),
        ({}, "contract"),
    ):
        body = api.move_body(MOVE, {"fb": 1}, specs) | {"epochs": epochs}
        assert refused(partial(table.say, "/v1/move", body)) == reason
    assert table.owners() == {"fa": "A", "fb": "B", "own": "B", "fc": "C"}
    assert not (tmp_path / "escaped").exists() and not table.agent.journal.moves()
    table.say("/v1/move", api.move_body(MOVE, {"fb": 1}, specs))
    assert table.owners() == {"fa": "A", "fb": "A", "own": "B", "fc": "C"}


@pytest.mark.parametrize("name", ["../../escaped", "", ".", "a/b", "x" * 65])
def test_names_that_are_no_files_of_their_own_are_refused_by_the_store(tmp_path: Path, name: str) -> None:
    store = LeaseStore(tmp_path / "shared" / "storage")
    for call in (
        lambda: store.claim(name, "A", after=0, now=0.0),
        lambda: store.current(name),
        lambda: store.checkpoint(name),
        lambda: store.decision(f"{name}/0"),
    ):
        with pytest.raises(FloodwayError, match="cannot be a"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_what_a_fragment_is_says_the_file_and_not_the_offer(table: Table) -> None:
    # Under kinds: [sum], an entry that runs `own` does not become one that runs `sum` by being called so.
    for task in (
        replace(TASK, name="own"),
        replace(TASK, name="nothing"),
        replace(TASK, name="../../escaped"),
    ):
        assert refused(partial(table.offer, replace(OFFER, tasks=(task,)))) == "contract"
    assert not table.agent.machine.inbox and not table.agent.machine.reserved
    # Nor is it A's own again, which nobody would pay for, by naming A as where it comes from.
    table.offer(replace(OFFER, tasks=(replace(TASK, kind="other", query="q", origin="A"),)))
    (promise,) = table.agent.machine.reserved.values()
    assert promise.move.tasks == (TASK,)
    table.say("/v1/move", api.move_body(MOVE, {"fb": 1}, {"fb": table.federation.fragments["fb"]}))
    held = table.agent.machine.holdings["fb"]
    assert held.price == 4.0 and held.contract is not None and held.contract.giver == "B"


def test_an_offers_number_is_its_givers_own_and_short(table: Table) -> None:
    specs = {"fb": table.federation.fragments["fb"]}
    for identity in ("A/0", "C/0", "B", "B/", "B/x", "B/-1", "B/" + "9" * 300, "B/0/0", "B/٣", "/0"):
        assert refused(partial(table.offer, replace(OFFER, id=identity))) == "contract", identity
        body = api.move_body(replace(MOVE, id=identity), {"fb": 1}, specs)
        assert refused(partial(table.say, "/v1/move", body)) == "contract", identity
    assert table.agent.journal.moves() == [] and table.agent.journal.offers() == []
    assert table.agent.journal.next_serial() == 0


def test_only_whom_an_offer_was_made_to_can_answer_it(table: Table) -> None:
    journal = table.agent.journal
    journal.offer(Offer("A/7", "A", "B", 4.0, (replace(TASK, name="fa"),)), "giver", 1.0)
    journal.answered("A/7", "accept", "B")
    table.say("/v1/message", api.envelope(Reject("A/7", "A", "C")))
    assert [one["answer"] for one in journal.offers()] == ["accept"]
    table.say("/v1/message", api.envelope(Reject("A/7", "A", "B")))
    assert [one["answer"] for one in journal.offers()] == ["reject"]
    twice = Accept("A/7", "A", "B", 4.0, ("fa", "fa"))
    assert refused(lambda: table.say("/v1/message", api.envelope(twice))) == "contract"


def test_a_partner_that_has_left_the_file_is_told_of_and_nothing_more(tmp_path: Path) -> None:
    before = Table(tmp_path).start()
    before.offer()
    before.say("/v1/move", api.move_body(MOVE, {"fb": 1}, {"fb": before.federation.fragments["fb"]}))
    # B is owed an answer to an offer, and owes for a move.
    before.agent.journal.offer(Offer("A/3", "A", "B", 4.0, (replace(TASK, name="fa"),)), "giver", time.time())
    wait_until(lambda: before.agent.journal.entries(agreed=False), "a bill", meanwhile=before.agent.tick)
    before.agent.close()
    lines = [line for line in FILE.splitlines() if not any(f"  {one}:" in line for one in ("B", "B->A", "A->B"))]
    text = "\n".join(line for line in lines if "owner: B" not in line)
    after = Table(tmp_path, text).start()
    try:
        gone = "B: gone"
        wait_until(
            lambda: part_of(after.agent).silent.get(gone, 0) >= 2, "it to be told of", meanwhile=after.agent.tick
        )
        assert sorted(after.agent.machine.holdings) == ["fa"]
    finally:
        after.agent.close()


def test_a_second_process_on_the_same_folder_touches_nothing(table: Table, tmp_path: Path) -> None:
    journal = table.agent.journal
    journal.offer(Offer("A/3", "A", "C", 4.0, (replace(TASK, name="fa"),)), "giver", time.time())
    second = Table(tmp_path)
    with pytest.raises(InputError, match="is in use by process"):
        second.agent.start()
    second.agent.close()
    assert [one["answer"] for one in journal.offers()] == [None] and second.agent.moving.held == {}
    table.store.check(table.agent.moving.held["fa"], now=time.time())


def test_a_second_process_at_the_same_address_touches_nothing(table: Table, tmp_path: Path) -> None:
    port = int(table.agent.server.url.rpartition(":")[2])
    second = Table(tmp_path, state="elsewhere", port=port)
    with pytest.raises(ServerError, match="cannot listen"):
        second.agent.start()
    second.agent.close()
    assert second.agent.moving.held == {}
    table.store.check(table.agent.moving.held["fa"], now=time.time())


def test_of_two_processes_of_one_member_the_later_runs_its_fragments(table: Table, tmp_path: Path) -> None:
    # Another folder and another address, on another machine perhaps: nothing tells them apart but the lease.
    second = Table(tmp_path, state="elsewhere").start()
    try:
        with pytest.raises(FloodwayError, match="to another process of A"):
            table.store.check(table.agent.moving.held["fa"], now=time.time())
        wait_until(lambda: not table.agent.machine.holdings, "its end", meanwhile=table.agent.tick)
        assert table.agent.moving.held == {} and not table.agent.machine.holdings
        assert list(second.agent.moving.held) == ["fa"]
        second.store.check(second.agent.moving.held["fa"], now=time.time())
    finally:
        second.agent.close()


def test_partners_are_answered_once_it_is_known_what_is_held(tmp_path: Path) -> None:
    told: list[str] = []

    class Slow(LogEngine):
        def start(self, spec: FragmentSpec, fence: Fence) -> None:
            told.append(refused(starting.offer))
            super().start(spec, fence)

    starting = Table(tmp_path, engine=Slow)
    starting.start()
    try:
        assert told == ["busy"]
        starting.offer()
        assert list(starting.agent.machine.reserved) == ["B/0"]
        assert refused_by(starting.agent) == {"busy": 1}
    finally:
        starting.agent.close()


def test_a_fragment_that_came_back_before_its_loss_was_told_is_counted(table: Table) -> None:
    """A member was held up while it took a fragment: its loss is known only when the fragment has come again."""
    table.offer()
    table.say("/v1/move", api.move_body(MOVE, {"fb": 1}, {"fb": table.federation.fragments["fb"]}))
    table.agent._lost.put("fb")
    table.agent.tick()
    assert "fb" in table.agent.moving.held and "fb" in table.agent.machine.holdings
