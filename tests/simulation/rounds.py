"""Rounds of a federation until it is at rest."""

from __future__ import annotations

from floodway.simulation.federation import SimulatedFederation


def rounds_to_rest(federation: SimulatedFederation, max_rounds: int = 10_000) -> int:
    """Rounds until one moves nothing; how many it took."""
    return next((count for count in range(1, max_rounds + 1) if federation.round() == 0), max_rounds)
