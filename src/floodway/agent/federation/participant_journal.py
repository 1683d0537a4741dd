"""The journal of one participant: offers, moves, payments, penalties and leases in SQLite, durable when a call returns.

Every row has an id of the federation's (the offer's, which is the move's; the entry's; fragment and epoch), and writing
a row that is there already changes nothing: so whoever recovers may simply do everything again. What is old becomes
sums (`settlement.py`). Write-ahead logging with `synchronous = FULL`: a commit survives kill -9 and a power cut. States
of a move:

    giver   intended → stopped → asked → done | failed
    taker   taking → done | failed

Ownership is not decided here but on the shared storage (`leases.py`); the journal says what this side had begun.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from floodway.agent.federation.errors import StorageError
from floodway.agent.federation.journal_rows import OPEN, BookedEntry, MoveRow, Role, State, number_of, prepare
from floodway.contracts.messages import Offer
from floodway.contracts.payment import Payment, PaymentReason
from floodway.job.store.store import make_folder

FILE = "federation.sqlite"


class Journal:
    """One file a participant; safe from several threads."""

    def __init__(self, path: Path, participant: str | None) -> None:
        """`participant` None is for readers: whoever's it is."""
        self.path = path
        self._lock = threading.RLock()
        try:
            make_folder(path.parent)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        except (OSError, sqlite3.OperationalError) as error:
            raise StorageError(
                f"{path} cannot be opened: {error}", hint="Is the disk full, read-only or gone?"
            ) from None
        try:
            self.participant = prepare(self._db, path, participant)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise StorageError(f"{path} is no journal: {error}", hint="Restore it, or use another --state") from None
        except StorageError:
            self._db.close()
            raise

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is written inside, or nothing."""
        with self._lock:
            if self._db.in_transaction:  # part of one that is open already
                yield
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self._db.execute("COMMIT")
                except BaseException:
                    self._roll_back()
                    raise
            except sqlite3.OperationalError as error:
                raise StorageError(
                    f"{self.path} cannot be written: {error}", hint="Is the disk full, read-only or gone?"
                ) from error

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite ends it by itself where the disk fails
            self._db.execute("ROLLBACK")

    def offer(self, offer: Offer, role: Role, at: float) -> None:
        """An offer made or received."""
        partner = offer.taker if role == "giver" else offer.giver
        tasks = json.dumps([task.name for task in offer.tasks])
        values = (offer.id, role, partner, offer.price, tasks, at)
        self._write(
            "INSERT OR IGNORE INTO offers (id, role, partner, price, tasks, at) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def answered(self, offer: str, answer: str, partner: str) -> None:
        """How an offer to or from a partner was answered: accept, counter, reject or cancel."""
        self._write("UPDATE offers SET answer = ? WHERE id = ? AND partner = ?", (answer, offer, partner))

    def next_serial(self) -> int:
        """The first number that no offer of this participant has used."""
        rows = self._read("SELECT id FROM offers WHERE role = 'giver' UNION SELECT id FROM moves WHERE role = 'giver'")
        return max([self._forgotten().get("number", -1), *(number_of(row[0]) for row in rows)]) + 1

    def begin(self, row: MoveRow) -> None:
        """A move has begun; the same id again changes nothing."""
        body = asdict(row) | {name: json.dumps(getattr(row, name)) for name in ("units", "epochs", "seconds")}
        marks = ", ".join(f":{name}" for name in body)
        self._write(f"INSERT OR IGNORE INTO moves ({', '.join(body)}) VALUES ({marks})", body)

    def reach(
        self,
        move: str,
        state: State,
        *,
        seconds: Mapping[str, float] | None = None,
        note: str = "",
        at: float | None = None,
    ) -> None:
        """A move has come this far; a state once `done` or `failed` stays. `at` is when it became the taker's."""
        with self.transaction():
            row = self.move(move)
            if row is None or row.state not in OPEN:
                return
            merged = json.dumps({**row.seconds, **(seconds or {})})
            self._db.execute(
                "UPDATE moves SET state = ?, seconds = ?, note = ?, at = ? WHERE id = ?",
                (state, merged, note or row.note, row.at if at is None else at, move),
            )

    def served(self, move: str, until: float) -> None:
        """The taker has billed everything until then."""
        self._write("UPDATE moves SET served = max(coalesce(served, 0), ?) WHERE id = ?", (until, move))

    def ended(self, move: str, at: float, note: str) -> None:
        """The fragments of a done move have left the taker: nothing is owed from then on."""
        self._write("UPDATE moves SET ended = coalesce(ended, ?), note = ? WHERE id = ?", (at, note, move))

    def move(self, move: str) -> MoveRow | None:
        """One move."""
        return next(iter(self._moves("WHERE id = ?", (move,))), None)

    def moves(self, *, state: State | None = None) -> list[MoveRow]:
        """All moves, oldest first."""
        where, values = ("", ()) if state is None else ("WHERE state = ?", (state,))
        return self._moves(where, values)

    def latest_moves(self, count: int) -> list[MoveRow]:
        """The last so many moves, oldest first: what a status shows, however long the participant has run."""
        return self._moves("WHERE id IN (SELECT id FROM moves ORDER BY at DESC, id DESC LIMIT ?)", (count,))

    def moves_by_state(self) -> dict[str, int]:
        """How many moves are in each state; `done` and `failed` only ever grow."""
        found = Counter({state: self._forgotten().get(state, 0) for state in ("done", "failed")})
        found.update(dict(self._read("SELECT state, count(*) FROM moves GROUP BY state")))
        return dict(+found)

    def running_moves(self) -> list[MoveRow]:
        """Moves that were done and are not over."""
        return self._moves("WHERE state = 'done' AND ended IS NULL", ())

    def billable_moves(self) -> list[MoveRow]:
        """Moves that this side took and has not billed to their end."""
        return self._moves("WHERE state = 'done' AND role = 'taker' AND (ended IS NULL OR served IS NULL)", ())

    def open_moves(self) -> list[MoveRow]:
        """Moves begun and not finished: what a restart has to resolve."""
        return self._moves(f"WHERE state IN ({', '.join('?' * len(OPEN))})", OPEN)

    def book(self, booked: BookedEntry) -> None:
        """Enter a payment; the same again tells at most that both sides have it, another of that id is refused."""
        entry = booked.entry
        with self.transaction():
            known = self.entry(entry.id)
            if known is None:
                values = (
                    *(entry.id, booked.move, entry.payer, entry.payee, entry.amount, str(entry.reason), entry.at),
                    *(booked.start, booked.delay_seconds, int(booked.agreed), booked.keep),
                )
                columns = "id, move, payer, payee, amount, reason, at, start, delay, agreed, keep"
                self._db.execute(f"INSERT INTO entries ({columns}) VALUES ({', '.join('?' * 11)})", values)
            elif known.entry == entry:
                self.agree([entry.id] if booked.agreed else [])
            else:
                raise StorageError(f"entry {entry.id} is booked already with other content", hint="Use a new id")

    def agree(self, ids: Iterable[str]) -> None:
        """The partner has these entries too."""
        with self.transaction():
            self._db.executemany("UPDATE entries SET agreed = 1, disputed = '' WHERE id = ?", [(one,) for one in ids])

    def dispute(self, refused: Mapping[str, str]) -> None:
        """The partner refuses these entries, each for its reason; those that it has already stay agreed."""
        with self.transaction():
            rows = [(why[:300] or "refused", one) for one, why in refused.items()]
            self._db.executemany("UPDATE entries SET disputed = ? WHERE id = ? AND agreed = 0", rows)

    def billed_until(self, move: str, fragment: str) -> float | None:
        """The end of the last period that a move's taker has booked for a fragment; None before the first."""
        first, beyond = f"{move}/{fragment}/load/", f"{move}/{fragment}/load0"
        found = self._read("SELECT max(at) FROM entries WHERE move = ? AND id > ? AND id < ?", (move, first, beyond))
        return None if found[0][0] is None else float(found[0][0])

    def owed_to_me(self, *, disputed: bool) -> dict[str, list[BookedEntry]]:
        """Entries of moves taken that their givers have not agreed to, by giver; with `disputed` also those refused.

        What was never refused comes first.
        """
        which = "" if disputed else "AND disputed = ''"
        taken = "SELECT id FROM moves WHERE role = 'taker'"
        entries = self._entries(f"WHERE agreed = 0 {which} AND move IN ({taken})", ())
        givers: dict[str, str] = {}
        found: dict[str, list[BookedEntry]] = {}
        for one in sorted(entries, key=lambda one: one.disputed != ""):
            if one.move not in givers and (row := self.move(one.move)) is not None:
                givers[one.move] = row.giver
            found.setdefault(givers[one.move], []).append(one)
        return found

    def entry(self, identity: str) -> BookedEntry | None:
        """One entry."""
        return next(iter(self._entries("WHERE id = ?", (identity,))), None)

    def entries(self, *, agreed: bool | None = None, move: str | None = None) -> list[BookedEntry]:
        """Entries in the order of time."""
        if move is not None:
            return self._entries("WHERE move = ?", (move,))
        return self._entries("", ()) if agreed is None else self._entries("WHERE agreed = ?", (int(agreed),))

    def entries_between(self, move: str, after: float, before: float, count: int) -> list[BookedEntry]:
        """The first so many entries of a move that end after a time and before another, in their order."""
        chosen = "SELECT id FROM entries WHERE move = ? AND at > ? AND at < ? ORDER BY at, id LIMIT ?"
        return self._entries(f"WHERE id IN ({chosen})", (move, after, before, count))

    def moves_before(self, at: float) -> list[MoveRow]:
        """Moves that began before a time and are not under way."""
        return self._moves("WHERE at < ? AND state IN ('done', 'failed')", (at,))

    def settled_until(self, move: str, fragment: str) -> tuple[float, str] | None:
        """Until when the periods of a fragment are sums, and the holes in that; None before the first."""
        text = "SELECT until, holes FROM settled_until WHERE move = ? AND fragment = ?"
        return next(iter(self._read(text, (move, fragment))), None)

    def sums(self) -> list[Any]:
        """Move, payer, payee, reason, amount and number of the entries that are sums."""
        return self._read(
            "SELECT move, payer, payee, reason, amount, entries FROM settled ORDER BY move, payer, reason"
        )

    def settle(self, move: str, fragment: str, entries: Iterable[BookedEntry], until: float, holes: str) -> None:
        """Replace entries of a move by their sums; balances stay as they are."""
        with self.transaction():
            for one in entries:
                self._add_sum(move, one.entry.payer, one.entry.payee, str(one.entry.reason), one.entry.amount, 1)
                self._db.execute("DELETE FROM entries WHERE id = ?", (one.entry.id,))
            self._db.execute("INSERT OR REPLACE INTO settled_until VALUES (?, ?, ?, ?)", (move, fragment, until, holes))

    def forget(self, row: MoveRow) -> None:
        """Remove a move of which nothing is open; what it came to joins the sums of all that are forgotten."""
        with self.transaction():
            for one in self.entries(move=row.id):
                self._add_sum("", one.entry.payer, one.entry.payee, str(one.entry.reason), one.entry.amount, 1)
            for values in self._read("SELECT * FROM settled WHERE move = ?", (row.id,)):
                self._add_sum("", *values[1:])
            for table in ("entries", "settled", "settled_until"):
                self._db.execute(f"DELETE FROM {table} WHERE move = ?", (row.id,))
            self._db.execute("DELETE FROM moves WHERE id = ?", (row.id,))
            self._remember(row.state, self._forgotten().get(row.state, 0) + 1)
            if row.role == "giver":
                self._remember("number", max(self._forgotten().get("number", -1), number_of(row.id)))

    def forget_before(self, at: float) -> None:
        """Remove offers, and leases that have ended, from before a time."""
        with self.transaction():
            given = self._read("SELECT id FROM offers WHERE role = 'giver' AND at < ?", (at,))
            numbers = [self._forgotten().get("number", -1), *(number_of(row[0]) for row in given)]
            self._remember("number", max(numbers))
            self._db.execute("DELETE FROM offers WHERE at < ?", (at,))
            self._db.execute("DELETE FROM leases WHERE ended < ?", (at,))

    def is_forgotten(self, move: str) -> bool:
        """Whether a move's number was used by this participant, and nothing else is known of it any more."""
        giver, _, number = move.rpartition("/")
        given = giver == self.participant and number.isdecimal() and int(number) <= self._forgotten().get("number", -1)
        known = "SELECT 1 FROM moves WHERE id = ? UNION SELECT 1 FROM offers WHERE id = ?"
        return given and not self._read(known, (move, move))

    def _forgotten(self) -> dict[str, int]:
        return dict(self._read("SELECT what, value FROM forgotten"))

    def _remember(self, what: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", (what, value))

    def _add_sum(self, move: str, *values: str | float) -> None:
        update = "amount = settled.amount + excluded.amount, entries = settled.entries + excluded.entries"
        self._db.execute(
            f"INSERT INTO settled VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET {update}", (move, *values)
        )

    def balances(self) -> dict[str, float]:
        """What each participant has earned less what it has paid, as far as this journal knows; they add up to 0."""
        return dict(self._read("SELECT who, amount FROM balances ORDER BY who"))

    def leased(self, fragment: str, epoch: int, owner: str, at: float, how: str) -> None:
        """A lease that this participant took, or saw taken: `how` is own, moved, reclaimed or lost."""
        values = (fragment, epoch, owner, at, how)
        self._write("INSERT OR IGNORE INTO leases (fragment, epoch, owner, at, how) VALUES (?, ?, ?, ?, ?)", values)

    def lease_ended(self, fragment: str, epoch: int, at: float) -> None:
        """A lease is over."""
        self._write(
            "UPDATE leases SET ended = coalesce(ended, ?) WHERE fragment = ? AND epoch = ?", (at, fragment, epoch)
        )

    def leases(self) -> list[dict[str, Any]]:
        """Every lease known, oldest first."""
        names = ("fragment", "epoch", "owner", "at", "ended", "how")
        return [
            dict(zip(names, row, strict=True))
            for row in self._read(f"SELECT {', '.join(names)} FROM leases ORDER BY at")
        ]

    def offers(self) -> list[dict[str, Any]]:
        """Every offer, oldest first."""
        names = ("id", "role", "partner", "price", "tasks", "answer", "at")
        rows = self._read(f"SELECT {', '.join(names)} FROM offers ORDER BY at")
        return [dict(zip(names, row, strict=True)) | {"tasks": json.loads(row[4])} for row in rows]

    def _moves(self, where: str, values: tuple[Any, ...]) -> list[MoveRow]:
        names = list(MoveRow.__dataclass_fields__)
        rows = self._read(f"SELECT {', '.join(names)} FROM moves {where} ORDER BY at, id", values)
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [
            MoveRow(**(row | {name: json.loads(row[name]) for name in ("units", "epochs", "seconds")})) for row in found
        ]

    def _entries(self, where: str, values: tuple[Any, ...]) -> list[BookedEntry]:
        columns = "id, payer, payee, amount, reason, at, move, start, delay, agreed, keep, disputed"
        rows = self._read(f"SELECT {columns} FROM entries {where} ORDER BY at, id", values)
        return [
            BookedEntry(
                Payment(key, payer, payee, amount, PaymentReason(reason), at),
                move,
                start,
                delay,
                bool(agreed),
                *more,
            )
            for key, payer, payee, amount, reason, at, move, start, delay, agreed, *more in rows
        ]

    def _write(self, text: str, values: tuple[Any, ...] | dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute(text, values)

    def _read(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(text, values).fetchall()


def read_journal(state: Path) -> Journal:
    """Open the journal in a participant's folder, for `floodway payments`; refuses a folder without one."""
    path = state / FILE
    if not path.is_file():
        raise StorageError(f"no journal in {state}", hint="Give the --state of a `floodway participant`")
    return Journal(path, None)
