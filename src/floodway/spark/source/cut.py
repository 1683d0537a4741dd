"""Cutting the next micro-batch: how far it goes, what it lost, which decision it runs under. Pure.

Which tuples the next micro-batch jumps over: those that are too old, and the oldest where too many wait. Pure.

Skipped positions are at the front of what waits, so nothing of them is read. The offset says how many they are in each
partition, and they go to the reasons `stale` and `lag`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from floodway.job.decision import JobDecision, QueueStep, StreamDecision
from floodway.planning.lag import Waiting, skip_positions
from floodway.spark.log import PositionError, Span
from floodway.spark.source.offsets import BatchOffset

FirstSince = Callable[[int, Span, int], int]
"""(partition, what waits, age in µs) -> the first position that is no older than that; the end if all are older."""


def never_old(partition: int, span: Span, age_us: int) -> int:
    """For a source that knows no ages."""
    return span.first


@dataclass(frozen=True, slots=True)
class Skips:
    """Tuples skipped at the front of each partition, and what is left there."""

    left: Mapping[int, Span]
    stale: Mapping[int, int] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)


def skips(spans: Mapping[int, Span], decided: StreamDecision, first_since: FirstSince = never_old) -> Skips:
    """What the decision for a stream skips of what waits.

    >>> skips({0: Span(0, 100), 1: Span(50, 350)}, StreamDecision(most_waiting=200))
    Skips(left={0: Span(first=50, end=100), 1: Span(first=200, end=350)}, stale={}, lag={0: 50, 1: 150})
    """
    left, stale = dict(spans), dict[int, int]()
    if decided.max_age_us is not None:
        for partition, span in spans.items():
            first = min(max(first_since(partition, span, decided.max_age_us), span.first), span.end)
            left[partition], stale[partition] = Span(first, span.end), first - span.first
    lag: dict[int, int] = {}
    if decided.most_waiting is not None:
        waiting = [Waiting("", partition, span.first, span.end) for partition, span in left.items()]
        positions = (skip_positions(waiting, decided.most_waiting, None) or {}).get("", ())
        for partition, span in left.items():
            first = max(span.first, positions[partition] if partition < len(positions) else 0)
            left[partition], lag[partition] = Span(first, span.end), first - span.first
    return Skips(left, _some(stale), _some(lag))


def _some(counts: Mapping[int, int]) -> dict[int, int]:
    return {partition: count for partition, count in counts.items() if count}


def capped(spans: Mapping[int, Span], limit: int | None) -> dict[int, int]:
    """The end of the batch in each partition: all that waits, or `limit` tuples shared in proportion to what waits.

    Every tuple of the limit is given out, by largest remainder, so that a batch is never empty while tuples wait.

    >>> capped({0: Span(0, 300), 1: Span(10, 110)}, 40)
    {0: 30, 1: 20}
    """
    waiting = {partition: span.end - span.first for partition, span in spans.items()}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {partition: span.end for partition, span in spans.items()}
    shares = {partition: divmod(count * limit, total) for partition, count in waiting.items()}
    left = limit - sum(whole for whole, _ in shares.values())
    favoured = sorted(shares, key=lambda partition: (-shares[partition][1], partition))[:left]
    return {partition: span.first + shares[partition][0] + (partition in favoured) for partition, span in spans.items()}


def cut_batch(
    previous: BatchOffset,
    spans: Mapping[int, Span],
    decision: JobDecision,
    *,
    arcs: Sequence[str],
    limit: int | None,
    skip_lost: bool,
    where: str,
    silent: bool = False,
    first_since: FirstSince = never_old,
) -> BatchOffset | None:
    """The next batch after `previous`, or None when nothing new can be read.

    A changed decision alone makes no batch. Tuples that are gone raise PositionError, or are counted as lost.
    It takes at most `limit` tuples, or the decision's limit if that is less. A stream with a buffer is cut by the steps
    decided for its queues; limits are then the scheduler's business.
    `silent` says that the steering has fallen silent, `first_since` where tuples of an age begin.
    """
    starts = {partition: previous.end.get(partition, 0) for partition in spans}
    lost = {partition: span.first - starts[partition] for partition, span in spans.items()}
    lost = {partition: count for partition, count in lost.items() if count > 0}
    if lost and not skip_lost:
        partition = min(lost)
        raise PositionError(
            f"{where} partition {partition}: position {starts[partition]} is retired or missing, "
            f"{sum(lost.values())} tuple(s) lost; the next readable position is {spans[partition].first}",
            hint="Keep tuples longer, restore them, or accept the loss: `floodway run --on-loss skip` (onLoss=skip)",
            first=spans[partition].first,
            lost=lost[partition],
        )
    waiting = sum(span.end - span.first for span in spans.values())
    steps = decision.steps(previous.stream, silent=silent)
    found = Skips(spans) if steps is not None else skips(spans, decision.skipping(previous.stream), first_since)
    if decision.mode == "enforce":
        spans = found.left
    limits = [most for most in (limit, decision.limit(previous.stream)) if most is not None]
    ends = capped(spans, min(limits, default=None))
    queues: dict[int, tuple[int, ...]] = {}
    if steps is not None:
        ends, queues = cut_queues(previous, spans, steps)
    if all(ends[partition] == start for partition, start in starts.items()):
        return None
    offered = sum(ends[partition] - span.first for partition, span in spans.items())
    return BatchOffset(
        stream=previous.stream,
        start=starts,
        end=ends,
        lost=lost,
        waiting=waiting,
        keep_ppm=decision.keep_ppm(previous.stream, waiting=offered),
        salt=decision.salt,
        mode=decision.mode,
        plan=decision.plan,
        drop=decision.drop,
        arcs={arc: decision.arc_ppm(arc) for arc in arcs},
        queues=queues,
        stale=found.stale,
        lag=found.lag,
    )


def cut_queues(
    previous: BatchOffset, spans: Mapping[int, Span], steps: Mapping[int, QueueStep]
) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Where each partition's queue ends its batch, and its ranges as journaled.

    A step that was decided for another head than this queue has (the batch before was cut since), or that knows more
    than the log holds, is left alone: the queue waits for the next one. So no step is ever applied twice.
    """
    ends: dict[int, int] = {}
    queues: dict[int, tuple[int, ...]] = {}
    for partition, span in spans.items():
        head = previous.end.get(partition, 0)
        step = steps.get(partition)
        if span.first > head:  # lost: the batch passes the hole, what follows is judged anew
            ends[partition], queues[partition] = span.first, (span.first, span.first)
        elif step is None or step.base != head or step.tail > span.end:
            waiting = previous.cursor(partition).to_offset()
            ends[partition], queues[partition] = head, (head, head, *waiting[1:])
        else:
            ends[partition] = step.end
            queues[partition] = (step.cleaned, step.read_from, *step.cursor[1:])
    return ends, queues
