"""Shares by key and first tuples of every key in a network, on real Spark: who loses, and what the ledger says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.errors import InputError
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.layout import RunLayout
from floodway.spark.shed.recovery.backfill import Backfill
from floodway.spark.shed.recovery.streams import StreamRecovery
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodway.spark.session.session import Session

CHAIN = """
version: 1
name: tenants
streams: {s: {max_rate: 20000, schema: "tenant string, page int, event_time timestamp"}}
nodes: {A: {cpu: 1.0}}
operators: {work: {node: A, from: s, kind: delay, cost: 0.001}}
outputs: {q: {from: work}}
"""
WINDOWS = CHAIN.replace("outputs: {q: {from: work}}", "outputs: {q: {from: count}}").replace(
    "cost: 0.001}}", "cost: 0.001}, count: {node: A, from: work, kind: aggregate, window: 10s, cost: 0.0001}}"
)
TUPLES, NOISY = 6000, 5400
"""All wait at once where a batch holds a quarter of them; one tenant sent nine tenths."""


def fill(root: Path) -> Counter[tuple[str, int]]:
    """A log of tuples that wait, shuffled by a stride; how many there are of each tenant and page."""
    tenants = [*["noisy"] * NOISY, *(f"t{number % 20}" for number in range(TUPLES - NOISY))]
    order = [at * 1009 % TUPLES for at in range(TUPLES)]
    columns = {
        "tenant": pa.array([tenants[at] for at in order]),
        "page": pa.array([at % 200 for at in order], pa.int32()),
        "event_time": pa.nulls(TUPLES, pa.timestamp("us", tz="UTC")),
    }
    log = create_log(
        RunLayout(root).stream(parse_network(CHAIN), "s"), parse_network(CHAIN).streams["s"].schema or "", stream="s"
    )
    with LogWriter(log.path) as writer:
        writer.append(pa.table(columns).cast(log.schema))
    return Counter(zip(columns["tenant"].to_pylist(), columns["page"].to_pylist(), strict=True))


def results(root: Path) -> Counter[tuple[str, int]]:
    reader = LogReader(Path(RunLayout(root).output(parse_network(CHAIN), "q")))
    found: Counter[tuple[str, int]] = Counter()
    for partition, end in reader.end_positions().items():
        for batch in reader.read(partition, 0, end):
            found.update(zip(batch["tenant"].to_pylist(), batch["page"].to_pylist(), strict=True))
    return found


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["enforce", pytest.param("observe", marks=pytest.mark.slow)])
def test_who_sends_most_loses_and_every_page_is_seen(spark: Session, tmp_path: Path, mode: Any) -> None:
    offered, network = fill(tmp_path), parse_network(CHAIN)
    ended, told = Event(), list[Status]()

    def look(status: Status) -> None:
        told.append(status)
        # What became of the keys is told from the cut of a batch on, until the next.
        if status.keys and Ledger(RunLayout(tmp_path).store).fold().total.offered["s"] >= TUPLES:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(2.0), settle_seconds=0.0, mode=mode,
        feeds={"s": Feed(rate=0.001)}, progress=look, ended=ended,
        share_by={"s": "tenant"}, weights={"t0": 2.0}, keep_rare=1, rare_by={"s": "page"},
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    seen = results(tmp_path)
    body = report.to_dict()
    keys = {one.key: one.keep for status in told for one in status.keys}
    assert keys["noisy"] < 0.5 and min(keep for key, keep in keys.items() if key != "noisy") == 1.0
    if mode == "observe":
        assert body["dropped"] == {} and sum(seen.values()) >= TUPLES
        assert any("of keys over their share" in status.reason for status in told)
        return
    quiet = {one: count for one, count in offered.items() if one[0] != "noisy"}
    assert all(seen[one] >= count for one, count in quiet.items())
    assert {page for _, page in seen} >= {page for _, page in offered}
    assert body["dropped"]["s"].keys() == {"share"}
    assert body["dropped"]["s"]["share"] == body["offered"]["s"] - body["kept"]["s"] > NOISY / 2
    # What was dropped is found again to the tuple.
    found: Counter[tuple[str, int]] = Counter()
    recovery = StreamRecovery(spark, network, RunLayout(tmp_path), "s", RunLayout(tmp_path).store)

    def process(df: DataFrame, _: str) -> None:
        found.update((row.tenant, row.page) for row in df.collect())

    work = Backfill("s", recovery, process, lambda: Live(False))
    *_, last = work.steps()
    assert (last.recovered, last.remaining, last.lost) == (body["dropped"]["s"]["share"], 0, 0)
    assert all((seen + found)[one] >= count for one, count in offered.items())
    assert seen.total() + found.total() == body["offered"]["s"]
    assert work.differences() == [] and audit(network, RunLayout(tmp_path)).differences == ()
    assert list(work.steps()) == []


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CHAIN, {"share_by": {"s": "user"}}, "--share-by: streams.s has no column 'user'. Choose from tenant, page"),
        (CHAIN, {"share_by": {"s": "page"}, "weights": {"gold": 2.0}}, "no value of a column of type int32"),
        (WINDOWS, {"keep_rare": 1, "rare_by": {"s": "page"}}, "--rare-by: streams.s drops whole windows"),
    ],
)
def test_what_the_stream_cannot_give_is_refused_before_spark_starts(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_network(parse_network(text), RunOptions(seconds=1.0, root=tmp_path, **options))
    assert message in str(caught.value)
