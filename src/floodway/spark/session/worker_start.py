"""Starts a module of Spark that is a Python worker by itself: first the connection, then the imports.

Spark waits ten seconds for such a worker, which runs the planning of a source, to connect. Its imports take a second of
CPU: on a machine that is busy enough, more than those ten. `session.worker_python` puts this script in front.

    python -P worker_start.py pyspark.sql.streaming.python_streaming_source_runner

Before the connection nothing is imported but the standard library.
"""

import os
import runpy
import socket
import sys

SOCKET_PATH = "PYTHON_WORKER_FACTORY_SOCK_PATH"
BUFFER_BYTES = "SPARK_BUFFER_SIZE"


def connected(path: str) -> socket.socket:
    """The connection that Spark waits for."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


def run(module: str) -> None:
    """Run the module; where Spark listens on a Unix socket, with the connection already made."""
    path = os.environ.get(SOCKET_PATH)
    if path is not None:
        connection = connected(path)
        file = connection.makefile("rwb", int(os.environ.get(BUFFER_BYTES, 65536)))

        from pyspark import util

        util.local_connect_and_auth = lambda *_: (file, connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(sys.argv.pop(1))
