"""Many moves: the files on the shared storage are bounded, and owners, spans and balances are as with all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from floodway.agent.federation import books
from floodway.agent.federation.errors import FragmentLostError
from floodway.agent.federation.leases import FragmentLease, LeaseStore, MoveDecision
from floodway.agent.federation.settlement import settle_storage
from floodway.agent.federation.spans import spans
from tests.agent.federation_sides import Sides

KEPT_SECONDS = 60.0
MOVES = 40


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Sides]]:
    monkeypatch.setattr(books, "SETTLE_SECONDS", 10.0)
    made: list[Sides] = []

    def sides(kept_seconds: float) -> Sides:
        made.append(Sides(tmp_path / str(len(made)), kept_seconds=kept_seconds))
        return made[-1]

    yield sides
    for one in made:
        one.close()


def there_and_back(sides: Sides, number: int) -> None:
    """f0 stays with B, who lends it to C and gets it back; f1 goes to C and is taken back by A."""
    if number == 0:
        sides.give("A/0", "B", "f0")
    sides.give(f"B/{number}", "C", "f0", price=3.0)
    sides.give(f"A/{number + 1}", "C", "f1")
    sides.live(10.0)
    sides.give(f"C/{2 * number}", "B", "f0", price=3.0)
    sides.give(f"C/{2 * number + 1}", "A", "f1")
    sides.live(10.0)


def files(sides: Sides) -> int:
    return sum(path.is_file() for path in sides.store.root.rglob("*"))


def balances(sides: Sides) -> dict[str, dict[str, float]]:
    return {name: side.journal.balances() for name, side in sides.members.items()}


def test_many_moves_leave_a_bounded_number_of_files(make: Callable[[float], Sides]) -> None:
    short, whole = make(KEPT_SECONDS), make(1e9)
    counts = []
    for number in range(MOVES):
        for sides in (short, whole):
            there_and_back(sides, number)
        counts.append(files(short))
        if number % 10 == 5:
            for name in "ABC":
                short.restart(name)
    # What is younger than the bound is all there is: as much after forty moves as after ten.
    assert max(counts[10:]) <= max(counts[:10]) < files(whole) / 4
    for sides in (short, whole):
        sides.live(20.0)
    for name, known in balances(whole).items():
        assert balances(short)[name] == pytest.approx(known)
    assert {name: side.engine.running for name, side in short.members.items()} == {"A": {"f1"}, "B": {"f0"}, "C": set()}
    assert not [one for side in short.members.values() for one in side.journal.entries() if one.disputed]
    # A still pays B for f0, under the first move of all.
    (row,) = short.members["A"].journal.running_moves()
    assert row.id == "A/0" and short.store.decision("A/0") is not None


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    """f was claimed by A, taken by B and taken back, five times, long ago; both have settled the first four."""
    store = LeaseStore(tmp_path, seconds=10.0)
    store.claim("f", "A", after=0, now=0.0)
    for number in range(5):
        at = 10.0 * number
        wanted = MoveDecision(f"A/{number}", "A", "B", True, at, 4.0, {"f": 2 * number + 1}, {"f": 0.5})
        store.follow(store.decide(wanted))
        lease = store.current("f")
        store.claim("f", "A", after=2 * number + 2, now=at + 5.0, lost=lease)
        for side in "AB" if number < 4 else "A":
            store.note_settled(wanted.id, side)
    return store


def names(store: LeaseStore) -> list[str]:
    return sorted(path.name for path in store.root.rglob("*.json"))


def test_the_giver_and_the_origin_remove_and_nobody_else(store: LeaseStore) -> None:
    before = names(store)
    settle_storage(store, "B", 1e6)
    assert names(store) == before
    known = spans(store.history("f"))["A/4"]
    settle_storage(store, "A", 1e6)
    left = ["A.4.json", "A.4.settled-A.json", *(f"lease-{epoch:08d}.json" for epoch in (9, 10, 11)), "past.json"]
    assert names(store) == left
    past = store.past("f")
    assert past.epoch == 9 and dict(past.spans) == {}, "the span of A/4 begins after it"
    assert [lease.epoch for lease in store.history("f", after=past.epoch)] == [10, 11]
    store.note_settled("A/4", "B")
    later = store.claim("f", "A", after=11, now=60.0)
    settle_storage(store, "A", 1e6)
    assert names(store) == ["lease-00000011.json", "lease-00000012.json", "past.json"]
    assert store.current("f") == later and known.end is not None


def test_what_one_side_has_not_settled_stays_as_it_is_owed(store: LeaseStore) -> None:
    known = spans(store.history("f"))["A/4"]
    for after in (11, 12, 13):
        store.claim("f", "A", after=after, now=60.0 + after)
    settle_storage(store, "A", 1e6)
    assert store.past("f").epoch == 12 and dict(store.past("f").spans) == {"A/4": known}
    decision = store.decision("A/4")
    assert decision is not None
    # Whoever comes back still finds how it ended.
    line = store.follow(decision)["f"]
    assert [lease.epoch for lease in line] == [9, 10, 11, 13, 14] and line[1].move == "A/4"


def test_who_slept_finds_that_its_lease_is_past(store: LeaseStore) -> None:
    """It looked, slept for weeks, and wrote: its file is there again, and the next is not."""
    old = FragmentLease("f", 2, "B", 0.0, 10.0, "A/0")
    settle_storage(store, "A", 1e6)
    path = store.root / "fragments" / "f" / "lease-00000002.json"
    path.write_bytes((store.root / "fragments" / "f" / "lease-00000010.json").read_bytes().replace(b": 10,", b": 2,"))
    with pytest.raises(FragmentLostError):
        store.check(old, now=1e6)
    assert store.current("f") is not None and set(store.held_by("A")) == {"f"}
    settle_storage(store, "A", 1e6)
    assert not path.exists()


def test_what_is_young_stays(store: LeaseStore) -> None:
    before = [name for name in names(store) if name.startswith("lease")]
    settle_storage(store, "A", 0.0)
    assert [name for name in names(store) if name.startswith("lease")] == before
