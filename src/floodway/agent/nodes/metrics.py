"""A node's own metrics: its ledger and its batches followed, beside the status it tells anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute

from floodway.agent.account import Account, LedgerTail
from floodway.agent.latencies import Latencies, LatencyTail
from floodway.agent.metrics import Watched, metrics_route
from floodway.agent.run_files import BATCHES


class FolderMetrics:
    """What is known of the job in one folder; each look reads only what was written since the last."""

    def __init__(self, name: str, root: Path, cpu: Mapping[str, float] | None = None) -> None:
        self._name = name
        self._cpu = dict(cpu or {})
        self._account, self._latencies = Account(), Latencies()
        self._tails = (LedgerTail(root / "ledger.jsonl", self._account), LatencyTail(root / BATCHES, self._latencies))
        self._lock = threading.Lock()

    def watched(self, status: Mapping[str, Any]) -> Watched:
        """The job now; its load as planned, over the CPU of its nodes."""
        with self._lock:
            for tail in self._tails:
                tail.advance()
            planned = status.get("load") or {}
            return Watched(
                job=self._name,
                status=status,
                counts=self._account.total,
                differences=len(self._account.differences()),
                latencies=self._latencies,
                load={node: load / self._cpu[node] for node, load in planned.items() if self._cpu.get(node)},
                waiting=status.get("waiting") or {},
            )


def node_metrics_routes(
    name: str, root: Path, status: Callable[[], Mapping[str, Any]], cpu: Mapping[str, float] | None = None
) -> list[BaseRoute]:
    """`GET /metrics` of one node; behind a key only who signs may ask, so let Prometheus ask the page on loopback."""
    metrics = FolderMetrics(name, root, cpu)
    return [metrics_route(lambda: [metrics.watched(status())])]
