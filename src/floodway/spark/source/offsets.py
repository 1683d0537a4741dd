"""The offset of a micro-batch: where it starts and ends, and the decision it runs under.

Spark journals the offset before the batch runs and hands it back on replay. It carries the batch's own start, because
Spark computes the start of the very first batch anew on replay; so what a batch admits is a function of its end
offset alone. Integers, strings and booleans only.

    {"v": 1, "stream": "s1", "from": {"0": 1000}, "lost": {}, "pos": {"0": 5000}, "waiting": 4000,
     "keep_ppm": 250000, "salt": 17, "mode": "enforce", "plan": "r7", "drop": "hash", "arcs": {"a1->b1":
     500000}, "queues": {}, "windows": {}, "seen_us": 0, "newest_id": -1, "passed": {}}

With a buffer, `queues` holds for each partition where its batch leaves off cleaning and where it begins to read, then
end and keep in ppm of every range from the batch's start to the last tuple judged: `{"0": [1200, 1200, 5000, 1000000,
6000, 800000]}`. Tuples up to `pos` are settled by this batch, those behind it wait with the keep they were given.

With Window Drop (`windows.py`), `windows` holds for the source and for arcs inside the node the windows' shape and
their keeps over event time, `seen_us` the latest event time so far, `newest_id` the tuple that passes because it is the
first with that time, and `passed` how many tuples of each partition pass.

With drops by key (`keys.py`), `keys` holds the columns, the quotas of the large keys and of all others, and how many
tuples of keys that are over their share go from each partition; `passed` is as above.

With drops by range on Kafka, `block` holds how many neighbours stay or go together; elsewhere it is BLOCK and left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from floodway.buffering.ranges import Cursor
from floodway.errors import InputError
from floodway.job.decision import Drop, KeepPpm, Mode
from floodway.json_text import load_json
from floodway.planning.windows.window_keeps import FIRST_US, WindowKeeps, from_numbers
from floodway.spark.source.accounts import Account, Part, Zone, count_both
from floodway.spark.source.drops import BLOCK, count_kept_hash, kept_runs
from floodway.units import PPM

VERSION = 1
Range = tuple[int, int, int]
ADAPTOR_SALT = 0x5EED_B0FF
"""Set beside the shedder's salt, so that what the adaptor drops says nothing about what the shedder drops."""


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Window Drop in one batch: the keeps of windows, and the one tuple that passes whatever its windows."""

    keeps: WindowKeeps
    newest_id: int = -1


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Drops by key in one batch: `keeps[i]` in ppm of the tuples whose key has the hash `keys[i]`, `others_ppm` of all.

    Keys are the values of the column `share_by` (empty: all are others). Of every value of `rare_by` the first
    `keep_rare` tuples of a partition stay in any case. `over` are tuples by partition that go because their keys are
    over their share, `large` the keys that sent most: name, tuples, keep in ppm. With an accuracy the keys are groups,
    and `accuracy` says how many count, how wide their bounds are (in ppm; -1: not known), which keep they need over all
    tuples, and which one was allowed.
    """

    share_by: str = ""
    keys: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    others_ppm: KeepPpm = PPM
    rare_by: str = ""
    keep_rare: int = 0
    over: Mapping[int, int] = field(default_factory=dict)
    large: tuple[tuple[str, int, int], ...] = ()
    accuracy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """Which tuples of a range stay: keep in ppm (already 1,000,000 unless the mode is enforce), salt and
    kind of drop; or by windows or keys, then the keep is 1,000,000 and nothing can be counted without reading.

    `judged` are the ranges of a buffer's queues with the keep that its adaptor gave them; ranges that are
    read lie each in one of them. Both drops are pure functions of the tuple, with salts of their own.
    """

    keep_ppm: int = PPM
    salt: int = 0
    drop: Drop = "hash"
    judged: tuple[Part, ...] = ()
    windows: WindowRule | None = None
    keys: KeyRule | None = None
    block: int = BLOCK

    @property
    def adaptor_salt(self) -> int:
        """The salt of the adaptor's drops."""
        return self.salt ^ ADAPTOR_SALT

    def adaptor_ppm(self, partition: int, start: int) -> int:
        """The adaptor's keep of the range that begins at `start`."""
        for part in self.judged:
            if part.partition == partition and part.start <= start < part.end:
                return part.keep_ppm
        return PPM

    def count(self, partition: int, start: int, end: int) -> int:
        """How many tuples of [start, end) stay, without reading any."""
        adaptor_ppm = self.adaptor_ppm(partition, start)
        if adaptor_ppm >= PPM:
            return self.count_shedder(partition, start, end)
        if self.drop == "hash" and self.keep_ppm < PPM:
            return count_both(partition, start, end, (self.salt, self.keep_ppm), (self.adaptor_salt, adaptor_ppm))
        return sum(
            count_kept_hash(partition, first, last, salt=self.adaptor_salt, keep_ppm=adaptor_ppm)
            for first, last in self.runs(partition, start, end)
        )

    def count_shedder(self, partition: int, start: int, end: int) -> int:
        """How many the shedder alone would let stay."""
        if self.drop == "range":
            return sum(last - first for first, last in self.runs(partition, start, end))
        return count_kept_hash(partition, start, end, salt=self.salt, keep_ppm=self.keep_ppm)

    def runs(self, partition: int, start: int, end: int) -> list[tuple[int, int]]:
        """The ranges inside [start, end) that a drop by range leaves."""
        return kept_runs(partition, start, end, salt=self.salt, keep_ppm=self.keep_ppm, block=self.block)


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(strict=False, extra="forbid"))
class BatchOffset:
    """One micro-batch of one stream. `start`, `lost` and `end` are per partition; tuples start .. end are offered.

    `lost` counts those of them, from `start` on, that retention or a missing segment took before the batch was cut
    (only with onLoss=skip): they go to the reason `retention`. `waiting` is what could have been read when the batch
    was cut. `stale` and `lag` count tuples behind those lost that are skipped because they are too old, or because too
    many newer ones wait. They, `keep_ppm` and `arcs` are as decided, whatever the mode.
    """

    stream: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    lost: Mapping[int, int] = field(default_factory=dict)
    waiting: int = 0
    keep_ppm: KeepPpm = PPM
    salt: int = 0
    mode: Mode = "observe"
    plan: str = ""
    drop: Drop = "hash"
    arcs: Mapping[str, KeepPpm] = field(default_factory=dict)
    queues: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    windows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seen_us: int = FIRST_US
    newest_id: int = -1
    passed: Mapping[int, int] = field(default_factory=dict)
    stale: Mapping[int, int] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    keys: KeyRule | None = None
    block: Annotated[int, Field(ge=1)] = BLOCK

    @property
    def admission(self) -> Admission:
        """The rule in force: drops happen in mode enforce only."""
        if self.stream in self.windows:
            return Admission(PPM, self.salt, self.drop, (), self.window_rule(self.stream))
        if self.keys is not None and self.mode == "enforce":
            return Admission(PPM, self.salt, self.drop, (), None, self.keys)
        judged = tuple(self.parts()) if self.queues else ()
        keep_ppm = self.keep_ppm if self.mode == "enforce" else PPM
        return Admission(keep_ppm, self.salt, self.drop, judged, block=self.block)

    def arc_keep(self, arc: str) -> int:
        """The keep in force on an arc inside the node, ppm."""
        return self.arcs.get(arc, PPM) if self.mode == "enforce" else PPM

    def window_rule(self, at: str) -> WindowRule:
        """The Window Drop at a place of `windows`; windows that have begun keep their fate in every mode."""
        return WindowRule(from_numbers(self.windows[at]), self.newest_id)

    def ranges(self) -> list[Range]:
        """(partition, start, end) of what the batch reads, empty ranges left out; all it offers without a buffer."""
        return [(part.partition, part.start, part.end) for part in self.parts() if part.zone == "read"]

    def parts(self) -> list[Part]:
        """All that the batch settles, cut where its fate or its keep changes."""
        found: list[Part] = []
        for partition, end in sorted(self.end.items()):
            start = self._read_from(partition)
            if partition not in self.queues:
                found.append(Part(partition, start, end, PPM))
                continue
            cleaned, read_from, *numbers = self.queues[partition]
            zones: tuple[tuple[Zone, int, int], ...] = (
                ("cleaned", start, cleaned),
                ("front", cleaned, read_from),
                ("read", read_from, end),
            )
            for kept in Cursor.from_offset([start, *numbers]).ranges:
                for zone, first, last in zones:
                    found.append(Part(partition, max(first, kept.start), min(last, kept.end), kept.keep_ppm, zone))
        return [part for part in found if part.end > part.start]

    def settled(self) -> list[Part]:
        """All that the batch settles, with what it skips because of its age or number, and without what is lost."""
        there = {at: self.start.get(at, 0) + self.lost.get(at, 0) for at in sorted(self.end)}
        skipped = [Part(at, first, self._read_from(at), 0, "cleaned") for at, first in there.items()]
        return [*(part for part in skipped if part.end > part.start), *self.parts()]

    @property
    def would_drop(self) -> dict[str, int]:
        """Tuples that mode enforce would have dropped for their age, number or key, by reason."""
        if self.mode == "enforce":
            return {}
        over = {} if self.keys is None else self.keys.over
        return {"stale": sum(self.stale.values()), "lag": sum(self.lag.values()), "share": sum(over.values())}

    def _read_from(self, partition: int) -> int:
        """The first position that is neither lost nor skipped."""
        skipped = (self.lost, self.stale, self.lag) if self.mode == "enforce" else (self.lost,)
        return self.start.get(partition, 0) + sum(counts.get(partition, 0) for counts in skipped)

    def cursor(self, partition: int) -> Cursor:
        """The queue of a partition after this batch: what was judged before and waits."""
        head = self.end.get(partition, 0)
        if partition not in self.queues:
            return Cursor(head)
        before = self._read_from(partition)
        judged = Cursor.from_offset([before, *self.queues[partition][2:]])
        waiting = tuple(kept._replace(start=max(kept.start, head)) for kept in judged.ranges if kept.end > head)
        return Cursor(head, waiting)

    def account(self, partition: int | None = None) -> Account:
        """What was offered and why what went; of one partition or of all. Exact, and nothing is read."""
        rule = self.admission

        def of(counts: Mapping[int, int]) -> int:
            return sum(count for at, count in counts.items() if partition is None or at == partition)

        lost = of(self.lost)
        stale, lag = (of(self.stale), of(self.lag)) if self.mode == "enforce" else (0, 0)
        total = Account(offered=lost + stale + lag, retention=lost, stale=stale, lag=lag)
        if rule.windows is not None or rule.keys is not None:
            offered = of({at: end - self._read_from(at) for at, end in self.end.items()})
            share = 0 if rule.keys is None else of(rule.keys.over)
            return total + Account(offered=offered, shedder=offered - of(self.passed) - share, share=share)
        for part in self.parts():
            if partition is not None and part.partition != partition:
                continue
            place = (part.partition, part.start, part.end)
            past_shedder = rule.count_shedder(*place)
            past_adaptor = 0 if part.zone == "front" else rule.count(*place)
            total += Account(
                offered=part.end - part.start,
                shedder=part.end - part.start - past_shedder,
                adaptor=past_shedder - past_adaptor,
                cleaner=past_adaptor if part.zone == "cleaned" else 0,
            )
        return total

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark journals."""
        body = asdict(self)
        if (keys := body.pop("keys")) is not None:
            body["keys"] = {**keys, "over": {str(at): count for at, count in keys["over"].items()}}
        if body["block"] == BLOCK:
            del body["block"]
        skipped = {name: {str(at): count for at, count in body.pop(name).items()} for name in ("stale", "lag")}
        places = {
            name: {str(partition): position for partition, position in body.pop(key).items()}
            for key, name in (
                ("start", "from"),
                ("lost", "lost"),
                ("end", "pos"),
                ("queues", "queues"),
                ("passed", "passed"),
            )
        }
        return {"v": VERSION, "stream": body.pop("stream"), **places, **{k: v for k, v in skipped.items() if v}, **body}


_FORM = TypeAdapter(BatchOffset)


def parse_offset(offset: Mapping[str, Any] | str) -> BatchOffset:
    """Read an offset as journaled: the dict, or its JSON text from a checkpoint or a query's progress."""
    try:
        body = dict(load_json(offset) if isinstance(offset, str) else offset)
        if body.pop("v", None) != VERSION:
            raise InputError(
                "the offset is not one of this Floodway's source",
                hint="Use the version that wrote the checkpoint, or a new checkpoint",
            )
        for key, name in (("start", "from"), ("end", "pos")):
            body[key] = body.pop(name)
        return _FORM.validate_python(body)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise InputError(
            f"the offset is damaged: {str(error).splitlines()[0]}",
            hint="Restore the checkpoint, or use a new one",
        ) from None


def count_kept(
    start_offset: Mapping[str, Any] | str, end_offset: Mapping[str, Any] | str
) -> dict[int, tuple[int, int]]:
    """What the batch between two journaled offsets offered and kept, per partition, exactly and without Spark.

    >>> end = BatchOffset("s", {0: 0}, {0: 1000}, keep_ppm=250_000, mode="enforce").to_json()
    >>> count_kept(BatchOffset("s", {0: 0}, {0: 0}).to_json(), end)
    {0: (1000, 261)}
    """
    end = parse_offset(end_offset)
    counts = dict.fromkeys(end.end, (0, 0))
    if parse_offset(start_offset) == end:
        return counts
    for partition in counts:
        found = end.account(partition)
        counts[partition] = (found.offered, found.kept)
    return counts
