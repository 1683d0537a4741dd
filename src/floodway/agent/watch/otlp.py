"""The metrics of `/metrics`, pushed to an OpenTelemetry collector: the same families under the same names.

    counter → monotonic sum, cumulative      gauge → gauge      histogram → explicit-bucket histogram, cumulative

The SDK's own instruments are not used: what is exported is read from the files of the run, as for Prometheus, so both
say the same and counters go on after a restart. `opentelemetry` is an extra of Floodway and imported here only.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from floodway.agent.watch.metrics import Watched, families
from floodway.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import Gauge, Histogram, HistogramDataPoint, Metric, MetricsData, Sum

INTERVAL_SECONDS = 5.0
TIMEOUT_SECONDS = 4.0
"""Below the interval: a collector that hangs delays one export and not those after it."""
PATH = "/v1/metrics"
UNKNOWN_NS = 0
"""Since when counters count: since the first batch of the folder, whoever has sent them since."""
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class OtlpExport:
    """Sends what `read` finds to `url` every few seconds, and once more at the end, from a thread of its own.

    A collector that does not answer costs the run nothing: `told` is called once with the reason, `failures` counts.
    """

    def __init__(
        self,
        url: str,
        read: Callable[[], Iterable[Watched]],
        *,
        told: Callable[[str], None] = lambda message: None,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.url = otlp_url(url)
        self._read = read
        self._told = told
        self._interval = interval_seconds
        self._exporter = _exporter(self.url)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self.exports = 0
        self.failures = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._export()  # the last counts
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._export()

    def _export(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        result = self._exporter.export(metrics_data(self._read(), time.time_ns()))
        if result is MetricExportResult.SUCCESS:
            self.exports += 1
            return
        self.failures += 1
        if self.failures == 1:
            self._told(f"metrics could not be sent to {self.url}: is a collector there that takes OTLP over HTTP?")


def otlp_url(url: str) -> str:
    """The address with the path that collectors listen on, if it has none.

    >>> otlp_url("http://127.0.0.1:4318"), otlp_url("https://otlp.example.org/mine/v1/metrics")
    ('http://127.0.0.1:4318/v1/metrics', 'https://otlp.example.org/mine/v1/metrics')
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(f"--otlp {url!r} is not an address", hint="Give one such as http://127.0.0.1:4318")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}{PATH}"


def metrics_data(watched: Iterable[Watched], now_ns: int) -> MetricsData:
    """All families of these jobs as OpenTelemetry's data; `now_ns` in nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    own = version("floodway")
    found = [metric for family in families(watched) if (metric := _metric(family, now_ns)) is not None]
    scope = ScopeMetrics(InstrumentationScope("floodway", own), found, schema_url="")
    resource = Resource.create({"service.name": "floodway", "service.version": own})
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _metric(family: Family, now_ns: int) -> Metric | None:
    """One family; None if it has no sample now."""
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, NumberDataPoint, Sum

    cumulative = AggregationTemporality.CUMULATIVE
    if not family.samples:
        return None
    data: Sum | Gauge | Histogram
    name = family.name
    if family.type == "histogram":
        data = Histogram(list(_histograms(family.samples, now_ns)), cumulative)
    else:
        counts = family.type == "counter"
        points = [
            NumberDataPoint(dict(sample.labels), UNKNOWN_NS, now_ns, float(sample.value)) for sample in family.samples
        ]
        name = family.samples[0].name  # a counter's has the suffix _total, as on /metrics
        data = Sum(points, cumulative, is_monotonic=True) if counts else Gauge(points)
    return Metric(name, family.documentation, "", data)


def _histograms(samples: Iterable[Sample], now_ns: int) -> Iterator[HistogramDataPoint]:
    """Prometheus counts up to each bound; OpenTelemetry counts between two bounds."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
        series.setdefault(labels, []).append(sample)
    for labels, own in series.items():
        upto = [(float(sample.labels["le"]), int(sample.value)) for sample in own if "le" in sample.labels]
        counts = [count - before for (_, count), before in zip(upto, [0, *(c for _, c in upto)], strict=False)]
        total = next((float(sample.value) for sample in own if sample.name.endswith("_sum")), 0.0)
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=UNKNOWN_NS,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=total,
            bucket_counts=counts,
            explicit_bounds=[bound for bound, _ in upto if math.isfinite(bound)],
            min=math.inf,  # not known: the run keeps buckets
            max=-math.inf,
        )


def _exporter(url: str) -> OTLPMetricExporter:
    if not all(_is_there(name) for name in NEEDED):
        raise InputError("--otlp needs OpenTelemetry, which is not installed", hint="Run pip install 'floodway[otel]'")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    # The exporter logs every failed attempt with a traceback; one line from here says it once.
    logging.getLogger(OTLPMetricExporter.__module__).setLevel(logging.CRITICAL)
    return OTLPMetricExporter(url, timeout=TIMEOUT_SECONDS)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is not there either
        return False
