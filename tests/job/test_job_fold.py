"""The one fold over ledger lines: a place's counts are the shedder's less what the others dropped."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.job.ledger.fold import MOST_DIFFERENCES, ORDER, Counts, Fold
from floodway.job.ledger.ledger import LedgerLine
from floodway.spark.source.accounts import Account


def line(batch: int, at: str = "s", reason: str = "shedder", kept: int = 4, dropped: int = 6) -> LedgerLine:
    return LedgerLine("q", batch, at, reason, kept + dropped, kept, dropped, time_us=batch * 1_000_000)


DROPS = st.lists(st.integers(0, 9), min_size=len(ORDER), max_size=len(ORDER))


@given(st.lists(st.tuples(st.sampled_from(["s", "t", "a->b"]), DROPS), max_size=25))
def test_what_is_kept_at_a_place_is_what_its_last_reason_kept(drawn: list[tuple[str, list[int]]]) -> None:
    lines, offered, kept = [], Counter[str](), Counter[str]()
    for batch, (at, drops) in enumerate(drawn):
        left = sum(drops) + 3
        offered[at] += left
        for reason, dropped in zip(ORDER, drops, strict=True):
            lines.append(LedgerLine("q", batch, at, reason, left, left - dropped, dropped))
            left -= dropped
        kept[at] += left
        lines.append(LedgerLine("q", batch, "out", "delivered", left, left, 0))
    total = Fold(lines).total
    assert (total.offered, total.kept) == (offered, kept)
    for at, reasons in total.by_place().items():
        assert offered[at] == kept[at] + sum(reasons.values())
    assert total.delivered.total() == kept.total()


def test_a_conflict_and_a_gap_count_no_tuples() -> None:
    """A report once said that −1 tuples were kept: it took the conflict's drops from what the shedder had kept."""
    lines = [
        LedgerLine("q", 0, "clicks", "shedder", 10, 4, 6),
        LedgerLine("q", 0, "clicks", "conflict", 10, 5, 5),
        LedgerLine("q", 1, "clicks", "gap", 0, 0, 0, until=3),
    ]
    assert Counts.of(lines).to_dict() == {
        "offered": {"clicks": 10},
        "kept": {"clicks": 4},
        "dropped": {"clicks": {"shedder": 6}},
    }


def test_a_source_accounts_in_the_order_of_the_fold() -> None:
    stages = list(Account(offered=30, shedder=1, share=5, adaptor=2, cleaner=3, retention=4, stale=2, lag=3).stages())
    assert [reason for reason, _, _ in stages] == [reason for reason in ORDER if reason != "dead-letter"]
    lines = [LedgerLine("q", 0, "s", reason, offered, kept, offered - kept) for reason, offered, kept in stages]
    assert Counts.of(lines).kept["s"] == 10 == stages[-1][2]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30, unique=True))
def test_holes_are_found_in_whatever_order_batches_come(batches: list[int]) -> None:
    missing = set(range(min(batches), max(batches) + 1)) - set(batches)
    told: set[int] = set()
    for text in Fold(map(line, batches)).differences():
        first, _, last = text.removeprefix("query q, s: ").split(" missing")[0].removeprefix("batch").partition(" to ")
        numbers = [int("".join(c for c in part if c.isdigit())) for part in (first, last) if part]
        told |= set(range(numbers[0], numbers[-1] + 1))
    assert told == missing


def test_differences_are_bounded_and_the_rest_is_counted() -> None:
    found = Fold(
        LedgerLine("q", batch, "s", "conflict", 2, 1, 1) for batch in range(MOST_DIFFERENCES + 7)
    ).differences()
    assert len(found) == MOST_DIFFERENCES + 1
    assert found[-1] == "… and 7 more"


def test_gaps_and_conflicts_are_told() -> None:
    fold = Fold()
    gap = LedgerLine("q", 1, "s", "gap", 0, 0, 0, until=3)
    fold.add([line(0), gap, line(4), LedgerLine("q", 4, "s", "conflict", 2, 1, 1)])
    assert fold.differences() == [
        "query q, s: no counts for batches 1 to 3",
        "query q, s, batch 4: a replay counted otherwise (offered 2, kept 1, dropped 1)",
    ]
    assert fold.total.offered["s"] == 20


def test_a_gap_is_over_when_its_batches_were_counted_after_all() -> None:
    fold = Fold([line(0), LedgerLine("q", 1, "s", "gap", 0, 0, 0, until=3), line(4), line(2)])
    assert fold.lost_batches == 2
    again = Fold.restored(fold.snapshot())
    for found in (fold, again):
        assert found.differences() == [
            "query q, s: no counts for batches 1 to 1",
            "query q, s: no counts for batches 3 to 3",
        ]
        found.add([line(1), line(3)])
        assert (found.lost_batches, found.differences()) == (0, [])


def test_sums_that_are_read_back_know_what_came_last() -> None:
    fold = Fold(line(second) for second in range(90, 106, 3))
    read = Fold.restored(json.loads(json.dumps(fold.snapshot())))
    for one in (fold, read):
        one.add([line(108)])
        counts, seconds = one.timeline.latest(109)
        assert (counts.offered["s"], seconds) == (40, 12)
    assert read.snapshot() == fold.snapshot()


def test_a_window_knows_how_much_of_it_the_ledger_covers() -> None:
    fold = Fold()
    fold.add([line(100), line(101), line(102)])
    counts, seconds = fold.timeline.window(103, 10)
    assert (counts.offered["s"], seconds) == (30, 3)
    assert fold.timeline.window(200, 10)[0].offered["s"] == 0


def test_rates_are_right_also_where_batches_are_long() -> None:
    fold = Fold()
    fold.add(line(second) for second in range(90, 106, 3))  # ten tuples every three seconds, one batch under way
    for now in (106, 107, 108):
        counts, seconds = fold.timeline.window(now, 10)
        assert counts.offered["s"] / seconds == pytest.approx(10 / 3)
