"""Network intrusion detection as catalogue entries (contracts paper, Figure 6), on logs of connections.

A connection is `at timestamp, source string, destination string, protocol string`. Over windows of 60 s of event time:

    active-sources    (a, b)  sources with at least `at_least` connections
    many-protocols    (e, f)  sources that used at least `at_least` protocols
    active-clusters   (c, d)  groups of active sources (the first `prefix` parts of the address) with enough of them
    suspects          (g)     the join: sources that are in both of the first two

Counts of connections are sums of the tuples' weights: where a participant sheds, they are estimates of what arrived.
Counts of different things have no weights: of a source's protocols, and of a cluster's sources, those are counted that
were seen, which under shedding are fewer than there were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from pyspark.sql import functions as fn

from floodway.spark import Catalogue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CATALOGUE = Catalogue()
SCHEMA = "at timestamp, source string, destination string, protocol string"
"""The columns of a log of connections, or of the JSON values of a Kafka topic of them."""
INPUTS = {"connections": SCHEMA}


class Windows(BaseModel, extra="forbid"):
    """What all entries share: the window, and how late a connection may be logged (both in seconds)."""

    window: int = Field(60, ge=1, le=86_400)
    late: int = Field(0, ge=0, le=86_400)


class Threshold(Windows):
    """Windows and the count from which on a source is reported."""

    at_least: int = Field(20, ge=1)


class Clusters(Threshold):
    """`at_least` connections make a source active, `sources` active ones with one `prefix` make a cluster."""

    sources: int = Field(2, ge=1)
    prefix: int = Field(3, ge=1, le=4)


class Suspects(Windows):
    """The two thresholds of the sources that are joined."""

    connections: int = Field(20, ge=1)
    protocols: int = Field(2, ge=1)


@CATALOGUE.entry("active-sources", inputs=INPUTS, parameters=Threshold)
def active_sources(inputs: Mapping[str, DataFrame], parameters: Threshold) -> DataFrame:
    """Sources with many connections in a window."""
    return _flat(_active(_watched(inputs["connections"], parameters), parameters.window, parameters.at_least))


@CATALOGUE.entry("many-protocols", inputs=INPUTS, parameters=Threshold)
def many_protocols(inputs: Mapping[str, DataFrame], parameters: Threshold) -> DataFrame:
    """Sources that used many protocols in a window."""
    return _flat(_protocols(_watched(inputs["connections"], parameters), parameters.window, parameters.at_least))


@CATALOGUE.entry("active-clusters", inputs=INPUTS, parameters=Clusters)
def active_clusters(inputs: Mapping[str, DataFrame], parameters: Clusters) -> DataFrame:
    """Neighbourhoods with several active sources in the same window."""
    active = _active(_watched(inputs["connections"], parameters), parameters.window, parameters.at_least)
    cluster = fn.substring_index("source", ".", parameters.prefix).alias("cluster")
    found = active.groupBy(fn.window(fn.window_time("window"), f"{parameters.window} seconds"), cluster).agg(
        fn.count("*").alias("sources"), fn.sum("connections").alias("connections")
    )
    return _flat(found.filter(fn.col("sources") >= parameters.sources))


@CATALOGUE.entry("suspects", inputs=INPUTS, parameters=Suspects)
def suspects(inputs: Mapping[str, DataFrame], parameters: Suspects) -> DataFrame:
    """Sources that are active and use many protocols."""
    watched = _watched(inputs["connections"], parameters)
    active = _active(watched, parameters.window, parameters.connections)
    many = _protocols(watched, parameters.window, parameters.protocols)
    return _flat(active.join(many, ["window", "source"]))


def _watched(connections: DataFrame, parameters: Windows) -> DataFrame:
    return connections.withWatermark("at", f"{parameters.late} seconds")


def _active(connections: DataFrame, window: int, at_least: int) -> DataFrame:
    counted = connections.groupBy(fn.window("at", f"{window} seconds"), "source").agg(
        fn.round(fn.sum("_weight")).cast("bigint").alias("connections")
    )
    return counted.filter(fn.col("connections") >= at_least)


def _protocols(connections: DataFrame, window: int, at_least: int) -> DataFrame:
    # Spark has no exact distinct count on streams; the protocols of one source in a minute are few.
    counted = connections.groupBy(fn.window("at", f"{window} seconds"), "source").agg(
        fn.size(fn.collect_set("protocol")).cast("bigint").alias("protocols")
    )
    return counted.filter(fn.col("protocols") >= at_least)


def _flat(found: DataFrame) -> DataFrame:
    """Logs hold plain columns: the window by its two ends."""
    others = [name for name in found.columns if name != "window"]
    return found.select(fn.col("window.start").alias("window_start"), fn.col("window.end").alias("window_end"), *others)
