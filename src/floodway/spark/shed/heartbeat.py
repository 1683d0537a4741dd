"""The heartbeat of a shed: a thread that renews the decision while the process lives that decides.

A query may outlive its shed's loop (on Spark Connect the client may die and the query goes on). A decision that nobody
renews expires, and the batches keep everything again (`Entry.until_us`).
"""

from __future__ import annotations

from threading import Event, Thread

from floodway.spark.shed.loop import ShedLoop

BEATS = 4
"""Per time to expire: a decision expires when so many were missed."""


class Heartbeat:
    """Renews the decision of one loop until its queries have ended, or until it is stopped."""

    def __init__(self, loop: ShedLoop) -> None:
        self._loop = loop
        self._stopped = Event()
        self._thread = Thread(target=self._beat, name=f"floodway-{loop.settings.name}", daemon=True)

    def start(self) -> None:
        """Begin; a loop whose decisions never expire needs none."""
        if self._loop.settings.expires_seconds is not None:
            self._thread.start()

    def stop(self) -> None:
        """Renew no more; returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        period = (self._loop.settings.expires_seconds or 0.0) / BEATS
        while not self._stopped.wait(period) and not self._loop.finished:
            self._loop.renew()
