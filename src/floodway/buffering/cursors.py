"""The buffer over logs: which tuples of each queue enter the next micro-batch and which are dropped, counted.

One queue per (stream, deadline class). A decision is made in this order for every queue:

1. the *adaptor* keeps a share of the newly arrived tuples;
2. the *cleaner* counts the head tuples that would be late at the end of the batch (`cleaner.batch_seconds`);
3. the *scheduler* merges the queues in its order until the CPU budget is spent;
4. what then still waits is cut to the queue limit, in the adaptor's way.

Always: waiting + arrived = expired + front_dropped + thinned + new_dropped + take + left.

Generation times within a queue are taken as evenly spaced between samples of them (its oldest and its newest tuple,
or more), so that a decision costs the same however many tuples wait. `QueueDecision.passage` carries it out on a
`Cursor`.

A queue's tuples on the clock: stretches of evenly spaced times, made from a few samples.

A queue may hold millions of tuples whose times lie in a log. A few samples of them, and straight lines in between,
are enough to tell how many are older than a given age, in time that does not depend on how many wait.

>>> parts = sampled(101, (0.0, 1.0, 9.0))
>>> [(part.count, part.first) for part in parts], count_before(parts, 1.0)
([(50, 0.0), (51, 1.0)], 50)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from floodway.buffering.adaptors import Adaptor, Overflow, QueueSample, Shedding, adaptor, split_excess
from floodway.buffering.cleaner import batch_seconds, late_before
from floodway.buffering.merge import Line, take_in_order
from floodway.buffering.queues import QueueClass, check_limit
from floodway.buffering.ranges import Cursor, Passage
from floodway.buffering.schedulers import Scheduler, scheduler
from floodway.errors import InputError
from floodway.units import PPM


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` tuples at the times first, first + gap, first + 2 gap, ... (seconds)."""

    count: int
    first: float
    gap: float

    def before(self, cutoff: float) -> int:
        """How many of its tuples have a time below `cutoff`."""
        if self.first >= cutoff:
            return 0
        if self.gap <= 0.0 or self.first + self.gap * (self.count - 1) < cutoff:
            return self.count
        return min(self.count, math.ceil((cutoff - self.first) / self.gap))


def sampled(count: int, times: Sequence[float]) -> tuple[Stretch, ...]:
    """`count` tuples whose times were sampled at evenly spread places, the first and the last included.

    Times that go back (clocks of different writers, a clock that was set) count as standing still, so that the order
    of a queue stays that of its positions.
    """
    if count == 0:
        return ()
    steady = list(accumulate(times, max))
    if len(steady) == 1 or count == 1:
        return (Stretch(count, steady[0], 0.0),)
    if count < len(steady):
        places = [place * (len(steady) - 1) // (count - 1) for place in range(count)]
        return tuple(Stretch(1, steady[place], 0.0) for place in places)
    pieces = len(steady) - 1
    edges = [piece * (count - 1) // pieces for piece in range(pieces + 1)]
    parts = [
        Stretch(edges[i + 1] - edges[i], steady[i], (steady[i + 1] - steady[i]) / (edges[i + 1] - edges[i]))
        for i in range(pieces)
    ]
    last = parts[-1]
    # The last sample is a tuple too: the others end just before the next sample.
    return (*parts[:-1], Stretch(last.count + 1, last.first, last.gap))


def count_before(stretches: Sequence[Stretch], cutoff: float) -> int:
    """How many tuples at the front have a time below `cutoff`."""
    total = 0
    for part in stretches:
        found = part.before(cutoff)
        total += found
        if found < part.count:
            break
    return total


def without_first(stretches: Sequence[Stretch], skip: int) -> list[Stretch]:
    """What is left behind the first `skip` tuples."""
    rest: list[Stretch] = []
    for part in stretches:
        gone = min(skip, part.count)
        skip -= gone
        if gone < part.count:
            rest.append(Stretch(part.count - gone, part.first + gone * part.gap, part.gap))
    return rest


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue as seen at decision time.

    `waiting` tuples were judged before and wait; `arrived` ones are new. `served` left in the last batch. Times are
    those of the oldest waiting and the newest arrived tuple, None where unknown (then they count as generated now);
    FIFO goes by arrival times where given. `waiting_times` and `arrived_times`, where given, are generation times at
    evenly spread places of the waiting and of the new tuples, first and last included; they go before the oldest and
    the newest and stand for arrival times as well. `rate` (tuples/s) is what arrives, for the queue's share of the
    memory. `adaptor_state` is what the last decision handed back.
    """

    name: str
    queue: QueueClass
    waiting: int
    arrived: int = 0
    served: int = 0
    limit: int = 150
    cost_seconds: float = 0.0
    rate: float = 0.0
    oldest_generated: float | None = None
    newest_generated: float | None = None
    oldest_arrived: float | None = None
    newest_arrived: float | None = None
    waiting_times: tuple[float, ...] = ()
    arrived_times: tuple[float, ...] = ()
    adaptor_state: Any = None

    def __post_init__(self) -> None:
        check_limit(self.limit, where=f"queue {self.name!r}")
        if min(self.waiting, self.arrived, self.served) < 0:
            raise InputError(f"queue {self.name!r} holds fewer than no tuples", hint="Counts start at 0")
        if not (math.isfinite(self.cost_seconds) and self.cost_seconds >= 0):
            raise InputError(
                f"queue {self.name!r}: a cost of {self.cost_seconds} s a tuple",
                hint="Give a finite cost of at least 0 seconds; 0 where it is not measured yet",
            )
        ends = (self.oldest_generated, self.newest_generated, self.oldest_arrived, self.newest_arrived)
        for value in (*ends, *self.waiting_times, *self.arrived_times):
            if value is not None and not math.isfinite(value):
                raise InputError(
                    f"queue {self.name!r}: a tuple time of {value}",
                    hint="Give finite seconds, or None if unknown",
                )

    @property
    def sample(self) -> QueueSample:
        """The queue as its adaptor sees it."""
        return QueueSample(self.waiting, self.limit, self.arrived, self.served)


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Which policies decide. `overhead_seconds` is what a micro-batch takes with no tuple in it."""

    scheduler: Scheduler = field(default_factory=lambda: scheduler("edf"))
    adaptor: Adaptor[Any] = field(default_factory=lambda: adaptor("pid"))
    cleans: bool = True
    overhead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What happens to one queue, in tuples: the head passes `expired` and `front_dropped`, `take` enter the batch."""

    name: str
    expired: int
    front_dropped: int
    thinned: int
    new_dropped: int
    take: int
    left: int
    keep_ppm: int
    thin_ppm: int
    adaptor_state: Any = None

    @property
    def shed(self) -> int:
        """Tuples dropped by the adaptor."""
        return self.front_dropped + self.thinned + self.new_dropped

    def passage(self, cursor: Cursor, tail: int) -> Passage:
        """The decision on a log that ends at `tail`, as positions, which do no harm when they are applied twice.

        Hashing keeps a share only on average, so counts are capped at what the ranges are expected to hold.

        >>> decision = QueueDecision("q", 10, 0, 0, 0, take=20, left=70, keep_ppm=PPM, thin_ppm=PPM)
        >>> decision.passage(Cursor(0).extend(100), 100)
        Passage(cleaned=10, read_from=10, end=30, cursor=Cursor(head=0, ranges=(Range(start=0, ...),)))
        """
        judged = cursor.thin(self.thin_ppm).extend(tail, keep_ppm=self.keep_ppm)
        # A count of 0 moves nothing: `advance(0)` would pass ranges that keep nothing, which the batch may as well.
        cleaned = judged.advance(min(self.expired, judged.waiting))[1] if self.expired else judged
        fronted = cleaned.advance(min(self.front_dropped, cleaned.waiting))[1] if self.front_dropped else cleaned
        _, rest = fronted.advance(min(self.take, fronted.waiting))
        return Passage(cleaned.head, fronted.head, rest.head, judged)


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """One decision a queue, in the order given."""

    queues: tuple[QueueDecision, ...]

    def __getitem__(self, name: str) -> QueueDecision:
        return next(decision for decision in self.queues if decision.name == name)


def schedule_batch(
    queues: Sequence[QueueView], budget_seconds: float, now: float, policy: BatchPolicy | None = None
) -> BatchDecision:
    """Decide the next micro-batch for `budget_seconds` of CPU at time `now`.

    With a budget above 0 at least one tuple is taken wherever one waits, however much it costs, so that no queue is
    stuck. With a budget of 0 nothing is taken, and cleaner and adaptor still do their work. Keep overhead plus budget
    below the tightest deadline: a longer batch is late for it whatever it holds.

    >>> view = QueueView("s/1s", QueueClass("s", 1.0), waiting=100, cost_seconds=0.01, limit=50,
    ...                  oldest_generated=9.0, newest_generated=10.0)
    >>> schedule_batch([view], 0.25, now=10.0)["s/1s"].take
    25
    """
    policy = policy or BatchPolicy()
    if not (math.isfinite(budget_seconds) and budget_seconds >= 0 and math.isfinite(now)):
        raise InputError(
            f"a budget of {budget_seconds} s at time {now}",
            hint="Give a finite budget of at least 0 and a finite time",
        )
    if len({view.name for view in queues}) != len(queues):
        raise InputError("two queues have the same name", hint="Name queues by stream and deadline class")
    lines = [_Waiting.of(view, now, policy) for view in queues]
    expired = [0] * len(lines)
    if policy.cleans:

        def left_work(finish: float) -> float:
            return sum((line.count - line.expired(now, finish)) * line.view.cost_seconds for line in lines)

        finish_seconds = batch_seconds(policy.overhead_seconds, budget_seconds, left_work)
        expired = [line.expired(now, finish_seconds) for line in lines]
    order: list[Line] = []
    owner: list[int] = []
    for place, (line, skip) in enumerate(zip(lines, expired, strict=True)):
        ranked = line.ranked(skip, policy.scheduler)
        order += ranked
        owner += [place] * len(ranked)
    taken = take_in_order(order, budget_seconds)
    if budget_seconds > 0 and not any(taken) and any(line.count for line in order):
        first = min(
            (place for place, line in enumerate(order) if line.count),
            key=lambda place: (order[place].level, order[place].first, order[place].tie, place),
        )
        taken[first] = 1
    takes = [0] * len(lines)
    for place, count in zip(owner, taken, strict=True):
        takes[place] += count
    return BatchDecision(tuple(line.settle(skip, take) for line, skip, take in zip(lines, expired, takes, strict=True)))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A queue after the adaptor's early drop: `count` tuples in stretches, evenly spaced in time within each."""

    view: QueueView
    shedding: Shedding
    state: Any
    new: int
    generated: tuple[Stretch, ...]
    arrived: tuple[Stretch, ...]

    @classmethod
    def of(cls, view: QueueView, now: float, policy: BatchPolicy) -> _Waiting:
        state = policy.adaptor.initial() if view.adaptor_state is None else view.adaptor_state
        state, shedding = policy.adaptor.update(state, view.sample)
        new = math.floor(view.arrived * shedding.keep)
        if view.waiting_times or view.arrived_times:
            old = sampled(view.waiting, view.waiting_times or (now,))
            generated = came = (*old, *sampled(new, view.arrived_times or (now,)))
        else:
            count = view.waiting + new
            generated = sampled(count, _span(view.oldest_generated, view.newest_generated, now))
            came = generated
            if view.oldest_arrived is not None or view.newest_arrived is not None:
                came = sampled(count, _span(view.oldest_arrived, view.newest_arrived, now))
        return cls(view, shedding, state, new, generated, came)

    @property
    def count(self) -> int:
        return self.view.waiting + self.new

    def expired(self, now: float, finish_seconds: float) -> int:
        """Head tuples that are late if the batch ends in `finish_seconds`."""
        return count_before(self.generated, late_before(now, finish_seconds, self.view.queue.deadline_seconds))

    def ranked(self, skip: int, scheduler: Scheduler) -> list[Line]:
        """What remains behind `skip` purged heads, as the scheduler orders it."""
        rank = scheduler.rank(self.view.queue, cost_seconds=self.view.cost_seconds)
        stretches = self.arrived if scheduler.clock == "arrived" else self.generated
        return [
            Line(rank.level, part.first + rank.offset_seconds, part.gap, part.count, self.view.cost_seconds, rank.tie)
            for part in without_first(stretches, skip)
        ]

    def settle(self, expired: int, take: int) -> QueueDecision:
        """Cut what is left to the limit, and write all of it down."""
        view = self.view
        gone = expired + take
        left_old = max(0, view.waiting - gone)
        left_new = self.count - gone - left_old
        from_old, from_new = split_excess(self.shedding.overflow, old=left_old, new=left_new, limit=view.limit)
        thins = self.shedding.overflow is Overflow.RANDOM
        thinned = from_old if thins else 0
        kept_new = self.new - from_new
        return QueueDecision(
            name=view.name,
            expired=expired,
            front_dropped=from_old - thinned,
            thinned=thinned,
            new_dropped=view.arrived - kept_new,
            take=take,
            left=left_old + left_new - from_old - from_new,
            keep_ppm=_ppm(kept_new, view.arrived),
            thin_ppm=_ppm(view.waiting - thinned, view.waiting),
            adaptor_state=self.state,
        )


def _span(oldest: float | None, newest: float | None, now: float) -> tuple[float, float]:
    # Clocks of different sources disagree: the earlier time is the older one, whatever it was called.
    first = newest if oldest is None else oldest
    last = oldest if newest is None else newest
    if first is None or last is None:
        return now, now
    return min(first, last), max(first, last)


def _ppm(part: int, whole: int) -> int:
    # Rounded up, so that the range holds `part` tuples again when it is counted with rounding down.
    return PPM if whole == 0 else -(-part * PPM // whole)
