"""A participant's journal: its tables, how a file becomes one, and its rows: moves, and entries of payments.

Whose a file is and of which version is looked at before anything in it is altered. All tables are made at once or none,
and a file of an earlier version is brought to this one in the same way. Balances are kept by triggers: to ask for them
costs the same after a year.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from floodway.agent.federation.errors import StorageError
from floodway.contracts.payment import Payment

Role = Literal["giver", "taker"]
State = Literal["intended", "stopped", "asked", "taking", "done", "failed"]
OPEN: tuple[State, ...] = ("intended", "stopped", "asked", "taking")


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One move as this side saw it; `units` and `epochs` by fragment, `seconds` by phase (stop, hand_over, start).

    `ended` is when nothing more was owed, `served` until when the taker has billed.
    """

    id: str
    role: Role
    giver: str
    taker: str
    price: float
    units: Mapping[str, float]
    epochs: Mapping[str, int]
    state: State
    at: float
    ended: float | None = None
    served: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def partner(self) -> str:
        """The other side."""
        return self.taker if self.role == "giver" else self.giver


@dataclass(frozen=True, slots=True)
class BookedEntry:
    """A payment with the time it is for (`start` to `entry.at`), and the delay and the share kept that were reported.

    `agreed` says that both sides have it, `disputed` why the giver refused it last.
    """

    entry: Payment
    move: str
    start: float
    delay_seconds: float | None = None
    agreed: bool = False
    keep: float = 1.0
    disputed: str = ""


def fragment_of(booked: BookedEntry) -> str:
    """The fragment that an entry is for: `MOVE/FRAGMENT/...`."""
    return booked.entry.id.removeprefix(f"{booked.move}/").partition("/")[0]


def number_of(move: str) -> int:
    """The number in the id of a move or an offer: `GIVER/NUMBER`."""
    return int(move.rpartition("/")[2])


VERSION = 3
_TABLES = """
CREATE TABLE about (version INTEGER NOT NULL, participant TEXT NOT NULL);
CREATE TABLE offers (
    id TEXT PRIMARY KEY, role TEXT NOT NULL, partner TEXT NOT NULL, price REAL NOT NULL, tasks TEXT NOT NULL,
    answer TEXT, at REAL NOT NULL);
CREATE TABLE moves (
    id TEXT PRIMARY KEY, role TEXT NOT NULL, giver TEXT NOT NULL, taker TEXT NOT NULL, price REAL NOT NULL,
    units TEXT NOT NULL, epochs TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL, ended REAL, served REAL,
    seconds TEXT NOT NULL DEFAULT '{}', note TEXT NOT NULL DEFAULT '');
CREATE TABLE entries (
    id TEXT PRIMARY KEY, move TEXT NOT NULL, payer TEXT NOT NULL, payee TEXT NOT NULL, amount REAL NOT NULL,
    reason TEXT NOT NULL, at REAL NOT NULL, start REAL NOT NULL, delay REAL, agreed INTEGER NOT NULL DEFAULT 0,
    keep REAL NOT NULL DEFAULT 1, disputed TEXT NOT NULL DEFAULT '');
CREATE TABLE leases (
    fragment TEXT NOT NULL, epoch INTEGER NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL, ended REAL,
    how TEXT NOT NULL, PRIMARY KEY (fragment, epoch));
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS entries_of_move ON entries (move, at);
CREATE INDEX IF NOT EXISTS entries_open ON entries (agreed) WHERE agreed = 0;
CREATE INDEX IF NOT EXISTS moves_by_time ON moves (at);
CREATE INDEX IF NOT EXISTS moves_unfinished ON moves (state, ended);
"""
_SETTLED = """
CREATE TABLE settled (
    move TEXT NOT NULL, payer TEXT NOT NULL, payee TEXT NOT NULL, reason TEXT NOT NULL, amount REAL NOT NULL,
    entries INTEGER NOT NULL, PRIMARY KEY (move, payer, payee, reason));
CREATE TABLE settled_until (
    move TEXT NOT NULL, fragment TEXT NOT NULL, until REAL NOT NULL, holes TEXT NOT NULL,
    PRIMARY KEY (move, fragment));
CREATE TABLE forgotten (what TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
"""What old entries come to (`settlement.py`); of forgotten moves how many there were, and the highest number."""
_LATER_COLUMNS = {"keep": "REAL NOT NULL DEFAULT 1", "disputed": "TEXT NOT NULL DEFAULT ''"}
"""Columns of `entries` that some journals of version 1 have not."""


def _counting(row: str, sign: str) -> str:
    """Statements that add an entry to both sides' balances (`sign` is empty), or take it off again (a minus)."""
    sides = ((f"{row}.payee", f"{sign}{row}.amount"), (f"{row}.payer", f"-({sign}{row}.amount)"))
    update = "ON CONFLICT (who) DO UPDATE SET amount = balances.amount + excluded.amount"
    return " ".join(f"INSERT INTO balances VALUES ({who}, {amount}) {update};" for who, amount in sides)


_BALANCES = f"""
CREATE TABLE balances (who TEXT PRIMARY KEY, amount REAL NOT NULL);
INSERT INTO balances SELECT who, sum(amount) FROM (
    SELECT payer AS who, -amount AS amount FROM entries WHERE disputed = ''
    UNION ALL SELECT payee, amount FROM entries WHERE disputed = '') GROUP BY who;
CREATE TRIGGER entry_booked AFTER INSERT ON entries WHEN NEW.disputed = ''
    BEGIN {_counting("NEW", "")} END;
CREATE TRIGGER entry_disputed AFTER UPDATE ON entries WHEN OLD.disputed = '' AND NEW.disputed <> ''
    BEGIN {_counting("OLD", "-")} END;
CREATE TRIGGER entry_agreed AFTER UPDATE ON entries WHEN OLD.disputed <> '' AND NEW.disputed = ''
    BEGIN {_counting("NEW", "")} END;
"""
"""What the giver refuses to book is in nobody's balance."""


def prepare(database: sqlite3.Connection, path: Path, participant: str | None) -> str:
    """Make the tables, or bring them to this version; whose they are. None as `participant` makes nothing."""
    database.execute("PRAGMA synchronous = FULL")
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    known = database.execute("SELECT version, participant FROM about").fetchone() if "about" in tables else None
    if known is None and {"about", "entries"} <= tables and participant is not None:
        known = (1, participant)  # version 1 was killed before it had written whose it is
    if known is None and (tables or participant is None):
        raise StorageError(f"{path} is no journal of a participant", hint="Restore it, or use another --state")
    if known is not None and (known[0] not in range(1, VERSION + 1) or participant not in (None, known[1])):
        wanted = f"{VERSION}" if participant is None else f"{VERSION} of {participant!r}"
        raise StorageError(
            f"{path} is version {known[0]} of participant {known[1]!r}, not {wanted}",
            hint="Give each participant a --state of its own, and run it with the version that wrote it",
        )
    database.execute("PRAGMA journal_mode = WAL")
    owner = str(participant if known is None else known[1])
    if known is None:
        database.executescript(f"BEGIN IMMEDIATE; {_TABLES} {_INDEXES} {_BALANCES} {_SETTLED} {_about(owner)} COMMIT;")
    elif known[0] == 1:
        columns = {row[1] for row in database.execute("PRAGMA table_info(entries)")}
        missing = [(name, kind) for name, kind in _LATER_COLUMNS.items() if name not in columns]
        added = " ".join(f"ALTER TABLE entries ADD COLUMN {name} {kind};" for name, kind in missing)
        database.executescript(f"BEGIN IMMEDIATE; {added} {_INDEXES} {_BALANCES} {_SETTLED} {_about(owner)} COMMIT;")
    elif known[0] == 2:
        database.executescript(f"BEGIN IMMEDIATE; {_SETTLED} {_about(owner)} COMMIT;")
    return owner


def _about(owner: str) -> str:
    """A script takes no parameters, so the name is quoted here."""
    quoted = owner.replace("'", "''")
    return f"DELETE FROM about; INSERT INTO about VALUES ({VERSION}, '{quoted}');"
