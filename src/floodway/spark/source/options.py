"""The options of `format("floodway")`, checked once, with the remedy in each message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from floodway.errors import InputError
from floodway.spark.log.schema import ARRIVAL

ID, WEIGHT = "_id", "_weight"
ADDED = (ID, ARRIVAL, WEIGHT)
"""What the source adds to the payload, in this order."""
ValueFormat = Literal["json", "raw", "arrow"]
KAFKA = "kafka."
SERVERS = "kafka.bootstrap.servers"
_KNOWN = {
    "path": "directory of an embedded log",
    "topic": "Kafka topic, with kafka.bootstrap.servers",
    "stream": "name of the stream in the decision; default the log's or the topic",
    "decision": "path of the decision file",
    "gate": "path of a file: the query waits for it before it reads from its checkpoint where to continue",
    "notes": "folder for the notes of tasks to the driver; default that of the decision file",
    "arcs": "comma list of arcs inside the node whose keeps are carried as columns _keep:<arc>",
    "windows": "JSON: places that drop by windows of event time, with shape, salt and keeps",
    "keys": "JSON: columns by which tuples have shares, or the first of every value stay",
    "added": f"comma list of the columns to add to the payload; default {','.join(ADDED)}",
    "schema": "DDL: for a log the columns to read, for Kafka JSON or Arrow what the values hold",
    "valueformat": "Kafka values: json, raw, or arrow as links between nodes have them",
    "maxtuplesperbatch": "upper bound of a micro-batch",
    "startingoffsets": "earliest, latest, or a JSON object of positions by partition",
    "endingoffsets": "batch reads: a journaled offset as JSON",
    "dropped": "batch reads: a JSON list of journaled offsets, whose dropped tuples are read",
    "onloss": "fail or skip when tuples were retired or are missing",
    "splits": "at most so many tasks per micro-batch",
    "timeoutseconds": "how long Kafka may stay silent",
}


@dataclass(frozen=True)
class SourceOptions:
    """What a reader was asked for; either `path` or `kafka` and `topic` are set."""

    path: Path | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    topic: str | None = None
    stream: str | None = None
    decision: Path | None = None
    gate: Path | None = None
    notes: Path | None = None
    arcs: tuple[str, ...] = ()
    windows: str | None = None
    keys: str | None = None
    added: tuple[str, ...] = ADDED
    schema: str | None = None
    value_format: ValueFormat = "json"
    max_tuples: int | None = None
    starting: str = "earliest"
    ending: str | None = None
    dropped: str | None = None
    skip_lost: bool = False
    splits: int = 2
    timeout_seconds: float = 15.0


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the reader's options; keys are compared in lower case, as Spark does."""
    given = {key.lower(): value for key, value in options.items()}
    kafka = {key[len(KAFKA) :]: value for key, value in given.items() if key.startswith(KAFKA)}
    for key in given:
        if key not in _KNOWN and not key.startswith(KAFKA):
            raise InputError(f"unknown option {key!r}", hint=f"Options are {', '.join(sorted(_KNOWN))} and kafka.*")
    path, topic = given.get("path"), given.get("topic")
    if (path is None) == (topic is None):
        raise InputError(
            "give either 'path' or 'topic'",
            hint='For example .option("path", "clicks.log") for an embedded log',
        )
    if topic is not None and SERVERS not in given:
        raise InputError(f"'topic' needs {SERVERS!r}", hint='For example "localhost:9092"')
    value_format = _value_format(given.get("valueformat", "json"))
    if topic is not None and value_format != "raw" and "schema" not in given:
        name = {"json": "JSON", "arrow": "Arrow"}[value_format]
        raise InputError(f"Kafka {name} values need the option 'schema'", hint='Such as "id bigint, at timestamp"')
    loss = given.get("onloss", "fail")
    if loss not in ("fail", "skip"):
        raise InputError(f"onLoss {loss!r} is unknown", hint="Use fail or skip")
    maximum = given.get("maxtuplesperbatch")
    decision = given.get("decision")
    return SourceOptions(
        path=None if path is None else Path(path),
        kafka=kafka,
        topic=topic,
        stream=given.get("stream"),
        decision=None if decision is None else Path(decision),
        gate=Path(given["gate"]) if "gate" in given else None,
        notes=Path(given["notes"]) if "notes" in given else None,
        arcs=_listed(given.get("arcs", "")),
        windows=given.get("windows"),
        keys=given.get("keys"),
        added=_added(given.get("added")),
        schema=given.get("schema"),
        value_format=value_format,
        max_tuples=None if maximum is None else _positive("maxTuplesPerBatch", maximum),
        starting=given.get("startingoffsets", "earliest"),
        ending=given.get("endingoffsets"),
        dropped=given.get("dropped"),
        skip_lost=loss == "skip",
        splits=_positive("splits", given.get("splits", str(os.cpu_count() or 2))),
        timeout_seconds=float(_positive("timeoutSeconds", given.get("timeoutseconds", "15"))),
    )


def _value_format(text: str) -> ValueFormat:
    known: tuple[ValueFormat, ...] = get_args(ValueFormat)
    for name in known:
        if text == name:
            return name
    raise InputError(f"valueFormat {text!r} is unknown", hint="Use json or raw")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _added(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ADDED
    wanted = _listed(text)
    for name in wanted:
        if name not in ADDED:
            raise InputError(f"option added names {name!r}", hint=f"Choose from {', '.join(ADDED)}")
    return wanted


def _positive(name: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise InputError(f"option {name} is {text!r}", hint="Give a whole number of at least 1")
    return int(text)
