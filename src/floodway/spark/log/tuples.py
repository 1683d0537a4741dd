"""The tuples that `floodway feed` makes up: any flat schema, seeded, vectorised.

The default schema is `id bigint, key int, value double, event_time timestamp`. Columns are filled by name and type:
`id` counts up from 0 over all partitions, `key` follows Zipf's law over 1000 keys, timestamps are the tick's time
spread over the tick, strings are `k` and a number, other numbers are uniform.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodway.spark.log.errors import SchemaError
from floodway.spark.log.schema import parse_schema, type_text

DEFAULT_SCHEMA = "id bigint, key int, value double, event_time timestamp"
KEYS = 1000
_EPOCH_DAY_MICROS = 86_400_000_000


class TupleMaker:
    """Makes batches of tuples; the same seed and counts give the same payload (but for the times)."""

    def __init__(self, ddl: str, rng: np.random.Generator) -> None:
        self.schema: pa.Schema = parse_schema(ddl)
        self._rng = rng
        self._next = 0
        weights = 1.0 / np.arange(1, KEYS + 1)
        self._zipf = np.cumsum(weights) / weights.sum()
        for column in self.schema:
            self._column(column, 0, 0, 0)

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.RecordBatch:
        """`count` tuples whose event times spread evenly over [start_us, end_us), microseconds UTC."""
        columns = [self._column(column, count, start_us, end_us) for column in self.schema]
        self._next += count
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: pa.Field, count: int, start_us: int, end_us: int) -> pa.Array:
        kind = column.type
        if pa.types.is_timestamp(kind):
            times = start_us + (np.arange(count) * (end_us - start_us) // max(count, 1))
            return pa.array(times.astype(np.int64)).cast(kind)
        if pa.types.is_date(kind):
            return pa.array(np.full(count, start_us // _EPOCH_DAY_MICROS, dtype=np.int32)).cast(kind)
        if column.name == "id" and pa.types.is_integer(kind):
            return pa.array(np.arange(self._next, self._next + count)).cast(kind, safe=False)
        if pa.types.is_integer(kind):
            return pa.array(self._keys(count)).cast(kind, safe=False)
        if pa.types.is_floating(kind):
            return pa.array(self._rng.random(count)).cast(kind)
        if pa.types.is_boolean(kind):
            return pa.array(self._rng.random(count) < 0.5)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return pa.array([f"k{key}" for key in self._keys(count)], pa.string()).cast(kind)
        raise SchemaError(
            f"feed cannot make up a column of type {type_text(kind)}",
            hint="Use numbers, strings, booleans, times",
        )

    def _keys(self, count: int) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._zipf, self._rng.random(count)).astype(np.int64)
