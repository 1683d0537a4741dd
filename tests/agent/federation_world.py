"""The small federation of `floodway chaos`, and two looks at a participant that only tests take."""

from __future__ import annotations

from collections.abc import Mapping

from floodway.agent.federation.participant import ParticipantAgent
from floodway.experiments.chaos.federation_world import FAST, FILE, SETTINGS, World, agent
from floodway.experiments.chaos.federation_world import part_of as part_of_status
from floodway.job.status.participant_status import ParticipantPart

__all__ = ["FAST", "FILE", "SETTINGS", "World", "agent", "part_of", "refused_by"]


def part_of(agent: ParticipantAgent) -> ParticipantPart:
    """What only a participant has in its status."""
    return part_of_status(agent.status())


def refused_by(agent: ParticipantAgent) -> Mapping[str, int]:
    """What its API has refused, by reason."""
    found = agent.status().process
    assert found is not None
    return found.refused
