"""Ports that are told before somebody listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import chain, repeat

import pytest

from floodway.agent.wire import ports


def test_the_system_gives_them_to_nobody_else() -> None:
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert min(found) >= ports.FIRST and max(found) < ports.END <= 32_768  # Linux gives out those from there on


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = ports.free_ports(3)
    while ports._held:  # as if another process had been told them, and had ended
        ports._held.pop().close()
    drawn = chain([first, second, second], repeat(third))
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn) - ports.FIRST)
    with socket.create_server(("127.0.0.1", first)):
        assert ports.free_ports(2) == [second, third]


def test_what_one_process_was_told_another_is_not() -> None:
    (told,) = ports.free_ports(1)
    program = f"""
import secrets
from floodway.agent.wire import ports
draw, drawn = secrets.randbelow, [{told - ports.FIRST}]
secrets.randbelow = lambda most: drawn.pop() if drawn else draw(most)
print(*ports.free_ports(1))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) != told


def test_only_the_latest_are_held() -> None:
    for _ in range(3):
        ports.free_ports(ports.MOST_HELD)
    assert len(ports._held) == ports.MOST_HELD
