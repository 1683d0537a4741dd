"""Steering of Window Drop: when an epoch may begin, and when a raise may be emitted.

The policy is `planning/windows/`; here is what it needs to know of running queries: the latest event time that
micro-batches reported, and whether all that run or are still to begin know of the pending entry. If a report was lost
(the driver died between a commit and its report), what that batch saw is unknown; it is then taken to have seen event
times up to the wall clock of its loss, so a raise waits until event time has passed that point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from floodway.planning.windows.window_drop import Epochs, WindowShape
from floodway.spark.shed.control_file import ControlTable
from floodway.units import PPM

CHANGE = 0.05
"""Relative change of keep that is worth an epoch: the drop changes that the papers' prototype ignored."""

KEPT_EPOCHS = 2048
"""As many windows, about, may be open at once, each with a keep of its own; older ones count as dropped."""


@dataclass
class WindowSteering:
    """Moves the epochs in the control table towards a keep."""

    shape: WindowShape
    control: ControlTable
    seen_us: int | None = None
    unsure_until_us: int | None = None

    @property
    def epochs(self) -> Epochs:
        """The keep rates of windows, as the control table holds them."""
        return Epochs(self.shape, self.control.table.epochs)

    def saw(self, event_us: int | None) -> None:
        """A micro-batch reported the latest event time it was offered."""
        if event_us is not None:
            self.seen_us = event_us if self.seen_us is None else max(self.seen_us, event_us)

    def lost_sight(self, now_us: int) -> None:
        """Micro-batches went by without a report."""
        self.unsure_until_us = now_us

    def steer(self, keep_ppm: int) -> None:
        """Begin or finish a change towards `keep_ppm`, if one is due."""
        epochs = self.epochs
        emitted = epochs.latest.emit_ppm
        if epochs.pending and self.control.all_know(epochs.latest.seq):
            self._put(lambda seq: epochs.confirm(seen_us=self._latest_us(), seq=seq))
        elif keep_ppm != emitted and (keep_ppm == PPM or abs(keep_ppm - emitted) > CHANGE * emitted):
            changed = epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, seq=0)
            if changed is not epochs:
                self._put(lambda seq: epochs.lower_or_raise(keep_ppm, seen_us=self.seen_us, seq=seq))

    def _put(self, changed: Callable[[int], Epochs]) -> None:
        oldest = self.control.table.oldest_seq
        self.control.put_epochs(lambda seq: changed(seq).trimmed(KEPT_EPOCHS, oldest).history)

    def _latest_us(self) -> int | None:
        known = [at for at in (self.seen_us, self.unsure_until_us) if at is not None]
        return max(known, default=None)
