"""The offset of a micro-batch: where it starts and ends, and the decision it runs under.

Spark journals the offset before the batch runs and hands it back on replay. It carries the batch's own start, because
Spark computes the start of the very first batch anew on replay; so what a batch admits is a function of its end
offset alone. Integers, strings and booleans only.

    {"v": 1, "stream": "s1", "from": {"0": 1000}, "lost": {}, "pos": {"0": 5000}, "waiting": 4000,
     "keep_ppm": 250000, "salt": 17, "mode": "enforce", "plan": "r7", "drop": "hash", "arcs": {"a1->b1":
     500000}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from floodway.errors import InputError
from floodway.spark.decision import PPM, Drop, KeepPpm, Mode
from floodway.spark.source.drops import count_kept_hash, count_kept_range

VERSION = 1
Range = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """Which tuples of a range stay: keep in ppm (already 1,000,000 unless the mode is enforce), salt and
    kind of drop."""

    keep_ppm: int = PPM
    salt: int = 0
    drop: Drop = "hash"

    def count(self, partition: int, start: int, end: int) -> int:
        """How many tuples of [start, end) stay, without reading any."""
        count = count_kept_range if self.drop == "range" else count_kept_hash
        return count(partition, start, end, salt=self.salt, keep_ppm=self.keep_ppm)


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(strict=False, extra="forbid"))
class BatchOffset:
    """One micro-batch of one stream. `start`, `lost` and `end` are per partition; tuples start + lost .. end are
    offered.

    `lost` counts tuples that retention or a missing segment took before they were read (only with onLoss=skip);
    `waiting` is what could have been read when the batch was cut. `keep_ppm` and `arcs` are as decided, whatever the
    mode.
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

    @property
    def admission(self) -> Admission:
        """The rule in force: drops happen in mode enforce only."""
        return Admission(self.keep_ppm if self.mode == "enforce" else PPM, self.salt, self.drop)

    def arc_keep(self, arc: str) -> int:
        """The keep in force on an arc inside the node, ppm."""
        return self.arcs.get(arc, PPM) if self.mode == "enforce" else PPM

    def ranges(self) -> list[Range]:
        """(partition, start, end) of what the batch offers, empty ranges left out."""
        found = []
        for partition, end in sorted(self.end.items()):
            start = self.start.get(partition, 0) + self.lost.get(partition, 0)
            if end > start:
                found.append((partition, start, end))
        return found

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark journals."""
        body = asdict(self)
        places = {
            name: {str(partition): position for partition, position in body.pop(key).items()}
            for key, name in (("start", "from"), ("lost", "lost"), ("end", "pos"))
        }
        return {"v": VERSION, "stream": body.pop("stream"), **places, **body}


_FORM = TypeAdapter(BatchOffset)


def parse_offset(offset: Mapping[str, Any] | str) -> BatchOffset:
    """Read an offset as journaled: the dict, or its JSON text from a checkpoint or a query's progress."""
    try:
        body = dict(json.loads(offset) if isinstance(offset, str) else offset)
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
    {0: (1000, 254)}
    """
    end = parse_offset(end_offset)
    counts = dict.fromkeys(end.end, (0, 0))
    if parse_offset(start_offset) == end:
        return counts
    for partition, first, last in end.ranges():
        counts[partition] = (last - first, end.admission.count(partition, first, last))
    return counts
