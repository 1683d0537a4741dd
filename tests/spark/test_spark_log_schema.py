"""DDL text to Arrow schemas and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from floodway.spark.log import SchemaError, parse_schema, schema_text


@pytest.mark.parametrize(
    "text",
    [
        "id bigint",
        "a tinyint, b smallint, c int, d bigint, e float, f double, g boolean, h string, i binary, j date",
        "at timestamp not null, local timestamp_ntz",
        "price decimal(10,2)",
        "tags array<string>, m map<string,int>, s struct<a:int,b:array<double>>",
        "`odd name` int",
    ],
)
def test_text_survives_the_way_through_arrow(text: str) -> None:
    assert schema_text(parse_schema(text)) == text


def test_aliases_and_spacing() -> None:
    parsed = parse_schema(" id LONG ,\n n integer, p decimal, s struct< a : int > ")
    assert schema_text(parsed) == "id bigint, n int, p decimal(10,0), s struct<a:int>"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id int,",
        "id int b",
        "id array<int",
        "id decimal(99,1)",
        "id int not",
        "id int;",
        "a int, a int",
    ],
)
def test_what_is_no_schema_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert caught.value.hint


def test_arrow_types_without_a_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="uint8"):
        schema_text(pa.schema([("a", pa.uint8())]))


def test_types_are_those_that_spark_exchanges() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema = parse_schema("id bigint, at timestamp, tags array<string>, m map<string,int>, s struct<a:int>")
    assert to_arrow_schema(from_arrow_schema(schema), timezone="UTC").equals(schema)
