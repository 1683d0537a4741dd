"""A server starts however late its thread gets to run, and one that cannot serve is told at once."""

from __future__ import annotations

import threading

import pytest
import uvicorn

from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.server import HttpServer, ServerError
from tests.patience import PATIENCE_SECONDS


def test_a_thread_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)
    load, wait = uvicorn.Config.load, threading.Event.wait

    def late(config: uvicorn.Config) -> None:
        for _ in range(3):
            assert looks.acquire(timeout=PATIENCE_SECONDS)
        load(config)

    def looked(event: threading.Event, timeout: float | None = None) -> bool:
        looks.release()
        return wait(event, timeout)

    monkeypatch.setattr("floodway.agent.wire.server._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(uvicorn.Config, "load", late)
    monkeypatch.setattr(threading.Event, "wait", looked)
    with HttpServer([]) as server, pytest.raises(PeerError) as refused:
        Client(server.url, timeout_seconds=PATIENCE_SECONDS).get_json("/")
    assert refused.value.reason == "unknown"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(config: uvicorn.Config) -> None:
        raise RuntimeError("no such protocol")

    monkeypatch.setattr("floodway.agent.wire.server._START_SECONDS", float("inf"))
    monkeypatch.setattr(uvicorn.Config, "load", broken)
    with pytest.raises(ServerError, match="did not start"):
        HttpServer([]).start()
