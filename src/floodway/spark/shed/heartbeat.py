"""The heartbeat of a shed: a thread that renews the decision while the process lives that decides.

A query may outlive its shed's loop (on Spark Connect the client may die and the query goes on). A decision that nobody
renews expires, and the batches keep everything again (`Entry.until_us`).
"""

from __future__ import annotations

from threading import Event, Lock, Thread

from floodway.spark.shed.loop import ShedLoop

BEATS = 4
"""Per time to expire: a decision expires when so many were missed."""


class Heartbeat:
    """Renews the decision of one loop while queries run that may use it, or until it is stopped."""

    def __init__(self, loop: ShedLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin, or begin again for a query that was started after all had ended; while it beats, nothing is done.

        A loop whose decisions never expire needs none.
        """
        with self._lock:
            if self._thread is None and self._loop.settings.expires_seconds is not None:
                name = f"floodway-{self._loop.settings.name}"
                self._thread = Thread(target=self._beat, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Renew no more; returns when the thread has ended."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _beat(self) -> None:
        period = (self._loop.settings.expires_seconds or 0.0) / BEATS
        while not self._stopped.wait(period) and not self._is_over():
            self._loop.renew()

    def _is_over(self) -> bool:
        """Whether no query is left; one that starts from now on begins anew."""
        with self._lock:
            if self._loop.finished:
                self._thread = None
            return self._thread is None
