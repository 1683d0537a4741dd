"""What the tests of agents share: nobody is late for being slow, unless the test itself says how long is too long."""

from __future__ import annotations

import pytest

from floodway.agent.planes.peers import Peers
from floodway.agent.wire.client import Client
from floodway.agent.wire.server import HttpServer
from tests.agent.defaults import set_default
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def patient_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for answers, and servers for heads and bodies, until they come.

    Time-outs that a test gives are its own; so are those of the processes that it starts.
    """
    monkeypatch.setattr(Client.__init__, "__defaults__", (None, float(PATIENCE_SECONDS)))
    set_default(monkeypatch, Peers, "timeout_seconds", PATIENCE_SECONDS)
    set_default(monkeypatch, HttpServer, "head_seconds", PATIENCE_SECONDS)
    monkeypatch.setattr("floodway.agent.wire.guard.BODY_SECONDS", float(PATIENCE_SECONDS))
