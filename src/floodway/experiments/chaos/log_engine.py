"""An engine without Spark, for tests of everything round it: it copies logs with a running sum, batch by batch.

It journals as Spark does: `offsets/N` is created once, before batch N runs; `state/N` and `commits/N` after it. So a
fragment that moves, or is killed, goes on from the same place with the same state, or gives itself away.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from floodway.agent.federation.engine import EndedBatch, Fence, Measure
from floodway.contracts.federation_file import FragmentSpec
from floodway.errors import InputError
from floodway.spark.log import LogReader, LogWriter, create_log

OUTPUT = "id bigint, total bigint"
RATE = 10.0


def measured(name: str, cpu: float) -> Measure:
    """Ten tuples a second, which need so much CPU."""
    return Measure({f"{name}.input": RATE}, cpu / RATE, 0.1)


class LogEngine:
    """Runs the entries `sum` and `own`, which do the same; the parameter `cpu` is the load that it reports."""

    def __init__(self, shared: Path, checkpoint: Callable[[str], Path]) -> None:
        self._shared = shared
        self._checkpoint = checkpoint
        self._threads: dict[str, tuple[FragmentSpec, threading.Thread, threading.Event]] = {}
        self._failed: dict[str, str] = {}
        self.prepared: set[str] = set()

    def check(self, spec: FragmentSpec) -> None:
        """Refuse an entry that is neither `sum` nor `own`."""
        if spec.run not in ("sum", "own"):
            raise InputError(f"no entry {spec.run!r}", hint="Use sum")

    def prepare(self, spec: FragmentSpec) -> None:
        """Note it: a start is a thread, and needs nothing."""
        self.prepared.add(spec.name)

    def forget(self, fragment: str) -> None:
        """Forget that it was prepared."""
        self.prepared.discard(fragment)

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        """Run the fragment in a thread from its checkpoint on."""
        self.check(spec)
        self.prepared.discard(spec.name)
        known = self._threads.get(spec.name)
        if known is not None and known[1].is_alive():
            return
        create_log(self._shared / spec.output, OUTPUT)
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(spec, fence, stop), daemon=True)
        self._threads[spec.name] = (spec, thread, stop)
        thread.start()

    def stop(self, fragment: str, *, after_batch: bool = False) -> None:
        """Stop between two batches."""
        found = self._threads.pop(fragment, None)
        if found is not None:
            found[2].set()
            found[1].join()

    def failed(self, fragment: str, reason: str) -> None:
        """As if it had ended by itself."""
        self._failed[fragment] = reason

    def failures(self) -> dict[str, str]:
        """Fragments that ended by themselves, with the reason."""
        failed, self._failed = self._failed, {}
        return failed

    def measure(self, now: float) -> dict[str, Measure]:
        """The declared load of every fragment that runs."""
        found = [spec for spec, _, _ in list(self._threads.values())]
        return {spec.name: measured(spec.name, float(str(spec.parameters["cpu"]))) for spec in found}

    def batches(self) -> list[EndedBatch]:
        """Batches that ended since the last call."""
        return []

    def close(self) -> None:
        """Stop everything."""
        for fragment in list(self._threads):
            self.stop(fragment)

    def _run(self, spec: FragmentSpec, fence: Fence, stop: threading.Event) -> None:
        try:
            reader = LogReader(self._shared / spec.logs["input"])
            while not stop.is_set():
                if not self._batch(spec, reader, fence):
                    stop.wait(0.02)
        except Exception as error:
            self._failed[spec.name] = str(error)

    def _batch(self, spec: FragmentSpec, reader: LogReader, fence: Fence) -> bool:
        folder = self._checkpoint(spec.name)
        for name in ("offsets", "state", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        number = len(list((folder / "commits").iterdir()))
        before = json.loads((folder / "state" / str(number - 1)).read_text()) if number else {"end": 0, "total": 0}
        journal = folder / "offsets" / str(number)
        if not journal.exists():
            end = reader.end_positions()[0]
            if end == before["end"]:
                return False
            # Whole or not at all, as Spark's: a kill may come at any moment; and only once, whoever else tries.
            aside = folder / f"offset-{os.getpid()}"
            aside.write_text(str(end))
            journal.hardlink_to(aside)
            aside.unlink()
        end = int(journal.read_text())
        ids = [one for batch in reader.read(0, before["end"], end) for one in batch.column("id").to_pylist()]
        totals = []
        total = before["total"]
        for one in ids:
            total += one
            totals.append(total)
        fence()
        with LogWriter(self._shared / spec.output) as writer:
            writer.append(pa.table({"id": ids, "total": totals}), tag=f"{spec.name}:{number}")
        fence()
        (folder / "state" / str(number)).write_text(json.dumps({"end": end, "total": total}))
        (folder / "commits" / str(number)).touch()
        return True
