"""The shop's events: JSON clicks and orders as a web shop has them, made up from a seed, and the truth about them.

An event is a row of the log: `kind` (click or order, as a record's key would say) and `value`, about 220 bytes of JSON:

    {"user": "u48213", "page": 17, "agent": "Mozilla/5.0 …", "items": [{"sku": 311, "qty": 2, "price": 18.4}, …]}

Strings come from a pool that is made once, so that a feeder needs little of the CPU that the job is to have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = "kind string, value string"
PAYLOAD = "user string, page int, agent string, items array<struct<sku: int, qty: int, price: double>>"
PAGES = 240
CATEGORIES = ("books", "garden", "kitchen", "music", "sports", "toys")
ORDER_SHARE = 0.08
POOL = 20_000
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/145.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) Safari/605.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/151.0.0.0",
)


def category(page: int) -> str:
    """The category that a page belongs to."""
    return CATEGORIES[page % len(CATEGORIES)]


@dataclass(frozen=True, slots=True)
class Totals:
    """What happened, by category: clicks, orders and revenue."""

    clicks: dict[str, float]
    orders: dict[str, float]
    revenue: dict[str, float]


class Shop:
    """Makes events, and knows the truth about those that a log holds.

    >>> shop = Shop(seed=7)
    >>> batch = shop.make(1000, start_us=0, end_us=0)
    >>> batch.num_rows, round(sum(shop.truth([batch]).orders.values()))
    (1000, 75)
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pages = np.minimum(rng.zipf(1.3, POOL) - 1, PAGES - 1)
        orders = rng.random(POOL) < ORDER_SHARE
        events = [_event(rng, int(page), bool(order)) for page, order in zip(pages, orders, strict=True)]
        self._rng = rng
        self._values = pa.array([json.dumps(event) for event in events])
        self._kinds = pa.array(np.where(orders, "order", "click"))
        self._orders = orders
        self._category = np.array([CATEGORIES.index(category(int(page))) for page in pages])
        revenue = [sum(item["qty"] * item["price"] for item in event["items"]) for event in events]
        self._revenue = np.where(orders, revenue, 0.0)

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.RecordBatch:
        """`count` events; their time is that of their arrival in the log."""
        chosen = pa.array(self._rng.integers(0, POOL, count))
        columns = [self._kinds.take(chosen), self._values.take(chosen)]
        return pa.RecordBatch.from_arrays(columns, names=["kind", "value"])

    def truth(self, batches: Iterable[pa.RecordBatch]) -> Totals:
        """The truth about these events."""
        seen = np.zeros(POOL, dtype=np.int64)
        for batch in batches:
            found = pc.index_in(batch.column(batch.schema.get_field_index("value")), self._values)
            seen += np.bincount(np.asarray(found), minlength=POOL)
        size = len(CATEGORIES)
        clicks = np.bincount(self._category, weights=seen * ~self._orders, minlength=size)
        orders = np.bincount(self._category, weights=seen * self._orders, minlength=size)
        revenue = np.bincount(self._category, weights=seen * self._revenue, minlength=size)
        return Totals(_named(clicks), _named(orders), _named(revenue))


def _event(rng: np.random.Generator, page: int, order: bool) -> dict[str, Any]:
    items = [
        {"sku": int(rng.integers(1000)), "qty": int(rng.integers(1, 4)), "price": round(float(rng.gamma(2.0, 12.0)), 2)}
        for _ in range(int(rng.integers(1, 4)))
    ]
    agent = AGENTS[int(rng.integers(len(AGENTS)))]
    return {"user": f"u{rng.integers(100_000)}", "page": page, "agent": agent, "order": order, "items": items}


def _named(values: np.ndarray) -> dict[str, float]:
    return dict(zip(CATEGORIES, values.tolist(), strict=True))
