"""The shop's events: JSON clicks and orders, made up from a seed, and the truth about them.

An event is a record as Kafka's connector gives it (topic, partition, offset, timestamp, key, value). The key is the
kind, `click` or `order`; the value is about 300 bytes of JSON:

    {"user": "u48213", "page": 17, "agent": "Mozilla/5.0 …", "items": [{"sku": 311, "qty": 2, "price": 18.4}, …]}

Values come from a pool that is made once, so that the feeder needs little of the CPU that the job is to have.

The shop's job as a data engineer would write it: parse, clean, enrich by a join, aggregate by window.

There is no Floodway in here but the column `_weight`: how many events a row stands for, 1 where nothing was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from floodway.spark.session.session import Session


RECORDS = "topic string, partition int, offset bigint, timestamp timestamp, key string, value string"
PAYLOAD = "user string, page int, agent string, items array<struct<sku: int, qty: int, price: double>>"
PAGES = 240
CATEGORIES = ("books", "garden", "kitchen", "music", "sports", "toys")
ORDER_SHARE = 0.1
WORTH = {"order": 10.0, "click": 1.0}
"""What an event of each kind is worth."""
POOL = 20_000
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/145.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) Safari/605.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/151.0.0.0",
)
_TIMESTAMP = pa.timestamp("us", tz="UTC")


def category(page: int) -> str:
    """The category that a page belongs to."""
    return CATEGORIES[page % len(CATEGORIES)]


@dataclass(frozen=True, slots=True)
class ShopTotals:
    """Clicks, orders and revenue by category."""

    clicks: dict[str, float]
    orders: dict[str, float]
    revenue: dict[str, float]

    def __add__(self, other: ShopTotals) -> ShopTotals:
        parts = [(self.clicks, other.clicks), (self.orders, other.orders), (self.revenue, other.revenue)]
        return ShopTotals(*({name: one[name] + two[name] for name in one} for one, two in parts))

    def of(self, kind: str) -> float:
        """Events of a kind, over all categories."""
        return sum((self.orders if kind == "order" else self.clicks).values())


class Shop:
    """Makes events and counts them, so that it knows the truth about all that it made.

    >>> shop = Shop(seed=7)
    >>> records = shop.make(1000, start_us=0, end_us=1_000_000)
    >>> records.num_rows, shop.totals().of("order") + shop.totals().of("click")
    (1000, 1000.0)
    """

    def __init__(self, seed: int, partition: int = 0) -> None:
        rng = np.random.default_rng(seed)
        pages = rng.integers(0, PAGES, POOL)
        orders = rng.random(POOL) < ORDER_SHARE
        events = _events(rng, pages.tolist())
        self._rng = rng
        self._values = pa.array([json.dumps(event) for event in events])
        self._keys = pa.array(np.where(orders, "order", "click"))
        self._orders = orders
        self._category = np.array([CATEGORIES.index(category(int(page))) for page in pages])
        self._revenue = np.array([sum(item["qty"] * item["price"] for item in event["items"]) for event in events])
        self._made = np.zeros(POOL, dtype=np.int64)
        self._next = 0
        self._partition = partition

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.Table:
        """`count` events that arrive evenly in [start_us, end_us), microseconds UTC."""
        chosen = self._rng.integers(0, POOL, count)
        self._made += np.bincount(chosen, minlength=POOL)
        times = start_us + np.arange(count, dtype=np.int64) * (end_us - start_us) // max(count, 1)
        offsets = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        picked = pa.array(chosen)
        return pa.table(
            {
                "topic": pa.array(["events"]).take(pa.array(np.zeros(count, dtype=np.int64))),
                "partition": pa.array(np.full(count, self._partition, dtype=np.int32)),
                "offset": pa.array(offsets),
                "timestamp": pa.array(times).cast(_TIMESTAMP),
                "key": self._keys.take(picked),
                "value": self._values.take(picked),
            }
        )

    def totals(self) -> ShopTotals:
        """The truth about all events made so far."""
        parts = (self._made * ~self._orders, self._made * self._orders, self._made * self._orders * self._revenue)
        clicks, orders, revenue = (
            np.bincount(self._category, weights=part, minlength=len(CATEGORIES)).tolist() for part in parts
        )
        named = [dict(zip(CATEGORIES, map(float, column), strict=True)) for column in (clicks, orders, revenue)]
        return ShopTotals(*named)


def write(records: pa.Table, folder: Path, name: str) -> Path:
    """One file of events, there as a whole or not at all: Spark leaves out names that begin with a dot."""
    hidden, path = folder / f".{name}", folder / f"{name}.parquet"
    pq.write_table(records, hidden, compression="none", use_dictionary=["topic", "key", "value"])
    hidden.rename(path)
    return path


def _events(rng: np.random.Generator, pages: Sequence[int]) -> list[dict[str, Any]]:
    """One event for each page, with two to seven items; drawn at once, because the feeder starts while others wait."""
    counts = rng.integers(2, 8, len(pages))
    total = int(counts.sum())
    columns = (rng.integers(1000, size=total), rng.integers(1, 4, total), rng.gamma(2.0, 12.0, total).round(2))
    items = iter(
        [
            {"sku": sku, "qty": quantity, "price": price}
            for sku, quantity, price in zip(*(column.tolist() for column in columns), strict=True)
        ]
    )
    users, agents = rng.integers(100_000, size=len(pages)).tolist(), rng.integers(len(AGENTS), size=len(pages)).tolist()
    return [
        {"user": f"u{user}", "page": page, "agent": AGENTS[agent], "items": list(islice(items, count))}
        for user, page, agent, count in zip(users, pages, agents, counts.tolist(), strict=True)
    ]


WINDOWS = f"""
WITH parsed AS (
    SELECT key, timestamp, _weight, from_json(value, '{PAYLOAD}') AS event FROM events
), cleaned AS (
    SELECT key, timestamp, _weight, event.page,
           sha2(event.user, 256) AS user,                                     -- no names in the warehouse
           regexp_extract(event.agent, '(Firefox|Chrome|Safari)/([0-9]+)', 1) AS browser,
           aggregate(event.items, 0D, (total, item) -> total + item.qty * item.price) AS amount
    FROM parsed
)
SELECT /*+ BROADCAST(pages) */ window(timestamp, '5 seconds') AS window, category,
       sum(if(key = 'click', _weight, 0D)) AS clicks,
       sum(if(key = 'order', _weight, 0D)) AS orders,
       sum(if(key = 'order', _weight * amount, 0D)) AS revenue,
       approx_count_distinct(user) AS users
FROM cleaned JOIN pages USING (page)
WHERE browser != ''
GROUP BY 1, 2
"""


def windows(spark: Session, events: Any) -> Any:
    """Clicks, orders and revenue by window and category, of a stream of records with `_weight`."""
    table = [(page, category(page)) for page in range(PAGES)]
    spark.createDataFrame(table, "page int, category string").createOrReplaceTempView("pages")
    events.createOrReplaceTempView("events")
    return spark.sql(WINDOWS)
