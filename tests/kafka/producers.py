"""Settings of the producers that tests send with."""

from __future__ import annotations


def ordered(address: str) -> dict[str, str | int | float | bool]:
    """Every record once and in the order of sending, also where a busy broker lets the client try again."""
    return {"bootstrap.servers": address, "enable.idempotence": True}
