"""From a job's options to the drops by key of its streams; what the streams' columns do not allow is refused."""

from __future__ import annotations

from collections.abc import Mapping

from floodway.errors import InputError
from floodway.job.options.options import JobOptions
from floodway.network.model import Network
from floodway.spark.query.fragment_windows import FragmentWindows, stream_columns
from floodway.spark.source.keys import KeyDrops, can_be_key, hashed_weights


def key_drops(network: Network, job: JobOptions, windows: Mapping[str, FragmentWindows]) -> dict[str, KeyDrops]:
    """The drops by key of every stream that has some, whole network or not; InputError where they make no sense."""
    shares = job.share_by or {}
    rare = (job.rare_by or shares) if job.keep_rare else {}
    accuracies = job.accuracy or {}
    found = {
        stream: KeyDrops(
            shares.get(stream, ""),
            (job.weights or {}) if stream in shares else {},
            rare.get(stream, ""),
            (job.keep_rare or 0) if stream in rare else 0,
            accuracies[stream].text if stream in accuracies else "",
        )
        for stream in dict.fromkeys([*shares, *rare, *accuracies])
    }
    whole = {at.partition("->")[0] for one in windows.values() for at in one.drops}
    for stream, drops in found.items():
        flag = "--share-by" if drops.share_by else "--accuracy" if drops.accuracy else "--rare-by"
        if stream in whole:
            raise InputError(
                f"{flag}: streams.{stream} drops whole windows, and drops by key would take tuples out of them",
                hint="Leave it out, or leave out event_time, so that tuples are dropped one by one",
            )
        _check(network, stream, drops)
    return found


def _check(network: Network, stream: str, drops: KeyDrops) -> None:
    known = stream_columns(network, stream)
    if known is None:  # the source looks again when there is a log
        return
    target = drops.target
    by, argument = ("", "") if target is None else (target.by or "", target.argument if target.argument != "*" else "")
    named = (("--share-by", drops.share_by), ("--rare-by", drops.rare_by), ("--accuracy", by), ("--accuracy", argument))
    for flag, column in named:
        if column and column not in known.names:
            raise InputError(
                f"{flag}: streams.{stream} has no column {column!r}",
                hint=f"Choose from {', '.join(known.names) or 'the columns of a schema, which it lacks'}",
            )
        if column and column != argument and not can_be_key(kind := known.field(column).type):
            raise InputError(f"{flag}: {stream}.{column} is of type {kind}, which has no keys", hint="Name another one")
    if target is not None and argument and target.function != "count":
        from floodway.spark.source.group_tally import check_numbers

        check_numbers(target, known.field(argument).type)
    if drops.share_by:
        hashed_weights(drops.weights, known.field(drops.share_by).type)
