"""The jars of the Kafka tests: fetched once into the project's cache; where that fails, a loud skip.

A machine without the Java repository can run every other test. What it left out is said in the test's skip
reason and once more, in one line, at the end of the run (see `tests/conftest.py`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from floodway.errors import FloodwayError
from scripts.fetch_kafka import BROKER, CONNECTOR, JarSet, cached, fetch

missing: dict[str, str] = {}
"""What could not be fetched in this run, and why."""


def broker_jars() -> list[Path]:
    """The broker's class path; skips the test that asks if it cannot be had."""
    return _fetched_or_skip(BROKER)


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector; skips the test that asks if they cannot be had."""
    return _fetched_or_skip(CONNECTOR)


def connector_if_cached() -> list[Path]:
    """The connector's jars if an earlier run fetched them, else none: nothing is fetched here."""
    return cached(CONNECTOR) or []


def try_connector() -> list[Path]:
    """The connector's jars, fetched if need be; none if not to be had (the tests that need them skip)."""
    return _try(CONNECTOR) or []


def _fetched_or_skip(jars: JarSet) -> list[Path]:
    found = _try(jars)
    if found is None:
        pytest.skip(f"NO REAL KAFKA: {missing[jars.name]}")
    return found


@cache
def _try(jars: JarSet) -> list[Path] | None:
    try:
        return fetch(jars)
    except FloodwayError as error:
        missing[jars.name] = str(error)
        return None
