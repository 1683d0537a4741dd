"""The first tuples of every key in every batch, whatever is dropped of the rest, so that every key is seen.

Whether a tuple is one of the first of its key is nothing that a hash of the tuple can say. Each task of Spark counts
the keys of its own tuples, in their order: no shuffle, no state between batches. So of every key the first N of each
task are kept; those are the same in a replay, as long as tasks read the same tuples in the same order. A Python worker
counts: per tuple one number goes there and one comes back.

What a task remembers is bounded. Keys beyond `MOST_COUNTED_KEYS` are not protected, and are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf

from floodway.errors import InputError
from floodway.spark.shed.keys.quotas import MOST_COUNTED_KEYS

MOST_NUMBER = 10_000
NOBODY = -1
"""The key of a tuple that does not count."""

ORDINARY, FIRST, UNKNOWN = 0, 1, 2
"""What a tuple is: later than the first N of its key, one of them, or of a key that there was no room for."""


def first_of_key(key: Column, number: int, most: int = MOST_COUNTED_KEYS) -> Column:
    """FIRST for the first `number` tuples of every key in this task; `key` is at least 0, or NOBODY."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("keep_rare= needs pandas, here and on the executors", hint="Run pip install pandas") from error
    count = counter(number, most)
    count.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    make: Any = pandas_udf  # its types know no function whose annotations are set later
    found: Column = make(count, "int").asNondeterministic()(key)  # so that Spark calls it once, before any filter
    return found


def counter(number: int, most: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that runs in Spark's Python workers: all that it needs is in it, so they need no Floodway."""
    rank = ranking(number, most)

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        seen: dict[int, int] = {}
        for batch in batches:
            yield pd.Series(rank(batch.to_numpy(), seen))

    return count


def ranking(number: int, most: int = MOST_COUNTED_KEYS) -> Callable[[Any, dict[int, int]], Any]:
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
