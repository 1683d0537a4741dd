"""Why a job keeps what it keeps, as a sentence: the same words for every kind of job and every controller."""

from __future__ import annotations

import math

from floodway.job.decision import Mode

NO_MEASUREMENT = "no batch has been measured yet"
BY_COSTS = "by the costs in the network file: no batch has been measured yet"
OFF = "the mode is off: everything is kept"
EFFICIENCY = 0.9
"""What the next executor adds of what the present ones do on the mean."""
WORDS = {"enforce": "keeping", "observe": "enforcing would keep"}


def executors_more(present: int | None, needed: float | None) -> int | None:
    """Executors to add for `needed` times the capacity of the present ones; None where either is not known.

    >>> executors_more(4, 1.5), executors_more(4, 0.7), executors_more(None, 1.5)
    (3, 0, None)
    """
    if not present or needed is None:
        return None
    return max(0, math.ceil(present * needed / EFFICIENCY) - present) if needed > 1.0 else 0


def capacity_words(needed: float, more: int | None) -> str:
    """How much capacity would keep everything, against what is there.

    >>> capacity_words(1.8, 4)
    '1.80 times the present would keep everything: 4 executors more, at an efficiency of 0.9'
    """
    found = f"{needed:.2f} times the present would keep everything"
    return f"{found}: {more} executors more, at an efficiency of {EFFICIENCY}" if more else found


def held_reason(lasted_seconds: float, shed_after_seconds: float) -> str:
    """That nothing is dropped yet, though more waits than fits."""
    return (
        f"overloaded for {lasted_seconds:.0f} s: nothing is dropped in the first {shed_after_seconds:g} s, "
        "while capacity may come"
    )


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
