"""Why a job keeps what it keeps, as a sentence: the same words for every kind of job and every controller."""

from __future__ import annotations

from floodway.job.decision import Mode

NO_MEASUREMENT = "no batch has been measured yet"
OFF = "the mode is off: everything is kept"
WORDS = {"enforce": "keeping", "observe": "enforcing would keep"}


def keep_reason(
    fits: float,
    waiting: float,
    *,
    mode: Mode,
    target_seconds: float,
    batch_seconds: float | None = None,
    floor_seconds: float | None = None,
) -> str:
    """How many of the tuples that wait a batch may hold: one of this length, where that is known, else for the target.

    `floor_seconds` is the least latency that can be reached, where that is above the target.

    >>> keep_reason(42_600, 60_000, mode="enforce", target_seconds=3.0, batch_seconds=2.0)
    'a batch of 2.0 s holds 42,600 tuples; 60,000 wait: keeping 71%'
    >>> keep_reason(300, 300, mode="observe", target_seconds=2.0)
    'for results within 2 s a batch may hold all 300 tuples that wait: enforcing would keep 100%'
    >>> keep_reason(30, 300, mode="enforce", target_seconds=0.5, floor_seconds=0.9)
    '0.5 s cannot be met, the least is about 0.90 s; a batch may hold 30 tuples; 300 wait: keeping 10%'
    """
    if mode == "off":
        return OFF
    batch = f"for results within {target_seconds:g} s a batch may hold"
    if batch_seconds is not None:
        batch = f"a batch of {batch_seconds:.1f} s holds"
    if floor_seconds is not None:
        batch = f"{target_seconds:g} s cannot be met, the least is about {floor_seconds:.2f} s; a batch may hold"
    if fits >= waiting:
        return f"{batch} all {waiting:,.0f} tuples that wait: {WORDS[mode]} 100%"
    share = fits / waiting
    return f"{batch} {fits:,.0f} tuples; {waiting:,.0f} wait: {WORDS[mode]} {share:.{0 if share >= 0.1 else 1}%}"
