"""A taker that accepts a connection and never answers: the giver waits for so long, then resumes, or finds it taken."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from floodway.agent.federation.participant import ParticipantAgent
from floodway.contracts.messages import Accept
from tests.agent.federation_world import FAST, FederationWorld, agent
from tests.patience import PATIENCE_SECONDS, wait_until

PACE = replace(FAST, message=0.3, move=1.0, patience=60.0)
patient_agent = partial(agent, pace=PACE, lease_seconds=PATIENCE_SECONDS)
"""Who waits for nobody, but loses no lease when the whole process is held up."""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def wait(what: str, condition: Callable[[], bool], *ticking: ParticipantAgent) -> None:
    def tick() -> None:
        for one in ticking:
            one.tick()

    wait_until(condition, what, meanwhile=tick, told=lambda: [one.status() for one in ticking])


def state_of(member: ParticipantAgent, move: str) -> str:
    row = member.journal.move(move)
    return "" if row is None else row.state


def test_a_partner_that_never_answers_gets_nothing(tmp_path: Path, opened: ExitStack) -> None:
    world = FederationWorld(tmp_path)
    silent = opened.enter_context(socket.socket())
    silent.bind(("127.0.0.1", int(world.federation.members["B"].url.rpartition(":")[2])))
    silent.listen(64)  # the kernel accepts connections; nobody reads them
    a = patient_agent(world.federation, "A", tmp_path, lambda step: None)
    opened.callback(a.close)
    a.start()
    world.feed()
    wait("an offer", lambda: bool(a.journal.offers()), a)
    offer = a.journal.offers()[-1]
    a.receive(Accept(offer["id"], "A", "B", offer["price"], tuple(offer["tasks"])))
    moved = offer["tasks"][0]
    wait("the move to fail", lambda: state_of(a, offer["id"]) == "failed", a)
    wait("it to be over", lambda: not a.machine.moving, a)
    row = a.journal.move(offer["id"])
    assert row is not None and "does not answer" in row.note
    decision = a.store.decision(offer["id"])
    assert decision is not None and not decision.taken
    lease = a.store.current(moved)
    assert lease is not None and (lease.owner, lease.epoch) == ("A", 1)
    world.feed()
    wait("all results", world.caught_up, a)
    world.check_results()
    assert a.moving.stalled == {} and set(a.machine.holdings) == {"f0", "f1"}


@pytest.mark.parametrize(("step", "owner"), [("taker:noted", "A"), ("taker:leased", "B")])
def test_a_taker_that_hangs_in_the_middle_leaves_one_owner(
    tmp_path: Path, opened: ExitStack, step: str, owner: str
) -> None:
    world = FederationWorld(tmp_path)
    go_on = threading.Event()
    hung: list[str] = []

    def hang(at: str) -> None:
        if at == step and not hung:
            hung.append(at)
            go_on.wait(PATIENCE_SECONDS)

    a = patient_agent(world.federation, "A", tmp_path, lambda at: None)
    b = patient_agent(world.federation, "B", tmp_path, hang)
    for member in (a, b):
        opened.callback(member.close)
    opened.callback(go_on.set)
    b.start()
    a.start()
    world.feed()
    wait("B to hang", lambda: bool(hung), a, b)
    # On a busy machine A may have given up on a move that never came to B: what counts is the one that B hangs in.
    (row,) = b.journal.open_moves()
    wait("A to give up", lambda: state_of(a, row.id) in ("done", "failed"), a, b)
    go_on.set()
    wait("B to go on", lambda: state_of(b, row.id) in ("done", "failed"), a, b)
    assert state_of(a, row.id) == state_of(b, row.id) == ("failed" if owner == "A" else "done")
    leases = world.store.history(next(iter(row.units)))
    assert [lease.owner for lease in leases if lease.move == row.id] == ([] if owner == "A" else ["B"])
    wait("one fragment at each", lambda: sorted(world.owners().values()) == ["A", "B"], a, b)
    wait("no open move", lambda: not a.journal.open_moves() and not b.journal.open_moves(), a, b)
    world.feed()
    wait("all results", world.caught_up, a, b)
    world.check_results()
    wait("books that agree", world.balanced, a, b)
