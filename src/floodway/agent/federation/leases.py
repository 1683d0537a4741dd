"""Who runs a fragment: one lease a fragment and epoch, on the storage that all participants share.

    SHARED/fragments/NAME/lease-00000003.json   epoch 3: owner, since, until; the highest epoch is in force
    SHARED/fragments/NAME/past.json             what the leases before came to, once both sides have settled them
    SHARED/fragments/NAME/checkpoint/           Spark's checkpoint, handed over with the lease
    SHARED/moves/A.4.json                       how move A/4 was decided: taken, or withdrawn
    SHARED/moves/A.4.settled-B.json             B needs that file no more

An epoch's file is created by a hard link, which fails if the file is there: of two who claim the same epoch one wins,
whatever else is down. The owner pushes `until` ahead while it lives. Once a lease has run out its origin may claim the
next epoch; an owner that comes back sees a higher epoch than its own and stops. Of two processes of one owner the later
has put its mark into the lease, and the earlier stops. A move is decided by one file created in the same way, so giver
and taker, each alone after a crash, find the same answer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from floodway.agent.federation.errors import FragmentLostError, StorageError
from floodway.contracts.federation_file import NAME
from floodway.job.store.store import LocalStore, StoreError
from floodway.json_text import load_json

Form = TypeVar("Form")
_LEASE = re.compile(r"lease-([0-9]{8})\.json")
_MOVE = re.compile(rf"{NAME.pattern}/[0-9]{{1,12}}")
_DECISION = re.compile(rf"({NAME.pattern})\.([0-9]{{1,12}})\.json")


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class FragmentLease:
    """`owner` runs `fragment` until `until` (seconds since 1970), under `move` if it was moved there.

    `renewed` is when the owner last pushed it ahead, `process` which of its processes runs the fragment, None before
    one does. A lease that was claimed because the one before had run out says
    when that owner was last heard of (`idle_since`) and, if it had not released it in good order, until when its
    silence counts (`idle_until`): later writes to the old lease change nothing of this.
    """

    fragment: str
    epoch: int
    owner: str
    since: float
    until: float
    move: str | None = None
    renewed: float | None = None
    idle_since: float | None = None
    idle_until: float | None = None
    process: str | None = None

    @property
    def alive(self) -> float:
        """The owner's last sign of life."""
        return self.since if self.renewed is None else self.renewed


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class MoveDecision:
    """How a move ended: taken by the taker, or withdrawn by the giver; `epochs` are the giver's, by fragment."""

    id: str
    giver: str
    taker: str
    taken: bool
    at: float
    price: float
    epochs: Mapping[str, int]
    units: Mapping[str, float]


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class ServiceSpan:
    """A move's time with one fragment, in seconds since 1970: it is owed from `start` to `served`.

    `end` is when it was over, None while it lasts. `outage` is the time of silence that ended it, if that is how it
    ended; `to` who had the fragment next.
    """

    move: str
    start: float
    served: float
    end: float | None = None
    outage: tuple[float, float] | None = None
    to: str = ""


@dataclass(frozen=True, slots=True)
class LeasePast:
    """What the leases of a fragment up to an epoch come to: who has it from whom, and the span of every move.

    `chain` has each holder with the move that brought it, the origin first.
    """

    epoch: Annotated[int, Field(ge=0)] = 0
    chain: tuple[tuple[str, str | None], ...] = ()
    spans: Mapping[str, ServiceSpan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if lacking := {move for _, move in self.chain if move is not None} - self.spans.keys():
            raise ValueError(f"no span of {', '.join(sorted(lacking))}")


_LEASES = TypeAdapter(FragmentLease)
_DECISIONS = TypeAdapter(MoveDecision)
_PASTS = TypeAdapter(LeasePast)


class LeaseStore:
    """Leases and move decisions below one shared folder. Times are arguments: the store has no clock.

    >>> import tempfile
    >>> store = LeaseStore(Path(tempfile.mkdtemp()), seconds=10.0)
    >>> first = store.claim("f", "A", after=0, now=0.0)
    >>> second = store.claim("f", "B", after=first.epoch, now=30.0)
    >>> store.check(first, now=31.0)
    Traceback (most recent call last):
    ...
    floodway.agent.federation.errors.FragmentLostError: A lost fragment f to B (epoch 2); it ran out 21.0 s ago. ...
    """

    def __init__(self, root: Path, *, seconds: float = 10.0) -> None:
        self.root = root
        self.seconds = seconds
        self.process = os.urandom(8).hex()

    def checkpoint(self, fragment: str) -> Path:
        """The folder that moves with the lease."""
        return self._folder(fragment) / "checkpoint"

    def current(self, fragment: str) -> FragmentLease | None:
        """The lease in force, run out or not; None if nobody ever claimed the fragment."""
        epoch = self._highest(fragment)
        if epoch == 0:
            return None
        return _read(self._path(fragment, epoch), _LEASES)

    def claim(
        self,
        fragment: str,
        owner: str,
        *,
        after: int,
        now: float,
        move: str | None = None,
        lost: FragmentLease | None = None,
    ) -> FragmentLease:
        """Take epoch `after` + 1; refused if somebody has it, or a higher one. `lost` is a lease that has run out."""
        lease = FragmentLease(fragment, after + 1, owner, now, now + self.seconds, move)
        if lost is not None:
            lease = replace(lease, idle_since=lost.alive, idle_until=_end_of_silence(lost, now))
        if self._highest(fragment) != after or not self._create(lease):
            found = self.current(fragment)
            holder = f"{found.owner} holds epoch {found.epoch}" if found else "nobody holds it"
            raise FragmentLostError(
                f"{owner} cannot claim epoch {lease.epoch} of {fragment}: {holder}", hint="Leave it to the holder"
            )
        return lease

    def hold(self, lease: FragmentLease, *, now: float) -> FragmentLease:
        """Run under a lease from now on: the mark of this process goes in, and any other process of its owner stops."""
        return self.renew(replace(lease, process=None), now=now, process=self.process)

    def renew(self, lease: FragmentLease, *, now: float, process: str | None = None) -> FragmentLease:
        """The same lease for another while; a renewal that crosses a claim changes nothing, as epochs decide."""
        self.check(lease, now=now)
        fresh = replace(lease, until=now + self.seconds, renewed=now, process=process or lease.process)
        _replace(self._path(lease.fragment, lease.epoch), asdict(fresh))
        return fresh

    def release(self, lease: FragmentLease, *, now: float) -> None:
        """Let a lease run out at once: its origin need not wait. One that is lost already is left alone."""
        if self._in_force(lease):
            _replace(self._path(lease.fragment, lease.epoch), asdict(replace(lease, until=now, renewed=now)))

    def check(self, lease: FragmentLease, *, now: float) -> None:
        """Refuse to go on if a higher epoch is in force, or another process of the owner has taken over.

        `now` serves to say how long ago the lease ran out.
        """
        if self._in_force(lease):
            return
        found = self.current(lease.fragment)
        holder = f"{found.owner} (epoch {found.epoch})" if found else "nobody"
        if found is not None and found.epoch == lease.epoch:
            holder = f"another process of {found.owner}"
        late = now - lease.until
        when = f"; it ran out {late:.1f} s ago" if late > 0 else ""
        raise FragmentLostError(
            f"{lease.owner} lost fragment {lease.fragment} to {holder}{when}", hint="Stop running it"
        )

    def held_by(self, owner: str) -> dict[str, FragmentLease]:
        """All fragments whose lease in force names this participant."""
        leases = (self.current(name) for name in self.fragments())
        return {lease.fragment: lease for lease in leases if lease is not None and lease.owner == owner}

    def fragments(self) -> list[str]:
        """Every fragment that was ever claimed."""
        folder = self.root / "fragments"
        return sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []

    def decide(self, wanted: MoveDecision) -> MoveDecision:
        """Decide a move unless it is decided already; what counts is what comes back."""
        path = self._move_path(wanted.id)
        return wanted if _create(path, asdict(wanted)) else _read(path, _DECISIONS)

    def decision(self, move: str) -> MoveDecision | None:
        """How a move was decided; None while it is open."""
        path = self._move_path(move)
        return _read(path, _DECISIONS) if path.exists() else None

    def follow(self, decision: MoveDecision) -> dict[str, tuple[FragmentLease, ...]]:
        """Claim the leases that a taken move brings, as far as nobody has; either side may do it, any number of times.

        Returns the leases of its fragments from the giver's on, oldest first.
        """
        for fragment, epoch in decision.epochs.items():
            if decision.taken and self._highest(fragment) == epoch:
                until = decision.at + self.seconds
                self._create(FragmentLease(fragment, epoch + 1, decision.taker, decision.at, until, decision.id))
        return {name: tuple(self.history(name, after=epoch - 1)) for name, epoch in decision.epochs.items()}

    def after(self, fragment: str, epoch: int) -> FragmentLease | None:
        """The lease that followed an epoch: when and by whom it was ended; None while it is in force."""
        path = self._path(fragment, epoch + 1)
        return _read(path, _LEASES) if path.exists() else None

    def history(self, fragment: str, *, after: int = 0) -> list[FragmentLease]:
        """All leases of a fragment above an epoch, oldest first; of those that are past, the ones that are left."""
        listed = self._epochs(fragment)
        present = range(self.past(fragment).epoch + 1, max(listed, default=0) + 1)
        epochs = sorted({one for one in (*listed, *present) if one > after})
        return [_read(self._path(fragment, epoch), _LEASES) for epoch in epochs]

    def past(self, fragment: str) -> LeasePast:
        """What the leases came to that are past."""
        path = self._folder(fragment) / "past.json"
        return _read(path, _PASTS) if path.exists() else LeasePast()

    def forget_leases(self, fragment: str, past: LeasePast, needed: Collection[int]) -> None:
        """Let the leases be past, and remove their files but for those that are needed; only the origin may."""
        if past != self.past(fragment):
            _replace(self._folder(fragment) / "past.json", asdict(past))
        for epoch in self._epochs(fragment):
            if epoch <= past.epoch and epoch not in needed:
                _remove(self._path(fragment, epoch))

    def decisions(self) -> list[MoveDecision]:
        """All moves that are decided and not forgotten."""
        folder = self.root / "moves"
        found = (_DECISION.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        moves = sorted(f"{match[1]}/{match[2]}" for match in found if match)
        return [decision for move in moves if (decision := self.decision(move)) is not None]

    def note_settled(self, move: str, side: str) -> None:
        """One side of a move needs its decision no more."""
        if self._move_path(move).exists():
            _create(self._settled_path(move, side), {})
            if not self._move_path(move).exists():  # forgotten in this very moment
                _remove(self._settled_path(move, side))

    def is_settled(self, decision: MoveDecision) -> bool:
        """Whether neither side needs a decision any more. Who was to take a move that was withdrawn may not know it."""
        sides = (decision.giver, decision.taker) if decision.taken else (decision.giver,)
        return all(self._settled_path(decision.id, side).exists() for side in sides)

    def forget_move(self, decision: MoveDecision) -> None:
        """Remove the files of a move that is settled; only its giver may."""
        _remove(self._move_path(decision.id))
        for side in (decision.giver, decision.taker):
            _remove(self._settled_path(decision.id, side))

    def _in_force(self, lease: FragmentLease) -> bool:
        """By the names of two files: a listing may come from a cache, on NFS for as long as it keeps folders."""
        path = self._path(lease.fragment, lease.epoch)
        if not path.exists() or self._path(lease.fragment, lease.epoch + 1).exists():
            return False
        if lease.epoch <= self.past(lease.fragment).epoch:  # written by one who had slept since it looked
            return False
        return lease.process is None or _read(path, _LEASES).process == lease.process

    def _create(self, lease: FragmentLease) -> bool:
        """Take an epoch; False if somebody has it, or had it before it was past."""
        return lease.epoch > self.past(lease.fragment).epoch and _create(
            self._path(lease.fragment, lease.epoch), asdict(lease)
        )

    def _highest(self, fragment: str) -> int:
        return max(self._epochs(fragment), default=0)

    def _epochs(self, fragment: str) -> list[int]:
        try:
            names = [path.name for path in self._folder(fragment).iterdir()]
        except FileNotFoundError:
            return []
        return [int(match[1]) for name in names if (match := _LEASE.fullmatch(name))]

    def _folder(self, fragment: str) -> Path:
        if not NAME.fullmatch(fragment):
            raise StorageError(f"{fragment[:80]!r} cannot be a fragment", hint="Use letters, digits, - and _")
        return self.root / "fragments" / fragment

    def _path(self, fragment: str, epoch: int) -> Path:
        return self._folder(fragment) / f"lease-{epoch:08d}.json"

    def _move_path(self, move: str) -> Path:
        if not _MOVE.fullmatch(move):
            raise StorageError(f"{move[:80]!r} cannot be a move", hint="Moves are numbered GIVER/0, GIVER/1, …")
        if not self.fragments():
            # What is moved was claimed before: this is only the folder where the storage should be.
            raise StorageError(f"there is no lease in {self.root}", hint="Is the shared storage mounted there?")
        return self.root / "moves" / f"{move.replace('/', '.')}.json"

    def _settled_path(self, move: str, side: str) -> Path:
        path = self._move_path(move)
        return path.with_name(f"{path.stem}.settled-{side}.json")


def _end_of_silence(lost: FragmentLease, now: float) -> float | None:
    """Until when a lost lease's silence counts; None if it was released.

    An origin that was away itself is not paid for that: silence counts for twice the time the lease was good for.
    """
    good_for = lost.until - lost.alive
    return min(now, lost.alive + 2 * good_for) if good_for > 0 else None


def _create(path: Path, body: Mapping[str, Any]) -> bool:
    """Put a whole file in place, or nothing if one is there: True for the one who did."""
    with _beside(path) as folder:
        return folder.create(path.name, _whole(body))


def _replace(path: Path, body: Mapping[str, Any]) -> None:
    with _beside(path) as folder:
        folder.write(path.name, _whole(body))


def _remove(path: Path) -> None:
    with _beside(path) as folder:
        folder.remove(path.name)


@contextmanager
def _beside(path: Path) -> Iterator[LocalStore]:
    """The folder that a file is written in: members may be several users of the storage."""
    try:
        yield LocalStore(path.parent, folder_mode=0o777)
    except StoreError as error:
        hint = "Is the shared storage full, read-only or gone?"
        raise StorageError(f"{path} cannot be written: {error.why}", hint=hint) from error


def _whole(body: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": 1, **body}).encode()


def _read(path: Path, form: TypeAdapter[Form]) -> Form:
    try:
        body = load_json(path.read_bytes())
        if not isinstance(body, dict) or body.pop("version", None) != 1:
            raise ValueError("not version 1")
        return form.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    except (OSError, ValueError) as error:
        why = str(error)
    raise StorageError(f"{path} cannot be read: {why[:300]}", hint="Restore it from a copy")
