"""Steering of Window Drop: when an epoch may begin, and when a raise may be emitted.

The policy is `planning/window_drop.py`; here is what it needs to know of running queries: the latest event time that
micro-batches reported, and which batches knew of the pending entry. If a report was lost (the driver died between a
commit and its report), what that batch saw is unknown; it is then taken to have seen event times up to the wall clock
of its loss, so a raise waits until event time has passed that point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from floodway.planning.window_drop import PPM, Epochs, WindowShape
from floodway.spark.shed.control_table import KEPT_EPOCHS, ControlTable

CHANGE = 0.05
"""Relative change of keep that is worth an epoch: the drop changes that the papers' prototype ignored."""


@dataclass
class WindowSteering:
    """Moves the epochs in the control table towards a keep."""

    shape: WindowShape
    control: ControlTable
    seen_us: int | None = None
    unsure_until_us: int | None = None
    _reported: dict[str, int] = field(default_factory=dict)

    @property
    def epochs(self) -> Epochs:
        """The keep rates of windows, as the control table holds them."""
        return Epochs(self.shape, self.control.table.epochs)

    def saw(self, query: str, batch_time_us: int, event_us: int | None) -> None:
        """A micro-batch with this timestamp reported the latest event time it was offered."""
        self._reported[query] = max(batch_time_us, self._reported.get(query, batch_time_us))
        if event_us is not None:
            self.seen_us = event_us if self.seen_us is None else max(self.seen_us, event_us)

    def lost_sight(self, now_us: int) -> None:
        """Micro-batches went by without a report."""
        self.unsure_until_us = now_us

    def forget(self, query: str) -> None:
        """A query has stopped."""
        self._reported.pop(query, None)

    def steer(self, keep_ppm: int) -> None:
        """Begin or finish a change towards `keep_ppm`, if one is due."""
        epochs = self.epochs
        emitted = epochs.latest.emit_ppm
        if epochs.pending and self._all_know(epochs.latest.valid_from_us):
            self._put(lambda valid: epochs.confirm(seen_us=self._latest_us(), valid_from_us=valid))
        elif keep_ppm != emitted and (keep_ppm == PPM or abs(keep_ppm - emitted) > CHANGE * emitted):
            changed = epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, valid_from_us=0)
            if changed is not epochs:
                self._put(lambda valid: epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, valid_from_us=valid))

    def _put(self, changed: Callable[[int], Epochs]) -> None:
        replays_from_us = min(self._reported.values(), default=0)
        self.control.put_epoch(lambda valid: changed(valid).trimmed(KEPT_EPOCHS, replays_from_us).history)

    def _all_know(self, valid_from_us: int) -> bool:
        """Whether every running query has reported a batch that looked up the pending entry."""
        return bool(self._reported) and all(at >= valid_from_us for at in self._reported.values())

    def _latest_us(self) -> int | None:
        known = [at for at in (self.seen_us, self.unsure_until_us) if at is not None]
        return max(known, default=None)
