"""One line of the ledger: what a micro-batch did at one drop location, for one reason."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from floodway.json_text import load_json

KEPT_BATCHES = 1000
Key = tuple[str, int, str, str]
"""Query, batch, location, reason."""
LineCounts = tuple[int, int, int]
"""Offered, kept, dropped."""
VERSION = 2
"""Of the form of a line; lines of version 1 did not say it."""


class Reason(StrEnum):
    """Why tuples left the stream, or why a line is there at all: `delivered` to a sink, `recovered` later, or what is
    wrong with counts."""

    SHEDDER = "shedder"
    SHARE = "share"
    STALE = "stale"
    LAG = "lag"
    ADAPTOR = "adaptor"
    CLEANER = "cleaner"
    DEAD_LETTER = "dead-letter"
    RETENTION = "retention"
    DELIVERED = "delivered"
    RECOVERED = "recovered"
    GAP = "gap"
    CONFLICT = "conflict"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What one micro-batch did at one drop location for one reason.

    Counts in tuples, time in microseconds of the epoch, `offered = kept + dropped`. `plan` names the decision in
    force, `keep_ppm` its keep in parts per million. A `gap` line stands for the batches `batch` to `until` of which
    no count was ever heard; its own counts are 0. `offered` of an `uncertain` line is what Spark read for the batch,
    where what was counted cannot be all of it.

    >>> LedgerLine("q", 7, "clicks", "shedder", 10, 4, 6).balanced
    True
    """

    query: str
    batch: int
    at: str
    reason: str
    offered: int
    kept: int
    dropped: int
    plan: str = ""
    mode: str = "enforce"
    keep_ppm: int = 1_000_000
    time_us: int = 0
    until: int | None = None

    @property
    def key(self) -> Key:
        """What makes a line unique."""
        return (self.query, self.batch, self.at, self.reason)

    @property
    def balanced(self) -> bool:
        """Whether every offered tuple is accounted for."""
        return self.offered == self.kept + self.dropped and min(self.offered, self.kept, self.dropped) >= 0

    @property
    def last_batch(self) -> int:
        """The last batch that the line is about."""
        return self.batch if self.until is None else self.until

    def encode(self) -> bytes:
        """The line as stored, newline included."""
        return (json.dumps({**asdict(self), "v": VERSION}, sort_keys=True, separators=(",", ":")) + "\n").encode()

    @classmethod
    def decode(cls, raw: bytes) -> LedgerLine:
        """Read one stored line; a ValueError says what is wrong with it."""
        body = load_json(raw)
        if not isinstance(body, dict):
            raise ValueError("not an object")
        if body.get("v") != VERSION:
            raise ValueError(f"version {body.get('v', 1)!r}, not {VERSION}")
        known: dict[str, Any] = {}
        for name, kind in _FIELDS:
            value = known[name] = body.get(name)
            if kind == "int" and type(value) is not int:
                raise ValueError(f"{name} is {value!r}, not an integer")
            if kind == "str" and not isinstance(value, str):
                raise ValueError(f"{name} is {value!r}, not a string")
        return cls(**known)

    @property
    def counts(self) -> LineCounts:
        """Offered, kept, dropped."""
        return (self.offered, self.kept, self.dropped)


_FIELDS = tuple((field.name, field.type) for field in fields(LedgerLine))


class RecentLines:
    """Counts of the lines of each query's newest batches, at least `kept_batches` of them and at most twice as many.

    Spark repeats the last batch after a crash, so that is all a writer needs to know lines again. A batch from before
    is repeated only by a checkpoint that was restored from a copy; then the log itself is searched.

    >>> recent = RecentLines(kept_batches=1)
    >>> for batch in range(4):
    ...     recent.add(("q", batch, "clicks", "shedder"), (10, 4, 6))
    >>> recent.find(("q", 0, "clicks", "shedder")), recent.find(("q", 3, "clicks", "shedder"))
    (None, (10, 4, 6))
    """

    def __init__(self, *, kept_batches: int | None = None) -> None:
        self._kept_batches = KEPT_BATCHES if kept_batches is None else kept_batches
        self._batches: dict[str, dict[int, dict[tuple[str, str], LineCounts]]] = {}

    def add(self, key: Key, counts: LineCounts) -> None:
        """Remember a line, the first of its key."""
        query, batch, at, reason = key
        batches = self._batches.setdefault(query, {})
        batches.setdefault(batch, {}).setdefault((at, reason), counts)
        if len(batches) > 2 * self._kept_batches:
            for old in sorted(batches)[: -self._kept_batches]:
                del batches[old]

    def find(self, key: Key) -> LineCounts | None:
        """The counts of a line; None if it is not remembered."""
        query, batch, at, reason = key
        return self._batches.get(query, {}).get(batch, {}).get((at, reason))

    def reasons(self, query: str, batch: int, at: str) -> list[str]:
        """The reasons of the lines remembered of a batch at a location."""
        return [reason for place, reason in self._batches.get(query, {}).get(batch, {}) if place == at]
