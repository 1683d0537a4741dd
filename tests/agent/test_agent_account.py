"""A ledger summed up line by line says what the whole ledger says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.agent.loop.report import totals
from floodway.job.account import Account
from floodway.job.ledger import LedgerLine, reconcile


def line(batch: int, at: str = "s", reason: str = "shedder", kept: int = 4, dropped: int = 6) -> LedgerLine:
    return LedgerLine("q", batch, at, reason, kept + dropped, kept, dropped, time_us=batch * 1_000_000)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.sampled_from(["s", "t", "a->b"]),
            st.sampled_from(["shedder", "delivered", "dead-letter"]),
            st.integers(0, 9),
        ),
        max_size=25,
    )
)
def test_sums_are_those_of_the_report(drawn: list[tuple[int, str, str, int]]) -> None:
    lines = [
        line(batch, at, reason, kept=5, dropped=0 if reason == "delivered" else dropped)
        for batch, at, reason, dropped in drawn
    ]
    account = Account()
    account.add(lines)
    expected = totals(lines)
    assert dict(account.total.offered) == expected["offered"]
    assert {at: count for at, count in account.total.kept.items() if count} == {
        at: count for at, count in expected["kept"].items() if count
    }
    assert account.total.by_place() == expected["dropped"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30, unique=True))
def test_holes_are_found_as_in_the_whole_ledger(batches: list[int]) -> None:
    ordered = sorted(batches)
    # The first batch comes first, as in a ledger; the rest may be out of order after a restart.
    lines = [line(ordered[0]), *(line(batch) for batch in batches if batch != ordered[0])]
    account = Account()
    account.add(lines)
    assert bool(account.differences()) == bool(reconcile(lines))


def test_gaps_and_conflicts_are_told() -> None:
    account = Account()
    gap = LedgerLine("q", 1, "s", "gap", 0, 0, 0, until=3)
    account.add([line(0), gap, line(4), LedgerLine("q", 4, "s", "conflict", 2, 1, 1)])
    assert account.differences() == [
        "query q, s: no counts for batches 1 to 3",
        "query q, s, batch 4: a replay counted otherwise (offered 2, kept 1, dropped 1)",
    ]
    assert account.total.offered["s"] == 20


def test_a_window_knows_how_much_of_it_the_ledger_covers() -> None:
    account = Account()
    account.add([line(100), line(101), line(102)])
    counts, seconds = account.timeline.window(103, 10)
    assert (counts.offered["s"], seconds) == (30, 3)
    assert account.timeline.window(200, 10)[0].offered["s"] == 0


def test_rates_are_right_also_where_batches_are_long() -> None:
    account = Account()
    account.add(line(second) for second in range(90, 106, 3))  # ten tuples every three seconds, one batch under way
    for now in (106, 107, 108):
        counts, seconds = account.timeline.window(now, 10)
        assert counts.offered["s"] / seconds == pytest.approx(10 / 3)
