"""Participants among themselves, without Spark: load that comes and goes, partners that fail, messages that lie."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from floodway.agent.federation import api
from floodway.agent.federation.credentials import Credentials
from floodway.agent.federation.engine import Fence, Measure
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import DECISION, ParticipantAgent
from floodway.agent.federation.partners import Pace
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.signing import Security
from floodway.contracts.federation_file import FragmentSpec, parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Move, Offer
from floodway.contracts.participant_state import NegotiationTimes as Times
from floodway.errors import InputError
from floodway.experiments.chaos.log_engine import LogEngine, measured
from floodway.job.decision import read_decision, write_mode
from floodway.job.store.store import LocalStore
from floodway.units import PPM
from tests.agent.federation_world import (
    FAST,
    FILE,
    SETTINGS,
    FederationWorld,
    part_of,
    refused_by,
    stopped_with_a_lease,
)
from tests.agent.wire.meeting import signed_for
from tests.patience import PATIENCE_SECONDS

KEY = Security(b"0123456789abcdef0123456789abcdef")
OWN = "  g0: {{owner: B, run: own, logs: {{input: logs/g0}}, parameters: {{cpu: 0.1}}}}\n"


class SetEngine(LogEngine):
    """The engine without Spark, with loads that a test can change, and starts that fail as often as it likes."""

    loads: dict[str, float]
    fail: int = 0
    stalled: str = ""
    """A fragment that does not run, and cannot be started."""

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        if spec.name == self.stalled:
            raise InputError("its log is gone", hint="Find it")
        if spec.owner == "A" and self.fail:
            self.fail -= 1
            raise RuntimeError("no more memory")
        super().start(spec, fence)

    def measure(self, now: float) -> dict[str, Measure]:
        return {name: measured(name, self.loads.get(name, one.cpu)) for name, one in super().measure(now).items()}


class Pair:
    """A and B in this process, each ticking on a thread of its own, and a world that feeds their logs.

    Leases are renewed three times a second and last: whoever is held up for a while loses nothing.
    """

    def __init__(self, root: Path, text: str = FILE + OWN, *, pace: Pace = FAST, settings: Times = SETTINGS) -> None:
        a, b = free_ports(2)
        self.world = FederationWorld(root, text.format(a=a, b=b))
        self.loads: dict[str, float] = {}
        self.members: dict[str, ParticipantAgent] = {}
        self.engines: dict[str, SetEngine] = {}
        for name, port in (("A", a), ("B", b)):
            store = LeaseStore(root / "shared", seconds=PATIENCE_SECONDS)
            engine = self.engines[name] = SetEngine(root / "shared", store.checkpoint)
            engine.loads = self.loads
            self.members[name] = ParticipantAgent(
                *(parse_federation(self.world.text), name, root / name, store, engine),
                credentials=Credentials(name, KEY),
                listen=("127.0.0.1", port),
                settings=settings,
                pace=replace(pace, patience=0.5),
            )
        self._threads: list[threading.Thread] = []

    def start(self, *names: str) -> None:
        for name in names:
            self.members[name].start()
            thread = threading.Thread(target=self.members[name].run)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        for member in self.members.values():
            member.stop()
        for thread in self._threads:
            thread.join()
        for member in self.members.values():
            member.close()

    def where(self) -> dict[str, list[str]]:
        return {name: sorted(member.machine.holdings) for name, member in self.members.items()}

    def ended(self, move: str) -> bool:
        row = self.members["A"].journal.move(move)
        return row is not None and row.ended is not None

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        self.world.wait(what, condition)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FederationWorld]:
    made = FederationWorld(tmp_path)
    yield made
    made.end()


def test_load_moves_away_and_comes_home_when_the_tables_turn(pair: Pair) -> None:
    pair.world.feed()
    pair.start("A", "B")
    pair.wait("a move to B", lambda: [len(found) for found in pair.where().values()] == [1, 2])
    (moved,) = set(pair.where()["B"]) - {"g0"}
    # A's other fragment calms down, B's own rises: through B's own contract with A the fragment goes home.
    pair.loads.update({name: 0.1 for name in ("f0", "f1") if name != moved})
    pair.loads["g0"] = 0.8
    pair.wait("the way home", lambda: pair.where() == {"A": ["f0", "f1"], "B": ["g0"]})
    pair.world.feed()
    pair.wait("all results", pair.world.caught_up)
    pair.world.check_results()
    first, *_ = pair.members["A"].journal.moves()
    pair.wait(
        "its end in the books",
        lambda: (row := pair.members["A"].journal.move(first.id)) is not None and bool(row.ended),
    )


def test_an_origin_that_wants_to_takes_its_work_back_when_load_has_fallen(tmp_path: Path) -> None:
    text = FILE.replace("price: 4.0", "price: 11.0").replace('{a}", cpu: 1.0', '{a}", cpu: 1.0, take_back: true')
    pair = Pair(tmp_path, text + OWN)
    try:
        pair.start("A", "B")
        pair.wait("a move to B", lambda: [len(found) for found in pair.where().values()] == [1, 2])
        (left,) = pair.where()["A"]
        pair.loads[left] = 0.02  # B has no reason to part with what it is paid for
        pair.wait("the way home", lambda: pair.where() == {"A": ["f0", "f1"], "B": ["g0"]})

        def came_home() -> bool:
            home = pair.members["B"].journal.moves()[-1]
            return (home.giver, home.taker, home.state) == ("B", "A", "done")

        pair.wait("its end in B's journal", came_home)
        pair.wait("no more payments", lambda: not pair.members["A"].journal.running_moves())
        pair.wait("nothing to be away", lambda: pair.members["A"].machine.away == {})
    finally:
        pair.close()


def test_what_nobody_takes_is_shed_and_no_longer_than_needed(pair: Pair) -> None:
    pair.start("A")  # there is no B to ask
    file = pair.members["A"].folder / DECISION

    def keeps() -> dict[str, float]:
        return {at: one.keep_ppm / PPM for at, one in read_decision(file).streams.items() if one.keep_ppm < PPM}

    pair.wait("shedding", lambda: bool(keeps()))
    # Two fragments of 0.6 CPU on one: their tuples are worth the same, so both keep the same share.
    assert list(keeps().values()) == pytest.approx([1 / 1.2, 1 / 1.2]) and read_decision(file).mode == "enforce"
    write_mode(LocalStore(file.parent), "off")
    pair.wait("the kill switch", lambda: read_decision(file).mode == "off")
    pair.wait("everything kept", lambda: pair.members["A"].status().keep == 1.0)
    (file.parent / "mode.json").write_text('{"mode": "of')
    pair.wait("the warning", lambda: any("mode.json is damaged" in one for one in pair.members["A"].status().warnings))
    issued = read_decision(file).issued_us
    pair.wait("decisions after it", lambda: read_decision(file).issued_us > issued)
    assert read_decision(file).mode == "off" and pair.members["A"].status().errors > 0
    write_mode(LocalStore(file.parent), "enforce")
    part = part_of(pair.members["A"])
    assert any(key.startswith("B: unreachable") for key in part.silent)
    assert {(one.giver, one.taker) for one in part.contracts} >= {("A", "B")}
    pair.start("B")
    pair.wait("the move", lambda: len(pair.where()["B"]) == 2)
    pair.wait("no more shedding", lambda: not keeps())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Pair, str]]:
    """A pair with a service in its contract, and the fragment that A has given to B."""
    text = FILE.replace("kinds: [sum]", "kinds: [sum], service: {{max_delay: 60s, penalty: 0.5}}")
    pair = Pair(tmp_path, text + OWN.replace("parameters:", "weight: 9.0, parameters:"))
    try:
        pair.start("A", "B")
        pair.wait("a move to B", lambda: [len(found) for found in pair.where().values()] == [1, 2])
        (moved,) = set(pair.where()["B"]) - {"g0"}
        yield pair, moved
    finally:
        pair.close()


def wait_for_a_penalty(pair: Pair) -> None:
    """Until A has booked one, which B owes."""
    journal = pair.members["A"].journal
    pair.wait("a penalty", lambda: any(one.entry.reason == "penalty" for one in journal.entries()))
    assert {one.entry.payer for one in journal.entries() if one.entry.reason == "penalty"} == {"B"}


def test_a_partner_that_drops_tuples_pays_for_that_and_says_so(served: tuple[Pair, str]) -> None:
    pair, moved = served
    pair.loads["g0"] = 0.9  # more than B can carry; it may not part with its own, nor A take the other
    a = pair.members["A"]

    def is_told() -> bool:
        told = part_of(a).missed.get(moved)
        return told is not None and told.by == "B" and told.keep < 1.0

    pair.wait("A to be told", is_told)
    wait_for_a_penalty(pair)


def test_a_partner_that_holds_what_it_cannot_run_pays_for_that(served: tuple[Pair, str]) -> None:
    pair, moved = served
    engine = pair.engines["B"]
    engine.stalled = moved
    engine.stop(moved)
    engine.failed(moved, "its log is gone")
    wait_for_a_penalty(pair)
    engine.stalled = ""
    pair.wait("it to run again", lambda: moved not in pair.members["B"].moving.stalled)


@pytest.fixture
def patient_pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair whose every message and move has as long as it takes, so that each is made once."""
    pace = replace(FAST, message=PATIENCE_SECONDS, move=PATIENCE_SECONDS)
    settings = replace(SETTINGS, answer_seconds=PATIENCE_SECONDS, arrival_seconds=PATIENCE_SECONDS)
    made = Pair(tmp_path, pace=pace, settings=settings)
    yield made
    made.close()


def test_what_cannot_be_started_is_given_back(patient_pair: Pair) -> None:
    pair = patient_pair
    pair.engines["B"].fail = 1
    pair.world.feed()
    pair.start("B", "A")
    pair.wait("a move to B", lambda: [len(found) for found in pair.where().values()] == [1, 2])
    failed, done = pair.members["A"].journal.moves()
    assert (failed.state, done.state) == ("failed", "done") and "no more memory" in failed.note
    assert [row.state for row in pair.members["B"].journal.moves()] == ["failed", "done"]
    (moved,) = set(pair.where()["B"]) - {"g0"}
    # Epochs 1: A; 2: taken by B; 3: given back to A; 4: taken again.
    lease = pair.world.store.current(moved)
    assert lease is not None and (lease.epoch, lease.owner) == (4, "B")
    pair.world.feed()
    pair.wait("all results", pair.world.caught_up)
    pair.world.check_results()


def test_a_partner_that_falls_silent_loses_its_fragments(world: FederationWorld) -> None:
    with world.feeding():
        for name in "AB":
            world.start(name)
        held = stopped_with_a_lease(world)
        moved, process = held.fragment, world.processes["B"]
        try:
            world.wait("A to take it back", lambda: world.owners()[moved] == "A", alive=("A",))
            lease = world.store.current(moved)
            world.wait("A to run it", lambda: world.running()["A"] == ["f0", "f1"], alive=("A",))
        finally:
            os.kill(process.pid, signal.SIGCONT)
        # B finds that it has lost the lease and stops; later A may well pay it again.
        assert lease is not None and lease.epoch == held.epoch + 1
        world.wait("B to stop", lambda: world.owners()[moved] == "B" or world.running()["B"] == [], alive=("A", "B"))
        world.wait("one fragment at each again", world.settled, alive=("A", "B"))
    world.wait("all results", world.caught_up, alive=("A", "B"))
    world.wait("books without an open entry", world.balanced, alive=("A", "B"))
    world.end()
    world.check_results()
    world.check_books()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(PeerError) as caught:
        call()
    return caught.value.reason


def test_forged_replayed_and_overpriced_offers_are_refused_and_counted(pair: Pair) -> None:
    pair.members["B"].start()
    b = pair.members["B"]
    url = b.server.url
    honest, stranger, unsigned = Client(url, KEY), Client(url, Security(b"x" * 32)), Client(url)
    task = Task("f0", Load(0.6), units=0.6, kind="sum", origin="A")
    good = Offer("A/100", "A", "B", 4.0, (task,))
    assert refused(lambda: unsigned.post_json("/v1/message", api.envelope(good))) == "unsigned"
    assert refused(lambda: stranger.post_json("/v1/message", api.envelope(good))) == "bad-signature"
    for bad in (
        replace(good, price=4.5),
        replace(good, price=3.0),
        replace(good, price=float("1e300")),
        replace(good, giver="C"),
        replace(good, taker="A"),
        replace(good, tasks=()),
        replace(good, tasks=(task, task)),
    ):
        assert refused(partial(honest.post_json, "/v1/message", api.envelope(bad))) == "contract"
    assert not b.machine.inbox

    body = json.dumps(api.envelope(good)).encode()
    assert KEY.key is not None
    headers = signed_for(url, KEY.key, "POST", "/v1/message", body)
    answers = []
    for _ in range(2):
        connection = http.client.HTTPConnection(url.partition("://")[2], timeout=PATIENCE_SECONDS)
        connection.request("POST", "/v1/message", body, {**headers, "content-type": "application/json"})
        answers.append(connection.getresponse().status)
        connection.close()
    assert answers == [200, 409] and len(b.machine.inbox) == 1

    move = Move("A/100", "A", "B", 4.0, (task,))
    specs = dict(b.federation.fragments)
    for body_of in (
        api.move_body(move, {"f0": 1}, {"f0": specs["f0"]}),  # offered, but not accepted yet
        api.move_body(replace(move, id="A/101"), {"f0": 1}, {"f0": specs["f0"]}),
    ):
        assert refused(partial(honest.post_json, "/v1/move", body_of)) == "contract"
    b.tick()
    assert "A/100" in b.machine.reserved
    for asked in (
        api.move_body(replace(move, price=3.9), {"f0": 1}, {"f0": specs["f0"]}),
        api.move_body(replace(move, tasks=(replace(task, name="f1"),)), {"f1": 1}, {"f1": specs["f1"]}),
        api.move_body(move, {"f0": 1}, {"f0": replace(specs["f0"], parameters={"cpu": 0.7})}),
        api.move_body(move, {"f0": 1}, {"f0": replace(specs["f0"], run="other")}),
        api.move_body(move, {"f0": 1}, {"f0": specs["f0"]}),  # as agreed, but A does not hold the fragment
    ):
        assert refused(partial(honest.post_json, "/v1/move", asked)) == "contract"
    for path, wrong in (("/v1/message", {"kind": "offer"}), ("/v1/move", {}), ("/v1/bill", {"version": 1})):
        assert refused(partial(honest.post_json, path, wrong)) == "malformed"
    assert b.machine.holdings.keys() == {"g0"} and b.journal.moves() == []
    counted = refused_by(b)
    assert counted["unsigned"] == 1 and counted["bad-signature"] == 1 and counted["replayed"] == 1
    assert counted["contract"] == 14 and counted["malformed"] == 3
