"""The journal's file: whose it is comes first, an older one is brought along, balances are kept and not summed."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from floodway.agent.federation.errors import StorageError
from floodway.agent.federation.journal_rows import VERSION, BookedEntry
from floodway.agent.federation.participant_journal import Journal, read_journal
from floodway.contracts.payment import Payment, PaymentReason

VERSION_1 = """
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
    reason TEXT NOT NULL, at REAL NOT NULL, start REAL NOT NULL, delay REAL, agreed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE leases (
    fragment TEXT NOT NULL, epoch INTEGER NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL, ended REAL,
    how TEXT NOT NULL, PRIMARY KEY (fragment, epoch));
INSERT INTO entries VALUES ('A/0/f/load/0.000', 'A/0', 'A', 'B', 20.0, 'load', 10.0, 0.0, 0.1, 1);
INSERT INTO entries VALUES ('A/0/f/penalty/0.000', 'A/0', 'B', 'A', 5.0, 'penalty', 10.0, 0.0, 0.1, 0);
"""


def written(path: Path, script: str) -> Path:
    database = sqlite3.connect(path)
    database.executescript(script)
    database.close()
    return path


def dump(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    found = [*database.iterdump(), str(database.execute("PRAGMA journal_mode").fetchone())]
    database.close()
    return found


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (VERSION_1 + "INSERT INTO about VALUES (1, 'B');", "version 1 of participant 'B', not 3 of 'A'"),
        (VERSION_1 + "INSERT INTO about VALUES (99, 'A');", "version 99 of participant 'A'"),
        ("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine');", "no journal of a participant"),
        (VERSION_1 + "INSERT INTO about VALUES ('three', 'A');", "version three of participant 'A'"),
        (VERSION_1 + "INSERT INTO about VALUES (x'00', 'A');", "of participant 'A', not 3"),
        ("CREATE TABLE about (text TEXT);", "no journal"),
    ],
)
def test_what_is_not_this_participants_is_refused_as_it_was(tmp_path: Path, script: str, message: str) -> None:
    path = written(tmp_path / "federation.sqlite", script)
    before = dump(path)
    with pytest.raises(StorageError, match=message):
        Journal(path, "A")
    assert dump(path) == before


@pytest.mark.parametrize("about", ["INSERT INTO about VALUES (1, 'A');", ""])
def test_a_journal_of_version_1_is_brought_along(tmp_path: Path, about: str) -> None:
    path = written(tmp_path / "federation.sqlite", VERSION_1 + about)
    journal = Journal(path, "A")
    assert journal.balances() == {"A": -15.0, "B": 15.0}
    assert [(one.keep, one.disputed) for one in journal.entries()] == [(1.0, ""), (1.0, "")]
    journal.dispute({"A/0/f/penalty/0.000": "no"})
    assert journal.balances() == {"A": -20.0, "B": 20.0}
    journal.close()
    again = read_journal(tmp_path)
    assert again.participant == "A" and again.balances() == {"A": -20.0, "B": 20.0}
    again.close()
    assert any(f"INSERT INTO \"about\" VALUES({VERSION},'A')" in line for line in dump(path))


def test_a_file_that_is_cut_short_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "federation.sqlite", VERSION_1 + "INSERT INTO about VALUES (1, 'A');")
    before = [line for line in dump(path) if not line.startswith("(")]
    schema = "floodway.agent.federation.journal_rows._BALANCES"
    monkeypatch.setattr(schema, "CREATE TABLE balances (who TEXT); CREATE TABLE nonsense (;")
    with pytest.raises(StorageError):
        Journal(path, "A")
    monkeypatch.undo()
    assert [line for line in dump(path) if not line.startswith("(")] == before
    journal = Journal(path, "A")
    assert journal.balances() == {"A": -15.0, "B": 15.0}
    journal.close()


def test_balances_are_the_sums_of_what_is_not_disputed(tmp_path: Path) -> None:
    seed = 20261116
    print(f"seed {seed}")
    chance = random.Random(seed)
    journal = Journal(tmp_path / "federation.sqlite", "A")
    booked: list[str] = []

    def book() -> None:
        payer, payee = chance.sample("ABC", 2)
        entry = Payment(
            f"A/0/f/load/{len(booked)}", payer, payee, float(chance.randrange(100)), PaymentReason.LOAD, 1.0
        )
        journal.book(BookedEntry(entry, "A/0", 0.0))
        booked.append(entry.id)

    steps: list[Callable[[], None]] = [
        book,
        lambda: journal.agree(chance.sample(booked, k=min(len(booked), 2))),
        lambda: journal.dispute(dict.fromkeys(chance.sample(booked, k=min(len(booked), 3)), "no")),
    ]
    for _ in range(300):
        chance.choice(steps)()
        counted = [one.entry for one in journal.entries() if not one.disputed]
        earned: defaultdict[str, float] = defaultdict(float)
        for one in counted:
            earned[one.payer] -= one.amount
            earned[one.payee] += one.amount
        assert {name: amount for name, amount in journal.balances().items() if amount} == {
            name: amount for name, amount in earned.items() if amount
        }
        assert sum(journal.balances().values()) == 0.0
    journal.close()
