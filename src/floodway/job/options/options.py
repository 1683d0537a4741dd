"""The options of every job, whatever its kind; the flags that set them are in `job/options/flags.py`.

A run, a node and a supervisor of nodes add fields of their own (how long, where, who plans) to this class. Some options
name keys of streams:

share_by    {stream: column}: each value of the column gets a fair share of what is kept of the stream
weights     {value: weight}: of values of these columns; any other has 1
keep_rare   of every value of `rare_by` so many tuples of each partition are kept in every batch
rare_by     {stream: column}; left out, as `share_by`
accuracy    {stream: target}: each group of the stream keeps what the bounds of its estimate need
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from floodway.buffering.options import BufferOptions, Manager
from floodway.control.registry import controllers
from floodway.errors import InputError, suggestion
from floodway.job.decision import Drop, Mode
from floodway.job.options.values import Target
from floodway.network.model import Network
from floodway.planning.factory import check_choice, make_planner
from floodway.planning.plan import Objective, Planner

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy

MOST_RARE = 10_000

Columns = Mapping[str, str]
"""A column by stream."""

Plans = Literal["advance", "lazy"]
"""When a coordinator makes its plans: all before they are needed, or each when rates first ask for it."""
OnLoss = Literal["fail", "skip"]
"""What to do about tuples that were deleted before a batch took them: stop with an error, or count them and go on."""
DEFAULT_TARGET_SECONDS = 2.0
LOSSLESS_CONTROLLERS = ("batch", "latency", "aurora")
"""Those that steer by latency, which a batch has whatever waits behind it."""


def check_keys(
    network: Network,
    *,
    share_by: Columns | None,
    weights: Mapping[str, float] | None,
    keep_rare: int | None,
    rare_by: Columns | None,
    accuracy: Mapping[str, Accuracy] | None = None,
    excluded_by: str | None,
) -> None:
    """InputError for what does not fit together; `excluded_by` says which other option decides otherwise, and why."""
    given = {"--share-by": share_by, "--weights": weights, "--keep-rare": keep_rare, "--rare-by": rare_by}
    flags = [flag for flag, value in {**given, "--accuracy": accuracy}.items() if value]
    if not flags:
        return
    named: Mapping[str, Mapping[str, object] | None] = {
        "--share-by": share_by,
        "--rare-by": rare_by,
        "--accuracy": accuracy,
    }
    for flag, streams in named.items():
        for stream in streams or ():
            if stream not in network.streams:
                raise InputError(f"{flag}: no stream is called {stream!r}", hint=suggestion(stream, network.streams))
    for stream in (accuracy or {}).keys() & (share_by or {}).keys():
        raise InputError(
            f"--share-by and --accuracy both decide what {stream} keeps of a key", hint="Use one of them for a stream"
        )
    if weights and not share_by:
        raise InputError("--weights are of keys, and no key is named", hint="Name a column: --share-by STREAM=COLUMN")
    for key, weight in (weights or {}).items():
        if not 0.0 < weight < math.inf:
            raise InputError(f"--weights: {key}={weight:g} is not above 0", hint="Write --weights gold=3,free=0.5")
    if rare_by and not keep_rare:
        raise InputError("--rare-by names keys, and --keep-rare does not say how many tuples of each", hint="Give 1")
    if keep_rare and not (rare_by or share_by):
        raise InputError(
            "--keep-rare keeps tuples of every key, and no key is named",
            hint="Name a column: --rare-by STREAM=COLUMN",
        )
    if keep_rare and keep_rare > MOST_RARE:
        raise InputError(f"--keep-rare {keep_rare} is above {MOST_RARE:,}", hint="It is tuples of every key per batch")
    if excluded_by is not None:
        raise InputError(f"{flags[0]} and {excluded_by}", hint="Use one of them")


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What every kind of job may be given. None means: as the kind of job has it by default.

    `targets` are of outputs, before `target` and those of the file. `planner` None is exact, or what the control plane
    of a node prepares, `workload` a file of rates that were seen for planners that make use of it; `plans` says when a
    coordinator makes them, None: in advance as far as it can. `replan` plans with the costs that running batches show;
    None does so in a node, whose peers plan with them too, and not in a run. `lossless` drops nothing and limits
    batches to what fits into them. Tuples of a stream that arrived more than `max_age` seconds before their batch is
    cut are skipped, and the oldest of more than `skip_when_lag` that wait. An overload must last `shed_after` seconds
    before anything is dropped for it; `ask_executors` asks Spark's dynamic allocation for more. `share_by` to
    `accuracy` name keys of streams (`check_keys`). `side_output` caps the dropped tuples saved per batch. `buffer`
    is who manages what waits; any of the options up to `deadlines` (seconds by stream or `stream/partition`) switches
    it on too. `settings` are Spark's.
    """

    mode: Mode = "enforce"
    target: Target | None = None
    targets: Mapping[str, Target] | None = None
    controller: str = "batch"
    planner: str | None = None
    epsilon: float = 0.05
    objective: Objective = Objective.THROUGHPUT
    headroom: float = 1.0
    workload: Path | None = None
    plans: Plans | None = None
    replan: bool | None = None
    drop: Drop = "hash"
    lossless: bool = False
    max_age: float | None = None
    skip_when_lag: int | None = None
    shed_after: float = 0.0
    ask_executors: bool = False
    share_by: Mapping[str, str] | None = None
    weights: Mapping[str, float] | None = None
    keep_rare: int | None = None
    rare_by: Mapping[str, str] | None = None
    accuracy: Mapping[str, Accuracy] | None = None
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
        check_choice(self.planner or "exact", self.objective, self.workload)
        if self.controller not in controllers():
            hint = suggestion(self.controller, controllers())
            raise InputError(f"controller {self.controller!r} is not known", hint=hint)
        for output in self.targets or ():
            if output not in network.outputs:
                hint = suggestion(output, network.outputs)
                raise InputError(f"--targets: no output is called {output!r}", hint=hint)
        found = self.buffering
        if found is not None and (self.max_age is not None or self.skip_when_lag is not None):
            raise InputError(
                f"{'--skip-when-lag' if self.max_age is None else '--max-age'} and a buffer exclude each other: "
                "a buffer drops by deadlines",
                hint="Use --deadlines and the cleaner, or leave out the buffer",
            )
        if self.shed_after and (self.lossless or found is not None):
            raise InputError(
                f"--shed-after and {'--lossless' if self.lossless else 'a buffer'} exclude each other: "
                f"{'nothing is dropped' if self.lossless else 'a buffer drops by deadlines'}",
                hint="Use one of them",
            )
        if self.lossless and found is not None:
            raise InputError(
                "--lossless and a buffer exclude each other: a buffer drops what would be late",
                hint="Leave out --buffer and its options, or --lossless",
            )
        if self.lossless and self.controller not in LOSSLESS_CONTROLLERS:
            raise InputError(
                f"--lossless does not work with --controller {self.controller}: it steers by what waits, and all waits",
                hint=f"Use {' or '.join(LOSSLESS_CONTROLLERS)}",
            )
        check_keys(
            network,
            share_by=self.share_by,
            weights=self.weights,
            keep_rare=self.keep_rare,
            rare_by=self.rare_by,
            accuracy=self.accuracy,
            excluded_by=self._against_keys,
        )
        return network if found is None else found.checked(network)

    @property
    def _against_keys(self) -> str | None:
        """Which option excludes drops by key, and why; None: none."""
        if self.buffering is not None:
            return "a buffer exclude each other: a buffer drops by deadlines"
        if self.lossless:
            return "--lossless exclude each other: nothing is dropped"
        if self.drop == "range":
            return "--drop range exclude each other: it drops blocks without reading their keys"
        if self.on_loss == "skip":
            return "--on-loss skip exclude each other: tuples that are gone cannot be counted by key"
        return None

    def planner_of(self, network: Network) -> Planner:
        """The planner that is asked for, of this network."""
        return make_planner(
            network,
            self.planner or "exact",
            objective=self.objective,
            epsilon=self.epsilon,
            headroom=self.headroom,
            workload=self.workload,
        )

    def target_for(self, network: Network, outputs: Collection[str] | None = None) -> Target:
        """The latency target of these outputs, or of all: the strictest of them, else a mean of two seconds."""
        every = {name: self._own_target(network, name) for name in network.outputs}
        chosen = [every[name] for name in (every if outputs is None else outputs)]
        own = [target for target in chosen if target is not None] or [t for t in every.values() if t is not None]
        return min(own, key=lambda target: target.mean_seconds, default=Target(DEFAULT_TARGET_SECONDS))

    def output_targets(self, network: Network) -> dict[str, float]:
        """The target of every output in seconds."""
        return {name: self.target_for(network, [name]).seconds for name in network.outputs}

    def _own_target(self, network: Network, output: str) -> Target | None:
        """Of the options for it and for all, else the file's."""
        given = (self.targets or {}).get(output, self.target)
        own = network.outputs[output]
        return given if given is not None or own.latency is None else Target(own.latency, own.quantile)
