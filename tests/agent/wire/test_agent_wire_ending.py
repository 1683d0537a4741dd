"""A server that is stopped while connections come leaves none of them open."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from contextlib import suppress

from floodway.agent.wire.server import HttpServer


def test_a_server_that_is_stopped_while_connections_come_closes_them_all() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(5):
            server = HttpServer([])
            server.start()
            port = int(server.url.rsplit(":", 1)[1])
            stopped = threading.Event()

            def knock(port: int = port, stopped: threading.Event = stopped) -> None:
                while not stopped.is_set():
                    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                        sock.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")

            threads = [threading.Thread(target=knock) for _ in range(3)]
            for thread in threads:
                thread.start()
            server.stop()
            stopped.set()
            for thread in threads:
                thread.join()
            gc.collect()
