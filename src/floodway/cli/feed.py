"""`floodway feed`: write load into a log or a Kafka topic by a profile."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from floodway.cli.arguments import AsJson, usable_folder
from floodway.cli.view.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from floodway.spark.log import Retention
    from floodway.spark.log.feeder import FeedTarget
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodway.spark.log import Retention


_KAFKA = re.compile(r"kafka://([^/\s]+)/([A-Za-z0-9._-]+)")


Given = TypeVar("Given")


class Profile(StrEnum):
    """The shapes that load can take."""

    CONSTANT = "constant"
    STEPS = "steps"
    RAMP = "ramp"
    POISSON = "poisson"
    BURSTS = "bursts"
    TRACE = "trace"


def feed(
    target: Annotated[str, typer.Argument(help="A log's directory, or kafka://host:port/topic.")],
    profile: Annotated[Profile, typer.Option(help="Shape of the load.")] = Profile.CONSTANT,
    rate: Annotated[
        str, typer.Option(help="Rate, such as 5k/s (ramp: at its end; bursts, poisson: mean).", metavar="RATE")
    ] = "1000",
    seconds: Annotated[
        str | None, typer.Option(help="How long; default 10s, or the whole trace.", metavar="DURATION")
    ] = None,
    steps: Annotated[str | None, typer.Option(help='For steps: "10s:500,1m:5k/s" (how long:rate).')] = None,
    start_rate: Annotated[str, typer.Option(help="For ramp: the rate at its start.", metavar="RATE")] = "0",
    trace: Annotated[Path | None, typer.Option(help="For trace: a CSV of counts per bin.")] = None,
    bin: Annotated[str, typer.Option(help="For trace: width of a bin, such as 100ms or 1s.")] = "100ms",
    scale: Annotated[float, typer.Option(help="For trace: multiplies the counts.")] = 1.0,
    partitions: Annotated[int | None, typer.Option(help="Partitions if it is created; default 1.")] = None,
    schema: Annotated[str | None, typer.Option(help="DDL; default id, key, value, event_time.")] = None,
    retain_bytes: RetainBytes = None,
    retain_seconds: RetainSeconds = None,
    seed: Annotated[int, typer.Option(help="Seed of the random generators.")] = 7,
    parent: Annotated[int | None, typer.Option(hidden=True, help="End when this parent process has gone.")] = None,
    json: AsJson = False,
) -> None:
    """Write load into an embedded log (created if it is not there) or a Kafka topic.

    Example: floodway feed runs/clicks --profile bursts --rate 5k/s --seconds 1m
    """
    import numpy as np

    from floodway.job.options import values
    from floodway.spark.log.feeder import TICK
    from floodway.spark.log.feeder import feed as run
    from floodway.spark.log.profiles import TupleMaker, bursts, constant, counts, duration, poisson, ramp
    from floodway.spark.log.profiles import steps as read_steps
    from floodway.spark.log.profiles import trace as read_trace

    arrivals, payload = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    most = None if seconds is None else values.duration("--seconds", seconds)
    length = 10.0 if most is None else most
    highest = values.rate("--rate", rate, zero=True)
    per_tick: Iterator[int]
    if profile is Profile.POISSON:
        per_tick = poisson(highest, seconds=length, tick=TICK, rng=arrivals)
    elif profile is Profile.BURSTS:
        per_tick = bursts(highest, seconds=length, tick=TICK, rng=arrivals)
    else:
        if profile is Profile.STEPS:
            pieces = read_steps(_needed(steps, "--steps", '"10:500,10:1000"'))
        elif profile is Profile.TRACE:
            path = Path(_needed(trace, "--trace", "a CSV of counts per bin"))
            pieces = read_trace(path, bin_seconds=values.duration("--bin", bin), scale=scale, tick=TICK, seconds=most)
        elif profile is Profile.RAMP:
            pieces = ramp(values.rate("--start-rate", start_rate, zero=True), highest, seconds=length)
        else:
            pieces = constant(highest, seconds=length)
        length = duration(pieces)
        per_tick = counts(pieces, tick=TICK)
    if parent is not None:
        # Orphaned, it would fill the disk for ever.
        per_tick = takewhile(lambda _: os.getppid() == parent, per_tick)
    progress = None if json else _progress(length)
    retention = parse_retention(retain_bytes, retain_seconds)
    with _opened(target, schema, partitions, retention) as (place, ddl, number):
        fed = run(place, TupleMaker(ddl, payload), per_tick, partitions=number, progress=progress)
    body = {
        "target": target,
        "profile": profile.value,
        "offered": fed.offered,
        "seconds": fed.seconds,
        "rate": fed.rate,
        "partitions": list(fed.per_partition),
        "worst_lag_seconds": fed.worst_lag_seconds,
        "seed": seed,
    }
    if json:
        print_json(body)
        return
    typer.echo("", err=True)
    typer.echo(f"{fed.offered} tuples in {fed.seconds:.2f} s: {fed.rate:.0f} tuples/s into {target}")


@contextmanager
def _opened(
    target: str, schema: str | None, partitions: int | None, retention: Retention | None
) -> Iterator[tuple[FeedTarget, str, int]]:
    """The target, created if it is not there, with its schema and number of partitions."""
    from floodway.spark.log import LogWriter, create_log, open_log, schema_text
    from floodway.spark.log.feeder import LogTarget
    from floodway.spark.log.meta import META
    from floodway.spark.log.profiles import DEFAULT_SCHEMA

    if target.startswith("kafka:"):
        from floodway.spark.log.kafka_target import KafkaTarget

        match = _KAFKA.fullmatch(target)
        if match is None:
            raise InputError(f"{target!r} names no topic", hint="Write kafka://host:port/topic")
        if retention is not None:
            raise InputError(
                f"{target}: --retain-bytes and --retain-seconds are for logs",
                hint="Set the topic's own: retention.bytes and retention.ms",
            )
        topic = KafkaTarget(match.group(1), match.group(2), partitions=1 if partitions is None else partitions)
        yield topic, schema or DEFAULT_SCHEMA, topic.partitions
        topic.close()
        return
    usable_folder("target", Path(target))
    if (Path(target) / META).exists():
        there = open_log(target)
        ddl = schema or schema_text(there.schema)
        meta = create_log(target, ddl, partitions=there.partitions if partitions is None else partitions)
    else:
        meta = create_log(target, schema or DEFAULT_SCHEMA, partitions=1 if partitions is None else partitions)
    with LogWriter(target, retention=retention) as writer:
        yield LogTarget(writer), schema_text(meta.schema), meta.partitions


def _needed(value: Given | None, option: str, example: str) -> Given:
    if value is None:
        raise InputError(f"this profile needs {option}", hint=f"Give {example}")
    return value


def _progress(length: float) -> Callable[[int, float, float], None]:
    """A line on stderr that is rewritten in a terminal, about four times per second."""
    shown = 0.0

    def show(offered: int, elapsed: float, lag: float) -> None:
        nonlocal shown
        if sys.stderr.isatty() and elapsed - shown >= 0.25:
            shown = elapsed
            late = f", {lag:.2f} s behind" if lag > 0.5 else ""
            line = f"{elapsed:6.1f} of {length:.0f} s {offered:>11} tuples {offered / elapsed:>10.0f}/s{late}"
            typer.echo(f"\r{line}  ", err=True, nl=False)

    return show


RetainBytes = Annotated[
    str | None,
    typer.Option(help="Let the oldest tuples go above this size per partition, such as 1GB; default never."),
]
RetainSeconds = Annotated[
    str | None, typer.Option(help="Let tuples go that were written this long ago, such as 2h; default never.")
]


def parse_retention(retain_bytes: str | None, retain_seconds: str | None) -> Retention | None:
    """The retention that the two options ask for; None without any.

    >>> parse_retention("1MB", None)
    Retention(max_bytes=1000000, max_age_seconds=None, unread_from=None)
    """
    from floodway.job.options.flags import parsed
    from floodway.job.options.options import JobOptions
    from floodway.spark.query.retaining import retention_of

    given = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
    return retention_of(JobOptions(**parsed("run", given)))
