"""Window Drop at the source: whose windows are kept, journaled in the offset of every batch.

Which tuples a batch lets pass depends on their event times, so these are read when the batch is cut: one column of a
log, or the records of a topic. The offset then says how many tuples of each partition pass, and the accounts stay
functions of the offset alone. It also says the latest event time of all batches up to this one: the next change of plan
begins with windows that start later (`planning/windows/window_keeps.py`).

The first tuple with a new latest event time passes whatever its windows: so the watermark advances as in an unshed
job. Its other windows are not whole and do not leave. A tuple without a time is left to the aggregate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.json_text import load_json
from floodway.planning.windows.window_keeps import FIRST_US, WindowKeeps, from_numbers, window_ppm
from floodway.spark.log.schema import EVENT_TIME
from floodway.spark.source.backend import Piece
from floodway.spark.source.drops import tuple_ids
from floodway.spark.source.offsets import BatchOffset, Range, WindowRule
from floodway.units import PPM

ReadTimes = Callable[[Range], Iterator[Piece]]
"""From a range of positions to its tuples, with their event times."""


@dataclass(frozen=True, slots=True)
class _Times:
    """The tuples of one partition's range: identities, event times in microseconds, and which have one."""

    partition: int
    ids: NDArray[np.int64]
    event_us: NDArray[np.int64]
    known: NDArray[np.bool_]


def drops_text(drops: Mapping[str, WindowKeeps]) -> str:
    """The reader's option `windows`: where it drops by windows (its own place, arcs inside the node)."""
    return json.dumps({at: list(keeps.numbers()) for at, keeps in drops.items()})


def parse_drops(text: str) -> dict[str, WindowKeeps]:
    """What `drops_text` wrote."""
    try:
        return {str(at): from_numbers(numbers) for at, numbers in load_json(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"option windows {text!r} is not understood: {error}", hint="Leave it to Floodway") from None


def has_event_time(payload: pa.Schema) -> bool:
    """Whether tuples of these columns can be told by event time."""
    return EVENT_TIME in payload.names and pa.types.is_timestamp(payload.field(EVENT_TIME).type)


def event_times(batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Microseconds of the event times, and which tuples have one."""
    column = batch.column(EVENT_TIME)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(0)
    return micros.to_numpy(zero_copy_only=False), known


def passing(rule: WindowRule, ids: NDArray[np.int64], batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which tuples of a piece a rule lets pass."""
    event_us, known = event_times(batch)
    return _passing(rule, ids, event_us, known)


def _passing(
    rule: WindowRule, ids: NDArray[np.int64], event_us: NDArray[np.int64], known: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    passed = rule.keeps.passes(event_us)
    passed |= ~known
    passed |= ids == rule.newest_id
    return passed


def with_windows(
    previous: BatchOffset, batch: BatchOffset, drops: Mapping[str, WindowKeeps], read: ReadTimes
) -> BatchOffset:
    """The batch that was cut after `previous`, with the keeps of its windows and what they let pass."""
    times = [_times(span, piece) for span in batch.ranges() for piece in read(span)]
    latest = max((int(part.event_us[part.known].max()) for part in times if part.known.any()), default=FIRST_US)
    seen_us = max(previous.seen_us, latest)
    newest_id = _first_at(times, latest) if latest > previous.seen_us else -1
    keeps = {}
    for at, fresh in drops.items():
        decided = batch.keep_ppm if at == batch.stream else batch.arcs.get(at, PPM)
        now_ppm = window_ppm(fresh.shape, decided if batch.mode == "enforce" else PPM)
        keeps[at] = _begun(previous, at, fresh, seen_us).changed(now_ppm, seen_us=previous.seen_us)
    journaled = replace(
        batch, windows={at: found.numbers() for at, found in keeps.items()}, seen_us=seen_us, newest_id=newest_id
    )
    rule = journaled.admission.windows
    if rule is None:
        return journaled
    passed = dict.fromkeys(batch.end, 0)
    for part in times:
        passed[part.partition] += int(np.count_nonzero(_passing(rule, part.ids, part.event_us, part.known)))
    return replace(journaled, passed=passed)


def _times(span: Range, piece: Piece) -> _Times:
    return _Times(span[0], tuple_ids(span[0], piece[0]), *event_times(piece[1]))


def _first_at(times: list[_Times], latest: int) -> int:
    return min(int(part.ids[part.known & (part.event_us == latest)].min(initial=1 << 62)) for part in times)


def _begun(previous: BatchOffset, at: str, fresh: WindowKeeps, seen_us: int) -> WindowKeeps:
    """The keeps so far; where windows were dropped in another way before, those that have begun are not whole."""
    if at in previous.windows:
        before = from_numbers(previous.windows[at])
        if (before.shape, before.salt) == (fresh.shape, fresh.salt):
            return before
    dropped = previous.mode == "enforce" and previous.start != previous.end
    if seen_us <= FIRST_US or not (dropped or at in previous.windows):
        return fresh
    return replace(fresh, history=((fresh.shape.next_start(seen_us), PPM),))
