"""Load for streams that have no log of their own: one `floodway feed` process a stream, ended with the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from floodway.errors import FloodwayError, InputError
from floodway.network.model import Network
from floodway.spark.log import create_log
from floodway.spark.log.profiles import DEFAULT_SCHEMA
from floodway.spark.query.layout import RunLayout

_STOP_SECONDS = 10.0
_FOREVER_SECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Feed:
    """What to feed: a rate (tuples/s), or the options of another profile as `floodway feed` takes them."""

    rate: float | None = None
    options: tuple[str, ...] = field(default=())

    def arguments(self) -> list[str]:
        """Command-line arguments of `floodway feed`."""
        # A trace is as long as it is; everything else lasts as long as the run.
        lasting = () if "--trace" in self.options else ("--seconds", f"{_FOREVER_SECONDS:g}")
        return [*lasting, *(() if self.rate is None else ("--rate", f"{self.rate:g}")), *self.options]


class FeedError(FloodwayError):
    """A feed that ended before its run."""


class Feeder:
    """Creates the logs of streams that name none, and feeds those it was given a rate for."""

    def __init__(self, network: Network, layout: RunLayout, feeds: Mapping[str, Feed]) -> None:
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name, stream in network.streams.items():
            feed = feeds.get(name)
            if stream.log is None:
                feed = feed or _default(name, stream.max_rate)
                create_log(layout.stream(network, name), stream.schema or DEFAULT_SCHEMA, stream=name)
            if feed is not None:
                self._commands[name] = [
                    *(sys.executable, "-m", "floodway.cli.main", "feed", layout.stream(network, name)),
                    *("--parent", str(os.getpid()), *feed.arguments()),
                ]
        self._said = tempfile.TemporaryDirectory(prefix="floodway-feed-")

    def start(self) -> None:
        """Start feeding."""
        for name, command in self._commands.items():
            with self._errors(name).open("wb") as errors:
                self._running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    def check(self) -> None:
        """Raise if a feed has failed: a stream without load would look like a node that keeps up."""
        for name, process in self._running.items():
            if process.poll():
                said = " ".join(self._errors(name).read_text(errors="replace").split())
                raise FeedError(
                    f"the feed of stream {name} ended with code {process.returncode}: {said[-400:] or '–'}",
                    hint="Its log keeps what was written; mend the cause and run again with the same --state",
                )

    def stop(self) -> None:
        """End all feeding; what was written stays."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        self._said.cleanup()

    def _errors(self, stream: str) -> Path:
        return Path(self._said.name) / f"{quote(stream, safe='')}.txt"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _default(name: str, max_rate: float | None) -> Feed:
    if max_rate is None:
        raise InputError(
            f"streams.{name} has no log, no max_rate and no rate was given",
            hint=f"Name its log in the file, or give --rates {name}=100 to have it generated",
        )
    return Feed(rate=max_rate)
