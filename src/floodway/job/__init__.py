"""What every protected job has: decision, ledger and the fold over it, status, findings, places; no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.job.ledger import Ledger, LedgerLine
    from floodway.job.options import JobOptions

__all__ = [
    "JobOptions",
    "Ledger",
    "LedgerLine",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.job.ledger": (
            "Ledger",
            "LedgerLine",
        ),
        "floodway.job.options": ("JobOptions",),
    },
)
