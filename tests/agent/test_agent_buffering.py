"""The buffer's agent over real logs and cuts, on a clock of its own: its worth, restarts, bad clocks and limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from floodway.agent.loop.buffering import Buffering
from floodway.agent.loop.record import Deadlines
from floodway.agent.loop.steering_loop import fragments_of
from floodway.buffering.adaptors import adaptors
from floodway.buffering.options import BufferOptions, Manager
from floodway.buffering.schedulers import schedulers
from floodway.errors import InputError
from floodway.job.decision import read_decision
from floodway.job.ledger.ledger import LedgerLine
from floodway.network.file import parse_network
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.journal import JournaledBatch, last_offsets
from floodway.spark.query.sinks import Written
from floodway.spark.source.accounts import Account
from tests.agent.buffer_plant import QUERY, START, TWO_CLASSES, Plant, bursts

SECONDS = 20.0


def around_capacity(*, urgent: float = 0.5, seconds: float = SECONDS) -> dict[str, NDArray[np.float64]]:
    """Bursts of 1.9 times what one CPU can do, then 0.3 times: 1.1 in the mean."""
    shape = {"high": 1.9, "low": 0.3, "half": 5.0, "seconds": seconds}
    return {"urgent": bursts(500 * urgent, **shape), "patient": bursts(500 * (1 - urgent), **shape)}


def in_time(plant: Plant) -> int:
    return plant.in_time.total()


def settled_once(plant: Plant) -> None:
    """Every position is settled by one batch, and what was read is what the offsets say."""
    for name in plant.network.streams:
        offsets = [found[name] for found in plant.offsets if name in found]
        for before, after in pairwise(offsets):
            assert after.start == before.end
        ids = [i for taken in plant.taken for i in taken.get(name, [])]
        assert len(ids) == len(set(ids)) == plant.account[name].kept
        assert ids == sorted(ids)


def test_edf_pid_and_cleaner_get_a_tenth_more_in_time_than_cob(tmp_path: Path) -> None:
    arrivals = around_capacity(seconds=20)
    ours = Plant(tmp_path / "cwb", BufferOptions(), arrivals).run(20)
    cob = Plant(tmp_path / "cob", BufferOptions("cob"), arrivals).run(20)
    aurora = Plant(tmp_path / "aurora", BufferOptions("aurora"), arrivals).run(20)
    assert in_time(ours) >= 1.1 * in_time(cob)
    assert in_time(ours) >= 1.1 * in_time(aurora)
    assert ours.late.total() <= 0.02 * in_time(ours)
    for plant in (ours, cob, aurora):
        settled_once(plant)
    assert sum(account.cleaner + account.adaptor for account in ours.account.values()) > 0
    assert all(account.cleaner == 0 for account in cob.account.values())


def test_short_bursts_cost_nothing(tmp_path: Path) -> None:
    arrivals = {"urgent": np.zeros(0), "patient": bursts(500, high=1.3, low=0.1, half=4.0, seconds=16)}
    plant = Plant(tmp_path, BufferOptions(), arrivals).run(24)
    assert plant.account["patient"] == Account(offered=len(arrivals["patient"]))
    assert plant.in_time["patient"] == len(arrivals["patient"])


@pytest.mark.parametrize("scheduler", list(schedulers()))
def test_every_scheduler_serves_and_conserves(tmp_path: Path, scheduler: str) -> None:
    plant = Plant(tmp_path, BufferOptions(scheduler=scheduler), around_capacity(seconds=6)).run(6)
    settled_once(plant)
    assert plant.in_time.total() > 0


@pytest.mark.parametrize("adaptor", list(adaptors()))
def test_every_adaptor_keeps_within_the_limit(tmp_path: Path, adaptor: str) -> None:
    options = BufferOptions(adaptor=adaptor, limit=200)
    plant = Plant(tmp_path, options, around_capacity(seconds=6)).run(6)
    settled_once(plant)
    assert sum(account.adaptor for account in plant.account.values()) > 0
    for offsets in plant.offsets:
        # Counts are expected ones of a hash: a range of n tuples strays by a few times the root of n.
        assert sum(offset.cursor(0).waiting for offset in offsets.values()) <= 200


def test_a_higher_priority_is_served_first(tmp_path: Path) -> None:
    network = parse_network(TWO_CLASSES.replace("deadline: 12s", "deadline: 12s, priority: 5"))
    options = BufferOptions(scheduler="priority")
    plant = Plant(tmp_path, options, around_capacity(seconds=10), network=network).run(10)
    served = {name: account.kept / account.offered for name, account in plant.account.items()}
    assert served["patient"] > served["urgent"]


def test_a_queue_limit_of_zero_drops_counts_and_goes_on(tmp_path: Path) -> None:
    plant = Plant(tmp_path, BufferOptions(limit=0), around_capacity(seconds=10)).run(12)
    settled_once(plant)
    assert all(account.adaptor > 0 and account.kept > 0 for account in plant.account.values())
    assert plant.last["urgent"].end == plant.backends["urgent"].latest()


def test_deadlines_that_no_batch_can_meet_are_counted_drops(tmp_path: Path) -> None:
    options = BufferOptions(deadlines={"urgent": 0.2})
    plant = Plant(tmp_path, options, around_capacity(seconds=10)).run(12)
    settled_once(plant)
    assert plant.account["urgent"].kept == 0
    assert plant.account["urgent"].cleaner > 0.9 * plant.account["urgent"].offered > 0
    assert plant.in_time["patient"] > 1000  # and the others are none the worse


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plant:
    """Ten seconds whose clock nobody sets."""
    return Plant(tmp_path_factory.mktemp("plain"), BufferOptions(), around_capacity(seconds=10)).run(10)


@pytest.mark.parametrize("step", [step for one in (1.0, 60.0, 3600.0, 86400.0) for step in (-one, one)])
def test_a_clock_that_is_set_changes_nothing_that_is_kept_or_dropped(plain: Plant, tmp_path: Path, step: float) -> None:
    jumps = {4.0: step, 7.0: -step / 2}
    stepped = Plant(tmp_path, BufferOptions(), plain.arrivals, clock_jumps=jumps).run(10)
    settled_once(stepped)
    assert sum(account.cleaner + account.adaptor for account in plain.account.values()) > 0
    assert len(plain.taken) > 3
    if abs(step) > 10:
        assert stepped.taken == plain.taken and stepped.account == plain.account
    else:  # tuples that had waited for as long as the step count as younger, by at most that much
        kept = sum(account.kept for account in plain.account.values())
        assert sum(account.kept for account in stepped.account.values()) == pytest.approx(kept, rel=0.1)


def test_a_stream_without_a_deadline_waits_and_is_served_last(tmp_path: Path) -> None:
    network = parse_network(TWO_CLASSES.replace(", deadline: 12s", ""))
    plant = Plant(tmp_path, BufferOptions(), around_capacity(seconds=10), network=network).run(20)
    settled_once(plant)
    assert plant.account["patient"].cleaner == 0
    assert plant.account["patient"].kept > 0


def test_without_a_steering_everything_passes_after_a_while(tmp_path: Path) -> None:
    plant = Plant(tmp_path, BufferOptions(), around_capacity(seconds=6), silent_from=4.0).run(24)
    settled_once(plant)
    assert plant.last["urgent"].end == plant.backends["urgent"].latest()


def test_a_restart_knows_the_queues_from_the_journal_and_a_replay_reads_the_same(tmp_path: Path) -> None:
    plant = Plant(tmp_path, BufferOptions(), around_capacity(seconds=20)).run(8)
    checkpoint = plant.layout.checkpoint(fragments_of(plant.network)[QUERY]) / "offsets"
    checkpoint.mkdir(parents=True)
    for number, found in enumerate(plant.offsets):
        last = {name: next(o[name] for o in reversed(plant.offsets[: number + 1]) if name in o) for name in found}
        lines = ["v1", f'{{"batchTimestampMs": {number}}}', *(json.dumps(offset.to_json()) for offset in last.values())]
        (checkpoint / str(number)).write_text("\n".join(lines))
    assert last_offsets(checkpoint.parent) == plant.last
    for found, taken in zip(plant.offsets, plant.taken, strict=True):
        assert {name: plant.read(offset)[0] for name, offset in found.items()} == taken

    queues = [queue for part in plant.buffering._parts.values() for queue in part.queues]
    again = Buffering(plant.options, plant.network, fragments_of(plant.network), plant.layout)
    restored = [queue for part in again._parts.values() for queue in part.queues]
    assert [queue.cursor for queue in restored] == [queue.cursor for queue in queues]
    assert any(queue.cursor.waiting for queue in restored)

    before = plant.last["urgent"].end[0]
    plant.buffering = again
    plant.run(6)
    settled_once(plant)
    assert plant.last["urgent"].end[0] > before


def test_a_decision_made_before_a_cut_does_nothing_after_it(tmp_path: Path) -> None:
    plant = Plant(tmp_path, BufferOptions(), around_capacity(seconds=10)).run(5)
    while plant.under_way is not None:
        plant.run(0.1)
    stale = read_decision(plant.layout.decision)
    cut = plant.cut_with(stale)
    if cut:
        plant.last.update(cut)
        assert plant.cut_with(stale) == {}
    plant.buffering.cut(QUERY, JournaledBatch(99, 0, cut))


def test_partitions_may_have_deadlines_of_their_own(tmp_path: Path) -> None:
    options = BufferOptions(deadlines={"patient/0": 5.0})
    plant = Plant(tmp_path, options, around_capacity(seconds=2))
    kinds = {q.name: q.kind.deadline_seconds for part in plant.buffering._parts.values() for q in part.queues}
    assert kinds == {"urgent/0": 3.0, "patient/0": 5.0}
    with pytest.raises(InputError, match="patient/7, which its log has not"):
        Plant(tmp_path / "wrong", BufferOptions(deadlines={"patient/7": 5.0}), {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BufferOptions(deadlines={"urgent": -1.0}), "a deadline of -1 s for urgent"),
        (BufferOptions(deadlines={"urgent": 0.0}), "a deadline of 0 s"),
        (BufferOptions(deadlines={"urgnet": 1.0}), "urgnet.*no stream of two-classes"),
        (BufferOptions(deadlines={"urgent/x": 1.0}), "no stream of two-classes"),
        (BufferOptions(limit=-1), "a queue limit of -1"),
        (BufferOptions(scheduler="lifo"), "no scheduler is called 'lifo'"),
        (BufferOptions(adaptor="pdi"), "no adaptor is called 'pdi'"),
        (BufferOptions(permitted_miss_ratio=1.0), "miss ratio of 1"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(options: BufferOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        options.checked(parse_network(TWO_CLASSES))


@pytest.mark.parametrize("manager", ["cwb", "cob", "aurora"])
def test_a_network_without_any_deadline_is_refused(manager: Manager) -> None:
    bare = parse_network(TWO_CLASSES.replace(", deadline: 12s", "").replace(", deadline: 3s", ""))
    with pytest.raises(InputError, match="no stream of two-classes has a deadline"):
        BufferOptions(manager).checked(bare)


def report(delivered: Mapping[str, Written], *, ended: float) -> FragmentReport:
    return FragmentReport(QUERY, JournaledBatch(1, 0, {}), 0.0, ended, (), delivered)


def written(*entries: tuple[float, str, int]) -> Written:
    """(arrival in seconds after START, queue, tuples)."""
    arrivals = np.array([int((START + at) * 1e3) for at, _, _ in entries], dtype=np.int64)
    counts = np.array([count for _, _, count in entries], dtype=np.int64)
    return Written(arrivals, counts, tuple(queue for _, queue, _ in entries))


def test_deadlines_are_judged_by_the_queue_a_tuple_came_from() -> None:
    seen = Deadlines(parse_network(TWO_CLASSES), {"patient/1": 1.0})
    both = written((6.0, "urgent/0", 10), (8.0, "urgent/0", 5), (6.0, "patient/0", 20), (8.0, "patient/1", 2))
    assert seen.observe(report({"qu": both}, ended=START + 10)) == pytest.approx(12 / 37)
    purged = LedgerLine("q", 1, "urgent", "cleaner", 25, 20, 5)
    figures = seen.to_dict([purged])
    assert figures["urgent"] == {
        "deadline": 3.0,
        "in_time": 5,
        "late": 10,
        "purged": 5,
        "miss_ratio": pytest.approx(10 / 15),
        "miss_ratio_with_purged": pytest.approx(15 / 20),
    }
    assert (figures["patient"]["in_time"], figures["patient"]["late"]) == (20, 2)


def test_results_that_lost_their_queue_are_judged_by_the_strictest_deadline_above() -> None:
    union = TWO_CLASSES.replace("outputs: {qu: {from: u}, qp: {from: p}}", "outputs: {q: {from: all}}").replace(
        "  p: {node", "  all: {node: A, from: [u, p], kind: union}\n  p: {node"
    )
    seen = Deadlines(parse_network(union))
    assert seen.observe(report({"q": written((6.0, "", 4))}, ended=START + 10)) == 1.0
    assert seen.late == {"urgent": 4}
    untimed = replace(written((6.0, "urgent/0", 4)), arrival_ms=np.array([-1]))
    assert seen.observe(report({"q": untimed, "a->b": untimed}, ended=START + 10)) is None
