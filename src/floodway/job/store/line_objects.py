"""A log of lines in immutable objects, for stores that cannot append: one `create` per append.

    NAME/000000000130-000000000131.jsonl     the lines of append 130
    NAME/000000000064-000000000128.jsonl     those of the appends 64 to 127, merged
    NAME/000000000000-000000004096.jsonl     a closed segment

Append N is the object N-N+1, which only one writer can create: the others learn that way that they are not alone. When
an append fills a group of `GROUPS`, its objects are merged into one, whose first line holds the length of each append
in bytes, and are removed after `GRACE_SECONDS`. Readers take the object that leads them furthest, so that it does not
matter how far a merge has come.

A writer that was stopped for long could create an object that was merged and removed before. So one whose knowledge of
the end is older than half of `GRACE_SECONDS` looks, after creating its object, whether a merged one holds that number.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from secrets import token_hex

from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json

log = logging.getLogger(__name__)

GROUPS = (64, 4096)
"""Appends per merged object and per closed segment."""
GRACE_SECONDS = 600.0
REMOVALS_PER_APPEND = 2
PARALLEL_READS = 8
LOOKS = 10
"""How often a reader lists anew when merges remove objects under its hands."""

_NAME = re.compile(r"(\d{12})-(\d{12})\.jsonl")
Span = tuple[int, int]
"""The first append of an object, and the one after its last."""


class ObjectLog:
    """The log of one name on a store; for one thread at a time. `monotonic` goes on while the process is stopped."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        monotonic: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self.torn = 0
        self.closed = 0
        self._store = store
        self._begun = False
        self._folder = name
        self._monotonic = monotonic
        self._end_seen = -float("inf")
        """When this writer last knew where the log ends."""
        self._recent: dict[Span, bytes] = {}
        """Appends of this writer that are not merged yet."""
        self._torn: dict[Span, int] = {}
        self._merged: deque[tuple[float, str]] = deque()
        """Objects to remove, and from when on."""

    def identity(self) -> str | None:
        """See `LineLog`."""
        found = self._store.read(f"{self._folder}/id")
        return None if found is None else found.decode(errors="replace")

    def append(self, lines: bytes, at: int) -> int | None:
        """See `LineLog`."""
        if not self._begun:
            self._store.create(f"{self._folder}/id", token_hex(8).encode())
            self._begun = True
        seen, span = self._end_seen, (at, at + 1)
        if not self._store.create(self._name(span), lines):
            return None
        now = self._monotonic()
        if now - seen > GRACE_SECONDS / 2 and self._is_late(span):
            self._store.remove(self._name(span))
            return None
        self._end_seen = now
        self._recent[span] = lines
        self.closed = (at + 1) // GROUPS[-1] * GROUPS[-1]
        try:
            for group in GROUPS:
                if (at + 1) % group == 0:
                    self._merge(at + 1 - group, at + 1)
            self._remove_some(now)
        except StoreError as error:
            # The append is there; what was not merged now is merged with the next longer group.
            log.warning("objects of %s/%s could not be merged: %s", self._store.uri, self._folder, error)
        return at + 1

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        """See `LineLog`."""
        position, looks = start, 0
        while looks < LOOKS:
            before = position
            now = self._monotonic()
            for span, appends in self._objects(list(chain(self._spans(), position))):
                if appends is None:
                    break
                lines = b"".join(appends[max(position - span[0], 0) :])
                position = span[1]
                yield position, lines
            else:
                self._end_seen = now
                return
            looks = 0 if position > before else looks + 1
        raise StoreError(
            f"{self._store.uri}/{self._folder} changes faster than it can be read", hint="Try again in a minute"
        )

    def segments(self) -> list[int]:
        """See `LineLog`."""
        spans = self._spans()
        if not spans:
            return []
        longest = GROUPS[-1]
        first, last = min(spans)[0], max(end for _, end in spans)
        return [first, *range((first // longest + 1) * longest, last, longest)]

    def remove_before(self, position: int) -> None:
        """See `LineLog`."""
        for span in self._spans():
            if span[1] <= position:
                self._store.remove(self._name(span))

    def torn_bytes(self) -> int:
        """See `LineLog`; a store that writes objects whole never has any."""
        return sum(self._torn.values())

    def _is_late(self, own: Span) -> bool:
        return any(first <= own[0] and own[1] <= end and (first, end) != own for first, end in self._spans())

    def _merge(self, first: int, end: int) -> None:
        spans = self._spans()
        parts = [span for span in chain(spans, first) if span[1] <= end]
        found = [appends for _, appends in self._objects(parts)]
        whole = [append for appends in found if appends is not None for append in appends]
        if len(whole) == end - first and len(parts) > 1:
            self._store.create(self._name((first, end)), _pack(whole))
            inside = [span for span in spans if first <= span[0] and span[1] <= end]
            due = self._monotonic() + GRACE_SECONDS
            self._merged.extend((due, self._name(span)) for span in inside)
            for span in inside:
                self._recent.pop(span, None)

    def _remove_some(self, now: float) -> None:
        for _ in range(REMOVALS_PER_APPEND):
            if self._merged and self._merged[0][0] <= now:
                self._store.remove(self._merged.popleft()[1])

    def _objects(self, spans: Sequence[Span]) -> Iterator[tuple[Span, list[bytes] | None]]:
        """The appends in the objects of these spans, read several at a time; None for one that is gone."""
        with ThreadPoolExecutor(PARALLEL_READS) as pool:
            for begin in range(0, len(spans), PARALLEL_READS):
                some = spans[begin : begin + PARALLEL_READS]
                yield from zip(some, pool.map(self._object, some), strict=True)

    def _object(self, span: Span) -> list[bytes] | None:
        found = self._recent[span] if span in self._recent else self._store.read(self._name(span))
        if found is None:
            return None
        whole = found.rfind(b"\n") + 1
        if whole != len(found):
            self._torn[span] = len(found) - whole
        return [found[:whole]] if span[1] - span[0] == 1 else _unpack(found[:whole])

    def _spans(self) -> list[Span]:
        found = (_NAME.fullmatch(name.rpartition("/")[2]) for name in self._store.names(self._folder))
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def _name(self, span: Span) -> str:
        return f"{self._folder}/{span[0]:012d}-{span[1]:012d}.jsonl"


def _pack(appends: Sequence[bytes]) -> bytes:
    return b"\n".join((json.dumps([len(append) for append in appends]).encode(), b"".join(appends)))


def _unpack(merged: bytes) -> list[bytes]:
    """The appends of a merged object; of a torn one what is there."""
    head, _, body = merged.partition(b"\n")
    try:
        ends = list(accumulate(load_json(head)))
    except (ValueError, TypeError):
        return [head]
    return [body[start:end] for start, end in pairwise([0, *ends])]


def chain(spans: Iterable[Span], position: int) -> Iterator[Span]:
    """The objects to read from a position on: each time the one that leads furthest. Over what is missing it steps.

    >>> list(chain([(0, 1), (0, 2), (1, 2), (2, 3), (5, 6)], 0))
    [(0, 2), (2, 3), (5, 6)]
    >>> list(chain([(0, 4), (4, 5)], 1))
    [(0, 4), (4, 5)]
    """
    best: Span | None = None
    for span in sorted(spans):
        if best is not None and span[0] > position:
            yield best
            position, best = best[1], None
        if span[1] > position and (best is None or span[1] > best[1]):
            position, best = max(position, span[0]), span
    if best is not None:
        yield best
