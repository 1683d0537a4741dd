"""A node's own metrics and counts: its ledger and its batches followed, beside the status it tells anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute

from floodway.agent.watch.followed import Followed
from floodway.agent.watch.metrics import Watched, metrics_route
from floodway.job.fold import Fold


class FolderMetrics:
    """What is known of the job in one folder; each look reads only what was written since the last."""

    def __init__(self, name: str, root: Path, cpu: Mapping[str, float] | None = None) -> None:
        self._name = name
        self._root = root
        self._cpu = dict(cpu or {})
        self._followed = Followed()
        self._lock = threading.Lock()

    def watched(self, status: Mapping[str, Any]) -> Watched:
        """The job now; its load as planned, over the CPU of its nodes."""
        with self._lock:
            account = self._advanced()
            planned = status.get("load") or {}
            return Watched(
                job=self._name,
                status=status,
                # Copies: the next look goes on summing while these are written out.
                counts=account.total.copy(),
                differences=len(account.differences()),
                latencies=self._followed.latencies.copy(),
                load={node: load / self._cpu[node] for node, load in planned.items() if self._cpu.get(node)},
                waiting=status.get("waiting") or {},
            )

    def told(self) -> dict[str, Any]:
        """The sums of the ledger as a status can carry them, for a page that sees this node by its address alone."""
        with self._lock:
            account = self._advanced()
            return {
                "offered": dict(account.total.offered),
                "kept": dict(account.total.kept),
                "dropped": account.total.by_place(),
                "delivered": dict(account.total.delivered),
                "ledger": {"lines": account.lines, "differences": account.differences()},
            }

    def _advanced(self) -> Fold:
        self._followed.advance([self._root])
        return self._followed.account or Fold()


def node_metrics_routes(metrics: FolderMetrics, status: Callable[[], Mapping[str, Any]]) -> list[BaseRoute]:
    """`GET /metrics` of one node; behind a key for who signs, or has the token that may read."""
    return [metrics_route(lambda: [metrics.watched(status())])]
