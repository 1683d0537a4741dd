"""What the page shows, as data: the latest snapshot of every job with its recent past.

Rates are counts of the ledger over the last `WINDOW_SECONDS`: the ledger gets a batch at once, so that a shorter window
would show the rhythm of the batches and not of the load.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from floodway.agent.account import Counts
from floodway.dashboard.figures import Figures, Gauge
from floodway.dashboard.history import SAMPLES, History, Sample
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.sources import Reading, Source
from floodway.network.model import Network

WINDOW_SECONDS = 10
BATCH_SECONDS = 4.0
STALE_SECONDS = 15.0
LEAST_SECONDS = 0.4
INSIDE = "inside"
"""Drops on arcs inside the network are of tuples that were kept at the inputs: charted apart."""


class Board:
    """Snapshots of a source. Asked by several pages at once it reads the source once."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: list[dict[str, Any]] = []
        self._polled = float("-inf")
        self._histories: dict[str, History] = {}
        self._gauges: dict[str, Gauge] = {}
        self._pictures: dict[str, str] = {}
        self._readings: Sequence[Reading] = ()

    def snapshot(self, *, history: bool = True) -> dict[str, Any]:
        """Everything the page shows; without history only each job's latest sample."""
        with self._lock:
            now = self._clock()
            if now - self._polled >= LEAST_SECONDS:
                self._poll(now)
            jobs = [{**job, **self._past(job["name"], history=history)} for job in self._jobs]
            return {"time": now, "jobs": jobs}

    def picture(self, name: str) -> str | None:
        """The network of a job as SVG, without figures; None if it has no network."""
        self.snapshot(history=False)
        return self._pictures.get(name)

    def readings(self) -> Sequence[Reading]:
        """What was read last, for the metrics."""
        self.snapshot(history=False)
        return self._readings

    def counts(self, reading: Reading) -> Counts:
        """Sums of the job's ledger, or what its status tells where none can be read."""
        return reading.account.total if reading.account else _told(reading)

    def set_mode(self, name: str, mode: str) -> None:
        """Pass a wish on; the page shows it when the job says that it follows."""
        self._source.set_mode(name, mode)

    def _poll(self, now: float) -> None:
        self._polled = now
        self._readings = self._source.read()
        self._jobs = [self._job(reading, now) for reading in self._readings]

    def _past(self, name: str, *, history: bool) -> dict[str, Any]:
        past = self._histories[name]
        latest = past.latest
        found: dict[str, Any] = {"sample": latest.to_dict() if latest else None}
        if history:
            found["history"] = [sample.to_dict() for sample in past.samples()]
        return found

    def _job(self, reading: Reading, now: float) -> dict[str, Any]:
        status, account = reading.status, reading.account
        counts = self.counts(reading)
        second = self._second(reading, now)
        recent, length = account.window(second, WINDOW_SECONDS) if account else (Counts(), WINDOW_SECONDS)
        figures = self._figures(reading, recent, length)
        age = now - status["time_us"] / 1e6 if "time_us" in status else None
        self._remember(reading, now, second, sample_rates(recent, reading.network, length), figures)
        differences = account.differences() if account else []
        return {
            "name": reading.name,
            "problem": reading.problem,
            "mode": status.get("mode"),
            "age_seconds": age,
            "stale": age is None or age > STALE_SECONDS,
            "latency_seconds": status.get("latency_seconds"),
            "target_seconds": status.get("target_seconds"),
            "unreachable": bool(status.get("unreachable")),
            "floor_seconds": status.get("floor_seconds"),
            "loss": status.get("loss"),
            "scale": status.get("scale"),
            "reasons": _reasons(status),
            "planned": dict(status.get("keeps") or _shed_keep(status)),
            "waiting": waiting(status, counts),
            "offered": dict(counts.offered),
            "kept": dict(counts.kept),
            "dropped": counts.by_place(),
            "delivered": dict(counts.delivered),
            "ledger": {
                "state": "none" if account is None else "differs" if differences else "reconciled",
                "lines": account.lines if account else 0,
                "differences": differences,
            },
            "flow": _flow(figures),
            "score": figures.score if figures else None,
            "optimum": figures.optimum if figures else None,
            "nodes": _nodes(reading.network, figures, status),
            "has_picture": reading.name in self._pictures,
            "contracts": list(status.get("contracts") or ()),
            "moves": list(status.get("moves") or ()),
        }

    def _second(self, reading: Reading, now: float) -> int:
        """The second that the window ends with: the end of the last batch, unless batches have stopped coming."""
        last = max(reading.account.seconds, default=0) + 1 if reading.account else 0
        # A window that ends between two batches would lack the one under way; after a while it is really missing.
        return last if now - last <= BATCH_SECONDS or now - last > STALE_SECONDS else int(now)

    def _figures(self, reading: Reading, recent: Counts, length: int) -> Figures | None:
        network = reading.network
        if network is None:
            return None
        gauge = self._gauges.get(reading.name)
        if gauge is None or gauge.network is not network:
            self._gauges[reading.name] = gauge = Gauge(network)
            self._pictures[reading.name] = network_svg(network)
        if any(recent.offered.values()):
            return gauge.measured(recent, length)
        return gauge.planned(reading.status.get("rates") or {}, reading.status.get("keeps") or {})

    def _remember(
        self, reading: Reading, now: float, second: int, rates: Mapping[str, Any], figures: Figures | None
    ) -> None:
        history = self._histories.get(reading.name)
        if history is None:
            self._histories[reading.name] = history = History()
            history.fill(past(reading, self._gauges.get(reading.name), until=second - 1))
        if reading.status and now - second <= STALE_SECONDS:
            history.add(
                Sample(
                    time=now,
                    latency=reading.status.get("latency_seconds"),
                    target=reading.status.get("target_seconds"),
                    score=figures.score if figures else None,
                    optimum=figures.optimum if figures else None,
                    **rates,
                )
            )


def past(reading: Reading, gauge: Gauge | None, *, until: int, most: int = SAMPLES) -> list[Sample]:
    """Samples up to second `until` from what the job has written: rates from its ledger, latency from its batches."""
    account = reading.account
    if account is None or not account.seconds:
        return []
    first = max(min(account.seconds), until - most)
    return samples_at(reading, gauge, [(second, WINDOW_SECONDS) for second in range(first + 1, until + 1)])


def samples_at(reading: Reading, gauge: Gauge | None, windows: Iterable[tuple[int, int]]) -> list[Sample]:
    """One sample for each (second, length): what the job has written of the `length` seconds before that second."""
    account = reading.account
    if account is None:
        return []
    target = reading.status.get("target_seconds")
    means, latest = deque(reading.latencies.means), None
    found = []
    for second, most in windows:
        while means and means[0][0] <= second:
            latest = means.popleft()[1]
        counts, length = account.window(second, most)
        rates = sample_rates(counts, reading.network, length)
        figures = gauge.measured(counts, length) if gauge and any(counts.offered.values()) else None
        score, optimum = (figures.score, figures.optimum) if figures else (None, None)
        found.append(Sample(time=float(second), latency=latest, target=target, score=score, optimum=optimum, **rates))
    return found


def sample_rates(counts: Counts, network: Network | None, seconds: float) -> dict[str, Any]:
    """Tuples/s offered and kept at the inputs, dropped by reason; drops inside the network apart."""
    inputs = [at for at in counts.offered if network is None or at in network.streams]
    dropped: dict[str, float] = {}
    for (at, reason), count in counts.dropped.items():
        key = reason if network is None or at in network.streams else f"{reason}, {INSIDE}"
        dropped[key] = dropped.get(key, 0.0) + count / seconds
    offered = sum(counts.offered[at] for at in inputs) / seconds
    kept = sum(counts.kept[at] for at in inputs) / seconds
    return {"offered": offered, "kept": kept, "dropped": dropped}


def waiting(status: Mapping[str, Any], counts: Counts) -> dict[str, int]:
    """Tuples that arrived and that no batch has taken: told by the job, else arrived less offered."""
    told = status.get("waiting")
    if isinstance(told, Mapping):
        return {str(name): int(count) for name, count in told.items()}
    arrived = status.get("arrived") or {}
    return {name: max(0, int(count) - counts.offered[name]) for name, count in arrived.items()}


def _told(reading: Reading) -> Counts:
    """Totals that a status carries itself, where no ledger can be read."""
    counts, status = Counts(), reading.status
    if "offered_total" in status:
        counts.offered[reading.name] = status["offered_total"]
        counts.kept[reading.name] = status["kept_total"]
        if status["dropped_total"]:
            counts.dropped[reading.name, "shedder"] = status["dropped_total"]
    for key, target in (("offered", counts.offered), ("kept", counts.kept)):
        if isinstance(status.get(key), Mapping):
            target.update(status[key])
    for at, reasons in (status.get("dropped") or {}).items() if isinstance(status.get("dropped"), Mapping) else ():
        for reason, count in reasons.items():
            counts.dropped[at, reason] = count
    return counts


def _shed_keep(status: Mapping[str, Any]) -> dict[str, float]:
    return {str(status["name"]): float(status["keep"])} if "keep" in status and "name" in status else {}


def _reasons(status: Mapping[str, Any]) -> dict[str, str]:
    if isinstance(status.get("reasons"), Mapping):
        return dict(status["reasons"])
    return {str(status.get("name", "")): str(status["reason"])} if status.get("reason") else {}


def _flow(figures: Figures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {
        "rates": dict(figures.rates),
        "keeps": dict(figures.keeps),
        "arcs": dict(figures.arcs),
        "load": dict(figures.load),
        "throughput": dict(figures.throughput),
    }


def _nodes(network: Network | None, figures: Figures | None, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    planned = status.get("load") or {}
    if network is None or figures is None:
        return [{"name": name, "cpu": None, "share": None, "planned": load} for name, load in planned.items()]
    return [
        {"name": name, "cpu": node.cpu, "share": figures.load[name], "planned": planned.get(name)}
        for name, node in network.nodes.items()
    ]
