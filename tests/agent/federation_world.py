"""The small federation of `floodway chaos`, two looks at a participant that only tests take, and a partner held up."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from floodway.agent.federation.leases import FragmentLease
from floodway.agent.federation.participant import ParticipantAgent
from floodway.experiments.chaos.federation_world import FAST, FILE, SETTINGS, FederationWorld, agent
from floodway.experiments.chaos.federation_world import part_of as part_of_status
from floodway.job.status.parts import ParticipantPart

__all__ = ["FAST", "FILE", "SETTINGS", "FederationWorld", "agent", "part_of", "refused_by", "stopped_with_a_lease"]


def part_of(agent: ParticipantAgent) -> ParticipantPart:
    """What only a participant has in its status."""
    return part_of_status(agent.status())


def refused_by(agent: ParticipantAgent) -> Mapping[str, int]:
    """What its API has refused, by reason."""
    found = agent.status().process
    assert found is not None
    return found.refused


def stopped_with_a_lease(world: FederationWorld) -> FragmentLease:
    """Stop B's process while it holds one of A's fragments; the lease that it holds.

    On a busy machine B may be late with a renewal, and A take the fragment back, before the stop: then once more.
    """
    process = world.processes["B"]
    while True:
        world.wait("a move to B", lambda: sorted(world.owners().values()) == ["A", "B"], alive=("A", "B"))
        os.kill(process.pid, signal.SIGSTOP)
        world.wait("its stop", lambda: _is_stopped(process.pid))
        for fragment in world.federation.fragments:
            lease = world.store.current(fragment)
            if lease is not None and lease.owner == "B":
                return lease
        os.kill(process.pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
