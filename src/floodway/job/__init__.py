"""What every protected job has: decision, ledger and the fold over it, status, findings, places; no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.job.ledger.ledger import Ledger, LedgerLine
    from floodway.job.options.options import JobOptions
    from floodway.job.store.store import LocalStore

__all__ = [
    "JobOptions",
    "Ledger",
    "LedgerLine",
    "LocalStore",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.job.ledger.ledger": (
            "Ledger",
            "LedgerLine",
            "LocalStore",
        ),
        "floodway.job.options.options": ("JobOptions",),
        "floodway.job.store.store": ("LocalStore",),
    },
)
