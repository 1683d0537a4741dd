"""`spark.readStream.format("floodway")`: schema and readers.

floodway.spark.source.register(spark)
df = spark.readStream.format("floodway").option("path", "clicks.log").option("decision", "decision.json").load()
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options
from floodway.spark.source.readers import FloodwayBatchReader, FloodwayStreamReader, source_schema


class FloodwaySource(DataSource):
    """The Floodway source; see `floodway.spark.source.options` for what can be set."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "floodway"

    def schema(self) -> StructType:
        """The payload of the log or of the option, then `_id`, `_arrival`, `_weight`, `_keep:<arc>`."""
        options = parse_options(self.options)
        return from_arrow_schema(source_schema(open_backend(options).payload, options))

    @override
    def streamReader(self, schema: StructType) -> FloodwayStreamReader:
        """For `readStream`."""
        return FloodwayStreamReader(parse_options(self.options), schema)

    def reader(self, schema: StructType) -> FloodwayBatchReader:
        """For `read`."""
        return FloodwayBatchReader(parse_options(self.options), schema)
