"""Parts of a status that only some jobs have, and why a job keeps what it keeps, as a sentence.

The words are the same for every kind of job and every controller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from floodway.job.decision import Mode

NO_MEASUREMENT = "no batch has been measured yet"
BY_COSTS = "by the costs in the network file: no batch has been measured yet"
OFF = "the mode is off: everything is kept"
EFFICIENCY = 0.9
"""What the next executor adds of what the present ones do on the mean, until that was measured."""
WORDS = {"enforce": "keeping", "observe": "enforcing would keep"}


def executors_more(present: int | None, needed: float | None, efficiency: float | None = None) -> int | None:
    """Executors to add for `needed` times the capacity of the present ones; None where either is not known.

    `efficiency` is the measured one (`control/loop.py`); None: it is assumed.

    >>> executors_more(4, 1.5), executors_more(4, 1.5, 0.5), executors_more(4, 0.7), executors_more(None, 1.5)
    (3, 4, 0, None)
    """
    if not present or needed is None:
        return None
    return max(0, math.ceil(present * (needed - 1.0) / (efficiency or EFFICIENCY)))


def capacity_words(needed: float, more: int | None, efficiency: float | None = None) -> str:
    """How much capacity would keep everything, against what is there.

    >>> capacity_words(1.8, 4)
    '1.80 times the present would keep everything: 4 executors more, at an assumed efficiency of 0.90'
    >>> capacity_words(1.8, 3, 0.94)
    '1.80 times the present would keep everything: 3 executors more, at a measured efficiency of 0.94'
    """
    found = f"{needed:.2f} times the present would keep everything"
    known = "an assumed" if efficiency is None else "a measured"
    return f"{found}: {more} executors more, at {known} efficiency of {efficiency or EFFICIENCY:.2f}" if more else found


def held_reason(lasted_seconds: float, shed_after_seconds: float) -> str:
    """That nothing is dropped yet, though more waits than fits."""
    return (
        f"overloaded for {lasted_seconds:.0f} s: nothing is dropped in the first {shed_after_seconds:g} s, "
        "while capacity may come"
    )


def would_words(tuples: Mapping[str, int]) -> str:
    """What enforcing would do to tuples like those of the last batch, by reason; to be added to a reason.

    >>> would_words({"stale": 3_000, "lag": 20, "share": 7})
    '; enforcing would skip 3,020 tuples of the last batch that are too old or too many; enforcing would drop 7 tuples \
of the last batch, of keys over their share'
    """
    skipped, shared = tuples.get("stale", 0) + tuples.get("lag", 0), tuples.get("share", 0)
    found = ""
    if skipped:
        found += f"; enforcing would skip {skipped:,} tuples of the last batch that are too old or too many"
    if shared:
        found += f"; enforcing would drop {shared:,} tuples of the last batch, of keys over their share"
    return found


def keep_reason(
    fits: float,
    waiting: float,
    *,
    mode: Mode,
    batch_seconds: float,
    target_seconds: float = 0.0,
    floor_seconds: float | None = None,
) -> str:
    """How many of the tuples that wait a batch of this length holds.

    `floor_seconds` is the least latency that can be reached, where that is above `target_seconds`.

    >>> keep_reason(42_600, 60_000, mode="enforce", batch_seconds=2.0, target_seconds=3.0)
    'a batch of 2.0 s holds 42,600 tuples; 60,000 wait: keeping 71%'
    >>> keep_reason(300, 300, mode="observe", batch_seconds=0.42, target_seconds=2.0)
    'a batch of 0.42 s holds all 300 tuples that wait: enforcing would keep 100%'
    >>> keep_reason(30, 300, mode="enforce", batch_seconds=0.66, target_seconds=0.5, floor_seconds=0.9)
    '0.5 s cannot be met, the least is about 0.90 s; a batch of 0.66 s holds 30 tuples; 300 wait: keeping 10%'
    """
    if mode == "off":
        return OFF
    batch = f"a batch of {batch_seconds:.{1 if batch_seconds >= 1.0 else 2}f} s holds"
    if floor_seconds is not None:
        batch = f"{target_seconds:g} s cannot be met, the least is about {floor_seconds:.2f} s; {batch}"
    if fits >= waiting or waiting < 0.5:  # less than one tuple is none to speak of
        return f"{batch} all {waiting:,.0f} tuples that wait: {WORDS[mode]} 100%"
    share = fits / waiting
    return f"{batch} {fits:,.0f} tuples; {waiting:,.0f} wait: {WORDS[mode]} {share:.{0 if share >= 0.1 else 1}%}"


@dataclass(frozen=True, slots=True)
class AccuracyPart:
    """The bounds of an estimated aggregate against their target. Widths are relative to the value.

    `bound` is the widest of the last batch over the groups that count, None where it is not known, and `held` whether
    it is within the target. The groups need `needed_keep` of all tuples, and latency allows `allowed_keep`.
    `late_seconds` is by how much latency is missed for the sake of accuracy, None where it is not.

    >>> AccuracyPart("sum(price) by page", 0.01, "accuracy", 20, 0.009, True, 0.62, 0.4, 1.25).words
    'sum(price) by page within 1% needs 62% of the tuples, latency allows 40%: accuracy is held, results are 1.2 s late'
    >>> AccuracyPart("sum(price) by page", 0.01, "latency", 20, 0.016, False, 0.62, 0.4).words
    'sum(price) by page within 1% needs 62% of the tuples, latency allows 40%: bounds are 1.6%, wider by 0.6%'
    >>> AccuracyPart("count(*)", 0.05, "latency", 1, 0.002, True, 0.1, 0.4).words
    'count(*) is within 0.2% of a target of 5%'
    """

    aggregate: str
    within: float
    prefer: Literal["accuracy", "latency"] = "accuracy"
    groups: int = 0
    bound: float | None = None
    held: bool | None = None
    needed_keep: float | None = None
    allowed_keep: float | None = None
    late_seconds: float | None = None

    @property
    def words(self) -> str:
        """The state as a sentence."""
        if self.held is None:
            return f"{self.aggregate}: no tuple has been sampled yet"
        bounds = "bounds are not known" if self.bound is None else f"bounds are {_percent(self.bound)}"
        missed = f"{bounds}{'' if self.bound is None else f', wider by {_percent(self.bound - self.within)}'}"
        if self.needed_keep is None or self.allowed_keep is None or self.needed_keep <= self.allowed_keep:
            if self.held and self.bound is not None:
                return f"{self.aggregate} is within {_percent(self.bound)} of a target of {_percent(self.within)}"
            return f"{self.aggregate} within {_percent(self.within)}: {missed}"
        late = "" if self.late_seconds is None else f", results are {self.late_seconds:.1f} s late"
        return (
            f"{self.aggregate} within {_percent(self.within)} needs {_percent(self.needed_keep)} of the tuples, "
            f"latency allows {_percent(self.allowed_keep)}: {'accuracy is held' if self.held else missed}{late}"
        )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g}%" if share < 0.1 else f"{share:.0%}"


@dataclass(frozen=True, slots=True)
class BehindPart:
    """`tuples` wait for a batch; `catch_up_seconds` is when they will be processed, None: not at the present rates.

    >>> BehindPart(120_000, 95.0).words
    'nothing is dropped; 120,000 tuples wait: caught up in about 95 s'
    >>> BehindPart(0, would_take=900).words
    'nothing is dropped, and nothing waits; enforcing would take at most 900 per batch'
    >>> BehindPart(120_000, None).words
    'nothing is dropped; 120,000 tuples wait, and more arrive than can be processed: results become later'
    """

    tuples: int = 0
    catch_up_seconds: float | None = None
    max_age_seconds: float | None = None
    """Tuples that are older are skipped all the same; None: none is."""
    would_take: int | None = None
    """In mode observe: the most tuples that a batch would take if it was enforced; None: all."""

    @property
    def words(self) -> str:
        """The state as a sentence."""
        would = "" if self.would_take is None else f"; enforcing would take at most {self.would_take:,} per batch"
        return f"{self._words}{would}"

    @property
    def _words(self) -> str:
        kept = "nothing is dropped"
        if self.max_age_seconds is not None:
            kept = f"only what is older than {self.max_age_seconds:g} s is dropped"
        if self.tuples == 0:
            return f"{kept}, and nothing waits"
        waits = f"{kept}; {self.tuples:,} tuples wait"
        if self.catch_up_seconds is None:
            return f"{waits}, and more arrive than can be processed: results become later"
        return f"{waits}: caught up in about {max(1.0, self.catch_up_seconds):.0f} s"


ENDED = ("done", "failed")
"""How a move ends; every other state is one on the way."""


@dataclass(frozen=True, slots=True)
class FragmentPart:
    """A part of a query that runs here: CPU-seconds per second and tuples per second that arrive for it.

    `owner` is whose it is, `price` what is paid for it, `keep` the share of its tuples that is kept, `place` the
    folder of its ledger and its batches, which moves with it.
    """

    owner: str
    cpu: float = 0.0
    rate: float = 0.0
    keep: float = 1.0
    delay_seconds: float | None = None
    malformed: int = 0
    price: float | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class ContractPart:
    """A contract with a partner; `kinds` of fragments, or all."""

    giver: str
    taker: str
    lowest_price: float
    highest_price: float
    kinds: str = "all"


@dataclass(frozen=True, slots=True)
class MovePart:
    """A move of fragments between two participants, and how long each of its steps took, in seconds."""

    id: str
    giver: str
    taker: str
    state: str
    at: float
    fragments: tuple[str, ...] = ()
    price: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class OfferPart:
    """Fragments that are offered to a partner now."""

    taker: str
    fragments: tuple[str, ...]
    price: float


@dataclass(frozen=True, slots=True)
class MissedPart:
    """How a partner serves a fragment of ours that it does not serve in full."""

    by: str
    keep: float = 1.0
    delay_seconds: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ParticipantPart:
    """Loads in CPU-seconds per second; times in seconds of the epoch; balance in price × CPU × seconds.

    `lent` names by fragment who runs it, `leases` until when this participant may run it, `silent` how often each
    partner did not answer, `stalled` why a fragment that is held does not run, `moves_total` counts moves by state.
    """

    cpu: float
    load: float
    unit_cost: float = 0.0
    fragments: Mapping[str, FragmentPart] = field(default_factory=dict)
    lent: Mapping[str, str] = field(default_factory=dict)
    offer: OfferPart | None = None
    balance: float = 0.0
    leases: Mapping[str, float] = field(default_factory=dict)
    contracts: tuple[ContractPart, ...] = ()
    moves: tuple[MovePart, ...] = ()
    moves_total: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, MissedPart] = field(default_factory=dict)
    stalled: Mapping[str, str] = field(default_factory=dict)

    def troubles(self) -> list[str]:
        """What an operator of a participant has to know, as sentences."""
        return [
            *(f"{fragment} is held and does not run: {why}" for fragment, why in self.stalled.items()),
            *(f"{partner} does not answer ({times} times)" for partner, times in self.silent.items()),
            *(
                f"{fragment} is not served in full by {one.by}: it keeps {one.keep:.0%}, "
                f"results take {one.delay_seconds or 0.0:.1f} s"
                for fragment, one in self.missed.items()
            ),
            *(f"{where}: {why}" for where, why in self.failures.items()),
        ]

    @property
    def ended_moves(self) -> dict[str, int]:
        """Moves by how they ended, both ways there from 0 on."""
        return {state: self.moves_total.get(state, 0) for state in ENDED}

    @property
    def open_moves(self) -> int:
        """Moves that have begun and not ended."""
        return sum(self.moves_total.values()) - sum(self.ended_moves.values())
