"""Window Drop: shed whole windows, so that every window that is emitted equals the unshed one.

Windows of size ω start every δ, aligned to `offset`. B consecutive windows form a batch of length L = B δ, and a
batch has one fate, drawn by hash of its start s and the keep in force for that start. A tuple at time t passes if it
lies inside a window of some kept batch:

    s <= t < s + L - δ + ω          for a kept batch start s = offset + i L

and only windows of kept batches are emitted: the *subset guarantee*. With `max_gap` G every (G+1)th batch is kept
whatever its hash, so no gap is longer than G B windows; the other batches take what remains of the keep asked for.

Rates are epochs of event time. A window that is *emitted* must have passed all its tuples, in every micro-batch that
saw one of them, also in those that were running while the rate was changed. Hash slots are nested (a batch kept at
keep p is kept at any q > p), so lowering is safe at any point, and raising from p to q takes two steps:

1. from an epoch start on, tuples pass at q, but windows are still emitted at p only;
2. when every micro-batch that knew nothing of step 1 has reported the latest event time C it saw, windows
   that start after C are emitted at q: no tuple of theirs was ever dropped at p.

Times are integer microseconds of event time unless said otherwise; keeps are parts per million. Window-aware drops:
Tatbul and Zdonik, VLDB 2006, as used by "Staying FIT", section 2. The epochs are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from floodway.errors import InputError
from floodway.units import PPM

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_SEED = 42


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Size ω, slide δ, start offset (microseconds), batch B (windows) and the longest gap G (batches, or None).

    >>> shape = WindowShape(size_us=10, slide_us=5, batch=2)
    >>> shape.batch_us, shape.batch_start(14)
    (10, 10)
    """

    size_us: int
    slide_us: int
    offset_us: int = 0
    batch: int = 1
    max_gap: int | None = None

    def __post_init__(self) -> None:
        if self.size_us < 1 or self.slide_us < 1 or self.batch < 1:
            raise InputError(
                f"window of size {self.size_us} µs, slide {self.slide_us} µs, batch {self.batch}: all must be above 0",
                hint="Give the size and slide that the aggregate uses.",
            )
        if self.slide_us > self.size_us:
            raise InputError(
                f"window slide {self.slide_us} µs is longer than its size {self.size_us} µs",
                hint="Spark has no such windows either; use the slide of the aggregate.",
            )
        if self.max_gap is not None and self.max_gap < 1:
            raise InputError(
                f"window max_gap {self.max_gap} must be at least 1 batch",
                hint="Leave it out for no bound on gaps.",
            )

    @property
    def batch_us(self) -> int:
        """L, the distance between two batch starts."""
        return self.batch * self.slide_us

    @property
    def overlap(self) -> int:
        """How many batches a tuple can belong to at most: 1 + ceil((ω - δ) / L)."""
        return 1 + math.ceil((self.size_us - self.slide_us) / self.batch_us)

    def batch_start(self, time_us: int) -> int:
        """The start of the batch that a window starting at `time_us` belongs to."""
        return (time_us - self.offset_us) // self.batch_us * self.batch_us + self.offset_us

    def next_start(self, time_us: int) -> int:
        """The first batch start later than `time_us`: no window from there on holds a tuple seen so far."""
        return self.batch_start(time_us) + self.batch_us

    def is_forced(self, start_us: int) -> bool:
        """Whether the gap bound keeps this batch whatever its hash."""
        if self.max_gap is None:
            return False
        return (start_us - self.offset_us) // self.batch_us % (self.max_gap + 1) == 0

    def drawn_ppm(self, keep_ppm: int) -> int:
        """The keep at which batches that are not forced are drawn, so that all together reach `keep_ppm`."""
        if self.max_gap is None:
            return keep_ppm
        return max(0, (keep_ppm * (self.max_gap + 1) - PPM) // self.max_gap)

    def kept(self, start_us: int, keep_ppm: int, salt: int) -> bool:
        """The fate of the batch that starts at `start_us`."""
        return self.is_forced(start_us) or slot_ppm(start_us, salt) < self.drawn_ppm(keep_ppm)


def fan_out(shapes: Sequence[WindowShape]) -> WindowShape:
    """The shape to drop by before several aggregates of one stream: δ = lcm(δi), ω = δ + max(ωi - δi).

    >>> shape = fan_out([WindowShape(10, 2), WindowShape(6, 3)])
    >>> shape.slide_us, shape.size_us
    (6, 14)
    """
    if not shapes or any(shape.offset_us != shapes[0].offset_us for shape in shapes):
        raise InputError(
            "windows that share a drop need one common start offset",
            hint="Drop before each aggregate instead.",
        )
    slide = math.lcm(*(shape.slide_us for shape in shapes))
    size = slide + max(shape.size_us - shape.slide_us for shape in shapes)
    return replace(shapes[0], size_us=size, slide_us=slide)


@dataclass(frozen=True, slots=True)
class Epoch:
    """From batch start `start_us` on: tuples pass at `pass_ppm`, windows are emitted at `emit_ppm <= pass_ppm`.

    Known to micro-batches whose decision has the number `seq` or a higher one.
    """

    seq: int
    start_us: int
    pass_ppm: int = PPM
    emit_ppm: int = PPM


ALWAYS = Epoch(seq=0, start_us=-(1 << 62))


@dataclass(frozen=True, slots=True)
class Epochs:
    """The bounded history of epochs; the latest entry that is known and has begun is the one in force.

    >>> epochs = Epochs(WindowShape(10, 10)).lower_or_raise(400_000, seen_us=25, seq=7)
    >>> epochs.at(29, 7).pass_ppm, epochs.at(30, 7).pass_ppm, epochs.at(30, 6).pass_ppm
    (1000000, 400000, 1000000)
    """

    shape: WindowShape
    history: tuple[Epoch, ...] = (ALWAYS,)

    @property
    def latest(self) -> Epoch:
        """The epoch that began last."""
        return self.history[-1]

    @property
    def pending(self) -> bool:
        """Whether a raise waits for confirmation (step 2)."""
        return self.latest.pass_ppm > self.latest.emit_ppm

    def at(self, window_start_us: int, seq: int) -> Epoch | None:
        """The epoch in force for a window in a micro-batch with that decision; None before the history."""
        start = self.shape.batch_start(window_start_us)
        for epoch in reversed(self.history):
            if epoch.seq <= seq and epoch.start_us <= start:
                return epoch
        return None

    def lower_or_raise(self, keep_ppm: int, *, seen_us: int | None, seq: int) -> Epochs:
        """Begin to change the keep at the first batch start later than `seen_us`, the latest event time seen.

        While a raise is pending only a keep below what is emitted now changes anything.
        """
        last = self.latest
        if keep_ppm == last.emit_ppm and not self.pending:
            return self
        if self.pending and keep_ppm >= last.emit_ppm:
            return self
        emit_ppm = min(keep_ppm, last.emit_ppm)
        return self._with(Epoch(seq, self._start(seen_us), keep_ppm, emit_ppm))

    def confirm(self, *, seen_us: int | None, seq: int) -> Epochs:
        """Step 2 of a raise; `seen_us` is over all micro-batches older than the pending entry."""
        if not self.pending:
            return self
        last = self.latest
        return self._with(Epoch(seq, self._start(seen_us), last.pass_ppm, last.pass_ppm))

    def trimmed(self, most: int, oldest_seq: int) -> Epochs:
        """Without the entries that nobody can meet any more, and at most the latest `most` of the others.

        An entry is shadowed by a later one with the same start, once every micro-batch that is still to run or to be
        repeated (decisions from `oldest_seq` on) knows the later one. While a long window is open all
        changes have the same start, so what is left is about one entry a window. Windows before the entries that are
        kept count as dropped: never emitted half.
        """
        kept = [
            epoch
            for epoch, after in zip(self.history, (*self.history[1:], None), strict=True)
            if after is None or after.start_us > epoch.start_us or after.seq > oldest_seq
        ]
        return replace(self, history=tuple(kept[-most:]))

    def _start(self, seen_us: int | None) -> int:
        begun = self.latest.start_us
        return begun if seen_us is None else max(begun, self.shape.next_start(seen_us))

    def _with(self, epoch: Epoch) -> Epochs:
        return replace(self, history=(*self.history, epoch))


def slot_ppm(value: int, salt: int) -> int:
    """xxhash64 of two 64-bit integers, as Spark's `xxhash64(value, salt)` computes it, modulo a million."""
    hashed = _hash_long(salt, _hash_long(value, _SEED))
    signed = hashed - (1 << 64) if hashed >> 63 else hashed
    return signed % PPM


def _hash_long(value: int, seed: int) -> int:
    mixed = (seed + _P5 + 8) & _MASK
    mixed ^= _rotate((value & _MASK) * _P2 & _MASK, 31) * _P1 & _MASK
    mixed = (_rotate(mixed, 27) * _P1 + _P4) & _MASK
    mixed = (mixed ^ (mixed >> 33)) * _P2 & _MASK
    mixed = (mixed ^ (mixed >> 29)) * _P3 & _MASK
    return mixed ^ (mixed >> 32)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK
