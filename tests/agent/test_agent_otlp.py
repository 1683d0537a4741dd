"""Metrics pushed to a collector: a real HTTP receiver gets real protobuf that says what `/metrics` says."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from prometheus_client.parser import text_string_to_metric_families

from floodway.agent.watch.metrics import metrics_text
from floodway.agent.watch.otlp import OtlpExport
from floodway.cli.view.page import watched
from floodway.dashboard.board import Board
from floodway.dashboard.routes import watching
from floodway.errors import InputError
from floodway.job.options.options import JobOptions
from tests.agent.defaults import set_default
from tests.dashboard.made_state import CLICKS, MadeJob
from tests.patience import PATIENCE_SECONDS, wait_until

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
NOW = {"floodway_status_timestamp_seconds"}
"""Changes between two looks."""


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP and keeps what it got, decoded; `answer` is the status it gives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.got: list[tuple[str, ExportMetricsServiceRequest]] = []
        self.answer = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def latest(self) -> dict[str, Metric]:
        """The metrics of the last export, by name."""
        (resource,) = self.got[-1][1].resource_metrics
        (scope,) = resource.scope_metrics
        assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "floodway"
        return {metric.name: metric for metric in scope.metrics}


class _Receive(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector has as long as it takes: on a busy machine an answer may take longer than a job would wait."""
    monkeypatch.setattr("floodway.agent.watch.otlp.TIMEOUT_SECONDS", float(PATIENCE_SECONDS))


@pytest.fixture
def made(tmp_path: Path) -> MadeJob:
    job = MadeJob(tmp_path / "demo", int(time.time()) - 10)
    job.start()
    job.run(5)
    return job


def numbers(metrics: dict[str, Metric]) -> Series:
    """Every point of sums and gauges, and the counts and sums of histograms as Prometheus writes them."""
    found: Series = {}
    for name, metric in metrics.items():
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            labels = tuple(sorted((a.key, a.value.string_value) for a in point.attributes))
            found[name, labels] = point.as_double
        for histogram in metric.histogram.data_points:
            labels = tuple(sorted((a.key, a.value.string_value) for a in histogram.attributes))
            bounds = [*map(str, histogram.explicit_bounds), "+Inf"]
            count = 0
            for bound, more in zip(bounds, histogram.bucket_counts, strict=True):
                count += more
                found[f"{name}_bucket", tuple(sorted((*labels, ("le", bound))))] = count
            found[f"{name}_count", labels] = histogram.count
            found[f"{name}_sum", labels] = histogram.sum
    return found


def test_a_collector_gets_what_prometheus_gets(
    collector: Collector, made: MadeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Loads are over the last seconds: on a clock that stands all looks see the same ones. The one export is the last.
    now = float(made.now)
    set_default(monkeypatch, Board, "clock", lambda: now)
    set_default(monkeypatch, OtlpExport, "interval_seconds", PATIENCE_SECONDS)

    def exposed() -> Series:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(metrics_text(watching([made.root])()).decode())
            for sample in family.samples
            if sample.name not in NOW
        }

    with watched(made.root, JobOptions(otlp=collector.url)):
        pass
    assert [path for path, _ in collector.got] == ["/v1/metrics"]
    got = numbers(collector.latest())
    assert {key: value for key, value in got.items() if key[0] not in NOW} == pytest.approx(exposed())
    assert got["floodway_offered_tuples_total", (("job_name", "demo"), ("place", "clicks"))] == 5 * CLICKS
    counter = collector.latest()["floodway_offered_tuples_total"].sum
    assert counter.is_monotonic
    assert counter.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_exports_go_on_while_it_runs_and_end_with_the_last_counts(collector: Collector, made: MadeJob) -> None:
    with OtlpExport(collector.url, watching([made.root]), interval_seconds=0.05) as export:
        wait_until(lambda: export.exports >= 2, "two exports")
        time.sleep(0.5)  # the page, and so this, looks at the files twice a second
        made.run(1)
        time.sleep(0.5)
    assert export.exports >= 3 and export.failures == 0
    place = (("job_name", "demo"), ("place", "clicks"))
    assert numbers(collector.latest())["floodway_offered_tuples_total", place] == 6 * CLICKS


def test_a_collector_that_refuses_is_told_once_and_stops_nothing(collector: Collector, made: MadeJob) -> None:
    collector.answer = 400
    told: list[str] = []
    with OtlpExport(collector.url, watching([made.root]), told=told.append, interval_seconds=0.05) as export:
        wait_until(lambda: export.failures >= 2, "two failures")
    assert export.failures >= 3 and export.exports == 0
    assert len(told) == 1 and collector.url in told[0]


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://x", "http://", ""])
def test_what_is_no_address_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an address"), watched(tmp_path, JobOptions(otlp=url)):
        pass


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    network = Path(__file__).parents[2] / "examples" / "networks" / "figure1.yaml"
    arguments = ["floodway", "run", str(network), "--state", str(tmp_path / "state"), "--otlp", "http://127.0.0.1:4318"]
    code = f"import sys; sys.modules['opentelemetry'] = None; sys.argv = {arguments!r}\n"
    code += "from floodway.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'floodway[otel]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2 and "Traceback" not in done.stderr
