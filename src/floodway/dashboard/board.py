"""What the page shows, as data: the latest snapshot of every job with its recent past.

Rates are counts of the ledger over the last `WINDOW_SECONDS`: the ledger gets a batch at once, so that a shorter window
would show the rhythm of the batches and not of the load.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from floodway.agent.account import Account, Counts
from floodway.agent.metrics import Watched
from floodway.agent.statuses import has_mode, would_drop
from floodway.dashboard.figures import Figures, Gauge
from floodway.dashboard.history import SAMPLES, History, Sample
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.sources import Reading, Source
from floodway.dashboard.told import flow, fragments, keeps, ledger, nodes, plan, reasons, told_counts
from floodway.errors import InputError
from floodway.network.model import Network

WINDOW_SECONDS = 10
BATCH_SECONDS = 4.0
STALE_SECONDS = 15.0
LEAST_SECONDS = 0.4
GAP_SECONDS = 2.5
"""Samples further apart than this have a hole between them: nobody looked."""
INSIDE = "inside"
"""Drops on arcs inside the network are of tuples that were kept at the inputs: charted apart."""


class Board:
    """Snapshots of a source. Asked by several pages at once it reads the source once."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._polled = float("-inf")
        # By place, and not by name: a job's name grows longer when another of the same name appears.
        self._histories: dict[str, tuple[Account | None, History]] = {}
        self._gauges: dict[str, Gauge] = {}
        self._pictures: dict[str, str] = {}
        self._read: list[tuple[Reading, dict[str, Any]]] = []

    def snapshot(self, *, history: bool = True) -> dict[str, Any]:
        """Everything the page shows; without history only each job's latest sample."""
        with self._lock:
            now = self._poll()
            jobs = [{**job, **self._past(reading.place, history=history)} for reading, job in self._read]
            return {"time": now, "jobs": jobs}

    def picture(self, name: str) -> str | None:
        """The network of a job as SVG, without figures; None if it has no network."""
        with self._lock:
            self._poll()
            return next((self._pictures.get(one.place) for one, _ in self._read if one.name == name), None)

    def watched(self) -> list[Watched]:
        """Every job as the metrics want it: copies, which nobody goes on counting in."""
        with self._lock:
            self._poll()
            return [
                Watched(
                    job=reading.name,
                    status=reading.status,
                    counts=self.counts(reading).copy(),
                    differences=len(job["ledger"]["differences"]),
                    latencies=reading.latencies.copy(),
                    load={node["name"]: node["share"] for node in job["nodes"] if node["share"] is not None},
                    waiting=job["waiting"],
                    score=job["score"],
                    optimum=job["optimum"],
                    heard=reading.heard,
                )
                for reading, job in self._read
            ]

    def counts(self, reading: Reading) -> Counts:
        """Sums of the job's ledger, or what its status tells where none can be read."""
        return reading.account.total if reading.account else told_counts(reading)

    def set_mode(self, name: str, mode: str) -> None:
        """Pass a wish on to the job that was shown under this name; the page shows it when the job follows."""
        with self._lock:
            self._poll()
            known = [reading for reading, _ in self._read]
        reading = next((one for one in known if one.name == name), None)
        if reading is None:
            raise InputError(
                f"no job is called {name!r}", hint=f"Known: {', '.join(one.name for one in known) or 'none yet'}"
            )
        if not has_mode(reading.status):
            raise InputError(
                f"{name} is a participant of a federation and has no mode",
                hint="It sheds what no partner takes; stop it to stop that",
            )
        self._source.switch(reading, mode)

    def _poll(self) -> float:
        """Read the source if it is time; what time it is."""
        now = self._clock()
        if now - self._polled >= LEAST_SECONDS:
            self._polled = now
            self._read = [(reading, self._job(reading, now)) for reading in self._source.read()]
        return now

    def _past(self, place: str, *, history: bool) -> dict[str, Any]:
        past = self._histories[place][1]
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
        silent = {node: now - heard for node, heard in reading.heard.items() if now - heard > STALE_SECONDS}
        self._remember(reading, now, second, sample_rates(recent, reading.network, length), figures)
        return {
            "name": reading.name,
            "problem": reading.problem,
            "notes": list(reading.notes),
            "mode": status.get("mode"),
            "switchable": has_mode(status),
            "age_seconds": age,
            "stale": age is None or age > STALE_SECONDS,
            "silent": silent,
            "latency_seconds": status.get("latency_seconds"),
            "target_seconds": status.get("target_seconds"),
            "unreachable": bool(status.get("unreachable")),
            "floor_seconds": status.get("floor_seconds"),
            "loss": status.get("loss"),
            "would_drop": would_drop(status),
            "would_drop_tuples": status.get("would_drop"),
            "scale": status.get("scale"),
            "plan": plan(status),
            "reasons": reasons(status),
            "planned": keeps(status),
            "waiting": waiting(status, counts),
            "offered": dict(counts.offered),
            "kept": dict(counts.kept),
            "dropped": counts.by_place(),
            "delivered": dict(counts.delivered),
            "ledger": ledger(account, status),
            "flow": flow(figures),
            "score": figures.score if figures else None,
            "optimum": figures.optimum if figures else None,
            "nodes": nodes(reading.network, figures, status),
            "has_picture": reading.place in self._pictures,
            "fragments": fragments(status),
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
            self._pictures.pop(reading.place, None)
            return None
        gauge = self._gauges.get(reading.place)
        if gauge is None or gauge.network is not network:
            self._gauges[reading.place] = gauge = Gauge(network)
            self._pictures[reading.place] = network_svg(network)
        if any(recent.offered.values()):
            return gauge.measured(recent, length)
        return gauge.planned(reading.status.get("rates") or {}, reading.status.get("keeps") or {})

    def _remember(
        self, reading: Reading, now: float, second: int, rates: Mapping[str, Any], figures: Figures | None
    ) -> None:
        summed, history = self._histories.get(reading.place, (None, History()))
        if summed is not None and summed is not reading.account:
            history = History()  # another run: the past of the one before is not its past
        self._histories[reading.place] = (reading.account, history)
        last = history.latest
        if last is None or now - last.time > GAP_SECONDS:
            most = SAMPLES if last is None else min(SAMPLES, second - 1 - int(last.time))
            history.fill(past(reading, self._gauges.get(reading.place), until=second - 1, most=most))
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
