"""A proxy that treats requests badly: loses, delays (so that others overtake), doubles, or swallows the answers."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self

FAULTS = ("lost", "answer-lost", "late", "doubled")
"""`answer-lost` is a cut in one direction."""
LATE_SECONDS = 0.4
_PART_BYTES = 65_536
_TIMEOUT_SECONDS = 30.0


class FaultyWire:
    """Listens on a port of this machine and passes requests on to a server, well or badly.

    `share` is the part of requests that meets a fault; 0 passes everything on. `both_taken` counts requests that were
    sent twice and answered well twice: somebody took one message for two.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self.share = 0.0
        self.faults: tuple[str, ...] = FAULTS
        self.met: Counter[str] = Counter()
        self.both_taken = 0
        self._port = port
        self._rng = rng
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where peers find the server behind it."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop, and wait for what is under way."""
        self._stopped.set()
        self._thread.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                accepted, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(accepted,), daemon=True)
                thread.start()
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError, ValueError):
            accepted.settimeout(_TIMEOUT_SECONDS)
            request = _whole(accepted)
            with self._lock:
                fault = self._rng.choice(self.faults) if self._rng.random() < self.share else "none"
                wait = self._rng.uniform(0.0, LATE_SECONDS)
                self.met[fault] += 1
            if fault == "lost":
                return
            if fault == "late":
                time.sleep(wait)
            answer = self._pass_on(request)
            if fault == "doubled" and _taken(answer) and _taken(self._pass_on(request)):
                with self._lock:
                    self.both_taken += 1
            if fault != "answer-lost":
                accepted.sendall(answer)

    def _pass_on(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_SECONDS) as server:
            server.sendall(request)
            return _whole(server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _whole(sock: socket.socket) -> bytes:
    """One HTTP message: its head, and as much of a body as the head says."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := sock.recv(_PART_BYTES)):
            raise ValueError("hung up in a head")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        if not (part := sock.recv(_PART_BYTES)):
            raise ValueError("hung up in a body")
        body += part
    return head + b"\r\n\r\n" + body


def _taken(answer: bytes) -> bool:
    return answer.split(b" ", 2)[1:2] == [b"200"]
