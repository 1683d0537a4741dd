"""What the page shows, as data: the latest snapshot of every job with its recent past, and its whole past if asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodway.agent.watch.metrics import Watched
from floodway.agent.watch.statuses import has_mode, would_drop
from floodway.dashboard.advice import WHY
from floodway.dashboard.figures import Figures, Gauge
from floodway.dashboard.history import SAMPLES, History, Sample
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.past import WINDOW_SECONDS, Means, recent, sample_rates, whole
from floodway.dashboard.sources import Reading, Source
from floodway.dashboard.told import flow, fragments, keeps, ledger, nodes, participant, plan, reasons, told_counts
from floodway.errors import InputError
from floodway.job.fold import Counts
from floodway.job.timeline import Timeline

BATCH_SECONDS = 4.0
STALE_SECONDS = 15.0
LEAST_SECONDS = 0.4
GAP_SECONDS = 2.5
"""Samples further apart than this have a hole between them: nobody looked."""


@dataclass(slots=True)
class _Past:
    """What is remembered of a job: whose counts it goes with, the latest samples, and what is written nowhere."""

    timeline: Timeline[Counts] | None = None
    history: History = field(default_factory=History)
    means: Means = field(default_factory=Means)

    @property
    def began(self) -> int | None:
        """The first second that is known of."""
        spans = self.timeline.running.spans if self.timeline else []
        return spans[0][0] if spans else self.means.first


class Board:
    """Snapshots of a source. Asked by several pages at once it reads the source once."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._polled = float("-inf")
        # By place, and not by name: a job's name grows longer when another of the same name appears.
        self._pasts: dict[str, _Past] = {}
        self._gauges: dict[str, Gauge] = {}
        self._pictures: dict[str, str] = {}
        self._read: list[tuple[Reading, dict[str, Any]]] = []

    def snapshot(self, *, history: bool = True) -> dict[str, Any]:
        """Everything the page shows; without history only each job's latest sample."""
        with self._lock:
            now = self._poll()
            jobs = [{**job, **self._recent(reading.place, history=history)} for reading, job in self._read]
            return {"time": now, "jobs": jobs}

    def picture(self, name: str) -> str | None:
        """The network of a job as SVG, without figures; None if it has no network."""
        with self._lock:
            self._poll()
            return next((self._pictures.get(one.place) for one, _ in self._read if one.name == name), None)

    def whole(self, name: str) -> list[dict[str, Any]] | None:
        """The whole past of a job in some hundred samples, as far as it is written or was watched; None if unknown."""
        with self._lock:
            self._poll()
            for reading, _ in self._read:
                if reading.name == name:
                    means = self._pasts[reading.place].means
                    return [sample.to_dict() for sample in whole(reading, self._gauges.get(reading.place), means)]
        return None

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
        return reading.account.total if reading.account else told_counts(reading.status, reading.name)

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

    def _recent(self, place: str, *, history: bool) -> dict[str, Any]:
        past = self._pasts[place].history
        latest = past.latest
        found: dict[str, Any] = {"sample": latest.to_dict() if latest else None}
        if history:
            found["history"] = [sample.to_dict() for sample in past.samples()]
        return found

    def _job(self, reading: Reading, now: float) -> dict[str, Any]:
        status, timeline = reading.status, reading.timeline
        counts = self.counts(reading)
        second, batches_come = self._second(reading, now)
        now_counts, length = timeline.window(second, WINDOW_SECONDS) if timeline else (Counts(), 0)
        figures = self._figures(reading, now_counts, length)
        member = participant(status, now)
        age = now - status["time_us"] / 1e6 if "time_us" in status else None
        silent = {node: now - heard for node, heard in reading.heard.items() if now - heard > STALE_SECONDS}
        rates = sample_rates(now_counts, length, reading.network)
        stale = age is None or age > STALE_SECONDS
        past = self._past(reading, now, second)
        if status and not stale and reading.problem is None and batches_come:
            told: dict[str, Any] = {"latency": status.get("latency_seconds"), "load": member and member["share"]}
            past.means.note(int(now), **told)
            told |= {"target": status.get("target_seconds")} | rates
            told |= {"score": figures.score, "optimum": figures.optimum} if figures else {}
            past.history.add(Sample(time=now, **told))
        return {
            "name": reading.name,
            "began": past.began,
            "problem": reading.problem,
            "notes": list(reading.notes),
            "mode": status.get("mode"),
            "switchable": has_mode(status),
            "age_seconds": age,
            "stale": stale,
            "silent": silent,
            "latency_seconds": status.get("latency_seconds"),
            "target_seconds": status.get("target_seconds"),
            "unreachable": bool(status.get("unreachable")),
            "floor_seconds": status.get("floor_seconds"),
            "loss": member["loss"] if member else loss(status, rates),
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
            "why": {reason: f"tuples that {WHY[reason]}" for _, reason in counts.dropped if reason in WHY},
            "delivered": dict(counts.delivered),
            "ledger": ledger(reading.account, status),
            "flow": flow(figures),
            "score": figures.score if figures else None,
            "optimum": figures.optimum if figures else None,
            "nodes": nodes(reading.network, figures, status),
            "has_picture": reading.place in self._pictures,
            "participant": member,
            "fragments": fragments(status),
            "contracts": list(status.get("contracts") or ()),
            "moves": list(status.get("moves") or ()),
        }

    def _second(self, reading: Reading, now: float) -> tuple[int, bool]:
        """The second that the window ends with, and whether batches come: the end of the last one, while they do."""
        if reading.timeline is None or reading.timeline.last is None:
            return int(now), True
        last = reading.timeline.last + 1
        # A window that ends between two batches would lack the one under way; after a while it is really missing.
        patience = max(BATCH_SECONDS, 2.0 * reading.timeline.window(last, 1)[1])
        gone = now - last > max(STALE_SECONDS, patience)
        return last if gone or now - last <= patience else int(now), not gone

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

    def _past(self, reading: Reading, now: float, second: int) -> _Past:
        """What is remembered of the job, with what it wrote while nobody looked."""
        past = self._pasts.get(reading.place)
        if past is None or (past.timeline is not None and past.timeline is not reading.timeline):
            past = _Past()  # another run: the past of the one before is not its past
        past.timeline = reading.timeline
        self._pasts[reading.place] = past
        last = past.history.latest
        if reading.account is not None and (last is None or now - last.time > GAP_SECONDS):
            most = SAMPLES if last is None else min(SAMPLES, second - 1 - int(last.time))
            past.history.fill(recent(reading, self._gauges.get(reading.place), until=second - 1, most=most))
        return past


def waiting(status: Mapping[str, Any], counts: Counts) -> dict[str, int]:
    """Tuples that arrived and that no batch has taken: told by the job, else arrived less offered."""
    told = status.get("waiting")
    if isinstance(told, Mapping):
        return {str(name): int(count) for name, count in told.items()}
    arrived = status.get("arrived") or {}
    return {name: max(0, int(count) - counts.offered[name]) for name, count in arrived.items()}


def loss(status: Mapping[str, Any], rates: Mapping[str, Any]) -> float | None:
    """The share dropped at the inputs in the window that the page shows; where it has no batch, as the job tells."""
    offered = rates["offered"]
    return 1.0 - rates["kept"] / offered if offered else status.get("loss")
