"""Window Drop on a stream: whole windows are shed, and every window that is emitted equals the unshed one.

Two places need the same fate: the drop before the aggregate passes tuples inside kept windows, and a filter after it
lets only kept windows out (a dropped window shares tuples with kept ones, so the aggregate builds parts of it).

    shed = floodway.shed("clicks", target_latency="5s", window=WindowDrop("ts", "10 seconds", "5 seconds"))
    counts = (
        clicks.withWatermark("ts", "30 seconds").transform(shed)
        .groupBy(fn.window("ts", "10 seconds", "5 seconds")).count()
        .transform(shed.kept_windows())
    )

Set the watermark before the drop, as here, so that it advances as in the unshed job. Write in append mode: update
mode shows windows before they are whole, shed or not. The policy and the guarantee across rate changes:
`planning/windows/window_drop.py`. With a fixed keep and no control, `window_drop` and `kept_windows` below; with
control, `WindowSteering` says when an epoch may begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.planning.windows.window_drop import Epochs, WindowShape
from floodway.spark.query.drops import column, time_us
from floodway.spark.shed.control_file import ControlTable
from floodway.units import PPM, duration_us

MOST_OVERLAP = 64
KeepAt = Callable[[Column], Column]
"""From a batch start (microseconds) to the keep in force for it, in ppm."""

CHANGE = 0.05
"""Relative change of keep that is worth an epoch: the drop changes that the papers' prototype ignored."""
KEPT_EPOCHS = 2048
"""As many windows, about, may be open at once, each with a keep of its own; older ones count as dropped."""


@dataclass(frozen=True)
class WindowDrop:
    """Shed by whole windows of this time column; size, slide and start as given to the aggregate.

    `batch` consecutive windows share one fate. `max_gap` bounds a gap to that many batches, at the price of a keep of
    at least 1 / (max_gap + 1).
    """

    time_column: str
    size: str | float
    slide: str | float | None = None
    start: str | float = 0
    batch: int = 1
    max_gap: int | None = None

    @property
    def shape(self) -> WindowShape:
        """The windows in microseconds."""
        size = duration_us("window size", self.size)
        slide = size if self.slide is None else duration_us("window slide", self.slide)
        offset = duration_us("window start", self.start, zero=True)
        return checked(WindowShape(size, slide, offset, self.batch, self.max_gap))


def window_drop(
    df: DataFrame,
    time_column: str,
    size: str | float,
    slide: str | float | None = None,
    *,
    keep_ppm: int,
    salt: int = 0,
    batch: int = 1,
) -> DataFrame:
    """Drop at a fixed keep; filter the aggregate's result by `kept_windows` with the same arguments."""
    shape = WindowDrop(time_column, size, slide, batch=batch).shape
    return df.filter(passes(shape, time_us(time_column), lambda _: fn.lit(keep_ppm), fn.lit(salt)))


def kept_windows(
    df: DataFrame,
    window_column: str,
    size: str | float,
    slide: str | float | None = None,
    *,
    keep_ppm: int,
    salt: int = 0,
    batch: int = 1,
) -> DataFrame:
    """Of an aggregate's windows, those that `window_drop` left whole."""
    shape = WindowDrop("", size, slide, batch=batch).shape
    return df.filter(emits(shape, window_column, lambda _: fn.lit(keep_ppm), fn.lit(salt)))


def passes(shape: WindowShape, event_us: Column, keep_at: KeepAt, salt: Column) -> Column:
    """Whether a tuple lies in a window of a kept batch; a tuple without a time is left to the aggregate."""
    around = _batches_around(shape, event_us)
    return event_us.isNull() | reduce(or_, [inside & _kept(shape, s, keep_at(s), salt) for s, inside in around])


def in_gaps(shape: WindowShape, event_us: Column, keep_at: KeepAt, salt: Column) -> Column:
    """Whether a tuple lies in a window that is not emitted; null without a time."""
    around = _batches_around(shape, event_us)
    return reduce(or_, [inside & ~_kept(shape, s, keep_at(s), salt) for s, inside in around])


def missing_windows(shape: WindowShape, event_us: Column, keep_at: KeepAt, salt: Column) -> Column:
    """The windows of a tuple that are not emitted, as an array of their starts and ends; null without a time."""
    last = event_us - fn.pmod(event_us - fn.lit(shape.offset_us), fn.lit(shape.slide_us))
    back = -(-shape.size_us // shape.slide_us) - 1
    starts = fn.transform(fn.sequence(fn.lit(0), fn.lit(back)), lambda k: last - k * fn.lit(shape.slide_us))

    def missing(start: Column) -> Column:
        batch = _batch_start(shape, start)
        return (event_us < start + fn.lit(shape.size_us)) & ~_kept(shape, batch, keep_at(batch), salt)

    def window(start: Column) -> Column:
        end = fn.timestamp_micros(start + fn.lit(shape.size_us))
        return fn.struct(fn.timestamp_micros(start).alias("start"), end.alias("end"))

    return fn.transform(fn.filter(starts, missing), window)


def emits(shape: WindowShape, window_column: str, keep_at: KeepAt, salt: Column) -> Column:
    """Whether a window of the aggregate (its `window` struct) belongs to a kept batch."""
    start = _batch_start(shape, fn.unix_micros(column(window_column)["start"]))
    return _kept(shape, start, keep_at(start), salt)


def checked(shape: WindowShape) -> WindowShape:
    """Refuse a shape whose tuples belong to so many batches that the expression would not compile."""
    if shape.overlap > MOST_OVERLAP:
        raise InputError(
            f"a tuple belongs to {shape.overlap} batches of windows, at most {MOST_OVERLAP} are supported",
            hint=f"Raise batch= to at least {-(-(shape.size_us // shape.slide_us) // (MOST_OVERLAP - 1))}.",
        )
    return shape


def _batches_around(shape: WindowShape, event_us: Column) -> list[tuple[Column, Column]]:
    """The starts of the batches of windows that a tuple may lie in, and whether it does."""
    latest = _batch_start(shape, event_us)
    reach = shape.batch_us - shape.slide_us + shape.size_us
    starts = [latest - fn.lit(back * shape.batch_us) for back in range(shape.overlap)]
    return [(start, event_us < start + fn.lit(reach)) for start in starts]


def _batch_start(shape: WindowShape, at_us: Column) -> Column:
    return at_us - fn.pmod(at_us - fn.lit(shape.offset_us), fn.lit(shape.batch_us))


def _kept(shape: WindowShape, start_us: Column, keep_ppm: Column, salt: Column) -> Column:
    """`WindowShape.kept` as a column; a null keep, before all known epochs, keeps nothing."""
    keep = fn.coalesce(keep_ppm, fn.lit(0))
    slot = fn.pmod(fn.xxhash64(start_us.cast("bigint"), salt.cast("bigint")), fn.lit(PPM))
    if shape.max_gap is None:
        return slot < keep
    gap = shape.max_gap
    drawn = fn.greatest(fn.lit(0), fn.floor((keep.cast("bigint") * (gap + 1) - PPM) / gap))
    forced = fn.pmod(start_us - fn.lit(shape.offset_us), fn.lit(shape.batch_us * (gap + 1))) == 0
    return forced | (slot < drawn)


@dataclass
class WindowSteering:
    """Moves the epochs in the control table towards a keep: when one may begin, and when a raise may be emitted.

    The policy is `planning/windows/`; here is what it needs to know of running queries: the latest event time that
    micro-batches reported, and whether all that run or are still to begin know of the pending entry. If a report was
    lost (the driver died between a commit and its report), what that batch saw is unknown; it is then taken to have
    seen event times up to the wall clock of its loss, so a raise waits until event time has passed that point.
    """

    shape: WindowShape
    control: ControlTable
    seen_us: int | None = None
    unsure_until_us: int | None = None

    @property
    def epochs(self) -> Epochs:
        """The keep rates of windows, as the control table holds them."""
        return Epochs(self.shape, self.control.table.epochs)

    def saw(self, event_us: int | None) -> None:
        """A micro-batch reported the latest event time it was offered."""
        if event_us is not None:
            self.seen_us = event_us if self.seen_us is None else max(self.seen_us, event_us)

    def lost_sight(self, now_us: int) -> None:
        """Micro-batches went by without a report."""
        self.unsure_until_us = now_us

    def steer(self, keep_ppm: int) -> None:
        """Begin or finish a change towards `keep_ppm`, if one is due."""
        epochs = self.epochs
        emitted = epochs.latest.emit_ppm
        if epochs.pending and self.control.all_know(epochs.latest.seq):
            self._put(lambda seq: epochs.confirm(seen_us=self._latest_us(), seq=seq))
        elif keep_ppm != emitted and (keep_ppm == PPM or abs(keep_ppm - emitted) > CHANGE * emitted):
            changed = epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, seq=0)
            if changed is not epochs:
                self._put(lambda seq: epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, seq=seq))

    def _put(self, changed: Callable[[int], Epochs]) -> None:
        oldest = self.control.table.oldest_seq
        self.control.put_epochs(lambda seq: changed(seq).trimmed(KEPT_EPOCHS, oldest).history)

    def _latest_us(self) -> int | None:
        known = [at for at in (self.seen_us, self.unsure_until_us) if at is not None]
        return max(known, default=None)
