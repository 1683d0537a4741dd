"""The shop's job as a data engineer would write it: parse, clean, enrich by a join, aggregate by window.

There is no Floodway in here but the column `_weight`: how many events a row stands for, 1 where nothing was dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodway.experiments.demo.shop import PAGES, PAYLOAD, category

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

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
