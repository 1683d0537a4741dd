"""The options of every job, whatever its kind; the flags that set them are in `job/options/flags.py`.

A run, a node and a supervisor of nodes add fields of their own (how long, where, who plans) to this class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from floodway.buffering.options import BufferOptions, Manager
from floodway.control.registry import controllers
from floodway.errors import InputError
from floodway.job.decision import Drop, Mode
from floodway.job.options.targets import Target
from floodway.job.options.values import suggestion
from floodway.network.model import Network
from floodway.planning.factory import check_choice
from floodway.planning.plan import Objective

OnLoss = Literal["fail", "skip"]
"""What to do about tuples that were deleted before a batch took them: stop with an error, or count them and go on."""

DEFAULT_TARGET_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What every kind of job may be given. None means: as the kind of job has it by default.

    `planner` None is exact, or what the control plane of a node prepares. `replan` plans with the costs that running
    batches show; None does so in a node, whose peers plan with them too, and not in a run. `side_output` caps the
    dropped tuples saved per batch. `buffer` is who manages what waits; any of the options up to `deadlines` (seconds by
    stream or `stream/partition`) switches it on too. `settings` are Spark's.
    """

    mode: Mode = "enforce"
    target: Target | None = None
    controller: str = "batch"
    planner: str | None = None
    epsilon: float = 0.05
    objective: Objective = Objective.THROUGHPUT
    headroom: float = 1.0
    replan: bool | None = None
    drop: Drop = "hash"
    side_output: int = 0
    on_loss: OnLoss = "fail"
    retain_bytes: int | None = None
    retain_seconds: float | None = None
    buffer: Manager | None = None
    scheduler: str | None = None
    adaptor: str | None = None
    cleaner: bool | None = None
    queue_limit: int | None = None
    miss_ratio: float | None = None
    deadlines: Mapping[str, float] | None = None
    master: str | None = None
    settings: Mapping[str, str] | None = None
    page: str | None = None
    open_page: bool | None = None
    otlp: str | None = None

    @property
    def buffering(self) -> BufferOptions | None:
        """The buffer that is asked for; None without any. Any of its options alone means cwb."""
        given: dict[str, Any] = {
            "scheduler": self.scheduler,
            "adaptor": self.adaptor,
            "cleaner": self.cleaner,
            "limit": self.queue_limit,
            "permitted_miss_ratio": self.miss_ratio,
            "deadlines": self.deadlines,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.buffer is None and not chosen:
            return None
        manager = self.buffer or "cwb"
        policies = sorted(chosen.keys() & {"scheduler", "adaptor", "cleaner", "limit"})
        if manager != "cwb" and policies:
            raise InputError(
                f"--buffer {manager} has no {policies[0]}: it is the baseline without a buffer",
                hint="Leave it out, or use --buffer cwb",
            )
        return BufferOptions(manager, **chosen)

    def checked(self, network: Network) -> Network:
        """The network with the deadlines given here; whatever cannot work is refused before Spark starts."""
        check_choice(self.planner or "exact", self.objective)
        if self.controller not in controllers():
            hint = suggestion(self.controller, controllers())
            raise InputError(f"controller {self.controller!r} is not known", hint=hint)
        found = self.buffering
        return network if found is None else found.checked(network)

    def target_for(self, network: Network) -> Target:
        """The latency target: the option, else the strictest of the outputs, else a mean of two seconds."""
        if self.target is not None:
            return self.target
        targets = [out.latency for out in network.outputs.values() if out.latency is not None]
        return Target(min(targets, default=DEFAULT_TARGET_SECONDS))
