"""A server of the tests by hand, for trying things out."""

from __future__ import annotations

import signal
import sys

from floodway.errors import FloodwayError
from floodway.experiments.chaos.server_process import ServerProcess


def serve(server: ServerProcess, where: str) -> int:
    """Run it until this process is interrupted or terminated; the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with server:
            print(f"{server.what} at {where}. Ctrl-C ends it.", flush=True)
            server.wait()
    except KeyboardInterrupt:
        return 0
    except FloodwayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"error: {server.what} has ended by itself", file=sys.stderr)
    return 1
