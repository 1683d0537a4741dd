"""Free ports of this machine, for those who have to tell an address before they listen on it.

Between the choice and the listening anything may happen. So the ports are below those that the system gives to
connections, and to servers that take any port (32768 and above on Linux, 49152 and above elsewhere): another process
gets one of them only by its number. And a process that was told a port holds the same number of UDP, which nobody
listens on: another one that asks here is not told it as well.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections import deque
from contextlib import ExitStack

FIRST, END = 20_000, 32_768
MOST_HELD = 64
"""Ports that are held for this process: the latest, as whoever listens has begun soon after the choice."""
_held: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now, and that no other process has just been told."""
    found: list[int] = []
    with ExitStack() as taken:
        while len(found) < count:
            port = FIRST + secrets.randbelow(END - FIRST)
            mark = socket.socket(type=socket.SOCK_DGRAM)
            try:
                mark.bind(("127.0.0.1", port))
                taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError as error:
                mark.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
                _held.append(mark)
    while len(_held) > max(MOST_HELD, count):
        _held.popleft().close()
    return found
