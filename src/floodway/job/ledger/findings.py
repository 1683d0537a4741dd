"""What an audit finds: differences, and what it could not check. Sentences, because people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from floodway.job.ledger.ledger import LedgerLine, Reason

MOST = 20
"""Sentences about single batches of one place; of more only the number is told."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was checked, what did not agree, and what could not be checked from here."""

    batches: int
    lines: int
    tuples_offered: int
    tuples_delivered: int
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]


@dataclass(slots=True)
class Findings:
    """Collected while an audit goes on.

    >>> found = Findings()
    >>> found.compare("q", "the log holds", {0: 5, 1: 7}, {0: 5, 1: 6})
    >>> found.differences
    ['q, batch 1: the ledger says 7 tuples were delivered, the log holds 6']
    """

    differences: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def differ(self, texts: Iterable[str]) -> None:
        """Add differences of one kind at one place; the first ones in full."""
        told = list(texts)
        self.differences += told[:MOST]
        if len(told) > MOST:
            self.differences.append(f"… and {len(told) - MOST} more like the last")

    def compare(self, place: str, there: str, said: Mapping[int, int], found: Mapping[int, int]) -> None:
        """Compare tuples batch by batch."""
        self.differ(
            f"{place}, batch {batch}: the ledger says {said.get(batch, 0)} tuples were delivered, "
            f"{there} {found.get(batch, 0)}"
            for batch in sorted(said.keys() | found.keys())
            if said.get(batch, 0) != found.get(batch, 0)
        )


def delivered(lines: Sequence[LedgerLine], sink: str) -> dict[int, int]:
    """Tuples that each batch delivered to a sink."""
    return {line.batch: line.kept for line in lines if line.at == sink and line.reason == Reason.DELIVERED}


def malformed(lines: Sequence[LedgerLine], at: str) -> dict[int, int]:
    """Tuples of each batch that went to the dead-letter log of a source."""
    return {line.batch: line.dropped for line in lines if line.at == at and line.reason == Reason.DEAD_LETTER}
