"""What became of the tuples that a batch settled, reason by reason, from its offset alone.

A batch settles the positions from its start to its end. What its log had deleted before the batch was cut goes to
*retention*. With a buffer, each of the others met, in the order of the accounts, the *shedder* (its hash), the
*adaptor* (its hash, or the front drop), the *cleaner* (late heads), and whoever got past all three was read. The order
only says who is named where several would have dropped the same tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from floodway.job.ledger.fold import ORDER
from floodway.job.ledger.ledger import Reason
from floodway.spark.source.drops import kept_mask, tuple_ids

Zone = Literal["cleaned", "front", "read"]
_CHUNK = 1 << 20


class Part(NamedTuple):
    """Positions [start, end) of a partition that share one fate: late, dropped at the front, or read.

    `keep_ppm` is what the buffer's adaptor keeps of them.
    """

    partition: int
    start: int
    end: int
    keep_ppm: int
    zone: Zone = "read"


@dataclass(frozen=True, slots=True)
class Account:
    """Tuples that a batch settled and how many went for which reason; `offered` is all of them.

    >>> Account(offered=10, shedder=1, adaptor=2, cleaner=3).kept
    4
    """

    offered: int = 0
    shedder: int = 0
    adaptor: int = 0
    cleaner: int = 0
    retention: int = 0
    stale: int = 0
    lag: int = 0
    share: int = 0

    @property
    def kept(self) -> int:
        """Tuples that entered the batch."""
        skipped = self.retention + self.stale + self.lag
        return self.offered - skipped - self.shedder - self.share - self.adaptor - self.cleaner

    def stages(self) -> Iterator[tuple[Reason, int, int]]:
        """(reason, offered, kept) in the order of the accounts: what one keeps is what the next is offered.

        The shedder comes first, so that its line says how much was offered in all, deleted tuples included.
        """
        left = self.offered
        dropped = {
            Reason.SHEDDER: self.shedder,
            Reason.SHARE: self.share,
            Reason.STALE: self.stale,
            Reason.LAG: self.lag,
            Reason.RETENTION: self.retention,
            Reason.ADAPTOR: self.adaptor,
            Reason.CLEANER: self.cleaner,
        }
        for reason in ORDER:
            if reason in dropped:
                yield reason, left, left - dropped[reason]
                left -= dropped[reason]

    def __add__(self, other: Account) -> Account:
        return Account(
            self.offered + other.offered,
            self.shedder + other.shedder,
            self.adaptor + other.adaptor,
            self.cleaner + other.cleaner,
            self.retention + other.retention,
            self.stale + other.stale,
            self.lag + other.lag,
            self.share + other.share,
        )


def count_both(partition: int, start: int, end: int, first: tuple[int, int], second: tuple[int, int]) -> int:
    """How many tuples of [start, end) stay under two hashes at once, each given as (salt, keep in ppm)."""
    total = 0
    for at in range(start, end, _CHUNK):
        ids = tuple_ids(partition, np.arange(at, min(at + _CHUNK, end), dtype=np.int64))
        for salt, keep_ppm in (first, second):
            ids = ids[kept_mask(ids, salt=salt, keep_ppm=keep_ppm)]
        total += len(ids)
    return total
