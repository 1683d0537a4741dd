"""Files of a job that outlive its process, each as its next process, `floodway top` or an audit finds it.

Where a file that is damaged counts as none, or as one to be made again, its reader here says so with a `FloodwayError`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from floodway.errors import FloodwayError
from floodway.experiments.chaos.fuzz_partners import EffectError, Reader
from floodway.experiments.chaos.plane_agents import NETWORK
from floodway.job.decision import MODE, SAFE, OperatorMode, read_mode, write_mode
from floodway.job.ledger.audit_point import POINT, open_ledger
from floodway.job.ledger.backfill import BackfillStep, noted_batches, step_note
from floodway.job.ledger.facts import BatchFacts, FactsLog, OffsetRange
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles, noted_place
from floodway.job.status.batches import HISTORY, Batch, BatchLog, BatchReader, Sketch
from floodway.job.status.status import STATUS, Place, Rates, ShedPart, Status, merge_nodes, read_status
from floodway.job.store.store import LocalStore, Store
from floodway.network.file import parse_network
from floodway.planning.factory import make_planner
from floodway.planning.plan_file import load, save
from floodway.planning.program import Program
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.compact import LEAVE_NEWEST, MIN_RUN
from floodway.spark.log.tag_index import INDEX
from floodway.spark.query.journal import NOTES, note_tasks, read_notes
from floodway.spark.shed.checkpoints import (
    CHECKPOINTS,
    Record,
    first_record,
    note_checkpoint,
    noted_checkpoints,
    read_record,
)
from floodway.spark.shed.control_table import Entry, Table
from floodway.spark.shed.state_copies import StateCopies

FACTS = BatchFacts("q", 3, 5_000_000, "enforce", 10, 4, 400_000, 7, ranges=(OffsetRange("clicks", 0, 20, 30),))


def file_readers(folder: Path) -> Mapping[str, Reader]:
    """All of them; their files are made in the folder."""
    return {
        "statuses": _statuses(LocalStore(folder / "status")),
        "modes": _modes(LocalStore(folder / "mode")),
        "batches": _batches(LocalStore(folder / "figures")),
        "facts": _facts(LocalStore(folder / "facts")),
        "audit-points": _audit_points(LocalStore(folder / "audit")),
        "backfill-steps": Reader([step_note(BackfillStep((FACTS,)))], lambda data: _kept(noted_batches(data, "it")), 3),
        "plan-files": _plans(folder / "plans"),
        "tag-indexes": _tag_index(folder / "tagged"),
        "places": _places(LocalStore(folder / "places")),
        "query-notes": _query_notes(folder / "checkpoint"),
        **_checkpoints(folder),
    }


def _kept(found: object) -> None:
    """What was read; only that it could be matters."""


def _understood(found: object, what: str) -> None:
    if not found:
        raise FloodwayError(f"nothing is taken from {what}")


def _stored(store: LocalStore, name: str, look: Callable[[], None], weight: int) -> Reader:
    """A file that is there as its writer left it, and how it is read."""
    path = store.folder / name

    def read(data: bytes) -> None:
        path.write_bytes(data)
        look()

    return Reader([path.read_bytes()], read, weight)


def _statuses(store: LocalStore) -> Reader:
    shed = ShedPart("q", 7, 1.5, {"keep": 0.5}, seen_us=9)
    places = {"clicks": Place(0.5, 10.0, 3, Rates(10.0, 5.0), 20, 10, {"shedder": 10})}
    status = Status("clicks", "shed", "enforce", 1e9, rates=Rates(10.0, 5.0), places=places, shed=shed, reason="x")
    store.write(STATUS, status.encode())

    def look() -> None:
        found = read_status(store)
        if found is not None:
            _kept([found.to_dict(), found.counts(), merge_nodes({"A": found, "B": found})])

    return _stored(store, STATUS, look, 5)


def _modes(store: LocalStore) -> Reader:
    """A job in force as `off` looks at the file: what it does not understand it says, and nothing is dropped for it."""
    write_mode(store, "off")
    whole = store.path(MODE).read_bytes()

    def read(data: bytes) -> None:
        running, fresh = OperatorMode(store, "enforce", "clicks"), OperatorMode(store, "enforce", "clicks")
        store.path(MODE).write_bytes(whole)
        running.look()
        store.path(MODE).write_bytes(data)
        modes = running.look(), fresh.look()
        said = (*running.warnings, *fresh.warnings)
        if modes == ("off", SAFE) and len(said) == 2 and all(str(store.folder) in one for one in said):
            raise FloodwayError(said[0])
        if said or modes != (read_mode(store),) * 2:
            raise EffectError(f"a damaged mode counts as {modes} and is told as {said}")

    return Reader([whole], read, 3)


def _batches(store: LocalStore) -> Reader:
    """A segment and, with a line before it that says so, the history."""
    batch = Batch("q", 4, 10.0, 11.5, 10, 5, 0.5, latencies=Sketch.of([(1.5, 5)]), delivered={"out": 5})
    BatchLog(store).append(batch)
    segment = next(iter(store.names("batches")))
    head = json.dumps({"version": 1, "through": 0}).encode() + b"\n"

    def read(data: bytes) -> None:
        for name in store.names("batches"):
            store.remove(name)
        store.write(segment if data.startswith(b'{"query"') else HISTORY, data)
        found = BatchReader(store).advance() or []
        log = BatchLog(store)
        for one in found:
            _kept([one.to_dict(), one.joined(one), log.append(one), one.latencies.cumulative()])
        lines = [line for line in data.removeprefix(head).splitlines() if line.strip()]
        if len(found) < len(lines):
            raise FloodwayError(f"{len(lines) - len(found)} lines are no batches")

    return Reader([batch.encode(), head + batch.encode()], read, 5)


def _facts(store: LocalStore) -> Reader:
    log = FactsLog(store)
    log.add(FACTS)
    (name,) = [one for one in store.names("facts") if one.endswith(".jsonl")]

    def look() -> None:
        found = list(FactsLog(store).read())
        _kept([(one.size, one.recoverable, BackfillStep((one,)).name) for one in found])
        _understood(found, "facts")

    return _stored(store, name, look, 5)


def _audit_points(store: LocalStore) -> Reader:
    ledger = Ledger(store)
    for batch in range(4):
        ledger.append([LedgerLine("q", batch, "s", "shedder", 9, 4, 5, time_us=batch)])
    open_ledger(store, full=False).close([])

    def look() -> None:
        audited = open_ledger(store, full=False)
        for key in audited.lines:
            _kept(audited.total(key, "s"))
        for text in (*audited.unchecked, *audited.differences):
            raise FloodwayError(text)

    return _stored(store, POINT, look, 3)


def _plans(path: Path) -> Reader:
    """Damaged as it is; then with a checksum that fits, as a program with a fault of its own might write it."""
    network = parse_network(NETWORK)
    save(make_planner(network), path)
    program, rates = Program(network, 1.0), np.full(len(network.streams), 9.0)

    def look() -> None:
        load(path, program).lookup(rates)

    def read(data: bytes) -> None:
        path.write_bytes(data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little"))
        look()
        path.write_bytes(data)
        look()

    return Reader([path.read_bytes()], read, 5)


def _tag_index(root: Path) -> Reader:
    """Whatever is in the index, a tag that the log holds makes an append a duplicate."""
    create_log(root, "id bigint")
    tags = [f"q:s:{number}:0" for number in range(LEAVE_NEWEST + MIN_RUN)]
    rows = pa.table({"id": [1]})
    with LogWriter(root, sync=False, compact_every=0) as writer:
        for tag in tags:
            writer.append(rows, tag=tag)
        writer.compact()  # and once more, to remove what was merged
        writer.compact()
    path = root / "p0" / INDEX

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with LogWriter(root, sync=False, compact_every=0) as writer:
            for tag in tags[:MIN_RUN]:
                if not writer.append(rows, tag=tag).duplicate:
                    raise EffectError(f"{tag} was appended again")
        if path.read_bytes() != data:
            raise FloodwayError(f"{INDEX} was made anew from the segments")

    return Reader([path.read_bytes()], read, 3)


def _places(store: LocalStore) -> Reader:
    store.write("clicks", b"s3a://bucket/state/clicks")
    return _stored(store, "clicks", lambda: _understood(noted_place(store, "clicks"), "a note of a place"), 3)


def _query_notes(checkpoint: Path) -> Reader:
    note_tasks(checkpoint, 7)
    return _stored(LocalStore(checkpoint), NOTES, lambda: _kept(read_notes(checkpoint)), 3)


def _checkpoints(folder: Path) -> dict[str, Reader]:
    """What a shed leaves in a checkpoint of its query, and where it has noted that checkpoint."""
    checkpoint, files = LocalStore(folder / "copies"), ShedFiles(LocalStore(folder / "noted"))
    first_record(checkpoint, "clicks", Record(17, "file:///state"))
    copies = StateCopies(files, "clicks", files.read_mode)
    copies.begin("q", checkpoint, Table(Entry(3, 0, keep_ppm=5)).encode())
    note_checkpoint(files, "q", "/data/checkpoints/clicks")
    copy = f"floodway/{files.key('clicks')}/control.json"

    def noted(store: Store) -> None:
        _understood(noted_checkpoints(ShedFiles(store)), CHECKPOINTS)

    return {
        "shed-records": _stored(
            checkpoint, "floodway/clicks.json", lambda: _kept(read_record(checkpoint, "clicks")), 3
        ),
        "state-copies": _stored(checkpoint, copy, lambda: _kept(copies.read(checkpoint)), 5),
        "noted-checkpoints": _stored(LocalStore(folder / "noted"), CHECKPOINTS, lambda: noted(files.store), 3),
    }
