"""A buffer's steps at the source: taken over whole or not at all, journaled, accounted for to the tuple."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.buffering.ranges import Cursor
from floodway.errors import InputError
from floodway.job.decision import (
    DecisionError,
    Drop,
    JobDecision,
    Mode,
    QueueStep,
    StreamDecision,
    read_decision,
    write_decision,
)
from floodway.spark.log import PositionError, Span
from floodway.spark.source.accounts import Account
from floodway.spark.source.cut import cut_batch
from floodway.spark.source.drops import kept_mask, kept_runs, tuple_ids
from floodway.spark.source.offsets import BatchOffset, count_kept, parse_offset
from floodway.units import PPM
from tests.effort import tries

STEP = QueueStep(cleaned=120, read_from=130, end=180, cursor=(100, 200, PPM, 300, 500_000))


def decided(*steps: QueueStep, mode: Mode = "enforce", keep_ppm: int = PPM, issued_us: int = 0) -> JobDecision:
    stream = StreamDecision(keep_ppm, buffer=dict(enumerate(steps)))
    return JobDecision(plan="7", mode=mode, streams={"s": stream}, issued_us=issued_us)


def cut(
    decision: JobDecision,
    *spans: Span,
    previous: BatchOffset | None = None,
    skip_lost: bool = False,
    silent: bool = False,
) -> BatchOffset | None:
    before = previous or BatchOffset("s", {0: 0}, {0: 100})
    found = cut_batch(
        before,
        dict(enumerate(spans)),
        decision,
        arcs=(),
        limit=None,
        skip_lost=skip_lost,
        where="log",
        silent=silent,
    )
    return None if found is None else parse_offset(json.dumps(found.to_json()))


def test_a_step_is_journaled_as_it_is() -> None:
    batch = cut(decided(STEP), Span(100, 350))
    assert batch is not None
    assert (batch.start, batch.end, batch.queues) == ({0: 100}, {0: 180}, {0: (120, 130, 200, PPM, 300, 500_000)})
    assert batch.ranges() == [(0, 130, 180)]
    assert batch.account() == Account(offered=80, adaptor=10, cleaner=20)
    assert batch.cursor(0) == Cursor(180).extend(200).extend(300, keep_ppm=500_000)
    assert batch.plan == "7"


def test_a_step_applied_twice_does_nothing() -> None:
    first = cut(decided(STEP), Span(100, 350))
    assert cut(decided(STEP), Span(180, 400), previous=first) is None


def test_a_step_that_knows_more_than_the_log_waits() -> None:
    assert cut(decided(STEP), Span(100, 299)) is None


def test_a_partition_without_a_step_keeps_its_queue() -> None:
    second = QueueStep(cleaned=5, read_from=5, end=8, cursor=(5, 20, 250_000))
    start = BatchOffset("s", {0: 0, 1: 0}, {0: 100, 1: 5})
    first = cut(decided(STEP, second), Span(100, 350), Span(5, 30), previous=start)
    assert first is not None and first.end == {0: 180, 1: 8}
    again = QueueStep(cleaned=180, read_from=180, end=190, cursor=(180, 350, PPM))
    batch = cut(decided(again), Span(180, 350), Span(8, 30), previous=first)
    assert batch is not None and batch.end == {0: 190, 1: 8}
    assert batch.cursor(1) == first.cursor(1) == Cursor(8).extend(20, keep_ppm=250_000)
    assert batch.account(1) == Account()


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_only_enforce_drops_and_everything_passes_without_it(mode: Mode) -> None:
    batch = cut(decided(STEP, mode=mode), Span(100, 350))
    assert batch is not None
    assert (batch.end, batch.queues, batch.account()) == ({0: 350}, {}, Account(offered=250))


def test_a_steering_that_fell_silent_leaves_no_queue_stuck() -> None:
    issued = 1_700_000_000_000_000
    stale = QueueStep(cleaned=0, read_from=0, end=50, cursor=(0, 100, PPM))
    decision = decided(stale, issued_us=issued)
    assert cut(decision, Span(100, 350)) is None
    batch = cut(decision, Span(100, 350), silent=True)
    assert batch is not None and batch.end == {0: 350}


def test_lost_tuples_are_an_error_or_passed_and_counted() -> None:
    with pytest.raises(PositionError, match="position 100 is retired"):
        cut(decided(STEP), Span(150, 350))
    batch = cut(decided(STEP), Span(150, 350), skip_lost=True)
    assert batch is not None
    assert (batch.end, batch.lost, batch.account()) == ({0: 150}, {0: 50}, Account(offered=50, retention=50))
    assert batch.cursor(0) == Cursor(150)


def test_steps_that_go_back_are_refused_and_the_last_good_decision_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="go back"):
        QueueStep(cleaned=90, read_from=130, end=180, cursor=(100, 200, PPM))
    with pytest.raises(ValueError, match="go back"):
        QueueStep(cleaned=100, read_from=100, end=201, cursor=(100, 200, PPM))
    with pytest.raises(InputError, match="not a cursor"):
        QueueStep(cleaned=100, read_from=100, end=100, cursor=(100, 200))
    path = tmp_path / "decision.json"
    write_decision(path, decided(STEP))
    assert read_decision(path) == decided(STEP)
    path.write_text(path.read_text().replace('"cleaned":120', '"cleaned":20'))
    with pytest.raises(DecisionError, match="go back"):
        read_decision(path)


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(
    keeps=st.lists(st.tuples(st.integers(1, 600), st.sampled_from([0, 100_000, 500_000, PPM])), min_size=1, max_size=5),
    marks=st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000)),
    keep_ppm=st.sampled_from([PPM, 700_000, 0]),
    drop=st.sampled_from(["hash", "range"]),
)
def test_the_account_is_what_happens_to_every_tuple(
    keeps: list[tuple[int, int]], marks: tuple[int, int, int], keep_ppm: int, drop: Drop
) -> None:
    start, salt = 1000, 17
    cursor = Cursor(start)
    for size, keep in keeps:
        cursor = cursor.extend(cursor.tail + size, keep_ppm=keep)
    cleaned, read_from, end = sorted(min(start + mark, cursor.tail) for mark in marks)
    queue = (cleaned, read_from, *cursor.to_offset()[1:])
    batch = BatchOffset(
        "s", {3: start}, {3: end}, keep_ppm=keep_ppm, salt=salt, mode="enforce", drop=drop, queues={3: queue}
    )
    rule, fates = batch.admission, Counter[str]()
    runs = kept_runs(3, start, end, salt=salt, keep_ppm=keep_ppm)
    for position in range(start, end):
        ids = tuple_ids(3, np.array([position]))
        adaptor_ppm = next(part.keep_ppm for part in cursor.ranges if part.start <= position < part.end)
        shed = not kept_mask(ids, salt=salt, keep_ppm=keep_ppm)[0]
        if drop == "range":
            shed = not any(first <= position < last for first, last in runs)
        thinned = not kept_mask(ids, salt=rule.adaptor_salt, keep_ppm=adaptor_ppm)[0]
        if shed:
            fates["shedder"] += 1
        elif thinned or cleaned <= position < read_from:
            fates["adaptor"] += 1
        elif position < cleaned:
            fates["cleaner"] += 1
        else:
            fates["kept"] += 1
    found = batch.account()
    assert (found.offered, found.kept) == (end - start, fates["kept"])
    assert (found.shedder, found.adaptor, found.cleaner) == (fates["shedder"], fates["adaptor"], fates["cleaner"])
    assert sum(rule.count(*piece) for piece in batch.ranges()) == fates["kept"]
    assert [kept for _, _, kept in found.stages()][-1] == fates["kept"]
    before = BatchOffset("s", {3: 0}, {3: start})
    assert count_kept(before.to_json(), batch.to_json()) == {3: (end - start, fates["kept"])}
