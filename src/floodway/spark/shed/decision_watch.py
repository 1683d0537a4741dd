"""Whether batches find the decisions that are written for them: executors may not see the file at all."""

from __future__ import annotations

from datetime import UTC, datetime

from floodway.spark.shed.control_file import ControlTable
from floodway.spark.shed.report import BatchReport, Warnings

UNSEEN_BATCHES = 2
"""Batches in a row without their decision before that is said: one may have met a write that took long."""


class DecisionWatch:
    """`seen` says whether the last batch with tuples found the decision written for it; None before the first."""

    def __init__(self, control: ControlTable, warnings: Warnings) -> None:
        self.seen: bool | None = None
        self._control = control
        self._warnings = warnings
        self._unseen = 0

    def look(self, report: BatchReport) -> None:
        """Take in a batch; one that found another decision, or none, has the table written again."""
        if not report.offered:
            return
        time_us = report.batch_time_us or report.started_us
        expected = self._control.table.at(time_us)
        self.seen = report.seq == expected.seq
        if expected.until_us is not None and expected.expired(time_us):
            since = datetime.fromtimestamp(expected.until_us / 1e6, UTC)
            self._warnings.say(
                f"batches kept everything from {since:%Y-%m-%d %H:%M:%S} UTC on: nobody renewed the decision"
            )
        self._unseen = 0 if self.seen else self._unseen + 1
        unseen = f"batches do not find the decisions in {self._control.uri} and keep everything: can executors read it?"
        if self.seen:
            self._warnings.say_only(None, [unseen])
        else:
            self._control.write_again()
            if self._unseen >= UNSEEN_BATCHES and expected.mode == "enforce":
                self._warnings.say(unseen)
