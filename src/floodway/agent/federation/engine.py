"""What a participant needs of whatever runs its fragments; `spark_engine.py` is the one that runs them on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from floodway.agent.loop.steering import FragmentBatch
from floodway.contracts.federation_file import FragmentSpec

Fence = Callable[[], None]
"""Raises `LeaseLostError` when the fragment may not be run here any more."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """A finished batch: what the controllers see of it, and the names of the plans that it was cut under."""

    batch: FragmentBatch
    plans: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Measure:
    """One fragment over the last seconds: tuples/s that arrived by stream, CPU-seconds per tuple, seconds they wait.

    `waiting` are the tuples of each stream that no batch has taken, `malformed` the records that could not be read
    since it was started here.
    """

    rates: Mapping[str, float]
    cost: float
    delay_seconds: float = 0.0
    malformed: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Tuples/s over all streams."""
        return sum(self.rates.values())

    @property
    def cpu(self) -> float:
        """CPU-seconds/s that all that arrives needs."""
        return self.rate * self.cost


class FragmentEngine(Protocol):
    """Starts, stops and measures fragments. Calls come from several threads, one fragment at a time."""

    def check(self, spec: FragmentSpec) -> None:
        """Refuse a fragment whose catalogue entry or parameters are not known here."""
        ...

    def prepare(self, spec: FragmentSpec) -> None:
        """Do all of a start that does not need the fragment itself, which another member still runs."""
        ...

    def forget(self, fragment: str) -> None:
        """Give up what was prepared and is not wanted; nothing if there is nothing."""
        ...

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        """Run it from its checkpoint on; returns when it has found its place. Starting twice changes nothing."""
        ...

    def stop(self, fragment: str, *, after_batch: bool = False) -> None:
        """Stop it at a batch boundary; one that does not run is left alone.

        `after_batch`: right after a batch, so that another member goes on with little delay.
        """
        ...

    def failures(self) -> Mapping[str, str]:
        """Fragments that ended by themselves, with the reason; each is told once."""
        ...

    def measure(self, now: float) -> Mapping[str, Measure]:
        """Every fragment that runs here."""
        ...

    def batches(self) -> Sequence[EndedBatch]:
        """The batches that have ended since the last call; each is on record beside the fragment's ledger."""
        ...

    def close(self) -> None:
        """Stop everything."""
        ...
