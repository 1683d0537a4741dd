"""Leases and decisions on shared storage: one winner, whoever asks at the same moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from floodway.agent.federation.errors import FragmentLostError, StorageError
from floodway.agent.federation.leases import FragmentLease, LeasePast, LeaseStore, MoveDecision
from floodway.agent.federation.settlement import remove_leftovers
from floodway.job.store.store import draft_of
from tests.synced import note_syncs


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    return LeaseStore(tmp_path, seconds=10.0)


def decision(*, taken: bool, by: str = "B", at: float = 5.0) -> MoveDecision:
    return MoveDecision("A/0", "A", by, taken, at, 4.0, {"f": 1, "g": 1}, {"f": 0.5, "g": 0.5})


def at_once(work: Callable[[int], object], count: int = 8) -> list[object]:
    found: list[object] = [None] * count
    start = threading.Barrier(count)

    def run(place: int) -> None:
        start.wait()
        try:
            found[place] = work(place)
        except FragmentLostError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_lease_is_synced_with_its_folder_and_those_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = note_syncs(monkeypatch)
    LeaseStore(tmp_path / "shared").claim("f", "A", after=0, now=0.0)
    made = [path for path in (tmp_path / "shared").rglob("*") if path.is_dir()]
    assert made and synced[-2:] == ["file", f"folder {made[-1].name}"]
    assert {f"folder {path.parent.name}" for path in (tmp_path / "shared", *made)} <= set(synced)


def test_a_lease_that_is_renewed_and_the_past_are_synced_with_their_folder(
    store: LeaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lease files are removed once the past has them: a power cut must not take the past and leave them removed."""
    lease = store.claim("f", "A", after=0, now=0.0)
    synced = note_syncs(monkeypatch)
    store.renew(lease, now=1.0)
    assert synced == ["file", "folder f"]
    store.forget_leases("f", LeasePast(1, (("A", None),)), needed=[1])
    assert synced[2:] == ["file", "folder f"]


def test_what_killed_members_left_on_the_storage_is_removed(store: LeaseStore) -> None:
    store.claim("f", "A", after=0, now=0.0)
    drafts = [draft_of(store.root / place) for place in ("fragments/f/lease-00000002.json", "moves/A.0.json")]
    for draft in drafts:
        draft.parent.mkdir(exist_ok=True)
        draft.touch()
    remove_leftovers(store.root)
    assert all(draft.exists() for draft in drafts), "they may still be written"
    for draft in drafts:
        os.utime(draft, (0, 0))
    remove_leftovers(store.root)
    assert not any(draft.exists() for draft in drafts)
    assert store.current("f") is not None


def test_of_many_who_claim_an_epoch_one_wins(store: LeaseStore) -> None:
    for epoch in range(5):

        def claim(place: int, after: int = epoch) -> FragmentLease:
            return store.claim("f", f"P{place}", after=after, now=1.0)

        found = at_once(claim)
        winners = [one for one in found if isinstance(one, FragmentLease)]
        assert len(winners) == 1 and store.current("f") == winners[0]


def test_of_many_who_decide_a_move_all_get_one_answer(store: LeaseStore) -> None:
    store.claim("f", "A", after=0, now=0.0)
    answers = at_once(lambda place: store.decide(decision(taken=place % 2 == 0, at=float(place))))
    assert len(set(map(str, answers))) == 1 and store.decision("A/0") == answers[0]


def test_without_its_storage_a_move_is_not_open(store: LeaseStore) -> None:
    """An empty folder where the storage should be mounted says nothing about a move."""
    with pytest.raises(StorageError, match="Is the shared storage mounted"):
        store.decision("A/0")
    with pytest.raises(StorageError, match="Is the shared storage mounted"):
        store.decide(decision(taken=False))
    assert list(store.root.iterdir()) == []


def test_a_lease_that_was_taken_over_is_lost(store: LeaseStore) -> None:
    old = store.claim("f", "A", after=0, now=0.0)
    assert store.renew(old, now=8.0).until == 18.0
    store.claim("f", "B", after=1, now=30.0)
    with pytest.raises(FragmentLostError, match="lost fragment f to B"):
        store.check(old, now=31.0)
    with pytest.raises(FragmentLostError):
        store.renew(old, now=31.0)
    with pytest.raises(FragmentLostError, match="B holds epoch 2"):
        store.claim("f", "A", after=1, now=32.0)
    store.release(old, now=33.0)
    assert store.held_by("A") == {} and list(store.held_by("B")) == ["f"]


def test_either_side_can_finish_a_decided_move(store: LeaseStore) -> None:
    for name in "fg":
        store.claim(name, "A", after=0, now=0.0)
    taken = store.decide(decision(taken=True))
    store.claim("f", "B", after=1, now=5.0, move="A/0")  # the taker died between its two claims
    for _ in range(2):
        assert {name: [one.owner for one in line] for name, line in store.follow(taken).items()} == {
            "f": ["A", "B"],
            "g": ["A", "B"],
        }
    assert {lease.owner for lease in store.held_by("B").values()} == {"B"} and store.held_by("A") == {}
    after = store.after("g", 1)
    assert after is not None and (after.since, after.move) == (5.0, "A/0")


def test_a_withdrawn_move_changes_no_lease(store: LeaseStore) -> None:
    for name in "fg":
        store.claim(name, "A", after=0, now=0.0)
    found = store.follow(store.decide(decision(taken=False)))
    assert {name: [one.owner for one in line] for name, line in found.items()} == {"f": ["A"], "g": ["A"]}
    assert sorted(store.held_by("A")) == ["f", "g"]
    assert store.decide(decision(taken=True)).taken is False


def test_files_that_are_something_else_are_refused(store: LeaseStore) -> None:
    store.claim("f", "A", after=0, now=0.0)
    (path,) = (store.root / "fragments" / "f").glob("lease-*")
    path.write_text("{}")
    with pytest.raises(StorageError, match="not version 1"):
        store.current("f")


@pytest.mark.parametrize(
    ("chain", "why"),
    [("[null]," * 500 + "[null]", "chain.0"), ('["A", "' + "m" * 9000 + '"]', "no span of mmm")],
    ids=["many faults", "a long name"],
)
def test_a_past_with_many_faults_is_refused_in_a_few_words(store: LeaseStore, chain: str, why: str) -> None:
    """As the fuzz found it: 17,114 characters."""
    store.claim("f", "A", after=0, now=0.0)
    path = store.root / "fragments" / "f" / "past.json"
    path.write_text('{"version": 1, "epoch": 2, "chain": [' + chain + '], "spans": {}}')
    with pytest.raises(StorageError, match=why) as raised:
        store.past("f")
    assert len(str(raised.value)) < 300 + 2 * len(str(path))
