"""Which decision a batch finds while clocks step, queries restart and drivers die: no Spark, no waiting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.job.store.store import InTime, StoreError, always
from floodway.spark.shed.control_file import ControlTable, ControlTableError
from floodway.spark.shed.control_table import MOST_OTHERS, Entry, Table
from floodway.spark.shed.open_batches import JOURNALING_US, TICK_US
from floodway.units import PPM
from tests.effort import tries

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
START = 1_700_000_000 * SECOND
STEPS = (SECOND, MINUTE, HOUR, DAY)
EXPIRES = 5 * SECOND


class MemoryStore:
    """A store in memory; `meanwhile` is done while a write is under way, before the clock is asked whether there is
    time left, `stalled` after that, `seen` when others see it.
    """

    uri = "memory:"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.meanwhile: list[Callable[[], None]] = []
        self.stalled: list[Callable[[], None]] = []
        self.seen: list[Callable[[], None]] = []

    def read(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        do_all(self.meanwhile)
        if not in_time():
            return False
        do_all(self.stalled)
        self.objects[name] = data
        do_all(self.seen)
        return True

    def create(self, name: str, data: bytes) -> bool:
        return self.objects.setdefault(name, data) is data

    def names(self, under: str = "") -> list[str]:
        return sorted(name for name in self.objects if name.startswith(under))

    def folders(self, under: str = "") -> list[str]:
        return []

    def remove(self, name: str) -> None:
        self.objects.pop(name, None)

    def modified(self, name: str) -> float | None:
        return None


def do_all(acts: list[Callable[[], None]]) -> None:
    while acts:
        acts.pop(0)()


@dataclass
class Query:
    """A query as Spark runs it: one batch at a time, journaled with its timestamp before it runs."""

    checkpoint: MemoryStore = field(default_factory=MemoryStore)
    batch: int = 0
    time_us: int | None = None
    """Of the batch that has begun and is not committed."""
    journaled: bool = False
    found: tuple[int, int] | None = None
    """The entry that this batch found when it first read the table, and the keep that follows from it."""
    committed_us: int | None = None
    unreported: list[tuple[int, int]] = field(default_factory=list)
    running: bool = False


@dataclass
class World:
    """A driver with a shed in some queries, whose checkpoints it can read or not."""

    queries: dict[str, Query]
    journals: bool = True
    now_us: int = START
    store: MemoryStore = field(default_factory=MemoryStore)
    written_us: int = 0

    def __post_init__(self) -> None:
        self.boot()
        for name in self.queries:
            self.start(name)

    def clock(self) -> int:
        self.now_us += 2_000  # reading a clock, or a file, takes time
        return self.now_us

    def boot(self) -> None:
        """The driver starts; what it knew and was not in a file is gone."""
        for query in self.queries.values():
            if not query.journaled:
                query.time_us = None  # never happened
            query.running = False
            query.unreported.clear()
        places = {name: name for name in self.queries} if self.journals else {}
        self.control = ControlTable(
            self.store, self.clock, Entry(0, 0), places, lambda name: self.queries[name].checkpoint, EXPIRES
        )

    def start(self, name: str) -> None:
        query = self.queries[name]
        if not query.running:
            query.running = True
            self.control.open_batches.started(name, name if self.journals else None, self.clock())
            self.read(name)

    def stop(self, name: str) -> None:
        if self.queries[name].running:
            self.report(name)
            self.journal(name)
            self.queries[name].running = False
            self.control.open_batches.ended(name, self.clock())

    def begin(self, name: str) -> None:
        """A batch takes its timestamp; it is journaled a moment later, when it does anything else."""
        query = self.queries[name]
        if query.running and query.time_us is None:
            query.time_us, query.found, query.journaled = self.now_us // TICK_US * TICK_US, None, False
            self.check_obeyed(query.time_us, name)

    def journal(self, name: str) -> None:
        query = self.queries[name]
        if query.time_us is not None and not query.journaled:
            metadata = json.dumps({"batchTimestampMs": query.time_us // TICK_US})
            query.checkpoint.write(f"offsets/{query.batch}", f"v1\n{metadata}\n{{}}".encode())
            query.journaled = True

    def begin_meanwhile(self, name: str) -> None:
        """A batch begins, or has begun and is not journaled yet; it reads while the next decision is being written."""
        self.store.meanwhile += [lambda: self.begin(name), lambda: self.read(name)]
        self.put()

    def write_slowly(self, name: str) -> None:
        """The same, and the disk takes longer than the first guard."""
        self.store.meanwhile += [lambda: setattr(self, "now_us", self.now_us + 3 * SECOND)]
        self.begin_meanwhile(name)

    def check_obeyed(self, time_us: int, name: str) -> None:
        """A batch that begins now has the latest decision, unless it may have begun before that was in place."""
        latest = self.file().latest
        others = [other.time_us for at, other in self.queries.items() if at != name]
        others += [other.committed_us for other in self.queries.values()]
        if time_us not in others and not self.written_us - JOURNALING_US - TICK_US <= time_us < latest.valid_from_us:
            found = self.file().at(time_us)
            assert (found.seq, found.expired(time_us)) == (latest.seq, latest.expired(time_us))

    def read(self, name: str) -> None:
        """The batch that runs looks up its decision, for the first time or again."""
        query = self.queries[name]
        if query.running and query.time_us is not None:
            self.journal(name)
            entry = self.file().at(query.time_us)
            found = entry.seq, entry.keep_at(query.time_us)
            assert query.found in (None, found), f"{name}, batch {query.batch}: {query.found}, then {found}"
            query.found = found

    def commit(self, name: str) -> None:
        query = self.queries[name]
        if query.running and query.time_us is not None:
            self.read(name)
            query.checkpoint.write(f"commits/{query.batch}", b"v1\n{}")
            query.unreported.append((query.batch, query.time_us))
            query.batch, query.time_us, query.committed_us = query.batch + 1, None, query.time_us

    def report(self, name: str) -> None:
        query = self.queries[name]
        for batch, time_us in query.unreported:
            self.control.open_batches.reported(name, batch, time_us)
            self.put()
        query.unreported.clear()

    def idle(self, name: str) -> None:
        query = self.queries[name]
        if query.running and query.time_us is None and not query.unreported:
            self.control.open_batches.idle(name, self.now_us)

    def put(self) -> None:
        self.written_us = self.now_us
        self.control.put(replace(self.control.latest, keep_ppm=self.control.latest.keep_ppm % 999_999 + 1))
        assert len(self.control.table.others) <= MOST_OTHERS

    def renew(self) -> None:
        self.written_us = self.now_us
        self.control.renew()

    def file(self) -> Table:
        found = Table.decode(self.store.objects["control.json"])
        assert found is not None
        return found


QUERY_ACTIONS: tuple[Callable[[World, str], None], ...] = (
    World.begin, World.begin, World.begin_meanwhile, World.write_slowly, World.journal, World.read, World.commit,
    World.commit, World.report, World.idle, World.stop, World.start,
)  # fmt: skip
per_query = st.tuples(st.sampled_from(QUERY_ACTIONS), st.sampled_from(["a", "b"]))
passing = st.integers(0, 3 * SECOND)
stepping = st.sampled_from([sign * step for step in STEPS for sign in (-1, 1)])
writing = st.sampled_from(["put", "renew"])
dying = st.just("boot")


def play(world: World, actions: list[object]) -> None:
    for action in actions:
        if isinstance(action, tuple):
            action[0](world, action[1])
        elif isinstance(action, int):
            for name in world.queries:
                world.journal(name)
            world.now_us += action
        elif action == "put":
            world.put()
        elif action == "renew":
            world.renew()
        else:
            world.boot()
    for name in world.queries:  # every batch that is still open is repeated once more
        world.start(name)
        world.read(name)


@given(
    st.lists(st.one_of(per_query, per_query, per_query, passing, stepping, writing, dying), min_size=10, max_size=100)
)
@settings(max_examples=tries(400))
def test_a_batch_finds_one_entry_and_the_next_one_the_latest(actions: list[object]) -> None:
    world = World({"a": Query(), "b": Query()})
    play(world, actions)


@given(st.lists(st.one_of(per_query, per_query, per_query, passing, writing, dying), min_size=10, max_size=100))
@settings(max_examples=tries(200))
def test_without_journals_replays_agree_while_the_clock_goes_on(actions: list[object]) -> None:
    play(World({"a": Query(), "b": Query()}, journals=False), actions)


@pytest.mark.parametrize(
    # Without a journal a step shorter than the batches cannot be told from none.
    ("step", "journals"),
    [(-SECOND, True), *((step, journals) for step in (-MINUTE, -HOUR, -DAY) for journals in (True, False))],
)
def test_a_clock_set_back_is_obeyed_by_the_next_batch_and_not_by_the_one_before(step: int, journals: bool) -> None:
    world = World({"a": Query()}, journals=journals)
    for _ in range(3):
        world.begin("a")
        world.now_us += 300_000
        world.commit("a")
        world.report("a")
    world.begin("a")
    world.read("a")
    world.now_us += step
    world.put()
    world.read("a")
    world.commit("a")
    world.report("a")
    world.now_us += 3 * SECOND
    world.begin("a")
    found = world.file().at(world.queries["a"].time_us or 0)
    assert found == world.control.latest
    # A replay by the next process finds what the first run found.
    world.read("a")
    world.boot()
    world.put()
    world.start("a")


def test_a_batch_that_begins_after_unreported_ones_is_found_in_the_journal() -> None:
    world = World({"a": Query()})
    for number in range(4):
        world.begin("a")
        world.commit("a")
        world.now_us += SECOND
        if number == 0:
            world.report("a")  # and of none after that: the listener lags
    world.begin("a")
    world.read("a")
    world.now_us += MINUTE
    world.put()
    world.read("a")


def test_a_batch_is_journaled_late_and_after_the_clock_was_set_back() -> None:
    world = World({"a": Query()})
    world.begin("a")
    world.commit("a")
    world.report("a")
    world.now_us -= HOUR
    world.begin("a")
    world.now_us += SECOND
    world.begin_meanwhile("a")
    world.read("a")


def test_one_quiet_query_of_two_leaves_the_file_small_and_finds_its_entry() -> None:
    world = World({"a": Query(), "b": Query()})
    world.begin("b")
    world.read("b")  # and stays in this batch
    for number in range(3000):
        world.begin("a")
        world.now_us += SECOND
        world.commit("a")
        world.report("a")
        if number == 2000:
            world.stop("b")
    assert len(world.store.objects["control.json"]) < 2000
    world.start("b")  # which reads again, and must find what it found
    world.commit("b")
    world.report("b")
    assert world.control.all_know(world.control.latest.seq - 5)


def test_without_a_journal_the_oldest_entries_go_first_and_decisions_are_still_written() -> None:
    world = World({"a": Query(), "b": Query()}, journals=False)
    world.begin("b")
    for _ in range(300):
        world.begin("a")
        world.now_us += SECOND
        world.commit("a")
        world.report("a")
    assert len(world.file().others) == MOST_OTHERS
    world.idle("b")
    world.control.put(replace(world.control.latest, mode="off"))
    world.now_us += SECOND
    assert world.file().at(world.now_us).mode == "off"


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


@given(st.lists(spans, max_size=6))
def test_a_change_leaves_begun_timestamps_as_they_were(changes: list[list[tuple[int, int]]]) -> None:
    table = Table(Entry(0, 0))
    expected = dict.fromkeys(range(41), 0)
    for seq, begun in enumerate(changes, 1):
        table = table.changed(Entry(seq, 0), begun)
        kept = {time for begin, end in begun for time in range(begin, end)}
        expected = {time: old if time in kept else seq for time, old in expected.items()}
        assert {time: table.at(time).seq for time in expected} == expected
        assert table.oldest_seq <= min(expected.values())
        assert all(a.end_us <= b.begin_us for a, b in zip(table.others, table.others[1:], strict=False))
    assert Table.decode(table.encode()) == table


def test_a_decision_that_is_renewed_holds_and_one_that_is_not_expires() -> None:
    world = World({"a": Query()})
    world.begin("a")
    world.read("a")
    for _ in range(10):  # in one long batch
        world.now_us += 3 * SECOND
        world.renew()
        assert len(world.file().others) <= 1
    world.now_us += 3 * SECOND
    assert not world.file().at(world.now_us).expired(world.now_us)
    world.now_us += 3 * SECOND
    entry = world.file().at(world.now_us)
    assert entry.expired(world.now_us) and entry.keep_at(world.now_us) == PPM
    assert entry.seq == world.control.latest.seq


def test_a_batch_that_met_an_expired_decision_keeps_everything_also_when_it_is_repeated() -> None:
    world = World({"a": Query()})
    world.put()
    world.now_us += MINUTE
    world.begin("a")
    world.read("a")
    assert world.queries["a"].found == (1, PPM)
    world.renew()
    world.now_us += SECOND
    world.put()
    world.boot()
    world.start("a")  # which reads again, and must find what it found
    world.commit("a")
    world.report("a")
    world.now_us += SECOND
    assert world.file().at(world.now_us).keep_at(world.now_us) < PPM


class KilledError(Exception):
    """The driver is killed."""


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_a_write_that_takes_long_is_not_seen_before_it_is_in_time(in_memory: bool, dies: bool) -> None:
    """A batch that begins meanwhile finds in its replay what it found, also if the driver dies right after it."""
    world = World({"a": Query()}, journals=in_memory)
    memory: list[bytes] = []
    if in_memory:
        world.control.also_to(memory.append)
    before = world.control.latest

    def begin_late() -> None:
        world.now_us += 5 * SECOND  # longer than the guard of a first try
        world.begin("a")
        world.read("a")

    def die() -> None:
        raise KilledError

    world.store.meanwhile.append(begin_late)
    if dies:
        world.store.seen.append(die)
        with pytest.raises(KilledError):
            world.put()
        world.boot()
        world.start("a")
    else:
        world.put()
        assert world.control.latest.valid_from_us > world.now_us
        assert not in_memory or Table.decode(memory[-1]) == world.file()
    world.read("a")
    assert world.queries["a"].found == (before.seq, before.keep_ppm) and world.control.late_writes == 0


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_driver_held_up_at_the_replacement_is_counted_or_repeats_it(in_memory: bool) -> None:
    world = World({"a": Query()})
    memory: list[bytes] = []
    if in_memory:
        world.control.also_to(memory.append)

    def stall() -> None:
        world.now_us += 3 * SECOND // 2

    world.store.stalled.append(stall)
    world.put()
    assert world.control.late_writes == (0 if in_memory else 1)
    assert (world.control.latest.valid_from_us > world.now_us) == in_memory
    world.store.stalled.append(stall)
    world.put()  # with a guard as long as that
    assert world.control.late_writes == (0 if in_memory else 1)
    assert world.control.latest.valid_from_us > world.now_us


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_request_to_an_object_store_has_a_second(in_memory: bool) -> None:
    """There one request both takes long and makes the table visible: its length cannot be looked at before."""
    world = World({"a": Query()})
    world.store.uri = "s3a://bucket/state"
    memory: list[bytes] = []
    if in_memory:
        world.control.also_to(memory.append)
    world.store.stalled.append(lambda: setattr(world, "now_us", world.now_us + SECOND * 9 // 10))
    world.put()
    assert world.control.late_writes == 0 and world.control.latest.valid_from_us > world.now_us


def test_a_clock_set_forward_at_the_replacement_does_not_delay_the_next_decisions() -> None:
    world = World({"a": Query()})
    world.store.stalled.append(lambda: setattr(world, "now_us", world.now_us + DAY))
    world.put()
    world.put()
    assert world.control.latest.valid_from_us - world.now_us < 5 * SECOND


def test_a_disk_that_is_never_in_time_still_gets_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"a": Query()})
    slow = world.store.write

    def write(name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        world.now_us += MINUTE
        return slow(name, data, durable=durable, in_time=in_time)

    monkeypatch.setattr(world.store, "write", write)
    world.control.put(replace(world.control.latest, mode="off"))
    assert (world.file().latest.mode, world.control.late_writes) == ("off", 1)


def fail() -> None:
    raise StoreError("no answer", hint="")


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_write_that_took_place_although_the_store_says_it_failed_is_known(in_memory: bool) -> None:
    """Else batches would go by one of the two, and a driver after this one by the other."""
    world = World({"a": Query()}, journals=False)
    memory: list[bytes] = []
    if in_memory:
        world.control.also_to(memory.append)
    world.store.seen.append(fail)
    world.put()
    assert world.control.latest.seq == 1 and (not in_memory or Table.decode(memory[-1]) == world.file())
    world.now_us += 3 * SECOND
    world.begin("a")
    world.read("a")
    assert world.queries["a"].found == (1, 2)
    world.put()
    world.read("a")


def test_a_write_that_takes_place_after_the_store_said_it_failed_is_known() -> None:
    """Without a journal: batches begun after it have met it."""
    world = World({"a": Query()}, journals=False)
    late: dict[str, bytes] = {}

    def fail_now() -> None:
        late.update(world.store.objects)
        world.store.objects["control.json"] = before
        fail()

    before = world.store.objects["control.json"]
    world.store.seen.append(fail_now)
    with pytest.raises(StoreError):
        world.put()
    world.store.objects.update(late)
    world.now_us += 3 * SECOND
    world.begin("a")
    world.read("a")
    assert world.queries["a"].found == (1, 2)
    world.put()
    world.read("a")


@pytest.mark.parametrize("number", ['"rate": 1e999', '"budget": -1e999', '"seq": 99999999999', '"salt": 9e30'])
def test_a_table_that_no_decision_could_follow_is_refused(number: str) -> None:
    """Taken, it could not be written again, nor could Spark read it: the operator could not turn the shed off."""
    world = World({"a": Query()})
    entry = {"seq": 3, "valid_from_us": 0, "keep_ppm": 5, "mode": "enforce", **json.loads(f"{{{number}}}")}
    world.store.objects["control.json"] = json.dumps({"version": 2, "latest": entry}).encode()
    with pytest.raises(ControlTableError, match="not a control table of version 2"):
        world.boot()


def test_a_foreign_control_table_is_refused() -> None:
    world = World({"a": Query()})
    world.store.objects["control.json"] = b'{"version": 1, "history": []}'
    with pytest.raises(ControlTableError, match="not a control table of version 2"):
        world.boot()
