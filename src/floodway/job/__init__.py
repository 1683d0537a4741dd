"""What every protected job has: decision, ledger and the fold over it, status, findings, places; no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.job.ledger import Ledger, LedgerLine
    from floodway.job.options import JobOptions
    from floodway.job.store import LocalStore

__all__ = [
    "JobOptions",
    "Ledger",
    "LedgerLine",
    "LocalStore",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.job.ledger": (
            "Ledger",
            "LedgerLine",
            "LocalStore",
        ),
        "floodway.job.options": ("JobOptions",),
        "floodway.job.store": ("LocalStore",),
    },
)
