"""The decision in force: what the steering tells a running source, as data and as a file replaced atomically.

The source runs in a process of its own, so the decision reaches it through a file. The source reads the file once a
micro-batch and journals what it takes from it in the offset: the file may change at any time, a batch never does.

Effective keep of a stream with N tuples in the micro-batch:

    budget given:   1 if N <= budget, else budget / N      (the budget takes precedence over keep_ppm)
    otherwise:      keep_ppm / 1,000,000

A stream with a *buffer* is cut by its queues instead: the steering has chosen positions for each partition, and the
source takes them over as they are, or not at all when they were chosen for another state of the queue than it has.

Keeps are parts per million, because a Spark offset holds integers, strings and booleans only.

>>> decision = JobDecision(plan="r7", streams={"s1": StreamDecision(keep_ppm=250_000)})
>>> decision.keep_ppm("s1", waiting=1000), decision.keep_ppm("unknown", waiting=1000)
(250000, 1000000)
>>> JobDecision(streams={"s1": StreamDecision(budget=300)}).keep_ppm("s1", waiting=1000)
300000

`mode.json` beside it is the operator's wish, {"mode": "observe" | "enforce" | "off"}: written by `floodway set` and by
the page, read by every kind of job; it outlives restarts and wins over what the job was started with.

A wish that is there and cannot be read is not the same as no wish: the file is damaged, or its store does not answer.
The last mode stays in force then. A job that has just started knows no last mode and observes, because that drops
nothing, whatever the operator asked for. Either way a sentence says so, in the log and in the status, until the file
can be read again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from floodway.errors import FloodwayError, InputError
from floodway.job.store.store import LocalStore, Store, StoreError
from floodway.json_text import load_json
from floodway.units import PPM

log = logging.getLogger(__name__)

SILENCE_SECONDS = 10.0
"""After so many seconds without a new decision a buffer lets everything pass."""
Mode = Literal["enforce", "observe", "off"]
MODE = "mode.json"
MODES: tuple[str, ...] = get_args(Mode)
_MODE: TypeAdapter[Mode] = TypeAdapter(Mode)
SAFE: Mode = "observe"
"""In force while the operator's wish cannot be read and no last mode is known."""
Drop = Literal["hash", "range"]
KeepPpm = Annotated[int, Field(ge=0, le=PPM)]


class DecisionError(FloodwayError):
    """A decision file that is torn, or holds something else."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class QueueStep:
    """The next batch of one queue (a partition of a stream), in absolute positions: applied twice it does no harm.

    `cursor` holds the position the step starts from (the end of the batch before), then end and keep in ppm of every
    range up to the tail. Up to `cleaned` tuples are late, from there to `read_from` dropped at the front, from there
    to `end` they enter the batch.

    >>> QueueStep(cleaned=10, read_from=10, end=30, cursor=(0, 100, PPM)).base
    0
    """

    cleaned: int
    read_from: int
    end: int
    cursor: tuple[int, ...]

    def __post_init__(self) -> None:
        from floodway.buffering.ranges import Cursor  # jobs without a buffer need none of it

        if not self.base <= self.cleaned <= self.read_from <= self.end <= Cursor.from_offset(self.cursor).tail:
            raise ValueError(f"positions of a queue go back: {self}")

    @property
    def base(self) -> int:
        """Where the step starts: it is for a queue whose head is there, and for no other."""
        return self.cursor[0]

    @property
    def tail(self) -> int:
        """The position after the last tuple that was judged."""
        return self.cursor[-2] if len(self.cursor) > 1 else self.base


@dataclass(frozen=True, slots=True)
class StreamDecision:
    """The input drop of one stream: a keep in ppm, or a budget of tuples a micro-batch that takes precedence.

    `limit` is the most tuples that a micro-batch takes; the others wait, and none is dropped for it. Tuples
    that are older than `max_age_us` are skipped, and the oldest of more than `most_waiting`. `buffer`, where given,
    holds the next step of every partition's queue.
    """

    keep_ppm: KeepPpm = PPM
    budget: Annotated[int, Field(ge=0)] | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    max_age_us: Annotated[int, Field(ge=1)] | None = None
    most_waiting: Annotated[int, Field(ge=1)] | None = None
    buffer: Mapping[int, QueueStep] | None = None


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What to drop from now on. `mode` observe journals the keeps and drops nothing; off keeps everything.

    `arcs` holds the keeps in ppm of the drops inside the node, by arc (`a1->b1`); `drop` says how the source chooses:
    each tuple by its hash, or whole blocks that are then never read. `issued_us` is the time of issue, microseconds
    UTC.
    """

    plan: str = ""
    mode: Mode = "observe"
    salt: int = 0
    streams: Mapping[str, StreamDecision] = field(default_factory=dict)
    arcs: Mapping[str, KeepPpm] = field(default_factory=dict)
    drop: Drop = "hash"
    issued_us: int = 0

    def keep_ppm(self, stream: str, *, waiting: int) -> int:
        """The keep decided for a micro-batch of `waiting` tuples, whatever the mode; unknown streams are kept whole."""
        decided = self.streams.get(stream, StreamDecision())
        if decided.budget is None:
            return decided.keep_ppm
        return PPM if waiting <= decided.budget else decided.budget * PPM // waiting

    def limit(self, stream: str) -> int | None:
        """The most tuples that a micro-batch takes of a stream; None: all that wait. It belongs to mode enforce."""
        return self.streams.get(stream, StreamDecision()).limit if self.mode == "enforce" else None

    def skipping(self, stream: str) -> StreamDecision:
        """What says which tuples of a stream are skipped; they are in mode enforce, and counted in observe."""
        return StreamDecision() if self.mode == "off" else self.streams.get(stream, StreamDecision())

    def steps(self, stream: str, *, silent: bool = False) -> Mapping[int, QueueStep] | None:
        """The steps of a stream's queues; None where it has no buffer, or none that counts.

        Drops belong to mode enforce. And a steering that has been silent for long leaves no queue stuck: without
        it everything passes.
        """
        if self.mode != "enforce" or silent:
            return None
        return self.streams.get(stream, StreamDecision()).buffer

    def arc_ppm(self, arc: str) -> int:
        """The keep decided for an arc inside the node; unknown arcs are kept whole."""
        return self.arcs.get(arc, PPM)


def named(decision: JobDecision) -> JobDecision:
    """The decision with its name in `plan`: eight hex digits of a hash over all that decides what is dropped.

    So a name in a ledger or an offset means the same in every process. Steps of a buffer are for queues as they stood
    at one moment: with such, the time of issue counts too.

    >>> half, third = (JobDecision(streams={"s": StreamDecision(keep_ppm)}) for keep_ppm in (500_000, 333_333))
    >>> named(half).plan == named(replace(half, issued_us=7)).plan, named(half).plan == named(third).plan
    (True, False)
    """
    buffered = any(stream.buffer is not None for stream in decision.streams.values())
    streams = {
        at: [stream.keep_ppm, stream.budget, *filter(None, (stream.limit, stream.max_age_us, stream.most_waiting))]
        for at, stream in decision.streams.items()
    }
    body = [decision.mode, decision.salt, decision.drop, streams, dict(decision.arcs)]
    text = json.dumps([*body, decision.issued_us] if buffered else body, sort_keys=True)
    return replace(decision, plan=sha256(text.encode()).hexdigest()[:8])


_FORM = TypeAdapter(JobDecision)


def write_decision(path: Path | str, decision: JobDecision) -> None:
    """Replace the decision file atomically: a reader sees the old one or the new one, never a part.

    Raises StoreError where the disk refuses; the decision in force stays.
    """
    target = Path(path)
    LocalStore(target.parent).write(target.name, _FORM.dump_json(decision), durable=False)


def follow_mode(path: Path | str, mode: Mode) -> None:
    """Put the decision in force into this mode, where no new one can be made; one that is damaged keeps everything."""
    try:
        decision = read_decision(path)
    except DecisionError:
        decision = JobDecision()
    if decision.mode != mode:
        write_decision(path, replace(decision, mode=mode))


def read_decision(path: Path | str) -> JobDecision:
    """The decision in a file; without a file: keep everything, mode observe. Raises DecisionError for a bad file."""
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        return JobDecision()
    except OSError as error:
        raise DecisionError(f"decision file {path} cannot be read: {error}", hint="Check the path") from None
    try:
        return _FORM.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise DecisionError(
            f"decision file {path} is refused: {where}: {first['msg']}",
            hint="Write it by `floodway set` or write_decision; the last good decision stays in force",
        ) from None


class DecisionFile:
    """Reads a decision file again and again; a torn or wrong one is counted and the last good decision stays.

    Who writes the file may be another process, whose clock says nothing here: it is `silent` when its decisions have
    had one time of issue for SILENCE_SECONDS of this process's own clock.
    """

    def __init__(
        self,
        path: Path | str | None,
        *,
        initial: JobDecision | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._issue: tuple[int, float] | None = None
        self.path = None if path is None else Path(path)
        self.refused = 0
        self.last_error: str | None = None
        self._good = initial or JobDecision()

    def read(self) -> JobDecision:
        """The decision in force now."""
        if self.path is None:
            return self._good
        try:
            self._good = read_decision(self.path)
        except DecisionError as error:
            self.refused += 1
            self.last_error = error.message
        if self._issue is None or self._issue[0] != self._good.issued_us:
            self._issue = self._good.issued_us, self._monotonic()
        return self._good

    @property
    def silent(self) -> bool:
        """Whether decisions are written here, and none has come for long; as of the last `read`."""
        if self._issue is None or self._issue[0] == 0:
            return False
        return self._monotonic() - self._issue[1] > SILENCE_SECONDS


def as_dict(decision: JobDecision) -> dict[str, object]:
    """Plain values, for reports and JSON output."""
    return asdict(decision)


def read_mode(store: Store) -> Mode | None:
    """The operator's wish; None if there is none. StoreError if there is one that cannot be understood."""
    stored = store.read(MODE)
    try:
        return None if stored is None else _MODE.validate_python(load_json(stored)["mode"])
    except (ValueError, LookupError, TypeError):
        raise StoreError(
            f"the operator's mode cannot be read: {store.uri}/{MODE} is damaged",
            hint="Ask for a mode again: floodway set NAME --mode enforce, observe or off",
        ) from None


def write_mode(store: Store, mode: str) -> None:
    """Leave a wish for the running job."""
    store.write(MODE, json.dumps({"mode": checked_mode(mode)}).encode())


def checked_mode(mode: str) -> Mode:
    """Refuse what is no mode."""
    try:
        return _MODE.validate_python(mode)
    except ValueError:
        raise InputError(f"mode {mode!r} is not known", hint=f"Choose one of {', '.join(MODES)}.") from None


class OperatorMode:
    """The mode of one job, from any thread; `otherwise` is the mode that the job was started with.

    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> mode = OperatorMode(store, "enforce", "clicks")
    >>> write_mode(store, "off")
    >>> mode.look()
    'off'
    """

    def __init__(self, store: Store, otherwise: Mode, job: str) -> None:
        self.errors = 0
        """How often the wish has become unreadable."""
        self._store = store
        self._otherwise = otherwise
        self._job = job
        self._last: Mode | None = None
        self._warning = ""
        self._lock = Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence while the wish cannot be read, else none."""
        return (self._warning,) if self._warning else ()

    def look(self) -> Mode:
        """The mode in force from now on."""
        return self.wish() or self._otherwise

    def wish(self) -> Mode | None:
        """What the operator asks for, None for nothing; while that cannot be read, the mode that is in force."""
        with self._lock:
            try:
                found = read_mode(self._store)
                self._warning = ""
            except StoreError as error:
                found = self._last or SAFE
                self._warn(str(error), found)
            self._last = found or self._otherwise
            return found

    def restore(self, mode: Mode | None, *, doubtful: bool = False) -> None:
        """Leave the wish of another state, if it had one, unless there is one here, readable or not.

        Where it is `doubtful` which of two is later, the one that drops nothing holds.
        """
        here = self.wish()
        if mode is not None and (here is None or (doubtful and here == "enforce")):
            write_mode(self._store, mode)

    def _warn(self, unreadable: str, mode: Mode) -> None:
        if not self._warning:
            self.errors += 1
            known = "the mode stays" if self._last is not None else "everything is kept, the mode is"
            self._warning = f"{unreadable}; until then {known} {mode}"
            log.error("floodway %s: %s", self._job, self._warning)
