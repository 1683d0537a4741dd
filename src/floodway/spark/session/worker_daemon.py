"""Spark's daemon of Python workers, with two of its habits changed (`session.worker_python` puts it in its place).

- *After every task* a worker looks through all that it holds for garbage: 40 ms of CPU, most of it for what imported
  modules hold, and a micro-batch has a task for every operator in Python. Here that part is left out.
- *A query that stops* in the middle of a batch hangs up on its workers. The daemon then prints the traceback of a
  broken pipe, into the middle of whatever the job shows, although nothing is wrong. All others are printed.

Nothing heavy may be imported here: workers are forked from this process, and threads do not survive a fork.
"""

from __future__ import annotations

import gc
import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon

_modules = 0


def collect_the_new() -> None:
    """`gc.collect`, which from then on leaves out what there is when modules have been imported."""
    global _modules
    gc.collect()
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()


def print_unless_hung_up() -> None:
    """`traceback.print_exc`, except for a worker whose other end is gone."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


if __name__ == "__main__":
    own = {
        "gc": SimpleNamespace(collect=collect_the_new),
        "traceback": SimpleNamespace(print_exc=print_unless_hung_up, format_exc=traceback.format_exc),
    }
    vars(daemon).update(own)
    daemon.manager()
