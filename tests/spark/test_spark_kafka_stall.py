"""A reader of a topic that was held up itself: what its process did not get to do is no silence of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from floodway.spark.source.kafka import KafkaBackend, KafkaSourceError
from floodway.spark.source.options import SourceOptions


class Consumer:
    """Answers after so many empty polls, the first of which takes so long."""

    def __init__(self, empty: int, first_seconds: float) -> None:
        self.now = 0.0
        self._left, self._first_seconds = empty, first_seconds

    def consume(self, _most: int, timeout: float) -> list[Any]:
        if self._left == 0:
            return [SimpleNamespace(error=lambda: None, offset=lambda: 0)]
        self._left -= 1
        self.now += max(timeout, self._first_seconds)
        self._first_seconds = 0.0
        return []

    def position(self, asked: list[Any]) -> list[Any]:
        return [SimpleNamespace(offset=-1001) for _ in asked]


def read(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("floodway.spark.source.kafka.time.monotonic", lambda: consumer.now)
    backend = KafkaBackend(SourceOptions(topic="t", value_format="raw", timeout_seconds=15.0))
    return sum(map(len, backend._until(consumer, 0, 0, 1)))


def test_a_reader_that_was_held_up_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(Consumer(empty=1, first_seconds=100.0), monkeypatch) == 1


def test_a_broker_that_is_silent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaSourceError, match="no record at offset 0 within 15 s"):
        read(Consumer(empty=1000, first_seconds=0.0), monkeypatch)
