"""The four kinds of job keep one contract: a status, batches and a ledger of one form, one mode switch, one account."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from floodway.agent.watch.metrics import metrics_text
from floodway.cli.audit import audit
from floodway.cli.report import report
from floodway.cli.top import top
from floodway.dashboard.board import Board
from floodway.dashboard.job_sources import StateSource
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.job.ledger.timeline import WINDOW_SECONDS
from floodway.job.places import JobPlace
from floodway.job.status.batches import BUCKETS, Batch, BatchReader, Sketch
from floodway.job.status.status import Status, decode_status
from tests.agent.jobs import Job, buffered_node_job, node_job, participant_job, run_job, shed_job

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

KINDS: dict[str, tuple[str, Callable[[Session, Path], AbstractContextManager[Job]]]] = {
    "shed": ("shed", shed_job),
    "run": ("run", run_job),
    "node": ("node", node_job),
    "node with a buffer": ("node", buffered_node_job),
    "participant": ("participant", participant_job),
}
STABLE = {
    "name", "kind", "mode", "time", "latency", "rates", "keep", "totals", "decision_seen", "reason", "errors",
}  # fmt: skip
"""The fields of `floodway top --json` that users script against."""


class Ended:
    """A job that ran in all three modes, enforce first and off last, and was stopped."""

    def __init__(self, kind: str, job: Job, last: Status, root: Path) -> None:
        self.kind = kind
        self.root = root
        self.folder = job.folder
        self.audited = job.audited
        self.place: JobPlace = job.place
        self.lines = job.lines()
        self.last = last
        """The status while it ran."""

    def batches(self) -> list[Batch]:
        return [batch for store in self.place.records() for batch in BatchReader(store).advance() or ()]

    def command(self, command: Callable[..., None], *arguments: str) -> dict[str, Any]:
        return output_of(command, str(self.folder), *arguments)

    def samples(self) -> dict[tuple[str, str], float]:
        """The metrics of the job, by name and place or bound, added up over other labels."""
        found: dict[tuple[str, str], float] = {}
        text = metrics_text(Board(StateSource([self.folder])).watched()).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, sample.labels.get("place", sample.labels.get("le", "")))
                found[key] = found.get(key, 0.0) + sample.value
        return found


def output_of(command: Callable[..., None], *arguments: str, code: int = 0) -> dict[str, Any]:
    """What a command prints as JSON when it ends with this code."""
    app = typer.Typer()
    app.command()(command)
    answer = CliRunner().invoke(app, [*arguments, "--json"])
    assert answer.exit_code == code, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module", params=KINDS)
def ended(spark: Session, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    kind, start = KINDS[request.param]
    root = tmp_path_factory.mktemp("job")
    with start(spark, root) as job:
        job.feed_until("drops", lambda lines: any(line.dropped for line in lines))
        for mode in ("observe", "off"):
            job.place.switch(mode)
            job.feed_until(f"a batch in mode {mode}", partial(_has_batch, mode))
        last = job.status_when("a whole status in mode off", _is_whole)
    return Ended(kind, job, last, root)


def _is_whole(status: Status) -> bool:
    """Whether the last batches are told of in a status; which of its fields must then be there, the tests say."""
    told = status.mode == "off" and status.decision_seen is True
    return told and None not in (status.latency.mean, status.rates.offered)


def _has_batch(mode: str, lines: list[LedgerLine]) -> bool:
    return any(line.offered and line.mode == mode for line in lines)


def test_the_status_has_one_form(ended: Ended) -> None:
    body = ended.last.to_dict()
    assert body.keys() >= STABLE
    assert ended.last.kind == ended.kind and ended.last.mode == "off"
    assert body["latency"].keys() == {"mean", "p50", "p95", "p99", "target"}
    assert None not in body["latency"].values()
    assert body["rates"].keys() == {"offered", "kept"} and None not in body["rates"].values()
    assert ended.last.decision_seen is True and ended.last.errors == 0 and ended.last.reason
    assert ended.last.plan is not None or ended.kind == "shed"
    assert decode_status(ended.last.encode(), "here") == ended.last


def test_every_batch_is_on_record_with_its_latencies(ended: Ended) -> None:
    batches, fold = ended.batches(), Fold(ended.lines)
    inputs = ended.last.inputs
    assert {batch.mode for batch in batches if batch.offered} == {"enforce", "observe", "off"}
    assert sum(batch.offered for batch in batches) == sum(fold.total.offered[at] for at in inputs) > 0
    assert sum(batch.kept for batch in batches) == sum(fold.total.kept[at] for at in inputs)
    for batch in batches:
        # The first batch of a shed starts workers and compiles plans: it says nothing about later ones.
        assert batch.latencies.count > 0 or not batch.kept or batch.batch == 0, batch
        assert batch.ended_seconds > batch.cut_seconds


def test_the_ledger_accounts_for_every_tuple(ended: Ended) -> None:
    fold = Fold(ended.lines)
    assert fold.differences() == []
    assert all(line.offered == line.kept + line.dropped for line in ended.lines)
    totals = fold.total
    for at in ended.last.inputs:
        assert totals.offered[at] == totals.kept[at] + sum(totals.by_place()[at].values())


def test_the_audit_accounts_for_every_tuple(ended: Ended) -> None:
    found = output_of(audit, *ended.audited)
    assert found["reconciled"] and found["differences"] == []
    ((_, one),) = (found.get("nodes") or found.get("fragments") or {"": found}).items()
    fold = Fold(ended.lines)
    assert one["offered"] == sum(fold.total.offered[at] for at in ended.last.inputs) > 0
    batches = {line.batch for line in ended.lines if line.reason not in (Reason.GAP, Reason.CONFLICT)}
    assert one["batches"] == len(batches)


def test_the_audit_misses_a_batch_that_the_ledger_has_lost(ended: Ended, tmp_path: Path) -> None:
    """In a copy of what the job has left, so that the others find it as it was."""
    copy = shutil.copytree(ended.root, tmp_path / "copy")
    (lost, *_) = sorted({line.batch for line in ended.lines if line.dropped})
    for path in copy.rglob("ledger/*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)["batch"] != lost))
    words = [word.replace(str(ended.root), str(copy)) for word in ended.audited]
    found = output_of(audit, *words, "--full", code=1)
    assert not found["reconciled"]
    assert any(re.search(rf"\b{lost}\b", text) for text in found["differences"]), found["differences"]


def test_only_enforce_drops(ended: Ended) -> None:
    dropped = {mode: sum(x.dropped for x in ended.lines if x.mode == mode) for mode in ("enforce", "observe", "off")}
    assert dropped["enforce"] > 0 and dropped["observe"] == dropped["off"] == 0
    reasons = {line.reason for line in ended.lines if line.dropped}
    assert reasons <= {Reason.SHEDDER, Reason.ADAPTOR, Reason.CLEANER}


SHEDDING = re.compile(
    r"a batch of (\d+\.\d+) s holds (\d[\d,]*) tuples; (\d[\d,]*) wait: (?:keeping|enforcing would keep) (\d[\d.]*)%"
)
"""Said of what a shed's next batches keep, or would in mode observe, and of what another job's batch has kept."""


def test_why_tuples_are_dropped_is_one_sentence_for_every_kind(ended: Ended) -> None:
    batches = sorted(ended.batches(), key=lambda batch: batch.ended_seconds)
    shed = [batch for batch in batches if batch.mode == "enforce" and batch.keep < 1.0]
    found = [match for batch in batches if (match := SHEDDING.search(batch.reason))]
    assert all(SHEDDING.search(batch.reason) for batch in shed), {batch.reason for batch in shed}
    for match in found:
        seconds, fits, waiting, percent = (float(part.replace(",", "")) for part in match.groups())
        assert seconds > 0.0
        assert fits / waiting == pytest.approx(percent / 100.0, abs=0.006 + 1.0 / waiting), match.string
    told = {ended.command(command, *once)["reason"] for command, once in ((top, ["--once"]), (report, []))}
    told |= {one.status.reason for one in Board(StateSource([ended.folder])).watched() if one.status is not None}
    assert len(told) == 1, told


def test_top_report_and_metrics_say_the_same(ended: Ended) -> None:
    shown = ended.command(top, "--once")
    told = ended.command(report)
    fold = Fold(ended.lines)
    assert told["reconciled"]
    assert shown["totals"] == told["totals"]
    assert shown["totals"]["offered"] == sum(fold.total.offered[at] for at in ended.last.inputs)
    assert shown["batch_count"] == len(told["batches"]) == len(ended.batches())

    samples = ended.samples()
    for at in ended.last.inputs:
        assert samples["floodway_offered_tuples_total", at] == fold.total.offered[at]
        assert samples["floodway_kept_tuples_total", at] == fold.total.kept[at]
        assert samples["floodway_dropped_tuples_total", at] == sum(fold.total.by_place()[at].values())


def test_latency_rates_and_keep_of_now_are_the_same_in_top_on_the_page_and_in_the_metrics(ended: Ended) -> None:
    """All three show the last seconds: the batches that ended in them, whatever the job itself said last."""
    shown = ended.command(top, "--once")
    (page,) = Board(StateSource([ended.folder])).snapshot()["jobs"]
    for field in ("latency", "rates", "keep", "loss", "would_drop", "totals", "batch_count", "places", "outputs"):
        assert shown[field] == page[field], field

    latest = _merged(_latest(ended.batches()))
    assert latest.count > 0
    assert shown["latency"] == pytest.approx(latest.latency(shown["latency"]["target"]).to_dict())
    assert shown["loss"] == pytest.approx(1.0 - shown["rates"]["kept"] / shown["rates"]["offered"])
    assert shown["would_drop"] == pytest.approx(1.0 - shown["keep"])

    samples = ended.samples()
    assert samples["floodway_latency_seconds", ""] == shown["latency"]["mean"]
    assert samples["floodway_latency_target_seconds", ""] == shown["latency"]["target"]
    assert samples["floodway_drop_ratio", ""] == shown["loss"]
    assert samples["floodway_would_drop_ratio", ""] == shown["would_drop"]
    for at, place in shown["places"].items():
        assert samples["floodway_plan_keep_ratio", at] == place["keep"]


def test_latency_rates_and_keep_of_the_whole_run_are_the_same_in_report_and_metrics(ended: Ended) -> None:
    """Both go over every batch on record."""
    told, samples, batches = ended.command(report), ended.samples(), ended.batches()
    every = _merged(batches)
    assert told["latency"] == pytest.approx(every.latency(told["latency"]["target"]).to_dict())
    assert samples["floodway_result_latency_seconds_count", ""] == every.count
    mean = samples["floodway_result_latency_seconds_sum", ""] / every.count
    assert told["latency"]["mean"] == pytest.approx(mean)
    for bound, below in zip(BUCKETS, every.cumulative(), strict=False):
        assert samples["floodway_result_latency_seconds_bucket", str(bound)] == below
        for quantile, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert (told["latency"][quantile] <= bound) == (below >= share * every.count), (quantile, bound)

    offered, kept = sum(batch.offered for batch in batches), sum(batch.kept for batch in batches)
    assert told["keep"] == pytest.approx(kept / offered)
    assert told["rates"] == pytest.approx({"offered": offered / told["seconds"], "kept": kept / told["seconds"]})


def _merged(batches: list[Batch]) -> Sketch:
    found = Sketch()
    for batch in batches:
        found.merge(batch.latencies)
    return found


def _latest(batches: list[Batch]) -> list[Batch]:
    """Those with results that ended in the last seconds of all."""
    measured = [batch for batch in batches if batch.latencies.count]
    last = max(int(batch.ended_seconds) for batch in measured)
    return [batch for batch in measured if int(batch.ended_seconds) > last - WINDOW_SECONDS]
