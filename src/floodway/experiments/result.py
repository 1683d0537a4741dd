"""What an experiment returns: the paper's claim, what was measured, and the criteria that decide whether it holds.

One file an experiment, each with a function `run(*, seeds, trace, progress) -> Result`; `registry.py` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[float], None]
"""Called with the fraction done so far, from 0 to 1."""

Where = Literal["simulation", "spark", "computation", "nowhere"]
"""Simulated clock, real Spark or plain arithmetic: a reader must be able to tell where a number is from."""

PAPERS = {
    "staying-fit": "Staying FIT",
    "fit-short": "Dealing with Overload (short FIT paper)",
    "buffer-preposed": "Buffer-preposed QoS Adaptation",
    "latency-guarantees": "Latency Guarantees (DISSP)",
    "contracts": "Contract-Based Load Management (Medusa)",
}
"""The papers by id, as docs/papers.md names them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says: `source` is the paper's id (`buffer-preposed`), `where` its table or figure.

    >>> Claim("buffer-preposed", "Figure 3", "EDF misses fewer deadlines than FIFO").paper
    'Buffer-preposed QoS Adaptation, Figure 3'
    """

    source: str
    where: str
    text: str

    @property
    def paper(self) -> str:
        """The paper by name, and the place in it."""
        return f"{PAPERS[self.source]}, {self.where}"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition of a verdict: `text` says what must be so, `found` what was measured instead where it is not."""

    text: str
    met: bool
    found: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a table or figure. It holds if all its criteria are met.

    `measured` holds what JSON can hold. `why` is the cause of a contradiction, as far as it is known; it is shown only
    where a criterion is not met. `plots` maps a file name without suffix to a function that draws it, so that nothing
    is drawn unless asked for. `headline` is one line of the numbers that matter, for people. `failed` says why there
    are no numbers, where the experiment could not run.

    >>> criteria = (Criterion("EDF misses less than FIFO", met=False, found="0.03 and 0.02"),)
    >>> result = Result({"edf": 0.03}, criteria, where="simulation")
    >>> result.holds, result.reason
    (False, 'not met: EDF misses less than FIFO (0.03 and 0.02)')
    """

    measured: Mapping[str, Any]
    criteria: tuple[Criterion, ...]
    where: Where
    notes: tuple[str, ...] = ()
    plots: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    headline: str = ""
    why: str = ""
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether the experiment ran and all criteria are met."""
        return bool(self.criteria) and not self.unmet and not self.failed

    @property
    def unmet(self) -> tuple[Criterion, ...]:
        """The criteria that are not met."""
        return tuple(one for one in self.criteria if not one.met)

    @property
    def reason(self) -> str:
        """Why the claim does not hold; empty if it does."""
        if self.failed:
            return f"could not run: {self.failed}"
        if self.holds:
            return ""
        texts = [one.text + (f" ({one.found})" if one.found else "") for one in self.unmet]
        return f"not met: {'; '.join(texts)}" + (f". {self.why}" if self.why else "")

    def save_plots(self, directory: Path) -> list[Path]:
        """Draw every plot as PNG into `directory`, which is created if missing; returns the paths written."""
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        for name, draw in self.plots.items():
            path = directory / f"{name}.png"
            draw().savefig(path)
            written.append(path)
        return written


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A result with what it is of, and the seconds that it took."""

    id: str
    title: str
    paper: Claim
    result: Result
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fields that scripts read."""
        found = self.result
        return {
            "id": self.id,
            "title": self.title,
            "paper": {
                "source": self.paper.source,
                "name": PAPERS[self.paper.source],
                "where": self.paper.where,
                "claim": self.paper.text,
            },
            "measured": dict(found.measured),
            "headline": found.headline,
            "holds": found.holds,
            "reason": found.reason or None,
            "criteria": [{"text": one.text, "met": one.met, "found": one.found or None} for one in found.criteria],
            "failed": found.failed or None,
            "seconds": round(self.seconds, 3),
            "where": found.where,
            "notes": list(found.notes),
        }


class Experiment(Protocol):
    """The module of one experiment: a `TITLE` and the `CLAIM` for listings, and a `run`."""

    TITLE: str
    CLAIM: Claim

    def run(self, *, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
        """Run with these seeds, on the traffic of `trace` if given; say how far it is through `progress`."""
        ...
