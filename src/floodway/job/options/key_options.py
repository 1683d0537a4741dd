"""The options of a network that name keys: shares by key, and the first tuples of every key.

share_by    {stream: column}: each value of the column gets a fair share of what is kept of the stream
weights     {value: weight}: of values of these columns; any other has 1
keep_rare   of every value of `rare_by` so many tuples of each partition are kept in every batch
rare_by     {stream: column}; left out, as `share_by`
accuracy    {stream: target}: each group of the stream keeps what the bounds of its estimate need
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from floodway.errors import InputError
from floodway.job.options.accuracy import Accuracy
from floodway.job.options.values import suggestion
from floodway.network.model import Network

MOST_RARE = 10_000

Columns = Mapping[str, str]
"""A column by stream."""


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
