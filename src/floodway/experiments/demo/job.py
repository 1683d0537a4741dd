"""The shop's job as a data engineer would write it: parse, clean, enrich, aggregate by window. No Floodway in here.

`weight` is what an event stands for: 1 where nothing was dropped, 1/keep after a drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodway.experiments.demo.shop import PAGES, PAYLOAD, category

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

WINDOWS = f"""
WITH parsed AS (
    SELECT kind, _arrival, weight, from_json(value, '{PAYLOAD}') AS event FROM events
), cleaned AS (
    SELECT kind, _arrival, weight, event.page,
           sha2(event.user, 256) AS user,                                     -- no names in the warehouse
           regexp_extract(event.agent, '(Firefox|Chrome|Safari)/([0-9]+)', 1) AS browser,
           aggregate(event.items, 0D, (total, item) -> total + item.qty * item.price) AS amount
    FROM parsed
)
SELECT /*+ BROADCAST(pages) */ window(_arrival, '2 seconds') AS window, category,
       sum(if(kind = 'click', weight, 0D)) AS clicks,
       sum(if(kind = 'order', weight, 0D)) AS orders,
       sum(if(kind = 'order', weight * amount, 0D)) AS revenue,
       approx_count_distinct(user) AS users
FROM cleaned JOIN pages USING (page)
WHERE browser != ''
GROUP BY 1, 2
"""


def windows(spark: Session, events: Any) -> Any:
    """Clicks, orders and revenue by window and category, of a stream with `kind`, `value`, `_arrival` and `weight`."""
    table = [(page, category(page)) for page in range(PAGES)]
    spark.createDataFrame(table, "page int, category string").createOrReplaceTempView("pages")
    events.createOrReplaceTempView("events")
    return spark.sql(WINDOWS)
