"""What the demo does: offer the shop's job twice what this machine can process, three times.

- *without* Floodway: every event is processed, however late;
- with *Floodway*, one line: orders before clicks, as many clicks as there is time for;
- with a *fixed sample*, as a user would write by hand: half of the events, whatever they are worth.

Latency is measured the same way in all three, from Spark's own progress: the end of a batch less the arrival of what it
processed. The load begins when the query's batches have stopped getting faster: its start is no part of it.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodway.experiments.demo.calibration import Progress
from floodway.experiments.demo.jobs import (
    DROPS,
    PROTECTED,
    RUNS,
    WITHOUT,
    OfferedBatches,
    feeding,
    raise_failure,
    rates_until_steady,
    shedder,
    started,
)
from floodway.experiments.demo.result import PARTS, DemoBatch, DemoRun
from floodway.experiments.demo.shop import ShopTotals
from floodway.job.status.status import Totals
from floodway.spark.shed.shed import Shedder

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

WARM_EVENTS = 20_000
"""In each of the batches by which a query is warmed up."""
WARM_SECONDS = 15.0
"""After that many the load begins also where batches still get faster."""
LEDGER_SECONDS = 60.0


def run(
    spark: Session,
    folder: Path,
    name: str,
    rate: float,
    *,
    seconds: float,
    target: float,
    state: Path,
    progress: Progress,
) -> DemoRun:
    """Offer `rate` events per second for some seconds to the job of this name; see RUNS."""
    protected = shedder(target, state) if name == PROTECTED else None
    table = f"demo_{RUNS.index(name)}"
    with started(spark, folder, protected or DROPS[name], table) as query:
        warming = OfferedBatches(query, folder)
        rates_until_steady(
            lambda: warming.rate(WARM_EVENTS), WARM_SECONDS, lambda *_: progress(name, 0.0, "warming up")
        )
        warming.least_seconds()
        with feeding(folder / "events", rate, seconds) as (feeder, began):
            while feeder.poll() is None:
                raise_failure(query)
                progress(name, min(0.99, (time.time() - began) / seconds), _remark(query.lastProgress))
                time.sleep(0.2)
            load = ShopTotals(**json.loads(feeder.stdout.read() if feeder.stdout else ""))
        if name == WITHOUT:  # it would need as long again to get through what waits
            time.sleep(max(0.0, began + seconds + target - time.time()))
        else:
            query.processAllAvailable()
        ended = [batch for p in query.recentProgress if (batch := _batch(p, began)) is not None]
        batches = [batch for batch in ended if batch.ended > 0.0]
        estimated = None if name == WITHOUT else _totals(spark.table(table).collect())
    ledger = {} if protected is None else _ledger(protected)
    progress(name, 1.0, _remark(query.lastProgress))
    return DemoRun(name, seconds, target, load, batches, warming.totals(), estimated, ledger)


def _batch(progress: Any, began: float) -> DemoBatch | None:
    counted = progress.observedMetrics.get("demo")
    if counted is None or not counted["orders"] + counted["clicks"]:
        return None
    ended = datetime.fromisoformat(progress.timestamp).timestamp() + progress.batchDuration / 1e3
    latency, least, most = (ended - counted[name] / 1e6 for name in ("arrival_us", "newest_us", "oldest_us"))
    return DemoBatch(ended - began, latency, least, most, counted["orders"], counted["clicks"])


def _remark(progress: Any) -> str:
    batch = None if progress is None else _batch(progress, 0.0)
    return "" if batch is None else f"latency {batch.latency:4.1f} s"


def _totals(rows: Any) -> ShopTotals:
    found: dict[str, dict[str, float]] = {part: {} for part in PARTS}
    for row in rows:
        for part, column in found.items():
            column[row.category] = column.get(row.category, 0.0) + row[part]
    return ShopTotals(**found)


def _ledger(protected: Shedder) -> dict[str, int]:
    """What the ledger holds, once Spark has reported the last batch and the end of the query."""
    end = time.monotonic() + LEDGER_SECONDS
    while not protected.loop.finished and time.monotonic() < end:
        time.sleep(0.05)
    status = protected.files.read_status()
    totals = Totals() if status is None else status.totals
    return {"offered": totals.offered, "kept": totals.kept, "dropped": sum(totals.dropped.values())}
