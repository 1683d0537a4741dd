"""Schemas as text: the DDL of Spark SQL, read and written without Spark.

The log and its writers run where no Spark session exists (`floodway feed`, Python workers), and need the Arrow types
that Spark uses for its own: timestamps in microseconds UTC, 32-bit string offsets.

>>> schema = parse_schema("id bigint not null, tags array<string>, at timestamp, price decimal(10,2)")
>>> schema_text(schema)
'id bigint not null, tags array<string>, at timestamp, price decimal(10,2)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from floodway.spark.log.errors import SchemaError

ARRIVAL = "_arrival"
EVENT_TIME = "event_time"
"""The column with the time of the event, where tuples have one."""
TIMESTAMP = pa.timestamp("us", tz="UTC")

_SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_TEXT = {str(kind): text for text, kind in _SIMPLE.items()}
_TOKEN = re.compile(r"\s*(`[^`]+`|[A-Za-z_][A-Za-z_0-9]*|\d+|[<>(),:])")


def parse_schema(text: str) -> pa.Schema:
    """Read `id bigint, at timestamp`; array, map, struct and decimal may be nested."""
    tokens = _Tokens(text)
    schema = pa.schema(list(_fields(tokens, separator=None)))
    tokens.expect_end()
    _refuse_duplicates(schema)
    return schema


def schema_text(schema: pa.Schema) -> str:
    """The DDL of an Arrow schema; raises SchemaError on a type that Spark has no name for."""
    return ", ".join(
        f"{_quoted(field.name)} {type_text(field.type)}{'' if field.nullable else ' not null'}" for field in schema
    )


def type_text(kind: pa.DataType) -> str:
    """The DDL name of one Arrow type."""
    simple = _TEXT.get(str(kind))
    if simple is not None:
        return simple
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(f.name)}:{type_text(f.type)}' for f in kind)}>"
    raise SchemaError(
        f"the Arrow type {kind} has no Spark SQL name",
        hint=f"Cast the column to one of {', '.join(_SIMPLE)}, decimal, array, map or struct",
    )


def check_columns(schema: pa.Schema) -> None:
    """Refuse a log schema without columns, with a column twice, or with names that Floodway adds itself."""
    if len(schema) == 0:
        raise SchemaError("a log needs at least one column", hint="Give a schema such as 'id bigint'")
    _refuse_duplicates(schema)
    reserved = [name for name in schema.names if name.startswith("_")]
    if reserved:
        raise SchemaError(
            f"column {reserved[0]!r} starts with an underscore",
            hint="Rename it: Floodway adds _id, _arrival and _weight itself",
        )
    schema_text(schema)


def _refuse_duplicates(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaError(f"column {name!r} is there twice", hint="Give each column a name of its own")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) else f"`{name}`"


class _Tokens:
    """The words and signs of a DDL text, one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.wrong(f"near {text[at:].strip()[:20]!r}")
            self.items.append(match.group(1))
            at = match.end()
        self.at = 0

    def peek(self) -> str | None:
        return self.items[self.at] if self.at < len(self.items) else None

    def take(self, wanted: str | None = None) -> str:
        item = self.peek()
        if item is None or (wanted is not None and item != wanted):
            raise self.wrong(f"expected {wanted or 'a word'}, found {item or 'the end'}")
        self.at += 1
        return item

    def skip(self, word: str) -> bool:
        item = self.peek()
        if item is None or item.lower() != word:
            return False
        self.at += 1
        return True

    def expect_end(self) -> None:
        if self.peek() is not None:
            raise self.wrong(f"near {self.peek()!r}")

    def wrong(self, what: str) -> SchemaError:
        return SchemaError(f"schema {self.text!r}: {what}", hint="Write columns as 'id bigint, at timestamp'")


def _fields(tokens: _Tokens, *, separator: str | None) -> Iterator[pa.Field]:
    while True:
        name = tokens.take().strip("`")
        if separator is not None:
            tokens.skip(separator)
        kind = _kind(tokens)
        nullable = True
        if tokens.skip("not"):
            if not tokens.skip("null"):
                raise tokens.wrong("'not' without 'null'")
            nullable = False
        yield pa.field(name, kind, nullable=nullable)
        if not tokens.skip(","):
            return


def _kind(tokens: _Tokens) -> pa.DataType:
    word = tokens.take().lower()
    word = _ALIASES.get(word, word)
    if word in _SIMPLE:
        return _SIMPLE[word]
    if word == "decimal":
        return _decimal(tokens)
    if word not in ("array", "map", "struct"):
        raise tokens.wrong(f"unknown type {word!r}")
    tokens.take("<")
    if word == "array":
        kind = pa.list_(pa.field("element", _kind(tokens)))
    elif word == "map":
        key = _kind(tokens)
        tokens.take(",")
        kind = pa.map_(key, _kind(tokens))
    else:
        kind = pa.struct(list(_fields(tokens, separator=":")))
    tokens.take(">")
    return kind


def _decimal(tokens: _Tokens) -> pa.DataType:
    if not tokens.skip("("):
        return pa.decimal128(10, 0)
    precision = tokens.take()
    scale = tokens.take() if tokens.skip(",") else "0"
    tokens.take(")")
    if not (precision.isdigit() and scale.isdigit() and 1 <= int(precision) <= 38):
        raise tokens.wrong(f"decimal({precision},{scale}) is out of bounds")
    return pa.decimal128(int(precision), int(scale))
