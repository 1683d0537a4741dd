"""Spark's daemon of Python workers, silent about workers whose query was stopped: `spark.python.daemon.module`.

A query that stops in the middle of a batch hangs up on its Python workers. Spark's daemon then prints the traceback of
a broken pipe, into the middle of whatever the job shows, although nothing is wrong. All other tracebacks are printed.
Nothing heavy may be imported here: workers are forked from this process, and threads do not survive a fork.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_unless_hung_up() -> None:
    """`traceback.print_exc`, except for a worker whose other end is gone."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = SimpleNamespace(print_exc=print_unless_hung_up, format_exc=traceback.format_exc)
    daemon.manager()
