"""The flags of a job's options: one declaration for `floodway run`, `node`, `up` and `participant`.

It is data, so that a command line can be made of it, and the same flags written again for a process that is started.
Nothing here knows which library reads the command line.

>>> parsed("run", {"target": "2s", "queue_limit": "500"})
{'target': Target(seconds=2.0, quantile=None), 'queue_limit': 500}
>>> arguments(JobOptions(target=Target(3.0, 0.95), cleaner=False), panels=[CONTROL, BUFFER])
['--target=p95 < 3s', '--no-cleaner']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from floodway.buffering.adaptors import adaptors
from floodway.buffering.options import MANAGERS
from floodway.buffering.schedulers import schedulers
from floodway.control.registry import controllers
from floodway.errors import InputError
from floodway.job.decision import Drop, Mode
from floodway.job.options import values
from floodway.job.options.options import JobOptions, OnLoss, Plans
from floodway.job.options.values import Target
from floodway.planning.factory import PLANNERS
from floodway.planning.plan import Objective

Kind = Literal["run", "node", "up", "participant", "shed"]
"""The kinds of job that have these options. A shed has them as arguments of `floodway.shed`, all but those refused."""
Given = str | bool | Sequence[str]
"""What a command line holds for an option: text, a switch that is on or off, or several texts."""

CONTROL = "Target and control"
PLANNING = "Planning"
DROPS = "Drops and losses"
BUFFER = "Buffer"
SPARK = "Spark"
WATCHING = "Watching"

_ONE_PLACE = {"shed": "it drops at one place of one query, so there is nothing to plan"}
_EXACT = {"participant": "its fragments come and go, so it plans exactly and prepares nothing in advance", **_ONE_PLACE}
_MOVES = {"participant": "it moves work to its partners before it drops"}
_OWN_SOURCE = {"shed": "the source is the query's own, and has read what is dropped"}
_NO_QUEUES = {"participant": "a federation file gives its streams no deadlines", **_OWN_SOURCE}
_MEASURES = {
    "participant": "it always measures what its fragments cost, unless the federation file says",
    "shed": "it always measures what its batches take",
}
_OWN_SESSION = {"shed": "the Spark session is the query's own"}
_OWN_PROCESS = {"shed": "it runs in the query's own process; watch it by `floodway dashboard`"}


@dataclass(frozen=True, slots=True)
class Flag:
    """One option: where and how help shows it, how its flag and text become its value, and that text again.

    `form` is how it is given: as text, as a switch (`--x/--no-x`), or several times. `refused` says, for the kinds of
    job where it makes no sense, why not. `flag` is made from the name where it is not given.
    """

    help: str
    parse: Callable[[str, str], Any] = lambda flag, text: text
    show: Callable[[Any], str] = str
    form: Literal["text", "switch", "several"] = "text"
    metavar: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    flag: str = ""
    panel: str = ""


_with_commas = partial(values.pairs, between=",")
_DECLARED: Mapping[str, Mapping[str, Flag]] = {
    CONTROL: {
        "mode": Flag(
            "enforce (default), observe (decide, drop nothing) or off.",
            partial(values.choice, known=get_args(Mode)),
        ),
        "target": Flag(
            "Latency target, end to end: 2s (the mean) or 'p95 < 3s'; default the file's, else 2s (participant: 10s).",
            Target.of,
            metavar="TARGET",
        ),
        "targets": Flag(
            "Targets of outputs, such as 'alerts=2s,reports=p95 < 8s'; before --target and those of the file.",
            Target.named,
            _with_commas,
            metavar="OUTPUT=TARGET",
            refused={
                "participant": "its fragments come and go, and are all under one target",
                "shed": "a query has one target: give each query a shed of its own",
            },
        ),
        "controller": Flag(
            "Control law: batch (default), latency, pid, red, aurora, tu, gradient or vegas.",
            partial(values.choice, known=controllers()),
        ),
    },
    PLANNING: {
        "planner": Flag(
            "exact (default), solver, solver-w, fit or dfit; with nodes, who plans has it.",
            partial(values.choice, known=PLANNERS),
            refused=_EXACT,
        ),
        "epsilon": Flag(
            "Relative error allowed against the optimum (all planners but exact), default 0.05.",
            values.share,
            refused=_EXACT,
        ),
        "objective": Flag(
            "What plans maximise: throughput (default), fair or tiers.",
            lambda flag, text: Objective(values.choice(flag, text, known=[one.value for one in Objective])),
            lambda value: str(Objective(value).value),
            refused=_ONE_PLACE,
        ),
        "headroom": Flag(
            "Share of every resource that may be planned for, default 1 (the papers: 0.95).",
            values.share,
        ),
        "workload": Flag(
            "A CSV of rates that were seen, a column a stream, for fit and solver-w; with nodes, for a coordinator.",
            lambda flag, text: Path(text),
            metavar="FILE",
            refused=_EXACT,
        ),
        "plans": Flag(
            "When a coordinator makes plans: advance (default: uploaded once, then ids), or lazy: when first needed.",
            partial(values.choice, known=get_args(Plans)),
            refused=_EXACT,
        ),
        "replan": Flag(
            "Plan with the costs that running batches show; by default a node does, a run does not.",
            form="switch",
            refused=_MEASURES,
        ),
    },
    DROPS: {
        "drop": Flag(
            "How streams drop: hash (default), or range (blocks that are never read; bounds too narrow).",
            partial(values.choice, known=get_args(Drop)),
            refused=_OWN_SOURCE,
        ),
        "lossless": Flag(
            "Drop nothing: batches take what fits into them, and the rest waits; the status says until when.",
            form="switch",
            refused=_MOVES,
        ),
        "max_age": Flag(
            "Skip tuples that arrived longer ago when their batch is cut, such as 10m; with --lossless only those go.",
            values.duration,
            metavar="DURATION",
            refused=_MOVES,
        ),
        "skip_when_lag": Flag(
            "When more tuples of a stream wait than that, skip the oldest beyond it.",
            partial(values.whole, least=1),
            metavar="TUPLES",
            refused=_MOVES,
        ),
        "shed_after": Flag(
            "How long an overload lasts before anything is dropped, such as 90s: time for capacity to come.",
            partial(values.duration, zero=True),
            metavar="DURATION",
            refused=_MOVES,
        ),
        "ask_executors": Flag(
            "Ask Spark's dynamic allocation for executors while more capacity is needed.",
            form="switch",
            refused=_MOVES,
        ),
        "share_by": Flag(
            "A column by stream, such as clicks=tenant: each of its values gets a fair share of what is kept.",
            values.columns,
            _with_commas,
            metavar="STREAM=COLUMN",
            refused=_MOVES,
        ),
        "weights": Flag(
            "Weights of values of --share-by, such as gold=3,free=0.5; any other has 1.",
            values.shares,
            _with_commas,
            metavar="VALUE=WEIGHT",
            refused=_MOVES,
        ),
        "keep_rare": Flag(
            "Of every value of --rare-by (or --share-by) keep at least so many tuples per batch and partition.",
            partial(values.whole, least=1),
            metavar="TUPLES",
            refused=_MOVES,
        ),
        "rare_by": Flag(
            "A column by stream, such as clicks=page, for --keep-rare.",
            values.columns,
            _with_commas,
            metavar="STREAM=COLUMN",
            refused=_MOVES,
        ),
        "accuracy": Flag(
            "How narrow bounds by stream are to be, such as 'clicks=sum(price) by page within 5%'; may be repeated.",
            values.accuracies,
            lambda value: values.pairs({stream: one.text for stream, one in value.items()}, between="\n"),
            form="several",
            metavar="STREAM=TARGET",
            refused=_MOVES,
        ),
        "side_output": Flag(
            "Save up to this many dropped tuples per batch, 64 MiB in all.",
            values.whole,
            metavar="TUPLES",
        ),
        "on_loss": Flag(
            "Tuples deleted from their log before they were read: fail (default), or skip and count them.",
            partial(values.choice, known=get_args(OnLoss)),
            refused=_OWN_SOURCE,
        ),
        "retain_bytes": Flag(
            "Let the oldest tuples of a log go above this size per partition, such as 1GB; default never.",
            values.size,
            metavar="SIZE",
            refused=_OWN_SOURCE,
        ),
        "retain_seconds": Flag(
            "Let tuples of a log go that were written this long ago, such as 2h; default never.",
            values.duration,
            metavar="DURATION",
            refused=_OWN_SOURCE,
        ),
    },
    BUFFER: {
        "buffer": Flag(
            "Buffer by deadlines: cwb (scheduler, adaptor, cleaner), or a baseline without: cob, aurora.",
            partial(values.choice, known=MANAGERS),
            refused=_NO_QUEUES,
        ),
        "scheduler": Flag(
            "For cwb: edf (default), fifo, muf or priority.",
            partial(values.choice, known=schedulers()),
            refused=_NO_QUEUES,
        ),
        "adaptor": Flag(
            "For cwb: pid (default), red, tail-drop, drop-front or random-drop.",
            partial(values.choice, known=adaptors()),
            refused=_NO_QUEUES,
        ),
        "cleaner": Flag(
            "For cwb: drop what would be late anyway (default), or not.",
            form="switch",
            refused=_NO_QUEUES,
        ),
        "queue_limit": Flag(
            "For cwb: most tuples that wait, over all queues.",
            values.whole,
            metavar="TUPLES",
            refused=_NO_QUEUES,
        ),
        "miss_ratio": Flag(
            "Permitted share of late results, default 0.01.",
            values.share,
            refused=_NO_QUEUES,
        ),
        "deadlines": Flag(
            "Deadlines by stream or partition, such as s1=2s,s2/0=500ms; before those of the file.",
            values.durations,
            _with_commas,
            refused=_NO_QUEUES,
        ),
    },
    SPARK: {
        "master": Flag(
            "Spark's master, such as spark://host:7077 or yarn; default this machine.",
            refused=_OWN_SESSION,
        ),
        "settings": Flag(
            "A Spark setting, such as spark.jars.packages=…; may be repeated.",
            values.settings,
            lambda value: values.pairs(value, between="\n"),
            flag="--conf",
            form="several",
            metavar="KEY=VALUE",
            refused=_OWN_SESSION,
        ),
    },
    WATCHING: {
        "page": Flag(
            "Serve the live page on this address while it runs, such as 127.0.0.1:8800.",
            metavar="HOST:PORT",
            refused=_OWN_PROCESS,
        ),
        "open_page": Flag(
            "Serve the live page and open it in a browser.",
            flag="--open",
            form="switch",
            refused=_OWN_PROCESS,
        ),
        "otlp": Flag(
            "Send metrics to this OpenTelemetry collector (HTTP), such as http://127.0.0.1:4318.",
            metavar="URL",
            refused=_OWN_PROCESS,
        ),
    },
}
FLAGS: Mapping[str, Flag] = {
    name: replace(one, panel=panel, flag=one.flag or f"--{name.replace('_', '-')}")
    for panel, flags in _DECLARED.items()
    for name, one in flags.items()
}
"""The options by the names of their fields in `JobOptions`."""


def parsed(kind: Kind, given: Mapping[str, Given | None]) -> dict[str, Any]:
    """Values of the options that were given, by field; one that this kind of job cannot use is refused."""
    found: dict[str, Any] = {}
    for name, one in FLAGS.items():
        value = given.get(name)
        if value is None or value == ():
            continue
        if kind in one.refused:
            raise InputError(f"{one.flag} means nothing to a {kind}: {one.refused[kind]}", hint="Leave it out")
        if isinstance(value, bool):
            found[name] = value
        else:
            found[name] = one.parse(one.flag, value if isinstance(value, str) else "\n".join(value))
    return found


def arguments(options: JobOptions, *, panels: Iterable[str]) -> list[str]:
    """The options of these panels that differ from their defaults, as flags again."""
    wanted = set(panels)
    defaults = {known.name: known.default for known in fields(JobOptions)}
    found: list[str] = []
    for name, one in FLAGS.items():
        value = getattr(options, name)
        if one.panel not in wanted or value == defaults[name]:
            continue
        if one.form == "switch":
            found.append(one.flag if value else f"--no-{one.flag.removeprefix('--')}")
        elif one.form == "several":
            found += [f"{one.flag}={part}" for part in one.show(value).splitlines()]
        else:
            found.append(f"{one.flag}={one.show(value)}")
    return found
