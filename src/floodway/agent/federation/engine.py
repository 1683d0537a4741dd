"""What a participant needs of whatever runs its fragments; `spark_engine.py` is the one that runs them on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from floodway.contracts.federation_file import FragmentSpec

Fence = Callable[[], None]
"""Raises `LeaseLostError` when the fragment may not be run here any more."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One fragment over the last seconds: tuples/s that arrived, CPU-seconds/s that they need, seconds they wait.

    `malformed` counts the records that could not be read since it was started here.
    """

    rate: float = 0.0
    cpu: float = 0.0
    delay_seconds: float = 0.0
    malformed: int = 0


class Engine(Protocol):
    """Starts, stops and measures fragments. Calls come from several threads, one fragment at a time."""

    def check(self, spec: FragmentSpec) -> None:
        """Refuse a fragment whose catalogue entry or parameters are not known here."""
        ...

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        """Run it from its checkpoint on; returns when it has found its place. Starting twice changes nothing."""
        ...

    def stop(self, fragment: str) -> None:
        """Stop it at a batch boundary; one that does not run is left alone."""
        ...

    def failures(self) -> Mapping[str, str]:
        """Fragments that ended by themselves, with the reason; each is told once."""
        ...

    def measure(self, now: float) -> Mapping[str, Measure]:
        """Every fragment that runs here."""
        ...

    def shed(self, keeps: Mapping[str, float]) -> None:
        """Keep these shares of the fragments' inputs from their next batches on; fragments not named keep all."""
        ...

    def close(self) -> None:
        """Stop everything."""
        ...
