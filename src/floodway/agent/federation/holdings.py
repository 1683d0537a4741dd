"""The fragments that one participant holds: their leases, what runs of them, what does not and why.

Four threads come here: the loop, the renewal of leases, a move out and the partners' requests. One lock guards what is
held; and each fragment has a turn of its own, because starting and stopping take long and must not cross. Whether a
fragment may run is asked within its turn: held, and not on its way out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from floodway.agent.federation.engine import FragmentEngine
from floodway.agent.federation.errors import FragmentLostError
from floodway.agent.federation.leases import FragmentLease, LeaseStore
from floodway.agent.federation.participant_journal import Journal
from floodway.contracts.federation_file import FragmentSpec
from floodway.errors import FloodwayError


class Holdings:
    """What is held and run; all reads are copies. `failed` is told of what went wrong and is tried again."""

    def __init__(
        self,
        name: str,
        specs: Mapping[str, FragmentSpec],
        store: LeaseStore,
        journal: Journal,
        engine: FragmentEngine,
        clock: Callable[[], float],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._name = name
        self._specs = specs
        self._store = store
        self._journal = journal
        self._engine = engine
        self._clock = clock
        self._failed = failed
        self._lock = threading.Lock()
        self._turns: dict[str, threading.RLock] = {}
        self._held: dict[str, FragmentLease] = {}
        self._stalled: dict[str, str] = {}
        self._leaving: set[str] = set()

    def held(self) -> dict[str, FragmentLease]:
        """The leases held, by fragment."""
        with self._lock:
            return dict(self._held)

    def stalled(self) -> dict[str, str]:
        """Fragments that are held but do not run, with the reason."""
        with self._lock:
            return dict(self._stalled)

    def own(self, fragment: str, lease: FragmentLease, how: str) -> None:
        """Hold a fragment under a lease that names this participant, and renew it from now on."""
        fresh = self._store.hold(lease, now=self._clock())
        self._journal.leased(fragment, lease.epoch, self._name, lease.since, how)
        with self._lock:
            self._held[fragment] = fresh

    def leave(self, fragments: Iterable[str], *, why: str | None = None) -> None:
        """These are on their way out: nobody starts them. With `why` they wait there, which the status shows."""
        with self._lock:
            self._leaving.update(fragments)
            for fragment in fragments if why is not None else ():
                if fragment in self._held:
                    self._stalled[fragment] = why or ""

    def resume(self, fragments: Iterable[str]) -> None:
        """Start these, which stay after all."""
        names = list(fragments)
        with self._lock:
            self._leaving.difference_update(names)
        self.start_all(names)

    def start(self, fragment: str) -> None:
        """Run a fragment that is held and stays; one that cannot be started is stalled, and raises."""
        with self._turn(fragment):
            with self._lock:
                lease = self._held.get(fragment)
                if lease is None or fragment in self._leaving:
                    return
            try:
                self._engine.start(self._specs[fragment], partial(self._fence, lease))
            except Exception as error:
                self.stall(fragment, error.message if isinstance(error, FloodwayError) else str(error)[:300])
                raise
            with self._lock:
                self._stalled.pop(fragment, None)

    def start_all(self, fragments: Iterable[str]) -> None:
        """Start each of these, whatever becomes of the others; what cannot be started is stalled."""
        for fragment in fragments:
            with suppress(Exception):  # its log is not there yet, say: `retry` goes on
                self.start(fragment)

    def stall(self, fragment: str, reason: str) -> None:
        """A fragment does not run, though it is held."""
        with self._lock:
            if fragment in self._held:
                self._stalled[fragment] = reason

    def retry(self) -> None:
        """Start what is stalled, if it is still held and stays."""
        self.start_all(self.stalled())

    def stop(self, fragment: str, *, after_batch: bool = False) -> None:
        """Stop a fragment at a batch boundary; it is still held."""
        with self._turn(fragment):
            self._engine.stop(fragment, after_batch=after_batch)

    def drop(self, fragment: str) -> FragmentLease | None:
        """Let go of a fragment that is somebody else's, and stop it."""
        with self._lock:
            lease = self._held.pop(fragment, None)
            self._stalled.pop(fragment, None)
            self._leaving.discard(fragment)
        self.stop(fragment)
        return lease

    def renew(self) -> list[str]:
        """Push all leases ahead; the fragments that turned out to be lost, which are stopped.

        A lease that cannot be renewed now is tried again the next time: one fault must not cost the others theirs.
        """
        lost: list[str] = []
        for fragment, lease in self.held().items():
            try:
                fresh = self._store.renew(lease, now=self._clock())
            except FragmentLostError:
                with self._lock:
                    # One that is on its way out was claimed by its taker: the move itself finds out.
                    gone = fragment not in self._leaving and self._held.get(fragment) == lease
                if gone:
                    lost.append(fragment)
                    self._lose(fragment)
            except Exception as error:
                self._failed(f"lease of {fragment}", error)
            else:
                with self._lock:
                    if self._held.get(fragment) == lease:
                        self._held[fragment] = fresh
        return lost

    def _lose(self, fragment: str) -> None:
        try:
            lease = self.drop(fragment)
            if lease is not None:
                after = self._store.after(fragment, lease.epoch)
                self._journal.lease_ended(fragment, lease.epoch, after.since if after else self._clock())
        except Exception as error:  # the fence keeps it from writing all the same
            self._failed(f"stop of {fragment}", error)

    def _turn(self, fragment: str) -> threading.RLock:
        with self._lock:
            return self._turns.setdefault(fragment, threading.RLock())

    def _fence(self, lease: FragmentLease) -> None:
        self._store.check(lease, now=self._clock())
