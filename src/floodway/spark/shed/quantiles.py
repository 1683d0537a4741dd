"""A summary of the values of a batch: Spark's `percentile_approx` at many levels, as an observed metric.

The levels are one literal where Python may make one. As a thousand numbers of their own they were looked through
several times whenever a batch is planned, which takes longer than to plan all else that an option adds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.utils import is_remote

log = logging.getLogger(__name__)


def quantiles(values: Column, levels: Sequence[float], accuracy: int) -> Column:
    """The values at these levels, null without any; those that are null do not count."""
    return fn.percentile_approx(values, _literal(levels), accuracy)


def _literal(numbers: Sequence[float]) -> Any:
    context: Any = SparkContext._active_spark_context
    if is_remote() or context is None:
        return list(numbers)
    try:
        java = context._jvm
        array = context._gateway.new_array(java.double, len(numbers))
        for at, number in enumerate(numbers):
            array[at] = number
        found = java.org.apache.spark.sql.functions.lit(array)
    except Py4JError as error:  # a platform that keeps Python from Spark's classes
        log.debug("levels are %s literals: %s", len(numbers), error)
        return list(numbers)
    make: Any = Column  # declared otherwise in some versions
    return make(found)
