"""The first tuples of every key in every batch, whatever is dropped of the rest, so that every key is seen.

Whether a tuple is one of the first of its key is nothing that a hash of the tuple can say. Each task of Spark counts
the keys of its own tuples, in their order: no shuffle, no state between batches. So of every key the first N of each
task are kept; those are the same in a replay, as long as tasks read the same tuples in the same order. A Python worker
counts: per tuple one number goes there and one comes back.

What a task remembers is bounded. Keys beyond `MOST_KEYS` are not protected, and are counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf

from floodway.errors import InputError
from floodway.units import PPM

MOST_RARE_PPM = 990_000
MOST_NUMBER = 10_000
MOST_KEYS = 100_000
"""Keys that a task tells apart."""

NOBODY = -1
"""The key of a tuple that does not count."""

ORDINARY, FIRST, UNKNOWN = 0, 1, 2
"""What a tuple is: later than the first N of its key, one of them, or of a key that there was no room for."""


UNKNOWN_KEYS = (
    f"a task of a batch met more than {MOST_KEYS:,} keys: the first tuples of those beyond are not kept for being first"
)


class RareShare:
    """Which share of the tuples are the first of their keys, over the last batches.

    >>> share = RareShare()
    >>> share.add(first=50, offered=1000)
    >>> share.ppm
    50000
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque(maxlen=3)

    def add(self, first: int, offered: int) -> None:
        """Take in a batch; one without tuples says nothing."""
        if offered > 0:
            self._batches.append((first, offered))

    @property
    def ppm(self) -> int:
        """The share in ppm, a little below 1 at most; 0 while nothing is known."""
        offered = sum(offered for _, offered in self._batches)
        return min(MOST_RARE_PPM, PPM * sum(first for first, _ in self._batches) // max(offered, 1))


def first_of_key(key: Column, number: int, most: int = MOST_KEYS) -> Column:
    """FIRST for the first `number` tuples of every key in this task; `key` is at least 0, or NOBODY."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("keep_rare= needs pandas, here and on the executors", hint="pip install pandas") from error
    count = counter(number, most)
    count.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    make: Any = pandas_udf  # its types know no function whose annotations are set later
    found: Column = make(count, "int").asNondeterministic()(key)  # so that Spark calls it once, before any filter
    return found


def rest_ppm(keep_ppm: int, rare_ppm: int) -> int:
    """The keep of the tuples that are not the first of their keys, where the first are a share `rare_ppm` of all.

    >>> rest_ppm(400_000, 200_000), rest_ppm(100_000, 200_000), rest_ppm(1_000_000, 200_000)
    (250000, 0, 1000000)
    """
    return max(0, math.floor((keep_ppm - rare_ppm) * PPM / (PPM - rare_ppm)))


def rest_sql(keep_ppm: str, rare_ppm: str) -> str:
    """`rest_ppm` as an expression of Spark."""
    return f"int(greatest(floor(double({keep_ppm} - {rare_ppm}) * {PPM} / ({PPM} - {rare_ppm})), 0))"


def counter(number: int, most: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that runs in Spark's Python workers: all that it needs is in it, so they need no Floodway."""
    rank = ranking(number, most)

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        seen: dict[int, int] = {}
        for batch in batches:
            yield pd.Series(rank(batch.to_numpy(), seen))

    return count


def ranking(number: int, most: int = MOST_KEYS) -> Callable[[Any, dict[int, int]], Any]:
    """What every key in an array is: FIRST, ORDINARY or UNKNOWN, given how often each was seen before, which is noted.

    >>> import numpy as np
    >>> seen: dict[int, int] = {}
    >>> [ranking(1)(np.array(keys), seen).tolist() for keys in ([7, 8, 7], [8, 9])]
    [[1, 1, 0], [0, 1]]
    """

    def rank(keys: Any, seen: dict[int, int]) -> Any:
        import numpy as np  # here, because the function goes to Spark's workers by its code

        order = np.argsort(keys, kind="stable")
        names, starts, sizes = np.unique(keys[order], return_index=True, return_counts=True)
        before, known = np.zeros(len(names), dtype=np.int64), np.ones(len(names), dtype=bool)
        for at, (name, size) in enumerate(zip(names.tolist(), sizes.tolist(), strict=True)):
            had = seen.get(name)
            if name < 0:
                before[at] = number
            elif had is None and len(seen) >= most:
                known[at] = False
            else:
                before[at] = had or 0
                seen[name] = min(number, (had or 0) + size)
        later = np.arange(len(keys)) - np.repeat(starts, sizes) + np.repeat(before, sizes)
        what = np.where(np.repeat(known, sizes), np.where(later < number, 1, 0), 2)
        found = np.empty(len(keys), dtype=np.int32)
        found[order] = what
        return found

    return rank
