"""Criteria that are known not to be met: contradictions to the papers, each explained in its result."""

from __future__ import annotations

from floodway.experiments.result import Result

CONTRADICTIONS: dict[str, tuple[str, ...]] = {
    "buffer-section3": ("PI keeps the miss ratio", "in front of a processor that takes a tuple when it is free"),
    "buffer-fig3": ("cleaner once a cycle",),
    "staying-fit-table3": ("as many entries as printed",),
    "staying-fit-propagation": ("by the paper's look-up every overloaded point has a row",),
    "contracts-fig11": ("with a range a few moves follow on removal",),
    "contracts-lemmas": ("Theorem 2: with Lemma 1's range an underloaded network",),
}
"""Beginnings of the criteria by result."""


def check_verdict(name: str, result: Result) -> None:
    """All criteria are met but for the known ones; a result that does not hold says why."""
    known = CONTRADICTIONS.get(name, ())
    unmet = [one.text for one in result.unmet]
    strange = [text for text in unmet if not text.startswith(known or ("\0",))]
    assert not strange, result.reason
    assert len(unmet) == len(known), f"now met: {set(known)} of {unmet}"
    assert result.holds == (not known)
    assert not known or (result.why and result.why in result.reason)
