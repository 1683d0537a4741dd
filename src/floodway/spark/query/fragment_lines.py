"""The ledger lines of one micro-batch of a fragment: from the journaled offsets, the tail's counters and the sinks.

Counts at the sources are functions of the journaled offset alone, so a replay and an audit find the same:

    offered = Σ (end − start) over what the batch settles        kept = those of them that the admission rule lets pass

A source with a buffer has three lines, one a reason: what the shedder keeps the adaptor is offered, and what that
keeps the cleaner. One that shares by key has a line for tuples of keys over their share. A batch that jumped over
deleted tuples has a line with the reason `retention`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from floodway.job.ledger.facts import BatchFacts, FactsLog
from floodway.job.ledger.fold import ORDER, Counts
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.job.store.store import Store
from floodway.spark.query.dead_letters import PREFIX
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.tail import TailResult
from floodway.spark.source.accounts import Account
from floodway.spark.source.notes import count_gone
from floodway.spark.source.offsets import BatchOffset
from floodway.units import PPM


def batch_lines(
    query: str, fragment: Fragment, journal: JournaledBatch, result: TailResult, lost: Path | None = None
) -> list[LedgerLine]:
    """One line for every place of the fragment, also where nothing came: an audit counts batches.

    `lost` is the folder with notes of what was deleted before it could be read (spark/source/notes.py).
    """
    lines = []
    for spec in fragment.sources:
        at = spec.location or spec.name
        dead = result.delivered.get(PREFIX + at)
        lines += source_lines(query, journal, at, lost, dead=None if dead is None else dead.rows)
    # All sources read the same decision file; a branch's keep travels with the tuples of any of them.
    offset = next(iter(journal.offsets.values()), None)
    for arc, (offered, kept) in result.branches.items():
        lines.append(_line(query, journal, arc, offered, kept, offset, offset.arc_keep(arc) if offset else PPM))
    lines += [
        delivered_line(query, journal, sink, written.rows)
        for sink, written in result.delivered.items()
        if not sink.startswith(PREFIX)
    ]
    return lines


def source_lines(
    query: str, journal: JournaledBatch, at: str, lost: Path | None = None, dead: int | None = None
) -> list[LedgerLine]:
    """The lines of one source; `dead` of its records were malformed, None if it cannot have such."""
    offset = journal.offsets.get(at)
    lines = [
        _line(query, journal, at, offered, kept, offset, _keep_ppm(reason, offset), reason)
        for reason, offered, kept in source_stages(offset, lost)
    ]
    if dead is not None:
        # Malformed records leave after all other reasons: of what these kept, the rest went on to the operators.
        kept, keep_ppm = min(line.kept for line in lines), offset.keep_ppm if offset else PPM
        lines.append(_line(query, journal, at, kept, kept - dead, offset, keep_ppm, Reason.DEAD_LETTER))
    return lines


def delivered_line(query: str, journal: JournaledBatch, sink: str, rows: int) -> LedgerLine:
    """What a batch wrote to one sink."""
    offset = next(iter(journal.offsets.values()), None)
    return _line(query, journal, sink, rows, rows, offset, PPM, Reason.DELIVERED)


def source_stages(offset: BatchOffset | None, lost: Path | None = None) -> list[tuple[Reason, int, int]]:
    """(reason, offered, kept) of one source in one batch; nothing came where the source brought no news."""
    if offset is None:
        return [(Reason.SHEDDER, 0, 0)]
    told = {Reason.SHEDDER}
    gone = count_gone(lost, offset) if lost is not None else 0
    if offset.lost or gone:
        told |= {Reason.RETENTION}
    if offset.mode == "enforce":
        told |= {reason for reason, counts in ((Reason.STALE, offset.stale), (Reason.LAG, offset.lag)) if counts}
    if offset.admission.keys is not None:
        told |= {Reason.SHARE}
    if offset.queues:
        told |= {Reason.ADAPTOR, Reason.CLEANER}
    account = offset.account() + Account(retention=gone)
    return [stage for stage in account.stages() if stage[0] in told]


def _keep_ppm(reason: Reason, offset: BatchOffset | None) -> int:
    return offset.keep_ppm if offset is not None and reason is Reason.SHEDDER else PPM


def _line(
    query: str,
    journal: JournaledBatch,
    at: str,
    offered: int,
    kept: int,
    offset: BatchOffset | None,
    keep_ppm: int,
    reason: Reason = Reason.SHEDDER,
) -> LedgerLine:
    return LedgerLine(
        query=query,
        batch=journal.batch,
        at=at,
        reason=reason,
        offered=offered,
        kept=kept,
        dropped=offered - kept,
        plan=offset.plan if offset else "",
        mode=offset.mode if offset else "off",
        keep_ppm=keep_ppm,
        time_us=journal.timestamp_ms * 1000,
    )


_NOT_DROPPED = (Reason.RETENTION, Reason.DEAD_LETTER)
"""Those tuples are gone, or lie in a log of their own."""


class StreamFacts:
    """The offsets of batches whose streams dropped something, kept for whoever wants the tuples back.

    Spark has the last hundred offsets of a query only.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logs: dict[str, FactsLog] = {}

    def add(self, query: str, journal: JournaledBatch, lines: Iterable[LedgerLine]) -> None:
        """Keep those of one batch, durably; `lines` are its ledger lines."""
        counts = Counts.of(lines)
        for at, offset in journal.offsets.items():
            dropped = sum(counts.dropped[at, reason] for reason in ORDER if reason not in _NOT_DROPPED)
            if dropped:
                facts = BatchFacts(
                    query=query,
                    batch=journal.batch,
                    time_us=journal.timestamp_ms * 1000,
                    mode=offset.mode,
                    offered=counts.offered[at],
                    kept=counts.offered[at] - dropped,
                    keep_ppm=offset.keep_ppm,
                    salt=offset.salt,
                    offset=json.dumps(offset.to_json()),
                )
                self._logs.setdefault(at, FactsLog(self._store, at)).add(facts)
