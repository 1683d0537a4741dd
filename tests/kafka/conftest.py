"""Real Kafka for the tests below: one broker for all that only use it, a fresh one for those that kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.kafka_broker import Broker
from tests.kafka_jars import broker_jars


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker shared by all tests; make topics with names of your own and leave it running."""
    with Broker(broker_jars(), tmp_path_factory.mktemp("broker")) as shared:
        yield shared


@pytest.fixture
def fresh_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one test, which may kill and restart it."""
    with Broker(broker_jars(), tmp_path_factory.mktemp("fresh-broker")) as own:
        yield own
