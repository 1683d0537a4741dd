"""What a run may be told about its buffer, checked before Spark starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from floodway.buffering.queues import QueueClass, check_limit
from floodway.errors import InputError, did_you_mean
from floodway.network.model import Network

Manager = Literal["cwb", "cob", "aurora"]
MANAGERS: tuple[str, ...] = get_args(Manager)
PERMITTED_MISS_RATIO = 0.01


@dataclass(frozen=True)
class BufferOptions:
    """Who manages what waits, and how.

    `cwb` is control with a buffer: scheduler, adaptor, cleaner, and the PI law for the budget. `cob` and `aurora` are
    the baselines without one: Tu's law or the Aurora step sheds at the input, and all that waits goes into the next
    batch. `limit` bounds the tuples that may wait in all queues together (left out: what can be processed within the
    longest deadline). `deadlines` are seconds by stream or `stream/partition`, before those of the network file.
    """

    manager: Manager = "cwb"
    scheduler: str = "edf"
    adaptor: str = "pid"
    cleaner: bool = True
    limit: int | None = None
    permitted_miss_ratio: float = PERMITTED_MISS_RATIO
    deadlines: Mapping[str, float] = field(default_factory=dict)

    def checked(self, network: Network) -> Network:
        """The network with these deadlines; raises InputError for whatever cannot work."""
        if self.manager not in MANAGERS:
            raise InputError(f"no buffer is called {self.manager!r}; {did_you_mean(self.manager, MANAGERS)}")
        from floodway.buffering.adaptors import adaptor
        from floodway.buffering.schedulers import scheduler

        scheduler(self.scheduler)
        adaptor(self.adaptor)
        if self.limit is not None:
            check_limit(self.limit, where="the buffer")
        if not 0 < self.permitted_miss_ratio < 1:
            raise InputError(
                f"a permitted miss ratio of {self.permitted_miss_ratio:g}", hint="Give a share above 0 and below 1"
            )
        streams = dict(network.streams)
        for name, seconds in self.deadlines.items():
            stream, _, partition = name.partition("/")
            if stream not in streams or (partition and not partition.isdigit()):
                raise InputError(
                    f"a deadline for {name!r}, which is no stream of {network.name}; "
                    f"{did_you_mean(stream, list(streams))}",
                    hint="Name a stream, or one of its partitions as stream/0",
                )
            if not (math.isfinite(seconds) and seconds > 0):
                raise InputError(
                    f"a deadline of {seconds:g} s for {name}", hint="Give seconds above 0, or leave it out for none"
                )
            if not partition:
                streams[stream] = replace(streams[stream], deadline=seconds)
        found = replace(network, streams=streams)
        if not any(s.deadline is not None for s in streams.values()) and not self.deadlines:
            raise InputError(
                f"no stream of {network.name} has a deadline, so no tuple can be late",
                hint="Write `deadline: 2s` at a stream, or give --deadlines s1=2",
            )
        return found

    def queue_class(self, network: Network, stream: str, partition: int) -> QueueClass:
        """Deadline and priority of one partition of a stream; without a deadline it waits for ever."""
        known = network.streams[stream]
        seconds = self.deadlines.get(f"{stream}/{partition}", known.deadline)
        return QueueClass(stream, math.inf if seconds is None else seconds, known.priority)
