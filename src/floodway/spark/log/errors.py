"""What can go wrong with an embedded log, each with the remedy in its hint."""

from __future__ import annotations

from floodway.errors import FloodwayError


class LogError(FloodwayError):
    """Base class of the embedded log's errors."""

    exit_code = 2


class MissingLogError(LogError):
    """No log at this path, or a `meta.json` that is not one."""


class SchemaError(LogError):
    """Tuples, a segment or an option whose columns do not fit the log's schema."""


class LockedError(LogError):
    """A second writer for a partition."""


class SegmentError(LogError):
    """A segment that is torn, foreign, or not what its name says."""


class PositionError(LogError):
    """A position that the log cannot serve. `lost` counts the tuples missing from it on, `first` is the next that
    exists.

    Three cases: the segments were retired, a segment between others is missing, or the log ends before it.
    """

    def __init__(self, message: str, *, hint: str, first: int, lost: int) -> None:
        super().__init__(message, hint=hint)
        self.first = first
        self.lost = lost
