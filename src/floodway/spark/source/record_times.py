"""When a record came, from a Kafka topic by one small read: the time of the record itself, not of who looks at it.

A record's time is that of its creation or of its append, as the topic is set (`message.timestamp.type`): the same that
the source gives it as `_arrival`, so that a deadline means one thing at the head of a queue and at the sink.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, TopicPartition

_POLL_SECONDS = 0.5
_FEW_BYTES = "16384"


class RecordTimes:
    """Looks up times in one topic. Its consumer asks for little: a look-up wants one record, and no read-ahead."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._settings: dict[str, str | int | bool] = {
            "group.id": "floodway-times",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": _FEW_BYTES,
            # A request under way holds up the next look-up: it waits for new records no longer than this,
            "fetch.wait.max.ms": 10,
            # and a queue that is full after one record is no reason to pause for a second.
            "fetch.queue.backoff.ms": 5,
            "log_level": 2,
            **settings,
        }
        self._open: Consumer | None = None

    def at(self, partition: int, position: int) -> float | None:
        """Seconds since 1970 of the first record at or after `position`; None if none answers within half a second.

        Also None at the end of a partition, for a deleted position, and where records carry no time.
        """
        try:
            consumer = self._consumer()
            consumer.assign([TopicPartition(self._topic, partition, position)])
            deadline = time.monotonic() + _POLL_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is None:
                    continue
                found = message.offset()
                if message.error() is not None:  # the end, or a position that is gone
                    return None
                if message.partition() == partition and found is not None and found >= position:
                    kind, millis = message.timestamp()
                    return None if kind == TIMESTAMP_NOT_AVAILABLE else millis / 1e3
        except KafkaException:  # a broker that is away: whoever reads the topic will tell
            return None
        return None

    def _consumer(self) -> Consumer:
        if self._open is None:
            self._open = Consumer(self._settings)
        return self._open
