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
from dataclasses import dataclass, field, fields
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
    """One option: its flag, where and how help shows it, and how text becomes its value and back.

    `form` is how it is given: as text, as a switch (`--x/--no-x`), or several times. `refused` says, for the kinds of
    job where it makes no sense, why not.
    """

    flag: str
    panel: str
    help: str
    parse: values.Parse = str
    show: Callable[[Any], str] = str
    form: Literal["text", "switch", "several"] = "text"
    metavar: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


FLAGS: Mapping[str, Flag] = {
    "mode": Flag(
        "--mode",
        CONTROL,
        "enforce (default), observe (decide, drop nothing) or off.",
        values.choice("--mode", get_args(Mode)),
    ),
    "target": Flag(
        "--target",
        CONTROL,
        "Latency target, end to end: 2s (the mean) or 'p95 < 3s'; default the file's, else 2s (participant: 10s).",
        lambda text: Target.of("--target", text),
        metavar="TARGET",
    ),
    "targets": Flag(
        "--targets",
        CONTROL,
        "Targets of outputs, such as 'alerts=2s,reports=p95 < 8s'; before --target and those of the file.",
        lambda text: Target.named("--targets", text),
        lambda value: values.pairs(value, between=","),
        metavar="OUTPUT=TARGET",
        refused={
            "participant": "its fragments come and go, and are all under one target",
            "shed": "a query has one target: give each query a shed of its own",
        },
    ),
    "controller": Flag(
        "--controller",
        CONTROL,
        "Control law: batch (default), latency, pid, red, aurora, tu, gradient or vegas.",
        values.choice("--controller", controllers()),
    ),
    "planner": Flag(
        "--planner",
        PLANNING,
        "exact (default), solver, solver-w, fit or dfit; with nodes, who plans has it.",
        values.choice("--planner", PLANNERS),
        refused=_EXACT,
    ),
    "epsilon": Flag(
        "--epsilon",
        PLANNING,
        "Relative error allowed against the optimum (all planners but exact), default 0.05.",
        values.share("--epsilon"),
        refused=_EXACT,
    ),
    "objective": Flag(
        "--objective",
        PLANNING,
        "What plans maximise: throughput (default), fair or tiers.",
        lambda text: Objective(values.choice("--objective", [one.value for one in Objective])(text)),
        lambda value: str(Objective(value).value),
        refused=_ONE_PLACE,
    ),
    "headroom": Flag(
        "--headroom",
        PLANNING,
        "Share of every resource that may be planned for, default 1 (the papers: 0.95).",
        values.share("--headroom"),
    ),
    "workload": Flag(
        "--workload",
        PLANNING,
        "A CSV of rates that were seen, a column a stream, for fit and solver-w; with nodes, for a coordinator.",
        Path,
        metavar="FILE",
        refused=_EXACT,
    ),
    "plans": Flag(
        "--plans",
        PLANNING,
        "When a coordinator makes plans: advance (default: uploaded once, then ids), or lazy: when rates first ask.",
        values.choice("--plans", get_args(Plans)),
        refused=_EXACT,
    ),
    "replan": Flag(
        "--replan",
        PLANNING,
        "Plan with the costs that running batches show; by default a node does, a run does not.",
        form="switch",
        refused=_MEASURES,
    ),
    "drop": Flag(
        "--drop",
        DROPS,
        "How streams drop: hash (default), or range (blocks that are never read; bounds too narrow).",
        values.choice("--drop", get_args(Drop)),
        refused=_OWN_SOURCE,
    ),
    "lossless": Flag(
        "--lossless",
        DROPS,
        "Drop nothing: batches take what fits into them, and the rest waits; the status says until when.",
        form="switch",
        refused=_MOVES,
    ),
    "max_age": Flag(
        "--max-age",
        DROPS,
        "Skip tuples that arrived longer ago when their batch is cut, such as 10m; with --lossless nothing else goes.",
        values.duration("--max-age"),
        metavar="DURATION",
        refused=_MOVES,
    ),
    "skip_when_lag": Flag(
        "--skip-when-lag",
        DROPS,
        "When more tuples of a stream wait than that, skip the oldest beyond it.",
        values.whole("--skip-when-lag", least=1),
        metavar="TUPLES",
        refused=_MOVES,
    ),
    "shed_after": Flag(
        "--shed-after",
        DROPS,
        "How long an overload lasts before anything is dropped, such as 90s: time for capacity to come.",
        values.duration("--shed-after", zero=True),
        metavar="DURATION",
        refused=_MOVES,
    ),
    "ask_executors": Flag(
        "--ask-executors",
        DROPS,
        "Ask Spark's dynamic allocation for executors while more capacity is needed.",
        form="switch",
        refused=_MOVES,
    ),
    "share_by": Flag(
        "--share-by",
        DROPS,
        "A column by stream, such as clicks=tenant: each of its values gets a fair share of what is kept.",
        values.columns("--share-by"),
        lambda value: values.pairs(value, between=","),
        metavar="STREAM=COLUMN",
        refused=_MOVES,
    ),
    "weights": Flag(
        "--weights",
        DROPS,
        "Weights of values of --share-by, such as gold=3,free=0.5; any other has 1.",
        values.shares("--weights"),
        lambda value: values.pairs(value, between=","),
        metavar="VALUE=WEIGHT",
        refused=_MOVES,
    ),
    "keep_rare": Flag(
        "--keep-rare",
        DROPS,
        "Of every value of --rare-by (or --share-by) keep at least so many tuples per batch and partition.",
        values.whole("--keep-rare", least=1),
        metavar="TUPLES",
        refused=_MOVES,
    ),
    "rare_by": Flag(
        "--rare-by",
        DROPS,
        "A column by stream, such as clicks=page, for --keep-rare.",
        values.columns("--rare-by"),
        lambda value: values.pairs(value, between=","),
        metavar="STREAM=COLUMN",
        refused=_MOVES,
    ),
    "accuracy": Flag(
        "--accuracy",
        DROPS,
        "How narrow bounds by stream are to be, such as 'clicks=sum(price) by page within 5%'; may be repeated.",
        values.accuracies("--accuracy"),
        lambda value: values.pairs({stream: one.text for stream, one in value.items()}, between="\n"),
        form="several",
        metavar="STREAM=TARGET",
        refused=_MOVES,
    ),
    "side_output": Flag(
        "--side-output",
        DROPS,
        "Save up to this many dropped tuples per batch, 64 MiB in all.",
        values.whole("--side-output"),
        metavar="TUPLES",
    ),
    "on_loss": Flag(
        "--on-loss",
        DROPS,
        "Tuples deleted from their log before they were read: fail (default), or skip and count them.",
        values.choice("--on-loss", get_args(OnLoss)),
        refused=_OWN_SOURCE,
    ),
    "retain_bytes": Flag(
        "--retain-bytes",
        DROPS,
        "Let the oldest tuples of a log go above this size per partition, such as 1GB; default never.",
        values.size("--retain-bytes"),
        metavar="SIZE",
        refused=_OWN_SOURCE,
    ),
    "retain_seconds": Flag(
        "--retain-seconds",
        DROPS,
        "Let tuples of a log go that were written this long ago, such as 2h; default never.",
        values.duration("--retain-seconds"),
        metavar="DURATION",
        refused=_OWN_SOURCE,
    ),
    "buffer": Flag(
        "--buffer",
        BUFFER,
        "Buffer by deadlines: cwb (scheduler, adaptor, cleaner), or a baseline without: cob, aurora.",
        values.choice("--buffer", MANAGERS),
        refused=_NO_QUEUES,
    ),
    "scheduler": Flag(
        "--scheduler",
        BUFFER,
        "For cwb: edf (default), fifo, muf or priority.",
        values.choice("--scheduler", schedulers()),
        refused=_NO_QUEUES,
    ),
    "adaptor": Flag(
        "--adaptor",
        BUFFER,
        "For cwb: pid (default), red, tail-drop, drop-front or random-drop.",
        values.choice("--adaptor", adaptors()),
        refused=_NO_QUEUES,
    ),
    "cleaner": Flag(
        "--cleaner",
        BUFFER,
        "For cwb: drop what would be late anyway (default), or not.",
        form="switch",
        refused=_NO_QUEUES,
    ),
    "queue_limit": Flag(
        "--queue-limit",
        BUFFER,
        "For cwb: most tuples that wait, over all queues.",
        values.whole("--queue-limit"),
        metavar="TUPLES",
        refused=_NO_QUEUES,
    ),
    "miss_ratio": Flag(
        "--miss-ratio",
        BUFFER,
        "Permitted share of late results, default 0.01.",
        values.share("--miss-ratio"),
        refused=_NO_QUEUES,
    ),
    "deadlines": Flag(
        "--deadlines",
        BUFFER,
        "Deadlines by stream or partition, such as s1=2s,s2/0=500ms; before those of the file.",
        values.durations("--deadlines"),
        lambda value: values.pairs(value, between=","),
        refused=_NO_QUEUES,
    ),
    "master": Flag(
        "--master",
        SPARK,
        "Spark's master, such as spark://host:7077 or yarn; default this machine.",
        refused=_OWN_SESSION,
    ),
    "settings": Flag(
        "--conf",
        SPARK,
        "A Spark setting, such as spark.jars.packages=…; may be repeated.",
        values.settings("--conf"),
        lambda value: values.pairs(value, between="\n"),
        form="several",
        metavar="KEY=VALUE",
        refused=_OWN_SESSION,
    ),
    "page": Flag(
        "--page",
        WATCHING,
        "Serve the live page on this address while it runs, such as 127.0.0.1:8800.",
        metavar="HOST:PORT",
        refused=_OWN_PROCESS,
    ),
    "open_page": Flag(
        "--open", WATCHING, "Serve the live page and open it in a browser.", form="switch", refused=_OWN_PROCESS
    ),
    "otlp": Flag(
        "--otlp",
        WATCHING,
        "Send metrics to this OpenTelemetry collector (HTTP), such as http://127.0.0.1:4318.",
        metavar="URL",
        refused=_OWN_PROCESS,
    ),
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
            found[name] = one.parse(value if isinstance(value, str) else "\n".join(value))
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
