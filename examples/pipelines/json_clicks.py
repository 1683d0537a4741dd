"""A pipeline as people write it: parse JSON clicks, keep the purchases, count them by window and shop.

`examples/networks/json-clicks.yaml` names `parse` and `only_purchases`; the count is the default aggregate. To try it,
make a log of clicks first:

    python -m examples.pipelines.json_clicks clicks.log --tuples 50000
    floodway measure examples/networks/json-clicks.yaml --sample clicks.log --write measured.yaml
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from floodway.spark import LogWriter, create_log

CLICK = "at timestamp, user bigint, shop string, page string, price double, tags array<string>"
PAGES = ("/home", "/search?q=boots", "/item/4711", "/cart", "/checkout/paid")
PURCHASES = 0.2


def parse(df: DataFrame) -> DataFrame:
    """The fields of the JSON text in `value` as columns, with Floodway's own columns kept.

    `inline` makes rows of the parsed text, here one. After a plain `select` Spark would push the filter that follows
    below it and parse every text once more for each condition.
    """
    own = [f"`{name}`" for name in df.columns if name.startswith("_")]
    parsed = df.select(fn.inline(fn.array(fn.from_json("value", CLICK))), *own)
    return parsed.withColumnRenamed("at", "event_time").drop("tags")


def only_purchases(df: DataFrame) -> DataFrame:
    """Clicks on a page that confirms a payment of a real price."""
    return df.filter(fn.col("page").rlike(r"^/checkout/(paid|invoice)\b") & (fn.col("price") > 0))


def clicks(count: int, rate: float, start: datetime, rng: np.random.Generator) -> pa.RecordBatch:
    """`count` clicks as JSON text, `rate` a second from `start` on; a fifth of them are purchases."""
    users, shops = rng.integers(0, 10_000, count), rng.integers(0, 8, count)
    pages = np.where(rng.random(count) < PURCHASES, len(PAGES) - 1, rng.integers(0, len(PAGES) - 1, count))
    prices = rng.uniform(1, 200, count).round(2)
    rows = [
        json.dumps(
            {
                "at": (start + timedelta(seconds=number / rate)).isoformat(timespec="microseconds"),
                "user": int(users[number]),
                "shop": f"shop-{shops[number]}",
                "page": PAGES[pages[number]],
                "price": float(prices[number]),
                "tags": ["web", "eu"],
            }
        )
        for number in range(count)
    ]
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=["value"])


def main() -> None:
    """Append clicks to a log, created if it is not there."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("log")
    options.add_argument("--tuples", type=int, default=50_000)
    options.add_argument("--rate", type=float, default=2_000.0)
    options.add_argument("--seed", type=int, default=7)
    given = options.parse_args()
    start = datetime.now(UTC) - timedelta(seconds=given.tuples / given.rate)
    create_log(given.log, "value string")
    with LogWriter(given.log) as writer:
        writer.append(clicks(given.tuples, given.rate, start, np.random.default_rng(given.seed)), 0)


if __name__ == "__main__":
    main()
