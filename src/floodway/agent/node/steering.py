"""Steering among other nodes: one node's loop state, its place on the paths, and what it tells its control plane.

A node's capacity g is told as dearer operators, cost/g, when it has moved by more than 5% since it was last told; the
node's own look-ups are relative to the g that it told. Pure: clock and measurements are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodway.agent.loop.stages import Stage, stages
from floodway.agent.loop.steering import ShareFactor, Steering, whole_share
from floodway.agent.loop.steering_loop import RATE_WINDOW_SECONDS, LoopOptions, fragments_of
from floodway.control.base import BATCH_SHARE
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.model import Network
from floodway.network.part import incoming
from floodway.planning.plan import Planner
from floodway.planning.windows.window_drop import WindowShape

TELL_SECONDS = 1.0
REMARKABLE_SCALE = 0.05
RATE_PERIODS = 3.0
"""Rates of links are taken over this many batches of the nodes that write them, the capacity told over as many."""


class NodeSteering:
    """The steering of one node of a network; `part` is its own part (`network/part.py`), with or without addresses."""

    def __init__(
        self,
        network: Network,
        part: Network,
        planner: Planner,
        target: Target,
        options: JobOptions | None = None,
        *,
        share_factor: ShareFactor = whole_share,
        windowed: Mapping[str, WindowShape] | None = None,
    ) -> None:
        (self.node,) = part.nodes
        self.part = part
        self.fragments = fragments_of(part)
        self.links = [str(arc) for arc in incoming(network, self.node)]
        places = stages(fragments_of(network))
        self._places = {name: places.get(name, Stage(1, 1)) for name in self.fragments}
        self._share = min(place.share_seconds(target.seconds) for place in self._places.values())
        self.steering = Steering(
            planner,
            self.fragments,
            target,
            options,
            places=self._places,
            links=self.links,
            share_factor=share_factor,
            windowed=windowed,
            whole=network,
        )
        # Work is counted in the file's costs, or in those that refining finds; never in the planner's.
        self._costs = part
        self._smooth = self._told = 1.0
        self._due = 0.0
        self.plan_with(planner)

    def loop_options(self, job: JobOptions) -> LoopOptions:
        """How the loop looks at what arrives: links come in deliveries, one for each batch of the node before."""
        window = RATE_PERIODS * self._share / BATCH_SHARE if self.links else 0.0
        return LoopOptions(
            job,
            rate_window_seconds=max(RATE_WINDOW_SECONDS, window),
            delivered_every=dict.fromkeys(self.links, self._share),
        )

    def plan_with(self, planner: Planner) -> None:
        """From now on plan with this planner, which knows the capacity told last."""
        self.steering.plan_with(planner, self._costs, self._told)

    def take_costs(self, corrected: Network) -> None:
        """Count work in these costs from now on."""
        self._costs = replace(self.part, operators=corrected.operators)

    def costs_to_tell(self, now: float) -> Mapping[str, float] | None:
        """CPU-seconds a tuple of every operator, for the capacity that the node turns out to have; None if not due."""
        if now < self._due:
            return None
        self._due = now + TELL_SECONDS
        weight = min(1.0, TELL_SECONDS / (RATE_PERIODS * self.steering.period_seconds))
        self._smooth += weight * (self.steering.sustained_scale - self._smooth)
        if abs(self._smooth / self._told - 1.0) > REMARKABLE_SCALE:
            self._told = self._smooth
        return {name: (operator.cost or 0.0) / self._told for name, operator in self._costs.operators.items()}
