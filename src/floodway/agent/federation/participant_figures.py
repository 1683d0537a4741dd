"""What a participant's loop saw last, and the status that people, tests and experiments read.

A participant is a job like the others: its ledger is that of the fragments that run here. Ledger and batches lie with
each fragment on the shared storage and move with it, so the totals are those of the fragments held, whoever ran them
before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from floodway.agent.federation.engine import EndedBatch, Measure
from floodway.agent.federation.journal_rows import BookedEntry, MoveRow, fragment_of
from floodway.agent.federation.member_steering import Shed
from floodway.agent.loop.batch_figures import loop_status
from floodway.agent.loop.plan_book import PlanBook
from floodway.contracts.cost import unit_cost
from floodway.contracts.messages import Offer
from floodway.contracts.participant_state import Holding, Participant
from floodway.contracts.payment import PaymentReason
from floodway.job.decision import Mode
from floodway.job.status.batches import Latency, Sketch
from floodway.job.status.figures import JobTail
from floodway.job.status.parts import (
    ContractPart,
    FragmentPart,
    MissedPart,
    MovePart,
    OfferPart,
    ParticipantPart,
)
from floodway.job.status.status import NodePart, ProcessPart, Status
from floodway.job.store.store import LocalStore

SHOWN_FAILURES = 50
"""How many of the last failures a status shows."""


@dataclass
class ParticipantFigures:
    """The latest measures and keeps, and what went wrong so far; what goes wrong more than once is counted.

    `missed` tells of fragments that others run for this participant how they were served where that was not in full,
    `balance` what it has earned less what it has paid, as of the last period billed.
    """

    measures: Mapping[str, Measure] = field(default_factory=dict)
    keeps: Mapping[str, float] = field(default_factory=dict)
    unreachable: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    missed: dict[str, MissedPart] = field(default_factory=dict)
    balance: float = 0.0
    _counts: Counter[str] = field(default_factory=Counter)

    def fail(self, where: str, error: Exception | str) -> None:
        """Something failed, and the participant goes on."""
        self._counts[where] += 1
        text = error if isinstance(error, str) else str(error) or type(error).__name__
        times = f" ({self._counts[where]} times)" if self._counts[where] > 1 else ""
        self.failures.pop(where, None)  # the latest last
        self.failures[where] = f"{text[:300]}{times}"
        while len(self.failures) > SHOWN_FAILURES:
            oldest = next(iter(self.failures))
            self.failures.pop(oldest, None)
            self._counts.pop(oldest, None)

    def served(self, taker: str, entries: Iterable[BookedEntry], late_seconds: Mapping[str, float]) -> None:
        """What a taker's bill tells of how it serves; `late_seconds` is the delay allowed, by fragment, if any."""
        for one in entries:
            if one.entry.reason is not PaymentReason.LOAD:
                continue
            fragment = fragment_of(one)
            delay = one.delay_seconds or 0.0
            if one.keep < 1.0 or delay > late_seconds.get(fragment, inf):
                self.missed[fragment] = MissedPart(taker, one.keep, one.delay_seconds, one.entry.at)
            else:
                self.missed.pop(fragment, None)

    def part(
        self, machine: Participant, moves: Iterable[MoveRow], *, cpu: float, places: Mapping[str, Path]
    ) -> ParticipantPart:
        """Load, fragments, contracts and moves; loads in CPU-seconds/s, rates in tuples/s."""
        return ParticipantPart(
            cpu=cpu,
            load=machine.load.cpu,
            unit_cost=unit_cost(machine.costs, machine.load),
            fragments={
                name: self._fragment(machine, name, held, str(places.get(name, "")))
                for name, held in machine.holdings.items()
            },
            lent={name: away.taker for name, away in machine.away.items()},
            offer=None if machine.search is None else _offer(machine.search.offer),
            balance=self.balance,
            contracts=tuple(
                ContractPart(
                    one.giver, one.taker, one.min_price, one.max_price, ", ".join(sorted(one.kinds or ("all",)))
                )
                for one in (*machine.gives_to.values(), *machine.takes_from.values())
            ),
            moves=tuple(
                MovePart(
                    id=row.id,
                    giver=row.giver,
                    taker=row.taker,
                    state=row.state,
                    at=row.at,
                    fragments=tuple(sorted(row.units)),
                    price=row.price,
                    seconds=dict(row.seconds),
                    note=row.note,
                )
                for row in moves
            ),
            silent=dict(self.unreachable),
            failures=dict(self.failures),
            missed=dict(self.missed),
        )

    def _fragment(self, machine: Participant, name: str, held: Holding, place: str) -> FragmentPart:
        measured = self.measures.get(name)
        return FragmentPart(
            owner=held.contract.giver if held.contract else machine.name,
            cpu=held.task.load.cpu,
            rate=held.task.load.rate,
            keep=self.keeps.get(name, 1.0),
            delay_seconds=measured.delay_seconds if measured else None,
            malformed=measured.malformed if measured else 0,
            price=held.price,
            place=place,
        )


class MemberRecord:
    """The ledgers and batches of the fragments that run here, and the status made of them, as of the last look."""

    def __init__(self, name: str, folder: Path, target_seconds: float) -> None:
        self._tail = JobTail()
        self._book = PlanBook(folder)
        self._blank = Status(name, "participant", "off", 0.0, latency=Latency(target=target_seconds))
        self._seen = self._blank
        self.latencies = Sketch()
        """Of all results of the fragments that run here, as of the last look."""

    def issued(self, shed: Shed) -> None:
        """A decision is in force from now on."""
        self._book.issued(shed.decision, shed.steered)

    def look(self, now: float, shed: Shed, batches: Iterable[EndedBatch], places: Iterable[Path]) -> None:
        """Take in the batches that have ended, and what the fragments have on record in these folders."""
        for one in batches:
            self._book.cut(one.plans)
        self._tail.advance(LocalStore(place) for place in places)
        self.latencies = self._tail.figures.latencies.copy()
        figures, target = self._tail.figures, self._blank.latency.target or 0.0
        if shed.steered is None or shed.network is None:
            self._seen = figures.refreshed(replace(self._blank, time=now))
        else:
            self._seen = loop_status(
                *(shed.network, figures, shed.steered),
                kind="participant",
                now=now,
                target_seconds=target,
                waiting=shed.waiting,
                decision_seen=self._book.seen,
            )

    def status(
        self, part: ParticipantPart, *, now: float, process: ProcessPart, mode: Mode, warnings: tuple[str, ...] = ()
    ) -> Status:
        """The status of now: from any thread."""
        seen = self._seen
        # Before the first results: how long tuples wait.
        timed = [(one.rate, one.delay_seconds) for one in part.fragments.values() if one.delay_seconds is not None]
        weight = sum(rate for rate, _ in timed)
        waited = sum(rate * delay for rate, delay in timed) / weight if weight > 0 else None
        return replace(
            seen,
            name=self._blank.name,
            mode=mode,
            time=now,
            latency=seen.latency if seen.latency.mean is not None else replace(seen.latency, mean=waited),
            reason=_reason(part),
            errors=len(part.failures) + len(warnings),
            warnings=warnings,
            nodes={self._blank.name: NodePart(part.load, part.cpu)},
            process=process,
            participant=part,
            network="",
        )


def _reason(part: ParticipantPart) -> str:
    arriving = f"{part.load:.2f} CPU-seconds of work arrive per second, this participant has {part.cpu:g}"
    cut = [f"{one.keep:.0%} of {name}" for name, one in part.fragments.items() if one.keep < 1.0]
    return f"{arriving}: keeping {', '.join(cut) if cut else 'everything'}"


def _offer(offer: Offer) -> OfferPart:
    return OfferPart(offer.taker, tuple(task.name for task in offer.tasks), offer.price)
