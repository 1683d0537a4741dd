"""Kafka values to Arrow columns: JSON in bulk, one record at a time only around the malformed ones; rows of links.

A malformed record does not fail the batch: its payload columns are null, `_error` says why and `_raw` holds the
value, for the dead-letter output. In good records both are null; a field that is missing is null, one that the schema
lacks is ignored.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.json

from floodway.spark.log.errors import SchemaError
from floodway.spark.log.schema import parse_schema, schema_text

ERROR = "_error"
RAW = "_raw"
_MAX_REASON = 300


def json_schema(ddl: str) -> pa.Schema:
    """The payload of JSON values: the columns of the DDL, all nullable, then `_error` and `_raw`."""
    columns = [pa.field(column.name, column.type) for column in parse_schema(ddl)]
    return pa.schema([*columns, pa.field(ERROR, pa.string()), pa.field(RAW, pa.binary())])


def raw_schema() -> pa.Schema:
    """The payload of undecoded records."""
    return pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])


def decode_json(values: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch:
    """One row a value, in order, in the columns of `json_schema`.

    >>> rows = decode_json([b'{"id": 1}', b'{"id": "x"}', None], json_schema("id bigint")).to_pylist()
    >>> [(row["id"], row["_error"] is None) for row in rows]
    [(1, True), (None, False), (None, False)]
    """
    wanted = pa.schema([column for column in schema if column.name not in (ERROR, RAW)])
    parts: list[pa.RecordBatch] = []
    _decode(values, wanted, schema, parts)
    if not parts:
        return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)
    return pa.concat_batches(parts)


def encode_rows(table: pa.Table) -> list[bytes]:
    """Each tuple as an Arrow record batch of one row, without its schema: exact for every type a log can hold.

    >>> rows = pa.table({"id": [1, None], "raw": [b"x", b""]})
    >>> decode_rows(encode_rows(rows), rows.schema, where="topic t").to_pylist() == rows.to_pylist()
    True
    """
    found = []
    for batch in table.replace_schema_metadata(None).to_batches():
        found += [batch.slice(row, 1).serialize().to_pybytes() for row in range(batch.num_rows)]
    return found


def decode_rows(values: Sequence[bytes | None], schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """The tuples that `encode_rows` wrote, in order; what another program put there is refused."""
    try:
        rows = [pa.ipc.read_record_batch(pa.py_buffer(value or b""), schema) for value in values]
        for row in rows:
            row.validate()
        joined = pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema=schema)
        joined.validate(full=True)
        return joined
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        raise SchemaError(
            f"{where} holds a record that is no tuple of '{schema_text(schema)}': {str(error)[:_MAX_REASON]}",
            hint="Let only the node that this link belongs to write there",
        ) from None


def _decode(values: Sequence[bytes | None], wanted: pa.Schema, schema: pa.Schema, parts: list[pa.RecordBatch]) -> None:
    """Read all at once; if that fails, halve, so that a bad record costs a logarithm and not a scan."""
    if not values:
        return
    try:
        parts.append(_bulk(values, wanted, schema))
        return
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        if len(values) == 1:
            reason = str(error).removesuffix(" in row 0")[:_MAX_REASON]
            nulls = [pa.nulls(1, column.type) for column in wanted]
            marks = [pa.array([reason], pa.string()), pa.array([values[0] or b""], pa.binary())]
            parts.append(pa.RecordBatch.from_arrays([*nulls, *marks], schema=schema))
            return
    middle = len(values) // 2
    _decode(values[:middle], wanted, schema, parts)
    _decode(values[middle:], wanted, schema, parts)


def _bulk(values: Sequence[bytes | None], wanted: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    lines = []
    for value in values:
        line = b"" if value is None else value.strip()
        # Each value must be one object by itself, or two halves could make up a whole.
        if not (line.startswith(b"{") and line.endswith(b"}")):
            raise ValueError("the value is empty" if not line else "the value is not a JSON object")
        lines.append(line)
    table = pyarrow.json.read_json(
        io.BytesIO(b"\n".join(lines)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 24),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(column.name, _read_type(column.type)) for column in wanted]),
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(values):
        raise ValueError("the value holds more than one JSON object")
    columns = [table.column(column.name).cast(column.type).combine_chunks() for column in wanted]
    columns += [pa.nulls(len(values), pa.string()), pa.nulls(len(values), pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    # The JSON reader lets bytes pass that are no UTF-8, and whoever reads them as text fails.
    batch.validate(full=True)
    return batch


def _read_type(kind: pa.DataType) -> pa.DataType:
    # Arrow's JSON reader takes dates as numbers only.
    return pa.string() if pa.types.is_date32(kind) else kind
