"""Tuples by place, as lines of a ledger tell them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from floodway.job.ledger import LedgerLine, Reason

NO_TUPLES = (Reason.GAP, Reason.CONFLICT)


@dataclass(slots=True)
class Counts:
    """Tuples by place: offered and kept at drop locations, dropped by (place, reason), delivered to sinks."""

    offered: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)

    def add(self, line: LedgerLine) -> None:
        """Count one line. The shedder is the first reason a tuple can go; the others take from what it kept."""
        if line.reason in NO_TUPLES:
            return
        if line.reason == Reason.DELIVERED:
            self.delivered[line.at] += line.kept
            return
        if line.reason == Reason.SHEDDER:
            self.offered[line.at] += line.offered
            self.kept[line.at] += line.kept
        else:
            self.kept[line.at] -= line.dropped
        if line.dropped:
            self.dropped[line.at, line.reason] += line.dropped

    def merge(self, other: Counts) -> None:
        """Add another's counts."""
        self.offered.update(other.offered)
        self.kept.update(other.kept)
        self.dropped.update(other.dropped)
        self.delivered.update(other.delivered)

    def copy(self) -> Counts:
        """As they are now, for a reader that does not hold back who goes on counting."""
        return Counts(self.offered.copy(), self.kept.copy(), self.dropped.copy(), self.delivered.copy())

    def since(self, before: Counts) -> Counts | None:
        """What came after `before` was counted; None if these are counts of something else, or started over."""
        found = Counts()
        for part in ("offered", "kept", "dropped", "delivered"):
            now, then, more = getattr(self, part), getattr(before, part), getattr(found, part)
            more.update({key: count - then[key] for key, count in now.items() if count != then[key]})
            if part != "kept" and (then.keys() - now.keys() or any(count < 0 for count in more.values())):
                return None
        return found

    def by_place(self) -> dict[str, dict[str, int]]:
        """Dropped tuples as {place: {reason: tuples}}."""
        found: dict[str, dict[str, int]] = {}
        for (at, reason), count in self.dropped.items():
            found.setdefault(at, {})[reason] = count
        return found
